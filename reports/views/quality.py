"""Quality over time: the expectations of each data set over the last runs, its rows, and its rows without a value.

The mart `quality` has a row for each result of Great Expectations. The bounds of an import follow from its last nights
(`expectations/suites/imports.py`), and its charts show them as a band.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from reports.history.load import History, Row
from reports.history.text import NOTHING
from reports.site import slug
from reports.times import started
from reports.views.data_docs import RESULTS
from reports.views.performance import Chart
from streaming_core.language.expectations import CRITICAL
from streaming_core.storage import left_json

SHOWN_RUNS = 14  # the newest ones
ROW_COUNT = "expect_table_row_count_to_be_between"
NON_NULL = "expect_column_proportion_of_non_null_values_to_be_between"
HOLDS, DOUBTFUL, BROKEN, ABSENT = "holds", "does not hold", "a critical rule does not hold", "not in this run"
_WORST = (ABSENT, HOLDS, DOUBTFUL, BROKEN)


@dataclass(frozen=True)
class Rule:
    """An expectation of a data set over the runs.

    Attributes:
        text: the rule in words.
        column: the column that it is about; empty for whole rows.
        severity: that of its newest result.
        observed: the newest observed value; empty if there is none.
        states: one for each run, the newest first.
    """

    text: str
    column: str
    severity: str
    observed: str
    states: list[str]


@dataclass(frozen=True)
class DataSet:
    """A data set over the runs.

    Attributes:
        name: its name.
        states: the worst state of its rules in each run, the newest first.
        links: the page of its result in each run, below the reports; empty if there is none.
        rules: its rules in the order of the results.
        charts: its charts.
    """

    name: str
    states: list[str]
    links: list[str]
    rules: list[Rule]
    charts: list[Chart] = field(default_factory=list)

    @property
    def newest(self) -> str:
        """Its state in the newest run that tested it."""
        return next((state for state in self.states if state != ABSENT), ABSENT)

    @property
    def sentence(self) -> str:
        """`5 of 6 rules hold`, in the newest run that tested it."""
        states = [next((state for state in rule.states if state != ABSENT), ABSENT) for rule in self.rules]
        return f"{states.count(HOLDS)} of {len(states)} rules hold"


@dataclass(frozen=True)
class Quality:
    """The page.

    Attributes:
        runs: the ids of the runs, the newest first.
        sets: the data sets: imports first, then outputs, then the tables of the run.
        svgs: the pictures of the charts, by their paths below the reports.
    """

    runs: list[str]
    sets: list[DataSet]
    svgs: dict[str, str]

    @classmethod
    def of(cls, history: History) -> Quality:
        """The quality of the data in the last runs of a history."""
        rows = sorted(history.mart("quality"), key=lambda row: (row["run_id"], row["data_set"], row["number"]))
        runs = sorted({row["run_id"] for row in rows}, reverse=True)[:SHOWN_RUNS]
        results = {run: left_json(history.home.run(run) / RESULTS) for run in runs}
        by_set: dict[str, list[Row]] = {}
        for row in rows:
            if row["run_id"] in results:
                by_set.setdefault(row["data_set"], []).append(row)
        svgs: dict[str, str] = {}
        sets = [_data_set(name, by_set[name], runs, results, svgs) for name in sorted(by_set, key=_place)]
        return cls(runs, sets, svgs)

    @property
    def headline(self) -> str:
        """The newest run in one sentence."""
        if not self.runs:
            return "No data set has been tested yet"
        tested = [data_set for data_set in self.sets if data_set.states[0] != ABSENT]
        held = sum(data_set.states[0] == HOLDS for data_set in tested)
        return f"{held} of {len(tested)} data sets of the newest run keep all rules"

    @property
    def look(self) -> str:
        """The colour of the headline."""
        states = {data_set.states[0] for data_set in self.sets}
        return "red" if BROKEN in states else "amber" if DOUBTFUL in states else "green" if self.runs else ""


def _place(name: str) -> tuple[int, str]:
    return (0 if name.startswith("import_") else 1 if name.startswith("outputs_") else 2, name)


def _state(row: Row) -> str:
    return HOLDS if row["success"] else BROKEN if row["severity"] == CRITICAL else DOUBTFUL


def _data_set(
    name: str, rows: list[Row], runs: list[str], results: dict[str, dict[str, Any]], svgs: dict[str, str]
) -> DataSet:
    """A data set; adds its charts to `svgs`."""
    by_rule: dict[tuple, dict[str, Row]] = {}
    for row in rows:
        by_rule.setdefault((row["expectation"], row["column"], row["rule"]), {})[row["run_id"]] = row
    numbered = sorted(by_rule.values(), key=lambda of_rule: next(reversed(of_rule.values()))["number"])
    rules = [_rule(of_rule, runs) for of_rule in numbered]
    states = [max((rule.states[at] for rule in rules), key=_WORST.index) for at in range(len(runs))]
    pages = [results[run].get(name, {}).get("page", "") for run in runs]
    links = [f"data_docs/{page}" if page else "" for page in pages]
    return DataSet(name, states, links, rules, list(_charts(name, rows, dict(zip(runs, links, strict=True)), svgs)))


def _rule(by_run: dict[str, Row], runs: list[str]) -> Rule:
    newest = by_run[max(by_run)]
    value = newest["observed_value"]
    is_share = newest["expectation"] == NON_NULL
    observed = "" if value is None else f"{100 * (1 - value):.3g} % null" if is_share else f"{value:,.6g}"
    states = [_state(by_run[run]) if run in by_run else ABSENT for run in runs]
    return Rule(newest["rule"], newest["column"] or "", newest["severity"], observed, states)


def _charts(name: str, rows: list[Row], links: dict[str, str], svgs: dict[str, str]) -> Iterator[Chart]:
    """The charts of the number of rows and of the shares of nulls, if two runs have any."""
    from reports.charts import quality, vega  # its library takes a second to load

    counts, shares = [], []
    for row in rows:
        observed, low, high = row["observed_value"], row["low"], row["high"]
        if observed is None:
            continue
        if row["expectation"] == ROW_COUNT:
            counts.append(_point("rows", row, links, observed, low, high))
        elif row["expectation"] == NON_NULL:
            nulls = (None if share is None else 1 - share for share in (high, low))
            shares.append(_point(row["column"], row, links, 1 - observed, *nulls))
    for kind, title, points in (("rows", "Rows", counts), ("nulls", "Share of rows without a value", shares)):
        if len({point["run_id"] for point in points}) > 1:
            href = f"charts/quality-{kind}-{slug(name)}.svg"
            specification = quality.over_runs(points, is_share=points is shares)
            svgs[href] = vega.svg(specification)
            yield Chart(title, "the band is the usual range" if quality.has_band(points) else "", href, specification)


def _point(
    series: str, row: Row, links: dict[str, str], value: float, low: float | None, high: float | None
) -> dict[str, Any]:
    """A point of a chart. It has a band if the rule has both bounds, and not all shares or none."""
    is_bounded = low is not None and high is not None and (low, high) not in ((0, 1), (0, 0))
    facts = {"run": started(row["run_id"]), "of": series, "observed": _figure(series, value)}
    facts |= {"usual": f"{_figure(series, low)} to {_figure(series, high)}" if is_bounded else NOTHING}
    return {
        "run_id": row["run_id"],
        "series": series,
        "value": value,
        "low": low if is_bounded else None,
        "high": high if is_bounded else None,
        "success": row["success"],
        "facts": facts | {"rule": _state(row)},
        "href": links.get(row["run_id"]) or f"{row['run_id']}/index.html",
    }


def _figure(series: str, value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if series == "rows" else f"{100 * value:.3g} %"
