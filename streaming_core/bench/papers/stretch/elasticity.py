"""STRETCH's elastic questions: a controller that follows the load (sections 8.4 to 8.6).

Rates are shares of a measured peak rate, so that the load is the same on any machine. In `q4-provisioning`, the load
changes once. In `q5` and `q6`, events arrive by their own times. Windows are in event time, so they grow and shrink
with the rate, as in the paper. Only the speed at which the times pass is chosen, from the work of each second of event
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streaming_core.bench.claims import Claim
from streaming_core.bench.papers.stretch import joins, switching
from streaming_core.bench.papers.stretch.vsn import CORES, MEAN, PUBLISHED, SHARED, claim
from streaming_core.bench.race import open_loop
from streaming_core.bench.race.ratios import Row, equal_rows, threads_of
from streaming_core.bench.race.subject import Subject
from streaming_core.bench.suite import Experiment, Heat, Plot
from streaming_core.run.one_pass import Rates
from streaming_core.run.way import Pinned

THRESHOLD = "threshold"
SHARE = 0.85  # of the capacity of all replicas, that the second with most work needs
STEADY = 0.7  # of the capacity before a change, as in the paper
# Length and share of the peak rate: before the change, right after it, and later.
UP = ((0.4, STEADY), (0.6, 1.2))
DOWN = ((0.4, STEADY), (0.6, 0.3))
# As in the paper but for the rates, which are a hundredth: 20 minutes then pass in seconds.
PHASES = {"keys": 1000, "size": 60_001, "phases": True, "lowest": 5, "highest": 80}
HEDGE = {"keys": 1000, "size": 30_001}

Sweep = tuple[list[Heat], list[str]]


# --- one change of the load -------------------------------------------------------------------------------------------


PROVISIONING = claim(
    "A reconfiguration that the controller triggers takes less than 40 ms.",
    "section 8.4, figure 9",
    {"controller": THRESHOLD},
    column="change_us",
    by=("change",),
    expects="<=",
    paper=40_000.0,
)


def _provisioning(counts: list[int]) -> Sweep:
    threads = max(2, *counts)
    first = [{"event": 0, "owners": {"from_left": [0]}}]

    def way(count: int, parallelism: str, **more: Any) -> Pinned:
        fields = {"app": "scalejoin", "params": switching.JOIN, "threads": count, "parallelism": parallelism}
        return Pinned.model_validate(fields | more)

    def heat(phases: tuple[tuple[float, float], ...], ways: list[Pinned]) -> Heat:
        def pace(race: Subject, peak: float) -> Rates:
            return open_loop.rates_of_phases(phases, peak, race.events)

        return Heat("scalejoin", switching.JOIN, ways, pace=pace)

    ups = [way(threads, parallelism, schedule=first, controller=THRESHOLD) for parallelism in SHARED]
    downs = [way(threads, parallelism, controller=THRESHOLD) for parallelism in SHARED]
    return [heat(UP, [way(1, PUBLISHED), *ups]), heat(DOWN, [way(threads, PUBLISHED), *downs])], [
        f"The load is a share of the peak rate without controller: of one replica before it rises, of {threads} before "
        "it falls. The window is full after the first twentieth of a pass.",
    ]


def _provisioned(rows: list[Row]) -> None:
    """Add `change`, how the load of the row's heat changes, `name`, and the longest change of owners."""
    rising = {row["heat"] for row in rows if "phases" in row and _rises(row["phases"])}
    for row in rows:
        row["change"] = f"{STEADY * 100:g} % to {(UP if row['heat'] in rising else DOWN)[-1][1] * 100:g} %"
        row["name"] = _name(row)
        if "phases" in row:
            times = [change["us"] for change in row["changes"] if change["by"] == THRESHOLD and change["us"]]
            row["change_us"] = max(times, default=None)


def _rises(phases: list[Row]) -> bool:
    return phases[-1]["offered_per_s"] > phases[0]["offered_per_s"]


# --- changing rates ---------------------------------------------------------------------------------------------------


def _latency(says: str, source: str, paper: float) -> Claim:
    """Return a claim that the mean latency behind a controller is at most so many microseconds."""
    return claim(says, source, {"controller": THRESHOLD}, column=MEAN, expects="<=", paper=paper, needs=CORES)


FOLLOWING = _latency(
    "Over 20 minutes with abrupt changes of the rate, the average latency is about 20 ms.",
    "section 8.5, figure 11",
    20_000.0,
)
HEDGING = _latency(
    "A self-join of trades at their own rate has an average latency of 1 ms.", "section 8.6, figure 13", 1_000.0
)


def _own(race: Subject, peak: float) -> Rates:
    return open_loop.own_rates(*joins.cost(race), SHARE, peak)


def _elastic(app: str, params: dict[str, Any], counts: list[int]) -> Sweep:
    threads = max(2, *counts)
    fields = {"app": app, "params": params, "threads": threads, "controller": THRESHOLD}
    ways = [Pinned.model_validate(fields | {"parallelism": parallelism}) for parallelism in reversed(SHARED)]
    return [Heat(app, params, ways, pace=_own)], [
        "Events arrive by their own times, and windows are in event time. They pass at a constant speed, at which the "
        f"second with most work needs {SHARE * 100:g} % of what all replicas can do. Work is comparisons and calls.",
    ]


def _phases(counts: list[int]) -> Sweep:
    return _elastic("scalejoin", PHASES, counts)


def _hedging(counts: list[int]) -> Sweep:
    return _elastic("hedge", HEDGE, counts)


def _count(race: Subject) -> dict[str, Any]:
    """Return the comparisons of a pass, and the seconds of event time."""
    ts, work = joins.work(race)
    return {"comparisons": int(work.sum()), "event_seconds": float(ts[-1] - ts[0]) / 1e3 if len(ts) else 0.0}


def _speed(rows: list[Row]) -> Iterator[str]:
    """Add `name`, and yield how much faster than in the paper the times pass, and the largest rate."""
    for row in rows:
        row["name"] = _name(row)
    some = [row for row in equal_rows(rows) if "at_s" in row]
    if some:
        highest = max(row["offered_per_s"] for row in some)
        speed = some[0]["event_seconds"] / some[0]["seconds"]
        yield (
            f"{some[0]['event_seconds']:,.0f} s pass {speed:,.1f} times as fast as in the paper, at up to "
            f"{highest:,.0f} rows/s"
        )


def _name(row: Row) -> str:
    """Return the parallelism and the controller of a way, or the name of another row."""
    if "parallelism" not in row:
        return row["way"]
    return f"{row['parallelism']}, controller {row['controller']}, {threads_of(row)}"


# --- the experiments --------------------------------------------------------------------------------------------------


def _over_time(*ys: tuple[str, str]) -> tuple[Plot, ...]:
    return tuple(Plot("at_s", y, title, by="", lines=("name",), loop=False) for y, title in ys)


OFFERED = ("offered_per_s", "offered rows per second")
DELIVERED = ("delivered_per_s", "delivered rows per second")
AVERAGE = ("latency_us", "average latency")
REPLICAS = ("replicas", "replicas with keys")

EXPERIMENTS = (
    Experiment(
        "q4-provisioning",
        "section 8.4, table IV, figures 9 and 10",
        "A controller adds and removes replicas as the load changes once",
        (PROVISIONING,),
        _provisioning,
        tuple(Plot("at_s", y, title, by="change", lines=("name",), loop=False) for y, title in (DELIVERED, REPLICAS)),
        events=40_000,
        describe=_provisioned,
        needs="cores",
    ),
    Experiment(
        "q5",
        "section 8.5, figures 11 and 12",
        "A controller that follows a changing rate, with windows that follow it too",
        (FOLLOWING,),
        _phases,
        _over_time(OFFERED, AVERAGE, REPLICAS),
        events=50_000,
        count=_count,
        conclude=_speed,
        needs="cores",
    ),
    Experiment(
        "q6",
        "section 8.6, figure 13",
        "Trades that hedge each other (hedge), at their own rate",
        (HEDGING,),
        _hedging,
        _over_time(OFFERED, AVERAGE, REPLICAS),
        events=6_000,
        count=_count,
        conclude=_speed,
        needs="cores",
    ),
)
