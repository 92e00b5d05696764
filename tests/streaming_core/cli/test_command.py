"""The command line: valid requests, and bad input, which gets one line, exit code 2 and no files."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core.cli import command as cli
from streaming_core.run.report import RunReport
from streaming_core.storage import sealed
from tests.support import pages
from tests.support.draws import some


@pytest.fixture(scope="module")
def workloads(tmp_path_factory):
    """Small workloads, generated once."""
    from streaming_core.data import workload

    root = tmp_path_factory.mktemp("workloads")
    workload.write("sl", {"n_items": 100, "gen_parts": 4}, 500, 1, root / "sl")
    workload.write("tp", {}, 100, 1, root / "tp")
    workload.write("wc", {"vocabulary": 20}, 100, 1, root / "wc")
    workload.write("wordcount", {"vocabulary": 20, "advance": 2000, "size": 5000}, 300, 1, root / "wordcount")
    return root


def refused(result, *words):
    """Checks for exit code 2 and one line with the words."""
    code, out, err = result
    assert code == 2, err
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("streaming-core: ")
    for word in words:
        assert word in err


@pytest.mark.parametrize("app", some(["wc", "sl", "tp"]))
@pytest.mark.slow
def test_a_run_imports_no_pandas(app, workloads, tmp_path):
    """pyarrow imports pandas at conversions (data/arrow.py), which would cost each cell's process a second."""
    script = (
        "import sys\nfrom streaming_core.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    sys.exit(end.code or 10 * ('pandas' in sys.modules))"
    )
    command = [sys.executable, "-c", script, "run", app, "--input", workloads / app, "--out", tmp_path / "run"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_run_equals_its_oracle_and_a_changed_value_is_named(command, workloads, tmp_path):
    run, oracle = tmp_path / "run", tmp_path / "oracle"
    code, out, _ = command("run", "sl", "--input", workloads / "sl", "--out", run, "--threads", 2)
    assert code == 0
    assert " 0 invalid; written to " in out
    assert command("oracle", "sl", "--input", workloads / "sl", "--out", oracle)[0] == 0
    assert command("diff", run, oracle)[0] == 0
    report = json.loads((run / "report.json").read_text())
    assert report["app"] == "sl"
    assert report["samples"][0]["outputs"] == 500
    # Unbound threads have no memory of their own on any machine.
    assert report["memory"]["why"]
    assert report["memory"]["nodes"] is None
    assert report["samples"][0]["breakdown"]["remote"] == 0.0
    path = sorted((run / "outputs").glob("*.parquet"))[0]
    table = pq.read_table(path)
    values = table.column("dst_acct").to_pylist()
    values[123] += 1
    place = table.column_names.index("dst_acct")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array(values)), path)
    code, out, _ = command("diff", run, oracle)
    assert code == 1
    assert "123" in out
    assert "dst_acct" in out


def test_run_and_oracle_print_the_number_of_rows_too_late_for_every_window(package, command, tmp_path):
    (package / "clicks.py").write_text(pages.application(pages.WINDOWS, "clicks"))
    assert command("generate", "clicks", "--events", 700, "--out", tmp_path / "w")[0] == 0
    for name, late in (("run", "0 invalid, 22 too late"), ("oracle", ", 22 events too late")):
        code, out, _ = command(name, "clicks", "--input", tmp_path / "w", "--out", tmp_path / name)
        assert code == 0
        assert f"{late} for every window" in out


def test_runs_without_order_agree_on_the_declared_columns(command, workloads, tmp_path):
    run, oracle = tmp_path / "run", tmp_path / "oracle"
    arguments = ("--input", workloads / "wc", "--out")
    assert command("oracle", "wc", *arguments, oracle)[0] == 0
    assert (
        command("run", "wc", *arguments, run, "--executor", "pinned", "--channel", "shared_ring", "--threads", 2)[0]
        == 0
    )
    code, out, _ = command("diff", run, oracle)
    assert (code, out.partition(":")[0]) == (0, "equal")
    # Only the declared columns must agree, in any order: every count of every word.
    path = sorted((run / "outputs").glob("*.parquet"))[0]
    table = pq.read_table(path)
    pq.write_table(table.take(pa.array(range(table.num_rows))[::-1]), path)
    assert command("diff", run, oracle)[0] == 0
    values = table.column("n").to_pylist()
    values[5] += 1000
    place = table.column_names.index("n")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array(values)), path)
    code, out, _ = command("diff", run, oracle)
    assert code == 1
    assert "2 in outputs" in out
    word, n = table["word"][5].as_py().decode(), values[5]
    assert f"word '{word}', n {n}: unexpected row: times 1" in out
    assert f"word '{word}', n {n - 1000}: missing row: times 1" in out
    arguments = (*arguments, tmp_path / "r", "--executor", "pinned", "--channel", "shared_ring")
    refused(command("run", "new_seg", *arguments), "total order only")


def test_json_output_is_machine_readable(command, workloads, tmp_path):
    code, out, _ = command("run", "wc", "--input", workloads / "wc", "--out", tmp_path / "r", "--json")
    assert code == 0
    assert json.loads(out)["samples"][0]["in_order"] is True
    code, out, _ = command("apps", "--json")
    assert {"gs", "sl", "wc", "fd", "sd"} <= {row["app"] for row in json.loads(out)}
    code, out, _ = command("describe", "sl", "--json")
    assert "sl-tight" in json.loads(out)["profiles"]
    assert json.loads(out)["unordered"] is None
    properties = json.loads(command("describe", "wc", "--json")[1])["properties"]
    assert properties == {
        "counts_are_those_of_the_words": "A word leaves with the number of times it has occurred so far."
    }
    agrees = json.loads(command("describe", "fd", "--json")[1])["unordered"]
    assert (agrees["columns"], agrees["states"], len(agrees["invariants"])) == (["entity"], [], 3)


def test_an_equal_workload_is_kept_and_another_is_refused(command, workloads):
    arguments = ("--set", "n_items=100", "--set", "gen_parts=4", "--events", "500", "--out", workloads / "sl")
    manifest = (workloads / "sl" / "manifest.json").read_bytes()
    assert command("generate", "sl", *arguments)[0] == 0
    refused(command("generate", "sl", *arguments, "--seed", "2"), "another workload")
    assert (workloads / "sl" / "manifest.json").read_bytes() == manifest


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("{", ["is not valid JSON"]),
        ("[]", ["must hold {"]),
        ('{"split": 1}', ["plan.split"]),
        ('{"split": []}', ["plan: split needs a replica, each on one of the threads 0 to 1"]),
        ('{"split": [0, 2]}', ["plan: split needs a replica, each on one of the threads 0 to 1"]),
        ('{"splits": [0]}', ["plan: wc has no operator splits; it has source, split, count, sink"]),
    ],
)
def test_an_invalid_plan_is_refused(command, workloads, tmp_path, plan, words):
    file, out = tmp_path / "plan.json", tmp_path / "run"
    file.write_text(plan)
    arguments = ("run", "wc", "--input", workloads / "wc", "--out", out, "--threads", 2)
    refused(command(*arguments, "--executor", "pinned", "--plan", file), *words)
    assert not out.exists()
    file.write_text('{"split": [1]}')
    refused(command(*arguments, "--plan", file), "executor pooled has no plan; pinned has")


def at(event, **replicas):
    return {"event": event, "owners": replicas}


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("{", ["is not valid JSON"]),
        ({"event": 1, "owners": {"count": 1}}, ["must hold [{", '[{"event": 1000, "owners": ']),
        ([7], ["schedule.0"]),
        ([{"event": 1}], ["schedule.0.owners"]),
        ([{"event": 1, "owners": 2}], ["schedule.0.owners"]),
        ([at(1, count=1) | {"until": 9}], ["schedule.0.until"]),
        ([at(1, count="all")], ["schedule.0.owners.count"]),
        ([at(1, count=True)], ["schedule.0.owners.count"]),
        ([at(1)], ["schedule.0.owners"]),
        ([at(-1, count=1)], ["schedule.0.event"]),
        ([at(1 << 63, count=1)], ["schedule.0.event"]),
        ([at(9, count=1), at(8, count=2)], ["schedule: event 8 comes after event 9"]),
        ([at(1, counts=1)], ["schedule: wordcount has no windowed operator counts; it has count"]),
        ([at(1, source=1)], ["schedule: wordcount has no windowed operator source; it has count"]),
        *(
            (
                [at(0, count=2), at(7, count=share)],
                ["event 7: count has replicas 0 to 1: name the owners of its cells, 1 to 1024 numbers"],
            )
            for share in ([2], [-1], [0] * 1025, [], 3, 0, -1, 10**12)
        ),
    ],
)
def test_an_invalid_schedule_is_refused(command, workloads, tmp_path, schedule, words):
    file, out = tmp_path / "schedule.json", tmp_path / "run"
    file.write_text(schedule if isinstance(schedule, str) else json.dumps(schedule))
    arguments = ("run", "wordcount", "--input", workloads / "wordcount", "--out", out, "--threads", 2)
    refused(command(*arguments, "--schedule", file), *words)
    assert not out.exists()


def test_a_schedule_requires_windows_and_counts_the_replicas_of_the_plan(command, workloads, tmp_path):
    file, plan, out = tmp_path / "schedule.json", tmp_path / "plan.json", tmp_path / "run"
    file.write_text(json.dumps([at(1, count=2)]))
    plan.write_text('{"count": [1]}')
    arguments = ("--out", out, "--threads", 2, "--schedule", file)
    words = ("run", "wc", "--input", workloads / "wc", *arguments)
    refused(command(*words), "executor pooled has no schedule; pinned has")
    refused(command(*words, "--executor", "pinned"), "schedule: wc has no windowed operator count; it has none")
    windows = ("run", "wordcount", "--input", workloads / "wordcount", *arguments)
    refused(command(*windows, "--plan", plan), "event 1: count has replicas 0 to 0: name the owners of its cells")
    refused(command(*windows[:-1], tmp_path / "nowhere.json"), "nowhere.json: No such file")
    assert not out.exists()


@pytest.mark.parametrize("parallelism", some(["sn", "vsn", "vsn_esg"]))
def test_a_schedule_moves_keys_between_replicas(command, workloads, tmp_path, parallelism):
    file, run, oracle = tmp_path / "schedule.json", tmp_path / "run", tmp_path / "oracle"
    shares = [(0, 1), (100, [1]), (100, [1]), (200, 2), (1000, [0])]
    file.write_text(json.dumps([at(event, count=share) for event, share in shares]))
    arguments = ("--input", workloads / "wordcount", "--out")
    options = ("--threads", 2, "--batch", 7, "--schedule", file, "--parallelism", parallelism)
    assert command("run", "wordcount", *arguments, run, *options)[0] == 0
    assert command("oracle", "wordcount", *arguments, oracle)[0] == 0
    assert command("diff", run, oracle)[0] == 0
    report = RunReport.model_validate_json((run / "report.json").read_bytes())
    named = "gate" if parallelism == "vsn" else f"gate-{parallelism}"
    assert f".{named}-reconfigured5-batch7.t2." in report.cell
    switches = report.verified.reconfigurations
    assert [(r.operator, r.event, r.replicas) for r in switches] == [
        ("count", 0, [0]), ("count", 100, [1]), ("count", 100, [1]), ("count", 200, [0, 1]), ("count", 1000, [0]),
    ]  # fmt: skip
    # Cells with a new owner: half when two replicas share, all, none. The last event never arrives.
    half, cells = switches[0].cells // 2, switches[0].cells
    assert [r.moved for r in switches] == [half, cells, 0, half, 0]
    # Only shared-nothing replicas copy state.
    assert [r.bytes > 0 for r in switches] == [parallelism == "sn" and r.moved > 0 and r.event < 300 for r in switches]
    # Affected replicas have switched unless the stream ended first. As published, the latest control tuple counts.
    latest = parallelism == "vsn_esg"
    over = [[0, 1], [] if latest else [0, 1], [], [0, 1], []]
    assert [[move.replica for move in r.gone_over] for r in switches] == over
    assert [r.posted is None for r in switches] == [False, False, False, False, True]
    assert [r.microseconds is None for r in switches] == [False, latest, True, False, True]
    assert all(r.microseconds is None or r.microseconds >= 0 for r in switches)
    assert all(move.waited >= 0 for r in switches for move in r.gone_over)


def test_a_runs_reconfigurations_can_be_replayed(command, workloads, tmp_path):
    run, again = tmp_path / "run", tmp_path / "again"
    arguments = ("run", "wordcount", "--input", workloads / "wordcount", "--threads", 2, "--batch", 7)
    # A second of events, so that a controller looks several times.
    assert command(*arguments, "--out", run, "--rate", 300, "--controller", "threshold")[0] == 0
    assert command(*arguments, "--out", again, "--schedule", run / "report.json")[0] == 0
    reports = [RunReport.model_validate_json((folder / "report.json").read_bytes()) for folder in (run, again)]
    switches, repeated = ([(r.event, r.replicas) for r in report.verified.reconfigurations] for report in reports)
    assert switches == repeated != []
    assert {r.by for r in reports[1].verified.reconfigurations} <= {"schedule"}
    assert reports[0].verified.digest == reports[1].verified.digest
    broken = tmp_path / "broken.json"
    broken.write_text('{"samples": 1}')
    refused(
        command(*arguments, "--out", tmp_path / "none", "--schedule", broken),
        "broken.json is not the report.json of a run",
    )
    report = json.loads((run / "report.json").read_text())
    report["samples"][0]["omitted_reconfigurations"] = 3
    broken.write_text(json.dumps(sealed(report)))
    refused(command(*arguments, "--out", tmp_path / "none", "--schedule", broken), "omits 3 reconfigurations")


def test_a_plan_places_replicas(command, workloads, tmp_path):
    file, run, oracle = tmp_path / "plan.json", tmp_path / "run", tmp_path / "oracle"
    file.write_text('{"source": [0, 1], "split": [1], "count": [0, 1, 1], "sink": [0]}')
    arguments = ("--input", workloads / "wc", "--out")
    assert command("run", "wc", *arguments, run, "--executor", "pinned", "--threads", 2, "--plan", file)[0] == 0
    assert command("oracle", "wc", *arguments, oracle)[0] == 0
    assert command("diff", run, oracle)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nope", "--threads", "1"), ["unknown application 'nope'", "sl"]),
        (("sl", "--set", "nope=1"), ["unknown parameter 'nope'", "theta"]),
        (("sl", "--set", "theta"), ["NAME=VALUE"]),
        (("sl", "--set", "theta=wide"), ["theta", "parameter theta must be a finite number"]),
        (("sl", "--profile", "nope"), ["unknown profile 'nope'", "sl-rich"]),
        (("sl", "--scheme", "nope"), ["unknown scheme 'nope'", "owners"]),
        (("sl", "--executor", "pooled"), ["does not run on pooled", "transactional"]),
        (("wc", "--executor", "transactional"), ["does not run on transactional", "pooled"]),
        (("wc", "--executor", "pinned", "--channel", "pipe"),
         ["unknown channel 'pipe'", "merge_sort, shared_ring, pair_queue"]),
        (("wc", "--executor", "pinned", "--channel", "shared_ring", "--order", "total"),
         ["order is none with channel shared_ring"]),
        (("wc", "--plan", "nowhere.json"), ["nowhere.json: No such file"]),
        (("wc", "--executor", "spark", "--threads", "2"),
         ["executor spark runs only in a regression: type `lockstep run"]),
        (("wordcount", "--executor", "pooled"), ["does not run on pooled; it supports: pinned"]),
        (("wordcount", "--channel", "merge_sort"), ["wordcount has windows: pinned runs it with channel gate"]),
        (("wordcount", "--parallelism", "all"),
         ["unknown parallelism 'all' of executor pinned; known: vsn, vsn_esg, sn"]),
        (("wc", "--executor", "pinned", "--parallelism", "sn"), ["wc has no windows: parallelism sn needs them"]),
        (("wc", "--partitions", "50"), ["queue lanes has no partitions to ask for; hybrid and shared have"]),
        (("wc", "--queue", "hybrid", "--partitions", "257"), ["partitions", "between 1 and 256, got 257"]),
        (("wc", "--queue", "hybrid", "--partitioning", "list"), ["unknown partitioning 'list'", "hash, range"]),
        (("wc", "--slice", "0"), ["slice", "between 1 and 1000000, got 0"]),
        (("wc", "--throughput-window", "7"), ["heuristic affinity has no throughput_window; ct has"]),
        (("sl", "--threads", "0"), ["threads"]),
        (("sl", "--threads", "many"), ["--threads"]),
        (("sl", "--punctuation", "0"), ["punctuation"]),
        (("sl", "--rate", "-1"), ["rate"]),
        (("sl", "--idle", "sleep"), ["idle"]),
        (("sl", "--sink", "paper"), ["sink"]),
        (("sl", "--set", "n_items=50"), ["has n_items=100, but the request has n_items=50"]),
        (("sl", "--nope"), ["unknown option --nope"]),
    ],
)  # fmt: skip
def test_bad_requests_are_refused_in_one_line(command, workloads, tmp_path, arguments, words):
    app = arguments[0] if (workloads / arguments[0]).exists() else "sl"
    result = command("run", *arguments, "--input", workloads / app, "--out", tmp_path / "r")
    refused(result, *words)
    assert not (tmp_path / "r").exists()


def broken(workloads: Path, tmp_path: Path, change) -> Path:
    folder = tmp_path / "workload"
    shutil.copytree(workloads / "sl", folder)
    change(folder, sorted((folder / "events").glob("*.parquet"))[0])
    return folder


def truncate(folder, part):
    part.write_bytes(part.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder, part: (folder / "manifest.json").unlink(), ["manifest.json is missing", "generate"]),
        (truncate, ["cannot read "]),
    ],
)
def test_damaged_workloads_are_refused_in_one_line(command, workloads, tmp_path, change, words):
    folder = broken(workloads, tmp_path, change)
    refused(command("run", "sl", "--input", folder, "--out", tmp_path / "r"), *words)
    names = [p.name for p in (tmp_path / "r").rglob("*")] if (tmp_path / "r").exists() else []
    assert names in ([], ["spec.json"])
    refused(command("oracle", "sl", "--input", folder, "--out", tmp_path / "o"), *words)
    assert not (tmp_path / "o").exists()


def test_a_folder_with_another_spec_is_refused(command, workloads, tmp_path):
    arguments = ("run", "wc", "--input", workloads / "wc", "--out", tmp_path / "r")
    assert command(*arguments)[0] == 0
    before = (tmp_path / "r" / "report.json").read_bytes()
    refused(command(*arguments, "--threads", 2), "a run with other options")
    code, _, stderr = command(*arguments)
    assert (code, stderr) == (0, f"streaming-core: {tmp_path / 'r'} already holds this run; nothing to do\n")
    assert (tmp_path / "r" / "report.json").read_bytes() == before


def test_a_spec_file_is_complete(command, workloads, tmp_path):
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"app": "wc", "executor": "pooled", "threads": 2, "params": {"vocabulary": 20}}))
    assert command("run", spec, "--input", workloads / "wc", "--out", tmp_path / "r")[0] == 0
    refused(command("run", spec, "--input", workloads / "wc", "--out", tmp_path / "x", "--threads", 1), "complete")
    spec.write_text(json.dumps({"app": "wc", "executor": "pooled", "speed": 2}))
    refused(command("run", spec, "--input", workloads / "wc", "--out", tmp_path / "x"), "speed")
    refused(command("run", tmp_path / "no.json", "--input", workloads / "wc", "--out", tmp_path / "x"), "cannot read ")
    assert not (tmp_path / "x").exists()


def test_an_impossible_folder_is_bad_input(command, workloads, tmp_path):
    (tmp_path / "file").write_text("")
    arguments = ("--input", workloads / "wc", "--out", tmp_path / "file" / "r")
    refused(command("run", "wc", *arguments), "cannot write ")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    shutil.copytree(workloads / "wc", tmp_path / "wc")
    before = sorted(tmp_path.rglob("*"))
    for place, words in (
        (tmp_path / "loop", ": Too many levels of symbolic links"),
        (tmp_path / "wc" / "r", "lies inside"),
        (tmp_path / "wc" / "events" / "r", "lies inside"),
    ):
        for arguments in (
            ("run", "wc", "--input", workloads / "wc", "--out", place),
            ("oracle", "wc", "--input", workloads / "wc", "--out", place),
            ("record", "wc", "--operator", "count", "--input", workloads / "wc", "--out", place),
            ("generate", "wc", "--events", 1, "--out", place),
            ("probe", "--machine", place),
        ):
            refused(command(*arguments), words)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_oracle_of_another_workload_is_not_comparable(command, workloads, tmp_path):
    assert command("run", "wc", "--input", workloads / "wc", "--out", tmp_path / "r")[0] == 0
    assert command("oracle", "sl", "--input", workloads / "sl", "--out", tmp_path / "o")[0] == 0
    refused(command("diff", tmp_path / "r", tmp_path / "o"), "not comparable: ")
    refused(command("diff", tmp_path / "nowhere", tmp_path / "o"), "not comparable: ")


@pytest.mark.slow
def test_bench_checks_the_results_of_its_runs(command, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    out = tmp_path / "bench.json"
    code, shown, _ = command("bench", "wc", "--quick", "--threads", "1,2", "--repetitions", 1, "--out", out)
    assert code == 0
    assert "COST of wc" in shown
    results = json.loads(out.read_text())
    rows = results["results"]
    assert [row["result"] for row in rows] == ["yardstick"] + 7 * ["equal"]
    # The plan that the planner finds is raced as well as the replicated one.
    [planned] = [row for row in rows if row["way"] == "gate-planned"]
    assert (planned["threads"], set(planned["plan"])) == (2, {"source", "split", "count", "sink"})
    assert (results["quick"], results["cells"], results["notes"]) == (True, 8, [])
    refused(command("bench", "wc", "--threads", "two"), "numbers")
    refused(command("bench", "nope"), "unknown application")


# These generate the inputs of other examples, so they run first.
FIRST = ("generate", "run", "oracle", "diff", "record")


def examples():
    """The examples in the help of all commands except `bench` and `new`, in an order that works."""
    families = [family.typer_instance for family in cli.app.registered_groups]
    commands = {command.callback.__name__: command for family in families for command in family.registered_commands}
    lines = [
        line.split()[1:]
        for name in dict.fromkeys([*FIRST, *commands])
        for line in commands[name].epilog.splitlines()
        if line.startswith("streaming-core ")
    ]
    return [words for words in lines if words[0] not in ("bench", "new")]


@pytest.mark.slow
def test_examples_in_the_help_run(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    (tmp_path / "lines.csv").write_text("ts,line\n1,the quick brown fox\n2,the lazy dog\n")
    written = set()
    for words in examples():
        out = words[words.index("--out") + 1] if "--out" in words else None
        if out is None or out not in written:  # `record` occurs in the examples of several commands
            assert command(*words)[0] == 0, words
        written.add(out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rn",), "unknown command 'rn' (did you mean 'run'?); see `streaming-core --help`"),
        (("run", "wc", "--thread", "2"), "unknown option --thread (did you mean --threads, --thresholds?); see"),
        *(
            (("run", "wc", "--threads", text), "--threads must be a valid integer; see `streaming-core run --help`")
            for text in ("two", "٣", "1_0", " 5 ")
        ),
        (("run", "wc", "--rate", "inf"), "--rate must be a valid number; see `streaming-core run --help`"),
        (("run", "wc", "--threads", ""), "--threads must not be empty; see `streaming-core run --help`"),
        (("run", "wc", "--input", "w", "--out", ""), "--out must not be empty; see `streaming-core run --help`"),
        (("describe", ""), "APP must not be empty; see `streaming-core describe --help`"),
        (
            ("generate", "wc", "--events", "1", "--out", "w", "--set", "words=٣"),
            "parameter words must be an integer, got '٣'",
        ),
        (
            ("run", "wc", "--input", "w", "--out", "r", "--set", "words=9", "--threads", "0"),
            "--threads must be between 1 and 1024, got 0",
        ),
        (("generate", "wc", "--out", "w"), "missing option '--events'; see `streaming-core generate --help`"),
        (("describe", "wcc"), "unknown application 'wcc' (did you mean 'wc'?); known: "),
        (
            ("generate", "wc", "--events", "1", "--out", "w", "--set", "word=3"),
            "(did you mean 'words'?); known: words, ",
        ),
        (("run", "wc", "--input", "w", "--out", "r", "--plan", "autoo"), "--plan: unknown plan 'autoo' (did you mean"),
    ],
)
def test_typing_errors_name_the_option_and_the_nearest_name(command, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    refused(command(*arguments), message)
