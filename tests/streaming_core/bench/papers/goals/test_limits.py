"""Suite limits: its claims about rows, and the agreement of hand-written and compiled loops."""

import pytest

from streaming_core.bench import claims, suite
from streaming_core.bench.papers.goals import limits
from streaming_core.bench.race import handwritten
from streaming_core.bench.race.race import Race
from streaming_core.errors import BadInput


def row(app, way, rate, threads=1, result="equal", scheme=None):
    rates = [rate] * 3
    return {
        "app": app, "way": way, "threads": threads, "result": result, "scheme": scheme, "heat": app, "params": {},
        "rates": rates, "events_per_s": rate,
    }  # fmt: skip


def test_claims_compare_the_engine_with_both_loops():
    one, schemes = limits.SUITE.experiments
    rows = [row("gs", "loop", 4e6, result="yardstick"), row("gs", "hand-written", 6e6)]
    rows.append(row("gs", "owners", 5e6) | {"executor": "transactional"})
    gs, sl, *_ = claims.lines(one.claims, rows, 2, 1)
    assert (gs["ours"], gs["verdict"]) == ("0.833 (0.833 to 0.833) times", "missed")
    assert sl["verdict"] == "not testable here", "no rows of sl"
    costs = {"dealing": 12.0, "executing": 35.01, "waiting": 0.5, "delivery": 0.25, "spanning_per_interval": 15.8}
    rows = [
        row("gs", "loop", 4e6, result="yardstick"),
        row("gs", "owners", 5e6, scheme="owners"),
        row("gs", "owners", 8e6, 2, scheme="owners") | {"costs": costs},
        row("gs", "serial", 6e6, 2, scheme="serial"),
        row("gs", "auto", 7.2e6, 2, scheme="auto"),
    ]
    gs, *_, auto = claims.lines(schemes.claims, rows, 2, 1)
    assert (gs["ours"], gs["verdict"]) == ("2 (2 to 2) times", "met")
    assert (auto["ours"], auto["verdict"]) == ("0.9 (0.9 to 0.9) times", "missed")
    assert list(schemes.conclude(rows)) == [
        "gs: owners on 2 threads spends, in nanoseconds per event: dealing 12.0, executing 35.0, waiting 0.5, delivery "
        "0.2; 16 events of an interval span shares",
    ]


@pytest.mark.slow
def test_six_applications_have_a_hand_written_loop(tmp_path):
    from streaming_core.apps import registry
    from streaming_core.kernels.program import compile_app

    app = registry.load("tp")
    with pytest.raises(BadInput, match="no hand-written loop for tp; known: gs, sl, ob, wc, fd, sd"):
        handwritten.Handwritten(app, compile_app(app, app.bind({})), [], tmp_path)
    with pytest.raises(BadInput, match="the hand-written loop of gs has 1 thread, got 2"):
        handwritten.Handwritten(registry.load("gs"), None, [], tmp_path, (1, 2))


@pytest.mark.slow  # builds the loops
def test_the_hand_written_loops_agree_with_the_compiled_one():
    [experiment] = suite.run(limits.SUITE, ["one-thread"], 3_000, [1], 1, quick=True)["experiments"]
    results = {row["app"]: row["result"] for row in experiment["rows"] if row["way"] == "hand-written"}
    assert results == dict.fromkeys(handwritten.APPS, "equal")


@pytest.mark.slow  # builds the loops
def test_the_hand_written_join_agrees_on_any_number_of_threads(monkeypatch, tmp_path):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    # Few values, so that a row has several pairs; and keys that the threads do not divide evenly.
    join = Race("scalejoin", {"keys": 7, "size": 20_001, "domain": 100}, 3_000, handwritten=(1, 2, 3))
    *rows, loop = sorted(join.run([], 1), key=lambda row: row["way"])
    assert [(row["threads"], row["result"]) for row in rows] == [(1, "equal"), (2, "equal"), (3, "equal")]
    assert loop["outputs_per_s"] > loop["events_per_s"]
