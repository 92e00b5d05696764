"""The experiments of Scaling Ordered Stream Processing (Prasaad, Ramalingam, Kaushik): strategies of a pool of workers.

They follow the paper's figures 8 to 14. Each shows the published strategies (`ct` and `hybrid` where a figure does not
vary them) and, for comparison, our defaults. Application `matrix` supplies operators of a given cost. A measurement at
the start finds how many multiplications take a microsecond; the rows hold that number as `r`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

from streaming_core.bench.race import Race
from streaming_core.bench.ratios import Row, compare, quantity
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot, Suite
from streaming_core.run.way import Pooled, RunSpec

APPS = ("wc", "fd", "sd")
LOADED = (*APPS, "q3")
QUERIES = ("q1", "q2", "q3", "q4", "q15")
AXES = {axis: values for axis, values in Pooled.axes().items() if axis != "partitioning"}
DEFAULT = {axis: values[0] for axis, values in AXES.items()}
PUBLISHED = {"heuristic": "ct", "queue": "hybrid"}  # the best choices according to the paper
OURS = {"heuristic": ("affinity",), "queue": ("lanes",), "reorder": ()}  # strategies that are not in the paper
SIGMAS = (1.0, 0.3, 0.1, 0.03, 0.01)
COSTS = (10, 100, 1_000, 10_000)  # microseconds per row of an operator
LIGHT = (0.1, 1, 10)
HEAVY = (1, 100)  # the same, for the experiment with selectivities
SELECTIVITIES = (1, 5, 10, 50)
BATCHES = (1, 8, 256)
LARGE = 2048  # large enough that the transfer of batches costs little, even for cheap events
LOADS = (0.25, 0.5, 0.75, 0.9)
TRIAL = 5_000  # multiplications in a trial

ABSTRACT = "Scaling Ordered Stream Processing on Shared-Memory Multicores, abstract (arXiv:1803.11328)"
PIPELINE = Claim(
    "Heuristics that maximise pipeline parallelism perform better than heuristics that prefer data parallelism.",
    ABSTRACT,
)
NON_BLOCKING = Claim("A non-blocking data structure restores the order of concurrent outputs at low latency.", ABSTRACT)
CORES = Claim(
    "With heuristic ct, query 1 scales to 16 cores, query 15 to 12, and queries 2, 3 and 4 to 8.",
    "Scaling Ordered Stream Processing on Shared-Memory Multicores, section 7",
)
IMBALANCE = Claim(
    "The proposed execution of partitioned stateful operators tolerates imbalance between partitions, and mostly "
    "avoids delays due to order.",
    ABSTRACT,
)

PAPER = "Scaling Ordered Stream Processing on Shared-Memory Multicores, section {} (16 cores)"
PIPELINED = Claim(
    "Heuristic ct has the highest throughput. Heuristic lp is as fast on queries 1 and 15, and has the lowest latency, "
    "a few milliseconds; that of ct is close. Heuristics et and qst are worse in both.",
    PAPER.format("7.1"),
)
SKEWED = Claim(
    "With 100 partitions, hybrid keeps its speedup at any skew of the keys. With one partition per worker, partitioned "
    "loses most of it.",
    PAPER.format("7.2.1"),
)
DELAYED = Claim(
    "With hybrid, the latency of a tuple is close to the cost of its operator. With partitioned, it is much higher.",
    PAPER.format("7.2.2"),
)
QUEUED = Claim(
    "With ct, hybrid has a much higher throughput than partitioned on all queries, and a lower latency on three.",
    PAPER.format("7.2.3"),
)
LIGHTER = Claim(
    "After an operator of tens of microseconds, non_blocking scales better than lock. The cost per tuple, with waiting "
    "time, rises less.",
    PAPER.format("7.3.1"),
)
SELECTIVE = Claim(
    "With a selectivity of 50 and a cost of 100 microseconds per operator, lock blocks workers that add outputs to the "
    "next queues. The buffer non_blocking does not block them.",
    PAPER.format("7.3.2"),
)
CONSISTENT = Claim("non_blocking has a higher throughput than lock on every query.", PAPER.format("7.3.3"))

Sweep = tuple[list[Heat], list[str]]


def _way(app: str, params: dict[str, Any], threads: int, **how: Any) -> RunSpec:
    return Pooled(app=app, params=params, threads=threads, **how)


def _over(axis: str) -> list[dict[str, str]]:
    """Returns every published strategy of an axis, with the published choices for other axes; and our defaults."""
    return [*(PUBLISHED | {axis: value} for value in AXES[axis] if value not in OURS[axis]), {}]


def rounds(cost: float) -> int:
    """Returns how many multiplications take an operator of `matrix` some microseconds on this machine."""
    return max(1, round(cost * 1e-6 / _multiplication()))


@cache
def _multiplication() -> float:
    """Returns the seconds of a multiplication on one thread, in the pass that other programs disturbed least."""
    params = {"r": TRIAL, "r_keyed": 1}
    race = Race("matrix", params, 200)
    _, row = race.run([_way("matrix", params, 1)], 5)
    return 1 / max(row["rates"]) / TRIAL


def _costly(cost: float, **params: Any) -> dict[str, Any]:
    """Returns parameters that give both operators of `matrix` a cost."""
    return {"r": rounds(cost), "r_keyed": rounds(cost)} | params


def _priced(rows: list[Row], costs: tuple[float, ...]) -> None:
    """Adds `cost_us`, the intended cost of an operator of `matrix`, and names the chart after it."""
    made_for = {rounds(cost): cost for cost in costs}
    for row in rows:
        row["cost_us"] = made_for[row["params"]["r"]]
        row["chart"] = f"{row['cost_us']:g} us"


def _found(rows: list[Row], **having: Any) -> Row | None:
    """Returns the first correct row with these values, or None."""
    right = (row for row in rows if row["result"] == "equal")
    return next((row for row in right if all(_value(row, name) == value for name, value in having.items())), None)


def _value(row: Row, name: str) -> Any:
    return row.get(name, row["params"].get(name))


def _against(rows: list[Row], axis: str, **having: Any) -> str:
    """Returns `throughput of hybrid over partitioned: 1.2 (1.1 to 1.3) times, over shared: ...`, or nothing."""
    first = _found(rows, **{axis: DEFAULT[axis]}, **having)
    others = [_found(rows, **{axis: value}, **having) for value in AXES[axis][1:]]
    ratios = [f"over {other[axis]}: {compare(first, other).text}" for other in others if first and other]
    return f"throughput of {first[axis]} {', '.join(ratios)}" if first and ratios else ""


def _published(rows: list[Row], **having: Any) -> str:
    """Returns the paper's own comparison, `; hybrid over partitioned: 1.2 (1.1 to 1.3) times`, or nothing."""
    hybrid, partitioned = (_found(rows, queue=queue, **having) for queue in ("hybrid", "partitioned"))
    return f"; hybrid over partitioned: {compare(hybrid, partitioned).text}" if hybrid and partitioned else ""


def _strategies(counts: list[int]) -> Sweep:
    chosen = [dict(zip(AXES, choice, strict=True)) for choice in itertools.product(*AXES.values())]
    return [Heat(app, {}, [_way(app, {}, max(counts), **way) for way in chosen]) for app in APPS], []


def _spread(rows: list[Row]) -> Iterator[str]:
    """Compares the best choice for each application with the default."""
    for app in APPS:
        ways = [row for row in rows if row["app"] == app and row["result"] == "equal"]
        if default := _found(ways, **DEFAULT):
            best = max(ways, key=lambda row: row["to_loop"])
            named = ", ".join(best[axis] for axis in AXES)
            yield f"{app}: {named} reaches {best['to_loop']:.2f} times the loop, the default {default['to_loop']:.2f}"


def _queries(counts: list[int]) -> Sweep:
    ways = list(itertools.product(_over("heuristic"), sorted({1, max(counts)}), (BATCHES[-1], LARGE)))
    heats = [Heat(q, {}, [_way(q, {}, threads, batch=batch, **way) for way, threads, batch in ways]) for q in QUERIES]
    return heats, []


def _scale(rows: list[Row]) -> Iterator[str]:
    """Compares the best heuristic for each query with the default, and several threads with one."""
    most = max(row["threads"] for row in rows)
    for app in QUERIES:
        ways = [row for row in rows if row["app"] == app and row["threads"] == most and row["result"] == "equal"]
        usual = {"app": app, "heuristic": DEFAULT["heuristic"], "batch": BATCHES[-1]}
        default, one = (_found(rows, threads=t, **usual) for t in (most, 1))
        if default and one:
            best = max(ways, key=lambda row: row["to_loop"])
            threads = f"{most} thread{'s' * (most > 1)}"
            yield (
                f"{app}: on {threads}, {best['heuristic']} with batches of {best['batch']} reaches "
                f"{best['to_loop']:.2f} times the loop. The default, {default['heuristic']} with batches of "
                f"{default['batch']}, reaches {default['to_loop']:.2f}; over its one thread: "
                f"{compare(default, one, over_threads=True).text}"
            )


def _queues(counts: list[int]) -> Sweep:
    return [Heat(q, {}, [_way(q, {}, max(counts), **way) for way in _over("queue")]) for q in QUERIES], []


def _queue_gains(rows: list[Row]) -> Iterator[str]:
    for app in QUERIES:
        if said := _against(rows, "queue", app=app):
            yield f"{app}: {said}{_published(rows, app=app)}"


def _reorders(counts: list[int]) -> Sweep:
    return [Heat(q, {}, [_way(q, {}, max(counts), **way) for way in _over("reorder")]) for q in QUERIES], []


def _reorder_gains(rows: list[Row]) -> Iterator[str]:
    for app in QUERIES:
        if said := _against(rows, "reorder", app=app):
            yield f"{app}: as published, {said}"


def _skew(counts: list[int]) -> Sweep:
    heats = []
    for sigma in SIGMAS:
        params = {"r": 1, "r_keyed": rounds(1), "keys": 100, "sigma": sigma}
        ways = [way | ({"partitioning": "range"} if way else {}) for way in _over("queue")]
        heats.append(Heat("matrix", params, [_way("matrix", params, max(counts), **way) for way in ways]))
    notes = [
        "Keys are a hundred equal ranges of normal draws within -1..1. Partitions take ranges of keys: partitioned has "
        "one partition per worker, hybrid and shared have a hundred. Our lanes take keys by hash, with up to four "
        "lanes per worker. Both halves of a symmetric distribution have the same weight, so with two workers skew "
        "does not unbalance partitioned.",
    ]
    return heats, notes


def _hottest(race: Race) -> dict[str, Any]:
    """Returns the share of the most frequent key in the tuples."""
    keys: dict[int, int] = {}
    for table in race.source.blocks(race.events):
        for found in table["key"].value_counts().to_pylist():
            keys[found["values"]] = keys.get(found["values"], 0) + found["counts"]
    return {"hottest": max(keys.values()) / race.events}


def _skew_gains(rows: list[Row]) -> Iterator[str]:
    for sigma in SIGMAS:
        if said := _against(rows, "queue", sigma=sigma):
            hottest = next(row["hottest"] for row in rows if row["params"]["sigma"] == sigma)
            published = _published(rows, sigma=sigma)
            yield f"sigma {sigma:g}, with {hottest:.1%} of the tuples for the most frequent key: {said}{published}"


def _costs(counts: list[int]) -> Sweep:
    heats = []
    for cost in COSTS:
        params = _costly(cost)
        ways = [_way("matrix", params, max(counts), batch=1, **way) for way in _over("queue")]
        heats.append(Heat("matrix", params, ways, share=max(10 / cost, 0.004)))
    return heats, ["Both operators have the given cost, keys are uniform, and a batch is one tuple."]


def _delays(rows: list[Row]) -> Iterator[str]:
    """Compares the latency of a tuple with the cost of its two operators."""
    _priced(rows, COSTS)
    for cost in COSTS:
        if row := _found(rows, cost_us=cost, queue=DEFAULT["queue"]):
            end_to_end, processing = (row[name] / 2 / cost for name in ("end_to_end_p99_us", "processing_p99_us"))
            yield (
                f"Operators of {cost:,} us, {row['queue']}: at half the peak rate, the p99 latency is {end_to_end:.1f} "
                f"times the cost of both operators. From the start of processing, it is {processing:.1f} times"
            )


def _light(counts: list[int]) -> Sweep:
    heats = []
    for cost in LIGHT:
        params = {"r": rounds(cost), "r_keyed": 1}
        ways = [
            _way("matrix", params, threads, batch=batch, **way)
            for batch, threads, way in itertools.product(BATCHES, counts, _over("reorder"))
        ]
        heats.append(Heat("matrix", params, ways, share=min(1.0, 1 / cost)))
    return heats, ["The cost is that of the stateless operator; the partitioned operator only counts and folds."]


def _buffers(rows: list[Row], where: str, **having: Any) -> str:
    """Returns the throughput of non_blocking over lock for all values of `where`."""
    first, second = AXES["reorder"]
    found = {}
    for value in dict.fromkeys(_value(row, where) for row in rows if row["way"] != "loop"):
        one, other = (_found(rows, reorder=name, **{where: value}, **having) for name in (first, second))
        if one and other:
            found[f"{value:g}"] = compare(one, other).text
    ratios = "; ".join(f"{where} {value}: {ratio}" for value, ratio in found.items())
    return f"throughput of {first} over {second}: {ratios}"


def _light_gains(rows: list[Row]) -> Iterator[str]:
    _priced(rows, LIGHT)
    most = max(row["threads"] for row in rows)
    for cost in LIGHT:
        yield f"{cost:g} us: {_buffers(rows, 'batch', cost_us=cost, threads=most)}"


def _selective(counts: list[int]) -> Sweep:
    heats = []
    for cost, sel in itertools.product(HEAVY, SELECTIVITIES):
        params = _costly(cost, sel=float(sel))
        ways = [
            _way("matrix", params, max(counts), batch=batch, **way) for batch in BATCHES[:2] for way in _over("reorder")
        ]
        heats.append(Heat("matrix", params, ways, share=max(2 / cost / (1 + sel), 0.002)))
    return heats, ["The stateless operator emits `sel` tuples per tuple; the partitioned operator has the same cost."]


def _selective_gains(rows: list[Row]) -> Iterator[str]:
    _priced(rows, HEAVY)
    for cost, batch in itertools.product(HEAVY, BATCHES[:2]):
        yield f"{cost} us, batches of {batch}: {_buffers(rows, 'sel', cost_us=cost, batch=batch)}"


def _loaded(counts: list[int]) -> Sweep:
    return [Heat(app, {}, [_way(app, {}, max(counts), **way) for way in _over("reorder")]) for app in LOADED], []


def _latencies(rows: list[Row]) -> Iterator[str]:
    for app in dict.fromkeys(row["app"] for row in rows):
        asked = (_found(rows, app=app, load=load, reorder=DEFAULT["reorder"]) for load in LOADS)
        ways = [way for way in asked if way]
        if len(ways) == len(LOADS):
            said = ", ".join(f"{quantity(way, 'end_to_end_p99_us')} at {way['load']:g}" for way in ways)
            yield f"{app}: the end-to-end p99 latency is {said} of the slowest way's peak rate"


def _curves(x: str, *columns: tuple[str, str], lines: tuple[str, ...], by: str = "app") -> tuple[Plot, ...]:
    log = x not in ("load", "sel")
    return tuple(Plot(x, y, title, by, lines, log=log, loop=False) for y, title in columns)


def _bars(x: str, *columns: tuple[str, str], lines: tuple[str, ...] = ()) -> tuple[Plot, ...]:
    return tuple(Plot(x, y, title, lines=lines or (x,), kind="bar", loop=False) for y, title in columns)


LOOP, BATCH = ("to_loop", "throughput, relative to the compiled loop"), ("p99_us", "p99 latency of a batch")
PROCESSING = ("processing_p99_us", "p99 latency from the start of processing")
ARRIVAL = ("end_to_end_p99_us", "p99 latency from arrival")
SUITE = Suite(
    "ordered",
    "Ordered stream processing: strategies of a pool of workers",
    (
        Experiment(
            "strategies",
            "sections on reorder buffers, partitioned operators and scheduling heuristics",
            "All heuristics, queues of partitioned operators and reorder buffers",
            (PIPELINE, NON_BLOCKING, IMBALANCE),
            _strategies,
            _bars("heuristic", LOOP, lines=("queue", "reorder")),
            conclude=_spread,
        ),
        Experiment(
            "queries",
            "figure 8",
            "Heuristics on five queries",
            (PIPELINED, CORES),
            _queries,
            _bars("heuristic", LOOP, lines=("threads", "batch")),
            needs="cores",
            conclude=_scale,
        ),
        Experiment(
            "skew",
            "figure 9",
            "Queues of partitioned operators, with skewed keys (matrix)",
            (SKEWED,),
            _skew,
            _curves("sigma", LOOP, BATCH, lines=("queue",)),
            count=_hottest,
            conclude=_skew_gains,
        ),
        Experiment(
            "cost",
            "figure 10",
            "Latency by the cost of an operator (matrix)",
            (DELAYED,),
            _costs,
            _curves("cost_us", PROCESSING, ARRIVAL, lines=("queue",)),
            loads=(0.5,),
            conclude=_delays,
        ),
        Experiment(
            "queues",
            "figure 11",
            "Queues of partitioned operators, on five queries",
            (QUEUED,),
            _queues,
            _bars("queue", LOOP, ("cpu_ns", "processor time per event")),
            conclude=_queue_gains,
        ),
        Experiment(
            "light",
            "figure 12",
            "Reorder buffers after a cheap operator (matrix)",
            (LIGHTER,),
            _light,
            _curves("batch", LOOP, BATCH, lines=("heuristic", "reorder", "threads"), by="chart"),
            conclude=_light_gains,
        ),
        Experiment(
            "selectivity",
            "figure 13",
            "Reorder buffers after an operator with high selectivity (matrix)",
            (SELECTIVE,),
            _selective,
            _curves("sel", LOOP, BATCH, lines=("heuristic", "reorder", "batch"), by="chart"),
            conclude=_selective_gains,
        ),
        Experiment(
            "buffers",
            "figure 14",
            "Reorder buffers on five queries",
            (CONSISTENT,),
            _reorders,
            _bars("reorder", LOOP, lines=("heuristic",)),
            conclude=_reorder_gains,
        ),
        Experiment(
            "load",
            "section 7",
            "Latency by load",
            (NON_BLOCKING,),
            _loaded,
            _curves("load", PROCESSING, ARRIVAL, lines=("heuristic", "reorder")),
            loads=LOADS,
            conclude=_latencies,
        ),
    ),
)
