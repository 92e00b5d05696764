"""Plans for an application, from its profile, a machine and a strategy (`streaming_core.planner`).

`planned` finds the plan of a run with plan auto. `find` and `profile_of` serve the command `streaming-core plan`.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import BadInput, one_line
from streaming_core.language.application import App
from streaming_core.planner import strategies
from streaming_core.planner.graph import GROUPS
from streaming_core.planner.machine import Machine
from streaming_core.planner.model import Estimate, Places, estimate
from streaming_core.planner.placed import Placed
from streaming_core.run import host, probe, trial
from streaming_core.run import profile as profiles
from streaming_core.run.one_pass import Progress
from streaming_core.run.profile import Profile
from streaming_core.run.report import Better, Chosen, Planned, Sample
from streaming_core.run.way import RunSpec

SEED = 1  # of a workload that is generated for the measurement
CHANGED = 0.25  # relative change of an operator's share of the work that counts as a change
SHARE = 0.05  # of all work; a plan does not depend on an operator with a smaller share
LEAST = 0.1  # seconds of a pass; the load in a shorter pass is noise


def profile_of(
    name: str,
    params: dict[str, Any],
    source: Path | None = None,
    measured: Path | None = None,
    channel: str | None = None,
    progress: Progress | None = None,
) -> tuple[Profile, Path | None]:
    """Read or measure the profile of an application.

    Args:
        name: The application.
        params: The parameters that differ from the defaults.
        source: The folder of the workload to measure; None: a workload is generated for the measurement.
        measured: The file of an earlier profile, which is read instead.
        channel: The channel of the runs to plan for; None: the profile's own, or the default.
        progress: Receives the progress of a measurement.

    Returns:
        The profile, and its file; None if it has no file.

    Raises:
        BadInput: The application has no plans, or the profile belongs to another application, workload, channel, code
            or parameters.
    """
    app = registry.load(name)
    RunSpec.parse({"app": name, "executor": "pinned"} | ({"channel": channel} if channel else {})).check(app)
    opened = workload.read(source, app, params or None) if source is not None else None
    if measured is not None:
        profile = Profile.read(measured)
        requested: dict[str, Any] = {"app": name, "code_digest": registry.code_digest(app)}
        if opened is not None:
            requested |= {"params": opened.manifest["params"], "content_digest": opened.manifest["content_digest"]}
        elif params:
            requested["params"] = app.bind(params)
        if channel is not None:
            requested["channel"] = channel
        for field, value in requested.items():
            if getattr(profile, field) != value:
                raise BadInput(
                    f"profile {measured} has {field} {getattr(profile, field)}, but the request has {value}; "
                    "measure again"
                )
        return profile, measured
    if opened is not None:
        return profiles.kept(opened, channel or profiles.CHANNEL, progress=progress)
    with tempfile.TemporaryDirectory() as folder:
        bound = app.bind(params)
        workload.write(app, bound, profiles.EVENTS, SEED, Path(folder) / "workload")
        generated = workload.read(Path(folder) / "workload", app)
        return profiles.measure(generated, channel or profiles.CHANNEL, progress=progress), None


def find(profile: Profile, threads: int) -> Placed:
    """The plan for so many threads of this host."""
    return find_on(profile, host.machine(threads))


def machine_for(name: str | None, threads: int | None) -> Machine:
    """The machine of this name or file; or this host, with so many threads.

    Raises:
        BadInput: As `Machine.named` and `host.machine`; or both a name and a number of threads.
    """
    if name is not None and threads is not None:
        raise BadInput("threads and a machine exclude each other: a machine file defines its own cores; remove one")
    return Machine.named(name) if name is not None else host.machine(threads)


def find_on(profile: Profile, where: Machine, strategy: str = strategies.DEFAULT) -> Placed:
    """The plan that a strategy finds for a machine."""
    most = min(where.threads, GROUPS) if where.replicas_per_core is None else None
    try:
        graph = profile.graph(registry.load(profile.app), most, strategy in strategies.PUBLISHED)
    except KeyError as error:
        raise BadInput(f"the profile of {profile.app} has no costs for {error.args[0]}; measure again") from None
    except ValidationError as error:
        raise BadInput(f"the profile of {profile.app} is invalid: {one_line(error)}; measure again") from None
    return strategies.plan(strategy, graph, where)


def planned(
    spec: RunSpec, opened: workload.Workload, progress: Progress | None = None
) -> tuple[Planned, Callable[[Sample], Planned]]:
    """Find the plan for a run with plan auto; return it, and a function that judges it after a pass.

    The run uses the replicated plan instead if that one measures faster (trial.py). Threads beyond the cores of this
    host get no tasks, because they would take turns with the others.

    Raises:
        BadInput: As `find`.
    """
    profile, path = profiles.kept(opened, spec.option("channel") or profiles.CHANNEL, spec.batch, progress)
    threads = min(spec.threads, len(probe.topology()["cores"]))
    placed, chosen = find(profile, threads=threads), None
    default = replicated(opened.app, threads)
    if placed.as_plan() != default:
        measured = trial.of(spec, opened, placed.as_plan(), default, path)
        chosen = Chosen(
            plan="found" if measured.chosen == measured.candidate else "replicated",
            candidate_per_s=statistics.median(measured.candidate_per_s),
            replicated_per_s=statistics.median(measured.replicated_per_s),
            ratio=measured.ratio,
            rounds=len(measured.candidate_per_s),
        )
        if chosen.plan == "replicated":
            sockets, cores = places_of(placed.machine, default)
            placed = replace(placed, strategy="replicated", sockets=sockets, cores=cores, proved=False)
    result = Planned(
        plan=placed.as_plan(),
        strategy=placed.strategy,
        events_per_s=placed.events_per_s,
        bottleneck=placed.bottleneck,
        chosen=chosen,
    )
    return result, partial(judged, result, placed, profile)


def notes(placed: Placed) -> list[str]:
    """Effects that a prediction leaves out, each in a sentence."""
    left_out = []
    if all(operator.memory_bytes is None for operator in placed.graph.operators):
        left_out.append("constraint 4 (bandwidth of local memory) is left out: no counter of DRAM traffic was read")
    if merging := placed.graph.mergers(list(placed.replicas.values())):
        shared = sum(placed.machine.merge_core(number) is not None for number in range(len(merging)))
        left_out.append(
            f"channel merge_sort adds {len(merging)} merge threads. {shared} of them share a core with a thread of the "
            "plan, and the prediction counts their work there"
        )
    if placed.machine.name != host.NAME:
        left_out.append(f"row times are those measured here, not scaled to {placed.machine.name}")
    return left_out


def replicated(app: App, threads: int) -> dict[str, list[int]]:
    """The runtime's default plan (plan.rs): a replica on each thread; stateful ones have one, in turn."""
    plan, turn = {}, 0
    for operator in app.operators:
        name = profiles.name_of(operator)
        if operator.kind in profiles.REPLICATED:
            plan[name] = list(range(threads))
        elif operator.kind == "stateful":
            turn += 1
            plan[name] = [turn % threads]
        else:
            plan[name] = [0]  # the source
    return plan


def judged(planned: Planned, placed: Placed, profile: Profile, peak: Sample) -> Planned:
    """Compare the prediction for a plan with a pass.

    The profile covers the first events of the workload, so the load may have changed since.

    Args:
        planned: The plan and its prediction.
        placed: The same plan, as the planner sees it.
        profile: The profile that it was made from.
        peak: The sample of the pass.

    Returns:
        The plan with the error of its prediction, the changes of the load, and a better plan for that load, if any.
    """
    # The model does not cover an open-loop pass, nor the first pass, which also writes rows.
    if peak.kind != "peak" or not peak.events_per_s:
        return planned
    error = abs(peak.events_per_s - planned.events_per_s) / peak.events_per_s
    if peak.seconds < LEAST:
        return planned.model_copy(update={"error": error})
    changes = profile.changes(planned.plan, peak.tasks)
    work = {name: times * rows for name, (times, rows) in changes.items()}
    spent = {name: sum(t.execute_ns + t.others_ns for t in peak.tasks if t.operator == name) for name in work}
    large = [name for name in work if spent[name] > SHARE * sum(spent.values())]
    changed = {name: work[name] for name in large if max(work[name], 1 / work[name]) > 1 + CHANGED}
    better = None
    if changed:
        again = find_on(profile.after(changes), placed.machine)
        now = estimate(again.graph, placed.machine, placed.sockets, cores=placed.cores).sustained.ingress
        would = again.estimate.sustained.ingress
        if would > now * (1 + profiles.TOLERANCE):
            better = Better(plan=again.as_plan(), events_per_s=would, instead_of=now)
    return planned.model_copy(update={"error": error, "changed": changed, "better": better})


def places_of(machine: Machine, plan: dict[str, list[int]]) -> tuple[Places, Places]:
    """The places of a plan's threads on a machine: per operator the sockets of its replicas, and the cores in them."""
    where = {machine.thread(i, core): (i, core) for i, cores in enumerate(machine.cores) for core in range(cores)}
    sockets = {name: [where[thread][0] for thread in places] for name, places in plan.items()}
    return sockets, {name: [where[thread][1] for thread in places] for name, places in plan.items()}


def in_order(plan: dict[str, list[int]], app: str) -> dict[str, list[int]]:
    """A plan in the order of the pipeline."""
    return {name: plan[name] for name in profiles.names(registry.load(app)) if name in plan}


def at_rate(placed: Placed) -> Estimate:
    """The estimate of a plan at the rate that judges it: the sustained one, or the peak in the paper's strategies."""
    if placed.by_output:
        return placed.estimate
    return estimate(placed.graph, placed.machine, placed.sockets, placed.estimate.sustained.ingress, placed.cores)


def rows_per_s(estimated: Estimate, operator: str) -> float:
    """Rows per second that enter an operator."""
    return sum(replica.rate for replica in estimated.of(operator))


def busy(estimated: Estimate, operator: str) -> float:
    """The utilisation of the busiest replica of an operator, as a share of its thread's time."""
    return max(replica.utilisation for replica in estimated.of(operator))


def as_dict(placed: Placed) -> dict[str, Any]:
    """The plan and its prediction, as JSON values."""
    estimated = at_rate(placed)
    return {
        "plan": placed.as_plan(),
        "strategy": placed.strategy,
        "machine": placed.machine.name,
        "pinned": placed.pinned,
        "proved": placed.proved,
        "events_per_s": placed.events_per_s,
        "rows_per_s": placed.rows_per_s,
        "bottleneck": placed.bottleneck,
        "operators": {
            name: {"rows_per_s": rows_per_s(estimated, name), "busy": busy(estimated, name)} for name in placed.sockets
        },
        "notes": notes(placed),
    }
