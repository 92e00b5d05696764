"""RunSpec: one cell, that is one application executed in one way.

Each executor is a class below, and declares once what there is to choose of it: a field per option, its strategies
where it has such, the default first, and where it means anything. Everything else that knows ways of executing is made
from these declarations: the options of the CLI (cli/options.py), a regression's request and its form
(regression/request.py, dags/lib/form.py), the columns of raw cells (regression/warehouse.py), what the runtime is told.
An option or a strategy is added here, and in its own file of the runtime; an axis behind the others, as the first one
names the strategy.

Written down, a spec is flat: the fields of all executors, of which strategies that its own lacks are None, and what
else it lacks is at its default.
"""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_serializer, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import from_json

from streaming_core.errors import BadInput, one_line
from streaming_core.storage import digest_of

if TYPE_CHECKING:
    from streaming_core.language.application import App

MAX_THREADS = 1024
DEFAULT_BATCH, MAX_BATCH = 256, 65_536
ParamValue = bool | int | float | str

# Schemes that evaluate operation chains, and so take them from a pool.
SCHEMES_WITH_POOL = frozenset({"owners", "tstream", "auto"})
# Pools whose threads may take chains from each other.
SHARED_POOLS = frozenset({"shared_everything", "shared_per_socket"})
# Queues of the paper, whose partitions are there from the start, and those of them that have as many as are asked for.
QUEUES_WITH_PARTITIONING = frozenset({"hybrid", "partitioned", "shared"})
QUEUES_WITH_PARTITION_COUNT = QUEUES_WITH_PARTITIONING - {"partitioned"}
# Microseconds of a slice or a window of time at most, and partitions: as the runtime has it.
MAX_SLICE, MAX_PARTITIONS = 1_000_000, 256
# Options of windowed operators alone.
WINDOW_OPTIONS = frozenset({"schedule", "controller", "thresholds", "parallelism"})
# Plans by a word: that which is found, and each operator on each thread, which a specification does not write down.
AUTO_PLAN = "auto"
NAMED_PLANS: dict[str, Any] = {"replicated": {}, AUTO_PLAN: AUTO_PLAN}
# Controllers that ask for reconfigurations by the load they see.
ACTIVE_CONTROLLERS = frozenset({"threshold", "model"})
# Channels that keep no order: compared by what the application says agrees then.
UNORDERED_CHANNELS = frozenset({"spsc"})

# What a spec's digest covers whatever the values are. An option that came later counts only where it is not at its
# default, so that cells keep the names by which one night is compared with the next.
ALWAYS_DIGESTED = frozenset({
    "app", "params", "executor", "threads", "scheme", "pool", "stealing", "punctuation", "checkpoint", "batch",
    "heuristic", "queue", "reorder", "channel", "plan", "order", "rate", "pin", "idle", "sink", "repetitions",
})  # fmt: skip


@dataclass(frozen=True)
class Requires:
    """Of an option that means something only where another one has one of these values; elsewhere it is refused."""

    where: str
    has: frozenset[str]
    refusal: str


def literal_values(field: FieldInfo) -> tuple[str, ...]:
    """The words there are to choose from for a field; none if it takes others, or other things beside."""
    kinds = [field.annotation] if get_origin(field.annotation) is Literal else get_args(field.annotation)
    kinds = [kind for kind in kinds if kind is not type(None)]
    return get_args(kinds[0]) if len(kinds) == 1 and get_origin(kinds[0]) is Literal else ()


class RunSpec(BaseModel):
    """One way of executing one application: here, what every executor takes.

    `RunSpec(executor="pooled", ...)` makes a `Pooled`. An option of another executor reads as None, False, 0 or {}.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    # Said by every executor.
    name: ClassVar[str] = ""
    application_kinds: ClassVar[tuple[str, ...]] = ()  # kinds of applications
    placement: ClassVar[str] = ""  # who says where work runs
    is_baseline: ClassVar[bool] = False  # others are compared with it; it runs where it is asked for
    default_sweep: ClassVar[frozenset[str]] = frozenset()  # options of which a regression tries all words by default
    # Read off its fields.
    options: ClassVar[dict[str, FieldInfo]] = {}  # what only it has to choose
    axes: ClassVar[dict[str, tuple[str, ...]]] = {}  # those that are strategies, and these
    conditions: ClassVar[dict[str, Requires]] = {}

    app: str = Field(description="Application id, as `streaming-core apps` lists it.")
    params: dict[str, ParamValue] = Field(default_factory=dict, description="Parameters that differ from the defaults.")
    executor: str = Field(description="Who runs which stage on which batch.")
    threads: int = Field(1, ge=1, le=MAX_THREADS, description="OS threads that work, source and sink included.")
    punctuation: int = Field(500, ge=1, le=10_000_000, description="Events between two punctuations.")
    batch: int = Field(DEFAULT_BATCH, ge=1, le=MAX_BATCH, description="Events in a batch.")
    order: Literal["total", "none"] | None = Field(None, description="Order in which outputs are delivered.")
    rate: float = Field(
        0.0,
        ge=0.0,
        allow_inf_nan=False,
        description="Events per second offered by the open-loop source; 0 = peak rate.",
    )
    pin: bool = Field(False, description="Bind thread i to core i.")
    idle: Literal["spin", "yield", "park"] = Field("yield", description="What a thread does while it waits.")
    sink: Literal["parquet", "digest", "count"] = Field("digest", description="Where the outputs go.")
    repetitions: int = Field(0, ge=0, le=100, description="Measured passes at peak rate after the first pass.")
    seconds: float = Field(
        0.4,
        ge=0.0,
        le=3600.0,
        description="Least seconds of a repetition: its passes take turns with the compiled sequential loop until both "
        "have taken as long; 0 = one pass, and no loop beside it.",
    )

    def __new__(cls, /, *_: Any, **fields: Any) -> RunSpec:
        # As a Path is a PosixPath: who names an executor gets the class that declares it.
        executor = fields.get("executor")
        chosen = EXECUTORS.get(executor) if cls is RunSpec and isinstance(executor, str) else None
        return super().__new__(chosen or cls)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        (cls.name,) = literal_values(cls.model_fields["executor"])
        own = [name for name in inspect.get_annotations(cls) if name in cls.model_fields and name != "executor"]
        cls.options = {name: cls.model_fields[name] for name in own}
        cls.axes = {name: values for name, field in cls.options.items() if (values := literal_values(field))}
        cls.conditions = {n: only for n, f in cls.options.items() for only in f.metadata if isinstance(only, Requires)}

    if TYPE_CHECKING:  # what `__getattr__` gives, and what any executor may be asked for
        scheme: str | None = None
        pool: str | None = None
        stealing: bool = False
        checkpoint: int = 0
        heuristic: str | None = None
        queue: str | None = None
        reorder: str | None = None
        partitioning: str | None = None
        partitions: int = 100
        slice: int = 5
        throughput_window: int = 1_000
        channel: str | None = None
        plan: dict[str, list[int]] | str = {}
        schedule: list[ScheduledReconfiguration] = []
        controller: str | None = None
        thresholds: list[int] = []
        parallelism: str | None = None
    else:

        def __getattr__(self, name: str) -> Any:
            return copy.copy(ABSENT_VALUES[name]) if name in ABSENT_VALUES else super().__getattr__(name)

    @model_validator(mode="before")
    @classmethod
    def _of_this_executor(cls, given: Any) -> Any:
        """Leaves out what is not chosen, and refuses what this executor has no choice of."""
        if not isinstance(given, dict):
            return given
        executor, kept = given.get("executor"), {}
        if cls is RunSpec and isinstance(executor, str):
            raise ValueError(f"unknown executor {executor!r}; known: {', '.join(EXECUTORS)}")
        for name, value in given.items():
            if name in ABSENT_VALUES and name not in cls.model_fields:
                if cls is not RunSpec and value is not None and value != ABSENT_VALUES[name]:
                    raise ValueError(f"executor {cls.name} has no {name}; {OPTION_EXECUTORS[name].name} has")
            elif value is not None or name not in cls.options:
                known = cls.axes.get(name)
                if known and value not in known:
                    raise ValueError(f"unknown {name} {value!r} of executor {cls.name}; known: {', '.join(known)}")
                kept[name] = value
        return kept

    @model_validator(mode="after")
    def _means_something(self) -> RunSpec:
        for name, only in self.conditions.items():
            if getattr(self, only.where) in only.has:
                continue
            if name in self.model_fields_set and getattr(self, name) != ABSENT_VALUES[name]:
                raise ValueError(only.refusal.format_map(self.__dict__))
            object.__setattr__(self, name, ABSENT_VALUES[name])
        order = self._delivered()
        if self.order not in (None, order):
            raise ValueError(f"order is {order} with {f'channel {self.channel}' if self.channel else self.executor}")
        object.__setattr__(self, "order", order)
        return self

    def _delivered(self) -> str:
        """The order in which outputs are delivered."""
        return "total"

    @model_serializer(mode="wrap")
    def _flat(self, dump: Any) -> dict[str, Any]:
        found = ABSENT_VALUES | dump(self)
        return {name: found[name] for name in SPEC_FIELDS if name in found}

    @classmethod
    def parse(cls, data: dict | str | bytes) -> RunSpec:
        """A RunSpec from a dict or JSON text.

        Raises:
            BadInput: one line that names the field and what it may be.
        """
        try:
            data = from_json(data) if isinstance(data, str | bytes) else data
        except ValueError as error:
            raise BadInput(f"Invalid JSON: {error}") from None
        try:
            return cls(**data) if isinstance(data, dict) else cls.model_validate(data)
        except ValidationError as error:
            raise BadInput(one_line(error)) from None

    def check(self, app: App) -> None:
        """Raises BadInput unless the application runs that way."""
        if app.kind not in self.application_kinds:
            supported = ", ".join(executors_of(app.kind))
            raise BadInput(f"application {app.name} does not run on {self.executor}; it supports: {supported}")
        if self.is_unsafe(app):
            raise BadInput(f"scheme {self.scheme} is refused for {app.name}: its tables hold containers")
        if self.order == "none" and app.unordered is None:
            raise BadInput(
                f"application {app.name} runs in total order only: it does not say what agrees without order"
            )

    def is_unsafe(self, app: App) -> bool:
        """Whether it is a bound under which threads could change a container of the application at the same time."""
        return self.is_bound and any(t.row.resolve(app.bind(self.params)).has_containers for t in app.tables)

    @property
    def is_bound(self) -> bool:
        """Whether it bounds a result instead of producing one: compared, reported `not_comparable`, never counted."""
        return False

    @property
    def spec_digest(self) -> str:
        """Digest of this spec's canonical JSON: known before anything runs."""
        return digest_of(self.digest_content)

    @property
    def digest_content(self) -> dict[str, Any]:
        """What the digest is of: all of it but options that came later and are as they were before. It says the same as
        the whole, also to builds that do not know those."""

        def counts(name: str, value: Any) -> bool:
            usual = SPEC_FIELDS[name].get_default(call_default_factory=True), ABSENT_VALUES.get(name)
            return name in ALWAYS_DIGESTED or value not in usual

        return {name: value for name, value in self.model_dump(mode="json").items() if counts(name, value)}

    @property
    def strategy(self) -> str:
        """What names this way of executing: the executor's first axis, and what differs from the defaults."""
        first, *others = self.axes
        # An order alone names nothing.
        named, others = ([self.executor], [first, *others]) if first == "order" else ([getattr(self, first)], others)
        named += [value for axis in others if (value := getattr(self, axis)) not in (None, self.axes[axis][0])]
        named += [name for name in self.options if getattr(self, name) is True]
        named += ["planned"] if self.plan == AUTO_PLAN else []
        named += [f"reconfigured{len(self.schedule)}"] if self.schedule else []
        named += [f"batch{self.batch}"] if self.batch != DEFAULT_BATCH else []
        return "-".join(named)

    @property
    def cell(self) -> str:
        """Name of this cell inside a run: letters, digits, `.`, `_` and `-` only; unique by the digest's tail."""
        return f"{self.app}.{self.executor}.{self.strategy}.t{self.threads}.{self.spec_digest[:8]}"

    @property
    def runtime_options(self) -> dict[str, Any]:
        """What the runtime is told of it: all but what concerns a run's passes and folder."""
        of_the_run = ("app", "params", "checkpoint", "repetitions", "seconds")
        return {name: value for name, value in self.model_dump(mode="json").items() if name not in of_the_run}

    @classmethod
    def ways(cls, tried: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
        """Every choice among the values to try of each option, without what means nothing in it; some are the same."""
        found = []
        for choice in itertools.product(*tried.values()):
            way = dict(zip(tried, choice, strict=True))
            for name, only in cls.conditions.items():
                if name in way and way.get(only.where) not in only.has:
                    del way[name]
            found.append(way)
        return found


class Transactional(RunSpec):
    """Transactions on shared tables, one punctuation interval after the other."""

    application_kinds = ("transaction",)
    placement = "no plan: of each punctuation interval threads have equal shares, whatever the operators cost"
    default_sweep = frozenset({"scheme"})

    executor: Literal["transactional"] = "transactional"
    scheme: Literal["owners", "tstream", "serial", "lock", "mvlk", "pat", "auto", "no_lock"] = Field(
        "owners", description="Transactional scheme; no_lock is a bound, not a result."
    )
    pool: Annotated[
        Literal["shared_nothing", "shared_everything", "shared_per_socket"] | None,
        Requires("scheme", SCHEMES_WITH_POOL, "scheme {scheme} has no pool"),
    ] = Field("shared_nothing", description="Chain pool, of the schemes that take operation chains from one.")
    stealing: Annotated[bool, Requires("pool", SHARED_POOLS, "stealing needs a shared pool")] = Field(
        False, description="Work stealing between threads of a shared chain pool."
    )
    checkpoint: int = Field(0, ge=0, le=1_000_000, description="Punctuations between two checkpoints; 0 = none.")

    @property
    def is_bound(self) -> bool:
        return self.scheme == "no_lock"


class Pooled(RunSpec):
    """Workers that take batches from the operators' worklists."""

    application_kinds = ("dataflow",)
    placement = "no plan: any worker runs any operator, and goes where there is work"

    executor: Literal["pooled"] = "pooled"
    heuristic: Literal["affinity", "ct", "lp", "et", "qst"] = Field(
        "affinity", description="How a pooled worker chooses the next operator."
    )
    queue: Literal["lanes", "hybrid", "partitioned", "shared"] = Field(
        "lanes", description="Worklist of partitioned operators."
    )
    reorder: Literal["non_blocking", "lock"] = Field(
        "non_blocking", description="Reorder buffer behind parallel operators."
    )
    partitioning: Annotated[
        Literal["hash", "range"] | None,
        Requires(
            "queue",
            QUEUES_WITH_PARTITIONING,
            "queue {queue} has no partitioning: it deals keys by their hash, as they cost",
        ),
    ] = Field("hash", description="How keys are dealt to the partitions of queues other than lanes.")
    partitions: Annotated[
        int,
        Requires(
            "queue", QUEUES_WITH_PARTITION_COUNT, "queue {queue} has no partitions to ask for; hybrid and shared have"
        ),
    ] = Field(
        100, ge=1, le=MAX_PARTITIONS, description="Partitions of a partitioned operator with queue hybrid or shared."
    )
    slice: int = Field(
        5, ge=1, le=MAX_SLICE, description="Microseconds of work after which a pooled worker chooses anew."
    )
    throughput_window: Annotated[
        int, Requires("heuristic", frozenset({"ct"}), "heuristic {heuristic} has no throughput_window; ct has")
    ] = Field(
        1_000, ge=1, le=MAX_SLICE, description="Microseconds over which heuristic ct sees the throughput of operators."
    )


class ScheduledReconfiguration(BaseModel):
    """From an event on, per windowed operator the replicas that share its keys: which, or how many of the first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    event: int = Field(ge=0, le=2**63 - 1)
    replicas: dict[str, list[int]] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _numbers(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("replicas"), dict):
            return given
        # More than there can be are refused where it is known how many there are.
        replicas = {
            name: list(range(min(share, MAX_THREADS + 1))) if type(share) is int else share
            for name, share in given["replicas"].items()
        }
        return given | {"replicas": replicas}


def evenly_spaced(n: int, events: int) -> list[int]:
    """n events that cut a workload into n + 1 parts."""
    return [(place + 1) * events // (n + 1) for place in range(n)]


class Pinned(RunSpec):
    """A task per operator replica, each on its thread."""

    application_kinds = ("dataflow", "windowed")
    placement = "by a plan: each operator on each thread, or a file, or auto, found by what operators cost"
    default_sweep = frozenset({"plan"})

    executor: Literal["pinned"] = "pinned"
    channel: Literal["gate", "scalegate", "merge_sort", "spsc"] = Field(
        "gate",
        description="What brings the rows of several replicas into one order: gate, who takes them merges; scalegate, "
        "who puts them out sorts them in (Viper); merge_sort, operators in between do. spsc keeps none, and is for "
        "applications that say what agrees without.",
    )
    plan: dict[str, list[int]] | Literal["auto"] = Field(
        default_factory=dict,
        description="Per operator, `source` and `sink` too, the threads of its replicas; auto: found by what operators "
        "were measured to cost, and threads are bound to cores.",
    )
    schedule: list[ScheduledReconfiguration] = Field(
        default_factory=list,
        description="Reconfigurations of windowed operators: from an event on, which replicas share the keys.",
    )
    controller: Literal["none", "threshold", "model"] = Field(
        "none",
        description="Who asks for reconfigurations of windowed operators while they run, by the load: threshold by how "
        "much of the time replicas work, model by the work that waits and is to come.",
    )
    thresholds: Annotated[
        list[int], Requires("controller", ACTIVE_CONTROLLERS, "thresholds are a controller's, and there is none")
    ] = Field(
        default_factory=list,
        description="Percent of what the replicas can do: upper, above which there are more of them; target, below "
        "which they stay then; lower, below which there are fewer. None: those of STRETCH.",
    )
    parallelism: Literal["vsn", "sn"] = Field(
        "vsn",
        description="What replicas of windowed operators share: rows and state, each key having one owner, or nothing, "
        "a baseline.",
    )

    @model_validator(mode="after")
    def _replicas_have_threads(self) -> Pinned:
        for name, places in self.places.items():
            if not places or not all(0 <= place < self.threads for place in places):
                raise ValueError(f"plan: {name} needs a replica, each on one of the threads 0 to {self.threads - 1}")
        for one, other in itertools.pairwise(self.schedule):
            if one.event > other.event:
                raise ValueError(f"schedule: event {other.event} comes after event {one.event}")
        if self.thresholds:
            upper, target, lower = self.thresholds if len(self.thresholds) == 3 else (0, 0, 0)
            if not 100 >= upper > target > lower >= 1:
                said = ",".join(map(str, self.thresholds))
                raise ValueError(f"thresholds: upper > target > lower, each of 1 to 100 percent, not {said}")
        return self

    @property
    def places(self) -> dict[str, list[int]]:
        """What the plan says; nothing, if it is still to be found."""
        return self.plan if isinstance(self.plan, dict) else {}

    @property
    def lacks_plan(self) -> bool:
        """Whether nothing is said of who runs where, or of replicas that there would have to be."""
        of_replicas = self.schedule or self.controller in ACTIVE_CONTROLLERS or self.parallelism != "vsn"
        return self.threads > 1 and not self.plan and not of_replicas

    def _delivered(self) -> str:
        return "none" if self.channel in UNORDERED_CHANNELS else "total"

    def check(self, app: App) -> None:
        super().check(app)
        if app.kind == "windowed" and self.channel != "gate":
            raise BadInput(f"application {app.name} has windows: pinned runs it with channel gate")
        if app.kind != "windowed" and self.parallelism != "vsn":
            raise BadInput(f"application {app.name} has no windows: parallelism {self.parallelism} is for such as have")
        kinds = {"source": "source"} | {o.name: o.kind for o in app.operators[1:-1]} | {"sink": "sink"}
        for name, places in self.places.items():
            if name not in kinds:
                raise BadInput(f"plan: {app.name} has no operator {name}; it has {', '.join(kinds)}")
            if len(places) > 1 and kinds[name] in ("stateful", "sink"):
                raise BadInput(f"plan: {name} of {app.name} is {kinds[name]}: it has one replica, not {len(places)}")
        if self.plan == AUTO_PLAN and self.parallelism != "vsn":
            raise BadInput(f"a plan is found for parallelism vsn, not {self.parallelism}: give one, or none")
        if self.controller in ACTIVE_CONTROLLERS and app.kind != "windowed":
            raise BadInput(f"application {app.name} has no windowed operator, which alone is a controller's")
        for at in self.schedule:
            for name, share in at.replicas.items():
                if kinds.get(name) != "windowed":
                    known = ", ".join(n for n, kind in kinds.items() if kind == "windowed") or "none"
                    raise BadInput(f"schedule: {app.name} has no windowed operator {name}; it has {known}")
                there = len(self.places.get(name, range(self.threads)))
                if not share or len({*share}) < len(share) or not all(0 <= one < there for one in share):
                    raise BadInput(
                        f"schedule: event {at.event}: {name} has replicas 0 to {there - 1}: name some, each once"
                    )


class Morsel(RunSpec):
    """Workers that take whole batches through the whole pipeline."""

    application_kinds = ("dataflow",)
    placement = "no plan: each worker takes a batch through all operators"
    is_baseline = True

    executor: Literal["morsel"] = "morsel"
    order: Literal["total", "none"] = Field(
        "total", description="Order in which morsel delivers; none is for applications that say what agrees without."
    )

    def _delivered(self) -> str:
        return self.order


EXECUTORS: dict[str, type[RunSpec]] = {executor.name: executor for executor in (Transactional, Pooled, Pinned, Morsel)}

# Option -> the executor that has it, and axis -> all its strategies, the default first.
OPTION_EXECUTORS = {name: executor for executor in EXECUTORS.values() for name in executor.options}
AXES = {
    name: tuple(dict.fromkeys(value for e in EXECUTORS.values() for value in e.axes.get(name, ())))
    for name, executor in OPTION_EXECUTORS.items()
    if name in executor.axes
}

# What a spec says of an option that its executor lacks, or that means nothing with the others.
ABSENT_VALUES: dict[str, Any] = {
    name: None if name in AXES else executor.options[name].get_default(call_default_factory=True)
    for name, executor in OPTION_EXECUTORS.items()
    if name not in RunSpec.model_fields
}

# All fields of a spec as it is written down.
SPEC_FIELDS: dict[str, FieldInfo] = {
    **{name: RunSpec.model_fields[name] for name in ("app", "params", "executor", "threads")},
    **{name: OPTION_EXECUTORS[name].options[name] for name in ABSENT_VALUES},
    **RunSpec.model_fields,
}


def executors_of(kind: str) -> list[str]:
    """Which executors run applications of this kind; the usual one first."""
    return [name for name, executor in EXECUTORS.items() if kind in executor.application_kinds]
