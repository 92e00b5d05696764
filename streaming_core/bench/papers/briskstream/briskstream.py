"""The experiments of BriskStream (section 6): its engine here, and its optimiser by the model for its servers.

The way as published has channel `pair_queue`, the plan that `rlas` finds for this machine, pinned threads, and the
paper's shape of WC (`brisk_wc`). FD and SD have the paper's shapes. LR has ours, which differs from figure 18c. Ours is
channel `gate`, in total order, with the plan of `balanced`. The paper gives no size of jumbo tuples, so all ways have
the default batch.

BriskStream keeps no order. Without order the results of LR could not be checked, because they depend on the order of
its events. So LR as published has channel `gate` too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from streaming_core.apps import registry
from streaming_core.bench.claims import NODES, Claim
from streaming_core.bench.papers.briskstream import servers
from streaming_core.bench.race.ratios import Row, pick, three_digits
from streaming_core.bench.race.subject import SEED
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite
from streaming_core.data import workload
from streaming_core.planner import strategies
from streaming_core.planner.placed import Placed
from streaming_core.regression.home import Home
from streaming_core.run import host, planning, profile
from streaming_core.run.way import Morsel, Pinned, Pooled

APPS = ("brisk_wc", "fd", "sd", "lr")
EVENTS = 10_000_000  # of the largest workload
SHARES = {"brisk_wc": 0.3, "fd": 0.8, "sd": 1.0, "lr": 0.15}  # of these events: about a second of the slowest way
JUMBO_APPS = ("brisk_wc", "sd")
BATCHES = (1, 256)
PUBLISHED, OURS, POOLED, MORSEL = "published", "ours", "pooled", "morsel"
STRATEGIES = {PUBLISHED: "rlas", OURS: strategies.DEFAULT}
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
        "The estimate for the optimal plan is close to the measurement.",
        "section 6.2, table 4, on eight sockets",
        {"variant": PUBLISHED},
        {"variant": OURS},
        column="error",
        expects="<=",
        paper={"brisk_wc": 0.088, "fd": 0.14, "sd": 0.02, "lr": 0.06},
    ),
    Claim(
        "BriskStream is faster than StreamBox, whose workers take batches through the whole pipeline.",
        "section 6.3, figure 11",
        {"variant": PUBLISHED, "app": "brisk_wc"},
        {"variant": OURS, "app": "brisk_wc"},
        {"variant": MORSEL},
    ),
)
REMOTE = Claim(
    "If the producer is remote, a tuple takes longer: up to 9.4 times, and the longer the farther.",
    "sections 6.2 and 6.3, figure 8, table 3",
    needs=NODES,
)
JUMBO = Claim(
    "Jumbo tuples amortise headers and queue accesses, and are important for throughput.",
    "section 5.2; section 6.5, figure 16",
    {"channel": "pair_queue", "batch": BATCHES[-1]},
    {"channel": "gate", "batch": BATCHES[-1]},
    {"batch": BATCHES[0]},
)


def _channel(app: str, variant: str = PUBLISHED) -> str:
    """Return the channel of a variant: that of the published one has no order, if results can be checked then."""
    return "pair_queue" if variant == PUBLISHED and registry.load(app).unordered else "gate"


@cache
def _plan(app: str, variant: str, threads: int) -> Placed:
    """Plan with a profile of the first events of the races, measured once per process."""
    loaded = registry.load(app)
    bound = loaded.bind({})
    folder = Home().workload(app, workload.address(loaded, bound, profile.EVENTS, SEED))
    workload.write(loaded, bound, profile.EVENTS, SEED, folder)
    known, _ = profile.kept(workload.read(folder, loaded), _channel(app, variant))
    return planning.find_on(known, host.machine(threads), STRATEGIES[variant])


def _pipeline(app: str, threads: int) -> dict[str, list[int]]:
    """Return a plan with one replica per operator and equally many consecutive operators on each thread."""
    names = ["source", *(operator.name for operator in registry.load(app).operators[1:-1]), "sink"]
    return {name: [place * threads // len(names)] for place, name in enumerate(names)}


def _placed(app: str, is_remote: bool) -> dict[str, list[int]]:
    """Return a plan for a chain on two threads: each operator beside its producer, or on the other thread."""
    return {name: [place % 2 * is_remote] for place, name in enumerate(_pipeline(app, 1))}


def _applications(counts: list[int]) -> tuple[list[Heat], list[str]]:
    cores = len(planning.probe.topology()["cores"])
    threads, heats = min(max(counts), cores), []
    for app in APPS:
        planned = [
            Pinned(
                app=app, channel=_channel(app, variant), threads=threads, plan=_plan(app, variant, threads).as_plan()
            )
            for variant in STRATEGIES
        ]
        ways = [*planned, Pooled(app=app, threads=threads), Morsel(app=app, threads=threads)]
        heats.append(Heat(app, {}, ways, SHARES[app]))
    return heats, [
        "Without order, the check covers what the application declares to agree without order.",
        "The plan as published is that of `rlas` for this machine. A thread counts as a socket. The search takes the "
        "highest rate at which nothing is over-supplied.",
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


def _jumbo(counts: list[int]) -> tuple[list[Heat], list[str]]:
    threads, heats = max(counts), []
    for app in JUMBO_APPS:
        plan = _pipeline(app, threads)
        ways = [
            Pinned(app=app, channel=channel, threads=threads, batch=batch, plan=plan)
            for channel in ("pair_queue", "gate")
            for batch in BATCHES
        ]
        heats.append(Heat(app, {}, ways))
    return heats, ["The operators are in equal parts on the threads, so that all ways have the same plan."]


def _name_variants(rows: list[Row]) -> None:
    """Add `variant`, and to planned ways what the model predicts and its error."""
    seen: dict[int, int] = {}
    for row in rows:
        row["variant"] = row.get("executor", "loop")
        if row["variant"] != "pinned":
            continue
        row["variant"] = [*STRATEGIES][seen.setdefault(row["heat"], 0)]
        seen[row["heat"]] += 1
        predicted = _plan(row["app"], row["variant"], row["threads"]).events_per_s
        row["predicted_per_s"] = predicted
        row["error"] = abs(row["events_per_s"] - predicted) / row["events_per_s"]


def _errors(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        if "error" in row:
            predicted, measured = (three_digits(row[name] / 1e6) for name in ("predicted_per_s", "events_per_s"))
            yield f"{row['app']}, {row['variant']}: {predicted} M/s predicted, {measured} M/s measured"


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
    "BriskStream: pinned replicas, queues per pair, jumbo tuples and planned placement",
    (
        Experiment(
            "applications",
            "figures 6 and 11, table 4",
            "As published and ours, and other executors",
            APPLICATIONS,
            _applications,
            (Plot("variant", "to_loop", "throughput, relative to the compiled loop", kind="bar"),),
            events=EVENTS,
            describe=_name_variants,
            conclude=_errors,
            needs="cores",
        ),
        Experiment(
            "jumbo_tuples",
            "section 5.2, figure 16",
            "Size of jumbo tuples",
            (JUMBO,),
            _jumbo,
            (Plot("batch", "events_per_s", "events per second", lines=("channel",), log=True, loop=False),),
        ),
        Experiment(
            "operators",
            "figures 3 and 8, table 3",
            "Execute, Others and remote per operator of WC",
            (REMOTE,),
            _operators,
            (Plot("placement", "events_per_s", "throughput", kind="bar", loop=False),),
            describe=_add_placement,
            conclude=_costs,
            needs="nodes",
            has_operators=True,
        ),
        servers.EXPERIMENT,
    ),
    pinned=True,
    machine="144 cores, on eight sockets",
)
