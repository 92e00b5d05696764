"""The command `bench --suite`: what it records, and what it refuses."""

import json
from functools import partial

import pyarrow as pa
import pytest

from streaming_core.bench import suite
from streaming_core.bench.papers.tstream import tstream
from streaming_core.bench.race.race import Race
from streaming_core.errors import BadInput, RunFailed
from streaming_core.run import one_pass

# The ways of the experiment `contention`.
SCHEMES = ("pat", "tstream", "owners")
CONTENTION = ("--suite", "tstream", "--only", "contention", "--quick", "--threads", 1, "--repetitions")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def command(command):
    """Runs `streaming-core bench ...`."""
    return partial(command, "bench")


@pytest.mark.slow
def test_a_suite_records_measurements_and_host(command, home):
    options = (*CONTENTION, 2)
    code, shown, _ = command(*options)
    assert code == 0
    assert "contention: " in shown
    [path] = (home / "reports" / "bench").glob("tstream-*.json")
    results = json.loads(path.read_text())
    assert (results["version"], results["suite"], results["quick"]) == (2, "tstream", True)
    assert results["host"]["cores"] >= 1
    assert results["topology"]["sockets"] >= 1
    assert results["build"]
    assert set(results["conditions"]) == {
        "pass_seconds", "pinned", "steal", "others", "preempted", "load_before", "load_after",
    }  # fmt: skip
    assert results["seconds"] > 0
    assert results["cells"] == 1 + len(SCHEMES)
    [experiment] = results["experiments"]
    assert [row["way"] for row in experiment["rows"]] == ["loop", *SCHEMES]
    assert {row["result"] for row in experiment["rows"]} == {"yardstick", "equal"}
    assert {row["params"]["payload"] for row in experiment["rows"]} == {8}
    for row in experiment["rows"]:
        assert (row["heat"], row["events"], row["runs"], len(row["rates"])) == (0, 2000, 1, 2)
        assert row["events_per_s_range"] == sorted(row["rates"])
        for column in ("to_loop", "cpu_ns") + ("p99_us",) * (row["way"] != "loop"):
            assert row[f"{column}_range"] == sorted(row["rounds"][column])
            assert row[f"{column}_range"][0] <= row[column] <= row[f"{column}_range"][1]
    code, shown, _ = command(*options, "--json")
    assert json.loads(shown)["experiments"][0]["name"] == "contention"


@pytest.mark.slow
def test_a_wrong_result_fails_the_benchmark(command, home, monkeypatch):
    truth = one_pass.run

    def broken(spec, *args, **options):
        sample, state, binding = truth(spec, *args, **options)
        if spec.scheme == "tstream":
            sample = sample.model_copy(update={"digest": "2000:0000000000000000"})
        if spec.scheme == "pat":
            speeds = state["speeds"]
            name = next(name for name in speeds.column_names if pa.types.is_floating(speeds.schema.field(name).type))
            values = speeds[name].to_numpy().copy()
            values[7] += 1
            at = speeds.column_names.index(name)
            state = state | {"speeds": speeds.set_column(at, speeds.schema.field(name), pa.array(values))}
        if spec.scheme == "owners":
            sample = sample.model_copy(update={"in_order": False})
        return sample, state, binding

    monkeypatch.setattr(one_pass, "run", broken)
    code, _, err = command(*CONTENTION, 1)
    assert code == 1
    assert err == "streaming-core: 3 results differ from the result of the compiled loop; the first is tp pat\n"
    [path] = (home / "reports" / "bench").glob("tstream-*.json")
    rows = json.loads(path.read_text())["experiments"][0]["rows"]
    assert [row["way"] for row in rows if row["result"] == "different"] == [*SCHEMES]


@pytest.mark.slow
def test_an_interrupted_suite_keeps_its_measurements(command, home, monkeypatch):
    truth = Race.run

    def interrupted(race, ways, *args, **options):
        if any(way.scheme == "lock" for way in ways):
            raise RunFailed("stopped by SIGTERM")
        return truth(race, ways, *args, **options)

    monkeypatch.setattr(Race, "run", interrupted)
    code, _, err = command(*CONTENTION, 1, "--only", "latency")
    assert (code, err) == (1, "streaming-core: stopped by SIGTERM\n")
    [path] = (home / "reports" / "bench").glob("tstream-*.json")
    assert [e["name"] for e in json.loads(path.read_text())["experiments"]] == ["contention"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--suite", "nope"), ["unknown suite 'nope'", "tstream"]),
        (("--suite", "tstream", "--only", "nope"), ["unknown experiment 'nope'", "schemes", "latency"]),
        (("--only", "latency"), ["--suite"]),
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


def test_suites_are_looked_up_by_name():
    assert suite.load("tstream") is tstream.SUITE
    with pytest.raises(BadInput, match="unknown suite"):
        suite.load("../tstream")


def test_a_project_without_papers_has_no_suites(command, home, monkeypatch):
    monkeypatch.setattr(suite, "SUITES", {})
    for arguments in (("--suite", "tstream"), ("--evidence", home / "e.json")):
        code, out, err = command(*arguments)
        assert (code, out) == (2, "")
        assert "there are no suites, because streaming_core/bench/papers is missing" in err
