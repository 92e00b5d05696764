"""RunReport: the facts about one run, as report.json holds them.

Start at `RunReport`, then read `Sample`, one measured pass. `provenance.report_of` makes a report.

A field with an alias has the alias in report.json.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    computed_field,
    model_serializer,
    model_validator,
)

from streaming_core import storage
from streaming_core.errors import BadInput, one_line

REPORT_VERSION = 1
LOG = "engine.log"  # in the folder of a run on another engine: the output of the engine (external.py)


class Latency(BaseModel):
    """Latency percentiles and mean in microseconds, with one sample per batch."""

    p50: float
    p95: float
    p99: float
    p999: float
    max: float
    mean: float | None = Field(None, description="None in reports of older versions.")

    @classmethod
    def of_pass(cls, seconds: float) -> Latency:
        """The latencies of a pass whose events all arrive at its start: each is the time of the pass."""
        return cls(**dict.fromkeys(cls.model_fields, seconds * 1e6))


class GoneOver(BaseModel):
    """A replica that gained or lost keys in a reconfiguration."""

    replica: int
    at: int = Field(description="Time of the change, in nanoseconds of engine time.")
    waited: int = Field(description="Nanoseconds that it waited for the previous owners of its keys.")


class Reconfiguration(BaseModel):
    """A change of the owners of the keys of a windowed operator, from one event on."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    operator: str
    event: int = Field(description="First event after the change.")
    owners: list[int] = Field(
        description="Owners of the cells after the change: cell c belongs to the replica at place c modulo the length."
    )
    by: str = Field("schedule", description="Origin of the change: schedule, request, or the controller's name.")
    cause: str | None = Field(None, description="Load that made the controller act; None without a controller.")
    requested: int | None = Field(
        None, alias="asked", description="Time of the request, in nanoseconds of engine time; None: before the run."
    )
    moved: int = Field(description="Number of cells that changed their owner.")
    cells: int = Field(description="Number of cells of the operator.")
    bytes: int = Field(0, description="Bytes of state copied between replicas; 0 if the replicas share their state.")
    posted: int | None = Field(
        description="Time at which the first event reached the replicas, in nanoseconds of engine time; None: never."
    )
    gone_over: list[GoneOver] = Field(description="Replicas that took part.")

    @property
    def replicas(self) -> list[int]:
        """The replicas that own keys after the change, ascending."""
        return sorted({*self.owners})

    # Ignored for the reason below.
    @computed_field(  # type: ignore[prop-decorator]
        description="Microseconds from the request, or else from `posted`, to the last replica."
    )
    @property
    def microseconds(self) -> float | None:
        """See the description of the field."""
        if self.posted is None or not self.gone_over:
            return None
        since = self.posted if self.requested is None else self.requested
        return max(move.at for move in self.gone_over) / 1e3 - since / 1e3


class Load(BaseModel):
    """The load of a windowed operator in one period of its controller; times in nanoseconds of engine time."""

    at: int = Field(description="End of the period.")
    period: int = Field(description="Length of the period.")
    replicas: int = Field(description="Replicas that owned keys.")
    most: int = Field(description="Replicas that could own keys.")
    worked: int = Field(description="Processor time of all replicas together.")
    arrived: int = Field(description="Events that arrived in the period.")
    dealt: int = Field(description="Events that the operator passed to its replicas in the period.")
    pending: int = Field(description="Events that waited for the replicas at the end of the period.")


class Balance(BaseModel):
    """How evenly the keys of a windowed operator were dealt to its replicas (STRETCH, section 8.4)."""

    calls: list[int] = Field(description="For each replica, how often a row met a window of one of its keys.")

    @computed_field(  # type: ignore[prop-decorator]
        description="Coefficient of variation of the calls: their standard deviation relative to their mean, in "
        "percent. None without calls."
    )
    @property
    def variation(self) -> float | None:
        """See the description of the field."""
        mean = statistics.mean(self.calls)
        return 100 * statistics.pstdev(self.calls) / mean if mean else None


class TaskCost(BaseModel):
    """The cost of one task of executor pinned in a pass.

    A task is the source, the sink or a replica of an operator (`operator`). It may also find the keys of a windowed
    operator's rows (`keys`), or merge rows for a replica (`merge`). The rest of the pass is waiting time.
    """

    role: Literal["source", "operator", "keys", "merge", "sink"]
    operator: str = Field(description="Operator as in a plan; for roles keys and merge, the operator that follows.")
    thread: int
    rows_in: int
    rows_out: int
    batches: int = Field(description="Batches with rows.")
    execute_ns: int = Field(
        description="Nanoseconds in kernels, finding keys, examining, delivering and digesting outputs."
    )
    others_ns: int = Field(description="Nanoseconds in gates and outlets, and routing rows to replicas.")
    execute_quantiles: list[float] = Field(
        description="Quantiles over batches, in steps of 5 percent, of the nanoseconds per row. Empty without rows."
    )


class Threads(BaseModel):
    """How many threads worked on a pass. The engine leaves threads idle that gain nothing."""

    worked: int = Field(description="Threads that worked on most of the events.")
    of: int = Field(description="Threads that the specification allows.")
    why: str | None = Field(None, description="Reason if not all of them worked.")

    @property
    def text(self) -> str:
        """`2 of 16 threads worked: 2 cores`."""
        reason = f": {self.why}" if self.why else ""
        return f"{self.worked} of {self.of} thread{'s' * (self.of > 1)} worked{reason}"


class Sample(BaseModel):
    """One measured pass over the workload.

    The kinds of passes:

    - `verified`: its outputs went to the spec's sink.
    - `peak`: a repetition at peak rate with the digest sink.
    - `open_loop`: at the spec's rate. Its latencies count from the intended arrival time.
    """

    kind: Literal["verified", "peak", "open_loop"]
    repetition: int
    events: int
    outputs: int
    digest: str = Field(description="Digest of the output rows: `<rows>:<16 hex digits>`.")
    in_order: bool = Field(description="Whether the outputs arrived in the order of (seq, sub).")
    seconds: float = Field(description="Active time of the engine, without decoding and writing files.")
    events_per_s: float = Field(description="Events per second of active time.")
    processing: Latency = Field(description="Latency from the start of a batch's processing to its delivery.")
    end_to_end: Latency | None = Field(
        None, description="Latency from the intended arrival to the delivery; only in open-loop passes."
    )
    breakdown: dict[str, float] = Field(
        description="Seconds of all threads together, by kind: useful, sync, lock, remote, other."
    )
    cpu_seconds: float | None = Field(
        description="Processor time of all threads during the active time. In a pass that writes Parquet it includes "
        "the threads that read and write files. None for other engines, which do not report it."
    )
    threads: Threads | None = Field(None, description="Threads that worked; None: not known.")
    passes: int = Field(1, description="Passes of the repetition. The sample is the pass of median time.")
    loop_seconds: float | None = Field(
        None, description="Seconds of the compiled loop's median pass, in turns with these passes; None: no loop ran."
    )
    energy_joules: float | None = Field(
        None,
        description="Energy of all processor packages during the active time, including other processes; None without "
        "readable counters.",
    )
    node_loads: int | None = Field(
        None,
        description="Loads of all threads that a memory node answered; None without counters, for the reason in "
        "`node_loads` of `host`.",
    )
    node_load_misses: int | None = Field(
        None, description="Loads among them that another node than that of the thread's core answered."
    )
    dropped_invalid: int = Field(0, description="Events that the application dropped as invalid.")
    dropped_late: int = Field(0, description="Events that were too late for every window.")
    rejected: int = Field(0, description="Transactions that a condition rejected.")
    reconfigurations: list[Reconfiguration] = Field(
        default_factory=list, description="Reconfigurations of windowed operators."
    )
    loads: dict[str, list[Load]] = Field(
        default_factory=dict, description="Load of each windowed operator with a controller, period by period."
    )
    balance: dict[str, Balance] = Field(
        default_factory=dict, description="How evenly the keys of each windowed operator were dealt to its replicas."
    )
    omitted_reconfigurations: int = Field(
        0, description="Reconfigurations that the report omits, beyond the first 20,000 of each operator."
    )
    omitted_loads: int = Field(0, description="Loads that the report omits, beyond the first 20,000 of each operator.")
    tasks: list[TaskCost] = Field(default_factory=list, description="Cost of each task; only with executor pinned.")
    chosen: dict[str, int] = Field(
        default_factory=dict, description="Events that each scheme executed; only with scheme auto."
    )
    costs: dict[str, int] = Field(
        default_factory=dict,
        description="Times and counts of the scheme's own, summed over threads; times end in `_ns`. Scheme `tstream` "
        "has the times of planning, insertion, rounds, barriers, post-processing and delivery. It "
        "counts intervals, rounds, operations, chains and dependent chains.",
    )

    # Ignored: mypy accepts no decorator above @property, and pydantic requires this order.
    @computed_field(description="Processor time per event, in nanoseconds.")  # type: ignore[prop-decorator]
    @property
    def cpu_ns(self) -> float | None:
        """See the description of the field."""
        return self.cpu_seconds * 1e9 / self.events if self.events and self.cpu_seconds is not None else None

    @computed_field(description="Energy per event, in nanojoules.")  # type: ignore[prop-decorator]
    @property
    def energy_nj(self) -> float | None:
        """See the description of the field."""
        return self.energy_joules * 1e9 / self.events if self.events and self.energy_joules is not None else None


class Rerun(BaseModel):
    """A pass whose result differed from the first pass's, made again to keep its rows."""

    kind: str = Field(description="Kind of the pass.")
    repetition: int = Field(description="Number of the pass.")
    passes: int = Field(description="How often it was made again.")
    differs: bool = Field(description="Whether it differed again. If so, folder `rerun` has its rows.")

    @property
    def text(self) -> str:
        """The outcome, in a clause."""
        times = f"made again {self.passes} time{'s' * (self.passes > 1)} with its rows kept"
        name = f"{self.kind} pass {self.repetition}, {times},"
        return f"{name} differed again" if self.differs else f"{name} did not differ, so there are no rows to show"


class Better(BaseModel):
    """A plan that is better for the load that the run measured."""

    plan: dict[str, list[int]] = Field(description="Threads of each operator's replicas.")
    events_per_s: float = Field(description="Predicted events per second of this plan.")
    instead_of: float = Field(description="Predicted events per second of the run's own plan, with the same costs.")


class Chosen(BaseModel):
    """How a run chose between the planner's plan and the replicated plan: it measured both on the first events."""

    plan: Literal["found", "replicated"] = Field(description="The faster plan, which the run uses.")
    candidate_per_s: float = Field(description="Median events per second of the plan found.")
    replicated_per_s: float = Field(description="Median events per second of the replicated plan.")
    ratio: float = Field(description="Median over rounds of the first rate divided by the second.")
    rounds: int = Field(description="Rounds, in which the plans take turns.")


class Planned(BaseModel):
    """The plan of a run with plan auto, and its prediction."""

    plan: dict[str, list[int]] = Field(description="Threads of each operator's replicas.")
    strategy: str = Field(description="Strategy that found the plan.")
    events_per_s: float = Field(description="Predicted events per second.")
    bottleneck: str = Field(description="Resource that limits the predicted rate.")
    error: float | None = Field(
        None,
        description="|measured - predicted| / measured throughput of the median pass at peak rate; None without such "
        "a pass.",
    )
    changed: dict[str, float] = Field(
        default_factory=dict,
        description="Operators whose share of the work differs from the profile by more than a quarter, with the "
        "factor. Operators with a small share are left out.",
    )
    better: Better | None = Field(None, description="Better plan for the changed load; None if there is none.")
    chosen: Chosen | None = Field(
        None, description="The measured choice between this plan and the replicated plan; None if they are the same."
    )


class InjectedFault(BaseModel):
    """A fault that a run injected into itself (`faults` of its spec)."""

    kind: str
    at: int = Field(description="Number of processed events at which it happened; of a stall, its seed.")
    life: int = Field(description="Process in which it happened, from 1; the next one resumed.")


class RunReport(BaseModel):
    """The report.json of a run. `streaming-core run` writes it last and atomically: a folder without it is no run."""

    model_config = ConfigDict(extra="forbid")

    version: int = REPORT_VERSION
    spec: dict
    spec_digest: str
    cell: str
    app: str
    code_digest: str
    build: str = Field(description="Git commit of the engine; `unknown` outside a checkout.")
    workload: dict = Field(description="The workload's address, content_digest, events, seed and params.")
    is_bound: bool = Field(description="Whether the run is a bound on speed (scheme no_lock) and gives no result.")
    samples: list[Sample]
    rerun: Rerun | None = Field(None, description="Pass that was made again because its result differed; None: none.")
    state_digest: str | None = Field(
        description="Digest of all final tables and keyed states: `<rows>:<16 hex digits>`. None for other engines, "
        "whose state is their own."
    )
    compile_seconds: float
    peak_memory_bytes: int
    energy_joules: float | None = Field(
        None, description="Energy of all samples together; None if unreadable, for the reason in `energy` of `host`."
    )
    topology: dict = Field(description="Cores and memory nodes of the host.")
    resumed: list[int] = Field(
        default_factory=list, description="Events at which the run resumed from a checkpoint, in order."
    )
    faults: list[InjectedFault] = Field(default_factory=list, description="Faults that the run injected, in order.")
    planned: Planned | None = Field(None, description="The plan; only with plan auto and at least one event.")
    unplanned: str | None = Field(
        None, description="Reason for using the replicated plan although plan auto was set; None if there is a plan."
    )
    binding: list[int] | None = Field(None, description="Core that each thread really ran on; None if not bound.")
    memory: dict | None = Field(
        None,
        description="Memory of a transactional run. `nodes`: the memory node of each thread. `tables`: the placement "
        "of rows on the nodes. `why`: the reason for binding nothing. `extra_ns`: additional nanoseconds for a line of "
        "another node. `remote` is 'estimated' if a model, not a measurement, gives the breakdown's remote time. "
        "`pools`: the pool of each thread, with a scheme that has pools. `sockets` is 'made up' if the pools belong to "
        "sockets that the machine does not have.",
    )
    yardstick: str | None = Field(
        None,
        description="Digest of the compiled loop, the processor and the method of measurement. Ratios to the loop are "
        "comparable only if it is the same. None: no loop ran.",
    )
    host: dict = Field(
        description="Name of the host, load average before and after, versions, and disturbances of the repetitions. "
        "If energy, loads from memory nodes or the loop are missing, also the reason."
    )

    @model_serializer(mode="wrap")
    def _seal(self, fields: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Add the digest of all fields to JSON."""
        return storage.sealed(fields(self)) if info.mode == "json" else fields(self)

    @model_validator(mode="wrap")
    @classmethod
    def _check_seal(cls, data: Any, report: ModelWrapValidatorHandler[RunReport], info: ValidationInfo) -> RunReport:
        """Refuse JSON whose digest is not that of its fields."""
        if info.mode == "python" or not isinstance(data, dict):
            return report(data)
        valid = report({name: value for name, value in data.items() if name != "digest"})
        if fault := storage.change(data):
            raise ValueError(f"it {fault}")
        return valid

    @property
    def verified(self) -> Sample:
        """The pass whose outputs the comparison with the oracle uses."""
        return self.samples[0]

    @property
    def peak(self) -> Sample:
        """The pass of median throughput among those at peak rate; the first pass if there are none."""
        passes = [s for s in self.samples if s.kind == "peak"] or [self.verified]
        return sorted(passes, key=lambda s: s.events_per_s)[len(passes) // 2]


def read_report(run_dir: Path) -> RunReport:
    """Read report.json in the folder of a run.

    Raises:
        BadInput: The file is missing, is no run report, or was changed.
    """
    path = run_dir / "report.json"
    try:
        return RunReport.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise BadInput(
            f"no finished run at {run_dir}: report.json is missing; create it with `streaming-core run`"
        ) from None
    except ValidationError as error:
        raise BadInput(f"{path} is not a run report: {one_line(error)}") from None
