"""A pass begins when its cores are near each other, if the host's cores move at all."""

import pytest

from streaming_core.bench.race import distance
from streaming_core.bench.race.distance import TRIES, Distance
from streaming_core.run.way import RunSpec

SPEC = RunSpec.parse({"app": "gs", "executor": "transactional", "threads": 2})


@pytest.fixture
def trips(monkeypatch):
    """The round trips that the host shows, one after the other; the last one remains."""
    known: list[float | None] = []
    monkeypatch.setattr(distance, "PAUSE", 0)
    monkeypatch.setattr(distance.cores, "round_trip", lambda threads: known.pop(0) if len(known) > 1 else known[0])
    return known


def test_cores_that_do_not_move_need_one_measurement(trips):
    trips += [80.0, 85.0, 78.0]
    measured = Distance()
    assert [measured.trip(SPEC) for _ in range(3)] == [80.0, 85.0, 78.0]


def test_a_pass_waits_for_near_cores_but_not_for_long(trips):
    trips += [80.0, 400.0, 420.0, 85.0, *[410.0] * (TRIES - 1), 430.0, 75.0]
    measured = Distance()
    assert [measured.trip(SPEC) for _ in range(4)] == [80.0, 85.0, 430.0, 75.0]


def test_one_thread_and_other_engines_have_no_distance(trips):
    trips.append(None)
    assert Distance().trip(SPEC) is None
