"""The experiments of BriskStream (section 6) that are not about its optimiser: suite `rlas` has those.

The variant as published has channel `pair_queue`, pinned threads, and the paper's shape of WC (`brisk_wc`). FD and SD
have the paper's shapes. LR has ours, which differs from figure 18c. Ours is channel `gate`, in total order.

BriskStream keeps no order. Without order the results of LR could not be checked, because they depend on the order of
its events. So LR as published has channel `gate` too. Both variants run by the plan that `plan auto` finds.
"""

from __future__ import annotations

from collections.abc import Iterator

from streaming_core.apps import registry
from streaming_core.bench.claims import NODES, Claim
from streaming_core.bench.race.ratios import Row, pick, three_digits
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite
from streaming_core.run.way import AUTO_PLAN, Morsel, Pinned, Pooled, RunSpec

APPS = ("wc", "fd", "sd", "lr")
# The paper's shape of an application, if it differs from ours.
SHAPES = {"wc": "brisk_wc"}
BATCHES = (1, 16, 256)
PUBLISHED, OURS, REPLICATED, POOLED, MORSEL = "published", "ours", "replicated", "pooled", "morsel"
ENGINES = "Storm and Flink"

APPLICATIONS = (
    Claim(
        "BriskStream has a much higher throughput than Storm and Flink in all four applications.",
        "section 6.3, figure 6; table 4, on eight sockets",
        {"variant": PUBLISHED},
        {"variant": OURS},
        paper={"brisk_wc": 96_390_800.0, "fd": 7_172_500.0, "sd": 12_767_600.0, "lr": 8_738_300.0},
        needs=ENGINES,
    ),
    Claim(
        "The p99 end-to-end latency is far below that of Storm and Flink.",
        "section 6.3, table 5, figure 7",
        {"variant": PUBLISHED},
        {"variant": OURS},
        column="end_to_end_p99_us",
        paper={"brisk_wc": 21_900.0, "fd": 12_500.0, "sd": 13_500.0, "lr": 204_800.0},
        needs=ENGINES,
    ),
)
OPERATORS = (
    Claim(
        "Others of each operator are about 10 % of Storm's, and Execute is 5 to 24 % of Storm's.",
        "section 6.3, figure 8",
        needs=ENGINES,
    ),
    Claim(
        "If the producer is remote, a tuple takes longer: up to 9.4 times, and the longer the farther.",
        "sections 6.2 and 6.3, figure 8, table 3",
        needs=NODES,
    ),
)
SCALING = (
    Claim(
        "The throughput grows nearly linearly from one to four sockets.",
        "section 6.3, figures 9 and 10",
        {"executor": "pinned"},
        over={"threads": 1},
        needs=NODES,
    ),
    Claim(
        "BriskStream is faster than StreamBox on any number of cores, with StreamBox's order and without.",
        "section 6.3, figure 11",
        {"executor": "pinned", "app": SHAPES["wc"]},
        over={"executor": MORSEL, "variant": (f"{MORSEL}, order total", f"{MORSEL}, order none")},
        by=("threads",),
    ),
)
JUMBO = Claim(
    "Jumbo tuples amortise headers and queue accesses, and are important for throughput.",
    "section 5.2; section 6.5, figure 16",
    {"channel": "pair_queue", "batch": BATCHES[-1]},
    {"channel": "gate", "batch": BATCHES[-1]},
    {"batch": BATCHES[0]},
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
    return [Heat("brisk_wc", {}, ways)], notes if is_possible else [*notes, "One thread: there is no remote producer."]


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


def _name_variants(rows: list[Row]) -> None:
    """Add `variant`: as published, ours (the default), replicated, pooled, or the loop."""
    for row in rows:
        if row.get("executor") == "pooled":
            row["variant"] = POOLED
        elif row.get("executor") != "pinned":
            row["variant"] = "loop"
        elif row["channel"] == "pair_queue":
            row["variant"] = PUBLISHED
        else:
            row["variant"] = OURS if row.get("plan") or row["threads"] == 1 else REPLICATED


def _name_executors(rows: list[Row]) -> None:
    """Add `variant`: as published, executor morsel and its order, or the loop."""
    for row in rows:
        row["variant"] = {"pinned": PUBLISHED, MORSEL: MORSEL}.get(row.get("executor", ""), "loop")
        if row["variant"] == MORSEL:
            row["variant"] += f", order {row.get('order', 'total')}"


def _add_placement(rows: list[Row]) -> None:
    """Add `placement`: whether the producers of all operators are on the same thread."""
    for row in rows:
        threads = {thread for places in row.get("plan", {}).values() for thread in places}
        row["placement"] = "remote" if len(threads) > 1 else "local"


def _costs(rows: list[Row]) -> Iterator[str]:
    """Yield Execute and Others of the operators of WC, and what a remote producer costs."""
    for channel in ("pair_queue", "gate"):
        local, remote = (pick(rows, app="brisk_wc", channel=channel, placement=at) for at in ("local", "remote"))
        parts = []
        for name, cost in (local or {}).get("operators", {}).items():
            execute, others = cost["execute"], cost["others"]
            part = f"{name} execute {three_digits(execute)} ns, others {three_digits(others)} ns"
            if remote and execute + others > 0:
                away = remote["operators"][name]
                trip = away["execute"] + away["others"]
                part += f", remote {trip - execute - others:+.3g} ns ({three_digits(trip / (execute + others))} times)"
            parts += [part] if name != "source" else []
        if parts:
            yield f"{channel}: {'; '.join(parts)}"


SUITE = Suite(
    "briskstream",
    "BriskStream: queues per pair, jumbo tuples and pinned replicas",
    ("pinned", "channels"),
    (
        Experiment(
            "applications",
            "figures 6 and 7, table 5",
            "Throughput and latency as published, and ours",
            APPLICATIONS,
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
            describe=_name_variants,
            needs="cores",
        ),
        Experiment(
            "operators",
            "figures 3 and 8, table 3",
            "Execute, Others and remote per operator of WC",
            OPERATORS,
            _operators,
            (Plot("placement", "events_per_s", "throughput", kind="bar", loop=False),),
            describe=_add_placement,
            conclude=_costs,
            needs="nodes",
            has_operators=True,
        ),
        Experiment(
            "scaling",
            "figures 9, 10 and 11",
            "Throughput over threads, beside executor morsel",
            SCALING,
            _scaling,
            (Plot("threads", "to_loop", "throughput, relative to the compiled loop", lines=("variant",)),),
            describe=_name_executors,
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
        ),
    ),
    pinned=True,
    machine="144 cores, on eight sockets",
)
