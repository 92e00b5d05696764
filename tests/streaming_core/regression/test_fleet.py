"""The queue of a run: despite any failure of a lane, no cell is lost and none runs twice at once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest

from streaming_core.regression import fleet
from streaming_core.regression.fleet import Queue
from streaming_core.regression.home import Home
from streaming_core.regression.request import resolve_hosts

SEED = int(os.environ.get("PROPERTY_SEED", "0"))
RUN_ID = "20260101T000000Z-00000000"
HOSTS = ["a", "b", "c", "d"]


def plan(home: Home, cells: list[dict]) -> None:
    folder = home.run(RUN_ID)
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps({"cells": cells}))


class Lane:
    """A lane that does one step at a time, and forgets everything when it is lost."""

    def __init__(self, home: Home, host: str):
        self.home, self.host = home, host
        self.is_running = True
        self.cell: str | None = None
        self.queue = Queue(home, RUN_ID, host)

    def restart(self) -> None:
        self.cell, self.queue = None, Queue(self.home, RUN_ID, self.host)

    def lose(self) -> None:
        for cell, claim in fleet.claims(self.home, RUN_ID).items():
            if claim.host == self.host and not claim.is_over:
                self.queue.give_back(cell)
        self.cell, self.is_running = None, False

    def step(self, draw: random.Random) -> str | None:
        """Finish the cell, take the next one, or end; returns the cell that it finishes."""
        if self.cell:
            done, self.cell = self.cell, None
            self.queue.finish(done, draw.choice([None, "it failed"]))
            return done
        if self.queue.is_over:
            self.is_running = False
        elif taken := self.queue.take():
            self.cell = taken["cell"]
        return None


@pytest.mark.parametrize("case", range(60))
def test_every_cell_ends_once_despite_losses_and_restarts(tmp_path, case):
    draw = random.Random(f"{SEED} {case}")
    home = Home(tmp_path)
    cells = [f"cell{number}" for number in range(draw.randint(1, 8))]
    plan(home, [{"cell": cell} for cell in cells])
    lanes = [Lane(home, host) for host in HOSTS[: draw.randint(1, 4)]]
    ended: list[str] = []
    while running := [lane for lane in lanes if lane.is_running]:
        lane = draw.choice(running)
        if draw.random() < 0.1 and len(running) > 1:
            lane.lose()
        elif draw.random() < 0.1:
            lane.restart()
        elif done := lane.step(draw):
            ended.append(done)
        held = [lane.cell for lane in lanes if lane.cell]
        assert len(held) == len(set(held)), "two lanes run one cell"
        assert not set(held) & set(ended), "a cell that is over runs again"
    assert sorted(ended) == cells
    assert all(claim.is_over for claim in fleet.claims(home, RUN_ID).values())


def test_a_lane_waits_for_other_lanes_and_takes_returned_cells(tmp_path):
    home = Home(tmp_path)
    plan(home, [{"cell": "one"}])
    a, b = Queue(home, RUN_ID, "a"), Queue(home, RUN_ID, "b")
    assert not b.waits
    assert a.take()["cell"] == "one"
    assert b.take() is None
    assert (b.waits, b.is_over) == (True, False)
    a.give_back("one")
    assert not b.waits
    assert b.take()["cell"] == "one"
    b.finish("one")
    assert (a.is_over, b.is_over, a.waits) == (True, True, False)


def test_a_lane_takes_only_cells_of_its_own_host(tmp_path):
    home = Home(tmp_path)
    plan(home, [{"cell": f"one.{host}", "host": host} for host in "ab"])
    a, b = Queue(home, RUN_ID, "a"), Queue(home, RUN_ID, "b")
    assert a.take()["cell"] == "one.a"
    a.finish("one.a", "it failed")
    assert (a.is_over, a.failures) == (True, {"one.a": "it failed"})
    assert b.take()["cell"] == "one.b"


def test_only_a_cleared_lane_reruns_its_failed_cells(tmp_path):
    home = Home(tmp_path)
    plan(home, [{"cell": name} for name in ("good", "bad", "begun")])
    first = Queue(home, RUN_ID, "a", 2)
    for error in (None, "it failed"):
        first.finish(first.take()["cell"], error)
    assert first.take()["cell"] == "begun"
    retried = Queue(home, RUN_ID, "a", 2)
    retried.renew()
    assert retried.take()["cell"] == "begun"
    assert retried.failures == {"bad": "it failed"}
    cleared = Queue(home, RUN_ID, "a", 5)
    cleared.renew()
    assert cleared.failures == {}
    assert cleared.take()["cell"] == "bad"


RACE = """
import sys
from streaming_core.regression.fleet import Queue
from streaming_core.regression.home import Home
queue = Queue(Home(sys.argv[1]), sys.argv[2], sys.argv[3])
sys.stdin.readline()
taken = []
while cell := queue.take():
    taken.append(cell["cell"])
    queue.finish(cell["cell"])
print(*taken)
"""


def test_concurrent_processes_share_the_cells(tmp_path):
    home = Home(tmp_path)
    cells = [f"cell{number}" for number in range(60)]
    plan(home, [{"cell": cell} for cell in cells])
    command = [sys.executable, "-c", RACE, str(tmp_path), RUN_ID]
    lanes = [subprocess.Popen([*command, host], stdin=-1, stdout=-1, text=True) for host in HOSTS[:3]]
    for lane in lanes:
        lane.stdin.write("go\n")
        lane.stdin.flush()
    taken = [cell for lane in lanes for cell in lane.communicate(timeout=60)[0].split()]
    assert sorted(taken) == sorted(cells)
    assert not [path for path in (home.run(RUN_ID) / "claims").iterdir() if path.name.startswith(".")]


def test_all_stands_for_the_configured_hosts(monkeypatch):
    assert resolve_hosts(["all"]) == [fleet.LOCAL]
    monkeypatch.setenv("LOCKSTEP_HOSTS", "numa-a, numa-b")
    assert resolve_hosts(["all", "c"]) == ["numa-a", "numa-b", "c"]
