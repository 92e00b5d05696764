"""The experiments of BriskStream's optimiser (sections 6.2 and 6.4): predicted and measured throughput of plans.

They show the error of predictions, and whether the plan found is among the best plans. Everything here is measured.
`servers.py` has what the model predicts for the paper's servers.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any

from streaming_core.apps import registry
from streaming_core.bench import host, servers
from streaming_core.bench.ratios import Row, compare, right, threads_of
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot, Suite
from streaming_core.planner.model import estimate
from streaming_core.run import host as this
from streaming_core.run import planning, profile
from streaming_core.run.way import Pinned

# The workloads: application and parameters.
PLANNED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("wc", {}),
    ("fd", {}),
    ("sd", {}),
    ("lr", {}),
    ("wordcount", {}),
    ("scalejoin", {"keys": 1000, "size": 60_001}),
)
JOINED = 60_000  # events of scalejoin, whose windows have to fill
DRAWN = 30
# The benchmark fails if the prediction for the plan found is wrong by more than this factor.
FACTOR = 2.0
FOUND, DEFAULT, RANDOM = "found", "default", "random"
# The factors of Figure 16, one more at a time. The first ones in the figure belong to another engine.
FACTORS = ("fix L", "+ jumbo tuples", "+ RLAS")

ERROR = Claim(
    "For the plan found, on eight sockets, |measured - estimated| / measured is 0.088 (WC), 0.14 (FD), 0.02 (SD) and "
    "0.06 (LR).",
    "BriskStream, section 6.2, Table 4",
)
ANALYSIS = Claim(
    "Jumbo tuples reduce the cost of passing rows on. Plans that consider the cost of remote memory gain even more.",
    "BriskStream, section 6.5, Figure 16",
)


def _channels(app: str) -> tuple[str, ...]:
    return ("gate", "shared_ring") if registry.load(app).unordered else ("gate",)


def _default(app: str, threads: int) -> dict[str, list[int]]:
    """Returns the runtime's default plan (plan.rs): a replica on each thread, or a single one, on threads in turn."""
    plan, turn = {}, 0
    for operator in registry.load(app).operators:
        name = profile.name_of(operator)
        if operator.kind in profile.REPLICATED:
            plan[name] = list(range(threads))
        elif operator.kind == "stateful":
            turn += 1
            plan[name] = [turn % threads]
        else:
            plan[name] = [0 if name == profile.SOURCE else threads - 1]
    return plan


def _drawn(app: str, threads: int) -> Iterator[dict[str, list[int]]]:
    """Draws DRAWN different plans with random numbers of replicas in random places, or all plans if fewer exist."""
    most = {
        profile.name_of(operator): threads if operator.kind in profile.REPLICATED else 1
        for operator in registry.load(app).operators
    }
    there_are = math.prod(sum(threads**n for n in range(1, replicas + 1)) for replicas in most.values())
    draw, met = random.Random(0), list[dict[str, list[int]]]()
    while len(met) < min(DRAWN, there_are):
        plan = {
            name: [draw.randrange(threads) for _ in range(draw.randint(1, replicas))] for name, replicas in most.items()
        }
        if plan not in met:
            met.append(plan)
            yield plan


def _plans(app: str, counts: list[int]) -> tuple[list[Heat], list[str]]:
    # Plans assume that each thread has its own core.
    able = [threads for threads in counts if threads <= (os.cpu_count() or 1)] or [1]
    heats = []
    for params in [params for name, params in PLANNED if name == app]:
        for channel in _channels(app):
            known = servers.measured(app, channel, profile.EVENTS, tuple(params.items()))
            ways = []
            for threads in able:
                plans = [planning.find(known, threads=threads).as_plan(), _default(app, threads)]
                if threads > 1 and threads == max(able):
                    plans += _drawn(app, threads)
                given: dict[str, Any] = {"app": app, "params": params, "channel": channel, "pin": True}
                ways += [Pinned(**given, threads=threads, plan=plan) for plan in plans]
            heats.append(Heat(app, params, ways))
    return heats, [
        f"Plan `{FOUND}` comes from the planner. Plan `{DEFAULT}` has a replica of every operator on each thread. "
        f"Plans `{RANDOM}` are {DRAWN} plans with random replicas and places.",
        "The predicted throughput comes from the model and from a profile measured on one thread.",
        "This machine has one memory node, so the effect of remote memory on a plan cannot be measured.",
        host.unshown(counts, "144 cores, on eight sockets"),
    ]


def _judged(rows: list[Row]) -> Iterator[str]:
    """Compares predictions with measurements."""
    heats: dict[tuple, list[Row]] = {}
    for row in rows:
        if row["way"] != "loop":
            heats.setdefault((row["app"], row["channel"]), []).append(row)
    for (app, channel), of_heat in heats.items():
        params = next(params for name, params in PLANNED if name == app)
        known = servers.measured(app, channel, profile.EVENTS, tuple(params.items()))
        for threads, of_threads in itertools.groupby(of_heat, key=lambda row: row["threads"]):
            yield from _of_threads(app, channel, known, threads, list(of_threads))


def _of_threads(app: str, channel: str, known: profile.Profile, threads: int, rows: list[Row]) -> Iterator[str]:
    machine = this.machine(threads)
    graph = known.graph(registry.load(app), threads)
    for number, row in enumerate(rows):
        row["chosen"] = (FOUND, DEFAULT)[number] if number < 2 else RANDOM
        sockets, cores = planning.placed(machine, row["plan"])
        row["predicted_per_s"] = estimate(graph, machine, sockets, cores=cores).sustained.ingress
        row["error"] = abs(row["events_per_s"] - row["predicted_per_s"]) / row["events_per_s"]
    equal = right(rows)
    if not equal or equal[0]["chosen"] != FOUND:
        return
    found, *others = equal
    parted = max(found["predicted_per_s"] / found["events_per_s"], found["events_per_s"] / found["predicted_per_s"])
    found["mispredicted"] = parted > FACTOR
    line = (
        f"{app}, {channel}, {threads_of(found)}: the prediction for the plan found has an error of {found['error']:.0%}"
    )
    if default := next((row for row in others if row["chosen"] == DEFAULT), None):
        line += f". Throughput over the default plan: {compare(found, default).text}"
    drawn = [row for row in others if row["chosen"] == RANDOM]
    if drawn:
        best = max(drawn, key=lambda row: row["to_loop"])
        line += (
            f", over the best of {len(drawn)} random plans: {compare(found, best).text}. Over all plans, the median "
            f"error is "
            f"{statistics.median(row['error'] for row in equal):.0%}, and Kendall's tau is {_tau(equal):.2f}"
        )
    yield line


def _tau(rows: list[Row]) -> float:
    """Returns Kendall's tau: the share of pairs of plans in the predicted order, minus the share of the others."""
    signs = [
        (a["predicted_per_s"] - b["predicted_per_s"]) * (a["events_per_s"] - b["events_per_s"])
        for a, b in itertools.combinations(rows, 2)
    ]
    return sum((sign > 0) - (sign < 0) for sign in signs) / len(signs) if signs else 0.0


def _factors(counts: list[int]) -> tuple[list[Heat], list[str]]:
    threads = max([n for n in counts if n <= (os.cpu_count() or 1)] or [1])
    heats = []
    for app, channel in servers.APPS.items():
        known = servers.measured(app, channel, profile.EVENTS)
        blind, ours = (planning.find(known, threads=threads, strategy=s).as_plan() for s in ("rlas_fix_l", "rlas"))
        given: dict[str, Any] = {"app": app, "channel": channel, "pin": True, "threads": threads}
        ways = [Pinned(**given, plan=blind, batch=1), Pinned(**given, plan=blind)]
        heats.append(Heat(app, {}, ways + ([Pinned(**given, plan=ours)] if ours != blind else [])))
    return heats, [
        f"`{FACTORS[0]}`: batches of one row, and a plan for equal distances between all cores. `{FACTORS[1]}`: the "
        f"same plan, with normal batches. `{FACTORS[2]}`: a plan for the real distances, if it is another plan.",
        "In the paper, Storm comes first, and then the instructions that BriskStream saves.",
        host.unshown(counts, "144 cores, on eight sockets"),
    ]


def _by_factor(rows: list[Row]) -> Iterator[str]:
    for app in dict.fromkeys(row["app"] for row in rows):
        mine = [row for row in rows if row["app"] == app and row["way"] != "loop"]
        for row, factor in zip(mine, FACTORS, strict=False):
            row["factor"] = factor
        gained = [
            f"{row['factor'].removeprefix('+ ')} {compare(row, before).text}"
            for before, row in itertools.pairwise(mine)
        ]
        gained += ["RLAS finds the same plan"] * (len(mine) < len(FACTORS))
        yield f"{app}, {threads_of(mine[0])}, speedup of each step: {', '.join(gained)}"


SUITE = Suite(
    "rlas",
    "BriskStream's optimiser: predicted and measured throughput of plans",
    (
        *(
            Experiment(
                app,
                "sections 6.2 and 6.4, Table 4, Figure 14",
                f"{app}: the plan found, the default plan and random plans",
                (ERROR, servers.RANDOM),
                partial(_plans, app),
                (
                    Plot(
                        "predicted_per_s",
                        "events_per_s",
                        "measured throughput over predicted throughput",
                        lines=("channel", "chosen"),
                        kind="point",
                        loop=False,
                    ),
                ),
                events=JOINED if app == "scalejoin" else None,
                conclude=_judged,
                needs="nodes",
            )
            for app, _ in PLANNED
        ),
        Experiment(
            "factors",
            "section 6.5, Figure 16",
            "The gains of jumbo tuples and of plans for the machine",
            (ANALYSIS,),
            _factors,
            (Plot("app", "events_per_s", "throughput, by step", by="", lines=("factor",), kind="bar", loop=False),),
            conclude=_by_factor,
        ),
        *servers.EXPERIMENTS,
    ),
)
