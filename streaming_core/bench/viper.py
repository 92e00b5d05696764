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
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from streaming_core.bench.ratios import NOUNS, Row, compare, equal_rows, most, pick, quantity
from streaming_core.bench.statistics import summary
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot, Suite
from streaming_core.run.energy import Meter
from streaming_core.run.way import DEFAULT_BATCH, Pinned

APPS = ("pos_rep", "new_seg")  # each has the name of its only operator
COUNTS = (1, 2, 4, 6)  # of injectors, and of instances
PUBLISHED, BASELINE, OURS = "scalegate", "merge_sort", "gate"
LOAD = 0.5

THROUGHPUT, COST, ENERGY, CORES = "events_per_s", "cpu_ns", "energy_nj", "cores"
MEAN, P99 = "end_to_end_mean_us", "end_to_end_p99_us"
AT_RATE, ENERGY_AT_RATE = "loaded_cpu_ns", "loaded_energy_nj"

Cell = tuple[int, int]  # injectors, instances
How = tuple[str, int]  # channel, batch
Sweep = tuple[list[Heat], list[str]]
Rows = list[Row]

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


# What the rows tell.


def _describe(rows: Rows) -> None:
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


def _named(cell: Cell) -> str:
    injectors, instances = cell
    return f"{injectors} injector{'s' * (injectors > 1)}, {instances} instance{'s' * (instances > 1)}"


def _row(rows: Rows, app: str, cell: Cell, channel: str) -> Row | None:
    return pick(rows, app=app, injectors=cell[0], instances=cell[1], channel=channel)


def _ratio(row: Row | None, other: Row | None, column: str) -> str:
    """Return a ratio as text, or nothing if a row or a value is missing."""
    if row is None or other is None or row.get(column) is None or other.get(column) is None:
        return ""
    return compare(row, other, column).text


def _beside(app: str, cells: Callable[[], Iterable[Cell]], channel: str, *columns: str) -> Callable[[Rows], str]:
    """Return a function that gives columns of a channel, each with its ratio to merge_sort, for some cells."""

    def text(rows: Rows) -> str:
        parts = []
        for cell in cells():
            own, base = _row(rows, app, cell, channel), _row(rows, app, cell, BASELINE)
            figures = [
                f"{NOUNS[column]} {quantity(own, column)}, to merge_sort {ratio}"
                for column in columns
                if (ratio := _ratio(own, base, column))
            ]
            if figures:
                parts.append(f"{_named(cell)}: {'; '.join(figures)}")
        return f"{app}, {channel}: {'. '.join(parts)}" if parts else ""

    return text


def _one_injector() -> list[Cell]:
    return [(1, instances) for instances in COUNTS if instances > 1]


def _several() -> list[Cell]:
    return [(count, count) for count in COUNTS if count > 1]


def _merging() -> list[Cell]:
    return [cell for cell in itertools.product(COUNTS, COUNTS) if max(cell) > 1]


def _joined(*texts: Callable[[Rows], str]) -> Callable[[Rows], str]:
    return lambda rows: ". ".join(filter(None, (text(rows) for text in texts)))


def _most(channel: str) -> Callable[[Rows], str]:
    """Return a function that finds the largest gains of a channel over merge_sort."""

    def text(rows: Rows) -> str:
        parts = []
        for app, column in itertools.product(APPS, (THROUGHPUT, COST, ENERGY)):
            ratios = {}
            for cell in _merging():
                own, base = _row(rows, app, cell, channel), _row(rows, app, cell, BASELINE)
                if own is not None and base is not None and _ratio(own, base, column):
                    ratios[cell] = compare(own, base, column)
            if ratios:
                chosen = (max if column == THROUGHPUT else min)(ratios, key=lambda cell: ratios[cell].median)
                parts.append(f"{NOUNS[column]} {ratios[chosen].text} with {_named(chosen)} of {app}")
        return f"{channel} to merge_sort at best: {'; '.join(parts)}" if parts else ""

    return text


def _host(rows: Rows) -> str:
    threads, deployed = most(rows), max(row["deployed"] for row in rows)
    return (
        f"The paper has 32 hardware threads, about as many as threads. Here up to {threads} threads, and "
        f"{deployed} with merge operators, share {len(os.sched_getaffinity(0))} cores."
    )


def _power_host(rows: Rows) -> str:
    reason = Meter().why
    return f"No power figures: {reason}. Processor time stands in for them. {_host(rows)}" if reason else _host(rows)


def _gains(rows: Rows) -> Iterator[str]:
    """Describe the rows, and compare each channel with merge_sort."""
    _describe(rows)
    ways = equal_rows(rows)
    batches = dict.fromkeys((row["app"], row["injectors"], row["instances"]) for row in ways if "plan" in row)
    for app, injectors, instances in batches:
        for channel in (PUBLISHED, OURS):
            own, base = (_row(ways, app, (injectors, instances), name) for name in (channel, BASELINE))
            texts = {column: _ratio(own, base, column) for column in (THROUGHPUT, COST, ENERGY, MEAN, P99, AT_RATE)}
            known = "; ".join(f"{NOUNS[column]} {text}" for column, text in texts.items() if text)
            if known and max(injectors, instances) > 1:
                yield f"{app}, {_named((injectors, instances))}, {channel} to merge_sort: {known}"


CLAIMS = (
    Claim(
        "pos_rep with one injector: the throughput is stable as instances are added, and higher in the communication "
        "layer.",
        "section 4.1, figure 4a",
        "650,000 tuples/s in the communication layer, below 600,000 in the operator layer",
        published=_beside("pos_rep", _one_injector, PUBLISHED, THROUGHPUT),
        ours=_beside("pos_rep", _one_injector, OURS, THROUGHPUT),
        host=_host,
    ),
    Claim(
        "pos_rep with several injectors: the throughput grows in the communication layer and is stable in the operator "
        "layer.",
        "section 4.1, figure 4a",
        "above 500,000 tuples/s, and about 400,000",
        published=_beside("pos_rep", _several, PUBLISHED, THROUGHPUT),
        ours=_beside("pos_rep", _several, OURS, THROUGHPUT),
        host=_host,
    ),
    Claim(
        "pos_rep takes less power in the communication layer.",
        "section 4.1, figure 4a",
        "one injector: 60 W, and about 100 W; several: 90 W, and up to 140 W",
        published=_joined(
            _beside("pos_rep", _one_injector, PUBLISHED, COST, ENERGY),
            _beside("pos_rep", _several, PUBLISHED, COST, ENERGY),
        ),
        ours=_joined(
            _beside("pos_rep", _one_injector, OURS, COST, ENERGY), _beside("pos_rep", _several, OURS, COST, ENERGY)
        ),
        host=_power_host,
    ),
    Claim(
        "new_seg: the throughput is always higher in the communication layer.",
        "section 4.2, figure 4b",
        "about 100,000 tuples/s more",
        published=_beside("new_seg", _merging, PUBLISHED, THROUGHPUT),
        ours=_beside("new_seg", _several, OURS, THROUGHPUT),
        host=_host,
    ),
    Claim(
        "new_seg takes less power in the communication layer.",
        "section 4.2, figure 4b",
        "at most 100 W, and more than 140 W",
        published=_beside("new_seg", _several, PUBLISHED, COST, ENERGY),
        ours=_beside("new_seg", _several, OURS, COST, ENERGY),
        host=_power_host,
    ),
    Claim(
        "The operator layer takes more power because it has more threads, and so more cores run at a high frequency.",
        "section 4.3",
        published=_joined(
            _beside("pos_rep", _several, PUBLISHED, CORES), _beside("new_seg", _several, PUBLISHED, CORES)
        ),
        ours=_joined(_beside("pos_rep", _several, OURS, CORES), _beside("new_seg", _several, OURS, CORES)),
        host=lambda rows: (
            f"With more threads than cores, both layers keep all cores busy at the peak rate. {_power_host(rows)}"
        ),
    ),
    Claim(
        "Operators that are connected by the communication layer have a higher throughput, at half the energy.",
        "section 6",
        "up to 70 % more throughput, and half the energy",
        published=_most(PUBLISHED),
        ours=_most(OURS),
        host=_power_host,
    ),
)
LATENCIES = (
    Claim(
        "pos_rep with one injector: the latency increases with the instances, because each waits longer for its next "
        "output.",
        "section 4.1, figure 4a",
        "up to 600 ms in the operator layer, and 800 ms in the communication layer",
        published=_beside("pos_rep", lambda: _corners()[:2], PUBLISHED, MEAN, P99),
        ours=_beside("pos_rep", lambda: _corners()[:2], OURS, MEAN, P99),
        host="The paper measures at the peak rate of each layer, where queues are full. Here both have one rate.",
    ),
    Claim(
        "pos_rep with several injectors: the latencies are similar, and lower in the communication layer.",
        "section 4.1, figure 4a",
        published=_beside("pos_rep", lambda: _corners()[2:], PUBLISHED, MEAN, P99),
        ours=_beside("pos_rep", lambda: _corners()[2:], OURS, MEAN, P99),
        host=_host,
    ),
    Claim(
        "new_seg: the latency is lower in the communication layer.",
        "section 4.2, figure 4b",
        published=_beside("new_seg", _corners, PUBLISHED, MEAN, P99),
        ours=_beside("new_seg", _corners, OURS, MEAN, P99),
        host=_host,
    ),
    Claim(
        "Fewer threads take less power for the same work.",
        "section 4.3",
        published=_joined(*(_beside(app, _corners, PUBLISHED, AT_RATE, ENERGY_AT_RATE) for app in APPS)),
        ours=_joined(*(_beside(app, _corners, OURS, AT_RATE, ENERGY_AT_RATE) for app in APPS)),
        host=_power_host,
    ),
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
            conclude=_gains,
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
            conclude=_gains,
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
            conclude=_gains,
            needs="cores",
        ),
    ),
)
