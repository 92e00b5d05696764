"""Plans for an application: its profile, a machine, a strategy (`streaming_core.planner`)."""

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

SEED = 1  # of a workload that is generated to be measured
CHANGED = 0.25  # by which an operator's part of the work has changed
SHARE = 0.05  # of all work: a smaller part is nothing to plan by
LEAST = 0.1  # seconds of a pass: what a shorter one shows of the load is noise


def profile_of(
    name: str,
    params: dict[str, Any],
    source: Path | None = None,
    measured: Path | None = None,
    channel: str | None = None,
    progress: Progress | None = None,
) -> tuple[Profile, Path | None]:
    """The profile of an application, and where it is kept: the one that was `measured` before, else that of a workload,
    else of one that is generated for it with these parameters.

    Raises:
        BadInput: an application that is not planned, or a profile of another application, workload, channel, code or
            parameters.
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
        made = workload.read(Path(folder) / "workload", app)
        return profiles.measure(made, channel or profiles.CHANNEL, progress=progress), None


def find(
    profile: Profile,
    machine: str | None = None,
    threads: int | None = None,
    strategy: str = strategies.DEFAULT,
    seed: int = 0,
) -> Placed:
    """The plan that a strategy finds for a machine, by its name or file, or for so many threads of this host.

    Raises:
        BadInput: as `strategies.plan`, `Machine.named` and `host.machine`; or threads of another machine.
    """
    return find_on(profile, machine_for(machine, threads), strategy, seed)


def machine_for(name: str | None, threads: int | None) -> Machine:
    """The machine of this name or file; or this host, with so many threads.

    Raises:
        BadInput: As `Machine.named` and `host.machine`; or both a name and a number of threads.
    """
    if name is not None and threads is not None:
        raise BadInput("threads and a machine exclude each other: a machine file defines its own cores; remove one")
    return Machine.named(name) if name is not None else host.machine(threads)


def find_on(profile: Profile, where: Machine, strategy: str = strategies.DEFAULT, seed: int = 0) -> Placed:
    """The plan that a strategy finds for a machine.

    Raises:
        BadInput: as `strategies.plan`.
    """
    most = min(where.threads, GROUPS) if where.replicas_per_core is None else None
    try:
        graph = profile.graph(registry.load(profile.app), most, strategy in strategies.PUBLISHED)
    except KeyError as error:
        raise BadInput(f"the profile of {profile.app} has no costs for {error.args[0]}; measure again") from None
    except ValidationError as error:
        raise BadInput(f"the profile of {profile.app} is invalid: {one_line(error)}; measure again") from None
    return strategies.plan(strategy, graph, where, seed=seed)


def planned(
    spec: RunSpec, opened: workload.Workload, progress: Progress | None = None
) -> tuple[Planned, Callable[[Sample], Planned]]:
    """The plan for a run over a workload that leaves it to be found, and what is said of it after a pass.

    The run uses the replicated plan instead if that one measures faster (trial.py). Threads beyond the cores of this
    host get no tasks: they would take turns with the others.

    Raises:
        BadInput: as `find`.
    """
    profile, path = profiles.kept(opened, spec.option("channel") or profiles.CHANNEL, spec.batch, progress)
    threads = min(spec.threads, len(probe.topology()["cores"]))
    found, chosen = find(profile, threads=threads), None
    default = replicated(opened.app, threads)
    if found.as_plan() != default:
        measured = trial.of(spec, opened, found.as_plan(), default, path)
        chosen = Chosen(
            plan="found" if measured.chosen == measured.found else "replicated",
            found_per_s=statistics.median(measured.found_per_s),
            replicated_per_s=statistics.median(measured.replicated_per_s),
            ratio=measured.ratio,
            rounds=len(measured.found_per_s),
        )
        if chosen.plan == "replicated":
            sockets, cores = placed(found.machine, default)
            found = replace(found, strategy="replicated", sockets=sockets, cores=cores, proved=False)
    sustained = found.estimate.sustained
    said = Planned(
        plan=found.as_plan(),
        strategy=found.strategy,
        events_per_s=sustained.ingress,
        bottleneck=str(sustained.bottleneck),
        chosen=chosen,
    )
    return said, partial(judged, said, found, profile)


def notes(found: Placed) -> list[str]:
    """What a prediction leaves out."""
    left_out = []
    if all(operator.memory_bytes is None for operator in found.graph.operators):
        left_out.append("constraint 4 (bandwidth of local memory) is left out: no counter of DRAM traffic was read")
    if merging := found.graph.mergers(list(found.replicas.values())):
        shared = sum(found.machine.merge_core(number) is not None for number in range(len(merging)))
        left_out.append(
            f"channel merge_sort adds {len(merging)} merge threads. {shared} of them share a core with a thread of the "
            "plan, and the prediction counts their work there"
        )
    if found.machine.name != host.NAME:
        clock, measured = found.machine.clock_ghz, found.graph.clock_ghz
        if clock is None or measured is None:
            of = "machine" if clock is None else "profile"
            left_out.append(
                f"row times are those measured here, not scaled to {found.machine.name}: the {of} states no clock"
            )
    return left_out


def replicated(app: App, threads: int) -> dict[str, list[int]]:
    """The runtime's default plan (plan.rs): a replica on each thread, or a single one, on threads in turn."""
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


def judged(planned: Planned, found: Placed, profile: Profile, peak: Sample) -> Planned:
    """The plan with how far off its prediction was; what of the load has changed since the profile was measured, which
    was of the workload's first events; and the plan that would be better now, if there is one."""
    # What the first pass takes beside, writing rows say, and what a rate allows, nobody has predicted.
    if peak.kind != "peak" or not peak.events_per_s:
        return planned
    error = abs(peak.events_per_s - planned.events_per_s) / peak.events_per_s
    if peak.seconds < LEAST:
        return planned.model_copy(update={"error": error})
    changes = profile.changes(planned.plan, peak.tasks)
    work = {name: times * rows for name, (times, rows) in changes.items()}
    spent = {name: sum(t.execute_ns + t.others_ns for t in peak.tasks if t.operator == name) for name in work}
    told = [name for name in work if spent[name] > SHARE * sum(spent.values())]
    changed = {name: work[name] for name in told if max(work[name], 1 / work[name]) > 1 + CHANGED}
    better = None
    if changed:
        again = find_on(profile.after(changes), found.machine)
        now = estimate(again.graph, found.machine, found.sockets, cores=found.cores).sustained.ingress
        would = again.estimate.sustained.ingress
        if would > now * (1 + profiles.TOLERANCE):
            better = Better(plan=again.as_plan(), events_per_s=would, instead_of=now)
    return planned.model_copy(update={"error": error, "changed": changed, "better": better})


def placed(machine: Machine, plan: dict[str, list[int]]) -> tuple[Places, Places]:
    """Where a plan's threads are on a machine: per operator the sockets of its replicas, and the cores in them."""
    where = {machine.thread(i, core): (i, core) for i, cores in enumerate(machine.cores) for core in range(cores)}
    sockets = {name: [where[thread][0] for thread in places] for name, places in plan.items()}
    return sockets, {name: [where[thread][1] for thread in places] for name, places in plan.items()}


def in_order(plan: dict[str, list[int]], app: str) -> dict[str, list[int]]:
    """A plan in the order of the pipeline."""
    return {name: plan[name] for name in profiles.names(registry.load(app)) if name in plan}


def at_rate(found: Placed) -> Estimate:
    """What a plan does at the rate that it sustains."""
    return estimate(found.graph, found.machine, found.sockets, found.estimate.sustained.ingress, found.cores)


def rows_per_s(estimated: Estimate, operator: str) -> float:
    """Rows that an operator takes."""
    return sum(replica.rate for replica in estimated.of(operator))


def busy(estimated: Estimate, operator: str) -> float:
    """Of their threads' time, what the busiest of its replicas works."""
    return max(replica.utilisation for replica in estimated.of(operator))


def as_dict(found: Placed) -> dict[str, Any]:
    """JSON values: the plan, and what it is expected to do."""
    sustained = found.estimate.sustained
    estimated = at_rate(found)
    return {
        "plan": found.as_plan(),
        "strategy": found.strategy,
        "machine": found.machine.name,
        "pinned": found.pinned,
        "proved": found.proved,
        "events_per_s": sustained.ingress,
        "rows_per_s": sustained.throughput,
        "bottleneck": str(sustained.bottleneck),
        "operators": {
            name: {"rows_per_s": rows_per_s(estimated, name), "busy": busy(estimated, name)} for name in found.sockets
        },
        "notes": notes(found),
        "fetching_ns": [list(row) for row in estimated.fetching],
        "traffic_bytes_per_s": [list(row) for row in estimated.traffic],
    }
