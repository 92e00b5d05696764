"""Facts about a benchmark's machine. No test judges a time; it only rejects impossible ones."""

import json

from streaming_core.bench.race import facts as host
from streaming_core.run import cores


def test_host_facts_include_everything_needed_to_judge_a_result():
    facts = json.loads(json.dumps(host.facts(3, probe_seconds=0.01)))
    assert facts["repetitions"] == 3
    assert facts["topology"]["sockets"] >= 1
    of_host = facts["host"]
    assert of_host["cpu"]
    assert of_host["kernel"].startswith("Linux ")
    assert of_host["longest_pause_ms"] > 0
    trips, count = of_host["round_trip_ns"], len(facts["topology"]["cores"])
    if count == 1:
        assert trips is None
    else:
        assert 0 < trips["lowest"] <= trips["median"] <= trips["highest"]
        assert trips["of"] == count * (count - 1) // 2
        assert trips["pairs"] == min(trips["of"], cores.MOST_PAIRS)


def test_one_core_has_no_round_trip(monkeypatch):
    monkeypatch.setattr(cores, "topology", lambda: {"cores": [{"id": 0}]})
    assert cores.round_trips() is None
    assert cores.round_trip(4) is None


def test_a_round_trip_is_measured_between_the_threads_cores(monkeypatch):
    pairs = []
    monkeypatch.setattr(cores, "topology", lambda: {"cores": [{"id": core} for core in (4, 2, 9)]})
    monkeypatch.setattr("streaming_core._runtime.round_trip", lambda *pair: pairs.append(pair) or 64.0)
    assert cores.round_trip(1) is None
    assert cores.round_trip(2) == 64
    assert pairs == [(4, 2)]
    assert cores.round_trip(8) == 64
    assert pairs[1:] == [(4, 2), (4, 9), (2, 9)]


def test_round_trips_of_many_cores_are_sampled():
    every = [(near, far) for near in range(64) for far in range(near + 1, 64)]
    pairs = cores.sample(every, 64)
    assert len(pairs) == len(set(pairs)) == 64
    assert (pairs[0], pairs[-1]) == ((0, 1), (62, 63))
    assert max(far - near for near, far in pairs) > 32
    assert cores.sample(every[:64], 64) == every[:64]


def test_the_governor_is_read_if_the_host_has_one(tmp_path):
    assert host.governor(tmp_path / "absent") is None
    for core, name in enumerate(["performance", "performance", "powersave", "performance"]):
        path = tmp_path / f"cpu/cpu{core}/cpufreq/scaling_governor"
        path.parent.mkdir(parents=True)
        path.write_text(f"{name}\n")
    assert host.governor(tmp_path) == "performance 0-1,3, powersave 2"
    path.with_name("scaling_governor").write_text("powersave\n")
    (tmp_path / "cpu/cpu0/cpufreq/scaling_governor").write_text("powersave\n")
    (tmp_path / "cpu/cpu1/cpufreq/scaling_governor").write_text("powersave\n")
    assert host.governor(tmp_path) == "powersave"
