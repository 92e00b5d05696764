"""The benchmark: its figures are measured, its results are right, and a wrong result gives no figure."""

import itertools
import json
from functools import partial

import pyarrow as pa
import pytest

from streaming_core.bench import report, suite
from streaming_core.bench.papers.tstream import tstream
from streaming_core.bench.race.race import Race
from streaming_core.bench.race.rounds import OpenLoop
from streaming_core.errors import BadInput, RunFailed
from streaming_core.run import engine, one_pass
from streaming_core.run.way import Transactional

# The ways of the experiment `three-writes`.
SCHEMES = ("tstream", "lock", "mvlk", "pat", "owners")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def command(command):
    """Runs `streaming-core bench ...`."""
    return partial(command, "bench")


def test_a_suite_records_measurements_and_host(command, home):
    options = ("--suite", "tstream", "--only", "three-writes", "--quick", "--repetitions", 2)
    code, shown, _ = command(*options)
    assert code == 0
    assert "three-writes: " in shown
    [path] = (home / "reports" / "bench").glob("tstream-*.json")
    results = json.loads(path.read_text())
    assert (results["version"], results["suite"], results["quick"]) == (2, "tstream", True)
    assert results["host"]["cores"] >= 1
    assert results["topology"]["sockets"] >= 1
    assert results["build"]
    assert set(results["sources"]) == {"transactions"}
    assert set(results["conditions"]) == {
        "pass_seconds", "pinned", "steal", "others", "preempted", "load_before", "load_after",
    }  # fmt: skip
    assert results["seconds"] > 0
    assert results["cells"] == 1 + len(SCHEMES)
    [experiment] = results["experiments"]
    assert [row["way"] for row in experiment["rows"]] == ["loop", *SCHEMES]
    assert {row["result"] for row in experiment["rows"]} == {"yardstick", "equal"}
    assert {row["params"]["length"] for row in experiment["rows"]} == {3}
    for row in experiment["rows"]:
        assert (row["heat"], row["events"], row["runs"], len(row["rates"])) == (0, 2000, 1, 2)
        assert row["events_per_s_range"] == sorted(row["rates"])
        for column in ("to_loop", "cpu_ns") + ("p99_us",) * (row["way"] != "loop"):
            assert row[f"{column}_range"] == sorted(row["rounds"][column])
            assert row[f"{column}_range"][0] <= row[column] <= row[f"{column}_range"][1]
    code, shown, _ = command(*options, "--json")
    assert json.loads(shown)["experiments"][0]["name"] == "three-writes"


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
    times = ["planning", "decomposition", "insertion", "rounds", "barriers", "post_processing", "delivery"]
    counts = ["operations", "chains", "dependent_chains", "rounds"]
    assert set(costs) == {*times, *(f"{name}_per_interval" for name in counts)}
    assert all(costs[name] > 0 for name in times)
    # Half of the events are deposits: two modifications and two reads. A transfer has four of each.
    assert 4000 < costs["operations_per_interval"] < 8000
    assert 2 <= costs["rounds_per_interval"] <= 1000
    assert 0 < costs["dependent_chains_per_interval"] < costs["chains_per_interval"] <= 20_000


def test_a_wrong_result_fails_the_benchmark(command, home, monkeypatch):
    truth = one_pass.run

    def broken(spec, *args, **options):
        sample, state, binding = truth(spec, *args, **options)
        if spec.scheme == "mvlk":
            sample = sample.model_copy(update={"digest": "2000:0000000000000000"})
        if spec.scheme == "pat":
            values = state["items"]["value"].to_numpy().copy()
            values[7] += 1
            column = state["items"].column_names.index("value")
            changed = state["items"].set_column(column, state["items"].schema.field(column), pa.array(values))
            state = state | {"items": changed}
        if spec.scheme == "owners":
            sample = sample.model_copy(update={"in_order": False})
        return sample, state, binding

    monkeypatch.setattr(one_pass, "run", broken)
    code, _, err = command("--suite", "tstream", "--only", "three-writes", "--quick", "--repetitions", 1)
    assert code == 1
    assert err == "streaming-core: 3 results differ from the result of the compiled loop; the first is gs mvlk\n"
    [path] = (home / "reports" / "bench").glob("tstream-*.json")
    rows = json.loads(path.read_text())["experiments"][0]["rows"]
    assert [row["way"] for row in rows if row["result"] == "different"] == ["mvlk", "pat", "owners"]


@pytest.mark.slow
def test_an_interrupted_suite_keeps_its_measurements(command, home, monkeypatch):
    truth = Race.run

    def interrupted(race, ways, *args, **options):
        if race.app.name == "tpk":
            raise RunFailed("stopped by SIGTERM")
        return truth(race, ways, *args, **options)

    monkeypatch.setattr(Race, "run", interrupted)
    chosen = ("--only", "three-writes", "--only", "keyed")
    code, _, err = command("--suite", "tstream", *chosen, "--quick", "--repetitions", 1)
    assert (code, err) == (1, "streaming-core: stopped by SIGTERM\n")
    [path] = (home / "reports" / "bench").glob("tstream-*.json")
    assert [e["name"] for e in json.loads(path.read_text())["experiments"]] == ["three-writes"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--suite", "nope"), ["unknown suite 'nope'", "tstream"]),
        (("--suite", "tstream", "--only", "nope"), ["unknown experiment 'nope'", "schemes", "skew"]),
        (("--only", "skew"), ["--suite"]),
        (("gs", "--suite", "tstream"), ["applications"]),
        (("--suite", "tstream", "--threads", "0"), ["threads"]),
        (("--suite", "tstream", "--repetitions", "0"), ["repetitions"]),
        (("--suite", "tstream", "--events", "0"), ["--events"]),
        (("--evidence", "e.json", "--suite", "tstream"), ["--evidence and --suite"]),
        (("gs", "--evidence", "e.json"), ["--evidence and APP"]),
        (("--import", "e.json", "--quick"), ["--import and --quick"]),
        (("--import", "e.json", "--evidence", "f.json"), ["--import and --evidence"]),
    ],
)
def test_bad_requests_are_refused_and_leave_no_files(command, home, arguments, words):
    code, out, err = command(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    for word in words:
        assert word in err
    assert not (home / "reports").exists()


def test_tables_show_the_columns_that_vary():
    rows = [
        {"app": "gs", "params": {"theta": 0.5}, "way": "loop", "events_per_s": 2e6, "to_loop": 1.0, "result": "x"},
    ]
    grid = report.table(rows, ["app", "way", "theta"])
    assert [column.header for column in grid.columns] == ["app", "way", "theta", "events/s", "x loop", "result"]
    assert list(grid.columns[2].cells) == ["0.5"]


def test_suites_are_looked_up_by_name():
    assert suite.load("tstream") is tstream.SUITE
    with pytest.raises(BadInput, match="unknown suite"):
        suite.load("../tstream")


def test_a_race_without_events_has_no_figures(command, home, tmp_path):
    out = tmp_path / "bench.json"
    assert command("wc", "sl", "--events", 0, "--threads", "1,2", "--repetitions", 1, "--out", out)[0] == 0
    rows = json.loads(out.read_text(), parse_constant=pytest.fail)["results"]
    assert {row["result"] for row in rows} == {"yardstick", "equal", "bound"}
    for name in ("events_per_s", "events_per_s_range", "outputs_per_s", "to_loop", "cpu_ns"):
        assert {row[name] for row in rows} == {None}


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
