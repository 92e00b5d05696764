"""RunReport: everything one run says about itself."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field

REPORT_VERSION = 1


class Latency(BaseModel):
    """Percentiles in microseconds, sampled per batch."""

    p50: float
    p95: float
    p99: float
    p999: float
    max: float


class GoneOver(BaseModel):
    """A replica that gained or lost keys: when it went over, for how long it had waited for those who lost them."""

    replica: int
    at: int = Field(description="Nanoseconds of engine time.")
    waited: int


class Reconfiguration(BaseModel):
    """From `event` on these replicas of a windowed operator share its keys."""

    operator: str
    event: int
    replicas: list[int]
    by: str = Field("schedule", description="Who asked: schedule, request, or the controller.")
    cause: str | None = Field(None, description="What a controller saw.")
    asked: int | None = Field(None, description="When, in nanoseconds of engine time; None: beforehand.")
    moved: int = Field(description="Cells, of `cells`, that got another owner.")
    cells: int
    bytes: int = Field(0, description="Of state, copied from replica to replica; 0 where they share it.")
    posted: int | None = Field(description="When its event was dealt, in nanoseconds of engine time; None: never.")
    gone_over: list[GoneOver]

    # The ignored: as below.
    @computed_field(description="From when it was asked for, or dealt, to the last replica.")  # type: ignore[prop-decorator]
    @property
    def microseconds(self) -> float | None:
        if self.posted is None or not self.gone_over:
            return None
        since = self.posted if self.asked is None else self.asked
        return max(one.at for one in self.gone_over) / 1e3 - since / 1e3


class Load(BaseModel):
    """What a controller saw of a windowed operator in a period; times in nanoseconds of engine time."""

    at: int = Field(description="When the period ended.")
    period: int
    replicas: int = Field(description="Those that owned keys, of `most`.")
    most: int
    worked: int = Field(description="Processor time of replicas at work, all together.")
    arrived: int = Field(description="Events that came in the period.")
    dealt: int = Field(description="Events that were dealt to the replicas.")
    pending: int = Field(description="Events that had come and were not dealt yet.")


class TaskCost(BaseModel):
    """What a task of executor pinned did in a pass, all of it: a replica of an operator, the source, the sink; who
    finds the keys of a windowed operator's rows; who merges in front of a replica.

    What is left of the pass, on a thread, is waiting.
    """

    role: Literal["source", "operator", "keys", "merge", "sink"]
    operator: str = Field(description="As a plan names it; the one behind, of those that find keys or merge.")
    thread: int
    rows_in: int
    rows_out: int
    batches: int = Field(description="Those that had rows.")
    execute_ns: int = Field(description="In kernels, finding keys, examining, delivering and digesting outputs.")
    others_ns: int = Field(description="What else its steps took: gates, outlets, who gets which row.")
    execute_quantiles: list[float] = Field(
        description="Nanoseconds of executing a row, of each batch: at every twentieth of the batches. None: no rows."
    )


class Sample(BaseModel):
    """One measured pass over the workload.

    `kind`: `verified` = the pass whose outputs went to the spec's sink; `peak` = a repetition at peak rate with the
    digest sink; `open_loop` = at the spec's rate, latencies counted from the intended arrival time.
    """

    kind: Literal["verified", "peak", "open_loop"]
    repetition: int
    events: int
    outputs: int
    digest: str = Field(description="`<rows>:<16 hex>` over the canonical output rows, see digest.py.")
    in_order: bool = Field(description="Whether outputs were delivered in (seq, sub) order.")
    seconds: float = Field(description="Time the engine was active; decoding and writing files excluded.")
    events_per_s: float
    processing: Latency = Field(description="From the start of a batch's processing to its delivery.")
    end_to_end: Latency | None = Field(None, description="From the intended arrival to delivery; open-loop only.")
    breakdown: dict[str, float] = Field(description="Seconds summed over threads: useful, sync, lock, remote, other.")
    cpu_seconds: float = Field(
        description="Processor time of all threads while the engine was active; of a pass that writes Parquet, "
        "those that read and write, too."
    )
    passes: int = Field(1, description="Of the repetition: this is the pass of median time of so many.")
    loop_seconds: float | None = Field(
        None, description="Median pass of the compiled loop, which took turns with these passes; None: it did not."
    )
    energy_joules: float | None = Field(
        None, description="What all processor packages took meanwhile, for whomever; None where that cannot be read."
    )
    dropped_invalid: int = 0
    dropped_late: int = 0
    rejected: int = 0
    reconfigurations: list[Reconfiguration] = Field(default_factory=list, description="Of windowed operators.")
    loads: dict[str, list[Load]] = Field(
        default_factory=dict, description="Per windowed operator what its controller saw, period by period."
    )
    omitted_reconfigurations: int = Field(
        0, description="Reconfigurations that are not listed, beyond the first 20,000 of each operator."
    )
    omitted_loads: int = Field(0, description="Loads that are not listed, beyond the first 20,000 of each operator.")
    tasks: list[TaskCost] = Field(default_factory=list, description="Executor pinned: what each task has cost.")
    chosen: dict[str, int] = Field(default_factory=dict, description="Scheme auto: events by the scheme that ran them.")

    # The ignored: mypy knows of nothing above @property; pydantic says to write it so.
    @computed_field(description="Processor time per event, in nanoseconds.")  # type: ignore[prop-decorator]
    @property
    def cpu_ns(self) -> float | None:
        return self.cpu_seconds * 1e9 / self.events if self.events else None

    @computed_field(description="Energy per event, in nanojoules.")  # type: ignore[prop-decorator]
    @property
    def energy_nj(self) -> float | None:
        return self.energy_joules * 1e9 / self.events if self.events and self.energy_joules is not None else None


class Better(BaseModel):
    """A plan that would be better for a run than the one it had, by what the run has shown."""

    plan: dict[str, list[int]]
    events_per_s: float = Field(description="That it would sustain.")
    instead_of: float = Field(description="What the plan of the run sustains, by the same.")


class Planned(BaseModel):
    """The plan that was found for a run (`plan: auto`), and what it was expected to do."""

    plan: dict[str, list[int]]
    strategy: str
    events_per_s: float = Field(description="That the plan was predicted to sustain.")
    bottleneck: str = Field(description="What was to limit it.")
    error: float | None = Field(
        None,
        description="|measured - predicted| / measured throughput, of the median pass at peak rate; None: no such.",
    )
    changed: dict[str, float] = Field(
        default_factory=dict,
        description="Operators whose part of the work has changed since it was measured for the plan, by more than a "
        "quarter, and is worth to be told of: how many times as large it is.",
    )
    better: Better | None = Field(None, description="If something has changed, and another plan would be better now.")


class RunReport(BaseModel):
    """What `streaming-core run` writes as report.json, last and atomically: no report, no run."""

    model_config = ConfigDict(extra="forbid")

    version: int = REPORT_VERSION
    spec: dict
    spec_digest: str
    cell: str
    app: str
    code_digest: str
    build: str = Field(description="Version-control revision of the engine, `unknown` outside a checkout.")
    workload: dict = Field(description="address, content_digest, events, seed, params of the input.")
    is_bound: bool
    samples: list[Sample]
    state_digest: str = Field(description="`<rows>:<16 hex>` over all final tables and keyed states.")
    compile_seconds: float
    peak_memory_bytes: int
    energy_joules: float | None = Field(None, description="Of all samples together; `energy` of `host` says why not.")
    topology: dict
    resumed: list[int] = Field(
        default_factory=list, description="Events from which checkpoints were gone on from to this result, if any."
    )
    planned: Planned | None = Field(None, description="With plan auto, if there are events.")
    unplanned: str | None = Field(
        None, description="With plan auto, why no plan was found: the run used the replicated plan."
    )
    binding: list[int] | None = Field(None, description="Core of each thread as it really took effect.")
    memory: dict | None = Field(
        None,
        description="Of a transactional run: `nodes`, the memory node of each thread, and `tables`, how rows lie on "
        "them, as it took effect; or `why` nothing is bound. `extra_ns`: what a line of another node takes longer. "
        "`remote` is 'estimated' where the breakdown's is a model's and no measurement, `sockets` 'made up' where "
        "pools are those of sockets that the machine does not have.",
    )
    yardstick: str | None = Field(
        None,
        description="Digest of the compiled loop, the processor and the way of measuring: ratios to the loop are "
        "comparable where it is the same. None: the loop was not measured.",
    )
    host: dict = Field(
        description="Name, load average before and after, versions, why there is no energy, why no loop was measured; "
        "what disturbed the repetitions (disturbance.py)."
    )

    @property
    def verified(self) -> Sample:
        """The pass whose outputs are compared with the oracle."""
        return self.samples[0]

    @property
    def peak(self) -> Sample:
        """Of the passes at peak rate the one of median throughput; of a run without such, its first pass."""
        found = [s for s in self.samples if s.kind == "peak"] or [self.verified]
        return sorted(found, key=lambda s: s.events_per_s)[len(found) // 2]
