"""What Airflow's users are asked before a decision, and what becomes of their answer."""

from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dags.lib import decisions as asked
from infra.services import pairs
from reports.history import History
from streaming_core.regression import decisions
from tests.infra.cli.test_decide import commit
from tests.reports import past_runs


def answered(choice: str, why: str = "it is fine") -> dict:
    """What the operator hands on, as Airflow makes it."""
    return {"chosen_options": [choice], "params_input": {"why": why}, "responded_by_user": {"id": "7", "name": "ada"}}


def test_the_build_that_is_accepted_is_the_one_that_was_asked_about(lockstep_home, tmp_path, monkeypatch):
    commit(tmp_path / "checkout", monkeypatch)
    put = asked.candidate()
    assert put["subject"] == "Is build abc1234 the baseline of speed from now on?"
    assert put["body"] == "    No run of this build is known."
    assert decisions.baseline(lockstep_home) is None, "asking decides nothing"
    # Meanwhile the checkout goes on.
    monkeypatch.setattr("streaming_core.run.engine.build", lambda: "def5678")
    assert asked.accept(put, answered("Accept")).startswith("build abc1234 is the baseline from now on, by ada")
    assert decisions.baseline(lockstep_home).build == "abc1234"


def test_a_question_shows_what_is_known_of_a_build_as_text(lockstep_home, tmp_path, monkeypatch):
    past_runs.make(lockstep_home)
    checkout = commit(tmp_path / "checkout", monkeypatch)
    known = History(lockstep_home).run(past_runs.LAST).build
    monkeypatch.setattr("streaming_core.run.engine.build", lambda: known)
    body = asked.candidate()["body"]
    assert "cells equal the oracle" in body
    assert all(line.startswith("    ") for line in body.splitlines()), "no Markdown"
    assert checkout.is_dir()


@pytest.mark.parametrize("why", ["", " \n", "x" * 501])
def test_an_answer_without_a_reason_decides_nothing(lockstep_home, why):
    past_runs.make(lockstep_home)
    put = asked.red_cells("", "")
    with pytest.raises(AirflowFailException, match="reason"):
        asked.acknowledge(put, answered("Acknowledge", why))
    assert decisions.decisions(lockstep_home) == []


def test_a_no_decides_nothing(lockstep_home):
    past_runs.make(lockstep_home)
    with pytest.raises(AirflowSkipException, match="left as it is, by ada: later"):
        asked.acknowledge(asked.red_cells("", ""), answered(asked.NO, "later"))
    assert decisions.decisions(lockstep_home) == []


def test_the_red_cells_that_are_asked_about_are_acknowledged_and_no_others(lockstep_home):
    past_runs.make(lockstep_home)
    every = asked.red_cells("", "")
    assert every["run"] == past_runs.LAST
    assert every["subject"] == "Red in the run of 2026-01-05 02:00 UTC: 3 cells. Have you seen this?"
    one = asked.red_cells(past_runs.LAST, every["cells"][1])
    assert asked.acknowledge(one, answered("Acknowledge")) == (
        f"run {past_runs.LAST}: 1 red cell acknowledged, by ada: it is fine"
    )
    assert list(decisions.acknowledgements(lockstep_home)) == [(past_runs.LAST, every["cells"][1])]


@pytest.mark.parametrize(
    ("ask", "run_id", "names", "said"),
    [
        (asked.red_cells, "../../etc", "", "no run '../../etc'"),
        (asked.red_cells, past_runs.RUN_IDS[0], "", "is green"),
        (asked.red_cells, past_runs.LAST, "nosuch", "has no red cell nosuch"),
        (asked.to_measure, "../../etc", "", "no run '../../etc'"),
        (asked.to_measure, "", "", "no baseline is accepted yet"),
    ],
)
def test_what_makes_no_sense_is_said_before_anybody_is_asked(lockstep_home, ask, run_id, names, said):
    past_runs.make(lockstep_home)
    with pytest.raises(AirflowFailException, match=said):
        ask(run_id, names)


def test_without_runs_there_is_nothing_to_ask_or_to_measure(lockstep_home):
    for ask, said in ((asked.red_cells, "no run has red cells"), (asked.to_measure, "there is no run yet")):
        with pytest.raises(AirflowFailException, match=said):
            ask("", "")


def test_the_newest_run_is_measured_where_none_is_named(lockstep_home, monkeypatch):
    past_runs.make(lockstep_home, red=False)
    taken = []
    monkeypatch.setattr(pairs, "asked", lambda home, run, names: taken.append((run, names)) or (None, [{"cell": "a"}]))
    assert asked.to_measure("", " ") == {"run": past_runs.LAST, "cells": "a"}
    assert asked.to_measure(past_runs.RUN_IDS[0], "b, c")["run"] == past_runs.RUN_IDS[0]
    assert taken == [(past_runs.LAST, None), (past_runs.RUN_IDS[0], ["b", "c"])]
