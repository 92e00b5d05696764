"""The benchmark: its figures are measured, its results are right, and a wrong result gives no figure."""

import itertools
import json
from functools import partial

import pytest

from streaming_core.bench import report
from streaming_core.bench.race.race import Race
from streaming_core.bench.race.rounds import OpenLoop
from streaming_core.run import engine
from streaming_core.run.way import Transactional


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def command(command):
    """Runs `streaming-core bench ...`."""
    return partial(command, "bench")


def test_latencies_are_measured_at_a_share_of_the_slowest_peak_rate():
    race = Race("sl", {}, 4000)
    loop, *rows = race.run(
        [Transactional(app="sl", scheme=scheme) for scheme in ("owners", "tstream")], 2, open_loop=OpenLoop(loads=[0.5])
    )
    assert {row["offered_per_s"] for row in rows} == {min(row["events_per_s"] for row in rows) / 2}
    for row, name in itertools.product(rows, ("end_to_end_mean_us", "end_to_end_p99_us", "processing_mean_us")):
        assert 0 < row[f"{name}_range"][0] <= row[name] <= row[f"{name}_range"][1]
        assert len(row["rounds"][name]) == len(row["rounds"]["cpu_ns"]) == 2
    assert "end_to_end_p99_us" not in loop
    assert set(rows[0]["breakdown"]) == {"useful", "sync", "lock", "remote", "other"}
    assert "costs" not in rows[0]


def test_tstream_states_the_costs_of_its_parts():
    race = Race("sl", {}, 4000)
    _, row = race.run([Transactional(app="sl", scheme="tstream", threads=2, punctuation=1000)], 1)
    costs = row["costs"]
    times = ["planning", "insertion", "rounds", "barriers", "post_processing", "delivery"]
    counts = ["operations", "chains", "dependent_chains", "rounds"]
    assert set(costs) == {*times, *(f"{name}_per_interval" for name in counts)}
    assert all(costs[name] > 0 for name in times)
    # Half of the events are deposits: two modifications and two reads. A transfer has four of each.
    assert 4000 < costs["operations_per_interval"] < 8000
    assert 2 <= costs["rounds_per_interval"] <= 1000
    assert 0 < costs["dependent_chains_per_interval"] < costs["chains_per_interval"] <= 20_000


def test_tables_show_the_columns_that_vary():
    rows = [
        {"app": "gs", "params": {"theta": 0.5}, "way": "loop", "events_per_s": 2e6, "to_loop": 1.0, "result": "x"},
    ]
    grid = report.table(rows, ["app", "way", "theta"])
    assert [column.header for column in grid.columns] == ["app", "way", "theta", "events/s", "x loop", "result"]
    assert list(grid.columns[2].cells) == ["0.5"]


def test_a_race_without_events_has_no_figures(command, home, tmp_path):
    out = tmp_path / "bench.json"
    assert command("wc", "sl", "--events", 0, "--threads", "1,2", "--repetitions", 1, "--out", out)[0] == 0
    rows = json.loads(out.read_text(), parse_constant=pytest.fail)["results"]
    assert {row["result"] for row in rows} == {"yardstick", "equal", "bound"}
    for name in ("events_per_s", "events_per_s_range", "outputs_per_s", "to_loop", "cpu_ns"):
        assert {row[name] for row in rows} == {None}


@pytest.mark.slow
def test_runs_between_files_are_checked_and_compared_with_pyarrow(command, home, tmp_path, monkeypatch):
    out = tmp_path / "bench.json"
    options = ("gs", "--files", "--quick", "--threads", "1,2", "--repetitions", 2, "--out", out)
    code, shown, _ = command(*options)
    rows = json.loads(out.read_text())["files"]
    usual = Transactional(app="gs").strategy
    assert code == 0
    assert [(row["way"], row["threads"]) for row in rows] == [("oracle", 1), (usual, 1), (usual, 2)]
    assert {row["result"] for row in rows} == {"equal"}
    for row in rows:
        ratios = [mine / theirs for mine, theirs in zip(row["seconds"], row["pyarrow_seconds"], strict=True)]
        assert (len(ratios), row["to_pyarrow_range"]) == (2, [min(ratios), max(ratios)])
        assert f"gs, {row['way']}, {row['threads']} thread" in shown
    assert not list(home.glob("bench-*"))

    truth = engine.run
    wrong = {"digest": "2000:0000000000000000"}
    monkeypatch.setattr(engine, "run", lambda *a: (r := truth(*a)).model_copy(
        update={"samples": [r.samples[0].model_copy(update=wrong)]}))  # fmt: skip
    code, _, error = command(*options)
    assert (code, error) == (
        1,
        f"streaming-core: 2 results differ from the result of the compiled loop; the first is gs {usual}\n",
    )
    for bad, message in (
        (("--files", "--suite", "tstream"), "--files and --suite exclude each other; remove one of them"),
        (("--files", "--events", 0), "--events must be at least 1 with --files, got 0"),
    ):
        assert command(*bad) == (2, "", f"streaming-core: {message}\n")
