"""The experiments of BriskStream (section 6) that are not about its optimiser: suite `rlas` has those.

The variant as published has channel `pair_queue`, pinned threads, and the paper's shapes of WC and LR (`brisk_wc`,
`brisk_lr`). FD and SD have the paper's shapes already. Ours is channel `gate`, in total order, and our shapes.

BriskStream keeps no order. Without order the results of LR could not be checked, because they depend on the order of
its events. So LR as published has channel `gate` too. Both variants run by the plan that `plan auto` finds.

`briskstream_sentences.py` makes the texts of the claims.
"""

from __future__ import annotations

from collections.abc import Iterator

from streaming_core.apps import registry
from streaming_core.bench import briskstream_sentences as sentences
from streaming_core.bench.briskstream_sentences import APPS, PUBLISHED, SHAPES
from streaming_core.bench.ratios import Row
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot, Suite
from streaming_core.run.way import AUTO_PLAN, Morsel, Pinned, Pooled, RunSpec

BATCHES = (1, 16, 256)
NO_ENGINES = "Storm and Flink are not part of Lockstep: the comparison is with the compiled loop and with ours."
NO_NODES = "One NUMA node: remote means another core's cache, not another socket's memory."
FEW_CORES = "The paper has 144 cores on eight sockets; here the threads are those of the rows."

THROUGHPUT = Claim(
    "BriskStream has a much higher throughput than Storm and Flink in all four applications.",
    "section 6.3, figure 6",
    "on eight sockets, k events/s: WC 96,390.8; FD 7,172.5; SD 12,767.6; LR 8,738.3 (table 4)",
    published=sentences.beside_loop(PUBLISHED),
    ours=sentences.beside_loop("ours"),
    host=f"{NO_ENGINES} {FEW_CORES}",
)
LATENCY = Claim(
    "The end-to-end latency of WC is much smaller than that of Storm and Flink.",
    "section 6.3, figure 7",
    published=sentences.latencies(PUBLISHED, ("brisk_wc",)),
    ours=sentences.latencies("ours", ("brisk_wc", "wc")),
    host=f"{NO_ENGINES} Mean and p99 stand for the CDF.",
)
P99 = Claim(
    "The p99 end-to-end latency is far below that of Storm and Flink.",
    "section 6.3, table 5",
    "p99 in ms, BriskStream, Storm, Flink: WC 21.9, 37,881.3, 5,689.2; FD 12.5, 14,949.8, 261.3; SD 13.5, 12,733.8, "
    "350.5; LR 204.8, 16,747.8, 4,886.2",
    published=sentences.latencies(PUBLISHED),
    ours=sentences.latencies("ours"),
    host=f"{NO_ENGINES} All ways of an application have the same rate: half of the slowest one's peak.",
)
CDF = Claim(
    "The execution times of a tuple differ little within an operator of WC, so the median stands for it in the model.",
    "section 3.1, figure 3",
    "50th percentile",
    published=sentences.quantiles("pair_queue"),
    ours=sentences.quantiles("gate"),
    host="The times are means over the rows of a batch. Nanoseconds, where the paper has cycles.",
)
BREAKDOWN = Claim(
    "Others of each operator are about 10 % of Storm's, and Execute is 5 to 24 % of Storm's. If the producer is "
    "remote, the round trip takes up to 9.4 times as long, above all that of the Parser.",
    "section 6.3, figure 8",
    "Others 10 %, Execute 5 to 24 %, remote up to 9.4 times local",
    published=sentences.breakdown("pair_queue"),
    ours=sentences.breakdown("gate"),
    host=f"{NO_ENGINES} {NO_NODES}",
)
REMOTE = Claim(
    "The time of a tuple grows with the distance from the producer.",
    "section 6.2, table 3",
    "ns, measured at S0-S0, S0-S1, S0-S3, S0-S4, S0-S7: Splitter 1,612.8, 1,666.5, 1,708.2, 2,050.6, 2,371.3; Counter "
    "612.3, 611.4, 623.1, 889.9, 870.2",
    published=sentences.breakdown("pair_queue", ("split", "count")),
    ours=sentences.breakdown("gate", ("split", "count")),
    host=f"{NO_NODES} So there is one distance, and no estimate to compare with.",
)
SELECTIVITY = Claim(
    "Most of LR's operators emit a tuple for each input, and the others emit nearly none.",
    "appendix B, table 8",
    "Dispatcher .99 to positions, 0 to others; Avg_speed, Las_avg_speed, Count 1; Toll 1 except from accidents; "
    "accident detection and notification, Daily, Balance 0",
    published=sentences.selectivities,
)
SOCKETS = Claim(
    "BriskStream scales better than Storm and Flink with sockets: LR in part (a), all applications in part (b).",
    "section 6.3, figure 9",
    "nearly linear from one to four sockets",
    published=sentences.speedups,
    host=f"{NO_ENGINES} One socket: threads stand for sockets.",
)
IDEAL = Claim(
    "On eight sockets, without remote memory access throughput would be close to linear.",
    "section 6.3, figure 10",
    "89 to 95 % of ideal without remote memory access",
    published=sentences.of_ideal,
    host="Ideal: the rate of one thread times the threads. Remote access cannot be left out.",
)
STREAMBOX = Claim(
    "BriskStream is faster than StreamBox on any number of cores, with StreamBox's order and without.",
    "section 6.3, figure 11",
    "2 to 144 cores; .09 against 6 remote cache misses per k events",
    published=sentences.over_morsels,
    host=f"Executor morsel stands for StreamBox. {FEW_CORES} No counter of remote misses can be read.",
)
JUMBO = Claim(
    "Jumbo tuples amortise headers and queue accesses, and are important for throughput.",
    "section 5.2; section 6.5, figure 16",
    published=sentences.jumbo("pair_queue"),
    ours=sentences.jumbo("gate"),
    host="A tuple of one row stands for no jumbo tuples. The other factors of figure 16 are not measured.",
)


def _channel(app: str) -> str:
    """Return the channel of the published variant: without order, if results can be checked then."""
    return "pair_queue" if registry.load(app).unordered else "gate"


def _planned(app: str, channel: str, threads: int, **options: int) -> Pinned:
    """Return a way with a plan: on one thread all tasks are there."""
    if threads == 1:
        return Pinned(app=app, channel=channel, threads=1, **options)
    return Pinned(app=app, channel=channel, threads=threads, plan=AUTO_PLAN, **options)


def _pipeline(app: str, threads: int) -> dict[str, list[int]]:
    """Return a plan with one replica per operator and equally many consecutive operators on each thread."""
    names = ["source", *(operator.name for operator in registry.load(app).operators[1:-1]), "sink"]
    return {name: [place * threads // len(names)] for place, name in enumerate(names)}


def _placed(app: str, is_remote: bool) -> dict[str, list[int]]:
    """Return a plan for a chain on two threads: each operator beside its producer, or on the other thread."""
    return {name: [place % 2 * is_remote] for place, name in enumerate(_pipeline(app, 1))}


def _applications(counts: list[int]) -> tuple[list[Heat], list[str]]:
    threads, heats = max(counts), []
    for name in APPS:
        for app in dict.fromkeys((SHAPES.get(name, name), name)):
            channels = dict.fromkeys((_channel(app), "gate") if app == SHAPES.get(name, name) else ("gate",))
            ways: list[RunSpec] = [_planned(app, channel, threads) for channel in channels]
            if threads > 1:
                ways.append(Pinned(app=app, threads=threads))
            heats.append(Heat(app, {}, [*ways, Pooled(app=app, threads=threads)]))
    return heats, [
        "Without order, the check covers what the application declares to agree without order.",
        "Plan replicated has a replica of each operator on each thread.",
    ]


def _operators(counts: list[int]) -> tuple[list[Heat], list[str]]:
    is_possible = max(counts) > 1
    placements = [_placed("brisk_wc", is_remote) for is_remote in ((False, True) if is_possible else (False,))]
    ways = [
        Pinned(app="brisk_wc", channel=channel, threads=2 if is_possible else 1, plan=plan)
        for channel in ("pair_queue", "gate")
        for plan in placements
    ]
    notes = [
        "Local: all operators on one thread. Remote: each operator on the other thread than its producer.",
        "Execute and Others as in section 6.1, without waiting. Remote is the difference of the round trips. One NUMA "
        "node: it is the cost of another core's cache.",
    ]
    heats = [Heat("brisk_wc", {}, ways), Heat("brisk_lr", {}, [Pinned(app="brisk_lr", threads=1)])]
    return heats, notes if is_possible else [*notes, "One thread: there is no remote producer."]


def _scaling(counts: list[int]) -> tuple[list[Heat], list[str]]:
    heats = []
    for name in APPS:
        app = SHAPES.get(name, name)
        ways: list[RunSpec] = [_planned(app, _channel(app), threads) for threads in counts]
        if name == "wc":
            ways += [Morsel(app=app, order=order, threads=n) for order in ("total", "none") for n in counts]
        heats.append(Heat(app, {}, ways))
    return heats, ["Executor morsel works as StreamBox does: workers take batches through the whole pipeline."]


def _jumbo(counts: list[int]) -> tuple[list[Heat], list[str]]:
    threads, heats = max(counts), []
    for name in APPS:
        app = SHAPES.get(name, name)
        plan = _pipeline(app, threads)
        ways = [
            Pinned(app=app, channel=channel, threads=threads, batch=batch, plan=plan)
            for channel in dict.fromkeys((_channel(app), "gate") if name == "wc" else (_channel(app),))
            for batch in BATCHES
        ]
        heats.append(Heat(app, {}, ways))
    return heats, ["The operators are in equal parts on the threads, so that all sizes have the same plan."]


def _named(rows: list[Row]) -> Iterator[str]:
    """Names variants, and compares the published one with ours."""
    sentences.name_variants(rows)
    yield from sentences.published_over_ours(rows)


SUITE = Suite(
    "briskstream",
    "BriskStream: queues per pair, jumbo tuples and pinned replicas",
    (
        Experiment(
            "applications",
            "figures 6 and 7, table 5",
            "Throughput and latency as published, and ours",
            (THROUGHPUT, LATENCY, P99),
            _applications,
            (
                Plot("variant", "to_loop", "throughput, relative to the compiled loop", kind="bar"),
                Plot(
                    "variant",
                    "end_to_end_p99_us",
                    "p99 latency from arrival, at half the slowest peak rate",
                    kind="bar",
                    loop=False,
                ),
            ),
            loads=(0.5,),
            conclude=_named,
            needs="cores",
        ),
        Experiment(
            "operators",
            "figures 3 and 8, tables 3 and 8",
            "Execute, Others and remote per operator of WC; selectivities of LR",
            (CDF, BREAKDOWN, REMOTE, SELECTIVITY),
            _operators,
            (Plot("placement", "events_per_s", "throughput", kind="bar", loop=False),),
            conclude=sentences.add_placement,
            needs="nodes",
            has_operators=True,
        ),
        Experiment(
            "scaling",
            "figures 9, 10 and 11",
            "Throughput over threads, beside executor morsel",
            (SOCKETS, IDEAL, STREAMBOX),
            _scaling,
            (Plot("threads", "to_loop", "throughput, relative to the compiled loop", lines=("variant",)),),
            conclude=sentences.scaling,
            needs="cores",
        ),
        Experiment(
            "jumbo_tuples",
            "section 5.2, figure 16",
            "Size of jumbo tuples",
            (JUMBO,),
            _jumbo,
            tuple(
                Plot("batch", y, title, lines=("channel",), log=True, loop=False)
                for y, title in (
                    ("events_per_s", "events per second"),
                    ("p99_us", "p99 latency of a batch"),
                    ("end_to_end_p99_us", "p99 latency from arrival, at half the slowest peak rate"),
                )
            ),
            loads=(0.5,),
            conclude=sentences.gain,
        ),
    ),
    pinned=True,
)
