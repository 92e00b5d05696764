"""The experiments of Scaling Ordered Stream Processing (Prasaad, Ramalingam, Kaushik): figures 8 to 14, and sweeps.

Each figure shows the published strategies and ours. Published is heuristic `ct` with queue `hybrid` and buffer
`non_blocking`, except for what a figure varies. A batch is one tuple, as in the paper. Ours is Lockstep's default,
`affinity` with `lanes`, and its batches where a figure does not compare queues. Published strategies use queues,
buffers and scheduler on one thread too, which is the base of their speed-ups.

Application `matrix` supplies operators of a given cost. A measurement at the start finds how many multiplications take
a microsecond; the rows hold that number as `r` or `r_keyed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from streaming_core.bench.claims import ANY, Claim
from streaming_core.bench.race.race import Race
from streaming_core.bench.race.ratios import Row, add_multiple
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite
from streaming_core.run.way import Pooled, RunSpec

QUERIES = ("q1", "q2", "q3", "q4", "q15")
HEURISTICS = ("ct", "lp", "et", "qst")
PUBLISHED: dict[str, Any] = {"heuristic": "ct", "queue": "hybrid", "batch": 1}
OURS: dict[str, Any] = {}
OURS_BY_TUPLE: dict[str, Any] = {"batch": 1}
# How rows of the published strategies and of ours differ from those of other ways.
PAPERS: dict[str, Any] = {"heuristic": "ct", "queue": "hybrid", "reorder": "non_blocking"}
DEFAULTS: dict[str, Any] = {"heuristic": "affinity", "queue": "lanes"}
SIGMAS = (1.0, 0.1, 0.03)
SKEWED_COST = 10  # microseconds per tuple of the skewed operator
COSTS = (10, 100, 1_000, 10_000)  # microseconds per tuple of an operator
LIGHT = (1, 10)
HEAVY = 100
SELECTIVITIES = (1, 50)
SWEPT = "q1"  # the query of the sweeps: it has most operators with state
PARTITIONS = (2, 10, 100, 256)
SLICES = (1, 5, 50, 500)
WINDOWS = (100, 10_000)
BATCHES = (1, 16, 256)
OVERSUBSCRIBED = (2, 4)  # threads per core
TRIAL = 5_000  # multiplications in a trial
LOAD = 0.5

Sweep = tuple[list[Heat], list[str]]


def _way(app: str, params: dict[str, Any], threads: int, **how: Any) -> RunSpec:
    return Pooled(app=app, params=params, threads=threads, **how)


def _heat(app: str, params: dict[str, Any], hows: Iterable[tuple[int, dict[str, Any]]], cost: float = 0.0) -> Heat:
    """Return a heat; the microseconds that a tuple costs keep `--quick` quick."""
    ways = [_way(app, params, threads, **how) for threads, how in hows]
    return Heat(app, params, ways, share=min(1.0, 10 / cost) if cost else 1.0)


def rounds(cost: float) -> int:
    """Return how many multiplications take an operator of `matrix` some microseconds on this machine."""
    return max(1, round(cost * 1e-6 / _multiplication()))


@cache
def _multiplication() -> float:
    """Return the seconds of a multiplication on one thread, in the pass that other programs disturbed least."""
    params = {"r": TRIAL, "r_keyed": 1}
    race = Race("matrix", params, 200)
    _, row = race.run([_way("matrix", params, 1)], 5)
    return 1 / max(row["rates"]) / TRIAL


def _claim(says: str, source: str, other: dict[str, Any], **more: Any) -> Claim:
    """Return a claim on the published strategies, relative to those that differ in some columns."""
    return Claim(says, source, PAPERS, DEFAULTS, PAPERS | other, **more)


# Figure 8: heuristics on the five queries.


def _heuristics(counts: list[int]) -> Sweep:
    threads = max(counts)
    hows = [*(PUBLISHED | {"heuristic": name} for name in HEURISTICS), OURS]
    heats = [_heat(query, {}, [(threads, how) for how in hows]) for query in QUERIES]
    return heats, [
        f"All heuristics on {threads} threads. Experiment figure-8-threads has other numbers of threads for ct and for "
        "ours. Left out: other heuristics on these, to keep the suite within half an hour.",
        f"Latencies at a rate of {LOAD:g} times the peak of the slowest way of the query.",
    ]


HEURISTIC_CLAIMS = tuple(
    _claim(says, "section 7.1, figure 8", {"heuristic": others}, column=column, expects=expects)
    for says, others, column, expects in (
        ("Heuristic ct has a higher throughput than et and qst.", HEURISTICS[2:], "events_per_s", ">"),
        ("Heuristic ct has a throughput at least as high as lp.", "lp", "events_per_s", ">="),
        ("Heuristic ct has a lower latency than et and qst.", HEURISTICS[2:], "processing_mean_us", "<"),
        ("Heuristic lp has the lowest latency; ct is close on most queries.", "lp", "processing_mean_us", "="),
    )
)


def _threads(counts: list[int]) -> Sweep:
    swept = sorted({*counts, *(max(counts) * factor for factor in OVERSUBSCRIBED)})
    heats = [_heat(query, {}, [(threads, how) for how in (PUBLISHED, OURS) for threads in swept]) for query in QUERIES]
    return heats, [
        f"{max(counts)} cores. More threads than that share cores, as the paper's figure goes beyond its peak.",
    ]


SCALING = Claim(
    "With heuristic ct, throughput rises with the number of cores, up to a peak.",
    "section 7.1, figure 8",
    PAPERS | {"threads": ANY},
    DEFAULTS | {"threads": ANY},
    {"threads": 1},
)


# Figures 9 to 11: queues of partitioned operators.

QUEUES: tuple[dict[str, Any], ...] = (PUBLISHED, PUBLISHED | {"queue": "partitioned"}, OURS_BY_TUPLE)


def _skew(counts: list[int]) -> Sweep:
    by_range = [how | ({"partitioning": "range"} if "queue" in how else {}) for how in QUEUES]
    hows = [(threads, how) for threads in sorted({1, max(counts)}) for how in by_range]
    # The stateless operator passes tuples on.
    params = {"r": 0, "r_keyed": rounds(SKEWED_COST), "keys": 100}
    heats = [_heat("matrix", params | {"sigma": sigma}, hows) for sigma in SIGMAS]
    return heats, [
        f"One partitioned operator of {SKEWED_COST} us. Each of 100 keys is a range of normal draws. "
        "hybrid has a hundred partitions, partitioned has one per worker; both take ranges of keys. Our lanes take "
        "keys by hash. All ways have batches of one tuple.",
        "Left out: other values of sigma, and other numbers of threads.",
    ]


SKEWED = (
    Claim(
        "With 100 partitions, hybrid keeps its speed-up at any skew of the keys.",
        "section 7.2.1, figure 9",
        PAPERS,
        DEFAULTS,
        {"threads": 1},
        by=("sigma",),
    ),
    Claim(
        "With one partition per worker, partitioned loses most of its speed-up with skew.",
        "section 7.2.1, figure 9",
        PAPERS | {"queue": "partitioned", "sigma": SIGMAS[-1]},
        over={"sigma": SIGMAS[0]},
        expects="<",
        needs=3,  # with two workers, both ranges of keys have the same weight at any skew
    ),
)


def _costs(counts: list[int]) -> Sweep:
    threads = max(counts)
    hows = [(threads, how) for how in QUEUES]
    heats = [_heat("matrix", {"r": 0, "r_keyed": rounds(cost)}, hows, cost) for cost in COSTS]
    return heats, [
        "One partitioned operator of the given cost, uniform keys, batches of one tuple.",
        f"All queues of a cost get the same rate: {LOAD:g} times the peak of the slowest.",
    ]


def _name_costs(costs: Iterable[float], param: str, rows: list[Row]) -> None:
    """Add `cost_us`, the intended cost of the operator, and name the chart after it."""
    cost_of = {rounds(cost): cost for cost in costs}
    for row in rows:
        row["cost_us"] = cost_of[row["params"][param]]
        row["chart"] = f"{row['cost_us']:g} us"


def _latency_to_cost(rows: list[Row]) -> None:
    """Add the mean processing latency of a tuple relative to the cost of its operator."""
    _name_costs(COSTS, "r_keyed", rows)
    for row in rows:
        if row["way"] != "loop":
            add_multiple(row, "latency_to_cost", "processing_mean_us", 1 / row["cost_us"])


DELAYED = (
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


def _queues(counts: list[int]) -> Sweep:
    swept = [threads for threads in counts if threads > 1] or counts
    heats = [_heat(query, {}, [(threads, how) for threads in swept for how in QUEUES]) for query in QUERIES]
    return heats, [
        "Batches of one tuple: with every queue, a call of a kernel processes one tuple.",
        f"Latencies at a rate of {LOAD:g} times the peak of the slowest way of the query.",
    ]


QUEUE_CLAIMS = (
    _claim(
        "With ct, hybrid has a much higher throughput than partitioned on all queries.",
        "section 7.2.3, figure 11",
        {"queue": "partitioned"},
        by=("app", "threads"),
    ),
    _claim(
        "hybrid has a lower latency than partitioned on most queries, and a similar one on the others.",
        "section 7.2.3, figure 11",
        {"queue": "partitioned"},
        column="processing_mean_us",
        by=("app", "threads"),
        expects="<=",
    ),
)


# Figures 12 to 14: reorder buffers.

BUFFERS: tuple[dict[str, Any], ...] = (PUBLISHED, PUBLISHED | {"reorder": "lock"}, OURS_BY_TUPLE)


def _worker_time(rows: list[Row]) -> None:
    """Add `worker_us`: the time of all workers per tuple, with what they wait."""
    for row in rows:
        threads = row["threads"]
        if row["way"] != "loop" and row["rates"]:
            row["rounds"]["worker_us"] = [threads * 1e6 / rate for rate in row["rates"]]
            row["worker_us"] = threads * 1e6 / row["events_per_s"]
            row["worker_us_range"] = [threads * 1e6 / rate for rate in reversed(row["events_per_s_range"])]


def _light_columns(rows: list[Row]) -> None:
    _name_costs(LIGHT, "r", rows)
    _worker_time(rows)


def _buffer_claim(says: str, source: str, *by: str) -> Claim:
    return _claim(says, source, {"reorder": "lock"}, by=by)


def _light(counts: list[int]) -> Sweep:
    swept = sorted({*counts, max(counts) * max(OVERSUBSCRIBED)})
    hows = [(threads, how) for how in BUFFERS for threads in swept]
    heats = [_heat("matrix", {"r": rounds(cost), "r_keyed": 0}, hows) for cost in LIGHT]
    return heats, [
        "A stateless operator of the given cost; the partitioned operator behind it only folds. Batches of one tuple.",
        "The cost per tuple is the time of all workers, with what they wait, over the tuples. With more threads than "
        "cores, it contains the time in which a worker has no core.",
    ]


LIGHTER = _buffer_claim(
    "After a light operator, non_blocking scales better than lock.", "section 7.3.1, figure 12", "chart", "threads"
)


def _selective(counts: list[int]) -> Sweep:
    hows = [(threads, how) for how in BUFFERS for threads in sorted({1, max(counts)})]
    params = {"r": rounds(HEAVY), "r_keyed": rounds(HEAVY)}
    heats = [_heat("matrix", params | {"sel": float(sel)}, hows, HEAVY * (1 + sel)) for sel in SELECTIVITIES]
    return heats, [
        f"Both operators cost {HEAVY} us per tuple. The stateless one emits `sel` tuples per tuple. Batches of one.",
        "The cost per tuple is that of the whole pipeline; the paper shows that of the first operator.",
    ]


SELECTIVE = _buffer_claim(
    "Behind an operator of selectivity 50, non_blocking scales better than lock.", "section 7.3.2, figure 13", "sel"
)


def _buffers(counts: list[int]) -> Sweep:
    heats = [_heat(query, {}, [(max(counts), how) for how in BUFFERS]) for query in QUERIES]
    return heats, ["Batches of one tuple. The paper shows no latencies here, because they do not differ much."]


CONSISTENT = _buffer_claim(
    "non_blocking has a higher throughput than lock on every query.", "section 7.3.3, figure 14", "app"
)


# Sweeps of what the paper leaves open: the number of partitions p, the slice s, the window w, the batch.


def _swept(name: str, settings: Iterable[Any], how: dict[str, Any]) -> Callable[[list[int]], Sweep]:
    def sweep(counts: list[int]) -> Sweep:
        return [_heat(SWEPT, {}, [(max(counts), how | {name: known}) for known in settings])], [
            f"Query {SWEPT[1:]} with heuristic ct, queue hybrid and buffer non_blocking on {max(counts)} threads."
        ]

    return sweep


def _by_batch(counts: list[int]) -> Sweep:
    hows = [(max(counts), how | {"batch": batch}) for how in (PUBLISHED, OURS) for batch in BATCHES]
    return [_heat(SWEPT, {}, hows)], [
        "A batch takes the place of the paper's tuple: workers take, order and pass on batches."
    ]


def _setting(name: str, figure: str, title: str, settings: Iterable[Any], option: str) -> Experiment:
    return Experiment(
        name,
        figure,
        title,
        (),
        _swept(option, settings, PUBLISHED),
        (Plot(option, "events_per_s", "tuples per second", "app", ("heuristic",), log=True, loop=False),),
    )


def _curves(x: str, *columns: tuple[str, str], lines: tuple[str, ...] = ("way",), by: str = "app") -> tuple[Plot, ...]:
    return tuple(Plot(x, y, title, by, lines, log=x != "sel", loop=False) for y, title in columns)


def _bars(x: str, *columns: tuple[str, str]) -> tuple[Plot, ...]:
    return tuple(Plot(x, y, title, lines=(x,), kind="bar", loop=False) for y, title in columns)


RATE = ("events_per_s", "tuples per second")
MEAN, P99 = ("processing_mean_us", "mean processing latency"), ("processing_p99_us", "p99 processing latency")
WORKER = ("worker_us", "worker time per tuple, with waiting")
SUITE = Suite(
    "ordered",
    "Ordered stream processing: strategies of a pool of workers",
    ("pooled",),
    (
        Experiment(
            "figure-8",
            "figure 8",
            "Throughput and latency of the heuristics on five queries",
            HEURISTIC_CLAIMS,
            _heuristics,
            _bars("heuristic", RATE, MEAN, P99),
            loads=(LOAD,),
            needs="cores",
        ),
        Experiment(
            "figure-8-threads",
            "figure 8",
            "Throughput by the number of threads, published and ours",
            (SCALING,),
            _threads,
            _curves("threads", RATE),
            needs="cores",
        ),
        Experiment(
            "figure-9",
            "figure 9",
            "Queues of a partitioned operator, by the skew of its keys (matrix)",
            SKEWED,
            _skew,
            _curves("sigma", RATE, lines=("queue", "threads")),
            needs="cores",
        ),
        Experiment(
            "figure-10",
            "figure 10",
            "Latency of a partitioned operator, by its cost (matrix)",
            DELAYED,
            _costs,
            _curves("cost_us", MEAN, P99, lines=("queue",)),
            loads=(LOAD,),
            needs="cores",
            describe=_latency_to_cost,
        ),
        Experiment(
            "figure-11",
            "figure 11",
            "Throughput and latency of the queues on five queries",
            QUEUE_CLAIMS,
            _queues,
            _curves("threads", RATE, MEAN, P99, lines=("queue",)),
            loads=(LOAD,),
            needs="cores",
        ),
        Experiment(
            "figure-12",
            "figure 12",
            "Reorder buffers behind a light operator (matrix)",
            (LIGHTER,),
            _light,
            _curves("threads", RATE, WORKER, by="chart"),
            needs="cores",
            describe=_light_columns,
        ),
        Experiment(
            "figure-13",
            "figure 13",
            "Reorder buffers behind an operator of high selectivity (matrix)",
            (SELECTIVE,),
            _selective,
            _curves("sel", RATE, WORKER, lines=("way", "threads")),
            needs="cores",
            describe=_worker_time,
        ),
        Experiment(
            "figure-14",
            "figure 14",
            "Reorder buffers on five queries",
            (CONSISTENT,),
            _buffers,
            _bars("way", RATE),
            needs="cores",
        ),
        _setting("partitions", "section 4", "The number of partitions p", PARTITIONS, "partitions"),
        _setting("slice", "section 6", "The time slice s", SLICES, "slice"),
        _setting(
            "window", "section 6.4", "The window w of heuristic ct", sorted({*WINDOWS, 1_000}), "throughput_window"
        ),
        Experiment(
            "batch",
            "section 2.2",
            "The number of tuples in a batch, published and ours",
            (),
            _by_batch,
            _curves("batch", RATE, ("p99_us", "p99 latency of a batch at peak rate")),
        ),
    ),
    machine="16 cores",
)
