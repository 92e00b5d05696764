"""The experiments of Scaling Ordered Stream Processing (Prasaad, Ramalingam, Kaushik): figures 8 to 11 and 13.

Published is heuristic `ct` with queue `hybrid` and buffer `non_blocking`, except for what a claim varies. A batch is
one tuple, as in the paper. Ours is Lockstep's default, `affinity` with `lanes`. The queries also race on batches of our
size. A ratio never compares two sizes.

Application `matrix` supplies operators of a given cost. A measurement at the start finds how many multiplications take
a microsecond; the rows hold that number as `r` or `r_keyed`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from streaming_core.apps import registry
from streaming_core.bench.claims import ANY, Claim
from streaming_core.bench.race.race import Race
from streaming_core.bench.race.ratios import Row, add_multiple
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite
from streaming_core.run.way import Pooled, RunSpec, engine_executors_of

QUERIES = ("q1", "q2", "q3", "q4")
BY_HEURISTIC = ("q1", "q3")  # in the paper, lp is as fast as ct on the first, and slower on the second
DELAYED = "q3"  # the query whose latencies are measured
OURS_BATCH = 256
PUBLISHED: dict[str, Any] = {"heuristic": "ct", "queue": "hybrid", "batch": 1}
PARTITIONED = PUBLISHED | {"queue": "partitioned"}
OURS: dict[str, Any] = {"batch": 1}
# How rows of the published strategies and of ours differ from those of other ways.
PAPERS: dict[str, Any] = {"heuristic": "ct", "queue": "hybrid", "reorder": "non_blocking"}
DEFAULTS: dict[str, Any] = {"heuristic": "affinity", "queue": "lanes"}
SIGMA = 0.03  # of normal draws within -1..1
SKEWED_COST = 10  # microseconds per tuple of the skewed operator
COSTS = (10, 100)  # microseconds per tuple of an operator whose latency is measured
SELECTIVE = {"r": 10, "r_keyed": 1}  # microseconds per tuple of two operators; the first emits SELECTIVITY tuples
SELECTIVITY = 50
TRIAL = 5_000  # multiplications in a trial
LOAD = 0.5

Sweep = tuple[list[Heat], list[str]]


def _heat(app: str, params: dict[str, Any], threads: int, hows: Iterable[dict[str, Any]], cost: float = 0.0) -> Heat:
    """Return a heat; an event that costs more than 10 microseconds makes it smaller."""
    ways: list[RunSpec] = [Pooled(app=app, params=params, threads=threads, **how) for how in hows]
    return Heat(app, params, ways, share=min(1.0, 10 / cost) if cost else 1.0)


def _others(app: str, threads: int) -> list[RunSpec]:
    """Return the default way of each other executor that runs an application."""
    names = [name for name in engine_executors_of(registry.load(app).kind) if name != "pooled"]
    return [RunSpec.parse({"app": app, "executor": name, "threads": threads}) for name in names]


def rounds(cost: float) -> int:
    """Return how many multiplications take an operator of `matrix` some microseconds on this machine."""
    return max(1, round(cost * 1e-6 / _multiplication()))


@cache
def _multiplication() -> float:
    """Return the seconds of a multiplication on one thread, in the pass that other programs disturbed least."""
    params = {"r": TRIAL, "r_keyed": 1}
    race = Race("matrix", params, 200)
    _, row = race.run([Pooled(app="matrix", params=params, threads=1)], 5)
    return 1 / max(row["rates"]) / TRIAL


def _claim(says: str, source: str, other: dict[str, Any], apps: tuple[str, ...] = ANY, **more: Any) -> Claim:
    """Return a claim on the published strategies, relative to those that differ in some columns."""
    where = {"batch": 1, "app": apps} | more.pop("where", {})
    return Claim(says, source, PAPERS | where, DEFAULTS | where, PAPERS | other, **more)


def _queries(counts: list[int]) -> Sweep:
    threads = max(counts)
    large = [how | {"batch": OURS_BATCH} for how in (PUBLISHED, PARTITIONED, OURS)]
    heats = []
    for query in QUERIES:
        heuristics = [PUBLISHED | {"heuristic": name} for name in ("lp", "et", "qst") if query in BY_HEURISTIC]
        heat = _heat(query, {}, threads, [PUBLISHED, PARTITIONED, *heuristics, OURS, *large])
        heats.append(Heat(query, {}, [*heat.ways, *_others(query, threads)]))
    return heats, [
        "With batches of one event and the paper's queues, a call of a partitioned operator processes one tuple.",
        "Left out: query 15, which has one partitioned operator of ten keys, and figure 14, which shows little on few "
        "cores.",
    ]


QUERY_CLAIMS = (
    _claim(
        "With ct, hybrid has a much higher throughput than partitioned on all queries.",
        "section 7.2.3, figure 11",
        {"queue": "partitioned"},
    ),
    _claim(
        f"The same with {OURS_BATCH} tuples at a time, a size of ours.",
        "section 7.2.3, figure 11",
        {"queue": "partitioned"},
        where={"batch": OURS_BATCH},
    ),
    _claim(
        "Heuristic ct has a higher throughput than et and qst.",
        "section 7.1, figure 8",
        {"heuristic": ("et", "qst")},
        BY_HEURISTIC,
    ),
    _claim(
        "Heuristic ct has a throughput at least as high as lp.",
        "section 7.1, figure 8",
        {"heuristic": "lp"},
        BY_HEURISTIC,
        expects=">=",
    ),
)


def _latencies(counts: list[int]) -> Sweep:
    hows = [*(PUBLISHED | {"heuristic": name} for name in ("ct", "lp", "et", "qst")), PARTITIONED, OURS]
    return [_heat(DELAYED, {}, max(counts), hows)], [
        f"The rate is {LOAD:g} times the peak of the slowest way. The paper has five queries.",
    ]


LATENCY_CLAIMS = tuple(
    _claim(says, source, other, column="processing_mean_us", expects=expects)
    for says, source, other, expects in (
        ("Heuristic lp has the lowest latency; ct is close.", "section 7.1, figure 8", {"heuristic": "lp"}, "="),
        ("ct has a lower latency than et and qst.", "section 7.1, figure 8", {"heuristic": ("et", "qst")}, "<"),
    )
)


def _skew(counts: list[int]) -> Sweep:
    # The stateless operator passes tuples on.
    params = {"r": 0, "r_keyed": rounds(SKEWED_COST), "keys": 100}
    hows = [how | {"partitioning": "range"} for how in (PUBLISHED, PARTITIONED)]
    return [_heat("matrix", params | {"sigma": SIGMA}, max(counts), hows)], [
        f"One partitioned operator of {SKEWED_COST} us. Each of 100 keys is a range of normal draws. "
        "hybrid has a hundred partitions, partitioned has one per worker; both take ranges of keys.",
    ]


SKEWED = _claim(
    "With skewed keys, hybrid has a higher throughput than partitioned, because it has more partitions.",
    "section 7.2.1, figure 9",
    {"queue": "partitioned"},
    needs=3,  # with two workers, both ranges of keys have the same weight
)


def _costs(counts: list[int]) -> Sweep:
    hows = (PUBLISHED, PARTITIONED, OURS)
    heats = [_heat("matrix", {"r": 0, "r_keyed": rounds(cost)}, max(counts), hows, cost) for cost in COSTS]
    return heats, [
        "One partitioned operator of the given cost, uniform keys, batches of one tuple.",
        f"All queues of a cost get the same rate: {LOAD:g} times the peak of the slowest.",
    ]


def _latency_to_cost(rows: list[Row]) -> None:
    """Add the cost of the operator, and the mean processing latency of a tuple relative to it."""
    cost_of = {rounds(cost): cost for cost in COSTS}
    for row in rows:
        row["cost_us"] = cost_of[row["params"]["r_keyed"]]
        row["chart"] = f"{row['cost_us']:g} us"
        if row["way"] != "loop":
            add_multiple(row, "latency_to_cost", "processing_mean_us", 1 / row["cost_us"])


COST_CLAIMS = (
    Claim(
        "With hybrid, the mean processing latency of a tuple is close to the cost of its operator.",
        "section 7.2.2, figure 10",
        PAPERS,
        DEFAULTS,
        column="latency_to_cost",
        by=("chart",),
        expects="=",
        paper=1.0,
    ),
    _claim(
        "With partitioned, the latency is much higher, because outputs wait for earlier ones.",
        "section 7.2.2, figure 10",
        {"queue": "partitioned"},
        column="processing_mean_us",
        by=("chart",),
        expects="<",
    ),
)


def _selective(counts: list[int]) -> Sweep:
    params = {name: rounds(cost) for name, cost in SELECTIVE.items()} | {"sel": float(SELECTIVITY)}
    cost = SELECTIVE["r"] + SELECTIVITY * SELECTIVE["r_keyed"]
    hows = (PUBLISHED, PUBLISHED | {"reorder": "lock"}, OURS)
    return [_heat("matrix", params, max(counts), hows, cost)], [
        f"An operator of {SELECTIVE['r']} us that emits {SELECTIVITY} tuples, and a partitioned one of "
        f"{SELECTIVE['r_keyed']} us. The paper's cost 100 us each, which leaves little of the buffer on few cores.",
    ]


SELECTIVE_CLAIM = _claim(
    f"Behind an operator of selectivity {SELECTIVITY}, non_blocking scales better than lock.",
    "section 7.3.2, figure 13",
    {"reorder": "lock"},
)


def _bars(x: str, *columns: tuple[str, str]) -> tuple[Plot, ...]:
    return tuple(Plot(x, y, title, lines=(x,), kind="bar", loop=False) for y, title in columns)


RATE = ("events_per_s", "tuples per second")
MEAN, P99 = ("processing_mean_us", "mean processing latency"), ("processing_p99_us", "p99 processing latency")
SUITE = Suite(
    "ordered",
    "Ordered stream processing: strategies of a pool of workers",
    (
        Experiment(
            "queries",
            "figures 8 and 11",
            "Throughput of queues and heuristics on four queries",
            QUERY_CLAIMS,
            _queries,
            (Plot("batch", *RATE, lines=("way",), kind="bar", loop=False),),
            events=100_000,
            seconds=560.0,
            needs="cores",
        ),
        Experiment(
            "latencies",
            "figures 8 and 11",
            "Latency of heuristics and queues on a query",
            LATENCY_CLAIMS,
            _latencies,
            _bars("way", MEAN, P99),
            events=100_000,
            seconds=50.0,
            loads=(LOAD,),
            needs="cores",
        ),
        Experiment(
            "skew",
            "figure 9",
            "Queues of a partitioned operator with skewed keys (matrix)",
            (SKEWED,),
            _skew,
            _bars("queue", RATE),
            events=50_000,
            seconds=40.0,
            needs="cores",
        ),
        Experiment(
            "costs",
            "figure 10",
            "Latency of a partitioned operator, by its cost (matrix)",
            COST_CLAIMS,
            _costs,
            tuple(Plot("cost_us", *column, "app", ("queue",), log=True, loop=False) for column in (MEAN, P99)),
            events=50_000,
            seconds=50.0,
            loads=(LOAD,),
            needs="cores",
            describe=_latency_to_cost,
        ),
        Experiment(
            "selectivity",
            "figure 13",
            "Reorder buffers behind an operator of high selectivity (matrix)",
            (SELECTIVE_CLAIM,),
            _selective,
            _bars("way", RATE),
            events=50_000,
            seconds=40.0,
            needs="cores",
        ),
    ),
    machine="16 cores",
)
