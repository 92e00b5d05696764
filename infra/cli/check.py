"""`lockstep check`: check an application in less than a minute, on few events.

The command does what a regression does, in a temporary folder, without Airflow, history and pages. It shows no speeds:
so few events say nothing about them.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra import checkout
from streaming_core.apps import registry
from streaming_core.cli.options import Columns, Json, Settings, parameters
from streaming_core.errors import BadInput, RunFailed
from streaming_core.language.expectations import path_of
from streaming_core.regression.home import Home, new_run_id
from streaming_core.regression.plan import PlannedCell, PlannedWorkload
from streaming_core.regression.request import IMPORT_NAME, RegressionSpec
from streaming_core.run.way import AXES, ENGINE_EXECUTORS, UNORDERED_CHANNELS, RunSpec, engine_executors_of
from streaming_core.storage import write_json

if TYPE_CHECKING:
    from pathlib import Path

    from reports.history import Run
    from streaming_core.data.workload import Manifest
    from streaming_core.search.case import Case
    from streaming_core.search.search import Report

# So that the events are split between threads and batches in many ways.
THREADS, BATCHES = [1, 2, 3], [16]
IMPORT = "data"  # the name of the import in the temporary folder
SHOWN = 10  # red cells that are printed with their reasons


def check(
    name: Annotated[str, typer.Argument(metavar="APP", help="Application id. `streaming-core apps` lists them.")],
    events: Annotated[int, typer.Option(min=1, metavar="N", help="Number of events to generate.")] = 2000,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="[STREAM=]FILE|NAME",
            help="Run on files of your own instead, or on the import of this name. Repeat it for more files.",
        ),
    ] = None,
    mapping: Columns = None,
    settings: Settings = None,
    seconds: Annotated[
        float, typer.Option("--search", min=0.0, metavar="SECONDS", help="Seconds of a search for faults; 0 = none.")
    ] = 10.0,
    as_json: Json = False,
) -> int:
    """Check an application in less than a minute, on few events.

    The command generates events, or takes yours from --data. It runs both
    oracles, and every executor that fits on 1, 2 and 3 threads. It compares
    each result and checks the invariants. Then it searches for faults on
    other inputs, as `lockstep find` does. It keeps no files and measures no
    speed. It exits with 1 unless all is equal and the search finds nothing.

    Examples:
        lockstep check wc
        lockstep check gs --events 500
        lockstep check wc --data lines.csv
    """
    from jobs import load_metrics, validate_outputs
    from jobs.session import spark_session
    from reports.history import History
    from streaming_core.importing import form
    from streaming_core.regression import matrix
    from streaming_core.search import text

    params = parameters(name, None, settings)
    console = Console(stderr=as_json, highlight=False)
    with (
        tempfile.TemporaryDirectory(prefix="lockstep-check-") as folder,
        ExitStack() as sessions,
        ThreadPoolExecutor(1) as background,  # Spark takes as long to start as all cells take to run
        console.status("preparing events and computing both oracles") as status,
    ):
        home, run_id = Home(folder), new_run_id()
        about, source = ("generator", f"{events:,} events, the same if generated twice"), {}
        if data:
            manifest, source = _import(home, name, params, data, mapping or []), {name: IMPORT}
            events, lines = manifest["events"], form.sorted_lines(manifest["imported"])
            about = "data", "; ".join([f"{events:,} events of {', '.join(data)}", *lines])
        else:
            registry.load(name).check_generator()
        regression = _regression(name, events, params, source)
        starting = background.submit(lambda: sessions.enter_context(spark_session("lockstep check")))
        planned = matrix.plan(regression, home, run_id)
        outputs = _prepared(home, run_id, planned["workloads"][0])
        for number, cell in enumerate(planned["cells"], 1):
            status.update(f"running cell {number} of {len(planned['cells'])}: {cell['cell']}")
            _run(home, run_id, name, cell)
        status.update("comparing the results with the oracle")
        validate_outputs.judge_cells(starting.result(), home, run_id)
        load_metrics.work(home, run_id)
        run = History(home).run(run_id)
        status.update(f"searching for faults on other inputs, for {seconds:.0f} s")
        report, cases = _search(home, name, seconds, home.imported(IMPORT) if data else None, starting.result())
    green = run.green and not cases
    facts = {about[0]: about[1], "oracles": f"{outputs:,} outputs; the interpreted and the compiled oracle agree"}
    invariants = list(registry.load(name).required_invariants("total", params))
    if not as_json:
        facts["invariants"] = "; ".join(invariants) or "none; declare one with app.invariant(name, SQL)"
        _show(console, run, facts | ({"search": report.sentence} if seconds else {}))
        _show_cases(console, name, cases)
    else:
        cells = [{"cell": cell.name, "verdict": cell.verdict, "reason": cell.reason} for cell in run.cells]
        result = {"application": name, "events": events, "outputs": outputs, "invariants": invariants}
        result |= {"green": green, "sentence": run.sentence, "cells": cells, "search": text.report(report)}
        print(json.dumps(result, indent=1))
    return 0 if green else 1


def _show_cases(console: Console, name: str, cases: list[tuple[Case, str]]) -> None:
    """Print the cases that the search found, each with its reason."""
    from streaming_core.search import text
    from streaming_core.search.replay import Replay

    for case, reason in cases:
        console.print()
        text.show_case(case, Replay(case.symptom, reason, 1), console)
        console.print(f"to keep it as a page and a test, type `lockstep find {name}`", markup=False, soft_wrap=True)


def _search(
    home: Home, name: str, seconds: float, source: Path | None, spark: Any
) -> tuple[Report, list[tuple[Case, str]]]:
    """Search for faults on other inputs; returns what was tried, and the cases with their reasons."""
    from jobs.invariants import broken
    from streaming_core.search import search
    from streaming_core.search.case import Case

    app = registry.load(name)
    invariants = partial(broken, spark, app) if app.invariants else None
    if not seconds:
        return search.Report(name, 0), []
    report = search.search(name, home.corpus(name), home.finds(name), seconds, source=source, invariants=invariants)
    return report, [(Case.load(find.folder), find.reason) for find in report.finds]


def _import(home: Home, name: str, params: dict[str, Any], data: list[str], mapping: list[str]) -> Manifest:
    """Make an import of a user's files or of one of the user's imports; returns its manifest."""
    from streaming_core.data import workload
    from streaming_core.importing import events, form

    out = home.imported(IMPORT)
    if (
        not mapping
        and len(data) == 1
        and IMPORT_NAME.fullmatch(data[0])
        and (kept := checkout.home().imported(data[0])).is_dir()
    ):
        shutil.copytree(kept, out)
    else:
        events.run(form.request(form.Form(name, data, mapping, params=params, tolerance=None)), out)
    return workload.read_manifest(out)


def _regression(name: str, events: int, params: dict[str, Any], data: dict[str, str]) -> RegressionSpec:
    """The request for every way that fits an application."""
    app = registry.load(name)
    if path_of(app.file).is_file():  # only then, because Great Expectations takes seconds to import
        from expectations.declared import check as check_expectations
        from expectations.suites import outputs as suite

        check_expectations({suite.suite_name(name): suite.expectations_of(app)})
    executors = engine_executors_of(app.kind)
    request: dict[str, Any] = {"applications": [name], "executors": executors}
    request |= {"threads": THREADS, "batches": BATCHES, "schemes": ["all"], "plans": ["all"], "params": {name: params}}
    if app.unordered:
        request["channels"] = list(AXES["channel"][:1]) + sorted(UNORDERED_CHANNELS)
    return RegressionSpec.parse(request | {"events": events, "data": data, "repetitions": 1, "seconds": 0})


def _untried(regression: RegressionSpec) -> Iterator[str]:
    """A line for each executor with strategies that the check does not run."""
    for executor in regression.executors:
        rest = {
            axis: [value for value in values if value not in getattr(regression, f"{axis}s")]
            for axis, values in ENGINE_EXECUTORS[executor].axes().items()
        }
        if named := "; ".join(f"{axis} {', '.join(values)}" for axis, values in rest.items() if values):
            yield f"{executor}: {named}; a matrix can have them"


def _prepared(home: Home, run_id: str, entry: PlannedWorkload) -> int:
    """Make the workload and compute its oracle twice, interpreted and compiled; returns the number of outputs."""
    from jobs.prepare_workloads import take
    from streaming_core.data import workload
    from streaming_core.oracle import oracle
    from streaming_core.run.comparison import diff

    app, folder = entry["app"], home.workload(entry["app"], entry["address"])
    if entry.get("data"):
        take(home.imported(IMPORT), folder, entry)
    else:
        assert entry["seed"] is not None  # imported events have none
        workload.write(app, entry["params"], entry["events"], entry["seed"], folder)
    address = oracle.address(workload.read_manifest(folder))
    kept, compiled = home.oracle(app, address), home.root / "compiled"
    manifests = [oracle.run(folder, kept, "interpreted"), oracle.run(folder, compiled, "compiled")]
    if any(manifests[0][name] != manifests[1][name] for name in ("output_digest", "state_digest")):
        difference = diff(compiled, kept).text().partition("\n")[0]
        raise RunFailed(
            f"the interpreted and the compiled oracle of {app} disagree: {difference}. This is a fault of Lockstep; "
            "please report it with the application"
        )
    write_json(home.run(run_id) / "oracles.json", {entry["address"]: address})
    return manifests[0]["outputs"]["rows"]


def _run(home: Home, run_id: str, name: str, cell: PlannedCell) -> None:
    from streaming_core.run import engine, planning

    attempt, spec = home.attempt(run_id, cell["cell"], 1), RunSpec.parse(cell["spec"])
    try:
        engine.run(spec, home.workload(name, cell["workload"]), attempt, find_plan=planning.planned)
    except (BadInput, RunFailed) as error:
        attempt.mkdir(parents=True, exist_ok=True)
        write_json(attempt / "exit.json", {"exit_code": 1, "error": str(error)})


def _show(console: Console, run: Run, headers: dict[str, str]) -> None:
    from infra.cli.summary import STYLES
    from reports.pages import MARKS
    from streaming_core.regression.matrix import omissions

    for title, text in headers.items():
        console.print(f"{title:<11}{text}", soft_wrap=True)
    ways: dict[tuple[str, str], dict[int, Text]] = {}
    for cell in run.cells:
        mark = Text(MARKS[cell.verdict], STYLES[cell.verdict])
        ways.setdefault((cell.spec.executor, cell.strategy), {})[cell.spec.threads] = mark
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("executor", "strategy", *(f"{n} thread{'s' * (n > 1)}" for n in THREADS)):
        table.add_column(title, no_wrap=True)
    for (executor, strategy), marks in ways.items():
        table.add_row(executor, strategy, *(marks.get(n, Text("")) for n in THREADS))
    console.print()
    console.print(table)
    for cell in [cell for cell in run.cells if cell.red][:SHOWN]:
        console.print(Text(f"{cell.name} {cell.outcome.word}: {cell.reason}", "red"), soft_wrap=True)
    for line in [*omissions(run.plan), *_untried(RegressionSpec.parse(run.plan["regression"]))]:
        console.print(Text(f"left out   {line}", "dim"), soft_wrap=True)
    console.print(Text(f"\n{run.sentence}", "bold green" if run.green else "bold red"), soft_wrap=True)
