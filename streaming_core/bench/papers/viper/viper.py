"""The experiments of Viper (section 4): order kept by the channels, or by merge operators before every instance.

The communication layer is channel `scalegate`, the operator layer is `merge_sort`. Channel `gate` is ours. A heat has
all three at one batch size: single tuples, as in the paper, or batches of the default size. Every injector, instance,
sink and merge operator has a thread of its own, and there are as many sinks as instances. Waiting threads park, so
that processor time is the cost of an event.

With `scalegate` and `merge_sort`, the sinks digest the outputs of their events. With `gate`, instances digest them and
sinks add the digests, which is a part of what is ours.
"""

from __future__ import annotations

from typing import Any

from streaming_core.bench.claims import Claim
from streaming_core.bench.race.ratios import Row
from streaming_core.bench.race.statistics import summary
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite
from streaming_core.run.energy import Meter
from streaming_core.run.way import DEFAULT_BATCH, Morsel, Pinned, Pooled, RunSpec

APPS = ("pos_rep", "new_seg")  # each has the name of its only operator
PUBLISHED, BASELINE, OURS = CHANNELS = ("scalegate", "merge_sort", "gate")
LOAD = 0.5

THROUGHPUT, COST, ENERGY, CORES = "events_per_s", "cpu_ns", "energy_nj", "cores"
MEAN, P99 = "end_to_end_mean_us", "end_to_end_p99_us"
AT_RATE = "loaded_cpu_ns"

Cell = tuple[int, int]  # injectors, instances
Sweep = tuple[list[Heat], list[str]]

ALONE, DEALT, MANY = (1, 1), (1, 4), (4, 4)  # of the paper's sixteen cells
CELLS = {"pos_rep": (ALONE, DEALT, MANY), "new_seg": (MANY,)}


def way(app: str, cell: Cell, channel: str, batch: int) -> Pinned:
    """Return a way in which each injector, instance and sink has its own thread; `merge_sort` adds merge threads."""
    injectors, instances = cell
    first_sink = injectors + instances
    threads = first_sink + instances
    plan = {
        "source": list(range(injectors)),
        app: list(range(injectors, first_sink)),
        "sink": list(range(first_sink, threads)),
    }
    # The type of `channel` is a literal.
    fields: dict[str, Any] = {"channel": channel, "batch": batch, "plan": plan, "idle": "park"}
    return Pinned(app=app, threads=threads, **fields)


def merge_threads(injectors: int, instances: int, channel: str) -> int:
    """Return the number of merge operators: one before each instance or sink that has several sources."""
    if channel != BASELINE:
        return 0
    return instances * (injectors > 1) + instances * (instances > 1)


# What the experiments run.


def _heat(app: str, cells: tuple[Cell, ...], batch: int) -> Heat:
    """Return a heat of all channels in some cells, and of all executors with as many threads."""
    ways: list[RunSpec] = []
    for cell in cells:
        # One injector and one instance have nothing to merge.
        channels = (PUBLISHED, OURS) if cell == ALONE else CHANNELS
        ways += [way(app, cell, channel, batch) for channel in channels]
        if cell != ALONE:
            ways += [executor(app=app, threads=ways[-1].threads) for executor in (Pinned, Pooled, Morsel)]
    return Heat(app, {}, ways)


def _notes() -> list[str]:
    notes = [
        "Each injector, instance and sink has its own thread, and merge_sort has one more for each merge operator. "
        "Threads are not pinned, as in the paper. A heat has as many cores as its largest plan has threads, or all.",
        "With gate, instances digest the outputs; with scalegate and merge_sort, sinks do.",
    ]
    if reason := Meter().why:
        notes.append(f"Energy was not measured: {reason}.")
    return notes


def _tuples(counts: list[int]) -> Sweep:
    return [_heat(app, CELLS[app], 1) for app in APPS], [
        *_notes(),
        f"For latencies, all ways of a heat get the same rate: {LOAD:g} times the peak of the slowest. Latencies start "
        "at the arrival of an event. The first and the last fifth of the events are left out.",
        "Injectors sleep until the next arrival. The system may wake them tens of microseconds late, in each channel.",
    ]


def _batches(counts: list[int]) -> Sweep:
    return [_heat(app, (MANY,), DEFAULT_BATCH) for app in APPS], _notes()


def _describe(rows: list[Row]) -> None:
    """Add the cell and all threads to the rows with a channel of the comparison, and the cores in use to all rows."""
    for row in rows:
        if row.get("plan"):  # neither the loop nor another executor has a plan
            row["injectors"], row["instances"] = cell = len(row["plan"]["source"]), len(row["plan"][row["app"]])
            row["cell"] = "{} to {}".format(*cell)
            row["deployed"] = row["threads"] + merge_threads(*cell, row["channel"])
        else:
            row["cell"] = f"{row['threads']} threads"
        _cores_in_use(row)


def _cores_in_use(row: Row) -> None:
    """Add `cores`: processor time over time."""
    measured = row.get("rounds", {}).get("cpu_ns", [])
    if measured and row.get("cpu_ns") is not None:
        row["rounds"][CORES] = [cost * rate / 1e9 for cost, rate in zip(measured, row["rates"], strict=True)]
        row.update(summary(CORES, row["rounds"][CORES]))


# The claims. The layers are compared with the same injectors, instances and batch.

PAPERS_CORES = 16


def _at(cell: Cell, batch: int = 1, app: str | None = None) -> dict[str, Any]:
    """Select the rows of a cell, or of all apps in it."""
    where = {"injectors": cell[0], "instances": cell[1], "batch": batch}
    return where if app is None else where | {"app": app}


def _layers(says: str, source: str, where: dict[str, Any], **more: Any) -> Claim:
    """Return a claim on the communication layer relative to the operator layer."""
    channels = ({"channel": name} for name in CHANNELS)
    published, baseline, ours = channels
    by = ("app", "injectors", "instances", "batch")
    return Claim(says, source, published | where, ours | where, baseline, by=by, **more)


def _growth(says: str, **more: Any) -> Claim:
    """Return a claim on four instances relative to one, behind one injector."""
    where = _at(DEALT, app="pos_rep")
    over = {"instances": ALONE[1], "threads": sum(ALONE) + ALONE[1]}
    published, ours = ({"channel": name} | where for name in (PUBLISHED, OURS))
    return Claim(says, "section 4.1, figure 4a", published, ours, over, by=("app", "batch"), **more)


CLAIMS = (
    _growth(
        "pos_rep with one injector: the communication layer's throughput is stable for more instances (within 20 %).",
        expects=">=",
        paper=0.8,
    ),
    _layers(
        "pos_rep with one injector: the throughput is higher in the communication layer.",
        "section 4.1, figure 4a",
        _at(DEALT, app="pos_rep"),
        paper=650 / 600,
        needs=PAPERS_CORES,
    ),
    _layers(
        "pos_rep with several injectors: the throughput is higher in the communication layer.",
        "section 4.1, figure 4a",
        _at(MANY, app="pos_rep"),
        paper=500 / 400,
        needs=PAPERS_CORES,
    ),
    _layers(
        "new_seg: the throughput is always higher in the communication layer.",
        "section 4.2, figure 4b",
        _at(MANY, app="new_seg"),
        needs=PAPERS_CORES,
    ),
    _growth(
        "pos_rep with one injector: the latency increases with the instances, which wait longer for their outputs.",
        column=MEAN,
        needs=PAPERS_CORES,
    ),
    _layers(
        "With several injectors, the latency is lower in the communication layer.",
        "sections 4.1 and 4.2, figure 4",
        _at(MANY),
        column=MEAN,
        expects="<",
        needs=PAPERS_CORES,
    ),
    _layers(
        "pos_rep takes less power in the communication layer.",
        "section 4.1, figure 4a",
        _at(MANY, app="pos_rep"),
        column=ENERGY,
        expects="<",
        paper=90 / 140,
        needs=PAPERS_CORES,
    ),
    _layers(
        "The operator layer has more threads, and so more cores run.",
        "section 4.3",
        _at(MANY),
        column=CORES,
        expects="<",
        needs=PAPERS_CORES,
    ),
    _layers("Fewer threads take less power for the same work.", "section 4.3", _at(MANY), column=AT_RATE, expects="<"),
)
BATCHED = (
    _layers(
        "The communication layer has up to 70 % more throughput (batches of our size, not single tuples).",
        "section 6",
        _at(MANY, DEFAULT_BATCH),
        paper=1.7,
        needs=PAPERS_CORES,
    ),
)


def _bars(*columns: tuple[str, str]) -> tuple[Plot, ...]:
    return tuple(Plot("cell", column, title, "app", ("way",), "bar", loop=False) for column, title in columns)


SUITE = Suite(
    "viper",
    "Viper: determinism in the channels, or by merge operators",
    (
        Experiment(
            "figure-4",
            "figure 4, a and b: throughput, latency and energy; sections 4.3 and 6",
            "Channels that merge, and merge operators, by injectors and instances: single tuples",
            CLAIMS,
            _tuples,
            _bars(
                (THROUGHPUT, "tuples per second"),
                (COST, "processor time per event"),
                (ENERGY, "energy per event"),
                (MEAN, "mean latency from arrival, at half the slowest peak rate"),
                (P99, "p99 latency from arrival, at half the slowest peak rate"),
                (AT_RATE, "processor time per event, at half the slowest peak rate"),
            ),
            loads=(LOAD,),
            describe=_describe,
            needs="cores",
        ),
        Experiment(
            "batch",
            "none: the paper has single tuples",
            f"Batches of {DEFAULT_BATCH} instead of single tuples",
            BATCHED,
            _batches,
            _bars((THROUGHPUT, "tuples per second"), (COST, "processor time per event")),
            describe=_describe,
            needs="cores",
        ),
    ),
    machine="32 hardware threads",
)
