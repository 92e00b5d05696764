"""RunSpec: one cell, that is, one application executed in one way.

A spec is a pydantic union, discriminated by `executor`: one class per executor, with a field per option. The class is
the only declaration of an executor. Everything else is derived from it:

- the command line of `streaming-core` (cli/options.py);
- the request of a regression and its form (regression/request.py, dags/lib/form.py);
- the columns of raw cells (regression/warehouse.py);
- dbt's SQL, YAML and column descriptions, and docs/reference/command-line.md (infra/reference, `make docs`).

Class `External` stands for all other engines: their manifests declare them (streaming_core/engines).

The runtime declares its strategies beside their code; tests/streaming_core/run/test_runtime_options.py compares both.

To add an option or a strategy, add it to its class, implement it in the runtime, describe it in
docs/reference/strategies.md, and run `make docs`.

A spec as JSON is flat: it holds the options of all executors. An option that the executor lacks has its absent value
there (`ABSENT_VALUES`): None for an axis, else the default.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import from_json

from streaming_core.engines import registry as engines
from streaming_core.errors import BadInput, one_line, unknown
from streaming_core.run.faults import Faults
from streaming_core.storage import digest_of

if TYPE_CHECKING:
    from streaming_core.language.application import App

MAX_THREADS = 1024
DEFAULT_BATCH, MAX_BATCH = 256, 65_536
ParamValue = bool | int | float | str

# Schemes that evaluate operation chains, which they take from a pool.
SCHEMES_WITH_POOL = frozenset({"tstream"})
# Pools whose threads may take chains from each other.
SHARED_POOLS = frozenset({"shared_everything", "shared_per_socket"})
# Queues whose partitions are fixed from the start, and those of them whose number of partitions is an option.
QUEUES_WITH_PARTITIONING = frozenset({"hybrid", "partitioned", "shared"})
QUEUES_WITH_PARTITION_COUNT = QUEUES_WITH_PARTITIONING - {"partitioned"}
# The runtime's limits: microseconds of a slice or a time window, and partitions of an operator.
MAX_SLICE, MAX_PARTITIONS = 1_000_000, 256
CELLS = 1024  # key cells of a windowed operator, each with an owner (runtime/src/state/windows/mod.rs)
# Options that only windowed operators have.
WINDOW_OPTIONS = frozenset({"schedule", "controller", "thresholds", "parallelism"})
# Plans that have a name. The planner replaces `auto` by a plan before the run. Plan `replicated` lists no threads.
AUTO_PLAN = "auto"
NAMED_PLANS: dict[str, Any] = {"replicated": {}, AUTO_PLAN: AUTO_PLAN}
# Controllers that request reconfigurations, and those of them that have thresholds.
ACTIVE_CONTROLLERS = frozenset({"threshold", "model", "balance"})
CONTROLLERS_WITH_THRESHOLDS = ACTIVE_CONTROLLERS - {"balance"}
# Channels that keep no order. The comparison uses the columns that the application declares to agree without order.
UNORDERED_CHANNELS = frozenset({"shared_ring", "pair_queue"})

# Fields that the digest of a spec always covers. It covers a later option only where its value is not the default. The
# names of cells so stay the same when an option is added.
ALWAYS_DIGESTED = frozenset({
    "app", "params", "executor", "threads", "scheme", "pool", "stealing", "punctuation", "batch",
    "heuristic", "queue", "reorder", "channel", "plan", "order", "rate", "pin", "idle", "sink", "repetitions",
})  # fmt: skip
# Fields that the runtime does not take: Python makes the passes and writes the run's folder.
NOT_FOR_RUNTIME = frozenset({"app", "params", "checkpoint", "repetitions", "seconds", "faults"})


@dataclass(frozen=True)
class Requires:
    """Marks an option that has an effect only where another option has one of these values.

    Attributes:
        option: The other option.
        values: Its values.
        message: The error for a spec that sets the marked option elsewhere; may name options of the spec in braces.
    """

    option: str
    values: frozenset[str]
    message: str

    def holds(self, value: object) -> bool:
        """Whether the marked option has an effect if the other option has this value."""
        return value in self.values


@dataclass(frozen=True)
class Interval:
    """The interval between two checkpoints: so many seconds, or so many events. Both are 0 if there are none."""

    seconds: int = 0
    events: int = 0

    @classmethod
    def parse(cls, value: object) -> Interval:
        """Read an interval, such as `10s` or `100000`.

        Raises:
            ValueError: The value is not an interval.
        """
        text = str(value) if type(value) in (int, str) else ""
        if not (match := re.fullmatch(r"(0|[1-9][0-9]{0,14})(s?)", text)):
            raise ValueError(f"must be seconds, such as 10s, or a number of events, or 0 for none, got {value!r}")
        number = int(match[1])
        return cls(number, 0) if match[2] else cls(0, number)

    @property
    def text(self) -> str:
        """The interval as `parse` reads it."""
        return f"{self.seconds}s" if self.seconds else str(self.events)


def literal_values(field: FieldInfo) -> tuple[str, ...]:
    """The values of a field that takes one of several strings; none of any other field."""
    kinds = [field.annotation] if get_origin(field.annotation) is Literal else get_args(field.annotation)
    kinds = [kind for kind in kinds if kind is not type(None)]
    return get_args(kinds[0]) if len(kinds) == 1 and get_origin(kinds[0]) is Literal else ()


class RunSpec(BaseModel):
    """One way of executing one application: the fields that every executor has.

    Make a spec with `RunSpec.parse`, or with the class of its executor: `Pooled(app="wc", threads=2)`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    # Declared by each executor.
    system: ClassVar[str] = ""  # the published system that the executor implements
    application_kinds: ClassVar[tuple[str, ...]] = ()  # the kinds of applications it runs
    placement: ClassVar[str] = ""  # the rule that assigns work to threads
    kinds_reason: ClassVar[str] = ""  # why it runs no other kinds; follows the list of executors that do
    is_baseline: ClassVar[bool] = False  # runs only by request; others are compared with it
    is_engine: ClassVar[bool] = True  # whether Lockstep's engine runs it (run/engine.py)
    may_lack_order: ClassVar[bool] = False  # whether it delivers without order on request
    gives_state: ClassVar[bool] = True  # a run leaves its final state, and counts of events that it dropped or rejected
    default_sweep: ClassVar[Mapping[str, list[str]]] = {}  # what a regression tries by default, beside the first value

    app: str = Field(description="Application id, as `streaming-core apps` lists it.")
    params: dict[str, ParamValue] = Field(
        default_factory=dict, description="Parameters of the application that differ from their defaults."
    )
    executor: str = Field(description="How threads share the work.")
    threads: int = Field(1, ge=1, le=MAX_THREADS, description="Worker threads at most, including source and sink.")
    punctuation: int = Field(500, ge=1, le=10_000_000, description="Events between two punctuations.")
    batch: int = Field(DEFAULT_BATCH, ge=1, le=MAX_BATCH, description="Events in a batch.")
    order: Literal["total", "none"] = Field("total", description="Order in which outputs arrive at the sink.")
    rate: float = Field(
        0.0,
        ge=0.0,
        allow_inf_nan=False,
        description="Events per second of the open-loop source; 0 = peak rate.",
    )
    pin: bool = Field(False, description="Bind thread i to core i.")
    idle: Literal["spin", "yield", "park"] = Field("yield", description="What a thread does while it waits.")
    sink: Literal["parquet", "digest", "count"] = Field("digest", description="Where the outputs go.")
    checkpoint: str = Field(
        "60s",
        description="Interval between two checkpoints: seconds, such as 10s, or a number of events; 0 = none. Only "
        "Lockstep's engine writes checkpoints.",
    )
    repetitions: int = Field(0, ge=0, le=100, description="Measured passes at peak rate after the first pass.")
    seconds: float = Field(
        0.4,
        ge=0.0,
        le=3600.0,
        description="Minimum seconds of a repetition. Its passes alternate with passes of the compiled sequential loop "
        "until both have run this long. With 0, a repetition is one pass, without the loop.",
    )
    faults: str = Field(
        "",
        description="Faults to inject, with commas between them: kill, stall, full-disk, clock, each with @N if it is "
        "not to follow from the workload. Empty: none. Only Lockstep's engine injects faults.",
    )

    @classmethod
    def name(cls) -> str:
        """The executor's name, the discriminator of the union."""
        return cls.model_fields["executor"].default

    @classmethod
    @cache
    def options(cls) -> dict[str, FieldInfo]:
        """The options: the fields that this executor declares beside its name."""
        classes = [base for base in reversed(cls.__mro__) if issubclass(base, RunSpec) and base is not RunSpec]
        names = dict.fromkeys(name for base in classes for name in inspect.get_annotations(base))
        return {name: cls.model_fields[name] for name in names if name in cls.model_fields and name != "executor"}

    @classmethod
    @cache
    def axes(cls) -> dict[str, tuple[str, ...]]:
        """The options that choose among strategies, and their strategies, the default first."""
        return {name: values for name, field in cls.options().items() if (values := literal_values(field))}

    @classmethod
    @cache
    def requirements(cls) -> dict[str, Requires]:
        """The options that have an effect only together with another option."""
        options = cls.options().items()
        return {
            name: requirement
            for name, field in options
            for requirement in field.metadata
            if isinstance(requirement, Requires)
        }

    @field_validator("checkpoint", mode="before")
    @classmethod
    def _parse_checkpoint(cls, value: Any) -> str:
        return Interval.parse(value).text

    @field_validator("faults", mode="before")
    @classmethod
    def _parse_faults(cls, value: Any) -> str:
        faults = Faults.parse(value)
        if faults.entries and not cls.is_engine:
            raise ValueError("only executors of Lockstep's engine inject faults; leave it empty")
        return faults.text

    @model_validator(mode="before")
    @classmethod
    def _select_options(cls, data: Any) -> Any:
        """Drop the absent options, refuse those of other executors, and unset those without effect."""
        if not isinstance(data, dict):
            return data
        fields = {}
        for name, value in data.items():
            if name in ABSENT_VALUES and name not in cls.model_fields:
                if value is not None and value != ABSENT_VALUES[name]:
                    executor = data.get("executor", cls.name())
                    raise ValueError(f"executor {executor} has no {name}; {OPTION_EXECUTORS[name]} has")
            elif value is not None or name not in (*cls.options(), "order"):
                known = cls.axes().get(name)
                if known and value not in known:
                    raise ValueError(f"unknown {name} {value!r} of executor {cls.name()}; known: {', '.join(known)}")
                fields[name] = value
        for name, requirement in cls.requirements().items():
            default = cls.options()[requirement.option].default
            if name not in fields and not requirement.holds(fields.get(requirement.option, default)):
                fields[name] = copy.copy(ABSENT_VALUES[name])
        return fields

    @model_validator(mode="after")
    def _check_requirements(self) -> RunSpec:
        for name, requirement in self.requirements().items():
            if not requirement.holds(getattr(self, requirement.option)) and getattr(self, name) != ABSENT_VALUES[name]:
                raise ValueError(requirement.message.format_map(self.__dict__))
        return self

    @model_validator(mode="after")
    def _check_order(self) -> RunSpec:
        if self.order != "total" and not self.may_lack_order:
            raise ValueError(f"order is total with {self.executor}")
        return self

    @model_serializer(mode="wrap")
    def _serialize_flat(self, serialize: Any) -> dict[str, Any]:
        fields = ABSENT_VALUES | serialize(self)
        return {name: fields[name] for name in SPEC_FIELDS if name in fields}

    @staticmethod
    def parse(data: dict | str | bytes, name: Callable[[str], str] = str) -> RunSpec:
        """Make a spec of a dict or JSON text.

        Args:
            data: The fields of the spec.
            name: Writes the name of a field in an error: as an option of a command line, for example.

        Raises:
            BadInput: One line that names the field and its valid values.
        """
        try:
            data = from_json(data) if isinstance(data, str | bytes) else data
        except ValueError as error:
            raise BadInput(f"invalid JSON: {error}") from None
        executor = data.get("executor") if isinstance(data, dict) else None
        is_external = isinstance(executor, str) and executor not in EXECUTORS and engines.NAME.fullmatch(executor)
        try:
            return External.model_validate(data) if is_external else _ADAPTER.validate_python(data)
        except ValidationError as error:
            skip = 0 if is_external else 1  # the tag of the union
            raise BadInput(one_line(error, skip=skip, fields=SPEC_FIELDS, name=name)) from None

    def option(self, name: str) -> Any:
        """The value of an option of any executor: the absent value where this executor lacks it."""
        return getattr(self, name) if name in type(self).model_fields else copy.copy(ABSENT_VALUES[name])

    def check(self, app: App) -> None:
        """Raise BadInput unless the application runs in this way."""
        if app.kind not in self.application_kinds:
            supported = ", ".join(executors_of(app.kind))
            raise BadInput(
                f"application {app.name} does not run on {self.executor}; it supports: {supported}{self.kinds_reason}"
            )
        if self.order == "none" and app.unordered is None:
            raise BadInput(
                f"application {app.name} runs in total order only: it does not say what agrees without order"
            )

    def output_columns(self, app: App) -> list[str]:
        """The columns of the outputs that a run leaves."""
        return ["seq", "sub", *app.outputs.fields]

    @property
    def is_bound(self) -> bool:
        """Whether it bounds a result and produces none: it is compared, reported `not_comparable` and never counted."""
        return False

    @property
    def needs_plan(self) -> bool:
        """Whether the planner has to find a plan before the run."""
        return False

    @property
    def interval(self) -> Interval:
        """The interval between two checkpoints."""
        return Interval.parse(self.checkpoint)

    @property
    def spec_digest(self) -> str:
        """Digest of this spec's canonical JSON: known before anything runs."""
        return digest_of(self.digest_content)

    @property
    def digest_content(self) -> dict[str, Any]:
        """The fields that the digest covers: those of ALWAYS_DIGESTED, and every other one that is not at its default.

        A build that does not know the other options reads the same spec from them.
        """

        def counts(name: str, value: Any) -> bool:
            return name in ALWAYS_DIGESTED or value not in _usual(name)

        return {name: value for name, value in self.model_dump(mode="json").items() if counts(name, value)}

    @property
    @abstractmethod
    def strategy(self) -> str:
        """Name of this way of executing: the executor's main strategy, and the differences from the defaults."""

    def _strategy_name(self, first: str, *details: str) -> str:
        """Join the field `first`, the axes and switches that differ from their defaults, `details`, and the batch."""
        parts = [getattr(self, first)]
        for axis, values in self.axes().items():
            if axis != first and (value := getattr(self, axis)) not in (None, values[0]):
                parts.append(value)
        parts += [name for name in self.options() if getattr(self, name) is True]
        parts += [*details, *(["faults"] if self.faults else [])]
        parts += [f"batch{self.batch}"] if self.batch != DEFAULT_BATCH else []
        return "-".join(parts)

    @property
    def cell(self) -> str:
        """Name of this cell in a run: letters, digits, `.`, `_` and `-`; the digest's tail makes it unique."""
        return f"{self.app}.{self.executor}.{self.strategy}.t{self.threads}.{self.spec_digest[:8]}"

    @property
    def runtime_options(self) -> dict[str, Any]:
        """The fields that the runtime takes."""
        return {name: value for name, value in self.model_dump(mode="json").items() if name not in NOT_FOR_RUNTIME}

    @classmethod
    def combinations(cls, values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
        """Every combination of the values of each option, less the options without effect in it; may repeat some."""
        combinations = []
        for choice in itertools.product(*values.values()):
            options = dict(zip(values, choice, strict=True))
            for name, requirement in cls.requirements().items():
                if name in options and not requirement.holds(options.get(requirement.option)):
                    del options[name]
            combinations.append(options)
        return combinations


class Transactional(RunSpec):
    """Executes transactions on shared tables, one punctuation interval after the other."""

    system = "TStream"
    application_kinds = ("transaction",)
    placement = "each thread takes an equal share of every punctuation interval"
    default_sweep: ClassVar[Mapping[str, list[str]]] = {"scheme": ["tstream"]}

    executor: Literal["transactional"] = "transactional"
    scheme: Literal["owners", "tstream", "serial", "lock", "mvlk", "pat", "auto", "no_lock"] = Field(
        "owners", description="Concurrency control of the transactions."
    )
    pool: Annotated[
        Literal["shared_nothing", "shared_everything", "shared_per_socket"] | None,
        Requires("scheme", SCHEMES_WITH_POOL, "scheme {scheme} has no pool"),
    ] = Field("shared_nothing", description="Which threads share a pool of work.")
    stealing: Annotated[bool, Requires("pool", SHARED_POOLS, "stealing needs a shared pool")] = Field(
        False, description="Let a thread take work that another thread of its pool has not started."
    )

    @property
    def strategy(self) -> str:
        """The scheme, then the differences from the defaults."""
        return self._strategy_name("scheme")

    @property
    def is_bound(self) -> bool:
        """Whether the scheme omits the locks that its result needs."""
        return self.scheme == "no_lock"

    @property
    def interval(self) -> Interval:
        """The interval between two checkpoints: whole punctuation intervals."""
        interval = super().interval
        return Interval(interval.seconds, -(-interval.events // self.punctuation) * self.punctuation)


class Pooled(RunSpec):
    """Runs workers that take batches from the operators' worklists.

    With the default heuristic, queue and reorder buffer, one thread takes batches straight through the operators. With
    any other, it uses the same worklists, buffers and scheduler as several threads.
    """

    system = "Ordered Stream Processing"
    application_kinds = ("dataflow",)
    placement = "any worker runs any operator that has work"

    executor: Literal["pooled"] = "pooled"
    heuristic: Literal["affinity", "ct", "lp", "et", "qst"] = Field(
        "affinity", description="How a worker chooses the operator to run next."
    )
    queue: Literal["lanes", "hybrid", "partitioned", "shared"] = Field(
        "lanes", description="How workers find the work of partitioned operators."
    )
    reorder: Literal["non_blocking", "lock"] = Field(
        "non_blocking", description="The buffer behind an operator that puts its outputs into order again."
    )
    partitioning: Annotated[
        Literal["hash", "range"] | None,
        Requires(
            "queue",
            QUEUES_WITH_PARTITIONING,
            "queue {queue} has no partitioning: it deals keys by their hash, as they cost",
        ),
    ] = Field("hash", description="How keys are assigned to partitions.")
    partitions: Annotated[
        int,
        Requires(
            "queue", QUEUES_WITH_PARTITION_COUNT, "queue {queue} has no partitions to ask for; hybrid and shared have"
        ),
    ] = Field(
        100,
        ge=1,
        le=MAX_PARTITIONS,
        description="Number of partitions of a partitioned operator with queue hybrid or shared.",
    )
    slice: int = Field(
        5, ge=1, le=MAX_SLICE, description="Microseconds of work after which a worker chooses an operator again."
    )
    throughput_window: Annotated[
        int, Requires("heuristic", frozenset({"ct"}), "heuristic {heuristic} has no throughput_window; ct has")
    ] = Field(
        1_000,
        ge=1,
        le=MAX_SLICE,
        description="Microseconds over which heuristic ct measures throughput.",
    )

    @property
    def strategy(self) -> str:
        """The heuristic, then the differences from the defaults."""
        return self._strategy_name("heuristic")


class ScheduledReconfiguration(BaseModel):
    """From an event on, the owners of the keys of each windowed operator.

    A pattern names them: a list of replicas that repeats over the operator's cells. `[0, 1]` deals the cells in turn;
    `[0, 0, 0, 1]` gives the first replica three quarters of them. A number stands for so many replicas, in turn.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    event: int = Field(ge=0, le=2**63 - 1)
    owners: dict[str, list[int]] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _list_owners(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("owners"), dict):
            return data
        # `Pinned.check` knows how many replicas there can be, and refuses more.
        owners = {
            name: list(range(min(pattern, MAX_THREADS + 1))) if type(pattern) is int else pattern
            for name, pattern in data["owners"].items()
        }
        return data | {"owners": owners}


class Pinned(RunSpec):
    """Runs a task per operator replica, each on its own thread."""

    system = "BriskStream, Viper, STRETCH"
    application_kinds = ("dataflow", "windowed")
    placement = "a plan names the thread of each replica of each operator"

    executor: Literal["pinned"] = "pinned"
    channel: Literal["gate", "scalegate", "merge_sort", "shared_ring", "pair_queue"] = Field(
        "gate",
        description="How a reader gets the rows of several replicas in order.",
    )
    plan: dict[str, list[int]] | Literal["auto"] = Field(
        default_factory=dict,
        description="The thread of each replica of each operator, including `source` and `sink`. Plan replicated puts "
        "each operator on each thread. For plan auto, Lockstep measures the operators, finds a plan and binds threads "
        "to cores.",
    )
    linger: int = Field(
        1_000,
        ge=0,
        le=MAX_SLICE,
        description="Microseconds that the oldest event of a batch waits for the others, at an input rate. A batch "
        "leaves earlier if it is full, or if a reconfiguration is requested.",
    )
    schedule: list[ScheduledReconfiguration] = Field(
        default_factory=list,
        description="Reconfigurations of windowed operators. Each entry names an event, and the owners of the keys "
        "from that event on. The owners are a number of replicas, or a list that repeats over the 1,024 key cells.",
    )
    controller: Literal["none", "threshold", "model", "balance"] = Field(
        "none",
        description="Controller that changes the owners of the keys of windowed operators by their load.",
    )
    thresholds: Annotated[
        list[int],
        Requires("controller", CONTROLLERS_WITH_THRESHOLDS, "thresholds are those of controllers threshold and model"),
    ] = Field(
        default_factory=list,
        description="Load of the replicas in percent: upper, target, lower. Above upper, the controller adds "
        "replicas until the load is below target. Below lower, it removes replicas. Empty: 90, 70, 45 for controller "
        "threshold, and 80, 75, 70 for model.",
    )
    parallelism: Literal["vsn", "vsn_esg", "sn"] = Field(
        "vsn",
        description="What the replicas of a windowed operator share.",
    )

    @model_validator(mode="before")
    @classmethod
    def _order_by_channel(cls, data: Any) -> Any:
        """The channel decides the order: set it where the spec leaves it open."""
        if not isinstance(data, dict) or data.get("order") is not None:
            return data
        return data | {"order": "none" if str(data.get("channel")) in UNORDERED_CHANNELS else "total"}

    @model_validator(mode="after")
    def _check_order(self) -> Pinned:
        order = "none" if self.channel in UNORDERED_CHANNELS else "total"
        if self.order != order:
            raise ValueError(f"order is {order} with channel {self.channel}")
        return self

    @model_validator(mode="after")
    def _check_options(self) -> Pinned:
        for name, places in self.threads_of_operators.items():
            if not places or not all(0 <= place < self.threads for place in places):
                raise ValueError(f"plan: {name} needs a replica, each on one of the threads 0 to {self.threads - 1}")
        for change, next_change in itertools.pairwise(self.schedule):
            if change.event > next_change.event:
                raise ValueError(f"schedule: event {next_change.event} comes after event {change.event}")
        if self.thresholds:
            upper, target, lower = self.thresholds if len(self.thresholds) == 3 else (0, 0, 0)
            if not 100 >= upper > target > lower >= 1:
                numbers = ",".join(map(str, self.thresholds))
                raise ValueError(f"thresholds: upper > target > lower, each of 1 to 100 percent, not {numbers}")
        return self

    @property
    def strategy(self) -> str:
        """The channel, the differences from the defaults, `planned` with plan auto, the number of reconfigurations."""
        details = ["planned"] if self.needs_plan else []
        details += [f"reconfigured{len(self.schedule)}"] if self.schedule else []
        return self._strategy_name("channel", *details)

    @property
    def needs_plan(self) -> bool:
        """Whether the planner has to find a plan before the run."""
        return self.plan == AUTO_PLAN

    @property
    def threads_of_operators(self) -> dict[str, list[int]]:
        """The plan; empty if the planner still has to find it."""
        return self.plan if isinstance(self.plan, dict) else {}

    @property
    def leaves_plan_open(self) -> bool:
        """Whether the planner may choose its plan: it has none, and no option refers to the replicas of a plan."""
        uses_replicas = self.schedule or self.controller in ACTIVE_CONTROLLERS or self.parallelism != "vsn"
        return self.threads > 1 and not self.plan and not uses_replicas

    def check(self, app: App) -> None:
        """Raise BadInput unless the application runs in this way, and has the operators of plan and schedule."""
        super().check(app)
        if app.kind == "windowed" and self.channel != "gate":
            raise BadInput(f"application {app.name} has windows: pinned runs it with channel gate")
        if app.kind != "windowed" and self.parallelism != "vsn":
            raise BadInput(f"application {app.name} has no windows: parallelism {self.parallelism} needs them")
        kinds = {"source": "source"} | {o.name: o.kind for o in app.operators[1:-1]} | {"sink": "sink"}
        for name, places in self.threads_of_operators.items():
            if name not in kinds:
                raise BadInput(f"plan: {app.name} has no operator {name}; it has {', '.join(kinds)}")
            if len(places) > 1 and kinds[name] == "stateful":
                raise BadInput(f"plan: {name} of {app.name} is stateful and can have 1 replica, got {len(places)}")
        if self.plan == AUTO_PLAN and self.parallelism != "vsn":
            raise BadInput(f"a plan is found for parallelism vsn, not {self.parallelism}: give one, or none")
        if self.controller in ACTIVE_CONTROLLERS and app.kind != "windowed":
            raise BadInput(f"application {app.name} has no windowed operator, which alone is a controller's")
        for at in self.schedule:
            for name, pattern in at.owners.items():
                if kinds.get(name) != "windowed":
                    known = ", ".join(n for n, kind in kinds.items() if kind == "windowed") or "none"
                    raise BadInput(f"schedule: {app.name} has no windowed operator {name}; it has {known}")
                replicas = len(self.threads_of_operators.get(name, range(self.threads)))
                if not 0 < len(pattern) <= CELLS or not all(0 <= replica < replicas for replica in pattern):
                    raise BadInput(
                        f"schedule: event {at.event}: {name} has replicas 0 to {replicas - 1}: name the owners of its "
                        f"cells, 1 to {CELLS} numbers"
                    )


class Morsel(RunSpec):
    """Runs workers that take whole batches through the whole pipeline."""

    application_kinds = ("dataflow",)
    placement = "each worker takes a whole batch through all operators"
    is_baseline = True
    may_lack_order = True

    executor: Literal["morsel"] = "morsel"
    order: Literal["total", "none"] = Field(
        "total",
        description="Order in which outputs arrive at the sink.",
    )

    @property
    def strategy(self) -> str:
        """The executor's name, then the differences from the defaults."""
        return self._strategy_name("executor")


class Spark(RunSpec):
    """Runs each operator in `threads` tasks of the run's Spark, on one machine or on a cluster.

    A task uses one thread. Tasks share nothing.
    """

    system = "Spark, past one machine"
    application_kinds = ("dataflow", "windowed")
    kinds_reason = " (transactions share state, and tasks of Spark share nothing)"
    placement = "each Spark task takes a share of the keys, or a range of the events"
    is_baseline = True
    is_engine = False

    executor: Literal["spark"] = "spark"

    @model_validator(mode="after")
    def _check_unsupported(self) -> Spark:
        if self.rate > 0:
            raise ValueError("executor spark has no open-loop pass: set rate to 0")
        if self.pin:
            raise ValueError("executor spark binds no threads to cores: set pin to false")
        return self

    @property
    def strategy(self) -> str:
        """The executor's name, then the differences from the defaults."""
        return self._strategy_name("executor")


class External(RunSpec):
    """Runs the application on another engine, in a process of its own. A manifest declares the engine."""

    application_kinds = ("dataflow", "windowed", "transaction")
    placement = "the engine decides"
    is_baseline = True
    is_engine = False
    may_lack_order = True  # `check` compares it with the manifest
    gives_state = False

    executor: str = Field(description="Name of the engine.")

    @model_validator(mode="before")
    @classmethod
    def _order_of_manifest(cls, data: Any) -> Any:
        """Take the order from the manifest where the spec leaves it open. `check` rejects an unknown name."""
        if not isinstance(data, dict) or data.get("order") is not None or data.get("executor") not in engines.names():
            return data
        try:
            order = engines.load(data["executor"]).manifest.applications.get(data.get("app", ""))
        except BadInput:
            return data
        return data if order is None else data | {"order": order}

    @model_validator(mode="after")
    def _check_unsupported(self) -> External:
        if self.pin:
            raise ValueError(f"executor {self.executor} binds no threads to cores: set pin to false")
        if self.sink != "parquet":
            raise ValueError(f"executor {self.executor} writes its outputs: set sink to parquet")
        return self

    def output_columns(self, app: App) -> list[str]:
        """The columns of the outputs. Without order, they are those that the application declares to agree then."""
        if self.order == "none" and app.unordered is not None:
            return [*app.unordered.columns]
        return super().output_columns(app)

    @property
    def strategy(self) -> str:
        """The engine's name, then the differences from the defaults."""
        return self._strategy_name("executor")

    def check(self, app: App) -> None:
        """Raise BadInput unless there is such an engine, and its manifest has the application."""
        if self.executor not in engines.names():
            raise BadInput(unknown("executor", self.executor, known_executors()))
        manifest = engines.load(self.executor).manifest
        order = manifest.applications.get(app.name)
        if order is None:
            runs = ", ".join(manifest.applications)
            raise BadInput(f"executor {self.executor} does not run application {app.name}; it runs: {runs}")
        if self.order != order:
            raise BadInput(f"order is {order} with {self.executor} and application {app.name}")
        if self.threads > manifest.max_threads:
            most = f"{manifest.max_threads} thread{'s' * (manifest.max_threads > 1)}"
            raise BadInput(f"executor {self.executor} runs on at most {most}")
        params = app.bind(self.params)
        for name, value in manifest.fixed.get(app.name, {}).items():
            if params.get(name) != value:
                got = f"{app.name} with {name} {value} only, got {params.get(name)}"
                raise BadInput(f"executor {self.executor} runs application {got}")
        if self.rate > 0 and not manifest.open_loop:
            raise BadInput(f"executor {self.executor} has no open-loop pass: set rate to 0")
        super().check(app)


AnyRunSpec = Annotated[Transactional | Pooled | Pinned | Morsel | Spark, Field(discriminator="executor")]

EXECUTORS: dict[str, type[RunSpec]] = {executor.name(): executor for executor in get_args(get_args(AnyRunSpec)[0])}
ENGINE_EXECUTORS = {name: executor for name, executor in EXECUTORS.items() if executor.is_engine}
_ADAPTER: TypeAdapter[AnyRunSpec] = TypeAdapter(AnyRunSpec)

# Option -> the name of the executor that has it.
OPTION_EXECUTORS = {option: name for name, executor in EXECUTORS.items() for option in executor.options()}
# Axis -> its strategies, the default first.
AXES = {axis: values for executor in EXECUTORS.values() for axis, values in executor.axes().items()}

# Option -> its value in the specs of other executors, and where it has no effect.
ABSENT_VALUES: dict[str, Any] = {
    option: None if option in AXES else EXECUTORS[name].options()[option].get_default(call_default_factory=True)
    for option, name in OPTION_EXECUTORS.items()
    if option not in RunSpec.model_fields
}

# All fields of a spec, in the order of its JSON.
SPEC_FIELDS: dict[str, FieldInfo] = {
    **{name: RunSpec.model_fields[name] for name in ("app", "params", "executor", "threads")},
    **{option: EXECUTORS[OPTION_EXECUTORS[option]].options()[option] for option in ABSENT_VALUES},
    **RunSpec.model_fields,
}


@cache  # pydantic inspects the function of a default on each call, which is slow
def _usual(name: str) -> tuple[Any, Any]:
    """The values of a field that a digest leaves out: its default, and that of a spec without the field."""
    return SPEC_FIELDS[name].get_default(call_default_factory=True), ABSENT_VALUES.get(name)


def values_of(name: str) -> tuple[str, ...]:
    """The values of a field of a spec that takes one of several strings, the default first; none of any other field."""
    return tuple(EXECUTORS) if name == "executor" else AXES.get(name) or literal_values(SPEC_FIELDS[name])


def known_executors() -> list[str]:
    """Names of all executors: Lockstep's own, then the engines on this machine."""
    return [*EXECUTORS, *engines.names()]


def executor_of(name: str) -> type[RunSpec]:
    """The class of the executor of this name."""
    return EXECUTORS.get(name, External)


def executors_of(kind: str) -> list[str]:
    """Names of the executors that run applications of this kind; the default first."""
    return [name for name, executor in EXECUTORS.items() if kind in executor.application_kinds]


def engine_executors_of(kind: str) -> list[str]:
    """Names of those of `executors_of` that Lockstep's engine has."""
    return [name for name in executors_of(kind) if name in ENGINE_EXECUTORS]
