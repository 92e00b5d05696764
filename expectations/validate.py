"""Tests the tables and outputs of a run with Great Expectations, and writes pages with the results.

In:  warehouse/raw/{verdicts,violations,cells,samples} of the run, its plan, and the outputs of its cells.
Out: reports/data_docs/, by run. Each expectation that fails has a line on stderr, with data set, rule, application,
     cell and rows.
"""

from __future__ import annotations

import json
import shutil
import sys

from pyspark.sql import SparkSession

from reports import times
from reports.data_docs import results_path, write_results
from reports.history import History
from reports.pages import Pages, write
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.home import RUN_ID, Home

SHOWN_ROWS = 3
FETCHED_ROWS = 200  # as many as Great Expectations fetches of a query
NAMING = ("app", "cell")


def data_sets(spark: SparkSession, home: Home, run_id: str, plan: dict) -> list:
    """Every data set of a run, the small ones first."""
    from expectations.suites import cells, outputs, samples, verdicts, violations

    sets = [module.data_set(spark, home, run_id, plan) for module in (verdicts, violations, cells, samples)]
    return sets + outputs.data_sets(spark, home, run_id, plan)


def judge(spark: SparkSession, home: Home, run_id: str, plan: dict) -> tuple[int, int, list[str]]:
    """Validate every data set under the run's name, and update the pages.

    Returns:
        Number of data sets, number of expectations, one line per expectation that fails.
    """
    # Imported here, because it takes seconds: a wrong run id is reported before.
    import great_expectations as gx
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    from expectations.context import SITE, open_context, site_folder

    results_path(home, run_id).unlink(missing_ok=True)
    context = open_context(home)
    # The time is that of the request, so that a second validation replaces the pages of the first.
    run = gx.RunIdentifier(run_name=run_id, run_time=times.of_run(run_id))
    source = context.data_sources.add_spark(run_id, persist=False)
    count, complaints, pages, held = 0, [], [], {}
    sets = data_sets(spark, home, run_id, plan)
    for data in sets:
        batch = source.add_dataframe_asset(data.name).add_batch_definition_whole_dataframe(run_id)
        suite = context.suites.add(gx.ExpectationSuite(name=data.name, expectations=data.expectations))
        definition = context.validation_definitions.add(
            gx.ValidationDefinition(name=data.name, data=batch, suite=suite)
        )
        result = definition.run(batch_parameters={"dataframe": data.rows}, run_id=run, result_format="COMPLETE")
        count += len(result.results)
        held[data.name] = sum(bool(one.success) for one in result.results), len(result.results)
        complaints += [complaint(data.name, r.to_json_dict()) for r in result.results if not r.success]
        pages.append(ExpectationSuiteIdentifier(name=data.name))
        pages.append(
            ValidationResultIdentifier(
                expectation_suite_identifier=pages[-1], run_id=run, batch_identifier=result.batch_id
            )
        )
    context.build_data_docs(site_names=[SITE], resource_identifiers=pages, build_index=False)
    # Our pages use none of its styles, pictures and fonts. One of its styles loads a picture from another site.
    shutil.rmtree(site_folder(home) / "static", ignore_errors=True)
    results = {}
    for name, (holding, all_of_them) in held.items():
        (page,) = site_folder(home).glob(f"validations/{name}/{run_id}/*/*.html")
        results[name] = {"held": holding, "count": all_of_them, "page": str(page.relative_to(site_folder(home)))}
    write_results(home, run_id, results)
    write(site_folder(home) / "index.html", Pages(History(home)).data_docs())
    return len(sets), count, complaints


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


def read_plan(home: Home, run_id: str) -> dict:
    """The plan of a run.

    Raises:
        BadInput: The run does not exist.
    """
    if not RUN_ID.fullmatch(run_id):
        raise BadInput(f"--run {run_id!r} is not a run id, such as 20260131T020000Z-0123abcd")
    path = home.run(run_id) / "plan.json"
    if not path.is_file():
        raise BadInput(f"run {run_id} does not exist: {path} is missing")
    return json.loads(path.read_text())


def work(spark: SparkSession, home: Home, run_id: str) -> str:
    """Test a run; returns a line with the number of expectations that hold.

    Raises:
        RunFailed: An expectation fails. Each one has a line on stderr, and the message contains the first.
    """
    sets, count, complaints = judge(spark, home, run_id, read_plan(home, run_id))
    for line in complaints:
        print(f"expectations: {line}", file=sys.stderr)
    summary = f"{count - len(complaints)} of {count} expectations hold, in {sets} data sets"
    if complaints:
        raise RunFailed(f"{summary}; {complaints[0]}")
    return f"{summary}; {home.reports / 'data_docs' / 'index.html'}"
