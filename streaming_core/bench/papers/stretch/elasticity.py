"""STRETCH's elastic questions: controllers that follow the load (sections 8.4 to 8.6).

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
from streaming_core.bench.papers.stretch.vsn import MEAN, OURS, PUBLISHED, SHARED
from streaming_core.bench.race import open_loop
from streaming_core.bench.race.ratios import Row, equal_rows, threads_of
from streaming_core.bench.race.subject import Subject
from streaming_core.bench.suite import Experiment, Heat, Plot
from streaming_core.run.one_pass import Rates
from streaming_core.run.way import Pinned

THRESHOLD, MODEL = "threshold", "model"
CONTROLLERS = ("none", THRESHOLD, MODEL)
SHARE = 0.85  # of the capacity of all replicas, that the second with most work needs
STEADY = 0.7  # of the capacity before a change, as in the paper
# Length and share of the peak rate: before the change, right after it, and later.
UP = ((0.4, STEADY), (0.1, 1.2), (0.5, 1.2))
DOWN = ((0.4, STEADY), (0.1, 0.3), (0.5, 0.3))
# As in the paper but for the rates, which are a tenth: the times of a quarter of an hour then pass in seconds.
PHASES = {"keys": 1000, "size": 60_001, "phases": True, "lowest": 50, "highest": 800}
HEDGE = {"keys": 1000, "size": 30_001}

Sweep = tuple[list[Heat], list[str]]


# --- one change of the load -------------------------------------------------------------------------------------------


def _claim(says: str, source: str, column: str, controllers: tuple[str, ...], by: str, **more: Any) -> Claim:
    """Return a claim on a column of passes with controllers."""
    published, ours = ({"parallelism": one, "controller": controllers} for one in (PUBLISHED, OURS))
    return Claim(says, source, published, ours, column=column, by=(by,), **more)


PROVISIONING = (
    _claim(
        "A reconfiguration that the controller triggers takes less than 40 ms.",
        "section 8.4, figure 9",
        "change_us",
        (THRESHOLD,),
        "change",
        expects="<=",
        paper=40_000.0,
    ),
    _claim(
        "Added threads sustain the higher rate, and fewer threads the lower one.",
        "section 8.4, figure 10",
        "sustained",
        (THRESHOLD,),
        "change",
        expects="=",
        paper=1.0,
    ),
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

    ups = [[way(1, one), way(threads, one, schedule=first, controller=THRESHOLD)] for one in SHARED]
    downs = [[way(threads, one), way(threads, one, controller=THRESHOLD)] for one in SHARED]
    heats = [heat(phases, ways) for phases, of in ((UP, ups), (DOWN, downs)) for ways in of]
    return heats, [
        f"The load is a share of the peak rate without controller: of one replica before it rises, of {threads} before "
        "it falls. The window is full after the first twentieth of a pass.",
        "Phases: before the change, the fifth of the rest that follows it, and later.",
    ]


def _provisioned(rows: list[Row]) -> None:
    """Add `change` and `name`, the longest change of owners, and what the last phase delivers of what it is offered."""
    last: dict[int, float] = {}  # the heat's last load
    for row in rows:
        if "phases" in row:
            first, *_, final = row["phases"]
            last[row["heat"]] = final["offered_per_s"] / first["offered_per_s"]
            row["sustained"] = final["delivered_per_s"] / final["offered_per_s"]
            times = [one["us"] for one in row["changes"] if one["by"] == THRESHOLD and one["us"]]
            row["change_us"] = max(times, default=None)
    for row in rows:
        row["change"] = _change(last.get(row["heat"], 0) > 1)
        row["name"] = _name(row)


def _change(is_up: bool) -> str:
    return f"{STEADY * 100:g} % to {(UP if is_up else DOWN)[-1][1] * 100:g} %"


# --- changing rates ---------------------------------------------------------------------------------------------------

FOLLOWING = (
    _claim(
        "Over 20 minutes with abrupt changes of the rate, the average latency is about 20 ms.",
        "section 8.5, figure 11",
        MEAN,
        CONTROLLERS,
        "controller",
        expects="<=",
        paper=20_000.0,
    ),
    _claim(
        "Spikes of the latency end within 10 s.",
        "section 8.5, figure 11",
        "spike_s",
        CONTROLLERS,
        "controller",
        expects="<=",
        paper=10.0,
    ),
)
HEDGING = (
    _claim(
        "A self-join of trades at their own rate has an average latency of 1 ms.",
        "section 8.6, figure 13",
        MEAN,
        CONTROLLERS,
        "controller",
        expects="<=",
        paper=1_000.0,
    ),
)


def _own(race: Subject, peak: float) -> Rates:
    return open_loop.own_rates(*joins.cost(race), SHARE, peak)


def _elastic(app: str, params: dict[str, Any], counts: list[int]) -> Sweep:
    threads = max(2, *counts)
    fields = {"app": app, "params": params, "threads": threads}
    ways = [
        Pinned.model_validate(fields | {"controller": controller, "parallelism": one})
        for one in SHARED
        for controller in CONTROLLERS
    ]
    return [Heat(app, params, ways, pace=_own)], [
        "Events arrive by their own times, and windows are in event time. They pass at a constant speed, at which the "
        f"second with most work needs {SHARE * 100:g} % of what all replicas can do. Work is comparisons and calls.",
        f"A spike is an average latency over {open_loop.BIN:g} s above {open_loop.SPIKE} times the median average.",
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
WORK = ("work", "load of the replicas")

EXPERIMENTS = (
    Experiment(
        "q4-provisioning",
        "section 8.4, table IV, figures 9 and 10",
        "A controller adds and removes replicas as the load changes once",
        PROVISIONING,
        _provisioning,
        tuple(
            Plot("at_s", y, title, by="change", lines=("name",), loop=False)
            for y, title in (OFFERED, DELIVERED, AVERAGE, REPLICAS, WORK)
        ),
        events=300_000,
        describe=_provisioned,
    ),
    Experiment(
        "q5",
        "section 8.5, figures 11 and 12",
        "Controllers that follow a changing rate, with windows that follow it too",
        FOLLOWING,
        _phases,
        _over_time(OFFERED, DELIVERED, AVERAGE, REPLICAS, WORK),
        events=250_000,
        count=_count,
        conclude=_speed,
    ),
    Experiment(
        "q6",
        "section 8.6, figure 13",
        "Trades that hedge each other (hedge), at their own rate",
        HEDGING,
        _hedging,
        _over_time(OFFERED, DELIVERED, AVERAGE, REPLICAS, WORK),
        events=20_000,
        count=_count,
        conclude=_speed,
    ),
)
