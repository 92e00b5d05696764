"""STRETCH's question 4 (section 8.4): how long a reconfiguration takes.

A switch lasts from the request until every affected replica has started with its first row under the new assignment of
keys. Requests (`requests.py`) switch from all replicas to half of them and back.
"""

from __future__ import annotations

from typing import Any

from streaming_core.bench.papers.stretch.vsn import BATCHES, OURS, PUBLISHED, SHARE_NOTHING, claim
from streaming_core.bench.race.requests import SOONEST, Requests
from streaming_core.bench.suite import Experiment, Heat, Plot
from streaming_core.run.way import Pinned, RunSpec

JOIN = {"keys": 1000, "size": 60_001}  # not five minutes as in the paper: a window of a minute fills early in a pass
SWITCHES = 600  # in the time of a pass of the loop; there are none while windows expire at the end of the stream
COPIED_SWITCHES = 10  # with SN, whose replicas stop while it copies states
LOAD = 0.5
ONE_WINDOW = 10**12  # ms: the largest size, so all tweets fall into one window
WORDS = (1_000, 100_000)  # equally likely: the keys of wordcount

SWITCH = claim(
    "Reconfigurations take less than 40 ms; here 99 % of them, at half the peak rate.",
    "section 8.4, figure 9",
    column="loaded_switch_p99_us",
    by=("batch",),
    expects="<=",
    paper=40_000.0,
)
FLAT = claim(
    "No state moves in a reconfiguration, so its time does not depend on the size of the state.",
    "sections 1 and 7",
    {"vocabulary": WORDS[-1]},
    {"vocabulary": WORDS[0]},
    column="loaded_switch_p50_us",
    by=("batch",),
    expects="=",
)
NOTES = [
    "Requests switch from all replicas to half of them and back. A thread in addition to the engine's makes them, one "
    f"at a time. It makes the next one when the last is done and {SOONEST * 1000:g} ms have passed.",
    "A switch lasts from the request until every affected replica has started with its first row under the new "
    "assignment, or has parked. This includes the time until the source deals its next batch, and the queued rows.",
    "So a switch takes longer at the peak rate than under load. Load is half the peak rate of the slowest way. A "
    "source cuts its batch when a request comes.",
    "No switch is left out. The results list all over 1 ms.",
]


def _heat(
    app: str, operator: str, params: dict[str, Any], threads: int, shared: dict[str, int], batches: tuple[int, ...]
) -> Heat:
    """Return a heat with each parallelism of `shared`, and about so many requests in the time of a pass of the loop."""
    replicas = max(2, threads)
    plan = {} if replicas == threads else {operator: [0] * replicas}
    fields = {"app": app, "params": params, "threads": threads, "plan": plan}
    specs: list[RunSpec] = []
    requests: list[Requests] = []
    for batch in batches:
        for parallelism, times in shared.items():
            specs.append(Pinned.model_validate(fields | {"parallelism": parallelism, "batch": batch}))
            requests.append(Requests(operator, replicas, times))
    return Heat(app, params, specs, requests=tuple(requests))


def _joins(counts: list[int]) -> tuple[list[Heat], list[str]]:
    shared = dict.fromkeys((OURS, PUBLISHED), SWITCHES)
    return [_heat("scalejoin", "from_left", JOIN, max(counts), shared, BATCHES)], NOTES


def _states(counts: list[int]) -> tuple[list[Heat], list[str]]:
    window: dict[str, Any] = {"skew": 0.0, "hashtag_ratio": 0.0, "advance": ONE_WINDOW, "size": ONE_WINDOW}
    shared = dict.fromkeys((OURS, PUBLISHED), SWITCHES) | {SHARE_NOTHING: COPIED_SWITCHES}
    params = [{"vocabulary": words, **window} for words in WORDS]
    return [_heat("wordcount", "count", values, max(counts), shared, BATCHES[1:]) for values in params], [
        *NOTES,
        "With SN, all replicas stop while it copies states. So there are few switches.",
        "All tweets fall into one window, so its states grow from nothing to a state for each word.",
    ]


def _plot(x: str) -> tuple[Plot, ...]:
    titles = {"loaded_switch_p50_us": "median", "loaded_switch_p99_us": "99th percentile of a"}
    return tuple(
        Plot(x, y, f"{title} switch, at half the peak rate", lines=("parallelism",), kind="bar", loop=False)
        for y, title in titles.items()
    )


EXPERIMENTS = (
    Experiment(
        "q4",
        "section 8.4, figure 9",
        "Duration of a reconfiguration: ScaleJoin",
        (SWITCH,),
        _joins,
        _plot("batch"),
        events=8_000,
        loads=(LOAD,),
        needs="cores",
    ),
    Experiment(
        "q4-states",
        "section 8.4",
        "Duration of a reconfiguration, by the size of the state",
        (FLAT,),
        _states,
        _plot("vocabulary"),
        events=100_000,
        loads=(LOAD,),
        needs="cores",
    ),
)
