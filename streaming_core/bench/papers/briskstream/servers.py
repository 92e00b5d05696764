"""Simulations: R of plans for the paper's servers, by the model, with the applications of `planner/published.py`.

All strategies are judged by R at the source's peak rate, as in the paper, ours too.
"""

from __future__ import annotations

from collections.abc import Iterator

from streaming_core.bench.claims import Claim
from streaming_core.bench.race.ratios import Row
from streaming_core.bench.suite import Experiment, Heat, Plot
from streaming_core.planner import published, strategies
from streaming_core.planner.machine import Machine
from streaming_core.planner.strategies import Task

APPS = published.APPS
# The ways on each server. The first one has the experiments of figures 12 and 14, too.
PLACEMENTS = ("rlas", strategies.DEFAULT, "first_fit", "round_robin")
WAYS = {"server_a": (*PLACEMENTS, "rlas_fix_l", "rlas_fix_u"), "server_b": PLACEMENTS}
DRAWN = 1000  # random plans
RANDOM = "best random plan"
R = "predicted_rows_per_s"
PUBLISHED, OURS = {"way": "rlas"}, {"way": strategies.DEFAULT}
ON_A = {"machine": "server_a"}


def _on_a(says: str, source: str, way: str, paper: float | None = None) -> Claim:
    return Claim(says, source, PUBLISHED | ON_A, OURS | ON_A, {"way": way}, column=R, paper=paper)


CLAIMS = (
    Claim(
        "WC reaches 96.4 M words/s on the eight sockets of server A; the model estimates 104.8 M.",
        "section 6.2, table 4; simulated",
        PUBLISHED | ON_A | {"app": "wc"},
        OURS | ON_A | {"app": "wc"},
        column=R,
        expects="=",
        paper={"wc": 96_390_800.0},
    ),
    _on_a(
        "RLAS is 19 to 39 % faster than a search that takes the worst distance for all rows, fix(L).",
        "section 6.4, figure 12; simulated",
        "rlas_fix_l",
        paper=1.19,
    ),
    _on_a(
        "RLAS is 119 to 455 % faster than a search that takes no distance, fix(U).",
        "section 6.4, figure 12; simulated",
        "rlas_fix_u",
        paper=2.19,
    ),
    Claim(
        "With equal replicas, RLAS places better than first fit and round robin.",
        "section 6.4, figure 13; simulated",
        PUBLISHED,
        OURS,
        {"way": ("first_fit", "round_robin")},
        column=R,
        by=("app", "machine"),
    ),
    _on_a("None of 1,000 random plans is better than that of RLAS.", "section 6.4, figure 14; simulated", RANDOM),
)


def _simulated() -> Iterator[Row]:
    for server, ways in WAYS.items():
        machine = Machine.named(server)
        for app in APPS:
            task = Task(published.application(app), machine)
            outputs = {way: strategies.STRATEGIES[way](task).estimate.throughput for way in ways}
            if server == next(iter(WAYS)):
                outputs[RANDOM] = max(published.random_outputs(task.graph, machine, DRAWN))
            for way, rows in outputs.items():
                none = dict.fromkeys(("events_per_s", "to_loop", "to_loop_range", "cpu_ns"))
                about = {"app": app, "params": {}, "way": way, "machine": server, "threads": machine.threads}
                yield {**none, **about, "rates": [], "result": "simulated", R: rows}


def _notes(counts: list[int]) -> tuple[list[Heat], list[str]]:
    return [], [
        "Simulated: the model's R for the paper's servers; nothing ran there.",
        "The times and bytes of WC's Splitter and Counter come from table 3. All other costs are chosen.",
    ]


EXPERIMENT = Experiment(
    "servers",
    "table 4, figures 12, 13 and 14",
    "Plans for the paper's servers, by the model",
    CLAIMS,
    _notes,
    (Plot("way", R, "R, rows of the sinks per second", by="app", lines=("machine",), kind="bar", loop=False),),
    model=_simulated,
)
