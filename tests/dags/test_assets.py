"""The assets of marts: which tasks emit them, and what an event tells of the run."""

import json

import pytest
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors

from dags.lib.assets import GATE, OF_BUILD, OF_GATE
from dags.lib.operators import Job, Measurement
from infra.checkout import ROOT
from reports.history import History
from reports.views.built import RESULTS
from streaming_core.regression.project import named
from tests.reports import past_runs

PASS = ("-c", "pass")
FAIL = ("-c", "raise SystemExit('no cheese')")


@pytest.fixture
def home(lockstep_home, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOST_LOCK", str(tmp_path / "host.lock"))
    past_runs.make(lockstep_home)
    return lockstep_home


def emitted(task: Job) -> OutletEventAccessors:
    """The events of a task that succeeds."""
    events = OutletEventAccessors()
    task.execute({"outlet_events": events})
    return events


def test_every_mart_has_an_asset():
    marts = {path.stem for path in (ROOT / "dbt" / "models" / "marts").glob("*.yml")}
    assert {asset.name for asset in (*OF_BUILD, *OF_GATE)} == {named(f"lockstep/marts/{name}") for name in marts}


def test_event_of_a_mart_tells_the_outcome_of_its_run(home):
    outcomes = {}
    for run_id in past_runs.RUN_IDS:
        run = History(home).run(run_id)
        events = emitted(Job(task_id="dbt_build", run=run_id, arguments=PASS, outlets=OF_BUILD))
        (about,) = {json.dumps(events[asset].extra) for asset in OF_BUILD}
        assert json.loads(about) == {
            "run": run_id,
            "outcome": "green" if run.green else "red",
            "build": run.build,
            "matrix": run.matrix,
            "hosts": run.hosts,
            "cells": run.counts,
        }
        outcomes[run_id] = json.loads(about)["outcome"]
    assert set(outcomes.values()) == {"green", "red"}


def test_run_with_a_failed_stage_is_red_before_its_verdict(home):
    run_id = next(run_id for run_id in past_runs.RUN_IDS if History(home).run(run_id).green)
    with pytest.raises(AirflowFailException):
        Job(task_id="load_metrics", run=run_id, arguments=FAIL).execute({})
    events = emitted(Job(task_id="dbt_build", run=run_id, arguments=PASS, outlets=OF_BUILD[:1]))
    assert events[OF_BUILD[0]].extra["outcome"] == "red"


def test_speed_gate_emits_its_marts_only_if_it_built_them(home):
    results = home.run(past_runs.LAST) / RESULTS
    build = ("-c", f"import pathlib; pathlib.Path({str(results)!r}).write_text('{{}}')")
    measured = emitted(Measurement(task_id="speed_gate", run=past_runs.LAST, arguments=build))
    events = measured[GATE].asset_alias_events
    assert [event.dest_asset_key.name for event in events] == [asset.name for asset in OF_GATE]
    assert {event.extra["run"] for event in events} == {past_runs.LAST}
    assert not emitted(Measurement(task_id="speed_gate", run=past_runs.LAST, arguments=PASS))[GATE].asset_alias_events
