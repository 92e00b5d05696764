"""The suites of papers beside TStream: every experiment runs and is checked, and what is concluded of it is so."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from streaming_core.apps import registry
from streaming_core.bench import briskstream, ordered, report, suite, viper
from streaming_core.bench.race import Race
from streaming_core.run.way import EXECUTORS

SUITES = {module.SUITE.name: module for module in (ordered, viper, briskstream)}
EXPERIMENTS = [(name, experiment.name) for name in SUITES for experiment in SUITES[name].SUITE.experiments]


def chosen(name, experiment):
    return next(e for e in SUITES[name].SUITE.experiments if e.name == experiment)


@pytest.fixture(scope="module")
def races(tmp_path_factory):
    """Workloads that have been compiled for, for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_HOME", str(tmp_path_factory.mktemp("home")))
        made = {}

        def race(app, params, events):
            key = app, json.dumps(registry.load(app).bind(params)), events
            if key not in made:
                made[key] = Race(app, params, events)
            made[key].given = params
            return made[key]

        yield race


@pytest.fixture
def quick(monkeypatch, races):
    """Few workloads of few events: each has to be compiled for."""
    for name, values in (
        ("APPS", ("sd",)), ("LOADED", ("sd",)), ("QUERIES", ("q15",)), ("SIGMAS", (0.1,)), ("COSTS", (10,)),
        ("LIGHT", (1,)), ("HEAVY", (1,)), ("SELECTIVITIES", (1,)),
    ):  # fmt: skip
        monkeypatch.setattr(ordered, name, values)
    monkeypatch.setattr(ordered, "_multiplication", lambda: 1.0)  # a single one, whatever the cost asked for
    monkeypatch.setattr(ordered, "Race", races)
    monkeypatch.setattr(viper, "APPS", ("pos_rep",))
    monkeypatch.setattr(viper, "COUNTS", (1, 2))
    monkeypatch.setattr(briskstream, "APPS", ("sd",))
    monkeypatch.setattr(suite, "Race", races)


def run(name, experiment, events=200):
    only = replace(SUITES[name].SUITE, experiments=(chosen(name, experiment),))
    [found] = suite.run(only, None, events, [1, 2], 1)["experiments"]
    return found


def plotted(row, plot):
    """Whether a row has what its line, its chart and its point need."""
    names = [name for name in (plot["x"], plot["by"], *plot["lines"]) if name]
    return all(name in row or name in row["params"] for name in names) and row.get(plot["y"]) is not None


def check(found, declared):
    rows, loads = found["rows"], declared.loads
    assert {row["result"] for row in rows} == {"yardstick", "equal"}
    assert all(row["cpu_ns"] > 0 for row in rows)
    for plot in found["plots"]:
        drawn = [row for row in rows if plotted(row, plot) and (plot["loop"] or row["way"] != "loop")]
        ways = [row for row in rows if row["way"] != "loop"]
        # Energy is the one figure that a machine may not have.
        assert plot["y"] == "energy_nj" or [row for row in drawn if row["way"] != "loop"] == ways
        if plot["kind"] == "line":
            charts = {}
            for row in drawn:
                line = tuple(report.value(row, name) for name in plot["lines"])
                charts.setdefault(report.value(row, plot["by"]), []).append((line, report.value(row, plot["x"])))
            for points in charts.values():  # a line goes through every x of its chart
                lines, places = ({point[i] for point in points} for i in (0, 1))
                assert len(set(points)) == len(lines) * len(places)
    assert {row.get("load") for row in rows if row["way"] != "loop"} == (set(loads) or {None})


@pytest.mark.parametrize(("name", "experiment"), EXPERIMENTS)
def test_every_experiment_runs_and_what_it_ran_is_right(quick, name, experiment):
    found = run(name, experiment)
    check(found, chosen(name, experiment))
    assert found["conclusions"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "experiment"), EXPERIMENTS)
def test_every_experiment_runs_in_full(monkeypatch, tmp_path, name, experiment):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    declared = chosen(name, experiment)
    found = run(name, experiment)
    check(found, declared)
    assert len(found["conclusions"]) >= len({row["app"] for row in found["rows"]}) - 1  # lr keeps total order only


@pytest.mark.parametrize("counts", [[1], [2], [1, 2, 4]])
def test_sweeps_cover_what_they_say(monkeypatch, counts):
    monkeypatch.setattr(ordered, "_multiplication", lambda: 1e-8)
    most = max(counts)

    def ways(name, experiment):
        return [(heat, spec) for heat in chosen(name, experiment).sweep(counts)[0] for spec in heat.ways]

    for name, experiment in EXPERIMENTS:
        assert all(spec.app == heat.app and spec.params == heat.params for heat, spec in ways(name, experiment))
        assert all(0 < heat.share <= 1 for heat, _ in ways(name, experiment))
        assert all(claim.says and claim.source for claim in chosen(name, experiment).claims)
    axes = EXECUTORS["pooled"].axes
    queries = {"q1", "q2", "q3", "q4", "q15"}
    found = {(s.app, s.heuristic, s.threads, s.batch) for _, s in ways("ordered", "queries")}
    assert found == {(q, h, t, b) for q in queries for h in axes["heuristic"] for t in (1, most) for b in (256, 2048)}
    assert {(s.app, s.queue) for _, s in ways("ordered", "queues")} == {(q, w) for q in queries for w in axes["queue"]}
    skew = {(h.params["sigma"], h.params["keys"], s.queue) for h, s in ways("ordered", "skew")}
    assert skew == {(sigma, 100, queue) for sigma in (1, 0.3, 0.1, 0.03, 0.01) for queue in axes["queue"]}
    assert {h.params["r"] for h, _ in ways("ordered", "cost")} == {1000, 10_000, 100_000, 1_000_000}
    assert all(s.batch == 1 and h.params["r"] == h.params["r_keyed"] for h, s in ways("ordered", "cost"))
    light = {(s.batch, s.reorder, s.threads) for _, s in ways("ordered", "light")}
    assert light == {(b, r, t) for b in (1, 8, 256) for r in axes["reorder"] for t in counts}
    assert {h.params["sel"] for h, _ in ways("ordered", "selectivity")} == {1.0, 5.0, 10.0, 50.0}
    assert chosen("ordered", "load").loads == (0.25, 0.5, 0.75, 0.9)
    cells = {(s.app, len(s.plan["source"]), len(s.plan[s.app]), s.channel) for _, s in ways("viper", "configurations")}
    assert len(cells) == 2 * 4 * 4 * 2
    assert {s.threads for _, s in ways("viper", "configurations")} == {most}
    jumbo = {(s.app, s.batch) for _, s in ways("briskstream", "jumbo_tuples")}
    assert jumbo == {(app, batch) for app in ("wc", "fd", "sd", "lr") for batch in (1, 16, 256)}
    assert {s.executor for _, s in ways("briskstream", "applications")} == {"pooled", "morsel", "pinned"}


def test_the_cost_of_an_operator_is_measured_on_this_machine(monkeypatch, races):
    monkeypatch.setattr(ordered, "Race", races)
    monkeypatch.setattr(ordered, "TRIAL", 1)
    assert 0 < ordered._multiplication.__wrapped__() < 1e-3
    monkeypatch.setattr(ordered, "_multiplication", lambda: 2e-8)
    assert [ordered.rounds(cost) for cost in (0.001, 0.1, 10)] == [1, 5, 500]


def row(seconds, app="q1", result="equal", **more):
    plain = {"app": app, "way": "ct", "threads": 2, "params": {}, "seconds": seconds, "result": result, "to_loop": 1.0}
    return plain | {axis: values[0] for axis, values in EXECUTORS["pooled"].axes.items()} | more


def loop(**more):
    return {"app": "q1", "way": "loop", "threads": 1, "params": {}, "seconds": [1], "result": "yardstick"} | more


def test_what_is_concluded_of_queues_and_heuristics():
    # Ratios are those of the same rounds: the machine was half as fast in the second.
    rows = [row([1, 2, 1]), row([2, 4, 3], queue="partitioned"), row([3, 6, 3], queue="shared")]
    assert list(ordered._queue_gains(rows)) == [
        "q1: hybrid has 2.00 times the throughput of partitioned, 3.00 times that of shared"
    ]
    rows[1]["result"] = "different"
    assert list(ordered._queue_gains(rows)) == ["q1: hybrid has 3.00 times the throughput of shared"]
    rows[0]["result"] = "different"
    assert list(ordered._queue_gains(rows)) == []
    usual = {"batch": 256}
    rows = [loop(), row([2], threads=1, **usual), row([1], to_loop=1.5, **usual)]
    rows.append(row([0.8], heuristic="et", to_loop=1.9, batch=2048))
    rows.append(row([0.1], heuristic="lp", to_loop=9.0, result="different", **usual))
    assert list(ordered._scale(rows)) == [
        "q1: on 2 threads et with batches of 2048 reaches 1.90 times the loop, ct with batches of 256 1.50: "
        "2.00 times its one thread"
    ]


def test_what_is_concluded_of_buffers_and_costs(monkeypatch):
    monkeypatch.setattr(ordered, "_multiplication", lambda: 1e-6)
    rows = [loop(app="matrix", params={"r": 10})]
    for batch, gain in ((1, 3), (8, 2)):
        rows.append(row([1, 2], "matrix", params={"r": 10}, batch=batch))
        rows.append(row([gain, 2 * gain], "matrix", params={"r": 10}, batch=batch, reorder="lock"))
    ordered._priced(rows, (10,))
    assert {r["cost_us"] for r in rows} == {10}
    assert ordered._buffers(rows, "batch", cost_us=10) == (
        "non_blocking has 3.00, 2.00 times the throughput of lock at batch 1, 8"
    )
    monkeypatch.setattr(ordered, "COSTS", (10,))
    rows = [row([1], "matrix", params={"r": 10}, end_to_end_p99_us=60, processing_p99_us=30)]
    [line] = ordered._delays(rows)
    assert "the p99 is 3.0 times the cost of both, 1.5 times if counted" in line


def test_what_is_concluded_of_jumbo_tuples():
    rows = [
        row([4], "sd", channel="scalegate", batch=1, end_to_end_p99_us=500.0),
        row([1], "sd", channel="scalegate", batch=256, end_to_end_p99_us=2000.0),
        row([1], "fd", channel="scalegate", batch=256, end_to_end_p99_us=2000.0),
    ]
    assert list(briskstream._gain(rows)) == [
        "sd, scalegate: batches of 256 have 4.0 times the throughput of single events; the p99 at half of either peak "
        "is 2 and 0.5 ms"
    ]
