"""Simulations: what the planner's model predicts for the paper's servers, from operators measured here.

Our operators take a thirtieth of the time per row that the paper's take. So it would never pay to send a row to another
socket. The simulation therefore slows all operators by one factor, until WC's Splitter takes as long as on server A. As
in the paper, sources and sinks may be replicated. Experiment `sockets` also shows operators as measured, with one
source and one sink, as executor pinned has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from streaming_core.apps import registry
from streaming_core.bench.ratios import Row
from streaming_core.bench.subject import SEED
from streaming_core.bench.suite import Claim, Experiment, Plot
from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.planner import strategies
from streaming_core.planner.graph import GROUPS, Graph, Operator
from streaming_core.planner.machine import Machine
from streaming_core.planner.model import estimate
from streaming_core.planner.placed import Placed
from streaming_core.regression.home import Home
from streaming_core.run import planning, profile

SERVERS = ("server_a", "server_b")
# Like the paper, without order where the application allows it.
UNORDERED = "shared_ring"
APPS = {"wc": UNORDERED, "fd": UNORDERED, "sd": UNORDERED, "lr": "gate"}
PUBLISHED, OURS = "rlas", strategies.DEFAULT
# The name of the way with operators as measured.
MEASURED = f"{OURS}, as measured"
STRATEGIES = (OURS, PUBLISHED, "rlas_fix_l", "rlas_fix_u", "first_fit", "round_robin")
PLACEMENTS = ("first_fit", "round_robin")  # with the replicas of `rlas`
SOCKETS = (1, 2, 4, 8)
COMPRESSIONS = (1, 3, 5, 10, 15)
TABLE_3 = (0, 1, 3, 4, 7)  # sockets of the consumer; the producer is on S0
DRAWN, QUANTILES = 1000, 40  # random plans of an application, and the quantiles of them that are kept
# T_e of the paper's Splitter in ns, and the clock of server A, on which it was measured.
SPLITTER, CLOCK_GHZ = 1612.8, 1.2

NOTE = (
    "Simulated: the model's prediction for the servers in the paper. Operators are as measured here, but slowed until "
    f"WC's Splitter takes {SPLITTER:,} ns, as in Table 3. Sources and sinks may be replicated."
)


def _relative_ranges(rows: list[Row], strategy: str, *others: str, servers: Sequence[str] = SERVERS) -> str:
    """Return the ranges over applications and servers of a strategy's throughput relative to others."""
    texts = []
    for other in others:
        ratios = [
            row["predicted_per_s"] / them["predicted_per_s"]
            for row in rows
            for them in rows
            if (row["app"], row["machine"]) == (them["app"], them["machine"])
            and (row["way"], them["way"]) == (strategy, other)
            and row["machine"] in servers
        ]
        texts += [f"{min(ratios):.2f} to {max(ratios):.2f} times {other}"] if ratios else []
    return ", ".join(texts)


SIMULATED = "Simulated. This host has one memory node."
FIXED = (
    Claim(
        "RLAS is faster than a search that assumes the worst distance for every row, fix(L).",
        "BriskStream, section 6.4, Figure 12",
        "19 to 39 % faster",
        published=lambda rows: _relative_ranges(rows, PUBLISHED, "rlas_fix_l"),
        ours=lambda rows: _relative_ranges(rows, OURS, "rlas_fix_l"),
        host=SIMULATED,
    ),
    Claim(
        "RLAS is much faster than a search that assumes no distance, fix(U).",
        "BriskStream, section 6.4, Figure 12",
        "119 to 455 % faster: 2.2 to 5.6 times",
        published=lambda rows: _relative_ranges(rows, PUBLISHED, "rlas_fix_u"),
        ours=lambda rows: _relative_ranges(rows, OURS, "rlas_fix_u"),
        host=SIMULATED,
    ),
)
PLACING = (
    Claim(
        "With the same replicas, RLAS's placements are better than those of first fit and round robin.",
        "BriskStream, section 6.4, Figure 13",
        published=lambda rows: _relative_ranges(rows, PUBLISHED, *PLACEMENTS),
        ours=lambda rows: _relative_ranges(rows, OURS, *PLACEMENTS),
        host=f"{SIMULATED} Experiment `placement` measures all, and the operating system's placement.",
    ),
    Claim(
        "RLAS performs better on server B than on server A.",
        "BriskStream, section 6.4, Figure 13",
        published=lambda rows: _servers_compared(rows, PUBLISHED),
        ours=lambda rows: _servers_compared(rows, OURS),
        host=SIMULATED,
    ),
)
SCALING = (
    Claim(
        "Throughput grows nearly linearly up to four sockets, and less beyond.",
        "BriskStream, section 6.3, Figure 9(b)",
        published=lambda rows: _grown(rows, PUBLISHED),
        ours=lambda rows: _grown(rows, OURS),
        host=SIMULATED,
    ),
    Claim(
        "Without remote memory access, throughput on eight sockets would be close to linear.",
        "BriskStream, section 6.3, Figure 10",
        "89 to 95 % of linear",
        published=lambda rows: _ideal(rows, PUBLISHED),
        ours=lambda rows: _ideal(rows, OURS),
        host=SIMULATED,
    ),
)
RANDOM = Claim(
    "None of 1,000 random plans is better than the one found.",
    "BriskStream, section 6.4, Figure 14",
    "0 of 1,000",
    published=lambda rows: _beaten(rows, "better_than_rlas"),
    ours=lambda rows: _beaten(rows, "better_than_found"),
    host=f"{SIMULATED} Experiment `random` measures 30 random plans.",
)
MATRIX = Claim(
    "On server A, the sockets fetch mostly from one socket. On server B, they fetch evenly from all.",
    "BriskStream, section 6.4, Figure 15",
    host=f"{SIMULATED} Ours replicates sources, so every socket supplies a part.",
)
COMPRESSED = Claim(
    "Units of 5 replicas give the best plan. Units of 10 and 15 are too coarse.",
    "BriskStream, section 6.4, Table 7",
    "k events/s and seconds, by replicas per unit: 1: 10,140, 93.4; 3: 10,080, 48.3; 5: 96,391, 23.0; "
    "10: 84,956, 46.5; 15: 77,774, 45.3",
    published=lambda rows: _units(rows, PUBLISHED),
    ours=lambda rows: _units(rows, OURS),
    host=f"{SIMULATED} Ours needs no units. Published: at most {strategies.PAPER_BUDGET} nodes a placement.",
)
DISTRIBUTION = Claim(
    "Operators take stable times, so the 50th percentile of a profile predicts well.",
    "BriskStream, section 3.1, Figure 3",
    host="Measured. Operators that close windows, and sinks with few rows a batch, do rare long work. Their mean is "
    "far above the median, so ours uses the mean.",
)
DISTANCES = Claim(
    "The time per tuple grows with the distance, and the estimate is above the measurement, most for the Splitter.",
    "BriskStream, section 6.2, Table 3",
    "ns, measured / estimated. Splitter: S0 1612.8, S1 1666.5 / 1991.1, S3 1708.2 / 1994.9, S4 2050.6 / 2923.7, "
    "S7 2371.3 / 3196.4. Counter: S0 612.3, S1 611.4 / 665.2, S3 623.1 / 665.9, S4 889.9 / 837.9, S7 870.2 / 888.4",
    published=lambda rows: _distance_text(rows),
    host=f"{SIMULATED} The paper's estimates do not follow from equation (2) with its Table 2.",
)


@cache
def measured(app: str, channel: str, events: int, params: tuple[tuple[str, Any], ...] = ()) -> profile.Profile:
    """Measure a profile with the first events of the workload of the races, once per process."""
    loaded = registry.load(app)
    bound = loaded.bind(dict(params))
    folder = Home().workload(app, workload.address(loaded, bound, events, SEED))
    workload.write(loaded, bound, events, SEED, folder)
    return profile.kept(workload.read(folder, loaded), channel)[0]


def simulated(app: str, way: str, **more: Any) -> Row:
    """Return a row of a simulation."""
    none = dict.fromkeys(("events_per_s", "to_loop", "to_loop_range"))
    return {"app": app, "way": way, "params": {}, "threads": 0, "rates": [], "result": "simulated", **none, **more}


def _profile_of(app: str) -> profile.Profile:
    return measured(app, APPS.get(app, UNORDERED), profile.EVENTS)


@cache
def _slowed_graph(app: str) -> Graph:
    """Return an application as slow as the paper's, with any number of sources and sinks."""
    splitter = measured("wc", UNORDERED, profile.EVENTS).alone["split"].median
    graph = _profile_of(app).graph(registry.load(app), median=True).slowed(SPLITTER / splitter)

    def replicated(operator: Operator) -> Operator:
        ends = operator.kind in (profile.SOURCE, profile.SINK)
        return operator.model_copy(update={"most": GROUPS}) if ends else operator

    return graph.mapped(replicated, clock_ghz=CLOCK_GHZ)


@cache
def _best(
    app: str, server: str, strategy: str, sockets: int | None = None, compression: int = strategies.COMPRESSION
) -> tuple[Placed, float]:
    """Return the plan for a server, or for its first sockets, and the seconds of the search, once per process.

    Raises:
        BadInput: The application has more operators than these sockets have cores.
    """
    graph, machine = _slowed_graph(app), Machine.named(server)
    machine = machine if sockets is None else machine.first(sockets)
    replicas = _replicas(app, server) if strategy in PLACEMENTS else None
    began = time.perf_counter()
    plan = strategies.plan(strategy, graph, machine, compression=compression, replicas=replicas)
    return plan, time.perf_counter() - began


def _replicas(app: str, server: str) -> tuple[int, ...]:
    """Return the replicas that the paper's search finds."""
    return tuple(_best(app, server, PUBLISHED)[0].replicas.values())


def _sustained(app: str, server: str, strategy: str) -> float:
    return _best(app, server, strategy)[0].estimate.sustained.ingress


def _searched(app: str, server: str, strategy: str, **more: Any) -> Row:
    """Return the row of a plan: its predicted throughput, and the seconds of the search."""
    plan, seconds = _best(app, server, strategy, **more)
    sustained = plan.estimate.sustained
    return simulated(
        app,
        strategy,
        machine=server,
        threads=sum(plan.replicas.values()),
        predicted_per_s=sustained.ingress,
        bottleneck=str(sustained.bottleneck),
        search_seconds=seconds,
        **more,
    )


def _strategies() -> Iterator[Row]:
    for app in APPS:
        for server in SERVERS:
            for strategy in STRATEGIES:
                yield _searched(app, server, strategy)


def _by_strategy(rows: list[Row]) -> Iterator[str]:
    for app in dict.fromkeys(row["app"] for row in rows):
        for server in SERVERS:
            mine = [row for row in rows if (row["app"], row["machine"]) == (app, server)]
            plans = "; ".join(
                f"{row['way']} {row['predicted_per_s'] / 1e6:.2f} M events/s with {row['threads']} replicas, "
                f"limited by {row['bottleneck']}"
                for row in mine
            )
            yield f"{app} on {server}: {plans}"


def _servers_compared(rows: list[Row], strategy: str) -> str:
    by = {(row["app"], row["machine"]): row["predicted_per_s"] for row in rows if row["way"] == strategy}
    ratios = (
        {app: by[app, SERVERS[-1]] / by[app, SERVERS[0]] for app, server in by if server == SERVERS[0]}
        if len(SERVERS) > 1
        else {}
    )
    texts = ", ".join(f"{app} {ratio:.2f}" for app, ratio in ratios.items())
    return f"{SERVERS[-1]} over {SERVERS[0]}: {texts}" if texts else ""


def _sockets() -> Iterator[Row]:
    for app in APPS:
        for server in SERVERS:
            whole = Machine.named(server)
            for strategy in (PUBLISHED, OURS):
                ideal = None
                for count in SOCKETS:
                    machine = whole.first(count)
                    try:
                        plan, _ = _best(app, server, strategy, count if count < whole.sockets else None)
                    except BadInput:  # more operators than cores
                        continue
                    near = machine.changed(latency=[[0.0] * count] * count)
                    local = estimate(plan.graph, near, plan.sockets, cores=plan.cores).sustained.ingress
                    sustained = plan.estimate.sustained.ingress
                    ideal = ideal or sustained / count
                    ways = {
                        strategy: sustained,
                        f"{strategy}, no remote access": local,
                        f"{strategy}, linear": ideal * count,
                    }
                    if strategy == OURS:
                        ways[MEASURED] = planning.find_on(_profile_of(app), machine).estimate.sustained.ingress
                    for way, value in ways.items():
                        yield simulated(app, way, machine=server, sockets=count, predicted_per_s=value)


def _gains(rows: list[Row], way: str) -> Iterator[tuple[str, str, list[Row]]]:
    for app in dict.fromkeys(row["app"] for row in rows):
        for server in SERVERS:
            mine = [row for row in rows if (row["app"], row["machine"], row["way"]) == (app, server, way)]
            if mine:
                yield app, server, mine


def _grown(rows: list[Row], way: str) -> str:
    """Return the speed-up of the most sockets, and of four, over one."""
    return "; ".join(
        f"{app} on {server}: "
        + ", ".join(f"{row['sockets']}: {row['predicted_per_s'] / mine[0]['predicted_per_s']:.2f}" for row in mine)
        for app, server, mine in _gains(rows, way)
    )


def _ideal(rows: list[Row], way: str) -> str:
    """Return the throughput without remote access on the most sockets, relative to linear growth."""
    shares = [
        local[-1]["predicted_per_s"] / linear[-1]["predicted_per_s"]
        for (_, _, local), (_, _, linear) in zip(
            _gains(rows, f"{way}, no remote access"), _gains(rows, f"{way}, linear"), strict=True
        )
    ]
    return f"{min(shares):.0%} to {max(shares):.0%} of linear" if shares else ""


def _by_sockets(rows: list[Row]) -> Iterator[str]:
    for way in (PUBLISHED, OURS, MEASURED):
        for app, server, mine in _gains(rows, way):
            first = mine[0]["predicted_per_s"]
            gains = ", ".join(f"{row['sockets']}: {row['predicted_per_s'] / first:.2f}" for row in mine)
            yield (
                f"{app} on {server}, {way}: {first / 1e6:.2f} M events/s on {mine[0]['sockets']} socket; speedup "
                f"by number of sockets: {gains}"
            )


def _random() -> Iterator[Row]:
    machine = Machine.named(SERVERS[0])
    for app in APPS:
        ours, theirs = (_sustained(app, machine.name, strategy) for strategy in (OURS, PUBLISHED))
        plans = (strategies.plan("random", _slowed_graph(app), machine, seed=seed) for seed in range(DRAWN))
        drawn = sorted(plan.estimate.sustained.ingress for plan in plans)
        better = {"better_than_found": _above(drawn, ours), "better_than_rlas": _above(drawn, theirs)}
        for at in sorted({number * (DRAWN - 1) // QUANTILES for number in range(QUANTILES + 1)}):
            of = {"of_found": drawn[at] / ours, "of_rlas": drawn[at] / theirs}
            yield simulated(app, "random", machine=machine.name, plans=(at + 1) / DRAWN, **of, **better)


def _above(rates: list[float], rate: float) -> int:
    return sum(one > rate * (1 + 1e-9) for one in rates)


def _beaten(rows: list[Row], column: str) -> str:
    """Return how many random plans are better than the one found."""
    better = {row["app"]: row[column] for row in rows}
    return ", ".join(f"{app} {number} of {DRAWN:,}" for app, number in better.items())


def _by_lot(rows: list[Row]) -> Iterator[str]:
    for app in dict.fromkeys(row["app"] for row in rows):
        best = max(row["of_found"] for row in rows if row["app"] == app)
        yield f"{app}: the best of {DRAWN:,} random plans on {SERVERS[0]} sustains {best:.0%} of the plan from {OURS}"


def _distances() -> Iterator[Row]:
    machine = Machine.named(SERVERS[0])
    graph = _slowed_graph("wc")
    for operator in (graph.by_name["split"], graph.by_name["count"]):
        one = operator.inputs[0]
        for socket in TABLE_3:
            yield simulated(
                "wc", operator.name, machine=machine.name, socket=socket,
                predicted_ns=one.ns + machine.fetch(one.bytes, 0, socket),
            )  # fmt: skip


def _distance_text(rows: list[Row]) -> str:
    return "; ".join(
        f"{name} " + ", ".join(f"S{row['socket']} {row['predicted_ns']:,.0f} ns" for row in rows if row["way"] == name)
        for name in dict.fromkeys(row["way"] for row in rows)
    )


def _by_distance(rows: list[Row]) -> Iterator[str]:
    yield f"{rows[0]['app']} on {rows[0]['machine']}, time per row by socket of the consumer: {_distance_text(rows)}"


def _matrices() -> Iterator[Row]:
    app = next(iter(APPS))
    for server in SERVERS:
        for strategy in (PUBLISHED, OURS):
            fetching = planning.at_rate(_best(app, server, strategy)[0]).fetching
            for producer, row in enumerate(fetching):
                for consumer, ns in enumerate(row):
                    yield simulated(
                        app, f"{strategy}, from S{producer}", machine=server, strategy=strategy, producer=producer,
                        consumer=consumer, fetching_ns=ns,
                    )  # fmt: skip


def _by_pairs(rows: list[Row]) -> Iterator[str]:
    for server in dict.fromkeys(row["machine"] for row in rows):
        for strategy in (PUBLISHED, OURS):
            sent: dict[int, float] = {}
            for row in rows:
                if (row["machine"], row["strategy"]) == (server, strategy):
                    sent[row["producer"]] = sent.get(row["producer"], 0.0) + row["fetching_ns"]
            total = sum(sent.values())
            shares = ", ".join(f"S{i} {ns / total:.0%}" for i, ns in sent.items()) if total else "nothing"
            yield (
                f"{rows[0]['app']} on {server}, {strategy}: shares of all fetches by the socket they come from (T_f, "
                f"summed over pairs): {shares}"
            )


def _compressions() -> Iterator[Row]:
    for strategy in (PUBLISHED, OURS):
        for compression in COMPRESSIONS:
            yield _searched(next(iter(APPS)), SERVERS[0], strategy, compression=compression)


def _units(rows: list[Row], strategy: str) -> str:
    return ", ".join(
        f"{row['compression']}: {row['predicted_per_s'] / 1e6:.2f} M events/s in {row['search_seconds']:.1f} s"
        for row in rows
        if row["way"] == strategy
    )


def _by_compression(rows: list[Row]) -> Iterator[str]:
    for way in dict.fromkeys(row["way"] for row in rows):
        yield f"{rows[0]['app']} on {rows[0]['machine']}, {way}, by replicas per unit: {_units(rows, way)}"


def _times() -> Iterator[Row]:
    for app in APPS:
        alone = _profile_of(app).alone
        # The source executes nothing, and in this pattern other operators do the work of the sink.
        for operator, cost in [(o, c) for o, c in alone.items() if o not in (profile.SOURCE, profile.SINK)]:
            for number, ns in enumerate(cost.quantiles):
                share = number / (len(cost.quantiles) - 1)
                yield simulated(app, operator, result="measured", execute_ns=ns, batches=share, threads=1)


def _by_times(rows: list[Row]) -> Iterator[str]:
    for app in dict.fromkeys(row["app"] for row in rows):
        spread = {}
        for operator in dict.fromkeys(row["way"] for row in rows if row["app"] == app):
            of = [row["execute_ns"] for row in rows if (row["app"], row["way"]) == (app, operator)]
            spread[operator] = f"{of[len(of) // 2]:.0f} ({of[len(of) // 10]:.0f} to {of[-1 - len(of) // 10]:.0f})"
        times = ", ".join(f"{operator} {text}" for operator, text in spread.items())
        yield f"{app}, ns per row in the median batch (10th to 90th percentile): {times}"


def _experiment(
    name: str,
    figure: str,
    title: str,
    claims: tuple[Claim, ...],
    model: Callable[[], Iterator[Row]],
    conclude: Callable[[list[Row]], Iterator[str]],
    *plots: Plot,
    **more: Any,
) -> Experiment:
    notes = more.pop("notes", [NOTE])
    return Experiment(name, figure, title, claims, lambda _: ([], notes), plots, model=model, conclude=conclude, **more)


EXPERIMENTS = (
    _experiment(
        "times",
        "section 3.1, Figure 3",
        "Execution time per row, batch by batch",
        (DISTRIBUTION,),
        _times,
        _by_times,
        Plot("execute_ns", "batches", "share of batches, by time per row", log=True, loop=False),
        notes=[
            "Measured on this machine, on one thread, with the profiles; a point stands for a twentieth of the batches."
        ],
    ),
    _experiment(
        "strategies",
        "section 6.4, Figures 12 and 13",
        "Simulated: strategies on the paper's servers",
        (*FIXED, *PLACING),
        _strategies,
        _by_strategy,
        Plot("machine", "predicted_per_s", "simulated throughput, by strategy", kind="bar", loop=False),
    ),
    _experiment(
        "sockets",
        "section 6.3, Figures 9(b) and 10",
        "Simulated: more sockets, and the cost of remote memory",
        SCALING,
        _sockets,
        _by_sockets,
        Plot("sockets", "predicted_per_s", "simulated throughput, by sockets", lines=("machine", "way"), loop=False),
    ),
    _experiment(
        "random_plans",
        "section 6.4, Figure 14",
        "Simulated: random plans and the plan found",
        (RANDOM,),
        _random,
        _by_lot,
        Plot("of_found", "plans", "simulated: share of random plans", by="", lines=("app",), loop=False),
    ),
    _experiment(
        "distances",
        "section 6.2, Table 3",
        "Simulated: time per row by distance",
        (DISTANCES,),
        _distances,
        _by_distance,
        Plot("socket", "predicted_ns", "simulated ns per row, by socket of the consumer", kind="bar", loop=False),
    ),
    _experiment(
        "matrices",
        "section 6.4, Figure 15",
        "Simulated: data that sockets fetch from each other",
        (MATRIX,),
        _matrices,
        _by_pairs,
        Plot("consumer", "fetching_ns", "simulated T_f, by socket", by="machine", kind="bar", loop=False),
    ),
    _experiment(
        "compression",
        "section 6.4, Table 7",
        "Simulated: the number of replicas placed as one unit",
        (COMPRESSED,),
        _compressions,
        _by_compression,
        Plot("compression", "predicted_per_s", "simulated throughput, by replicas per unit", loop=False),
        Plot("compression", "search_seconds", "search time in seconds", loop=False),
    ),
)
