"""Runs a cell on another engine: calls its command, checks its results, and writes a run's folder.

The command gets a task and an empty folder (`engines/contract.py`). It writes outputs and a report there. A cell fails,
with one line and the last lines of the engine's log, in these cases:

- the process fails, or takes longer than the manifest's limit;
- the report is missing, or does not belong to this task;
- outputs have other columns, or another digest or number than the report says.

The comparison with the oracle judges the outputs.

The engine runs alone. The compiled loop runs after it, as often and as long as a repetition takes.
"""

from __future__ import annotations

import math
import os
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pydantic import ValidationError

from streaming_core import interruption, storage
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.agreement import outputs_digest
from streaming_core.data.digest import add, format_digest
from streaming_core.data.parts import Parts, write_file
from streaming_core.engines import environment
from streaming_core.engines import registry as engines
from streaming_core.engines.contract import Pass, Report, Task
from streaming_core.engines.registry import Engine
from streaming_core.errors import BadInput, CommandFailed, RunFailed, one_line
from streaming_core.kernels.program import Program, compile_app
from streaming_core.language.application import App
from streaming_core.process import end_group, start
from streaming_core.run.folder import earlier_report, held, run_in
from streaming_core.run.provenance import Outcome, PreparedRun, report_of
from streaming_core.run.report import LOG, Latency, RunReport, Sample
from streaming_core.run.way import External, RunSpec
from streaming_core.run.yardstick import yardstick_of

LINES = 3  # of the log, in an error
MAX_LINE = 200
POLL_SECONDS = 0.02
SLICE = 1 << 16

Say = Callable[[str], None]


def run(spec: RunSpec, source: Path, out: Path, say: Say = lambda line: None, limit: float = math.inf) -> RunReport:
    """Run a cell on the engine that the spec names; write outputs and, last, report.json into `out`.

    Args:
        spec: A spec of class External.
        source: The folder of the workload.
        out: The folder of the run: new, or with nothing but its spec.json.
        say: Receives a line about the run.
        limit: Seconds that the engine may take, if fewer than its manifest allows.

    Raises:
        BadInput: The request cannot be carried out, or the engine is not installed; nothing was written.
        RunFailed: The engine failed, or its results contradict its task.
        CommandFailed: The disk is full, or fails.
    """
    assert isinstance(spec, External)
    app = registry.load(spec.app)
    spec.check(app)
    opened = workload.read(source, app, spec.params)
    engine = engines.load(spec.executor)
    environment.check(engine)
    with held(spec, out) as is_complete:
        if is_complete:
            return earlier_report(out, app, opened, say)
        limit = min(limit, engine.manifest.limit)
        return run_in(out, lambda folder: _passes(spec, engine, app, opened, source, folder, limit))


def _passes(
    spec: External, engine: Engine, app: App, opened: workload.Workload, source: Path, work: Path, limit: float
) -> RunReport:
    """Make the engine run all passes. Its outputs go to `work`, and its log to the folder above."""
    log, result = work.with_name(LOG), work / "result"
    result.mkdir()
    load_before = os.getloadavg()[0]
    params = opened.manifest["params"]
    schema = app.results(params)["outputs"]
    schema = pa.schema([schema.field(name) for name in spec.output_columns(app)])
    task = _task(spec, params, schema, work)
    program = compile_app(app, params)
    wall = _call(engine, source, work, result, log, limit)
    report = _checked(engine, task, app, opened, schema, result, wall, log)
    peak_memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    samples, yardstick, host = _samples(spec, report, opened, program)
    os.replace(result / "outputs", work / "outputs")
    outcome = Outcome(
        samples=samples,
        state_digest=None,
        peak_memory_bytes=peak_memory,
        yardstick=yardstick,
        host={
            "load_after": os.getloadavg()[0],
            "energy": f"executor {engine.name} does not measure energy",
            "engine": {"system": engine.manifest.system, **report.versions},
            **host,
        },
    )
    return report_of(PreparedRun(spec, program, opened, load_before), outcome)


# --- the process -----------------------------------------------------------------------------------------------------


def _task(spec: External, params: dict, schema: pa.Schema, work: Path) -> Task:
    """Write the task's files into `work`. `schema`: the columns of the outputs."""
    columns = "columns.parquet"
    write_file(work / columns, schema.empty_table())
    names = ("app", "threads", "batch", "order", "rate", "repetitions", "seconds")
    task = Task(params=params, columns=columns, **{name: getattr(spec, name) for name in names})
    storage.write_json(work / "task.json", task.model_dump(mode="json"))
    return task


def _call(engine: Engine, source: Path, work: Path, result: Path, log: Path, limit: float) -> float:
    """Run the engine's command; returns its seconds.

    Raises:
        RunFailed: It cannot be started, fails, or takes too long.
    """
    paths = {"--workload": source, "--spec": work / "task.json", "--out": result}
    options = [word for option, path in paths.items() for word in (option, str(path.resolve()))]
    arguments = [*engine.manifest.command, *options]
    variables = environment.variables(engine, os.environ)
    began = time.monotonic()
    with log.open("wb") as output:
        try:
            # Popen looks the program up on this process's PATH, not on that of the environment.
            program = shutil.which(arguments[0], path=variables["PATH"]) or arguments[0]
            process = start(
                [program, *arguments[1:]], cwd=engine.folder, env=variables, stdout=output, stderr=subprocess.STDOUT
            )
        except OSError as error:
            raise RunFailed(f"engine {engine.name}: cannot start {arguments[0]}: {error.strerror}") from None
        try:
            while process.poll() is None:
                interruption.check()
                if time.monotonic() - began > limit:
                    raise _failure(engine, f"it did not end within {limit:.0f} s, so it was stopped", log)
                time.sleep(POLL_SECONDS)
        finally:
            end_group(process)
    if process.returncode < 0:
        raise _failure(engine, f"it was killed by signal {-process.returncode}", log)
    if process.returncode:
        raise _failure(engine, f"it ended with exit code {process.returncode}", log)
    return time.monotonic() - began


def _failure(engine: Engine, fault: str, log: Path) -> RunFailed:
    """The error of an engine, with the last lines of its log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 8192))
        lines = [line.strip()[:MAX_LINE] for line in file.read().decode("utf-8", "replace").splitlines()]
    last = " | ".join([line for line in lines if line][-LINES:])
    return RunFailed(f"engine {engine.name}: {fault}; its log {f'ends: {last}' if last else 'is empty'}")


# --- its results ----------------------------------------------------------------------------------------------------


def _checked(
    engine: Engine,
    task: Task,
    app: App,
    opened: workload.Workload,
    schema: pa.Schema,
    result: Path,
    wall: float,
    log: Path,
) -> Report:
    """The report of an engine. `schema`: the columns that its outputs must have.

    Raises:
        RunFailed: The report or the outputs contradict the task, or each other.
    """

    def fail(fault: str) -> RunFailed:
        return _failure(engine, fault, log)

    try:
        report = Report.model_validate_json((result / "report.json").read_bytes())
    except FileNotFoundError:
        raise fail("it wrote no report.json") from None
    except ValidationError as error:
        raise fail(f"its report.json is invalid: {one_line(error, fields=Report.model_fields)}") from None
    if fault := report.fault(task, opened.rows, wall):
        raise fail(f"its report.json is wrong: {fault}")
    outputs = Parts.of(result / "outputs")
    if not outputs.paths:
        raise fail("it wrote no outputs/part-*.parquet")
    try:
        if line := _other_columns(schema, outputs.schema):
            raise fail(f"its outputs have another schema: {line}")
        parts = (outputs_digest(app, task.order, part) for part in outputs.slices(SLICE))
        digest = format_digest(*reduce(add, parts, (0, 0)))
    except BadInput as error:
        raise fail(str(error)) from None
    if digest != report.passes[0].digest:
        raise fail(f"its outputs have digest {digest}, but its report.json says {report.passes[0].digest}")
    return report


def _other_columns(expected: pa.Schema, actual: pa.Schema) -> str:
    """The first difference between two schemas; empty if there is none. Nullability does not count."""
    if missing := [name for name in expected.names if name not in actual.names]:
        return f"column {missing[0]} is missing"
    if extra := [name for name in actual.names if name not in expected.names]:
        return f"column {extra[0]} does not belong there; expected {', '.join(expected.names)}"
    if actual.names != expected.names:
        return f"the columns are {', '.join(actual.names)}, expected {', '.join(expected.names)}"
    for field in expected:
        if (kind := actual.field(field.name).type) != field.type:
            return f"column {field.name} has type {kind}, expected {field.type}"
    return ""


# --- measurements ----------------------------------------------------------------------------------------------------


def _samples(
    spec: External, report: Report, opened: workload.Workload, program: Program
) -> tuple[list[Sample], str | None, dict[str, str]]:
    """The samples of a run, the name of the compiled loop, and facts about the loop for `host`."""
    peaks = [pass_ for pass_ in report.passes if pass_.kind == "peak"]
    size, rest = divmod(len(peaks), spec.repetitions or 1)
    groups, at = [], 0
    for number in range(spec.repetitions):
        groups.append(peaks[at : (at := at + size + (number < rest))])
    loop, host = None, {}
    if groups and spec.seconds and opened.rows:
        try:
            loop = yardstick_of(program, opened)
            loop.one_pass()  # warms the loop up, as the engine is warm
        except (BadInput, CommandFailed, RunFailed) as error:
            loop, host = None, {"yardstick": f"the loop was not measured: {error}"}
    samples = [_sample(report.passes[0], 0)]
    for number, group in enumerate(groups, 1):
        wrong = [pass_ for pass_ in group if pass_.digest != report.passes[0].digest]
        typical = wrong[0] if wrong else sorted(group, key=lambda pass_: pass_.seconds)[len(group) // 2]
        seconds: list[float] = []
        while loop is not None and (not seconds or sum(seconds) < spec.seconds):
            seconds.append(loop.one_pass())
        figures = {"passes": len(group), "loop_seconds": statistics.median(seconds) if seconds else None}
        samples.append(_sample(typical, number).model_copy(update=figures))
    if report.passes[-1].kind == "open_loop":
        samples.append(_sample(report.passes[-1], len(samples)))
    return samples, loop.name if loop else None, host


def _sample(pass_: Pass, number: int) -> Sample:
    latency = Latency(**pass_.latency_us.model_dump()) if pass_.latency_us else Latency.of_pass(pass_.seconds)
    return Sample(
        kind=pass_.kind,
        repetition=number,
        events=pass_.events,
        outputs=pass_.outputs,
        digest=pass_.digest,
        in_order=True,  # the files are in order; the order of delivery is unknown
        seconds=pass_.seconds,
        events_per_s=pass_.events / pass_.seconds,
        processing=latency,
        end_to_end=latency if pass_.kind == "open_loop" else None,
        breakdown={},
        cpu_seconds=None,
    )
