"""Invariants: each completed cell was checked against each invariant of its application, and no row breaks one.

The task validate_outputs evaluates the SQL of the invariants (jobs/invariants.py), because the verdict on a cell
depends on the result. Here nothing evaluates that SQL a second time. The data set has a row for each cell and
invariant, with the verdict of that task. If rows break the invariant, it has a row for each of the first of them.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from expectations.suites import DataSet, broken_rows, expect, parameter, raw_rows
from streaming_core.apps.registry import load
from streaming_core.language.expectations import CRITICAL
from streaming_core.regression.home import Home
from streaming_core.regression.plan import Plan
from streaming_core.run.way import executor_of

SCHEMA = (
    "app string, cell string, invariant string, sql string, verdict string, detail string, seq bigint, sub bigint, "
    "actual string, event string"
)

EXPECTATIONS = [
    expect("expect_table_row_count_to_be_between", CRITICAL, "A cell has invariants to check", min_value=1),
    expect(
        "expect_column_distinct_values_to_equal_set",
        CRITICAL,
        "The invariants are those that the applications of the completed cells declare",
        column="invariant",
        value_set=parameter("invariants"),
    ),
    broken_rows(
        "The task validate_outputs evaluated each invariant of the application on the result of each completed cell",
        "app, cell, invariant, sql FROM {batch} WHERE verdict IS NULL",
    ),
    broken_rows(
        "The SQL of an invariant, as the task validate_outputs evaluated it, selected no row of a cell",
        "app, cell, invariant, seq, sub, actual, event, verdict, detail, sql FROM {batch}"
        " WHERE verdict NOT IN ('equal', 'not_comparable')",
    ),
]


def data_sets(spark: SparkSession, home: Home, run_id: str, plan: Plan) -> list[DataSet]:
    """`invariants`, unless no completed cell has any."""
    checks, violations = (raw_rows(home, t, run_id).to_pylist() for t in ("verdicts", "violations"))
    verdicts = {(row["cell"], row["check"]): row for row in checks}
    rows = []
    for cell in plan["cells"]:
        spec = cell["spec"]
        if (cell["cell"], "outputs") not in verdicts:  # it did not complete
            continue
        gives_state = executor_of(spec["executor"]).gives_state
        for name, sql in load(spec["app"]).required_invariants(spec["order"], spec["params"], gives_state).items():
            check = f"invariant:{name}"
            verdict = verdicts.get((cell["cell"], check), {})
            if cell["is_bound"] and not verdict:  # the wrong rows of a bound say nothing about the application
                continue
            broken = [v for v in violations if (v["cell"], v["check"]) == (cell["cell"], check)] or [{}]
            about = spec["app"], cell["cell"], f"{spec['app']}: {name}", " ".join(sql.split())
            judged = verdict.get("verdict"), verdict.get("detail") or None
            rows += [
                (*about, *judged, *(violation.get(key) for key in ("seq", "sub", "actual", "event")))
                for violation in broken
            ]
    if not rows:
        return []
    names = sorted({row[2] for row in rows})
    return [DataSet("invariants", spark.createDataFrame(rows, SCHEMA), {"invariants": names})]
