"""The first page of the Data Docs: dates above the runs, marks that lead to results, and runs that are not judged."""

import re

import pytest

from reports.pages import Pages
from reports.publish import publish
from reports.site import DATA_DOCS, DBT, MENU
from reports.views.data_docs import write_results
from streaming_core.regression.home import Home
from streaming_core.regression.stages import AFTER_CELLS, Stage
from streaming_core.regression.status import end
from tests.reports import past_runs
from tests.reports.past_runs import LAST, RUN_IDS
from tests.reports.test_pages import Outline
from tests.support.draws import some

GOOD = {"held": 7, "count": 7, "page": "validations/cells/good.html"}
BROKEN = {"held": 6, "count": 7, "critical": 1, "page": "validations/verdicts/broken.html"}
DOUBTFUL = {"held": 5, "count": 7, "warning": 2, "page": "validations/samples/doubtful.html"}


@pytest.fixture
def home(tmp_path) -> Home:
    home = Home(tmp_path)
    past_runs.make(home, red=False)
    for run_id in RUN_IDS:
        write_results(home, run_id, {"cells": GOOD, "verdicts": GOOD})
        end(home, run_id, "finished")
    return home


def page(home: Home) -> Outline:
    publish(home, LAST)
    return Outline((home.reports / DATA_DOCS).read_text())


def signs(home: Home, name: str) -> str:
    """The signs of a data set, the newest run first."""
    row = (home.reports / DATA_DOCS).read_text().partition(f'<th scope="row">{name}</th>')[2].partition("</tr>")[0]
    return "".join(re.findall(r'<span aria-hidden="true">(.)</span>', row))


def test_runs_are_columns_with_dates_and_marks_link_to_results(home):
    write_results(home, LAST, {"cells": GOOD, "verdicts": BROKEN})
    shown = page(home)
    assert shown.first_heading == "1 of 2 data sets of the newest run meet their expectations"
    dates = "".join(f"2026-{run_id[4:6]}-{run_id[6:8]} 02:00 UTC" for run_id in reversed(RUN_IDS))
    assert dates in shown.text
    assert signs(home, "cells") == "✓✓✓✓✓"
    assert signs(home, "verdicts") == "✗✓✓✓✓"
    assert "6 of 7 expectations hold" in shown.text
    assert {GOOD["page"], BROKEN["page"], f"../{LAST}/index.html"} <= set(shown.links)
    assert "not judged:" not in shown.text


def test_warning_is_shown_and_the_data_set_holds(home):
    write_results(home, LAST, {"cells": GOOD, "samples": DOUBTFUL})
    shown = page(home)
    assert shown.first_heading == "2 of 2 data sets of the newest run meet their expectations"
    assert signs(home, "samples").startswith("△")
    assert "5 of 7 expectations hold; 2 warnings" in shown.text
    assert shown.links.count(DOUBTFUL["page"]) == 2


@pytest.mark.parametrize("stage", some(AFTER_CELLS))
def test_run_with_a_failed_stage_has_no_judgement(home, stage):
    if stage in (Stage.VALIDATE_OUTPUTS, Stage.LOAD_METRICS, Stage.EXPECTATIONS):
        write_results(home, LAST, {})
    end(home, LAST, "finished", {stage: "the disk is full"})
    shown = page(home)
    assert shown.first_heading == f"The newest run is not judged: {stage.label} failed"
    assert f"not judged: {stage.label} failed" in shown.text
    assert signs(home, "cells") == "·✓✓✓✓"


def test_run_has_no_judgement_if_stopped_or_without_results(home):
    end(home, RUN_IDS[0], "stopped", by="ann")
    end(home, RUN_IDS[1], "died")
    (home.run(RUN_IDS[2]) / "expectations.json").unlink()
    text = page(home).text
    for why in ("the run was stopped", "the process of the run ended", "the stage left no results"):
        assert f"not judged: {why}" in text
    assert signs(home, "cells") == "✓✓···"


def test_failed_expectation_is_a_judgement(home):
    write_results(home, LAST, {"cells": BROKEN})
    end(home, LAST, "finished", {Stage.EXPECTATIONS: "6 of 7 hold"})
    shown = page(home)
    assert shown.first_heading == "0 of 1 data sets of the newest run meet their expectations"
    assert "not judged:" not in shown.text


def test_frame_of_the_dbt_page_has_the_menu(home):
    publish(home, LAST)
    frame = home.reports / DBT
    frame.parent.mkdir()
    frame.write_text(Pages(past_runs.History(home)).warehouse())
    shown = Outline(frame.read_text())
    assert "docs.html" in shown.links
    assert {f"../{entry.href}" for entry in MENU if not entry.missing} <= set(shown.links)
