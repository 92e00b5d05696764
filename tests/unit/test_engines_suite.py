"""Suite engines: which engines take part, what it says of rows, and that each result of an engine is checked."""

import pytest

from streaming_core.bench import engines
from streaming_core.bench.race import Race
from streaming_core.engines import environment, registry
from streaming_core.run.way import RunSpec
from tests.engines.planted import WC, plant


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of engines."""
    monkeypatch.setenv(registry.SETTING, str(tmp_path / "engines"))
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    return tmp_path / "engines"


def row(way, executor, rates, threads=1, **more):
    about = {"app": "wc", "way": way, "executor": executor, "threads": threads, "heat": 0, "params": {}}
    return about | {"result": "equal", "rates": rates, "events_per_s": rates[1]} | more


def test_only_installed_engines_take_part_where_their_manifests_allow(folder):
    plant(folder, "loose", "", applications={"wc": "total", "wordcount": "none"}, max_threads=1)
    gone = plant(folder, "gone", "")
    (environment.home(gone) / environment.INSTALLED).unlink()
    plant(folder, engines.LIMIT, "")
    heats, notes = engines._sweep([1, 2])
    ways = {(heat.app, heat.ways[0].threads): [way.executor for way in heat.ways] for heat in heats}
    assert ways["wc", 1] == ["pooled", "pinned", "loose"]
    assert ways["wc", 2] == ["pooled", "pinned"]
    assert ways["wordcount", 1] == ["pinned", "loose"]
    assert notes[1:] == [
        "Left out, because not installed: gone.",
        "loose gives no order for wordcount; Lockstep keeps it.",
    ]


def test_ratios_are_those_of_the_same_rounds():
    rows = [
        row("hand-written", None, [8.0, 16.0, 32.0]),
        row("affinity", "pooled", [4.0, 8.0, 16.0]),
        row("gate", "pinned", [1.0, 1.0, 1.0]),
        row("polars", "polars", [1.0, 2.0, 4.0], engine={"system": "Polars 2.1", "polars": "2.1.0"}),
        row("wrong", "wrong", [9.0, 99.0, 9.0], result="different"),
    ]
    said = list(engines._conclude(rows))
    assert [one.get("to_best") for one in rows] == [2.0, 1.0, 0.125, 0.25, None]
    assert rows[3]["to_limit_range"] == [0.125, 0.125]
    assert said == [
        "wc: polars on 1 thread has 0.25 (0.25 to 0.25) times the throughput of affinity on 1 thread",
        "wc: affinity on 1 thread has 0.5 (0.5 to 0.5) times the throughput of hand-written on 1 thread",
        "polars is Polars 2.1 (polars 2.1.0)",
    ]


@pytest.mark.parametrize("result", ["equal", "different"])
def test_a_race_checks_the_outputs_of_an_engine(folder, result):
    wrong = "right = wc\ndef wc(task):\n    one = right(task)\n    return lambda: one().slice(1)"
    plant(folder, "mine", WC.format(fault=wrong if result == "different" else ""))
    way = RunSpec.parse({"app": "wc", "executor": "mine", "sink": "parquet"})
    loop, mine = Race("wc", {}, 40).run([way], 2)
    assert (loop["result"], mine["result"], len(mine["rates"])) == ("yardstick", result, 2)
    assert mine["engine"] == {"system": "Test mine", "python": "3"}
    assert mine["cpu_ns"] is None
