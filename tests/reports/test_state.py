"""The overview is the state: each cell as its latest comparable run judged it, whatever was requested since."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reports.history import History
from reports.history.state import state
from reports.pages import Pages
from reports.publish import publish, refresh
from reports.site import HERE, write
from streaming_core.regression.home import Home
from streaming_core.regression.matrix import refuse
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import end, recorded
from streaming_core.storage import write_json
from tests.reports import past_runs
from tests.reports.past_runs import LAST, RUN_IDS
from tests.reports.test_pages import Outline
from tests.support.browser import Browser
from tests.support.draws import some

NEWER = "20260106T090000Z-0000000b"
LATER = "20260120T020000Z-0000000a"
SENTENCE = (
    "7 of 10 cells equal the oracle; gs/owners/t2 failed; sl/owners/t2 differs since build abc423def; "
    "wc/affinity/t2 did not run"
)
ONE_CELL = {"applications": ["wc"], "executors": ["pooled"], "threads": [2]}


@pytest.fixture(scope="module")
def nights(tmp_path_factory) -> Path:
    """Five nights; the last one is red."""
    root = tmp_path_factory.mktemp("nights")
    past_runs.make(Home(root), matrix="nightly")
    return root


@pytest.fixture
def home(nights, tmp_path) -> Home:
    """A copy of the five nights."""
    return Home(shutil.copytree(nights, tmp_path / "lockstep"))


def overview(home: Home, queued: tuple[str, ...] = ()) -> Outline:
    return Outline(Pages(History(home)).index(queued))


def refused(home: Home) -> None:
    refuse(home, NEWER, "cli", {"applications": ["nosuch"]}, "unknown application 'nosuch'")


def other_plan(home: Home, change: Callable[[dict], object], **request: object) -> None:
    past_runs.add(home, NEWER, **request)
    path = home.run(NEWER) / "plan.json"
    plan = json.loads(path.read_text())
    change(plan)
    write_json(path, plan)


def other_parameters(plan: dict) -> None:
    plan["workloads"] = [workload | {"params": {"n_items": 7}} for workload in plan["workloads"]]


def stopped(home: Home) -> None:
    past_runs.add(home, NEWER)
    end(home, NEWER, "stopped")


def in_progress(home: Home) -> None:
    past_runs.add(home, NEWER)
    with recorded(home, NEWER, Stage.PLAN_MATRIX):
        pass


OVERRIDDEN = {"matrix": "nightly", "events": 3}
INCOMPARABLE: dict[str, Callable[[Home], None]] = {
    "refused": refused,
    "one cell": lambda home: past_runs.add(home, NEWER, **ONE_CELL),
    "fewer events": lambda home: past_runs.add(home, NEWER, events=3),
    "overrides": lambda home: other_plan(home, lambda p: p["matrix"].update(overrides=["events"]), **OVERRIDDEN),
    "other repetitions": lambda home: past_runs.add(home, NEWER, repetitions=1),
    "other parameters": lambda home: other_plan(home, other_parameters),
    "imported events": lambda home: past_runs.add(home, NEWER, data=dict.fromkeys(("gs", "sl", "wc"), "mine")),
    "stopped": stopped,
    "in progress": in_progress,
}


@pytest.mark.parametrize("name", some(INCOMPARABLE, 3))
def test_incomparable_run_leaves_the_state_and_is_listed_under_runs(home, name):
    INCOMPARABLE[name](home)
    page = overview(home)
    assert page.first_heading == SENTENCE
    assert not [link for link in page.links if link.startswith(f"{NEWER}/") and not link.endswith("index.html")]
    assert "nosuch" not in page.text
    assert f"{NEWER}/index.html" in Outline(Pages(History(home)).runs()).links


@pytest.mark.parametrize("matrix", ["", "nightly"])
def test_narrower_run_removes_no_cell(tmp_path, matrix):
    home = Home(tmp_path)
    past_runs.make(home, nights=1, matrix=matrix)
    judges = {cell.name: cell.run_id for cell in state(History(home)).cells}
    red = [cell.name for cell in state(History(home)).faulty_cells]
    for run_id, narrower in (
        (NEWER, {"applications": ["gs", "sl"], "schemes": ["serial"]}),
        (LATER, {"applications": ["gs"], "threads": [2, 3]}),
    ):
        past_runs.add(home, run_id, matrix=matrix, **narrower)
        own = [cell.name for cell in History(home).run(run_id).cells]
        judges |= dict.fromkeys(own, run_id)
        red = [name for name in red if name not in own]
        after = state(History(home))
        assert {cell.name: cell.run_id for cell in after.cells} == judges
        assert [cell.name for cell in after.faulty_cells] == red
    assert [name.rpartition(".")[0] for name in red] == ["sl.transactional.owners.t2", "wc.pooled.affinity.t2"]
    page = overview(home)
    assert page.first_heading.startswith("10 of 12 cells equal the oracle; sl/owners/t2 differs")
    assert {f"{run_id}/{name}.html" for name, run_id in judges.items()} <= set(page.links), "the evidence"
    behind = page.text.partition("Runs behind these results")[2]
    assert re.findall(r"2026-01-\d\d(?= 0)", behind) == ["2026-01-20", "2026-01-06", "2026-01-01"]
    table = page.text.partition("What broke")[2].partition("Speed is the ratio")[0]
    assert "judged" in table
    assert table.count("2026-01-01") == 4, "the dates of the results, and since when they are red"


def test_red_cell_stays_until_a_run_on_the_same_events_judges_it(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=1)
    red = [cell.name for cell in state(History(home)).faulty_cells]
    assert len(red) == 3
    past_runs.add(home, NEWER, events=3, repetitions=1)
    after = state(History(home))
    assert [cell.name for cell in after.faulty_cells] == red
    assert len(after.cells) == 14, "a cell with other repetitions or events is no second cell"
    assert after.cells[0].run_id == NEWER, "the others have their newest result"
    assert "100,000 events" in overview(home).text, "the red cells say on which events"
    past_runs.add(home, LATER, threads=[2])
    assert state(History(home)).green


def test_cell_judged_by_another_run_names_that_run(home):
    past_runs.add(home, NEWER, applications=["gs"], schemes=["serial"])
    judged = rf'<span class="judged">\s*<a href="{NEWER}/index.html"><time [^>]*>2026-01-06</time></a>'
    assert len(re.findall(judged, Pages(History(home)).index())) == 2


def test_staleness_counts_from_the_newest_run(home):
    assert "No cell is stale" in overview(home).text
    past_runs.add(home, LATER, applications=["wc"])
    page = overview(home)
    assert "Stale: 12 of 14 cells have results that are more than a week older than the newest run." in page.text
    assert "2026-01-05, 15 days before: " in page.text
    stale = {cell.spec.app for cell in state(History(home)).stale}
    assert stale == {"gs", "sl"}


def test_application_with_one_tried_cell_is_unknown(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=1, red=False, applications=["gs", "sl"], matrix="nightly")
    past_runs.add(home, NEWER, **ONE_CELL)
    page = overview(home)
    unknown = (
        page.text.partition("Unknown, because no comparable run has judged them: ")[2].partition(".")[0].split(", ")
    )
    assert "wc" in unknown
    assert not {"gs", "sl"} & set(unknown)


def test_without_a_nightly_the_newest_comparable_run_of_each_application_counts(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=2, red=False)
    past_runs.add(home, NEWER, applications=["gs"], events=3)
    current = state(History(home))
    assert {(cell.spec.app, cell.run_id) for cell in current.cells} == {
        ("gs", NEWER),
        ("sl", RUN_IDS[1]),
        ("wc", RUN_IDS[1]),
    }
    text = overview(home).text
    assert "gs 3 events" in text
    assert "sl 100,000 events" in text


def test_imports_with_different_content_are_not_comparable(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=1, red=False, matrix="nightly", data={"wc": "nightly"})
    assert "wc 3 events of the import nightly" in overview(home).text
    past_runs.add(home, NEWER, data={"wc": "mine"})
    assert {(cell.spec.app, cell.run_id) for cell in state(History(home)).cells} == {
        ("gs", NEWER),
        ("sl", NEWER),
        ("wc", RUN_IDS[0]),
    }


def test_run_on_other_events_does_not_interrupt_a_red_series(home):
    past_runs.add(home, NEWER, events=3)
    past_runs.add(home, LATER, 5, red=True, matrix="nightly")
    current = state(History(home))
    (wrong,) = [cell for cell in current.cells if cell.verdict == "different"]
    assert (wrong.run_id, current.red_since[wrong.name]) == (LATER, LAST)
    assert "sl/owners/t2 differs since build abc423def" in current.sentence


def test_failed_stage_turns_the_state_red(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=2, red=False, matrix="nightly")
    end(home, RUN_IDS[1], "finished", {Stage.DBT_BUILD: "no space left on device"})
    page = Pages(History(home)).index()
    assert '<h1 class="red">All 10 cells equal the oracle (4 bounds beside them); but dbt build failed</h1>' in page
    assert "no space left on device" in page


def test_last_nightly_keeps_its_strip_after_other_runs(home):
    assert f"Last night, 2026-01-05 02:00 UTC: {SENTENCE}; 1 slower" in overview(home).text
    past_runs.add(home, LATER)
    page = overview(home)
    assert f"Last night, 2026-01-05 02:00 UTC, 15 days before the newest run: {SENTENCE}" in page.text
    assert f"{LAST}/index.html" in page.links


@pytest.mark.parametrize("ended", ["refused", "stopped"])
def test_nightly_without_verdicts_counts_as_the_last_one(home, ended):
    if ended == "refused":
        refuse(home, NEWER, "scheduled__x", {"matrix": "nightly"}, "there is no connection node")
    else:
        past_runs.add(home, NEWER, matrix="nightly")
        end(home, NEWER, "stopped", by="ada")
    page = overview(home)
    assert page.first_heading == SENTENCE, "the state is that of the night before"
    strip = page.text.partition("Last night, ")[2].splitlines()[0]
    assert strip.startswith("2026-01-06 09:00 UTC: ")
    assert {"refused": "Refused: there is no connection node", "stopped": "Stopped by ada at"}[ended] in strip


def test_overview_without_a_nightly_says_how_to_start_one(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=1)
    assert "No nightly has run yet" in overview(home).text


def test_running_and_waiting_runs_have_a_strip(home):
    assert "Runs now" not in overview(home).text
    for run_id in (NEWER, LATER):
        past_runs.add(home, run_id, matrix="nightly")
        with recorded(home, run_id, Stage.PLAN_MATRIX):
            pass
    with recorded(home, NEWER, Stage.SPARK_SERVER):
        write_json(home.run(NEWER) / "estimate.json", {"sentence": "14 cells, about 3 minutes"})
        assert "Waits to start: 2026-01-06 09:00 UTC, matrix nightly 3f2a91c0: 0 of 14 cells" in overview(home).text
    page = overview(home, ("manual__x <b>",))
    assert "matrix nightly 3f2a91c0: 0 of 14 cells have run; estimate: 14 cells, about 3 minutes" in page.text
    assert "Waits to start: 2026-01-20 02:00 UTC, matrix nightly 3f2a91c0: 0 of 14 cells" in page.text
    assert "Waits in Airflow for its turn or its plan: manual__x <b>" in page.text
    assert f"{NEWER}/index.html" in page.links
    runs = Outline(Pages(History(home)).runs())
    assert runs.first_heading == "7 runs, 1 of them red, 2 in progress"
    assert "This page updates itself" not in page.text + runs.text, "a page in a file stays as it is"


def test_run_start_and_end_update_its_strip(home):
    refresh(home)
    index, runs = home.reports / "index.html", home.reports / "runs.html"
    assert not index.exists(), "there is no overview yet"
    publish(home, LAST)
    before = index.read_text()
    past_runs.add(home, NEWER)
    with recorded(home, NEWER, Stage.PLAN_MATRIX):
        refresh(home)
    assert "Waits to start: " in Outline(index.read_text()).text
    assert "In progress: 0 of 14 cells have run" in Outline(runs.read_text()).text
    assert f'href="{NEWER}/index.html"' in index.read_text()
    end(home, NEWER, "stopped")
    refresh(home)
    assert index.read_text() == before


def test_overview_says_that_no_comparable_run_exists(tmp_path):
    home = Home(tmp_path)
    past_runs.add(home, NEWER, **ONE_CELL)
    assert state(History(home)) is None
    page = overview(home)
    assert page.first_heading == "No cell has been judged yet"
    assert "has at least two cells, or a nightly" in page.text
    assert "runs.html" in page.links


def test_overview_fits_a_narrow_screen(home):
    past_runs.add(home, LATER, applications=["wc"])
    write(home.reports / "index.html", Pages(History(home)).index())
    write(home.reports / "style.css", (HERE / "style.css").read_text())
    with Browser((1280, 1000)) as browser:
        browser.call("Emulation.setDeviceMetricsOverride", width=420, height=1000, deviceScaleFactor=1, mobile=False)
        browser.go((home.reports / "index.html").as_uri())
        browser.wait("document.readyState === 'complete' && document.querySelectorAll('.grid .chip').length === 14")
        assert browser.ask("document.documentElement.scrollWidth <= 420")
        assert browser.ask("document.querySelector('.grid').getBoundingClientRect().right <= 420"), "all of the grid"
