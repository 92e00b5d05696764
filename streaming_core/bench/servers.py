"""What the planner's model says of the paper's servers, with operators as they were measured here: simulated, not run.

Times of a row are this host's (its clock and a server's are not compared), latencies and bandwidths the server's, and
there is one source and one sink, as executor pinned has them; the paper replicates both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache
from typing import Any

from streaming_core.apps import registry
from streaming_core.bench.race import SEED, Row
from streaming_core.bench.suite import Claim, Experiment, Plot
from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.planner.machine import Machine
from streaming_core.planner.model import estimate
from streaming_core.planner.placed import Placed
from streaming_core.regression.home import Home
from streaming_core.run import planning, profile

SERVERS = ("server_a", "server_b")
# As the paper runs them, without order, where the application can do so.
APPS = {"wc": "spsc", "fd": "spsc", "sd": "spsc", "lr": "scalegate"}
STRATEGIES = ("rlas", "rlas_fix_l", "rlas_fix_u", "first_fit", "round_robin")
SOCKETS = (1, 2, 4, 8)
DRAWN = 100

NOTE = (
    "Simulated: the model's word for operators that were measured on this host and servers as the paper describes them."
)
ONE_SINK = "One source and one sink, as executor pinned has them: where these are the bottleneck, sockets add nothing."

FIXED = Claim(
    "RLAS is 19 to 39 % ahead of a search that takes the worst distance for all (fix L); one that takes none (fix U) "
    "falls behind it by far.",
    "BriskStream, section 6.4, Figure 12",
)
PLACING = Claim(
    "With the same replicas, RLAS's placements are ahead of first fit, of round robin and of the operating system's.",
    "BriskStream, section 6.4, Figure 13",
)
SCALING = Claim(
    "Throughput grows nearly linearly up to four sockets; without remote memory access it is 89 to 95 % of ideal.",
    "BriskStream, section 6.3, Figures 9 and 10",
)
RANDOM = Claim("None of 1,000 random plans is better than the one found.", "BriskStream, section 6.4, Figure 14")
DISTRIBUTION = Claim(
    "Operators take stable times: the 50th percentile of a profile predicts well.", "BriskStream, section 3.1, Figure 3"
)


@cache
def measured(app: str, channel: str, events: int, params: tuple[tuple[str, Any], ...] = ()) -> profile.Profile:
    """Measured with the first events of the workload that races run over; once."""
    loaded = registry.load(app)
    bound = loaded.bind(dict(params))
    folder = Home().workload(app, workload.address(loaded, bound, events, SEED))
    workload.write(loaded, bound, events, SEED, folder)
    return profile.kept(workload.read(folder, loaded), channel)[0]


def _row(app: str, way: str, **more: Any) -> Row:
    """A row of what was not run."""
    none = dict.fromkeys(("events_per_s", "to_loop", "to_loop_range"))
    return {"app": app, "way": way, "params": {}, "threads": 0, "seconds": [], "result": "simulated", **none, **more}


def _known(app: str) -> profile.Profile:
    return measured(app, APPS[app], profile.EVENTS)


def _found(app: str, machine: Machine, strategy: str, seed: int = 0) -> Placed:
    return planning.find_on(_known(app), machine, strategy, seed)


def _strategies() -> Iterator[Row]:
    for app in APPS:
        _known(app)  # before the clock runs
        for server in SERVERS:
            for strategy in STRATEGIES:
                began = time.perf_counter()
                found = _found(app, Machine.named(server), strategy)
                seconds = time.perf_counter() - began
                sustained = found.estimate.sustained
                yield _row(
                    app,
                    strategy,
                    machine=server,
                    threads=sum(found.replicas.values()),
                    predicted_per_s=sustained.ingress,
                    bottleneck=str(sustained.bottleneck),
                    search_seconds=seconds,
                )


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
                f"{ours['threads']} replicas, limited by {ours['bottleneck']}; times {others}"
            )


def _sockets() -> Iterator[Row]:
    for app in APPS:
        for server in SERVERS:
            whole, ideal = Machine.named(server), None
            for count in SOCKETS:
                machine = whole.first(count)
                try:
                    found = _found(app, machine, "rlas")
                except BadInput:  # more operators than places
                    continue
                near = machine.changed(latency=[[0.0] * count] * count)
                local = estimate(found.graph, near, found.sockets, cores=found.cores).sustained.ingress
                sustained = found.estimate.sustained.ingress
                ideal = ideal or sustained / count
                for way, value in (("rlas", sustained), ("no remote access", local), ("linear", ideal * count)):
                    yield _row(app, way, machine=server, sockets=count, predicted_per_s=value)


def _by_sockets(rows: list[Row]) -> Iterator[str]:
    for app in dict.fromkeys(row["app"] for row in rows):
        for server in SERVERS:
            mine = [row for row in rows if (row["app"], row["machine"], row["way"]) == (app, server, "rlas")]
            first = mine[0]
            gains = ", ".join(f"{r['sockets']}: {r['predicted_per_s'] / first['predicted_per_s']:.2f}" for r in mine)
            yield f"{app} on {server}: what is sustained by sockets, relative to {first['sockets']}: {gains}"


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
        yield f"{app}: the best of {DRAWN} random plans on server_a sustains {best:.0%} of what rlas finds"


def _times() -> Iterator[Row]:
    for app in APPS:
        alone = min(_known(app).patterns, key=lambda pattern: sum(pattern.replicas.values()))
        # The source executes nothing, and what the sink does in this pattern others have done for it.
        for operator, cost in [(o, c) for o, c in alone.costs.items() if o not in (profile.SOURCE, profile.SINK)]:
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
        yield f"{app}, ns a row in the median batch (10th to 90th percentile): {said}"


def _experiment(name: str, figure: str, title: str, claims: tuple[Claim, ...], model, conclude, *plots: Plot, **more):
    notes = more.pop("notes", [NOTE, ONE_SINK])
    return Experiment(name, figure, title, claims, lambda _: ([], notes), plots, model=model, conclude=conclude, **more)


EXPERIMENTS = (
    _experiment(
        "times",
        "section 3.1, Figure 3",
        "what executing a row takes, batch by batch",
        (DISTRIBUTION,),
        _times,
        _by_times,
        Plot("execute_ns", "batches", "batches by time of a row", log=True, loop=False),
        notes=["Measured here, on one thread, when profiles are made; a point is a twentieth of the batches."],
    ),
    _experiment(
        "strategies",
        "section 6.4, Figures 12 and 13",
        "simulated: strategies on the paper's servers",
        (FIXED, PLACING),
        _strategies,
        _by_strategy,
        Plot("machine", "predicted_per_s", "simulated, by strategy", kind="bar", loop=False),
    ),
    _experiment(
        "sockets",
        "section 6.3, Figures 9(b) and 10",
        "simulated: more sockets, and what remote memory costs",
        (SCALING,),
        _sockets,
        _by_sockets,
        Plot("sockets", "predicted_per_s", "simulated, by sockets", lines=("machine", "way"), loop=False),
    ),
    _experiment(
        "random_plans",
        "section 6.4, Figure 14",
        "simulated: random plans beside the one found",
        (RANDOM,),
        _random,
        _by_lot,
        Plot("of_found", "plans", "simulated: random plans", by="", lines=("app",), loop=False),
    ),
)
