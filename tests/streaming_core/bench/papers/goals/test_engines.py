"""Suite engines: which engines take part, how it checks their results, and its conclusions."""

import pytest

from streaming_core.bench import benchmarks_page, suite
from streaming_core.bench.papers.goals import engines
from streaming_core.bench.suite import Heat
from streaming_core.engines import environment, registry
from tests.streaming_core.engines.planted import WC, plant

EVENTS = 60
FAULT = "right = wc\ndef wc(task):\n    one = right(task)\n    return lambda: one().slice(1)"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of engines."""
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(registry.SETTING, str(tmp_path / "engines"))
    return tmp_path / "engines"


@pytest.mark.slow
def test_engines_race_with_lockstep_and_their_results_are_checked(folder):
    plant(folder, "handwritten", WC.format(fault=""), max_threads=1)
    plant(folder, "short", WC.format(fault=FAULT))
    results = suite.run(engines.SUITE, ["wc"], EVENTS, [2], 2, quick=True)
    [experiment] = results["experiments"]
    rows = {row["way"]: row for row in experiment["rows"]}
    assert {way: (row["threads"], row["cores"], row["result"]) for way, row in rows.items()} == {
        "loop": (1, 2, "yardstick"),
        "affinity": (2, 2, "equal"),
        "handwritten": (1, 2, "equal"),
        "short": (2, 2, "different"),
    }
    for way in ("affinity", "handwritten", "short"):
        assert len(rows[way]["rates"]) == len(rows[way]["rounds"]["to_loop"]) == 2
    assert rows["handwritten"]["to_handwritten_range"] == [1, 1]
    assert rows["handwritten"]["cpu_ns"] is None
    assert rows["handwritten"]["p99_us"] is None
    [conclusion] = experiment["conclusions"]
    assert conclusion.startswith("wc on 2 cores: ")
    assert "affinity on 2 threads" in conclusion
    assert "handwritten on 1 thread" in conclusion
    page = "\n".join(benchmarks_page._figures(experiment["rows"], ["app", "way", "cores", "threads"]))
    assert "| x loop | threads that worked | x hand-written |" in page


@pytest.mark.slow
def test_outputs_without_order_are_compared_by_the_declared_columns(folder):
    fault = "whole = wc\ndef wc(task):\n    one = whole(task)\n    return lambda: one().select(['word', 'n'])"
    plant(folder, "loose", WC.format(fault=fault), applications={"wc": "none"})
    [experiment] = suite.run(engines.SUITE, ["wc"], EVENTS, [1], 1, quick=True)["experiments"]
    [row] = [row for row in experiment["rows"] if row.get("executor") == "loose"]
    assert (row["order"], row["result"]) == ("none", "equal")
    assert "loose is Test loose, and its outputs have no order" in experiment["notes"]


def test_engines_that_cannot_run_are_left_out_and_listed(folder):
    plant(folder, "ready", "")
    missing = plant(folder, "missing", "")
    (environment.home(missing) / environment.INSTALLED).unlink()
    plant(folder, "other", "", applications={"sd": "total"})
    invalid = plant(folder, "wrong", "")
    (invalid.folder / registry.MANIFEST).write_text("system: 1")
    wc, *_ = engines.SUITE.experiments
    heats, notes = wc.sweep([1, 2])
    assert [ways(heat) for heat in heats] == [[("pooled", 1), ("ready", 1)], [("pooled", 2), ("ready", 2)]]
    assert notes[1] == "ready is Test ready, and its outputs have a total order"
    assert notes[2].startswith("left out: engine missing is not installed on this machine; type `lockstep engines")
    assert notes[3].startswith("left out: engine wrong: ")
    assert len(notes) == 4


def ways(heat: Heat) -> list[tuple[str, int]]:
    return [(spec.executor, spec.threads) for spec in heat.ways]


def test_page_shows_no_suite_without_claims_as_a_paper():
    without = [name for name in suite.SUITES if not any(e.claims for e in suite.load(name).experiments)]
    assert not benchmarks_page.papers(without)
