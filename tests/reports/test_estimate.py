"""The estimate of a run's duration uses the times of earlier runs, and names cells without a known time."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from reports.estimate import estimate
from reports.history import History
from streaming_core.regression.home import Home
from streaming_core.storage import write_json

BEGAN = datetime(2026, 1, 1, 2, tzinfo=UTC)


def plan(home: Home, day: int, cells: list[str], events: int = 100, executor: str = "pooled") -> dict:
    began = BEGAN + timedelta(days=day)
    fields = {
        "run_id": f"{began:%Y%m%dT%H%M%SZ}-00000000",
        "created_at": f"{began:%Y-%m-%dT%H:%M:%SZ}",
        "regression": {"events": events, "repetitions": 3},
        "cells": [{"cell": cell, "spec": {"executor": executor}} for cell in cells],
    }
    write_json(home.run(fields["run_id"]) / "plan.json", fields)
    return fields


def night(home: Home, day: int, seconds: dict[str, int], whole: int, host: str = "here", **options: Any) -> None:
    """A run that has ended, `whole` seconds after it was planned."""
    planned = plan(home, day, [*seconds], **options)
    began = BEGAN + timedelta(days=day)
    for cell, took in seconds.items():
        times = {
            "started_at": f"{began:%Y-%m-%dT%H:%M:%SZ}",
            "ended_at": f"{began + timedelta(seconds=took):%Y-%m-%dT%H:%M:%SZ}",
        }
        began += timedelta(seconds=took)
        write_json(home.attempt(planned["run_id"], cell, 1) / "exit.json", {"exit_code": 0, "host": host, **times})
    summary = home.reports / planned["run_id"] / "summary.json"
    write_json(summary, {})
    ended = (BEGAN + timedelta(days=day)).timestamp() + whole
    os.utime(summary, (ended, ended))


def test_estimate_is_the_last_time_of_cells_and_other_stages(tmp_path):
    home = Home(tmp_path)
    night(home, 1, {"a": 50, "b": 100}, 250)
    night(home, 2, {"a": 60, "b": 90, "c": 5}, 235)
    planned = plan(home, 3, ["a", "b"])
    text = estimate(home, planned, ["here"])
    assert text == "2 cells, about 4 minutes, from the times of the last runs on this host"
    assert History(home).estimate(planned["run_id"]) == text
    assert (
        estimate(home, plan(home, 4, ["c"]), ["here"])
        == "1 cell, about 2 minutes, from the times of the last runs on this host"
    )


def test_estimate_names_cells_without_a_known_time(tmp_path):
    home = Home(tmp_path)
    nothing = "duration unknown: none of them has run on this host with this many events"
    assert estimate(home, plan(home, 0, ["a"]), ["here"]) == f"1 cell; {nothing}"
    night(home, 1, {"a": 20}, 80)
    assert estimate(home, plan(home, 2, ["a", "b"]), ["here"]) == (
        "2 cells, more than 80 seconds: 1 of them has not run on this host with this many events"
    )
    assert estimate(home, plan(home, 3, ["a", "b"]), ["there"]) == f"2 cells; {nothing}"
    assert estimate(home, plan(home, 4, ["a", "b"], events=999), ["here"]) == f"2 cells; {nothing}"
    assert History(home).estimate("20260101T000000Z-ffffffff") == ""


def test_hosts_share_the_cells(tmp_path):
    home = Home(tmp_path)
    night(home, 1, {"a": 100, "b": 200}, 400)
    sentence = estimate(home, plan(home, 2, ["a", "b"]), ["here", "there"])
    assert sentence == "2 cells, about 4 minutes, from the times of the last runs on these 2 hosts"


def test_spark_cells_are_not_divided_over_hosts_and_use_any_driver(tmp_path):
    home = Home(tmp_path)
    night(home, 1, {"a": 100, "b": 140}, 240, host="elsewhere", executor="spark")
    text = estimate(home, plan(home, 2, ["a", "b"], executor="spark"), ["here", "there"])
    assert text == "2 cells, about 4 minutes, from the times of the last runs on these 2 hosts"
