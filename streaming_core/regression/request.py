"""RegressionSpec: what a regression is asked to run, a matrix of cells; the DAG's form is made from it."""

from __future__ import annotations

import itertools
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from streaming_core.errors import BadInput
from streaming_core.run.way import (
    AXES,
    BASELINES,
    BATCH,
    CHAINED,
    EXECUTORS,
    MAX_BATCH,
    MAX_THREADS,
    SHARED_POOLS,
    ParamValue,
    RunSpec,
    one_line,
    strategies,
)

# What a regression chooses from: `order` is an axis of executors that deliver in either.
REQUESTED = (*AXES, "order")


def _chosen(axis: str, description: str, how_many: int | None = 1) -> Any:
    """Field `<axis>s` of a regression: some of an axis's strategies, by default the first ones (None: all)."""
    return Field(default=strategies(axis)[:how_many], min_length=1, description=description)


class RegressionSpec(BaseModel):
    """The matrix of one regression run; the DAG form is made from this model.

    Per axis of `EXECUTORS`, the field `<axis>s` names the strategies to try. A way of executing is a choice on every
    axis of its executor; the other executors' axes do not concern it.
    """

    model_config = ConfigDict(extra="forbid")

    applications: list[str] = Field(
        default=["gs", "sl", "wc", "fd", "sd"], min_length=1, description="Applications to run."
    )
    executors: list[str] = Field(
        default=[name for name in EXECUTORS if name not in BASELINES],
        min_length=1,
        description="Executors to run them on.",
    )
    schemes: list[str] = _chosen("scheme", "Transactional schemes; no_lock is a bound, not a result.", None)
    pools: list[str] = _chosen("pool", "Chain pools, of the schemes that take operation chains from one.")
    stealing: bool = Field(False, description="Shared pools both without work stealing and with it.")
    heuristics: list[str] = _chosen("heuristic", "How pooled workers choose the next operator.")
    queues: list[str] = _chosen("queue", "Worklists of pooled, partitioned operators.")
    reorders: list[str] = _chosen("reorder", "Reorder buffers behind pooled, parallel operators.")
    channels: list[str] = _chosen(
        "channel",
        "What brings the rows of pinned replicas into one order; spsc keeps none, and is for applications that say "
        "what agrees without.",
    )
    orders: list[str] = _chosen("order", "Orders in which morsel delivers; none as for spsc.")
    threads: list[int] = Field(default=[1, 2], min_length=1, description="Thread counts.")
    batches: list[int] = Field(default=[BATCH], min_length=1, description="Events in a batch.")
    events: int = Field(100_000, ge=1, le=100_000_000, description="Events per workload.")
    seed: int = Field(1, ge=0, le=2**63 - 1, description="Seed of the workload generators.")
    repetitions: int = Field(3, ge=1, le=50, description="Measured passes per cell, at peak rate.")
    rate: float = Field(0.0, ge=0.0, description="Events per second of one extra open-loop pass; 0 = none.")
    checkpoint: int = Field(
        0, ge=0, le=1_000_000, description="Punctuations between two checkpoints of a transactional cell; 0 = none."
    )
    params: dict[str, dict[str, ParamValue]] = Field(
        default_factory=dict, description="Per application, parameters that differ from the defaults."
    )

    @field_validator("threads", "batches")
    @classmethod
    def _counts_in_range(cls, counts: list[int], field: ValidationInfo) -> list[int]:
        most = {"threads": MAX_THREADS, "batches": MAX_BATCH}[field.field_name]
        for count in counts:
            if not 1 <= count <= most:
                raise ValueError(f"{field.field_name} must lie in 1..{most}, got {count}")
        return sorted(set(counts))

    @field_validator("executors")
    @classmethod
    def _executors_known(cls, executors: list[str]) -> list[str]:
        for name in executors:
            if name not in EXECUTORS:
                raise ValueError(f"unknown executor {name!r}; known: {', '.join(EXECUTORS)}")
        return executors

    @field_validator(*(f"{axis}s" for axis in REQUESTED))
    @classmethod
    def _strategies_known(cls, names: list[str], field: ValidationInfo) -> list[str]:
        axis = field.field_name.removesuffix("s")
        known = strategies(axis)
        for name in names:
            if name not in known:
                raise ValueError(f"unknown {axis} {name!r}; known: {', '.join(known)}")
        return list(dict.fromkeys(names))

    @model_validator(mode="after")
    def _stealing_has_a_pool(self) -> RegressionSpec:
        if self.stealing and not SHARED_POOLS.intersection(self.pools):
            raise ValueError("stealing needs a shared pool")
        return self

    @classmethod
    def parse(cls, data: dict | str | bytes) -> RegressionSpec:
        """A RegressionSpec from a dict or JSON text; raises BadInput with one line."""
        try:
            return cls.model_validate_json(data) if isinstance(data, str | bytes) else cls.model_validate(data)
        except ValidationError as error:
            raise BadInput(one_line(error)) from None

    def cells(self, kinds: dict[str, str]) -> list[RunSpec]:
        """Every cell of the matrix, in a fixed order.

        Args:
            kinds: application id -> kind (`transaction`, `dataflow`, ...), as the application registry gives it.

        Raises:
            BadInput: an application is unknown, or nothing of the request can run it.
        """
        cells: dict[str, RunSpec] = {}
        for app in self.applications:
            if app not in kinds:
                raise BadInput(f"unknown application {app!r}; known: {', '.join(kinds)}")
            able = [name for name in self.executors if kinds[app] in EXECUTORS[name].runs]
            if not able:
                fitting = [e.name for e in EXECUTORS.values() if kinds[app] in e.runs]
                raise BadInput(f"application {app} runs on: {', '.join(fitting)}; asked: {', '.join(self.executors)}")
            for name in able:
                for way, batch, threads in itertools.product(self._ways(name), self.batches, self.threads):
                    spec = RunSpec(
                        app=app,
                        params=self.params.get(app, {}),
                        executor=name,
                        **way,
                        threads=threads,
                        batch=batch,
                        rate=self.rate,
                        sink="parquet",
                        repetitions=self.repetitions,
                        checkpoint=self.checkpoint if name == "transactional" else 0,
                    )
                    cells[spec.cell] = spec
        return list(cells.values())

    def _ways(self, executor: str) -> list[dict[str, Any]]:
        """Every choice on the executor's axes, as fields of a RunSpec; some choices come to the same way."""
        axes, ways = EXECUTORS[executor].axes, []
        for choice in itertools.product(*(getattr(self, f"{axis}s") for axis in axes)):
            way = dict(zip(axes, choice, strict=True))
            if "pool" in way and way["scheme"] not in CHAINED:
                way["pool"] = None
            ways.append(way)
            if self.stealing and way.get("pool") in SHARED_POOLS:
                ways.append(way | {"stealing": True})
        return ways
