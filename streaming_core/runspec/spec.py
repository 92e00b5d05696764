"""RunSpec: one cell, that is one application executed in one way. RegressionSpec: the matrix of a DAG run.

Every option of every surface (CLI flag, DAG form field, warehouse column) carries the name of a field here.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from streaming_core.errors import BadInput

MAX_THREADS = 1024
BATCH, MAX_BATCH = 256, 65_536
ParamValue = bool | int | float | str


@dataclass(frozen=True)
class Executor:
    """What one executor offers: the kind of application it runs and, per axis, its strategies (first = default)."""

    name: str
    runs: tuple[str, ...]
    axes: dict[str, tuple[str, ...]]


# The registry. A strategy is listed once it runs; adding one touches its own file in the runtime and this table.
EXECUTORS: dict[str, Executor] = {
    executor.name: executor
    for executor in (
        Executor(
            "transactional",
            runs=("transaction",),
            axes={
                "scheme": ("tstream", "serial", "lock", "mvlk", "pat", "auto", "no_lock"),
                "pool": ("shared_nothing", "shared_everything", "shared_per_socket"),
            },
        ),
        Executor(
            "pooled",
            runs=("dataflow",),
            axes={
                "heuristic": ("ct", "lp", "et", "qst"),
                "queue": ("hybrid", "partitioned", "shared"),
                "reorder": ("non_blocking", "lock"),
            },
        ),
        Executor("pinned", runs=("dataflow",), axes={"channel": ("scalegate", "merge_sort", "spsc")}),
        Executor("morsel", runs=("dataflow",), axes={"order": ("total", "none")}),
    )
}

# Ways of executing that bound a result instead of producing one: compared, reported, never counted as verified.
BOUNDS = frozenset({"no_lock"})

# Executors that others are compared with: run where they are asked for.
BASELINES = frozenset({"morsel"})

# Channels that keep no order: compared by what the application says agrees then.
UNORDERED = frozenset({"spsc"})

# Schemes that evaluate operation chains, and so take them from a pool.
CHAINED = frozenset({"tstream", "auto"})
# Pools whose threads may take chains from each other.
SHARED_POOLS = frozenset({"shared_everything", "shared_per_socket"})

AXES = ("scheme", "pool", "heuristic", "queue", "reorder", "channel")
# What a regression chooses from: `order` is an axis of executors that deliver in either.
REQUESTED = (*AXES, "order")


def strategies(axis: str) -> list[str]:
    """What there is to choose from on an axis, the default first."""
    return list(dict.fromkeys(name for executor in EXECUTORS.values() for name in executor.axes.get(axis, ())))


def canonical_json(value: object) -> str:
    """One spelling per value: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest_of(value: object) -> str:
    """First 16 hex digits of SHA-256 over the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]


class RunSpec(BaseModel):
    """One way of executing one application. Axes an executor does not have stay None."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    app: str = Field(description="Application id, as `streaming-core apps` lists it.")
    params: dict[str, ParamValue] = Field(default_factory=dict, description="Parameters that differ from the defaults.")
    executor: str = Field(description="Who runs which stage on which batch.")
    threads: int = Field(1, ge=1, le=MAX_THREADS, description="OS threads that work, source and sink included.")
    scheme: str | None = Field(None, description="Transactional scheme.")
    pool: str | None = Field(None, description="Who may evaluate an operation chain.")
    stealing: bool = Field(False, description="Work stealing between threads of a shared chain pool.")
    punctuation: int = Field(500, ge=1, le=10_000_000, description="Events between two punctuations.")
    checkpoint: int = Field(0, ge=0, le=1_000_000, description="Punctuations between two checkpoints; 0 = none.")
    batch: int = Field(BATCH, ge=1, le=MAX_BATCH, description="Events in a batch.")
    heuristic: str | None = Field(None, description="How a pooled worker chooses the next operator.")
    queue: str | None = Field(None, description="Worklist of partitioned operators.")
    reorder: str | None = Field(None, description="Reorder buffer behind parallel operators.")
    channel: str | None = Field(None, description="What brings the rows of several replicas into one order.")
    plan: dict[str, list[int]] = Field(
        default_factory=dict,
        description="Per operator of executor pinned, `source` and `sink` too, the threads of its replicas.",
    )
    order: Literal["total", "none"] | None = Field(
        None, description="Order in which outputs are delivered; none with channel spsc, morsel's choice, else total."
    )
    rate: float = Field(0.0, ge=0.0, description="Events per second offered by the open-loop source; 0 = peak rate.")
    pin: bool = Field(False, description="Bind thread i to core i.")
    idle: Literal["spin", "yield", "park"] = Field("yield", description="What a thread does while it waits.")
    sink: Literal["parquet", "digest", "count"] = Field("digest", description="Where the outputs go.")
    repetitions: int = Field(0, ge=0, le=100, description="Measured passes at peak rate after the first pass.")

    @model_validator(mode="after")
    def _axes_fit_executor(self) -> RunSpec:
        executor = EXECUTORS.get(self.executor)
        if executor is None:
            raise ValueError(f"unknown executor {self.executor!r}; known: {', '.join(EXECUTORS)}")
        for axis in AXES:
            value = getattr(self, axis)
            allowed = executor.axes.get(axis)
            if axis == "pool" and allowed is not None and self.scheme not in CHAINED:
                if value is not None:
                    raise ValueError(f"scheme {self.scheme} has no pool")
            elif allowed is None:
                if value is not None:
                    raise ValueError(f"executor {self.executor} has no {axis}")
            elif value is None:
                object.__setattr__(self, axis, allowed[0])
            elif value not in allowed:
                raise ValueError(f"unknown {axis} {value!r} of executor {self.executor}; known: {', '.join(allowed)}")
        order = "none" if self.channel in UNORDERED else "total"
        if "order" in executor.axes:
            order = self.order or order
        if self.order not in (None, order):
            raise ValueError(f"order is {order} with {f'channel {self.channel}' if self.channel else self.executor}")
        object.__setattr__(self, "order", order)
        if self.plan and self.executor != "pinned":
            raise ValueError(f"executor {self.executor} has no plan; pinned has")
        for name, places in self.plan.items():
            if not places or not all(0 <= place < self.threads for place in places):
                raise ValueError(f"plan: {name} needs a replica, each on one of the threads 0 to {self.threads - 1}")
        if self.checkpoint and self.executor != "transactional":
            raise ValueError(f"executor {self.executor} takes no checkpoints; transactional does")
        if self.stealing and self.pool not in SHARED_POOLS:
            raise ValueError("stealing needs a shared pool")
        return self

    @classmethod
    def parse(cls, data: dict | str | bytes) -> RunSpec:
        """A RunSpec from a dict or JSON text.

        Raises:
            BadInput: one line that names the field and what it may be.
        """
        try:
            return cls.model_validate_json(data) if isinstance(data, str | bytes) else cls.model_validate(data)
        except ValidationError as error:
            raise BadInput(one_line(error)) from None

    @property
    def is_bound(self) -> bool:
        """Whether this way of executing is a reference bound (reported `not_comparable`)."""
        return self.scheme in BOUNDS

    @property
    def spec_digest(self) -> str:
        """Digest of this spec's canonical JSON: known before anything runs."""
        return digest_of(self.model_dump(mode="json"))

    @property
    def strategy(self) -> str:
        """What names this way of executing: the executor's first axis, and what differs from the defaults."""
        (first, _), *others = axes = [*EXECUTORS[self.executor].axes.items()]
        # An order alone names nothing.
        named, others = ([self.executor], axes) if first == "order" else ([getattr(self, first)], others)
        named += [value for axis, known in others if (value := getattr(self, axis)) not in (None, known[0])]
        named += ["stealing"] if self.stealing else []
        named += [f"batch{self.batch}"] if self.batch != BATCH else []
        return "-".join(named)

    @property
    def cell(self) -> str:
        """Name of this cell inside a run: letters, digits, `.`, `_` and `-` only; unique by the digest's tail."""
        return f"{self.app}.{self.executor}.{self.strategy}.t{self.threads}.{self.spec_digest[:8]}"


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
    events: int = Field(
        100_000, ge=0, le=100_000_000, description="Events per workload; of none, nothing is compared: no pass."
    )
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


def one_line(error: ValidationError) -> str:
    """A pydantic error as one line: `field: message; field: message`."""
    parts = []
    for item in error.errors():
        where = ".".join(str(p) for p in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        parts.append(f"{where}: {message}" if where else message)
    return "; ".join(parts)
