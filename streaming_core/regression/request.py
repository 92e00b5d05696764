"""RegressionSpec: what a regression is asked to run, a matrix of cells; the DAG's form is made from it.

What there is to choose of each executor comes from its declaration (run/way.py): of an axis, as `<axis>s`, the
strategies to try; of a switch, whether to try it beside its absence; of a number, the one that all cells have. Plans
are tried as strategies are.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from streaming_core.apps.registry import ALL
from streaming_core.errors import BadInput, one_line
from streaming_core.run.way import (
    AUTO_PLAN,
    AXES,
    DEFAULT_BATCH,
    EXECUTORS,
    MAX_BATCH,
    MAX_THREADS,
    NAMED_PLANS,
    OPTION_EXECUTORS,
    ParamValue,
    RunSpec,
    executors_of,
)

# Option -> the words by which a request names its values.
NAMED_VALUES: dict[str, dict[str, Any]] = {name: {value: value for value in AXES[name]} for name in AXES} | {
    "plan": NAMED_PLANS
}
# Field of a request -> the option that it is about. Schedules are no matter of a matrix: each is of one application;
# what reconfigurations a cell goes through is worked out (matrix.py). Controllers have their thresholds.
OPTIONS_OUTSIDE_MATRIX = frozenset({"schedule", "thresholds"})
FIELD_OPTIONS = {
    f"{name}s" if name in NAMED_VALUES else name: name
    for name in OPTION_EXECUTORS
    if name not in OPTIONS_OUTSIDE_MATRIX
}
# What stands for what a spec says of an option, where a request says less.
DESCRIPTIONS = {
    "plan": "Who runs where, on several threads: replicated, each operator on each thread; auto, the plan found "
    "by what operators were measured to cost, with threads bound to cores."
}

IMPORT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")


def _expand(option: str, names: list[str], known: list[str]) -> list[str]:
    """The names without repetitions; `all` stands for every known one.

    Raises:
        ValueError: a name is unknown.
    """
    for name in names:
        if name not in (ALL, *known):
            raise ValueError(f"unknown {option} {name!r}; known: {', '.join(known)}")
    return known if ALL in names else list(dict.fromkeys(names))


def _fields() -> Iterator[tuple[str, Any]]:
    """The fields that are about an executor's options, as `create_model` takes them."""
    for asked, name in FIELD_OPTIONS.items():
        executor = OPTION_EXECUTORS[name]
        declared = executor.options[name]
        if name in NAMED_VALUES:
            words = list(NAMED_VALUES[name])
            tried = words if name in executor.default_sweep else words[:1]
            about = DESCRIPTIONS.get(name, declared.description)
            yield asked, (list[str], Field(default=tried, min_length=1, description=about))
        elif declared.annotation is bool:
            yield asked, (bool, Field(False, description=f"{declared.description} Tried beside its absence."))
        else:
            yield asked, (declared.annotation, copy.copy(declared))


# Cells that are looked at, to be run or left out: a request of more is refused before they are all made.
MAX_CELLS = 4096


class _Subject(BaseModel):
    """What is run, and on what."""

    model_config = ConfigDict(extra="forbid")

    applications: list[str] = Field(
        default=["gs", "sl", "wc", "fd", "sd"],
        min_length=1,
        description="What is run: each with all executors chosen that fit it; 'all' stands for every application.",
    )
    executors: list[str] = Field(
        default=[name for name, executor in EXECUTORS.items() if not executor.is_baseline],
        min_length=1,
        description="Who runs which operator on which thread: transactional (TStream), pooled (Ordered Stream "
        "Processing), pinned (BriskStream, Viper, STRETCH), or morsel, a baseline.",
    )


_Ways = create_model("_Ways", __base__=_Subject, **dict(_fields()))


class RegressionSpec(_Ways):
    """The matrix of one regression run; the DAG form is made from this model.

    A way of executing is a choice among each of its executor's options; the other executors' do not concern it.
    """

    threads: list[int] = Field(default=[1, 2], min_length=1, description="Threads of a cell: one cell for each number.")
    batches: list[int] = Field(
        default=[DEFAULT_BATCH],
        min_length=1,
        description="Events that go through the engine together: one cell for each number.",
    )
    events: int = Field(
        100_000, ge=0, le=100_000_000, description="Events per workload; of none, nothing is compared: no pass."
    )
    seed: int = Field(1, ge=0, le=2**63 - 1, description="Seed of the workload generators.")
    repetitions: int = Field(3, ge=1, le=50, description="Measured repetitions per cell, at peak rate.")
    seconds: float = Field(
        0.4, ge=0.0, le=3600.0, allow_inf_nan=False, description=RunSpec.model_fields["seconds"].description
    )
    rate: float = Field(
        0.0, ge=0.0, allow_inf_nan=False, description="Events per second of one extra open-loop pass; 0 = none."
    )
    reconfigurations: int = Field(
        0,
        ge=0,
        le=1000,
        description="Reconfigurations of windowed operators on several threads, in cells beside those without.",
    )
    params: dict[str, dict[str, ParamValue]] = Field(
        default_factory=dict, description="Per application, parameters that differ from the defaults."
    )
    data: dict[str, str] = Field(
        default_factory=dict,
        description="Per application that runs on events of your own instead of generated ones, their name "
        "(lockstep import --name).",
    )

    @field_validator("threads", "batches")
    @classmethod
    def _counts_in_range(cls, counts: list[int], field: ValidationInfo) -> list[int]:
        assert field.field_name is not None
        most = {"threads": MAX_THREADS, "batches": MAX_BATCH}[field.field_name]
        for count in counts:
            if not 1 <= count <= most:
                raise ValueError(f"{field.field_name} must lie in 1..{most}, got {count}")
        return sorted(set(counts))

    @field_validator("data")
    @classmethod
    def _data_named(cls, data: dict[str, str]) -> dict[str, str]:
        for app, name in data.items():
            if not IMPORT_NAME.fullmatch(name) or not IMPORT_NAME.fullmatch(app):
                raise ValueError(f"{app!r}: {name!r} is no name of an import")
        return data

    @field_validator("applications")
    @classmethod
    def _applications_once(cls, applications: list[str]) -> list[str]:
        return list(dict.fromkeys(applications))

    @field_validator("executors")
    @classmethod
    def _executors_known(cls, executors: list[str]) -> list[str]:
        return _expand("executor", executors, list(EXECUTORS))

    @field_validator(*(asked for asked, name in FIELD_OPTIONS.items() if name in NAMED_VALUES))
    @classmethod
    def _strategies_known(cls, names: list[str], field: ValidationInfo) -> list[str]:
        assert field.field_name is not None
        option = FIELD_OPTIONS[field.field_name]
        return _expand(option, names, list(NAMED_VALUES[option]))

    @model_validator(mode="after")
    def _switches_mean_something(self) -> RegressionSpec:
        for executor in EXECUTORS.values():
            tried = self._tried(executor)
            for name, only in executor.conditions.items():
                if tried.get(name) == (False, True) and not only.has.intersection(tried[only.where]):
                    raise ValueError(only.refusal)
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
            fitting = executors_of(kinds[app])
            able = [name for name in self.executors if name in fitting]
            if not able:
                raise BadInput(f"application {app} runs on: {', '.join(fitting)}; asked: {', '.join(self.executors)}")
            for name in able:
                ways = EXECUTORS[name].ways(self._tried(EXECUTORS[name]))
                for way, batch, threads in itertools.product(ways, self.batches, self.threads):
                    if threads == 1 and way.get("plan") == AUTO_PLAN:
                        way = way | {"plan": {}}  # there is one
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
                        seconds=self.seconds,
                    )
                    cells[spec.cell] = spec
                    if len(cells) > MAX_CELLS:
                        raise BadInput(f"these are more than {MAX_CELLS} cells: ask for fewer threads or batches")
        return list(cells.values())

    def _tried(self, executor: type[RunSpec]) -> dict[str, tuple[Any, ...]]:
        """The values to try of each of an executor's options."""
        tried = {}
        for asked, name in FIELD_OPTIONS.items():
            if name in executor.options:
                value = getattr(self, asked)
                words = NAMED_VALUES.get(name)
                tried[name] = tuple(words[v] for v in value) if words else (False, True) if value is True else (value,)
        return tried
