"""The experiments of Viper (section 4): order kept by the channels, or by merge operators before every instance.

The communication layer is channel `scalegate`, the operator layer is `merge_sort`. Both are as published: a batch is
one tuple, so every tuple has a watermark. Channel `gate` is ours. Every injector, instance, sink and merge operator has
a thread of its own, and there are as many sinks as instances. Waiting threads park, so that processor time is the cost
of an event.

With `scalegate` and `merge_sort`, the sinks digest the outputs of their events. With `gate`, instances digest them and
sinks add the digests, which is a part of what is ours.
"""

from __future__ import annotations

import itertools
from typing import Any

from streaming_core.bench.claims import Claim
from streaming_core.bench.race.ratios import Row
from streaming_core.bench.race.statistics import summary
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite
from streaming_core.run.energy import Meter
from streaming_core.run.way import DEFAULT_BATCH, Pinned

APPS = ("pos_rep", "new_seg")  # each has the name of its only operator
COUNTS = (1, 2, 4, 6)  # of injectors, and of instances
PUBLISHED, BASELINE, OURS = "scalegate", "merge_sort", "gate"
LOAD = 0.5

THROUGHPUT, COST, ENERGY, CORES = "events_per_s", "cpu_ns", "energy_nj", "cores"
MEAN, P99 = "end_to_end_mean_us", "end_to_end_p99_us"
AT_RATE = "loaded_cpu_ns"

Cell = tuple[int, int]  # injectors, instances
How = tuple[str, int]  # channel, batch
Sweep = tuple[list[Heat], list[str]]

AS_PUBLISHED: tuple[How, ...] = ((PUBLISHED, 1), (BASELINE, 1))
FIGURE_4: tuple[How, ...] = (*AS_PUBLISHED, (OURS, DEFAULT_BATCH))
BY_TUPLE: tuple[How, ...] = (*AS_PUBLISHED, (OURS, 1))
BY_BATCH: tuple[How, ...] = tuple((channel, DEFAULT_BATCH) for channel in (PUBLISHED, BASELINE, OURS))


def sinks(first: int, instances: int) -> list[int]:
    """Return the threads of the sinks: as many as instances, from thread `first` on."""
    return list(range(first, first + instances))


def way(app: str, cell: Cell, how: How) -> Pinned:
    """Return a way in which each injector, instance and sink has its own thread; `merge_sort` adds merge threads."""
    injectors, instances = cell
    first_sink = injectors + instances
    plan = {
        "source": list(range(injectors)),
        app: list(range(injectors, first_sink)),
        "sink": sinks(first_sink, instances),
    }
    channel, batch = how
    # The type of `channel` is a literal.
    fields: dict[str, Any] = {"channel": channel, "batch": batch, "plan": plan, "idle": "park"}
    return Pinned(app=app, threads=first_sink + instances, **fields)


def merge_threads(injectors: int, instances: int, channel: str) -> int:
    """Return the number of merge operators: one before each instance or sink that has several sources."""
    if channel != BASELINE:
        return 0
    return instances * (injectors > 1) + instances * (instances > 1)


# What the experiments run.


def _notes() -> list[str]:
    notes = [
        "Each injector, instance and sink has its own thread, and merge_sort has one more for each merge operator. "
        "Threads are not pinned, as in the paper. A heat has as many cores as its largest plan has threads, or all.",
        "With one injector and one instance there is nothing to merge, so all channels do the same.",
        "With gate, instances digest the outputs; with scalegate and merge_sort, sinks do.",
    ]
    if reason := Meter().why:
        notes.append(f"Energy was not measured: {reason}.")
    return notes


def _figure_4(counts: list[int]) -> Sweep:
    heats = [
        Heat(app, {}, [way(app, (injectors, instances), how) for instances in COUNTS for how in FIGURE_4])
        for app, injectors in itertools.product(APPS, COUNTS)
    ]
    return heats, _notes()


def _corners() -> list[Cell]:
    """Return one injector with one instance and with most, and most of both."""
    first, last = COUNTS[0], COUNTS[-1]
    return [(first, first), (first, last), (last, last)]


def _latency(counts: list[int]) -> Sweep:
    heats = [Heat(app, {}, [way(app, cell, how) for how in BY_TUPLE]) for app in APPS for cell in _corners()]
    return heats, [
        *_notes(),
        f"All channels get the same rate: {LOAD:g} times the peak of the slowest. Latencies start at the arrival of an "
        "event. The first and the last fifth of the events are left out.",
        "Injectors sleep until the next arrival. The system may wake them tens of microseconds late, in each channel.",
    ]


def _batches(counts: list[int]) -> Sweep:
    cells = dict.fromkeys([(COUNTS[1], COUNTS[1]), (COUNTS[-1], COUNTS[-1])])
    heats = [Heat(app, {}, [way(app, cell, how) for how in BY_BATCH]) for app in APPS for cell in cells]
    return heats, [
        *_notes(),
        f"Batches of {DEFAULT_BATCH} events instead of single tuples. An injector waits until its batch has arrived. "
        "Latencies contain that wait.",
    ]


def _describe(rows: list[Row]) -> None:
    """Add injectors, instances, all threads, the chart, and the cores in use to each row."""
    for row in rows:
        if "plan" in row:
            row["injectors"], row["instances"] = len(row["plan"]["source"]), len(row["plan"][row["app"]])
            merging = merge_threads(row["injectors"], row["instances"], row["channel"])
        else:  # the loop has neither
            row["injectors"] = row["instances"] = 1
            merging = 0
        row["deployed"] = row["threads"] + merging
        row["chart"] = f"{row['app']}, {row['injectors']} injector{'s' * (row['injectors'] > 1)}"
        _cores_in_use(row)


def _cores_in_use(row: Row) -> None:
    """Add `cores`: processor time over time."""
    measured = row.get("rounds", {}).get("cpu_ns", [])
    if measured and row.get("cpu_ns") is not None:
        row["rounds"][CORES] = [cost * rate / 1e9 for cost, rate in zip(measured, row["rates"], strict=True)]
        row.update(summary(CORES, row["rounds"][CORES]))


# The claims. The layers are compared with the same injectors and instances.

COMMUNICATION, OPERATOR, GATE = ({"channel": name} for name in (PUBLISHED, BASELINE, OURS))
SEVERAL = COUNTS[1:]
MOST = {"injectors": COUNTS[-1], "instances": COUNTS[-1]}
CELLS = ("app", "injectors", "instances")


def _layers(says: str, source: str, cell: dict[str, Any], **more: Any) -> Claim:
    """Return a claim on the communication layer relative to the operator layer."""
    return Claim(says, source, COMMUNICATION | cell, GATE | cell, OPERATOR, by=CELLS, **more)


def _energy(app: str, source: str, paper: float) -> Claim:
    says = f"{app} takes less power in the communication layer."
    return _layers(says, source, {"app": app} | MOST, column=ENERGY, expects="<", paper=paper)


CLAIMS = (
    _layers(
        "pos_rep with one injector: the throughput is higher in the communication layer.",
        "section 4.1, figure 4a",
        {"app": "pos_rep", "injectors": 1, "instances": SEVERAL},
        paper=650 / 600,
    ),
    _layers(
        "pos_rep with several injectors: the throughput is higher in the communication layer.",
        "section 4.1, figure 4a",
        {"app": "pos_rep", "injectors": SEVERAL},
        paper=500 / 400,
    ),
    *(
        Claim(
            f"pos_rep with several injectors: the throughput {says} layer.",
            "section 4.1, figure 4a",
            layer | MOST,
            GATE | MOST | {"app": "pos_rep"} if expects == ">" else None,
            {"injectors": 2, "instances": 2, "threads": 6},
            expects=expects,
        )
        for says, layer, expects in (
            ("grows with them in the communication", COMMUNICATION | {"app": "pos_rep"}, ">"),
            ("is stable in the operator", OPERATOR | {"app": "pos_rep"}, "="),
        )
    ),
    _energy("pos_rep", "section 4.1, figure 4a", 90 / 140),
    _layers(
        "new_seg: the throughput is always higher in the communication layer.",
        "section 4.2, figure 4b",
        {"app": "new_seg", "instances": SEVERAL},
    ),
    _energy("new_seg", "section 4.2, figure 4b", 100 / 140),
    _layers(
        "The operator layer has more threads, and so more cores run.",
        "section 4.3",
        MOST,
        column=CORES,
        expects="<",
        needs=18,
    ),
    _layers("The communication layer has up to 70 % more throughput.", "section 6", MOST, paper=1.7),
)
LATENCIES = (
    Claim(
        "pos_rep with one injector: the latency increases with the instances, which wait longer for their outputs.",
        "section 4.1, figure 4a",
        COMMUNICATION | {"app": "pos_rep", "injectors": 1, "instances": COUNTS[-1]},
        GATE | {"app": "pos_rep", "injectors": 1, "instances": COUNTS[-1]},
        {"instances": 1, "threads": 3},
        column=MEAN,
    ),
    _layers(
        "With several injectors, the latency is lower in the communication layer.",
        "sections 4.1 and 4.2, figure 4",
        MOST,
        column=MEAN,
        expects="<",
    ),
    _layers("Fewer threads take less power for the same work.", "section 4.3", MOST, column=AT_RATE, expects="<"),
)


def _curves(*columns: tuple[str, str]) -> tuple[Plot, ...]:
    return tuple(Plot("instances", column, title, "chart", ("channel",), loop=False) for column, title in columns)


LATENCY_PLOTS = (
    (MEAN, "mean latency from arrival, at half the slowest peak rate"),
    (P99, "p99 latency from arrival, at half the slowest peak rate"),
    (AT_RATE, "processor time per event, at half the slowest peak rate"),
)
SUITE = Suite(
    "viper",
    "Viper: determinism in the channels, or by merge operators",
    ("pinned", "channels"),
    (
        Experiment(
            "figure-4",
            "figure 4, a and b: throughput and energy; sections 4.3 and 6",
            "Channels that merge, and merge operators, by injectors and instances",
            CLAIMS,
            _figure_4,
            _curves(
                (THROUGHPUT, "tuples per second"),
                (COST, "processor time per event"),
                (ENERGY, "energy per event"),
            ),
            describe=_describe,
            needs="cores",
        ),
        Experiment(
            "figure-4-latency",
            "figure 4, a and b: latency",
            "Latency of single tuples at equal rates",
            LATENCIES,
            _latency,
            _curves(*LATENCY_PLOTS),
            loads=(LOAD,),
            describe=_describe,
            needs="cores",
        ),
        Experiment(
            "batch",
            "none: the paper has single tuples",
            f"Batches of {DEFAULT_BATCH} instead of single tuples",
            (),
            _batches,
            _curves((THROUGHPUT, "tuples per second"), (COST, "processor time per event"), *LATENCY_PLOTS),
            loads=(LOAD,),
            describe=_describe,
            needs="cores",
        ),
    ),
    machine="32 hardware threads",
)
