"""RegressionSpec: the request of a regression, a matrix of cells. The DAG's form is derived from it.

The declaration of each executor (run/way.py) gives the fields for its options. The field of an axis is called
`<axis>s` and lists the strategies to try; so is that of plans. The field of a switch says whether to try it both off
and on. The field of a number is the number that all cells have.
"""

from __future__ import annotations

import copy
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

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
from streaming_core.errors import BadInput, one_line, unknown
from streaming_core.regression.fleet import LOCAL
from streaming_core.run.faults import Faults
from streaming_core.run.way import (
    AUTO_PLAN,
    AXES,
    DEFAULT_BATCH,
    EXECUTORS,
    MAX_BATCH,
    MAX_THREADS,
    NAMED_PLANS,
    OPTION_EXECUTORS,
    Interval,
    ParamValue,
    RunSpec,
    executor_of,
    executors_of,
    known_executors,
)

# Option -> the names of its values in a request, and the values.
NAMED_VALUES: dict[str, dict[str, Any]] = {name: {value: value for value in AXES[name]} for name in AXES} | {
    "plan": NAMED_PLANS
}
# A schedule belongs to one application, and matrix.py makes it from `reconfigurations`. Thresholds are a controller's.
OPTIONS_OUTSIDE_MATRIX = frozenset({"schedule", "thresholds"})
# Field of a request -> its option.
FIELD_OPTIONS = {
    f"{name}s" if name in NAMED_VALUES else name: name
    for name in OPTION_EXECUTORS
    if name not in OPTIONS_OUTSIDE_MATRIX
}

IMPORT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")
# An Airflow connection. Airflow permits longer names; a host is a part of names of folders.
HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,59}")
AUTO_THREADS = "auto"
HOSTS = "LOCKSTEP_HOSTS"  # the variable with the hosts that `all` stands for


def _expand(option: str, names: list[str], known: list[str], whole: list[str] | None = None) -> list[str]:
    """The names without repetitions; `all` stands for every one in `whole`, or every known one.

    Raises:
        ValueError: a name is unknown.
    """
    for name in names:
        if name not in (ALL, *known):
            raise ValueError(unknown(option, name, known))
    every = (whole or known) if ALL in names else []
    return list(dict.fromkeys([*every, *(name for name in names if name != ALL)]))


def _fields() -> Iterator[tuple[str, Any]]:
    """The fields for the options of executors, as `create_model` takes them."""
    for field, option in FIELD_OPTIONS.items():
        executor = EXECUTORS[OPTION_EXECUTORS[option]]
        declared = executor.options()[option]
        if option in NAMED_VALUES:
            values = list(NAMED_VALUES[option])
            default = values[:1] + list(executor.default_sweep.get(option, []))
            yield field, (list[str], Field(default=default, min_length=1, description=declared.description))
        elif declared.annotation is bool:
            text = f"{declared.description} If set, the regression runs each cell without and with it."
            yield field, (bool, Field(False, description=text))
        else:
            yield field, (declared.annotation, copy.copy(declared))


def _executors_description() -> str:
    """The description of executors, with the published system that each implements."""
    names = [f"{name} ({executor.system or 'baseline'})" for name, executor in EXECUTORS.items()]
    own = f"{RunSpec.model_fields['executor'].description} {', '.join(names)}."
    return (
        f"{own} Or the name of another engine, as `lockstep engines list` shows it. '{ALL}' is all but other engines."
    )


# Fields of a request that all cells on Lockstep's engine have.
_RUNNING = ("pin", "idle", "punctuation", "checkpoint", "faults")
# Cells of a request at most, those that are left out included; checked before all of them are made.
MAX_CELLS = 4096


class _Subject(BaseModel):
    """The applications and the executors that run them."""

    model_config = ConfigDict(extra="forbid")

    applications: list[str] = Field(
        default=["gs", "sl", "wc", "fd", "sd"],
        min_length=1,
        description="Applications to run, each on every chosen executor that supports it. 'all' is every application.",
    )
    executors: list[str] = Field(
        default=[name for name, executor in EXECUTORS.items() if not executor.is_baseline],
        min_length=1,
        description=_executors_description(),
    )


_Ways = create_model("_Ways", __base__=_Subject, **dict(_fields()))


class RegressionSpec(_Ways):
    """The matrix of one regression run.

    A cell takes only the options of its own executor.
    """

    threads: list[int | Literal["auto"]] = Field(
        default=[1, 2],
        min_length=1,
        description="Threads of a cell. Each number makes cells of its own. For each host, "
        f"'{AUTO_THREADS}' stands for powers of two, the cores of one socket, and all cores.",
    )
    oversubscribe: bool = Field(
        False, description="Also run cells with more threads than the cores that their host grants."
    )
    pin: bool = Field(
        False, description="Bind threads to cores, one for each physical core first, and tables to memory nodes."
    )
    idle: Literal["spin", "yield", "park"] = Field("yield", description=RunSpec.model_fields["idle"].description)
    punctuation: int = Field(500, ge=1, le=10_000_000, description=RunSpec.model_fields["punctuation"].description)
    checkpoint: str = Field("60s", description=RunSpec.model_fields["checkpoint"].description)
    faults: str = Field("", description=RunSpec.model_fields["faults"].description)
    batches: list[int] = Field(
        default=[DEFAULT_BATCH],
        min_length=1,
        description="Events in a batch. Each number makes cells of its own.",
    )
    events: int = Field(100_000, ge=1, le=100_000_000, description="Events per workload.")
    seed: int = Field(1, ge=0, le=2**63 - 1, description="Seed of the generators. The same seed makes the same events.")
    repetitions: int = Field(3, ge=1, le=50, description="Measured repetitions per cell, at peak rate.")
    seconds: float = Field(
        0.2, ge=0.0, le=3600.0, allow_inf_nan=False, description=RunSpec.model_fields["seconds"].description
    )
    rate: float = Field(
        0.0,
        ge=0.0,
        allow_inf_nan=False,
        description="Events per second of an additional open-loop pass per cell; 0 = no such pass.",
    )
    reconfigurations: int = Field(
        0,
        ge=0,
        le=1000,
        description="Number of reconfigurations of windowed operators, in additional cells on several threads; 0 = no "
        "such cells.",
    )
    params: dict[str, dict[str, ParamValue]] = Field(
        default_factory=dict, description="Parameters that differ from the defaults, by application."
    )
    data: dict[str, str] = Field(
        default_factory=dict,
        description="Imports to use instead of generated events, by application: the names given to "
        "`lockstep import --name`.",
    )

    hosts: list[str] = Field(
        default=[LOCAL],
        min_length=1,
        description="Airflow connections of the hosts that run the cells. A connection has the type `ssh`, or "
        f"`generic` for this machine. '{ALL}' is every host in the setting {HOSTS}.",
    )
    placement: Literal["any", "every"] = Field(
        "any",
        description="Whether `any` host that is free takes the next cell, or `every` host runs each cell.",
    )

    @field_validator("checkpoint", mode="before")
    @classmethod
    def _parse_checkpoint(cls, value: Any) -> str:
        return Interval.parse(value).text

    @field_validator("faults", mode="before")
    @classmethod
    def _parse_faults(cls, value: Any) -> str:
        return Faults.parse(value).text

    @field_validator("hosts", "threads", mode="before")
    @classmethod
    def _as_list(cls, names: Any) -> Any:
        """A single name, such as `all` or `auto`, is a list of one."""
        return [names] if isinstance(names, str) else names

    @field_validator("hosts")
    @classmethod
    def _hosts_named(cls, hosts: list[str]) -> list[str]:
        for host in hosts:
            if not HOST_NAME.fullmatch(host):
                rule = "use up to 60 letters, digits, '_', '.' and '-', without '.' or '-' first"
                raise ValueError(f"{host!r} is not a valid connection name: {rule}")
        return hosts

    gate_minutes: float = Field(
        0.0,
        ge=0.0,
        le=600.0,
        allow_inf_nan=False,
        description="Minutes that the speed gate may measure after the run; it compares suspects with an earlier "
        "build. 0 = it does not run.",
    )
    gate_against: str = Field(
        "",
        max_length=200,
        description="The commit that the speed gate compares with: a branch, a tag or a commit. Empty = the build of "
        "the last green night.",
    )

    find_minutes: float = Field(
        0.0,
        ge=0.0,
        le=600.0,
        allow_inf_nan=False,
        description="Minutes that the search for faults may take after the speed gate. It makes red cells small, then "
        "searches the applications of the run. 0 = it does not run.",
    )

    @field_validator("threads", "batches")
    @classmethod
    def _counts_in_range(cls, counts: list[int | str], field: ValidationInfo) -> list[int | str]:
        assert field.field_name is not None
        most = {"threads": MAX_THREADS, "batches": MAX_BATCH}[field.field_name]
        numbers = [count for count in counts if isinstance(count, int)]
        for count in numbers:
            if not 1 <= count <= most:
                raise ValueError(f"each number must be between 1 and {most}, got {count}")
        return [*sorted(set(numbers)), *dict.fromkeys(count for count in counts if isinstance(count, str))]

    @field_validator("data", mode="before")
    @classmethod
    def _data_by_application(cls, data: Any) -> Any:
        """A list of `APPLICATION/NAME`, as the form sends it, becomes the mapping."""
        if not isinstance(data, list):
            return data
        names: dict[str, str] = {}
        for item in data:
            app, separator, name = item.partition("/") if isinstance(item, str) else ("", "", "")
            if not separator:
                raise ValueError(f"an import must have the form APPLICATION/NAME, got {item!r}")
            if app in names:
                raise ValueError(f"application {app} can use only one import, got {names[app]!r} and {name!r}")
            names[app] = name
        return names

    @field_validator("data")
    @classmethod
    def _data_named(cls, data: dict[str, str]) -> dict[str, str]:
        for app, name in data.items():
            if not IMPORT_NAME.fullmatch(name) or not IMPORT_NAME.fullmatch(app):
                rule = "use letters, digits, '.', '_' and '-', with a letter or digit first"
                raise ValueError(f"invalid import {app}/{name}; {rule}")
        return data

    @field_validator("applications")
    @classmethod
    def _applications_once(cls, applications: list[str]) -> list[str]:
        return list(dict.fromkeys(applications))

    @field_validator("executors")
    @classmethod
    def _executors_known(cls, executors: list[str]) -> list[str]:
        return _expand("executor", executors, known_executors(), list(EXECUTORS))

    @field_validator(*(field for field, option in FIELD_OPTIONS.items() if option in NAMED_VALUES))
    @classmethod
    def _strategies_known(cls, names: list[str], field: ValidationInfo) -> list[str]:
        assert field.field_name is not None
        option = FIELD_OPTIONS[field.field_name]
        return _expand(option, names, list(NAMED_VALUES[option]))

    @model_validator(mode="after")
    def _check_switches(self) -> RegressionSpec:
        for executor in EXECUTORS.values():
            values = self._values(executor)
            for option, requirement in executor.requirements().items():
                is_possible = requirement.values.intersection(values[requirement.option])
                if values.get(option) == (False, True) and not is_possible:
                    raise ValueError(requirement.message)
        return self

    @classmethod
    def parse(cls, data: dict | str | bytes) -> RegressionSpec:
        """Make a request of a dict or JSON text; raises BadInput with one line."""
        try:
            return cls.model_validate_json(data) if isinstance(data, str | bytes) else cls.model_validate(data)
        except ValidationError as error:
            raise BadInput(one_line(error, fields=cls.model_fields)) from None

    def thread_counts(self, points: Sequence[int] = (1,)) -> list[int]:
        """The numbers of threads, with `points` in place of `auto`."""
        numbers = {count for count in self.threads if isinstance(count, int)}
        return sorted(numbers.union(points) if AUTO_THREADS in self.threads else numbers)

    def cells(self, kinds: dict[str, str], threads: Sequence[int] | None = None) -> list[RunSpec]:
        """Every cell of the matrix, in a fixed order.

        Args:
            kinds: Application id -> kind (`transaction`, `dataflow`, ...), from the application registry.
            threads: The numbers of threads; None: those of the request, without `auto`.

        Raises:
            BadInput: An application is unknown, or no executor of the request runs it.
        """
        cells: dict[str, RunSpec] = {}
        counts = self.thread_counts() if threads is None else threads
        for app in self.applications:
            if app not in kinds:
                raise BadInput(unknown("application", app, kinds))
            fitting = executors_of(kinds[app])
            # Whether another engine runs the application is in its manifest, which the spec checks.
            able = [name for name in self.executors if name in fitting or name not in EXECUTORS]
            if not able:
                reasons = "".join(EXECUTORS[name].kinds_reason for name in self.executors)
                executors = f"{', '.join(fitting)}, but the request has {', '.join(self.executors)}{reasons}"
                raise BadInput(f"application {app} runs on the executors {executors}")
            for name in able:
                ways = executor_of(name).combinations(self._values(executor_of(name)))
                running = {name: getattr(self, name) for name in _RUNNING}
                for way, batch, count in itertools.product(ways, self.batches, counts):
                    if count == 1 and way.get("plan") == AUTO_PLAN:
                        way = way | {"plan": {}}  # the only plan on one thread
                    spec = RunSpec.parse(
                        {
                            "app": app,
                            "params": self.params.get(app, {}),
                            "executor": name,
                            **way,
                            **(running if executor_of(name).is_engine else {}),
                            "threads": count,
                            "batch": batch,
                            "rate": self.rate,
                            "sink": "parquet",
                            "repetitions": self.repetitions,
                            "seconds": self.seconds,
                        }
                    )
                    cells[spec.cell] = spec
                    if len(cells) > MAX_CELLS:
                        remedy = "remove applications, strategies, threads or batches"
                        raise BadInput(f"the request must have at most {MAX_CELLS} cells; {remedy}")
        return list(cells.values())

    def _values(self, executor: type[RunSpec]) -> dict[str, tuple[Any, ...]]:
        """The values to try of each of an executor's options."""
        values = {}
        for field, option in FIELD_OPTIONS.items():
            if option in executor.options():
                value = getattr(self, field)
                named = NAMED_VALUES.get(option)
                values[option] = (
                    tuple(named[name] for name in value) if named else (False, True) if value is True else (value,)
                )
        return values


def resolve_hosts(names: list[str]) -> list[str]:
    """The hosts of a request, with `all` replaced by the hosts in the setting LOCKSTEP_HOSTS.

    Raises:
        BadInput: The group is empty, or a host occurs twice.
    """
    hosts: list[str] = []
    for name in names:
        group = [name]
        if name == ALL:
            group = [host.strip() for host in os.environ.get(HOSTS, LOCAL).split(",") if host.strip()]
            if not group:
                raise BadInput(f"hosts: the group {ALL!r} is empty; name hosts in the setting {HOSTS}")
        for host in group:
            if host in hosts:
                raise BadInput(f"hosts: {host!r} is listed twice; remove one")
            if not HOST_NAME.fullmatch(host):
                raise BadInput(f"hosts: {HOSTS} has the invalid connection name {host!r}; correct the setting")
            hosts.append(host)
    return hosts
