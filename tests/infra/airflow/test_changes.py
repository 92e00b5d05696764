"""The lines of JSON about the tasks of `lockstep run`."""

import json
import os
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from infra.airflow import changes, listener

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def lines(monkeypatch):
    """Reads the lines."""
    read, write = os.pipe()
    for name, value in (("_out", None), ("_begin", None), ("_written", set())):
        monkeypatch.setattr(changes, name, value)
    changes.write_to(write, lambda run: changes.say({"run": run}))
    with os.fdopen(read) as reader:
        yield lambda: json.loads(reader.readline())
        changes._out.close()


def task(name: str, state: str | None, **times: datetime) -> SimpleNamespace:
    about = {"task_id": name, "map_index": -1, "run_id": "manual__x", "rendered_map_index": None, "dag_id": "other"}
    return SimpleNamespace(state=state, **about | {"start_date": None, "end_date": None} | times)


def test_each_change_is_a_line_behind_that_of_the_run(lines):
    listener.on_task_instance_running(None, task("a", "running", start_date=BEGAN))
    assert lines() == {"run": "manual__x"}
    shown = {"task": "a", "map_index": -1, "label": None, "start": BEGAN.timestamp()}
    assert lines() == shown | {"state": "running", "end": None}
    done = task("a", "success", start_date=BEGAN, end_date=BEGAN + timedelta(seconds=2))
    listener.on_task_instance_success("running", done)
    assert lines() == shown | {"state": "success", "end": BEGAN.timestamp() + 2}
    listener.on_task_instance_skipped("running", task("b", "skipped"))
    listener.on_task_instance_failed("running", task("c", "up_for_retry"), "no host")
    assert [lines()["state"] for _ in "bc"] == ["skipped", "up_for_retry"]


def test_task_that_never_began_has_its_line_at_the_end(lines):
    changes.tell(task("a", "failed"))
    changes.conclude([task("a", "failed"), task("b", "upstream_failed"), task("c", None)])
    assert [lines().get("state") for _ in "-abc"] == [None, "failed", "upstream_failed", None]


def test_reader_that_has_gone_does_not_end_the_run(monkeypatch):
    read, write = os.pipe()
    for name, value in (("_out", None), ("_begin", None), ("_written", set())):
        monkeypatch.setattr(changes, name, value)
    changes.write_to(write, lambda run: None)
    os.close(read)
    changes.tell(task("a", "running"))
    changes.tell(task("a", "success"))


def test_other_processes_write_nothing(capfd):
    changes.tell(task("a", "running"))
    assert capfd.readouterr() == ("", "")
