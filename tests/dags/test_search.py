"""The task of the search for faults: it runs only with time, and its command gets no secrets."""

import pytest

from dags.lib.operators import Job, Search
from streaming_core.regression.home import Home
from streaming_core.storage import write_json
from tests.reports.past_runs import LAST


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    return Home(tmp_path)


@pytest.mark.parametrize(("fields", "runs"), [({"find_minutes": 0.1}, 1), ({"find_minutes": 0.0}, 0), ({}, 0)])
def test_search_runs_only_if_the_request_gives_it_time(home, monkeypatch, fields, runs):
    write_json(home.run(LAST) / "plan.json", {"regression": fields, "workloads": [], "cells": []})
    calls = []
    monkeypatch.setattr(Job, "execute", lambda self, context: calls.append(self.arguments))
    Search(task_id="find", run=LAST).execute({})
    assert calls == [["-m", "infra.search", "--run", LAST]] * runs


def test_command_of_the_search_gets_no_secrets(home, monkeypatch):
    write_json(home.run(LAST) / "plan.json", {"regression": {"find_minutes": 1.0}, "workloads": [], "cells": []})
    monkeypatch.setenv("MY_TOKEN", "secret")
    monkeypatch.setenv("JAVA_HOME", "/java")
    task = Search(task_id="find", run=LAST)
    task.arguments = ["-c", "import os; print([os.environ.get(name) for name in ('MY_TOKEN', 'JAVA_HOME')])"]
    lines = []
    monkeypatch.setattr(task, "_say", lines.append)
    task.execute({})
    assert lines == ["[None, '/java']"]
