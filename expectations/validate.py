"""Tests the tables and outputs of a run with Great Expectations, and writes pages with the results.

One Checkpoint (`expectations/files.py`) has a validation definition for each data set. It runs their suites, stores the
results and updates the pages, with the actions that it declares.

In:  warehouse/raw/{verdicts,violations,cells,samples} of the run, its plan, and the outputs of its cells.
Out: expectations/results/, reports/data_docs/, by run; warehouse/raw/expectations, one row per expectation. Each
     expectation that fails has a line on stderr, with data set, rule, application, cell and rows. A critical one fails
     the run's task. Warnings fail nothing; the pages show them.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from expectations.history import error_of, rows_of
from expectations.suites import DataSet, Expectation, cells, imports, invariants, outputs, samples, verdicts, violations
from jobs.raw import forget_raw, write_raw
from jobs.run_folder import read_plan
from reports import times
from reports.history import History
from reports.pages import Pages
from reports.site import write
from reports.views.data_docs import results_path, write_results
from streaming_core.errors import RunFailed
from streaming_core.language.expectations import CRITICAL, SEVERITIES, WARNING
from streaming_core.regression.home import Home
from streaming_core.regression.lock import hold, of_warehouse
from streaming_core.regression.plan import Plan

SHOWN_ROWS = 3
NAMING = ("app", "cell")


@dataclass
class Judgement:
    """The results of the expectations for a run.

    Attributes:
        sets: Number of data sets.
        count: Number of expectations.
        complaints: By severity, one line for each expectation that fails.
    """

    sets: int
    count: int
    complaints: dict[str, list[str]]

    @property
    def held(self) -> int:
        """Number of expectations that hold."""
        return self.count - sum(map(len, self.complaints.values()))


def data_sets(spark: SparkSession, home: Home, run_id: str, plan: Plan) -> list[DataSet]:
    """Every data set of a run, the small ones first."""
    sets = [module.data_set(spark, home, run_id, plan) for module in (verdicts, violations, cells, samples)]
    return [
        *sets,
        *invariants.data_sets(spark, home, run_id, plan),
        *imports.data_sets(spark, home, run_id, plan),
        *outputs.data_sets(spark, home, run_id, plan),
    ]


def suites_of(plan: Plan) -> dict[str, Sequence[Expectation]]:
    """The expectations of each import and of the outputs of each application of a run, by the name of the suite."""
    apps = [outputs.load(name) for name in dict.fromkeys(cell["spec"]["app"] for cell in plan["cells"])]
    inputs: dict[str, Sequence[Expectation]] = {
        name: imports.expectations_of(imports.load(workload["app"]))
        for name, workload in imports.imports_of(plan).items()
    }
    return inputs | {outputs.suite_name(app.name): outputs.expectations_of(app) for app in apps}


def judge(spark: SparkSession, home: Home, run_id: str, plan: Plan) -> Judgement:
    """Run the Checkpoint under the run's name, keep its results, and update the first page.

    Raises:
        BadInput: A table of the run is missing, or an expectation beside an application is none of Great Expectations.
    """
    results_path(home, run_id).unlink(missing_ok=True)
    forget_raw(home, "expectations", run_id)
    sets = data_sets(spark, home, run_id, plan)
    # Imported here, because it takes seconds: bad input is reported before.
    import great_expectations as gx

    from expectations.context import checkpoint, new_context, site_folder
    from expectations.declared import check
    from expectations.files import FIXED, SOURCE

    suites = suites_of(plan)
    check(suites)
    declared = FIXED | suites
    # The time is that of the request, so that a second validation replaces the pages of the first.
    run = gx.RunIdentifier(run_name=run_id, run_time=times.of_run(run_id))
    complaints: dict[str, list[str]] = {severity: [] for severity in SEVERITIES}
    held: dict[str, dict[str, Any]] = {}
    raw: list[dict[str, Any]] = []
    # All runs have one site of results.
    with hold(of_warehouse(home), "expectations", run=run_id):
        context = new_context(home, {data_set.name: declared[data_set.name] for data_set in sets})
        results = checkpoint(context, sets).run(run_id=run).run_results.values()
        for data, result in zip(sets, results, strict=True):
            outcomes = [outcome.to_json_dict() for outcome in result.results]
            raw += rows_of(data.name, outcomes)
            failed = [outcome for outcome in outcomes if not outcome["success"]]
            held[data.name] = {"held": len(outcomes) - len(failed), "count": len(outcomes)}
            for severity in SEVERITIES:
                of_severity = [outcome for outcome in failed if outcome["expectation_config"]["severity"] == severity]
                complaints[severity] += [complaint(data.name, outcome) for outcome in of_severity]
                held[data.name][severity] = len(of_severity)
        # Our pages use none of its styles, pictures and fonts. One of its styles loads a picture from another site.
        shutil.rmtree(site_folder(home) / "static", ignore_errors=True)
        for name, outcome in held.items():
            (page,) = site_folder(home).glob(f"validations/{name}/{run_id}/*/{SOURCE}-{name}.html")
            outcome["page"] = str(page.relative_to(site_folder(home)))
        write_raw(home, "expectations", run_id, raw)
        write_results(home, run_id, held)
        write(site_folder(home) / "index.html", Pages(History(home)).data_docs())
    return Judgement(len(sets), len(raw), complaints)


def complaint(name: str, result: dict) -> str:
    """One line on an expectation that fails: data set, rule, application, cell, first rows."""
    config, outcome = result["expectation_config"], result["result"]
    error = error_of(result)
    rule = config.get("description") or config["type"]
    if error:
        return _line(f"{name}: cannot evaluate the rule '{rule}': {error}")
    rows = (outcome.get("details") or {}).get("unexpected_rows")
    if rows:
        count = outcome["observed_value"]
        places = list(dict.fromkeys(f"app {row['app']}, cell {row['cell']}" for row in rows))
        more = f" and {len(places) - 1} other{'s' if len(places) > 2 else ''}" if len(places) > 1 else ""
        first = [row for row in rows if f"app {row['app']}, cell {row['cell']}" == places[0]][:SHOWN_ROWS]
        shown = "; ".join(
            ", ".join(f"{k}={'null' if v is None else v}" for k, v in row.items() if k not in NAMING) for row in first
        )
        verb = "rows break" if count > 1 else "row breaks"
        return _line(f"{name}: {count:,} {verb} the rule '{rule}': {places[0]}{more}: {shown}")
    value = outcome.get("observed_value", outcome.get("partial_unexpected_list"))
    bounds = {k: v for k, v in config["kwargs"].items() if k in ("column", "value_set", "min_value", "max_value")}
    return _line(f"{name}: {rule} {json.dumps(bounds, default=str)} fails: got {json.dumps(value, default=str)}")


def _line(text: str, limit: int = 1000) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def work(spark: SparkSession, home: Home, run_id: str) -> str:
    """Test a run; returns a line with the number of expectations that hold.

    Raises:
        RunFailed: A critical expectation fails. Each failure has a line on stderr.
    """
    judgement = judge(spark, home, run_id, read_plan(home, run_id))
    for severity, lines in judgement.complaints.items():
        for line in lines:
            print(f"expectations: {'' if severity == CRITICAL else f'{severity}: '}{line}", file=sys.stderr)
    critical, doubts = judgement.complaints[CRITICAL], len(judgement.complaints[WARNING])
    summary = f"{judgement.held} of {judgement.count} expectations hold, in {judgement.sets} data sets"
    if doubts:
        summary += f", {doubts} warning{'s' * (doubts > 1)}"
    if critical:
        raise RunFailed(f"{summary}; {critical[0]}")
    return f"{summary}; {home.reports / 'data_docs' / 'index.html'}"
