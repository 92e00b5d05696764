"""Ways of executing, drawn at random: executor, strategies, threads, cuts, plans, reconfigurations, checkpoints.

All draws follow from a `random.Random`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.language.application import App
from streaming_core.run.way import ACTIVE_CONTROLLERS, CELLS, ENGINE_EXECUTORS, RunSpec, engine_executors_of

BATCHES = (1, 1, 2, 7, 16, 64, 256, 4096)
SECONDS_OF_A_CONTROLLER = 0.25  # the engine asks it every 0.1 s
OTHERS = 0.8  # of the strategies are drawn, where they are not the defaults
CHECKPOINTS = 0.25  # of ways
MOST_CHECKPOINTS = 8  # of a run: each one writes files
FAULTS = 0.3  # of ways: stalls take as long as several others, and make a rare schedule ten times as likely
REPETITIONS, REPEATED = 20, 0.25  # passes, which repeat a schedule for less time than runs do; the share of ways


def ways(app: App, params: Mapping[str, Any], events: int, r: random.Random, count: int) -> list[RunSpec]:
    """Some ways for the application: its executors take turns, and so do the strategies of each.

    Every second way has the default strategies of its executor, because users run those most.
    """
    turns = {name: _strategies(app, name, r) for name in engine_executors_of(app.kind)}
    names = r.sample([*turns], len(turns))
    specs = []
    first = r.randrange(2 * len(names))
    for number in range(first, first + count):
        name = names[number % len(names)]
        has_defaults = number // len(names) % 2 == 0
        fixed = {"executor": name} | ({} if has_defaults else next(turns[name]))
        spec = draw_way(app, params, events, r, fixed, others=0 if has_defaults else OTHERS)
        if r.random() < FAULTS:
            spec = spec.model_copy(update={"faults": draw_faults(events, r)})
        specs.append(spec)
    return specs


def _strategies(app: App, executor: str, r: random.Random) -> Iterator[dict[str, str]]:
    """The strategies of an executor that the application can have, in turn; `{}` if there are none."""
    chosen = []
    for axis, values in ENGINE_EXECUTORS[executor].axes().items():
        for value in values[1:]:
            try:
                spec = RunSpec.parse({"app": app.name, "executor": executor, axis: value})
                spec.check(app)
            except BadInput:
                continue
            if not spec.is_bound:
                chosen.append({axis: value})
    while True:
        yield from r.sample(chosen, len(chosen)) or [{}]


def draw_way(
    app: App, params: Mapping[str, Any], events: int, r: random.Random, fixed: Mapping[str, Any], others: float = OTHERS
) -> RunSpec:
    """A random valid way for the application.

    Args:
        app: The application.
        params: All its parameters.
        events: The number of events.
        r: Draws.
        fixed: Options with a fixed value.
        others: The share of the other strategies that are drawn. The rest has its default.
    """
    default = app.bind()
    about = {"app": app.name, "params": {name: value for name, value in params.items() if value != default[name]}}
    while True:
        executor = fixed.get("executor") or r.choice(engine_executors_of(app.kind))
        threads = fixed.get("threads") or r.choice((1, 2, 2, 3, 4, 5, 6, 7, 8))
        chosen = draw_options(executor, r, others) | dict(fixed)
        if executor == "pinned":
            chosen["plan"] = draw_plan(app, threads, r) if "channel" in fixed or r.random() < 0.5 else {}
            if app.kind == "windowed" and r.random() < 0.6:
                chosen["schedule"] = draw_schedule(app, threads, chosen["plan"], events, r)
        if executor == "morsel" and r.random() < 0.5:
            chosen["order"] = "none"
        # Many threads that yield to each other on few cores take their time.
        chosen["idle"] = r.choice(("yield", "park")) if threads < 5 else "park"
        chosen["batch"] = r.choice((*BATCHES, near(events, r)))
        chosen["rate"] = r.choice((0, 0, 0, 0, 1e6))
        if chosen.get("controller") in ACTIVE_CONTROLLERS:
            chosen["rate"] = max(events, 1) / SECONDS_OF_A_CONTROLLER if r.random() < 0.3 else 0
        repeats = r.random() < REPEATED
        chosen |= {"repetitions": REPETITIONS, "seconds": 0.0} if repeats else {}
        interval = max(1, events // r.randint(1, MOST_CHECKPOINTS) - r.choice((0, 1)))
        chosen["checkpoint"] = str(interval) if r.random() < CHECKPOINTS else "0"
        try:
            spec = RunSpec.parse(about | {"executor": executor, "threads": threads} | chosen | dict(fixed))
            spec.check(app)
        except BadInput:  # these do not go together
            continue
        if not spec.is_bound:
            return spec


def near(events: int, r: random.Random) -> int:
    """A size of batches, between 1 and 4096, that a number of events just reaches, or just misses."""
    return min(max(1, events // r.choice((1, 1, 2, 3)) + r.choice((-1, 0, 1))), BATCHES[-1])


def draw_faults(events: int, r: random.Random) -> str:
    """One or two faults at random events."""
    kinds = r.sample((*["stall"] * 5, "kill", "kill", "full-disk", "clock"), r.choice((1, 1, 2)))
    return ",".join(f"{kind}@{r.randrange(max(events, 1)) + 1}" for kind in dict.fromkeys(kinds))


def draw_options(executor: str, r: random.Random, share: float = OTHERS) -> dict[str, Any]:
    """A random value of some options of an executor; some combinations are invalid.

    Args:
        executor: Its name.
        r: Draws.
        share: The share of strategies that are drawn.
    """
    axes = ENGINE_EXECUTORS[executor].axes().items()
    chosen: dict[str, Any] = {axis: r.choice(values) for axis, values in axes if r.random() < share}
    match executor:
        case "transactional":
            chosen["punctuation"] = r.choice((1, 7, 50, 500, 100_000))
            if r.random() < share:
                chosen["stealing"] = r.random() < 0.3
        case "pooled":
            chosen["slice"] = r.choice((1, 5, 1000))
            if chosen.get("queue") in ("hybrid", "shared"):
                chosen["partitions"] = r.choice((1, 3, 100))
            if chosen.get("heuristic") == "ct":
                chosen["throughput_window"] = r.choice((1, 1000))
        case "pinned" if chosen.get("controller") in ACTIVE_CONTROLLERS:
            chosen["thresholds"] = r.choice(([], [60, 40, 20]))
    return chosen


def draw_plan(app: App, threads: int, r: random.Random) -> dict[str, list[int]]:
    """Threads of the replicas of some operators."""
    named = {"source": "source"} | {operator.name: operator.kind for operator in app.operators[1:-1]} | {"sink": "sink"}
    plan = {}
    for name, kind in named.items():
        if r.random() < 0.6:
            replicas = 1 if kind == "stateful" else r.randint(1, 4)
            plan[name] = [r.randrange(threads) for _ in range(replicas)]
    return plan


def draw_schedule(
    app: App, threads: int, plan: Mapping[str, list[int]], events: int, r: random.Random
) -> list[dict[str, Any]]:
    """Reconfigurations at events of all kinds: the first, the last, one behind it, several at once."""
    names = [operator.name for operator in app.operators if operator.kind == "windowed"]
    at = sorted(r.choice([0, max(events - 1, 0), events, r.randrange(events + 1)]) for _ in range(r.randrange(12)))
    schedule = []
    for event in at:
        some = r.sample(names, r.randint(1, len(names)))
        owners = {name: draw_owners(len(plan[name]) if name in plan else threads, r) for name in some}
        schedule.append({"event": event, "owners": owners})
    return schedule


def draw_owners(replicas: int, r: random.Random) -> list[int]:
    """A pattern of owners: each of some replicas once, some more often than others, or one for each cell."""
    if r.random() < 0.5:
        return r.sample(range(replicas), r.randint(1, replicas))
    return r.choices(range(replicas), k=r.choice([2, 3, 7, CELLS]))
