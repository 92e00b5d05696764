"""Runs a cell on Lockstep's engine: the application's kernels over a workload, into a run folder.

`run` checks the request, finds a plan if the spec has none, compiles the application, and holds the run folder. Read
next, in this order:

- folder.py: how a run folder becomes complete, and what a killed run leaves;
- passes.py: the passes of a run, and their report (provenance.py);
- one_pass.py: one pass, block by block (blocks.py);
- checkpoint/: how a killed run resumes;
- supervision.py: a run that injects faults into itself.

Live runs (live.py) and other engines (external.py) have a `run` of their own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.parts import Parts, part_path
from streaming_core.errors import BadInput, CommandFailed, RunFailed
from streaming_core.kernels.program import Program, compile_app
from streaming_core.language.application import App
from streaming_core.run.checkpoint import states, store
from streaming_core.run.checkpoint.file import Checkpoint
from streaming_core.run.checkpoint.store import Checkpoints
from streaming_core.run.energy import Meter
from streaming_core.run.faults import Faults
from streaming_core.run.folder import CHECKPOINTS, PUBLISHED, earlier_report, held, run_in
from streaming_core.run.one_pass import Progress
from streaming_core.run.passes import run_passes
from streaming_core.run.provenance import PreparedRun
from streaming_core.run.report import Planned, RunReport, Sample
from streaming_core.run.supervision import Life, supervised
from streaming_core.run.way import RunSpec

# Finds the plan for a run, and a function that judges the plan after a pass.
FindPlan = Callable[[RunSpec, workload.Workload, Progress | None], tuple[Planned, Callable[[Sample], Planned]]]


@dataclass(frozen=True)
class _Planning:
    """The outcome of the search for a plan.

    Attributes:
        spec: The spec with the plan.
        judge: Judges the plan after a pass; None without a plan to judge.
        failure: The reason for having no plan; None if there is one, or none was needed.
    """

    spec: RunSpec
    judge: Callable[[Sample], Planned] | None = None
    failure: str | None = None


def run(
    spec: RunSpec,
    source: Path,
    out: Path | None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
    meter: Meter | None = None,
    find_plan: FindPlan | None = None,
    requires_plan: bool = True,
) -> RunReport:
    """Execute `spec` over the workload at `source`; write outputs, state and, last, report.json into `out`.

    The same call on the folder of a complete run returns its report. On the folder of a killed run it resumes from the
    newest sound checkpoint, or without one starts again. A run may be resumed in another way of executing, as long as
    application, parameters, order and sink are the same.

    Args:
        spec: The cell.
        source: The folder of the workload.
        out: The run folder; None keeps only the returned report, and no checkpoints. The folder is new, or holds a
            spec.json of the same result and nothing else of a run.
        progress: Receives the pass, the events done, and all events.
        say: Receives a line when the run resumes, and when a checkpoint is damaged or cannot be written.
        meter: Measures energy; by default, this machine's counters.
        find_plan: Finds the plan of a spec with plan `auto` (planning.py), unless the run is complete.
        requires_plan: Whether a failure to find that plan is an error. Otherwise the run uses the replicated plan, and
            its report says why (`unplanned`).

    Raises:
        BadInput: The request cannot be carried out; nothing was written.
        RunFailed: An operator failed (operator, event, reason).
        CommandFailed: The disk is full, or fails.
    """
    app = registry.load(spec.app)
    spec.check(app)
    opened = workload.read(source, app, spec.params)
    load_before = os.getloadavg()[0]
    if out is not None and out.exists() and not out.is_dir():
        raise BadInput(f"{out} is not a folder")
    # Before the folder: an application that is refused leaves nothing behind.
    prepared = PreparedRun(spec, compiled(app, opened.manifest["params"]), opened, load_before)
    plan = partial(_plan, spec, app, opened, find_plan, requires_plan=requires_plan)
    live, say = partial(_run, prepared, out, meter or Meter(), plan), say or (lambda line: None)
    if not spec.faults:
        return live(Life(progress, say))
    if out is None:
        raise BadInput("a run that injects faults needs a folder, from which it resumes")
    step = spec.punctuation if app.kind == "transaction" else 1
    faults = Faults.parse(spec.faults).schedule(opened.rows, opened.manifest["content_digest"], step)
    return supervised(faults, live, progress, say)


_last: dict[tuple[App, str], Program] = {}  # the last program of this process, because many small runs have the same


def compiled(app: App, params: dict[str, Any]) -> Program:
    """Compile a bound application, unless it is the last one that this process compiled; raises as `compile_app`."""
    about = app, repr(sorted(params.items()))
    if about not in _last:
        _last.clear()
        _last[about] = compile_app(app, params)
    return _last[about]


def _run(
    prepared: PreparedRun, out: Path | None, meter: Meter, plan: Callable[..., _Planning], life: Life
) -> RunReport:
    """Execute a cell in this process."""
    spec, opened = prepared.spec, prepared.workload
    planning = _Planning(spec)
    if spec.needs_plan and not (opened.rows and out is not None and (out / "report.json").exists()):
        planning = plan(progress=life.progress)
        if planning.failure is not None:
            life.say(f"found no plan, so the run uses the replicated plan: {planning.failure}")
        prepared = replace(prepared, spec=planning.spec)

    def passes(folder: Path | None, durable: Checkpoints | None) -> RunReport:
        report = run_passes(prepared, folder, durable, meter, life)
        requested = {"spec": spec.model_dump(mode="json"), "spec_digest": spec.spec_digest, "cell": spec.cell}
        planned = planning.judge(report.peak) if planning.judge else None
        outcome = {"planned": planned, "unplanned": planning.failure, "faults": life.faults}
        return report.model_copy(update=requested | outcome)

    if out is None:
        return passes(None, None)
    with held(spec, out) as is_complete:
        if is_complete:
            return earlier_report(out, opened.app, opened, life.say)
        return run_in(out, lambda work: run_from_checkpoint(work, prepared, life.say, passes, life.cuts), resumes=True)


def _plan(
    spec: RunSpec,
    app: App,
    opened: workload.Workload,
    find_plan: FindPlan | None,
    progress: Progress | None,
    requires_plan: bool,
) -> _Planning:
    """Find the plan of a spec with plan `auto`.

    Raises:
        BadInput: There is no plan, for whatever reason, and the run requires one.
        RunFailed: An operator failed while it was measured, or passes of the measurement differ.
    """
    replicated = spec.model_copy(update={"plan": {}})
    if not opened.rows:
        return _Planning(replicated)  # without events, there is nothing to measure or to gain
    try:
        return _search(spec, app, opened, find_plan, progress)
    except BadInput as error:
        if requires_plan:
            raise
        return _Planning(replicated, failure=str(error))


def _search(
    spec: RunSpec, app: App, opened: workload.Workload, find_plan: FindPlan | None, progress: Progress | None
) -> _Planning:
    """Search a plan. Any failure of the search itself is BadInput."""
    if find_plan is None:
        raise BadInput("plan auto is not available here; set a plan, or plan replicated")
    try:
        planned, judge = find_plan(spec, opened, progress)
        way = spec.model_copy(update={"plan": planned.plan, "pin": True})
        way.check(app)
    except (BadInput, RunFailed, MemoryError):
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, CommandFailed) else f"{type(error).__name__}: {error}"
        raise BadInput(f"found no plan for {spec.app}: {reason}; set plan replicated to run without one") from error
    return _Planning(way, judge)


def run_from_checkpoint(
    work: Path,
    prepared: PreparedRun,
    say: Callable[[str], None],
    passes: Callable[[Path, Checkpoints], RunReport],
    cuts: Sequence[int] = (),
) -> RunReport:
    """Run from the newest sound checkpoint in the folder of the unfinished results, or from the beginning.

    Args:
        work: The folder.
        prepared: The run.
        say: Receives a line when the run resumes, and when a checkpoint is damaged or cannot be written.
        passes: Makes the passes. It receives the folder and its checkpoints.
        cuts: Numbers of events at which a block of the first pass ends.

    Raises:
        BadInput: All checkpoints are damaged, or belong to another run.
    """
    spec, bound = prepared.spec, prepared.program.bound
    about = {
        store.CODE: registry.code_digest(bound.app),
        "workload": prepared.workload.manifest["content_digest"],
        "order": spec.order,
        "sink": spec.sink,
    }
    (work / CHECKPOINTS).mkdir(exist_ok=True)
    way = spec.model_dump(mode="json")
    checkpoints = Checkpoints(work / CHECKPOINTS, spec.interval, about, states.declarations(bound), way, say, cuts)

    def closed(checkpoint: Checkpoint) -> list[Path]:
        return [part_path(work / "outputs", number) for number in range(checkpoint.outputs)]

    def check(checkpoint: Checkpoint) -> None:
        store.check_outputs(Parts(closed(checkpoint)), bound, checkpoint)

    checkpoints.recover(check)
    last = checkpoints.last
    for name in PUBLISHED[1:]:  # made anew
        shutil.rmtree(work / name, ignore_errors=True)
    for path in set((work / "outputs").glob("*")).difference(closed(last) if last else ()):
        path.unlink()
    if last is not None:
        say(f"resuming from the checkpoint at event {last.events}")
    try:
        return passes(work, checkpoints)
    except BaseException as error:
        checkpoints.close()
        if last is not None and isinstance(error, BadInput):
            raise BadInput(f"{error}; choose a new folder for another workload") from None
        raise
