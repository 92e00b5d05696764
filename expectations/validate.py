"""Tests the tables and outputs of a run with Great Expectations, and writes pages with the results.

Each data set has a Checkpoint (`expectations/files.py`). It runs the data set's suite, stores the results and
updates the pages, with the actions that it declares.

In:  warehouse/raw/{verdicts,violations,cells,samples} of the run, its plan, and the outputs of its cells.
Out: expectations/results/, reports/data_docs/, by run. Each expectation that fails has a line on stderr, with data set,
     rule, application, cell and rows. A critical one fails the run's task. Warnings fail nothing; the pages show them.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from expectations.suites import DataSet, Expectation, cells, invariants, outputs, samples, verdicts, violations
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

SHOWN_ROWS = 3
FETCHED_ROWS = 200  # the number that Great Expectations fetches for a query
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


def data_sets(spark: SparkSession, home: Home, run_id: str, plan: dict) -> list[DataSet]:
    """Every data set of a run, the small ones first."""
    sets = [module.data_set(spark, home, run_id, plan) for module in (verdicts, violations, cells, samples)]
    return [
        *sets,
        *invariants.data_sets(spark, home, run_id, plan),
        *outputs.data_sets(spark, home, run_id, plan),
    ]


def suites_of(plan: dict) -> dict[str, Sequence[Expectation]]:
    """The expectations of the outputs of each application of a run, by the name of the suite."""
    apps = [outputs.load(name) for name in dict.fromkeys(cell["spec"]["app"] for cell in plan["cells"])]
    return {outputs.suite_name(app.name): outputs.expectations_of(app) for app in apps}


def judge(spark: SparkSession, home: Home, run_id: str, plan: dict) -> Judgement:
    """Run the Checkpoint of every data set under the run's name, and update the first page.

    Raises:
        BadInput: A table of the run is missing, or an expectation beside an application is none of Great Expectations.
    """
    results_path(home, run_id).unlink(missing_ok=True)
    sets, suites = data_sets(spark, home, run_id, plan), suites_of(plan)
    # Imported here, because it takes seconds: bad input is reported before.
    import great_expectations as gx

    from expectations.context import new_context, site_folder
    from expectations.declared import check
    from expectations.files import FIXED, SOURCE

    check(suites)
    # The time is that of the request, so that a second validation replaces the pages of the first.
    run = gx.RunIdentifier(run_name=run_id, run_time=times.of_run(run_id))
    complaints: dict[str, list[str]] = {severity: [] for severity in SEVERITIES}
    held: dict[str, dict[str, Any]] = {}
    count = 0
    # All runs have one site of results.
    with hold(of_warehouse(home), "expectations", run=run_id):
        context = new_context(home, FIXED | suites)
        for data in sets:
            result = context.checkpoints.get(data.name).run(
                batch_parameters={"dataframe": data.rows}, expectation_parameters=data.parameters, run_id=run
            )
            [outcomes] = [validation.results for validation in result.run_results.values()]
            failed = [one.to_json_dict() for one in outcomes if not one.success]
            count += len(outcomes)
            held[data.name] = {"held": len(outcomes) - len(failed), "count": len(outcomes)}
            for severity in SEVERITIES:
                of_severity = [one for one in failed if one["expectation_config"]["severity"] == severity]
                complaints[severity] += [complaint(data.name, one) for one in of_severity]
                held[data.name][severity] = len(of_severity)
        # Our pages use none of its styles, pictures and fonts. One of its styles loads a picture from another site.
        shutil.rmtree(site_folder(home) / "static", ignore_errors=True)
        for name, outcome in held.items():
            (page,) = site_folder(home).glob(f"validations/{name}/{run_id}/*/{SOURCE}-{name}.html")
            outcome["page"] = str(page.relative_to(site_folder(home)))
        write_results(home, run_id, held)
        write(site_folder(home) / "index.html", Pages(History(home)).data_docs())
    return Judgement(len(sets), count, complaints)


def complaint(name: str, result: dict) -> str:
    """One line on an expectation that fails: data set, rule, application, cell, first rows."""
    config, outcome = result["expectation_config"], result["result"]
    error = next((e["exception_message"] for e in _exceptions(result) if e["exception_message"]), None)
    rule = config.get("description") or config["type"]
    if error:
        return _line(f"{name}: cannot evaluate the rule '{rule}': {error}")
    rows = (outcome.get("details") or {}).get("unexpected_rows")
    if rows:
        count = f"{len(rows)}{' or more' if len(rows) == FETCHED_ROWS else ''} row{'s' if len(rows) > 1 else ''}"
        places = list(dict.fromkeys(f"app {row['app']}, cell {row['cell']}" for row in rows))
        more = f" and {len(places) - 1} other{'s' if len(places) > 2 else ''}" if len(places) > 1 else ""
        first = [row for row in rows if f"app {row['app']}, cell {row['cell']}" == places[0]][:SHOWN_ROWS]
        shown = "; ".join(
            ", ".join(f"{k}={'null' if v is None else v}" for k, v in row.items() if k not in NAMING) for row in first
        )
        return _line(
            f"{name}: {count} break{'' if len(rows) > 1 else 's'} the rule '{rule}': {places[0]}{more}: {shown}"
        )
    value = outcome.get("observed_value", outcome.get("partial_unexpected_list"))
    bounds = {k: v for k, v in config["kwargs"].items() if k in ("column", "value_set", "min_value", "max_value")}
    return _line(f"{name}: {rule} {json.dumps(bounds, default=str)} fails: got {json.dumps(value, default=str)}")


def _exceptions(result: dict) -> list[dict]:
    info = result.get("exception_info") or {}
    return [info] if "exception_message" in info else [i for i in info.values() if isinstance(i, dict)]


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
