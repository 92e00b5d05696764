"""Every application runs with default options on several threads, for any workload size."""

import json

import pytest

from streaming_core.apps import registry
from streaming_core.data import workload

ONE_PER_KIND = ("gs", "wc", "wordcount")
SMALL = (1, 50)
SIZES = (*SMALL, 2_000, 100_000)


def cases():
    for app in registry.names():
        for events in SIZES:
            for threads in (2, 3):
                is_quick = app in ONE_PER_KIND and events in SMALL and threads == 2
                yield pytest.param(app, events, threads, marks=[] if is_quick else pytest.mark.slow)


@pytest.mark.parametrize(("app", "events", "threads"), list(cases()))
def test_a_default_run_succeeds(command, app, events, threads, tmp_path):
    workload.write(app, {}, events, 1, tmp_path / "workload")
    arguments = ("--input", tmp_path / "workload", "--out", tmp_path / "run", "--threads", threads)
    code, shown, stderr = command("run", app, *arguments, "--json")
    assert (code, stderr) == (0, "")
    report = json.loads(shown)
    assert report["samples"][0]["events"] == events
    assert (report["planned"] is not None) == (report["spec"]["plan"] == "auto")
    assert report["unplanned"] is None
