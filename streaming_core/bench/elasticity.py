"""STRETCH's elastic questions: controllers that follow the load (sections 8.4 to 8.6).

Rates are shares of a measured peak rate, so that the load is the same on any machine. In `q4-provisioning`, the load
changes once. In `q5` and `q6`, events arrive by their own times. Windows are in event time, so they grow and shrink
with the rate, as in the paper. Only the speed at which the times pass is chosen, from the work of each second of event
time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from streaming_core.bench import host, joins, open_loop, switching
from streaming_core.bench import stretch_sentences as sentences
from streaming_core.bench.ratios import Row, equal_rows, threads_of
from streaming_core.bench.stretch_sentences import OURS, PUBLISHED, SHARED, middle, milliseconds, passes
from streaming_core.bench.subject import Subject
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot
from streaming_core.run.controller import decider
from streaming_core.run.one_pass import Rates
from streaming_core.run.way import Pinned

THRESHOLD, MODEL = "threshold", "model"
CONTROLLERS = ("none", THRESHOLD, MODEL)
PAPERS_THREADS = 72
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

STARTING = (1, 5, 9, 18, 30, 40, 60, 70)  # threads in Table IV, for a machine with 72


def decision(starting: int, load: float, most: int = PAPERS_THREADS) -> int | None:
    """Return the number of replicas that controller `threshold` chooses at a load; None: no change."""
    period = 100_000_000
    seen = {"at": period, "period": period, "replicas": starting, "most": most, "pending": 0}
    seen |= {"worked": round(load * starting * period), "arrived": 1000, "dealt": 1000}
    return decider(THRESHOLD)(seen)


def _table(load: float) -> str:
    decided = ", ".join("-" if n is None else str(n) for n in (decision(n, load) for n in STARTING))
    return f"from {', '.join(map(str, STARTING))}: {decided}"


def _around(is_up: bool, parallelism: str) -> Any:
    """Return throughput and latency of one phase after the other, with a controller and without."""

    def text(rows: list[Row]) -> str:
        parts = []
        for name in (THRESHOLD, "none"):
            # Without a controller there is nothing to share: all replicas have keys from the start.
            some = passes(rows, change=_change(is_up), controller=name, parallelism=parallelism)
            if not some:
                continue
            phases = [
                f"{middle([one['phases'][at] for one in some], 'delivered_per_s') / 1e3:,.0f} k rows/s, mean latency "
                f"{milliseconds(middle([one['phases'][at] for one in some], 'latency_us'))} ms"
                for at in range(len(UP))
            ]
            parts.append(f"{'with' if name == THRESHOLD else 'without'} controller {', then '.join(phases)}")
        return "; ".join(parts)

    return text


def _change(is_up: bool) -> str:
    return f"{STEADY * 100:g} % to {(UP if is_up else DOWN)[-1][1] * 100:g} %"


def _times(is_up: bool, parallelism: str) -> Any:
    """Return how long the changes of owners took that the controller made."""

    def text(rows: list[Row]) -> str:
        some = passes(rows, change=_change(is_up), controller=THRESHOLD, parallelism=parallelism)
        times = [one["us"] for row in some for one in row["changes"] if one["by"] == THRESHOLD and one["us"]]
        if not times:
            return ""
        count = f"{len(times)} change{'s' * (len(times) > 1)} in {len(some)} pass{'es' * (len(some) > 1)}"
        return f"{count}, of {milliseconds(min(times))} to {milliseconds(max(times))} ms"

    return text


PROVISIONING = (
    Claim(
        "Table IV: the load rises from 70 to 120 % of capacity, and the controller adds threads.",
        "section 8.4, table IV",
        "1, 5, 9, 18, 30, 40 threads become 2, 9, 16, 31, 52, 69",
        published=lambda rows: _table(1.2),
        host="The controller decided for these numbers, without threads. The paper has no 60 and 70: its machine has "
        f"{PAPERS_THREADS}.",
    ),
    Claim(
        "Table IV: the load falls from 70 to 30 % of capacity, and the controller removes threads.",
        "section 8.4, table IV",
        "5, 9, 18, 30, 40, 60, 70 threads become 2, 3, 7, 12, 17, 25, 30",
        published=lambda rows: _table(0.3),
        host="Ours are the smallest numbers below 70 %. The paper rounds down, so all but its last exceed it.",
    ),
    *(
        Claim(
            f"A reconfiguration that the controller triggers is quick when threads are {verb}.",
            "section 8.4, figure 9",
            "below 40 ms; about 12 ms from 30 to 52 threads",
            published=_times(is_up, PUBLISHED),
            ours=_times(is_up, OURS),
            host=f"Measured {numbers}, because this host has few cores.",
        )
        for is_up, verb, numbers in ((True, "added", "from one replica to more"), (False, "removed", "down to fewer"))
    ),
    Claim(
        "Added threads sustain the higher rate, and the latency stays as it is.",
        "section 8.4, figure 10",
        published=_around(True, PUBLISHED),
        ours=_around(True, OURS),
        host="Without controller, one replica gets all rows, as the paper's ScaleJoin with a fixed number of threads.",
    ),
    Claim(
        "With fewer threads, the throughput is the same and the latency is lower than with a fixed number of them.",
        "section 8.4, figure 10",
        published=_around(False, PUBLISHED),
        ours=_around(False, OURS),
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
        host.unshown(counts, "18 threads of figure 10"),
    ]


def _provisioned(rows: list[Row]) -> Iterator[str]:
    """Add `change` and `name`, and yield the changes of owners in each pass."""
    last: dict[int, float] = {}  # the heat's last load
    for row in rows:
        if "phases" in row:
            loads = [phase["offered_per_s"] for phase in row["phases"]]
            last[row["heat"]] = loads[-1] / loads[0]
    for row in rows:
        row["change"] = _change(last.get(row["heat"], 0) > 1)
        row["name"] = _name(row)
    for row in rows:
        if row.get("controller") == THRESHOLD and "pass" in row and "at_s" not in row:
            changes = sentences.owner_changes(row) or "no change"
            yield f"{row['change']}, {row['name']}, pass {row['pass'] + 1}: {changes}"


# --- changing rates ---------------------------------------------------------------------------------------------------

FOLLOWING = (
    Claim(
        "Over 20 minutes with abrupt changes of the rate, the average latency stays low.",
        "section 8.5, figure 11",
        "500 to 8,000 rows/s for 100 to 300 s each; average latency about 20 ms; spikes end within 10 s",
        published=sentences.following(PUBLISHED, CONTROLLERS),
        ours=sentences.following(OURS, CONTROLLERS),
        host=lambda rows: f"Fewer cores: {_speed(rows)}.",
    ),
    Claim(
        "The number of threads follows the rate, gradually as windows fill with rows of the new rate.",
        "section 8.5, figures 11 and 12",
        published=sentences.following(PUBLISHED, (MODEL,)),
        ours=sentences.following(OURS, (MODEL,)),
        host="Experiment q5-simulated has the paper's 72 threads, without running them.",
    ),
)
HEDGING = (
    Claim(
        "A self-join of trades at their own rate has a low latency, also at the peak of the rate.",
        "section 8.6, figure 13",
        "average latency 1 ms, and 21 ms around the peak of about 7,600 trades/s",
        published=sentences.following(PUBLISHED, CONTROLLERS),
        ours=sentences.following(OURS, CONTROLLERS),
        host=lambda rows: f"Trades are generated, because the paper's may not be passed on. {_speed(rows)}.",
    ),
    Claim(
        "Few threads suffice most of the time.",
        "section 8.6, figure 13",
        published=lambda rows: _replicas(rows, PUBLISHED),
        ours=lambda rows: _replicas(rows, OURS),
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
        host.unshown(counts, f"{PAPERS_THREADS} threads"),
    ]


def _phases(counts: list[int]) -> Sweep:
    return _elastic("scalejoin", PHASES, counts)


def _hedging(counts: list[int]) -> Sweep:
    return _elastic("hedge", HEDGE, counts)


def _count(race: Subject) -> dict[str, Any]:
    """Return the comparisons of a pass, and the seconds of event time."""
    ts, work = joins.work(race)
    return {"comparisons": int(work.sum()), "event_seconds": float(ts[-1] - ts[0]) / 1e3 if len(ts) else 0.0}


def _speed(rows: list[Row]) -> str:
    """Return how much faster than in the paper the times pass, and the largest rate."""
    some = [row for row in equal_rows(rows) if "at_s" in row]
    if not some:
        return "No pass was long enough to tell the speed"
    highest = max(row["offered_per_s"] for row in some)
    speed = some[0]["event_seconds"] / some[0]["seconds"]
    return f"{some[0]['event_seconds']:,.0f} s pass {speed:,.1f} times as fast, at up to {highest:,.0f} rows/s"


def _replicas(rows: list[Row], parallelism: str) -> str:
    """Return the share of instants at which so many replicas had keys, by controller."""
    parts = []
    for controller in (THRESHOLD, MODEL):
        some = [row for row in equal_rows(rows) if row.get("controller") == controller and "replicas" in row]
        counts = [round(row["replicas"]) for row in some if row["parallelism"] == parallelism]
        shares = [f"{n} replica{'s' * (n > 1)} {counts.count(n) / len(counts):.0%}" for n in sorted({*counts})]
        parts += [f"{controller}: {', '.join(shares)}".replace("%", " %")] if counts else []
    return "; ".join(parts)


def _name(row: Row) -> str:
    """Return the parallelism and the controller of a way, or the name of another row."""
    if "parallelism" not in row:
        return row["way"]
    return f"{row['parallelism']}, controller {row['controller']}, {threads_of(row)}"


def _followed(rows: list[Row]) -> Iterator[str]:
    """Add `name`, and yield how each controller followed the rate."""
    for row in rows:
        row["name"] = _name(row)
    for parallelism in SHARED:
        if text := sentences.following(parallelism, CONTROLLERS)(rows):
            yield f"{parallelism}: {text}"


# --- the paper's threads, simulated -----------------------------------------------------------------------------------

MINUTES, PERIODS = 20, 10  # periods of a second, as the controllers have them


def simulated(controller: str, loads: np.ndarray, most: int = PAPERS_THREADS) -> Iterator[dict[str, float]]:
    """Yield replicas and load, period by period, as a controller sees them on a machine with many threads.

    Args:
        controller: The controller.
        loads: The work that arrives in each period, as a multiple of what one replica can do in it.
        most: The number of replicas that can have keys.
    """
    decide = decider(controller)
    period, unit = 1_000_000_000 // PERIODS, 1_000  # events of the work of one replica in a period
    replicas, pending = most, 0.0
    for number, load in enumerate(loads.tolist(), 1):
        waiting = pending + load
        done = min(waiting, replicas)
        pending = waiting - done
        seen = {"at": number * period, "period": period, "replicas": replicas, "most": most}
        seen |= {"worked": round(done * period), "arrived": round(load * unit)}
        seen |= {"dealt": round(done * unit), "pending": round(pending * unit)}
        yield {"replicas": replicas, "work": done / replicas, "pending": pending / max(load, 1e-9) / PERIODS}
        replicas = decide(seen) or replicas


def phase_loads(seed: int = 1) -> np.ndarray:
    """Return the load of each period in MINUTES of the paper's phases, at most SHARE of 72 replicas.

    A row meets the rows of the last minute, so its work follows the rate with a minute's delay.
    """
    draw = np.random.default_rng(seed)
    rates: list[np.ndarray] = []
    while sum(map(len, rates)) < MINUTES * 60 * PERIODS:
        rates.append(np.full(int(draw.integers(100, 301)) * PERIODS, draw.integers(500, 8_001) / PERIODS))
    rate = np.concatenate(rates)[: MINUTES * 60 * PERIODS]
    rows = np.cumsum(rate)
    window = 60 * PERIODS
    work = rate * (rows - np.concatenate([np.zeros(window), rows[:-window]]))
    return work * SHARE * PAPERS_THREADS / work.max()


def _simulated() -> Iterator[Row]:
    loads = phase_loads()
    for controller in (THRESHOLD, MODEL):
        instants = list(simulated(controller, loads))
        counts = [int(one["replicas"]) for one in instants]
        changes = [b for a, b in itertools.pairwise(counts) if a != b]
        whole: Row = {
            "app": "scalejoin",
            "params": {},
            "way": controller,
            "name": controller,
            "threads": PAPERS_THREADS,
            "result": "simulated",
            "events_per_s": None,
            "to_loop": None,
            "rates": [],
            "reconfigurations": len(changes),
            "turns": open_loop.turns(changes),
            "work_mean": float(np.mean([one["work"] for one in instants])),
            "pending_max": max(one["pending"] for one in instants),
        }
        every = len(instants) // (MINUTES * 6)  # ten seconds
        yield from (
            whole | one | {"at_s": number / PERIODS, "demand": float(load)}
            for number, (one, load) in enumerate(zip(instants, loads, strict=True))
            if number % every == 0
        )


def _simulation(rows: list[Row]) -> Iterator[str]:
    turns = open_loop.turns([round(load) for load in phase_loads()[::PERIODS]])
    for row in {row["way"]: row for row in rows}.values():
        yield (
            f"{row['way']}: {row['reconfigurations']} reconfigurations with {row['turns']} changes of direction, where "
            f"the load has {turns}; replicas work {row['work_mean'] * 100:.0f} % of their time; "
            f"largest backlog {row['pending_max']:.2f} s"
        )


SIMULATED = Claim(
    "The controller follows the rate without oscillation.",
    "section 8.5, figure 11",
    published=lambda rows: "; ".join(_simulation(rows)),
    host="Simulated: the controllers of the runtime decide, and replicas that share the work evenly are assumed.",
)


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
        conclude=_provisioned,
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
        conclude=_followed,
    ),
    Experiment(
        "q5-simulated",
        "section 8.5, figure 11",
        f"Controllers that follow a changing rate on {PAPERS_THREADS} threads, simulated",
        (SIMULATED,),
        lambda counts: ([], []),
        _over_time(("demand", "work in replicas"), REPLICAS, WORK),
        model=_simulated,
        conclude=_simulation,
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
        conclude=_followed,
    ),
)
