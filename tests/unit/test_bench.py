"""The benchmark: what it measures is what it says, what it says is right, and a wrong result is not a figure."""

import itertools
import json
import statistics
from collections import Counter

import pyarrow as pa
import pytest

from streaming_core.bench import report, suite, tstream
from streaming_core.bench.race import Race
from streaming_core.cli import main
from streaming_core.errors import BadInput, RunFailed
from streaming_core.run import engine
from streaming_core.run.way import EXECUTORS, Transactional

BY_NAME = {experiment.name: experiment for experiment in tstream.SUITE.experiments}
SCHEMES = EXECUTORS["transactional"].axes()["scheme"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["streaming-core", "bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


def test_every_figure_of_the_paper_has_an_experiment():
    figures = " ".join(e.figure for e in tstream.SUITE.experiments)
    for needed in ("Figures 1, 8 and 9", "Figure 10", "Figure 11", "Figure 12", "Figures 13 and 14", "VI-G", "2(a)"):
        assert needed in figures
    assert len(BY_NAME) == len(tstream.SUITE.experiments)
    for experiment in tstream.SUITE.experiments:
        assert experiment.plots
        assert all(claim.source for claim in experiment.claims)


@pytest.mark.parametrize("counts", [[1], [1, 2], [1, 2, 4, 8]])
def test_sweeps_cover_what_they_say(counts):
    most = max(counts)

    def ways(name):
        return [(heat, spec) for heat in BY_NAME[name].sweep(counts)[0] for spec in heat.ways]

    for name in BY_NAME:
        assert all(spec.app == heat.app and spec.params == heat.params for heat, spec in ways(name))
    schemes = Counter((spec.app, spec.scheme) for _, spec in ways("schemes"))
    wanted = {(app, scheme) for app in tstream.APPS for scheme in SCHEMES}
    assert schemes == dict.fromkeys(wanted, len(counts))
    for name, parameter, values in (
        ("partition-ratio", "mp_ratio", [0, 0.25, 0.5, 0.75, 1]),
        ("partition-length", "mp_len", [1, 2, 4, 6, 8, 10]),
        ("read-ratio", "read_ratio", [0, 0.25, 0.5, 0.75, 1]),
        ("skew", "theta", [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ):
        swept = ways(name)
        assert list(dict.fromkeys(heat.params[parameter] for heat, _ in swept)) == values
        assert len(swept) == len(values) * len(SCHEMES)
        assert {spec.threads for _, spec in swept} == {most}
    for scheme in ("tstream", "owners"):
        intervals = {(s.app, s.punctuation) for _, s in ways("punctuation") if s.scheme == scheme}
        assert intervals == {(a, p) for a in tstream.APPS for p in (10, 50, 100, 250, 500, 750, 1000, 100_000)}
        assert {s.app for _, s in ways("pools") if s.scheme == scheme} == set(tstream.APPS)
    assert {s.threads for _, s in ways("three-writes")} == {1}
    assert {(s.app, s.executor) for _, s in ways("keyed")} == {("tp", "transactional"), ("tpk", "pooled")}
    assert {heat.app for heat, _ in ways("work")} == {"gs", "sl", "ob", "tp", "tb"}
    assert all(heat.params["work"] == 0 for heat in BY_NAME["work"].sweep(counts)[0][::5])


def test_threads_are_bound_where_memory_may_be_remote(monkeypatch):
    for nodes in ([0], [0, 1]):
        monkeypatch.setattr(engine, "topology", lambda nodes=nodes: {"nodes": nodes, "sockets": 2, "is_mock": False})
        for name in ("schemes", "pools"):
            heats, notes = BY_NAME[name].sweep([2])
            assert {spec.pin for heat in heats for spec in heat.ways} == {len(nodes) > 1}
            assert ("one memory node" in " ".join(notes)) == (nodes == [0] and name == "schemes")


def test_no_pool_is_skipped_silently():
    heats, notes = BY_NAME["pools"].sweep([1, 2])
    said = " ".join(notes)
    run = {(spec.pool, spec.stealing) for heat in heats for spec in heat.ways}
    for pool in ("shared_nothing", "shared_everything", "shared_per_socket"):
        assert ((pool, False) in run) != (pool in said)
    assert all(heat.ways for heat in heats)
    assert ("mock topology" in said) == (engine.topology()["is_mock"] or engine.topology()["sockets"] == 1)


def test_a_suite_writes_what_was_measured_and_where(command, home):
    options = ("--suite", "tstream", "--only", "three-writes", "--quick", "--repetitions", 2)
    code, shown, _ = command(*options)
    assert code == 0
    assert "owners: " in shown
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
    assert {row["result"] for row in experiment["rows"]} == {"yardstick", "equal", "bound"}
    assert {row["params"]["length"] for row in experiment["rows"]} == {3}
    assert len(experiment["conclusions"]) == len(SCHEMES)
    for row in experiment["rows"]:
        assert (row["heat"], row["events"], row["runs"], len(row["rates"])) == (0, 2000, 1, 2)
        assert row["events_per_s_range"] == sorted(row["rates"])
        for column in ("to_loop", "cpu_ns") + ("p99_us",) * (row["way"] != "loop"):
            assert row[f"{column}_range"] == sorted(row["rounds"][column])
            assert row[f"{column}_range"][0] <= row[column] <= row[f"{column}_range"][1]
    code, shown, _ = command(*options, "--json")
    assert json.loads(shown)["experiments"][0]["name"] == "three-writes"


def test_latencies_of_all_ways_are_measured_at_a_share_of_the_slowest_peak_rate():
    race = Race("sl", {}, 4000)
    loop, *rows = race.run([Transactional(app="sl", scheme=scheme) for scheme in ("owners", "tstream")], 2, loads=[0.5])
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
    parts = row["breakdown"]
    assert parts["useful"] + parts["sync"] + parts["other"] == pytest.approx(
        sum(costs[name] for name in times), rel=0.01
    )


def test_a_wrong_result_fails_the_benchmark(command, home, monkeypatch):
    truth = engine.one_pass

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
        if spec.scheme == "serial":
            sample = sample.model_copy(update={"in_order": False})
        return sample, state, binding

    monkeypatch.setattr(engine, "one_pass", broken)
    code, _, err = command("--suite", "tstream", "--only", "three-writes", "--quick", "--repetitions", 1)
    assert code == 1
    assert err == "streaming-core: 3 results differ from the result of the compiled loop; the first is gs serial\n"
    [path] = (home / "reports" / "bench").glob("tstream-*.json")
    rows = json.loads(path.read_text())["experiments"][0]["rows"]
    assert [row["way"] for row in rows if row["result"] == "different"] == ["serial", "mvlk", "pat"]


def test_an_interrupted_suite_keeps_what_it_measured(command, home, monkeypatch):
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
def test_bad_requests_get_one_line_and_leave_nothing(command, home, arguments, words):
    code, out, err = command(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    for word in words:
        assert word in err
    assert not (home / "reports").exists()


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(0, 0.5), (10, 1.5)], 5.0),
        ([(0, 0.5), (10, 0.8), (20, 1.0)], 20.0),
        ([(0, 1.2), (10, 0.8), (20, 1.2)], 15.0),
        ([(0, 1.1), (10, 1.5)], 0),
        ([(0, 0.5), (10, 0.9)], None),
    ],
)
def test_where_a_ratio_passes_one_for_good(points, expected):
    assert tstream.crossing(points) == pytest.approx(expected)


def measured(app, work, threads, seconds, to_loop):
    way = "owners" if threads else "loop"
    row = {"app": app, "params": {"work": work}, "way": way, "threads": threads or 1, "rates": [1_000 / seconds]}
    return row | {"to_loop": to_loop, "operations": 1_000_000, "events": 1_000}


def test_what_is_concluded_from_rows():
    def row(way, seconds, app="gs", threads=2, result="equal", **more):
        rates = [1 / took for took in seconds]
        row = {"app": app, "way": way, "threads": threads, "rates": rates, "result": result, "heat": 0}
        return row | {"events_per_s": statistics.median(rates)} | more

    # Ratios are those of the same rounds: the machine was half as fast in the second.
    rows = [row("loop", [1, 2, 1], threads=1, result="yardstick"), row("owners", [2, 4, 1]), row("pat", [4, 8, 8])]
    rows += [
        row("lock", [9, 9, 9]),
        row("mvlk", [1, 1, 1], result="different"),
        row("no_lock", [1, 1, 1], result="bound"),
    ]
    rows += [row("owners", [1, 1, 1], threads=1), row("pat", [1, 1, 1], threads=1)]
    rows.append(row("tstream", [1, 2, 8 / 3]))
    assert list(tstream._next_best(rows)) == [
        "gs: on 2 threads, tstream has 4 (3 to 4) times the throughput of pat, the next best",
        "gs: on 2 threads, owners has 2 (2 to 8) times the throughput of pat, the next best",
    ]
    rows = []
    for app in tstream.APPS:
        latencies = {"end_to_end_p99_us": 230.0, "end_to_end_p99_us_range": [200.0, 310.0]}
        latencies |= {"rounds": {"end_to_end_p99_us": [310.0, 230.0, 200.0]}}
        for way in ("tstream", "owners"):
            rows.append(row(way, [6, 12, 6], app, punctuation=500, **latencies))
            rows.append(row(way, [5, 10, 5], app, punctuation=100_000))
        rows.append(row("lock", [1, 1, 1], app, punctuation=500))
    lines = list(tstream._intervals(rows))
    assert len(lines) == 2 * 4
    assert lines[0] == (
        "gs, tstream: at interval 500 and half the slowest peak rate, the p99 latency is 0.23 ms (0.2 to 0.31); "
        "interval 100,000 over interval 500, throughput: 1.2 (1.2 to 1.2) times"
    )


def test_two_threads_overtake_where_the_cost_of_an_operation_says(monkeypatch):
    monkeypatch.setattr(tstream, "WORK", {"gs": (0, 8)})
    rows = [
        measured("gs", 0, 0, 0.010, 1.0),
        measured("gs", 0, 1, 0.008, 1.25),
        measured("gs", 0, 2, 0.020, 0.5),
        measured("gs", 8, 0, 0.110, 1.0),
        measured("gs", 8, 1, 0.110, 1.0),
        measured("gs", 8, 2, 0.073, 1.5),
    ]
    [line] = tstream._overtakes(rows)
    assert [row["work_ns"] for row in rows] == pytest.approx([0, 0, 0, 100, 100, 100])
    assert "beats the compiled loop from 60 ns per operation" in line  # half of the way, and 10 of its own
    assert "owners on 1 thread from 65 ns per operation" in line


OPERATIONS = {
    "gs": lambda kinds, ok: 1000 * 10,
    "tp": lambda kinds, ok: 1000 * 2,
    "sl": lambda kinds, ok: sum((2, 4)[kind] for kind, works in zip(kinds, ok, strict=True) if works),
    "ob": lambda kinds, ok: 250 * 20 + sum(works and kind == 0 for kind, works in zip(kinds, ok, strict=True)),
    "tb": lambda kinds, ok: 3 * sum(ok),
}


@pytest.mark.parametrize(
    "app", ["sl", *(pytest.param(app, marks=pytest.mark.slow) for app in OPERATIONS if app != "sl")]
)
def test_operations_are_those_that_work(app, home):
    race = Race(app, {}, 1000)
    outputs = race.outputs()
    kinds, ok = (outputs[name].to_pylist() if name in outputs.column_names else None for name in ("kind", "ok"))
    assert tstream.operations(race) == {"operations": OPERATIONS[app](kinds, ok)}


def test_tables_name_what_varies():
    rows = [
        {"app": "gs", "params": {"theta": 0.5}, "way": "loop", "events_per_s": 2e6, "to_loop": 1.0, "result": "x"},
    ]
    grid = report.table(rows, ["app", "way", "theta"])
    assert [column.header for column in grid.columns] == ["app", "way", "theta", "events/s", "x loop", "result"]
    assert list(grid.columns[2].cells) == ["0.5"]


def test_suites_are_found_by_name():
    assert suite.load("tstream") is tstream.SUITE
    with pytest.raises(BadInput, match="unknown suite"):
        suite.load("../tstream")


def test_no_events_have_no_figures(command, home, tmp_path):
    out = tmp_path / "bench.json"
    assert command("wc", "sl", "--events", 0, "--threads", "1,2", "--repetitions", 1, "--out", out)[0] == 0
    rows = json.loads(out.read_text(), parse_constant=pytest.fail)["results"]
    assert {row["result"] for row in rows} == {"yardstick", "equal", "bound"}
    for name in ("events_per_s", "events_per_s_range", "outputs_per_s", "to_loop", "cpu_ns"):
        assert {row[name] for row in rows} == {None}


def test_runs_from_file_to_file_are_checked_beside_what_pyarrow_takes(command, home, tmp_path, monkeypatch):
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
