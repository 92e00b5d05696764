"""How long a run will take is said from what took how long before, and where that is not known, this is said."""

from __future__ import annotations

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
    content = {
        "run_id": f"{began:%Y%m%dT%H%M%SZ}-00000000",
        "created_at": f"{began:%Y-%m-%dT%H:%M:%SZ}",
        "regression": {"events": events, "repetitions": 3},
        "cells": [{"cell": cell, "spec": {"executor": executor}} for cell in cells],
    }
    write_json(home.run(content["run_id"]) / "plan.json", content)
    return content


def night(home: Home, day: int, seconds: dict[str, int], whole: int, host: str = "here", **fields: Any) -> None:
    """A run that has ended, `whole` seconds after it was planned."""
    planned = plan(home, day, [*seconds], **fields)
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


def test_it_is_what_the_cells_and_all_around_them_took_the_last_time(tmp_path):
    home = Home(tmp_path)
    night(home, 1, {"a": 50, "b": 100}, 250)
    night(home, 2, {"a": 60, "b": 90, "c": 5}, 235)
    planned = plan(home, 3, ["a", "b"])
    sentence = estimate(home, planned, ["here"])
    assert sentence == "2 cells, about 4 minutes, from the times of the last runs on this host"
    assert History(home).estimate(planned["run_id"]) == sentence
    assert (
        estimate(home, plan(home, 4, ["c"]), ["here"])
        == "1 cell, about 2 minutes, from the times of the last runs on this host"
    )


def test_what_is_not_known_is_said(tmp_path):
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


def test_cells_on_spark_are_not_shared_by_hosts_and_their_driver_may_be_anywhere(tmp_path):
    home = Home(tmp_path)
    night(home, 1, {"a": 100, "b": 140}, 240, host="elsewhere", executor="spark")
    sentence = estimate(home, plan(home, 2, ["a", "b"], executor="spark"), ["here", "there"])
    assert sentence == "2 cells, about 4 minutes, from the times of the last runs on these 2 hosts"
