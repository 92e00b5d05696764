"""Pages, the one-file report, `lockstep report` and the verdict agree on how a run ended."""

import json
import signal
import subprocess
import sys

import pytest

from reports.attachment import attachment
from reports.history import History, Run
from reports.pages import Pages
from reports.publish import publish
from reports.site import file_name
from reports.views.overview import Now
from streaming_core.errors import RunFailed
from streaming_core.interruption import Interrupted
from streaming_core.regression.home import Home
from streaming_core.regression.stages import AFTER_CELLS, Stage
from streaming_core.regression.status import conclude, end, recorded, status_of
from streaming_core.run.way import RunSpec
from streaming_core.storage import write_json
from tests.reports import past_runs
from tests.support.draws import some

SUCCESS = dict.fromkeys(AFTER_CELLS, "success")


@pytest.fixture
def home(tmp_path) -> Home:
    home = Home(tmp_path / "lockstep")
    past_runs.make(home, nights=1, red=False, matrix="nightly")
    return home


RUN_ID = past_runs.RUN_IDS[0]
GREEN = "All 10 cells equal the oracle (4 bounds beside them)"


def record(home: Home, stage: Stage, error: str | None = None, part: str | None = None) -> None:
    try:
        with recorded(home, RUN_ID, stage, part):
            if error:
                raise RunFailed(error)
    except RunFailed:
        assert error


def texts(home: Home) -> tuple[Run, dict[str, str]]:
    """The run, and every text that a person reads about it."""
    publish(home, RUN_ID)
    history = History(home)
    run = history.run(RUN_ID)
    pages = {name: (home.reports / name).read_text() for name in ("index.html", "runs.html", f"{RUN_ID}/index.html")}
    assert (home.report(RUN_ID, file_name(RUN_ID))).read_text() == attachment(Pages(history), run)
    pages["one file"] = home.report(RUN_ID, file_name(RUN_ID)).read_text()
    pages["summary"] = home.report(RUN_ID, "summary.json").read_text()
    return run, pages


def report(home: Home) -> tuple[int, str]:
    """Exit code and output of `lockstep report`."""
    command = [sys.executable, "-m", "infra.cli", "report"]
    done = subprocess.run(command, env={"LOCKSTEP_HOME": str(home.root)}, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout


def agree(home: Home, sentence: str, green: bool) -> None:
    run, pages = texts(home)
    assert (run.sentence, run.green) == (sentence, green)
    for name, text in pages.items():
        assert sentence in text, name
    assert json.loads(pages["summary"])["green"] == green
    heading = "green" if green else "red"
    assert f'<h1 class="{heading}">{sentence}</h1>' in pages[f"{RUN_ID}/index.html"]
    code, output = report(home)
    assert sentence in output
    assert code == (0 if green else 1)


@pytest.mark.parametrize("stage", some(AFTER_CELLS))
def test_failed_stage_turns_every_text_red(home, stage):
    for after_cells in AFTER_CELLS:
        record(home, after_cells, "no space left on device" if after_cells == stage else None)
    conclude(home, RUN_ID, SUCCESS | {stage: "failed"})
    agree(home, f"{GREEN}; but {stage.label} failed", False)
    assert "no space left on device" in (home.reports / RUN_ID / "index.html").read_text()
    assert f"{stage.label} failed: no space left on device" in report(home)[1]


@pytest.mark.slow
def test_killed_stage_without_a_record_fails(home):
    for stage in AFTER_CELLS[:-1]:
        record(home, stage)
    conclude(home, RUN_ID, SUCCESS | {Stage.PUBLISH_REPORTS: "failed"})
    agree(home, f"{GREEN}; but publish reports failed", False)


@pytest.mark.slow
def test_retried_stage_counts_by_its_last_try(home):
    record(home, Stage.DBT_BUILD, "the connection broke")
    record(home, Stage.DBT_BUILD)
    record(home, Stage.PUBLISH_REPORTS)
    assert status_of(home, RUN_ID).failures == {}
    conclude(home, RUN_ID, SUCCESS)
    agree(home, GREEN, True)


def test_stage_failed_by_a_red_cell_is_no_second_fault(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=1)
    failed = {Stage.VALIDATE_OUTPUTS: "failed", Stage.EXPECTATIONS: "failed"}
    conclude(home, RUN_ID, SUCCESS | failed)
    run = History(home).run(RUN_ID)
    assert (run.status.failures.keys(), run.failures) == (failed.keys(), {})
    assert "failed" not in run.sentence.rpartition("; ")[2]


def test_stopped_run_shows_time_and_finished_cells(home):
    record(home, Stage.RUN_CORE, part="one")
    record(home, Stage.RUN_CORE, part="two")
    conclude(home, RUN_ID, SUCCESS | dict.fromkeys(AFTER_CELLS[1:], "skipped"))
    ended = status_of(home, RUN_ID)
    assert ended.state == "stopped"
    run, _ = texts(home)
    agree(home, run.sentence, False)
    assert run.sentence.startswith("Stopped at 20")
    assert run.sentence.endswith(" UTC after 2 of 14 cells")


def test_stopped_run_separates_finished_stopped_and_unstarted_cells(tmp_path):
    home, spec = Home(tmp_path), RunSpec.parse({"app": "wc", "executor": "pooled"})
    cells = [
        {"cell": name, "workload": "w", "is_bound": False, "spec": spec.model_dump(mode="json")}
        for name in ("first", "second", "third")
    ]
    write_json(home.run(RUN_ID) / "plan.json", {"run_id": RUN_ID, "cells": cells})
    record(home, Stage.RUN_CORE, part="first")
    with pytest.raises(Interrupted), recorded(home, RUN_ID, Stage.RUN_CORE, "second"):
        raise Interrupted(signal.SIGTERM)
    end(home, RUN_ID, "stopped")
    run = History(home).run(RUN_ID)
    assert run.sentence.endswith(" UTC after 1 of 3 cells")
    assert [cell.outcome.word for cell in run.cells] == ["was not compared", "was stopped", "did not run"]


def test_stopped_run_does_not_list_unstarted_cells(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=1)
    run = History(home).run(RUN_ID)
    assert {cell.verdict for cell in run.faulty_cells} == {"different", "failed", "not_run"}
    end(home, RUN_ID, "stopped")
    run = History(home).run(RUN_ID)
    assert {cell.verdict for cell in run.faulty_cells} == {"different", "failed"}
    assert "never started" not in Pages(History(home)).overview(run).partition('class="grid"')[0]


def test_stopped_run_names_the_person_if_known(home):
    end(home, RUN_ID, "stopped", by="ada")
    assert History(home).run(RUN_ID).sentence.startswith("Stopped by ada at 20")


@pytest.mark.slow
def test_dead_run_is_marked_dead(home):
    end(home, RUN_ID, "died")
    run, _ = texts(home)
    assert run.sentence.startswith("Died at 20")
    agree(home, run.sentence, False)


def test_run_in_progress_is_neither_green_nor_red(home):
    for stage in (Stage.PLAN_MATRIX, Stage.SPARK_SERVER):
        record(home, stage)
    record(home, Stage.RUN_CORE, part="one")
    run, pages = texts(home)
    assert run.sentence == "In progress: 1 of 14 cells have run"
    assert not run.green
    assert '<h1 class="">In progress: 1 of 14' in pages[f"{RUN_ID}/index.html"]
    assert "Runs now: " in pages["index.html"]
    code, output = report(home)
    assert code == 1
    assert run.sentence in output


def test_run_goes_on_when_a_person_clears_it_after_its_end(home):
    for stage, part in ((Stage.SPARK_SERVER, None), (Stage.RUN_CORE, "one"), (Stage.PUBLISH_REPORTS, None)):
        record(home, stage, part=part)
    conclude(home, RUN_ID, SUCCESS)
    texts(home)
    with recorded(home, RUN_ID, Stage.RUN_CORE, "one"):
        history = History(home)
        pages = Pages(history)
        assert Now.of(history, (), None).running == 1
        for text in (history.run(RUN_ID).sentence, pages.index(), pages.runs()):
            assert "0 of 14 cells have run" in text
    record(home, Stage.PUBLISH_REPORTS)
    record(home, Stage.SPEED_GATE)
    assert status_of(home, RUN_ID).state == "finished"


def test_pages_written_by_the_run_show_it_as_finished(home):
    record(home, Stage.RUN_CORE, part="one")
    with recorded(home, RUN_ID, Stage.PUBLISH_REPORTS):
        assert status_of(home, RUN_ID).state == "finished"
