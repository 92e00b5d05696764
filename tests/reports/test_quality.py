"""The page of quality over time: a sign for each rule and run, charts with the usual range, and links to results."""

import re

import pytest

from reports.history import History
from reports.pages import Pages
from reports.publish import publish
from reports.site import QUALITY
from reports.views.data_docs import write_results
from reports.views.quality import BROKEN, DOUBTFUL, HOLDS, SHOWN_RUNS, Quality
from streaming_core.regression.home import Home
from tests.reports import past_quality, past_runs
from tests.reports.past_quality import NIGHTS, ORDERS
from tests.reports.past_runs import LAST
from tests.reports.test_pages import Outline


@pytest.fixture
def nights(home) -> Home:
    """Ten nights of results; the newest links to a page of results."""
    past_quality.make(home)
    write_results(home, LAST, {ORDERS: {"held": 1, "count": 2, "warning": 1, "page": "validations/orders.html"}})
    return home


def states(home: Home, name: str) -> list[list[str]]:
    """The states of each rule of a data set, the oldest run first."""
    (data_set,) = (data_set for data_set in Quality.of(History(home)).sets if data_set.name == name)
    return [rule.states[::-1] for rule in data_set.rules]


def test_spike_is_a_warning_and_growth_is_not(nights):
    rows, share = states(nights, ORDERS)
    assert [night for night, state in enumerate(rows) if state == DOUBTFUL] == [7]
    assert [night for night, state in enumerate(share) if state == DOUBTFUL] == [9]
    assert {*rows, *share} == {HOLDS, DOUBTFUL}


def test_headline_counts_the_newest_run_and_critical_rules_are_red(nights):
    quality = Quality.of(History(nights))
    assert quality.headline == "3 of 4 data sets of the newest run keep all rules"
    assert quality.look == "amber"
    assert BROKEN in states(nights, "outputs_gs")[1]
    past_runs.mart(nights, "quality", [row for row in past_quality.rows() if row["run_id"] <= NIGHTS[8]])
    assert Quality.of(History(nights)).look == "red"


def test_page_shows_a_sign_for_each_night_and_links_to_results_and_runs(nights):
    publish(nights, LAST)
    text = (nights.reports / QUALITY).read_text()
    row = text.partition("The number of rows is as in the last nights")[2].partition("</tr>")[0]
    assert "".join(re.findall(r'<span aria-hidden="true">(.)</span>', row)) == "✓✓△✓✓✓✓✓✓✓"
    links = Outline(text).links
    assert {"data_docs/validations/orders.html", "data_docs/index.html", f"{LAST}/index.html"} <= set(links)
    for page, root in (("index.html", ""), (f"{LAST}/index.html", "../"), ("data_docs/index.html", "../")):
        assert f"{root}{QUALITY}" in Outline((nights.reports / page).read_text()).links, page


def test_charts_have_the_figures_and_the_usual_range(nights):
    page, svgs = Pages(History(nights)).quality()
    assert len(svgs) == 7, "rows of each data set, nulls of those with columns"
    (orders,) = (data_set for data_set in Quality.of(History(nights)).sets if data_set.name == ORDERS)
    rows, nulls = (chart.specification for chart in orders.charts)
    values = rows["data"]["values"]
    assert [value["value"] for value in values] == [count for count, _ in past_quality.figures()]
    assert [value["low"] is None for value in values] == [True] * 7 + [False] * 3
    assert values[7]["value"] < values[7]["low"]
    assert values[7]["facts"]["usual"].endswith(f"to {values[7]['high']:,.0f}")
    assert nulls["data"]["values"][-1]["value"] == pytest.approx(0.1)
    assert len([layer for layer in rows["layer"] if layer["mark"]["type"] == "area"]) == 1
    assert page.count("application/json") == 7


def test_page_without_results_says_so(home):
    page, svgs = Pages(History(home)).quality()
    assert Outline(page).first_heading == "No data set has been tested yet"
    assert svgs == {}


def test_only_the_newest_runs_are_shown_and_one_run_has_no_chart(home):
    rows = [row for row in past_quality.rows() if row["run_id"] == LAST]
    ids = [f"202602{day:02d}T020000Z-00000000" for day in range(1, 21)]
    past_runs.mart(home, "quality", [row | {"run_id": run_id} for run_id in ids for row in rows])
    assert Quality.of(History(home)).runs == ids[: -SHOWN_RUNS - 1 : -1]
    past_runs.mart(home, "quality", rows)
    assert Quality.of(History(home)).svgs == {}
