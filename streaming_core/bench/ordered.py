"""The experiments of Scaling Ordered Stream Processing (Prasaad, Ramalingam, Kaushik): figures 8 to 14, and sweeps.

Each figure shows the published strategies and ours. Published is heuristic `ct` with queue `hybrid` and buffer
`non_blocking`, except for what a figure varies. A batch is one tuple, as in the paper. Ours is Lockstep's default,
`affinity` with `lanes`, and its batches where a figure does not compare queues. Published strategies use queues,
buffers and scheduler on one thread too, which is the base of their speed-ups.

Application `matrix` supplies operators of a given cost. A measurement at the start finds how many multiplications take
a microsecond; the rows hold that number as `r` or `r_keyed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from streaming_core.bench.race import Race
from streaming_core.bench.ratios import Row, add_multiple, compare, equal_rows, most, pick, quantity, value, versus
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot, Suite
from streaming_core.run.way import Pooled, RunSpec

QUERIES = ("q1", "q2", "q3", "q4", "q15")
HEURISTICS = ("ct", "lp", "et", "qst")
PUBLISHED: dict[str, Any] = {"heuristic": "ct", "queue": "hybrid", "batch": 1}
OURS: dict[str, Any] = {}
OURS_BY_TUPLE: dict[str, Any] = {"batch": 1}
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
Rows = list[Row]


def _source(section: str, figure: int) -> str:
    return f"section {section}, figure {figure}"


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


def _ways(rows: Rows) -> Rows:
    """Return the rows of ways, without the loop's."""
    return [row for row in rows if row["way"] != "loop"]


def _different(rows: Rows, name: str) -> list[Any]:
    """Return the values of a column or parameter among the ways, in the order of the rows."""
    return list(dict.fromkeys(value(row, name) for row in _ways(rows)))


def _published(rows: Rows, threads: int, **having: Any) -> Row | None:
    """Return the row of the published strategies, except for what `having` changes, or None."""
    known: dict[str, Any] = PUBLISHED | {"reorder": "non_blocking", "threads": threads}
    return pick(rows, **(known | having))


def _ours(rows: Rows, threads: int, **having: Any) -> Row | None:
    """Return the row of our defaults, or None."""
    return pick(rows, heuristic="affinity", queue="lanes", reorder="non_blocking", threads=threads, **having)


def _listed(rows: Rows, name: str, text: Callable[[Any], str], label: str = "{}") -> str:
    """Return `q1: ...; q2: ...` for each value of a column, without those for which there is no text."""
    texts = {label.format(known): text(known) for known in _different(rows, name)}
    return "; ".join(f"{known}: {text}" for known, text in texts.items() if text)


def _labelled(subject: str, text: str) -> str:
    """Return `SUBJECT: TEXT`, or nothing without a text."""
    return f"{subject}: {text}" if text else ""


def _over(row: Row | None, other: Row | None, column: str = "events_per_s") -> str:
    """Return a ratio as `1.9 (1.8 to 2.0) times`, or nothing if a row is missing."""
    return compare(row, other, column).text if row and other else ""


def _speed_up(row: Row | None, base: Row | None) -> str:
    """Return the speed-up over one thread as a ratio, or nothing if a row is missing."""
    return compare(row, base, over_threads=True).text if row and base else ""


def _latency(row: Row | None, of: str) -> str:
    """Return the mean and the p99 latency, or nothing if the row is missing."""
    if row is None or row.get(f"{of}_mean_us") is None:
        return ""
    return f"mean {quantity(row, f'{of}_mean_us')}, p99 {quantity(row, f'{of}_p99_us')}"


def _joined(parts: dict[str, str]) -> str:
    """Return `lp 1.1 times, et 1.2 times` of the parts that are not empty."""
    return ", ".join(f"{name} {text}" for name, text in parts.items() if text)


def _cores(rows: Rows) -> str:
    return f"The paper has 16 cores; the ways here have up to {most(rows)} threads."


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


def _heuristic_ratios(rows: Rows, column: str) -> str:
    """Compare ct with the other heuristics on each query."""
    threads = most(rows)

    def ratios(query: str) -> str:
        ct = _published(rows, threads, app=query)
        others = {name: _published(rows, threads, app=query, heuristic=name) for name in HEURISTICS[1:]}
        return _joined({f"over {name}": _over(ct, other, column) for name, other in others.items()})

    return _listed(rows, "app", ratios)


def _ours_over_published(rows: Rows, column: str = "events_per_s", **having: Any) -> str:
    """Compare our defaults with the published strategies on each query, on most threads."""
    threads = most(rows)
    return _listed(
        rows,
        "app",
        lambda query: _over(
            _ours(rows, threads, app=query, **having), _published(rows, threads, app=query, **having), column
        ),
    )


def _heuristic_latencies(rows: Rows) -> str:
    threads = most(rows)
    return _listed(
        rows,
        "app",
        lambda query: "; ".join(
            f"{name} {text}"
            for name in HEURISTICS
            if (text := _latency(_published(rows, threads, app=query, heuristic=name), "processing"))
        ),
    )


def _our_latencies(rows: Rows, **having: Any) -> str:
    threads = most(rows)
    return _listed(rows, "app", lambda query: _latency(_ours(rows, threads, app=query, **having), "processing"))


def _best_heuristics(rows: Rows) -> Iterator[str]:
    threads = most(rows)
    for query in _different(rows, "app"):
        ct = _published(rows, threads, app=query)
        for name in HEURISTICS[1:]:
            if sentence := versus(ct, _published(rows, threads, app=query, heuristic=name)):
                yield f"{query}: {sentence}"
        if sentence := versus(_ours(rows, threads, app=query), ct):
            yield f"{query}: {sentence}"


THROUGHPUT_OF_HEURISTICS = Claim(
    "Heuristic ct has the highest throughput. Heuristic lp is as fast on queries 1 and 15. Heuristics et and qst are "
    "slower than both.",
    _source("7.1", 8),
    "millions of tuples per second",
    published=lambda rows: _labelled("throughput of ct", _heuristic_ratios(rows, "events_per_s")),
    ours=lambda rows: _labelled("throughput over ct", _ours_over_published(rows)),
    host=_cores,
)
LATENCY_OF_HEURISTICS = Claim(
    "Heuristic lp has the lowest latency; ct is close on most queries. Heuristics et and qst have high latencies.",
    _source("7.1", 8),
    "a few milliseconds with lp and mostly with ct; hundreds of milliseconds with ct in some cases",
    published=_heuristic_latencies,
    ours=_our_latencies,
    host="The source here offers a fixed rate; the paper does not state the rates of its source.",
)


def _threads(counts: list[int]) -> Sweep:
    swept = sorted({*counts, *(max(counts) * factor for factor in OVERSUBSCRIBED)})
    heats = [_heat(query, {}, [(threads, how) for how in (PUBLISHED, OURS) for threads in swept]) for query in QUERIES]
    return heats, [
        f"{max(counts)} cores. More threads than that share cores, as the paper's figure goes beyond its peak.",
    ]


def _cores_of(rows: Rows) -> int:
    """Return the number of cores that the sweep over threads was made for."""
    return most(rows) // max(OVERSUBSCRIBED)


def _scaling(rows: Rows, chosen: Callable[..., Row | None]) -> str:
    cores = _cores_of(rows)
    return _listed(rows, "app", lambda query: _speed_up(chosen(rows, cores, app=query), chosen(rows, 1, app=query)))


def _scaling_of_both(rows: Rows) -> Iterator[str]:
    cores = _cores_of(rows)
    for query in _different(rows, "app"):
        for chosen in (_published, _ours):
            one = chosen(rows, 1, app=query)
            for threads in (cores, most(rows)):
                if threads > 1 and (sentence := versus(chosen(rows, threads, app=query), one, over_threads=True)):
                    yield f"{query}: {sentence}"


SCALING = Claim(
    "With heuristic ct, throughput rises almost linearly with the number of cores, up to a peak.",
    _source("7.1", 8),
    "up to 16 cores on query 1, 12 on query 15, 8 on queries 2, 3 and 4",
    published=lambda rows: _labelled(
        f"on {_cores_of(rows)} threads, over one of the same machinery", _scaling(rows, _published)
    ),
    ours=lambda rows: _labelled(
        f"on {_cores_of(rows)} threads, over one that takes batches straight through", _scaling(rows, _ours)
    ),
    host=lambda rows: f"{_cores_of(rows)} cores cannot show a speed-up beyond {_cores_of(rows)}, nor where it ends.",
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


def _hottest(race: Race) -> dict[str, Any]:
    """Return the share of the most frequent key in the tuples."""
    keys: dict[int, int] = {}
    for table in race.source.blocks(race.events):
        for counted in table["key"].value_counts().to_pylist():
            keys[counted["values"]] = keys.get(counted["values"], 0) + counted["counts"]
    return {"hottest": max(keys.values()) / race.events}


def _skew_speed_ups(rows: Rows, name: str, **having: Any) -> str:
    threads = most(rows)

    def speed_up(sigma: float) -> str:
        at = {"sigma": sigma, "batch": 1} | having
        return _speed_up(pick(rows, threads=threads, **at), pick(rows, threads=1, **at))

    return _labelled(f"{name} on {threads} threads, over one", _listed(rows, "sigma", speed_up, "sigma {:g}"))


def _skew_gains(rows: Rows) -> Iterator[str]:
    threads = most(rows)
    for sigma in _different(rows, "sigma"):
        hybrid, partitioned = (
            _published(rows, threads, queue=queue, sigma=sigma) for queue in ("hybrid", "partitioned")
        )
        hottest = (
            f"sigma {sigma:g}, {_first(rows, sigma=sigma)['hottest']:.1%} of the tuples have the most frequent key"
        )
        for pair in ((hybrid, partitioned), (_ours(rows, threads, sigma=sigma), hybrid)):
            if sentence := versus(*pair):
                yield f"{hottest}: {sentence}"


def _first(rows: Rows, **having: Any) -> Row:
    return next(row for row in rows if all(value(row, name) == known for name, known in having.items()))


SKEWED = Claim(
    "With 100 partitions, hybrid keeps its speed-up at any skew of the keys. With one partition per worker, "
    "partitioned has the same speed-up without skew, and loses most of it with skew.",
    _source("7.2.1", 9),
    "up to 16 workers",
    published=lambda rows: "; ".join(_skew_speed_ups(rows, name, queue=name) for name in ("hybrid", "partitioned")),
    ours=lambda rows: _skew_speed_ups(rows, "ours", queue="lanes"),
    host=lambda rows: (
        "The distribution is symmetric. With two workers, both ranges of keys have the same weight at any "
        "skew, so partitioned loses nothing. The effect needs at least three cores."
        if most(rows) <= 2
        else _cores(rows)
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


def _name_costs(rows: Rows, costs: Iterable[float], param: str) -> None:
    """Add `cost_us`, the intended cost of the operator, and name the chart after it."""
    cost_of = {rounds(cost): cost for cost in costs}
    for row in rows:
        row["cost_us"] = cost_of[row["params"][param]]
        row["chart"] = f"{row['cost_us']:g} us"


def _delays(rows: Rows) -> Iterator[str]:
    """Compare the mean processing latency of a tuple with the cost of its operator."""
    _name_costs(rows, COSTS, "r_keyed")
    for row in _ways(rows):
        add_multiple(row, "latency_to_cost", "processing_mean_us", 1 / row["cost_us"])
    threads = most(rows)
    for cost in _different(rows, "cost_us"):
        hybrid, partitioned = (
            _published(rows, threads, queue=queue, cost_us=cost) for queue in ("hybrid", "partitioned")
        )
        for pair in ((partitioned, hybrid), (_ours(rows, threads, cost_us=cost), hybrid)):
            if sentence := versus(*pair, "processing_mean_us"):
                yield f"{cost:,} us: {sentence}"


def _latency_to_cost(rows: Rows, **having: Any) -> str:
    threads = most(rows)
    return _listed(
        rows,
        "cost_us",
        lambda cost: quantity(pick(rows, threads=threads, cost_us=cost, **having), "latency_to_cost"),
        "{:,} us",
    )


DELAYED = Claim(
    "With hybrid, the mean processing latency of a tuple is close to the cost of its operator. With partitioned, it is "
    "much higher, because outputs wait for earlier ones.",
    _source("7.2.2", 10),
    "costs of 10, 100, 1,000 and 10,000 microseconds",
    published=lambda rows: "; ".join(
        _labelled(f"mean processing latency over the cost, {queue}", _latency_to_cost(rows, queue=queue))
        for queue in ("hybrid", "partitioned")
    ),
    ours=lambda rows: _labelled("mean processing latency over the cost", _latency_to_cost(rows, queue="lanes")),
    host=_cores,
)


def _queues(counts: list[int]) -> Sweep:
    swept = [threads for threads in counts if threads > 1] or counts
    heats = [_heat(query, {}, [(threads, how) for threads in swept for how in QUEUES]) for query in QUERIES]
    return heats, [
        "Batches of one tuple: with every queue, a call of a kernel processes one tuple.",
        f"Latencies at a rate of {LOAD:g} times the peak of the slowest way of the query.",
    ]


def _queue_ratios(rows: Rows, column: str) -> str:
    threads = most(rows)
    return _listed(
        rows,
        "app",
        lambda query: _over(
            _published(rows, threads, app=query), _published(rows, threads, app=query, queue="partitioned"), column
        ),
    )


def _queue_gains(rows: Rows) -> Iterator[str]:
    for query in _different(rows, "app"):
        for threads in _different(rows, "threads"):
            hybrid = _published(rows, threads, app=query)
            partitioned = _published(rows, threads, app=query, queue="partitioned")
            for pair in ((hybrid, partitioned), (_ours(rows, threads, app=query), hybrid)):
                for column in ("events_per_s", "processing_mean_us"):
                    if sentence := versus(*pair, column):
                        yield f"{query} on {threads} threads: {sentence}"


QUEUE_THROUGHPUT = Claim(
    "With ct, hybrid has a much higher throughput than partitioned on all queries, most with several partitioned "
    "operators. On query 15 the difference is unclear, because it has ten categories.",
    _source("7.2.3", 11),
    "2 to 16 workers",
    published=lambda rows: _labelled("hybrid over partitioned", _queue_ratios(rows, "events_per_s")),
    ours=lambda rows: _labelled("ours over hybrid, with batches of one tuple", _ours_over_published(rows)),
    host=_cores,
)
QUEUE_LATENCY = Claim(
    "hybrid has a lower latency than partitioned on the three queries with most partitioned operators, and a similar "
    "one on the others.",
    _source("7.2.3", 11),
    published=lambda rows: _labelled(
        "mean latency of hybrid over partitioned", _queue_ratios(rows, "processing_mean_us")
    ),
    ours=lambda rows: _labelled("mean latency of ours over hybrid", _ours_over_published(rows, "processing_mean_us")),
    host=_cores,
)


# Figures 12 to 14: reorder buffers.

BUFFERS: tuple[dict[str, Any], ...] = (PUBLISHED, PUBLISHED | {"reorder": "lock"}, OURS_BY_TUPLE)


def _worker_time(rows: Rows) -> None:
    """Add `worker_us`: the time of all workers per tuple, with what they wait."""
    for row in _ways(rows):
        threads = row["threads"]
        measured = row["rates"]
        if measured:
            row["rounds"]["worker_us"] = [threads * 1e6 / rate for rate in measured]
            row["worker_us"] = threads * 1e6 / row["events_per_s"]
            row["worker_us_range"] = [threads * 1e6 / rate for rate in reversed(row["events_per_s_range"])]


def _light(counts: list[int]) -> Sweep:
    swept = sorted({*counts, max(counts) * max(OVERSUBSCRIBED)})
    hows = [(threads, how) for how in BUFFERS for threads in swept]
    heats = [_heat("matrix", {"r": rounds(cost), "r_keyed": 0}, hows) for cost in LIGHT]
    return heats, [
        "A stateless operator of the given cost; the partitioned operator behind it only folds. Batches of one tuple.",
        "The cost per tuple is the time of all workers, with what they wait, over the tuples. With more threads than "
        "cores, it contains the time in which a worker has no core.",
    ]


def _light_gains(rows: Rows) -> Iterator[str]:
    _name_costs(rows, LIGHT, "r")
    _worker_time(rows)
    for cost in _different(rows, "cost_us"):
        for threads in _different(rows, "threads"):
            free, locked = (_published(rows, threads, reorder=name, cost_us=cost) for name in ("non_blocking", "lock"))
            if sentence := versus(free, locked):
                yield f"{cost:g} us on {threads} threads: {sentence}"


def _buffer_speed_ups(rows: Rows, name: str, threads: int, over: str, label: str, **having: Any) -> str:
    """Return the speed-up of a buffer over one thread, and the worker time per tuple on both numbers of threads."""

    def text(known: float) -> str:
        where: dict[str, Any] = having | {over: known}
        one, many = (pick(rows, threads=count, **where) for count in (1, threads))
        costs = f"{quantity(one, 'worker_us')} per tuple on one thread, {quantity(many, 'worker_us')} on {threads}"
        return f"{speed_up}, {costs}" if (speed_up := _speed_up(many, one)) else ""

    return _labelled(f"{name} on {threads} threads, over one", _listed(rows, over, text, label))


def _speed_ups_of_buffers(rows: Rows, threads: int, over: str, label: str) -> str:
    """Return the speed-ups of both published buffers."""
    return "; ".join(
        _buffer_speed_ups(rows, name, threads, over, label, reorder=name, queue="hybrid")
        for name in ("non_blocking", "lock")
    )


def _compare_buffers(rows: Rows, subject: str, **having: Any) -> Iterator[str]:
    """Compare the published buffers with each other, and ours with `non_blocking`."""
    threads = most(rows)
    free, locked = (_published(rows, threads, reorder=name, **having) for name in ("non_blocking", "lock"))
    for pair in ((free, locked), (_ours(rows, threads, **having), free)):
        if sentence := versus(*pair):
            yield f"{subject}: {sentence}"


LIGHTER = Claim(
    "After an operator of tens of microseconds, non_blocking scales better than lock. The cost per tuple, with waiting "
    "time, rises less.",
    _source("7.3.1", 12),
    "tens of microseconds per tuple, up to 16 workers",
    published=lambda rows: _speed_ups_of_buffers(rows, _cores_of(rows), "cost_us", "{:g} us"),
    ours=lambda rows: _buffer_speed_ups(rows, "ours", _cores_of(rows), "cost_us", "{:g} us", queue="lanes"),
    host="With two workers, a worker can wait for one other at most. The lock is held for well below a microsecond.",
)


def _selective(counts: list[int]) -> Sweep:
    hows = [(threads, how) for how in BUFFERS for threads in sorted({1, max(counts)})]
    params = {"r": rounds(HEAVY), "r_keyed": rounds(HEAVY)}
    heats = [_heat("matrix", params | {"sel": float(sel)}, hows, HEAVY * (1 + sel)) for sel in SELECTIVITIES]
    return heats, [
        f"Both operators cost {HEAVY} us per tuple. The stateless one emits `sel` tuples per tuple. Batches of one.",
        "The cost per tuple is that of the whole pipeline; the paper shows that of the first operator.",
    ]


def _selective_gains(rows: Rows) -> Iterator[str]:
    _worker_time(rows)
    for sel in _different(rows, "sel"):
        yield from _compare_buffers(rows, f"selectivity {sel:g}", sel=sel)


SELECTIVE = Claim(
    "Behind an operator of selectivity 50, workers of lock wait while another one adds outputs to the next queues. "
    "Buffer non_blocking does not make them wait, and scales better.",
    _source("7.3.2", 13),
    "selectivity 50, 100 microseconds per tuple of both operators",
    published=lambda rows: _speed_ups_of_buffers(rows, most(rows), "sel", "selectivity {:g}"),
    ours=lambda rows: _buffer_speed_ups(rows, "ours", most(rows), "sel", "selectivity {:g}", queue="lanes"),
    host="With two workers, a worker can wait for one other at most.",
)


def _buffers(counts: list[int]) -> Sweep:
    heats = [_heat(query, {}, [(max(counts), how) for how in BUFFERS]) for query in QUERIES]
    return heats, ["Batches of one tuple. The paper shows no latencies here, because they do not differ much."]


def _buffer_gains(rows: Rows) -> Iterator[str]:
    for query in _different(rows, "app"):
        yield from _compare_buffers(rows, query, app=query)


def _buffer_ratios(rows: Rows) -> str:
    threads = most(rows)
    return _listed(
        rows,
        "app",
        lambda query: _over(_published(rows, threads, app=query), _published(rows, threads, app=query, reorder="lock")),
    )


CONSISTENT = Claim(
    "non_blocking has a higher throughput than lock on every query.",
    _source("7.3.3", 14),
    published=lambda rows: _labelled("non_blocking over lock", _buffer_ratios(rows)),
    ours=lambda rows: _labelled("ours over hybrid, both with non_blocking", _ours_over_published(rows)),
    host=_cores,
)


# Sweeps of what the paper leaves open: the number of partitions p, the slice s, the window w, the batch.


def _swept(name: str, settings: Iterable[Any], how: dict[str, Any]) -> Callable[[list[int]], Sweep]:
    def sweep(counts: list[int]) -> Sweep:
        return [_heat(SWEPT, {}, [(max(counts), how | {name: known}) for known in settings])], [
            f"Query {SWEPT[1:]} with heuristic ct, queue hybrid and buffer non_blocking on {max(counts)} threads."
        ]

    return sweep


def _against_default(name: str) -> Callable[[Rows], Iterator[str]]:
    """Return a function that compares the values of an option with its default."""

    def conclude(rows: Rows) -> Iterator[str]:
        ways = equal_rows(_ways(rows))
        default = next(
            (row for row in ways if row[name] == Pooled.model_fields[name].default), ways[0] if ways else None
        )
        for row in ways:
            if default is not None and row is not default:
                yield f"{name} {row[name]:,} over {default[name]:,}: {_over(row, default)}"

    return conclude


def _by_batch(counts: list[int]) -> Sweep:
    hows = [(max(counts), how | {"batch": batch}) for how in (PUBLISHED, OURS) for batch in BATCHES]
    return [_heat(SWEPT, {}, hows)], [
        "A batch takes the place of the paper's tuple: workers take, order and pass on batches."
    ]


def _batch_gains(rows: Rows) -> Iterator[str]:
    threads = most(rows)
    for batch in _different(rows, "batch"):
        if sentence := versus(_ours(rows, threads, batch=batch), _published(rows, threads, batch=batch)):
            yield f"batches of {batch}: {sentence}"


def _setting(name: str, figure: str, title: str, settings: Iterable[Any], option: str) -> Experiment:
    return Experiment(
        name,
        figure,
        title,
        (),
        _swept(option, settings, PUBLISHED),
        (Plot(option, "events_per_s", "tuples per second", "app", ("heuristic",), log=True, loop=False),),
        conclude=_against_default(option),
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
    (
        Experiment(
            "figure-8",
            "figure 8",
            "Throughput and latency of the heuristics on five queries",
            (THROUGHPUT_OF_HEURISTICS, LATENCY_OF_HEURISTICS),
            _heuristics,
            _bars("heuristic", RATE, MEAN, P99),
            loads=(LOAD,),
            needs="cores",
            conclude=_best_heuristics,
        ),
        Experiment(
            "figure-8-threads",
            "figure 8",
            "Throughput by the number of threads, published and ours",
            (SCALING,),
            _threads,
            _curves("threads", RATE),
            needs="cores",
            conclude=_scaling_of_both,
        ),
        Experiment(
            "figure-9",
            "figure 9",
            "Queues of a partitioned operator, by the skew of its keys (matrix)",
            (SKEWED,),
            _skew,
            _curves("sigma", RATE, lines=("queue", "threads")),
            count=_hottest,
            needs="cores",
            conclude=_skew_gains,
        ),
        Experiment(
            "figure-10",
            "figure 10",
            "Latency of a partitioned operator, by its cost (matrix)",
            (DELAYED,),
            _costs,
            _curves("cost_us", MEAN, P99, lines=("queue",)),
            loads=(LOAD,),
            needs="cores",
            conclude=_delays,
        ),
        Experiment(
            "figure-11",
            "figure 11",
            "Throughput and latency of the queues on five queries",
            (QUEUE_THROUGHPUT, QUEUE_LATENCY),
            _queues,
            _curves("threads", RATE, MEAN, P99, lines=("queue",)),
            loads=(LOAD,),
            needs="cores",
            conclude=_queue_gains,
        ),
        Experiment(
            "figure-12",
            "figure 12",
            "Reorder buffers behind a light operator (matrix)",
            (LIGHTER,),
            _light,
            _curves("threads", RATE, WORKER, by="chart"),
            needs="cores",
            conclude=_light_gains,
        ),
        Experiment(
            "figure-13",
            "figure 13",
            "Reorder buffers behind an operator of high selectivity (matrix)",
            (SELECTIVE,),
            _selective,
            _curves("sel", RATE, WORKER, lines=("way", "threads")),
            needs="cores",
            conclude=_selective_gains,
        ),
        Experiment(
            "figure-14",
            "figure 14",
            "Reorder buffers on five queries",
            (CONSISTENT,),
            _buffers,
            _bars("way", RATE),
            needs="cores",
            conclude=_buffer_gains,
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
            conclude=_batch_gains,
        ),
    ),
)
