"""What the planner's model predicts for the paper's servers, from operators measured here: simulated, not run.

Our operators take a thirtieth of the time per row that the paper's take. So it would never pay to send a row to another
socket. The simulation therefore slows all operators by one factor, until WC's Splitter takes as long as on server A. As
in the paper, sources and sinks may be replicated. Experiment `sockets` also shows operators as measured, with one
source and one sink, as executor pinned has them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
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
APPS = {"wc": "shared_ring", "fd": "shared_ring", "sd": "shared_ring", "lr": "gate"}
# The name of the way with operators as measured.
MEASURED = "rlas, as measured"
STRATEGIES = ("rlas", "rlas_fix_l", "rlas_fix_u", "first_fit", "round_robin")
SOCKETS = (1, 2, 4, 8)
COMPRESSIONS = (1, 3, 5, 10, 15)
DRAWN = 100
# T_e of the paper's Splitter in ns, and the clock of server A, on which it was measured.
SPLITTER, CLOCK_GHZ = 1612.8, 1.2

NOTE = (
    "Simulated: the model's prediction for the servers in the paper. Operators are as measured here, but slowed until "
    f"WC's Splitter takes {SPLITTER:,} ns, as in Table 3. Sources and sinks may be replicated."
)

FIXED = Claim(
    "RLAS is 19 to 39 % faster than a search that assumes the worst distance for all (fix L). It is much faster than "
    "a search that assumes no distance (fix U).",
    "BriskStream, section 6.4, Figure 12",
)
PLACING = Claim(
    "With the same replicas, RLAS's placements are better than first fit, round robin and the operating system's.",
    "BriskStream, section 6.4, Figure 13",
)
SCALING = Claim(
    "Throughput grows nearly linearly up to four sockets. Without remote memory access, it is 89 to 95 % of the ideal.",
    "BriskStream, section 6.3, Figures 9 and 10",
)
RANDOM = Claim("None of 1,000 random plans is better than the one found.", "BriskStream, section 6.4, Figure 14")
MATRIX = Claim(
    "On server A, the sockets fetch mostly from one socket. On server B, they fetch evenly from all.",
    "BriskStream, section 6.4, Figure 15",
)
COMPRESSED = Claim(
    "Units of 5 replicas give the best plan, in 23 s. Units of 10 and 15 are too coarse, and with units of 1 and 3 the "
    "search ends too early.",
    "BriskStream, section 6.4, Table 7",
)
DISTRIBUTION = Claim(
    "Operators take stable times, so the 50th percentile of a profile predicts well.",
    "BriskStream, section 3.1, Figure 3",
)


@cache
def measured(app: str, channel: str, events: int, params: tuple[tuple[str, Any], ...] = ()) -> profile.Profile:
    """Measures a profile with the first events of the workload of the races, once per process."""
    loaded = registry.load(app)
    bound = loaded.bind(dict(params))
    folder = Home().workload(app, workload.address(loaded, bound, events, SEED))
    workload.write(loaded, bound, events, SEED, folder)
    return profile.kept(workload.read(folder, loaded), channel)[0]


def _row(app: str, way: str, **more: Any) -> Row:
    """Returns a row of a simulation."""
    none = dict.fromkeys(("events_per_s", "to_loop", "to_loop_range"))
    return {"app": app, "way": way, "params": {}, "threads": 0, "rates": [], "result": "simulated", **none, **more}


def _known(app: str) -> profile.Profile:
    return measured(app, APPS[app], profile.EVENTS)


def _alone(known: profile.Profile) -> dict[str, profile.Cost]:
    """Returns the costs of rows if each operator has one replica."""
    return min(known.patterns, key=lambda pattern: sum(pattern.replicas.values())).costs


@cache
def _published(app: str) -> Graph:
    """Returns an application as slow as the paper's, with any number of sources and sinks."""
    splitter = _alone(measured("wc", "shared_ring", profile.EVENTS))["split"].execute
    graph = _known(app).graph(registry.load(app)).slowed(SPLITTER / splitter)

    def replicated(operator: Operator) -> Operator:
        ends = operator.kind in (profile.SOURCE, profile.SINK)
        return operator.model_copy(update={"most": GROUPS}) if ends else operator

    return graph.mapped(replicated, clock_ghz=CLOCK_GHZ)


def _found(app: str, machine: Machine, strategy: str, seed: int = 0, **more: Any) -> Placed:
    return strategies.plan(strategy, _published(app), machine, seed=seed, **more)


def _searched(app: str, server: str, strategy: str, **more: Any) -> Row:
    """Returns the row of a plan: its predicted throughput, and the seconds of the search."""
    _published(app)  # before the clock runs
    began = time.perf_counter()
    found = _found(app, Machine.named(server), strategy, **more)
    seconds, sustained = time.perf_counter() - began, found.estimate.sustained
    return _row(
        app,
        strategy,
        machine=server,
        threads=sum(found.replicas.values()),
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
            by = {row["way"]: row for row in rows if (row["app"], row["machine"]) == (app, server)}
            ours = by["rlas"]
            others = ", ".join(
                f"{ours['predicted_per_s'] / by[name]['predicted_per_s']:.2f} {name}" for name in STRATEGIES[1:]
            )
            yield (
                f"{app} on {server}: rlas sustains {ours['predicted_per_s'] / 1e6:.2f} M events/s with "
                f"{ours['threads']} replicas, limited by {ours['bottleneck']}; relative to other strategies: {others}"
            )


def _sockets() -> Iterator[Row]:
    for app in APPS:
        for server in SERVERS:
            whole, ideal = Machine.named(server), None
            for count in SOCKETS:
                machine = whole.first(count)
                try:
                    found = _found(app, machine, "rlas")
                except BadInput:  # more operators than cores
                    continue
                near = machine.changed(latency=[[0.0] * count] * count)
                local = estimate(found.graph, near, found.sockets, cores=found.cores).sustained.ingress
                sustained = found.estimate.sustained.ingress
                ideal = ideal or sustained / count
                ours = planning.find_on(_known(app), machine).estimate.sustained.ingress
                ways = {"rlas": sustained, "no remote access": local, "linear": ideal * count, MEASURED: ours}
                for way, value in ways.items():
                    yield _row(app, way, machine=server, sockets=count, predicted_per_s=value)


def _by_sockets(rows: list[Row]) -> Iterator[str]:
    for app in dict.fromkeys(row["app"] for row in rows):
        for server in SERVERS:
            for way in ("rlas", MEASURED):
                mine = [row for row in rows if (row["app"], row["machine"], row["way"]) == (app, server, way)]
                first = mine[0]["predicted_per_s"]
                gains = ", ".join(f"{row['sockets']}: {row['predicted_per_s'] / first:.2f}" for row in mine)
                yield (
                    f"{app} on {server}, {way}: {first / 1e6:.2f} M events/s on {mine[0]['sockets']} socket; speedup "
                    f"by number of sockets: {gains}"
                )


def _random() -> Iterator[Row]:
    machine = Machine.named("server_a")
    for app in APPS:
        best = _found(app, machine, "rlas").estimate.sustained.ingress
        drawn = sorted(_found(app, machine, "random", seed).estimate.sustained.ingress / best for seed in range(DRAWN))
        for number, of_found in enumerate(drawn, 1):
            yield _row(app, "random", machine="server_a", of_found=of_found, plans=number / DRAWN)


def _by_lot(rows: list[Row]) -> Iterator[str]:
    for app in dict.fromkeys(row["app"] for row in rows):
        best = max(row["of_found"] for row in rows if row["app"] == app)
        yield f"{app}: the best of {DRAWN} random plans on server_a sustains {best:.0%} of the plan from rlas"


def _matrices() -> Iterator[Row]:
    app = next(iter(APPS))
    for server in SERVERS:
        fetching = planning.at_rate(_found(app, Machine.named(server), "rlas")).fetching
        for producer, row in enumerate(fetching):
            for consumer, ns in enumerate(row):
                yield _row(app, f"from S{producer}", machine=server, consumer=consumer, fetching_ns=ns)


def _by_pairs(rows: list[Row]) -> Iterator[str]:
    for server in dict.fromkeys(row["machine"] for row in rows):
        sent: dict[str, float] = {}
        for row in rows:
            if row["machine"] == server:
                sent[row["way"]] = sent.get(row["way"], 0.0) + row["fetching_ns"]
        total = sum(sent.values())
        shares = ", ".join(f"{way} {ns / total:.0%}" for way, ns in sent.items()) if total else "nothing"
        yield f"{rows[0]['app']} on {server}: shares of all fetches between sockets (T_f, summed over pairs): {shares}"


def _compressions() -> Iterator[Row]:
    for strategy in ("rlas_paper", "rlas"):
        for compression in COMPRESSIONS:
            yield _searched(next(iter(APPS)), SERVERS[0], strategy, compression=compression)


def _by_compression(rows: list[Row]) -> Iterator[str]:
    for way in dict.fromkeys(row["way"] for row in rows):
        said = ", ".join(
            f"{row['compression']}: {row['predicted_per_s'] / 1e6:.2f} M events/s in {row['search_seconds']:.1f} s"
            for row in rows
            if row["way"] == way
        )
        more = ", which also compresses the graph itself" if way == "rlas" else ""
        yield f"{rows[0]['app']} on {rows[0]['machine']}, {way}{more}, by replicas per unit: {said}"


def _times() -> Iterator[Row]:
    for app in APPS:
        alone = _alone(_known(app))
        # The source executes nothing, and in this pattern other operators do the work of the sink.
        for operator, cost in [(o, c) for o, c in alone.items() if o not in (profile.SOURCE, profile.SINK)]:
            for number, ns in enumerate(cost.quantiles):
                share = number / (len(cost.quantiles) - 1)
                yield _row(app, operator, result="measured", execute_ns=ns, batches=share, threads=1)


def _by_times(rows: list[Row]) -> Iterator[str]:
    for app in dict.fromkeys(row["app"] for row in rows):
        spread = {}
        for operator in dict.fromkeys(row["way"] for row in rows if row["app"] == app):
            of = [row["execute_ns"] for row in rows if (row["app"], row["way"]) == (app, operator)]
            spread[operator] = f"{of[len(of) // 2]:.0f} ({of[len(of) // 10]:.0f} to {of[-1 - len(of) // 10]:.0f})"
        said = ", ".join(f"{operator} {about}" for operator, about in spread.items())
        yield f"{app}, ns per row in the median batch (10th to 90th percentile): {said}"


def _experiment(name: str, figure: str, title: str, claims: tuple[Claim, ...], model, conclude, *plots: Plot, **more):
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
        (FIXED, PLACING),
        _strategies,
        _by_strategy,
        Plot("machine", "predicted_per_s", "simulated throughput, by strategy", kind="bar", loop=False),
    ),
    _experiment(
        "sockets",
        "section 6.3, Figures 9(b) and 10",
        "Simulated: more sockets, and the cost of remote memory",
        (SCALING,),
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
