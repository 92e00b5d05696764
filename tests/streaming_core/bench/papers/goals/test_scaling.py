"""Suite scaling: its ways, its model in plain numbers, its claims, and the agreement of hand-written loops."""

import json
from dataclasses import replace

import pytest

from infra.benchmarks import measurements
from streaming_core.bench import claims, suite
from streaming_core.bench.papers.goals import scaling
from streaming_core.bench.papers.goals.model import Model
from streaming_core.bench.race import handwritten, results
from streaming_core.bench.race.race import Race
from streaming_core.errors import BadInput

(APPLICATIONS,) = scaling.SUITE.experiments


def row(app, way, rate, threads=1, result="equal", **more):
    rates = [rate] * 3
    fields = {"app": app, "way": way, "threads": threads, "result": result, "heat": 0, "params": {}, "events": 10}
    return fields | {"rates": rates, "events_per_s": rate, "to_loop": rate / 20e6} | more


def breakdown(useful, sync=0.0, other=0.0):
    return {"useful": useful, "sync": sync, "lock": 0.0, "remote": 0.0, "other": other}


def owners(threads, rate, parts, **costs):
    more = {"costs": costs, "round_trip_ns": 60.0} if costs else {}
    return row("gs", "owners", rate, threads, executor="transactional", breakdown=parts, **more)


ROWS = (
    row("gs", "loop", 20e6, result="yardstick"),
    row("gs", "hand-written", 40e6),
    owners(1, 25e6, breakdown(40.0)),
    owners(2, 20e6, breakdown(78.0, 20.0, 2.0), dealing=20.0, delivery=2.0, spanning_per_batch=15.8),
)


@pytest.fixture
def rows():
    rows = [dict(figures) for figures in ROWS]
    APPLICATIONS.describe(rows)
    return rows


def test_model_divides_work_and_exchange_but_not_waiting():
    model = Model.of(*ROWS[2:])
    assert model == Model(work=60.0, exchange=20.0, waiting=10.0, serial=2.0, trip=60.0)
    assert model.nanoseconds(2) == 50.0, "as measured"
    assert model.nanoseconds(4) == (60 + 20 * 1.5) / 4 + 10
    assert model.nanoseconds(4, trip=120.0) == (60 + 20 * 1.5 * 2) / 4 + 10 * 2


def test_model_has_no_throughput_above_that_of_its_serial_step():
    tasks = {"source": 5.0, "operator": 90.0, "alone": 30.0}
    model = Model.of(owners(1, 1e7, breakdown(100.0)), owners(2, 1e7, breakdown(95.0), **tasks))
    assert model == Model(work=95.0, exchange=0.0, waiting=0.0, serial=30.0, trip=60.0)
    assert [model.nanoseconds(threads) for threads in (2, 16)] == [47.5, 30.0]


def test_model_stands_beside_measured_and_unmeasured_threads(rows):
    rows.append(owners(4, 40e6, breakdown(70.0), dealing=1.0) | {"worked": 3})
    costs, expectations = APPLICATIONS.conclude(rows)
    assert costs == "gs: owners on 4 threads spends, in nanoseconds per event: dealing 1.0; 3 of 4 threads worked"
    assert expectations == (
        "gs: from 60.0 ns of work, 20.0 of exchange, 10.0 of waiting, 2.0 of the longest serial step, at a round trip "
        "of 60, the model of owners expects, times the loop: 1.25 on 2, 1.54 on 4 (measured 2), 2.29 on 8, 3.11 on 16"
    )
    by_threads = {figures["threads"]: figures for figures in rows if figures["way"] == "owners"}
    assert {threads: figures["result"] for threads, figures in by_threads.items()} == {
        1: "equal", 2: "equal", 4: "equal", 8: "expected", 16: "expected",
    }  # fmt: skip
    assert by_threads[4]["error"] == pytest.approx(1 - 1e9 / 32.5 / 40e6)
    declared = {"plots": [{**vars(plot), "lines": list(plot.lines)} for plot in APPLICATIONS.plots]}
    chart = measurements.charts(declared | {"rows": rows})[0][0]
    points = [(point["x"], point["dashed"]) for point in measurements.points(chart) if point["line"] == "owners"]
    assert sorted(points) == [(1, False), (2, False), (2, True), (4, False), (4, True), (8, True), (16, True)]


def test_without_one_and_two_threads_at_work_there_is_no_model(rows):
    rows[3]["worked"] = 1
    costs = (
        "gs: owners on 2 threads spends, in nanoseconds per event: dealing 20.0, delivery 2.0; 16 events of a "
        "batch span shares; 1 of 2 threads worked"
    )
    assert list(APPLICATIONS.conclude(rows)) == [costs]
    assert list(APPLICATIONS.conclude(rows[3:] + rows[:1])) == [costs]


def test_goals_compare_with_loops_and_fewer_threads(rows):
    rows += [owners(4, 24e6, breakdown(70.0)), owners(16, 110e6, breakdown(70.0))]
    APPLICATIONS.describe(rows)
    list(APPLICATIONS.conclude(rows))
    lines = claims.lines(APPLICATIONS.claims, rows, 16, 1)
    assert [(line.case, line.cells["ours"], line.verdict) for line in lines] == [
        ("gs", "1", "missed"),
        ("gs", "5.5", "met"),
        ("gs, owners", "0.8 (0.8 to 0.8)", "missed"),
        ("gs", "0.625 (0.625 to 0.625) times", "missed"),
        ("gs, owners", "0.435", "missed"),
    ]
    assert claims.lines(APPLICATIONS.claims[1:2], rows, 2, 1)[0].verdict == "not testable here: needs 16 cores"
    assert [figures["to_one_thread"] for figures in rows if "to_one_thread" in figures] == [1, 0.8, 0.96, 4.4]


def test_every_application_has_its_goals_and_all_executors_that_run_it():
    for goals in scaling.TIMES_LOOP.values():
        assert goals.keys() == scaling.MILLIONS.keys()
    heats = {heat.app: {(spec.executor, spec.threads) for spec in heat.ways} for heat in APPLICATIONS.sweep([1, 2])[0]}
    assert heats["gs"] == {("transactional", 1), ("transactional", 2)}
    assert {executor for executor, _ in heats["fd"]} == {"pooled", "pinned", "morsel"}


def test_suite_runs_on_two_threads_without_cargo(monkeypatch, tmp_path):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))

    def missing():
        raise BadInput("no cargo")

    monkeypatch.setattr(handwritten, "cargo", missing)
    monkeypatch.setattr(scaling, "MILLIONS", {"sl": 2})
    outcome = suite.run(scaling.SUITE, None, None, [1, 2], 1, quick=True)
    results.check(json.loads(json.dumps(outcome | {"command": ""})), "", suite.SUITES)
    [applications] = outcome["experiments"]
    assert applications["notes"][0] == "left out: no cargo"
    measured = [figures for figures in applications["rows"] if figures["result"] == "equal"]
    assert {figures["threads"] for figures in measured if "end_to_end_p99_us" in figures} == {1, 2}
    assert all(figures["model"] > 0 for figures in applications["rows"] if figures["threads"] > 1)
    # Without any time, nothing runs.
    late = replace(APPLICATIONS, seconds=-1.0)
    [outcome] = suite.run(replace(scaling.SUITE, experiments=(late,)), None, None, [1], 1, quick=True)["experiments"]
    assert (outcome["notes"][-1], outcome["rows"]) == ("left out, because the time was over: sl", [])


@pytest.mark.slow
def test_eight_applications_have_a_hand_written_loop(tmp_path):
    from streaming_core.apps import registry
    from streaming_core.kernels.program import compile_app

    app = registry.load("tp")
    with pytest.raises(BadInput, match="no hand-written loop for tp; known: gs, sl, ob, wc, fd, sd"):
        handwritten.Handwritten(app, compile_app(app, app.bind({})), [], tmp_path)
    with pytest.raises(BadInput, match="the hand-written loop of gs has 1 thread, got 2"):
        handwritten.Handwritten(registry.load("gs"), None, [], tmp_path, (1, 2))


def test_hand_written_loops_need_their_sources(monkeypatch, tmp_path):
    monkeypatch.setattr(handwritten, "ROOT", tmp_path)
    with pytest.raises(BadInput, match="the hand-written loops need a checkout"):
        handwritten.cargo()


@pytest.mark.slow  # builds the loops
def test_the_hand_written_loops_agree_with_the_compiled_one():
    for app in handwritten.APPS:
        _, turn = Race(app, {}, 3_000, handwritten=(1,)).run([], 1)
        assert (turn["way"], turn["result"]) == ("hand-written", "equal")


@pytest.mark.slow  # builds the loops
def test_the_hand_written_join_agrees_on_any_number_of_threads(monkeypatch, tmp_path):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    # Few values, so that a row has several pairs; and keys that the threads do not divide evenly.
    join = Race("scalejoin", {"keys": 7, "size": 20_001, "domain": 100}, 3_000, handwritten=(1, 2, 3))
    *rows, loop = sorted(join.run([], 1), key=lambda row: row["way"])
    assert [(row["threads"], row["result"]) for row in rows] == [(1, "equal"), (2, "equal"), (3, "equal")]
    assert loop["outputs_per_s"] > loop["events_per_s"]
