"""Recordings and replays on the command line: results, refusals, and measurements."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core.api import App, i64, record, sliding, text
from streaming_core.apps import registry
from streaming_core.apps.wc import Count, Counted, Sentence, Word
from streaming_core.data import workload
from streaming_core.errors import BadInput, RunFailed
from streaming_core.kernels.program import compile_app
from streaming_core.oracle import oracle
from streaming_core.run import recording
from streaming_core.run import replay as replaying
from streaming_core.run.comparison import diff
from streaming_core.run.way import Pinned, Pooled, RunSpec, executors_of
from streaming_core.storage import sealed
from tests.streaming_core.cli.test_command import refused
from tests.support.draws import some


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A workload of wc and one of sl, the oracle's result of wc, and a recording of the input of its operator count."""
    root = tmp_path_factory.mktemp("recordings")
    workload.write("wc", {"vocabulary": 20}, 300, 1, root / "wc")
    workload.write("sl", {"n_items": 100}, 300, 1, root / "sl")
    oracle.run(root / "wc", root / "oracle")
    recording.record(workload.read(root / "wc"), "count", root / "count", Pooled(app="wc"))
    return root


def replays(source, repetitions):
    """Replays of every operator on its recorded input, in topological order."""
    app, profiles = source.app, {}
    for operator in app.operators[1:-1]:
        with tempfile.TemporaryDirectory() as folder:
            spec = RunSpec.parse({"app": app.name, "executor": executors_of(app.kind)[0]})
            recording.record(source, operator.name, Path(folder), spec)
            profiles[operator.name] = replaying.replay(recording.read(Path(folder), app), repetitions)
    return profiles


def changed(folder, change):
    """Writes change(table) over the first part of a recording."""
    path = folder / "rows" / "part-00000.parquet"
    pq.write_table(change(pq.read_table(path)), path)


def other_word(table):
    words = table["word"].to_pylist()
    words[77] = b"other"
    return table.set_column(2, table.schema.field("word"), pa.array(words))


def test_replaying_a_recording_locates_a_mismatch(command, workspace, tmp_path, monkeypatch):
    ours, theirs, out = tmp_path / "ours", tmp_path / "theirs", tmp_path / "out"
    arguments = ("wc", "--operator", "count", "--input", workspace / "wc")
    plan = tmp_path / "plan.json"
    plan.write_text('{"split": [0, 1], "count": [1], "sink": [0]}')  # as for a run: count itself is not run
    way = ("--executor", "pinned", "--threads", 2, "--plan", plan, "--batch", 7)
    digest = recording.read_manifest(workspace / "count")["content_digest"]
    line = f"{ours}: 3000 input rows of operator count, digest {digest}\n"
    assert command("record", *arguments, "--out", ours, *way)[:2] == (0, line)
    assert command("oracle", *arguments, "--out", theirs, "--mode", "compiled")[0] == 0
    assert command("diff", ours, theirs)[:2] == (0, "equal: 3000 input rows of operator count\n")
    code, shown, _ = command("replay", ours, "--out", out, "--repetitions", 1)
    assert (code, shown.partition(", ")[0]) == (0, "count of wc (partitioned): 3000 rows in")
    # count is the last operator, so its outputs are the application's.
    result = oracle.read_manifest(workspace / "oracle")
    assert json.loads((out / "manifest.json").read_text())["output_digest"] == result["output_digest"]
    assert pq.read_table(out / "outputs").equals(pq.read_table(workspace / "oracle" / "outputs"))
    assert pq.read_table(out / "state" / "count.parquet").equals(
        pq.read_table(workspace / "oracle" / "state" / "count.parquet")
    )
    # A row delivered wrongly: the eighth word of sentence 7.
    changed(ours, other_word)
    code, shown, _ = command("diff", ours, theirs)
    assert (code, "rows: seq 7, sub 7: word: expected 'w" in shown) == (1, True)
    # An operator whose machine code differs from its meaning.
    monkeypatch.setattr(replaying, "compile_app", lambda app, params: compile_app(miscounting().only("count"), params))
    code, shown, stderr = command("replay", theirs, "--out", tmp_path / "wrong", "--repetitions", 1)
    first = next(r for r in pq.read_table(workspace / "oracle" / "outputs").to_pylist() if r["n"] == 3)
    assert (code, shown) == (1, "")
    assert f"operator count: the replay differs from the oracle's: outputs: seq {first['seq']}, " in stderr
    assert "n: expected 3, got 4" in stderr
    assert not (tmp_path / "wrong").exists()


def miscounting():
    """wc with an operator that counts wrongly from three on."""

    def split(row, out):
        out.emit(word=row.line)

    def count(row, state, out):
        state.n += 1
        out.emit(word=row.word, n=state.n + (state.n > 2))

    app = App("wc")
    app.source(Sentence).flat_map(split, Word).key_by("word").process(count, state=Count, output=Counted).sink()
    app.generates(lambda *arguments: {})
    return app.check()


@pytest.mark.parametrize("app", some(["wc", "sl"]))
def test_the_first_operator_records_the_events(command, workspace, tmp_path, app):
    operator = {"wc": "split", "sl": "ledger"}[app]
    arguments = (app, "--operator", operator, "--input", workspace / app, "--out")
    assert command("record", *arguments, tmp_path / "a", "--threads", 2)[0] == 0
    assert command("oracle", *arguments, tmp_path / "b")[0] == 0
    assert command("diff", tmp_path / "a", tmp_path / "b")[:2] == (0, f"equal: 300 input rows of operator {operator}\n")
    events = pa.concat_tables(workload.read(workspace / app).blocks(1000))
    assert pq.read_table(tmp_path / "a" / "rows").drop_columns("sub").equals(events)
    code, shown, _ = command("replay", tmp_path / "a", "--json", "--repetitions", 1)
    report = json.loads(shown)
    assert (code, report["rows_in"], report["rows_out"]) == (0, 300, 3000 if app == "wc" else 300)


@pytest.mark.slow
def test_an_operator_of_all_sources_records_the_events(command, tmp_path):
    params = {"keys": 3, "size": 2_001, "domain": 50}
    manifest = workload.write("scalejoin", params, 300, 1, tmp_path / "w")
    arguments = ("scalejoin", "--operator", "from_left", "--input", tmp_path / "w", "--out")
    assert command("record", *arguments, tmp_path / "ours", "--threads", 2)[0] == 0
    assert command("oracle", *arguments, tmp_path / "theirs")[0] == 0
    ours = command("diff", tmp_path / "ours", tmp_path / "theirs")
    assert ours[:2] == (0, "equal: 300 input rows of operator from_left\n")
    assert pq.read_table(tmp_path / "ours" / "rows").num_rows == manifest["events"]
    code, shown, _ = command("replay", tmp_path / "ours", "--out", tmp_path / "out", "--repetitions", 1)
    assert (code, shown.partition(", ")[0]) == (0, "from_left of scalejoin (windowed): 300 rows in")
    manifest = oracle.run(tmp_path / "w", tmp_path / "o")
    assert manifest["outputs"]["rows"] > 50
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["output_digest"] == manifest["output_digest"]
    profiles = replays(workload.read(tmp_path / "w"), 1)
    assert {name: (figures.rows_in, figures.rows_out) for name, figures in profiles.items()} == {
        "Left": (300, 150), "Right": (300, 150), "from_left": (300, manifest["outputs"]["rows"])
    }  # fmt: skip


def test_an_operator_of_several_streams_is_not_recorded(command, tmp_path):
    workload.write("hedge", {}, 100, 1, tmp_path / "w")
    arguments = ("hedge", "--operator", "as_left", "--input", tmp_path / "w", "--out", tmp_path / "out")
    message = "app hedge: cannot record or run as_left alone, because it takes several streams"
    refused(command("record", *arguments), message)
    refused(command("oracle", *arguments), message)
    with pytest.raises(BadInput, match=message):
        replays(workload.read(tmp_path / "w"), 1)
    assert not (tmp_path / "out").exists()


def test_invalid_recording_requests_are_refused(command, workspace, tmp_path):
    arguments = ("--input", workspace / "wc", "--out", tmp_path / "out")
    refused(
        command("record", "wc", "--operator", "counts", *arguments),
        "unknown operator 'counts' (did you mean 'count'?); known: split, count",
    )
    refused(
        command("oracle", "wc", "--operator", "outputs", *arguments), "unknown operator 'outputs'; known: split, count"
    )
    refused(command("oracle", "wc", "--operator", "count", "--mode", "fast", *arguments), "unknown mode 'fast'")
    unordered = ("--executor", "pinned", "--channel", "shared_ring")
    refused(
        command("record", "wc", "--operator", "count", *unordered, *arguments),
        "a recording needs total order, which shared_ring does not keep",
    )
    (tmp_path / "spec.json").write_text(
        json.dumps({"app": "wc", "executor": "morsel", "order": "none", "params": {"vocabulary": 20}})
    )
    refused(
        command("record", tmp_path / "spec.json", "--operator", "count", *arguments),
        "a recording needs total order, which morsel does not keep",
    )
    transactional = ("--executor", "transactional")
    refused(command("record", "wc", "--operator", "count", *transactional, *arguments), "does not run on transactional")
    refused(command("record", "wc", "--operator", "count", *arguments[:3], workspace / "wc"), "new or empty")
    refused(command("replay", workspace / "count", "--out", workspace / "wc"), "new or empty")
    refused(command("replay", workspace / "count", "--repetitions", 0), "at least 1")
    refused(command("replay", tmp_path / "out"), "no recording at")
    refused(
        command("replay", workspace / "wc"),
        "wc is not a recording: by, end, operator, rows, workload are missing in manifest.json",
    )
    for first, second in ((workspace / "count", workspace / "wc"), (workspace / "wc", workspace / "count")):
        refused(command("diff", first, second), "wc is not a recording")
    assert not (tmp_path / "out").exists()


def damage(folder, how):
    if how == "manifest":
        (folder / "manifest.json").write_text("{")
    elif how == "missing":
        (folder / "rows" / "part-00000.parquet").unlink()
    elif how == "truncated":
        (folder / "rows" / "part-00000.parquet").write_bytes(b"PAR1")
    elif how == "other code":
        manifest = json.loads((folder / "manifest.json").read_text()) | {"code_digest": "0" * 16}
        (folder / "manifest.json").write_text(json.dumps(sealed(manifest)))
    else:
        changes = {
            "column": lambda t: t.rename_columns(["seq", "sub", "words"]),
            "rows": lambda t: t.slice(1),
            "value": other_word,
            "order": lambda t: t.take(np.arange(t.num_rows)[::-1]),
        }
        changed(folder, changes[how])


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("manifest", "cannot read manifest.json"),
        ("missing", "part-00000.parquet is missing"),
        ("truncated", "part-00000.parquet: "),
        ("other code", "has another version of wc (code 0000000000000000, now"),
        ("column", "column word is missing"),
        ("rows", "must have 3000 rows, got 2999"),
        ("value", "the rows were changed after they were written"),
        ("order", "rows are out of order"),
    ],
)
def test_a_damaged_recording_is_refused(command, workspace, tmp_path, how, words):
    shutil.copytree(workspace / "count", tmp_path / "count")
    damage(tmp_path / "count", how)
    refused(command("replay", tmp_path / "count", "--out", tmp_path / "out"), words)
    assert [path.name for path in tmp_path.iterdir()] == ["count"]


def test_recordings_of_different_things_are_not_compared(command, workspace, tmp_path):
    workload.write("wc", {"vocabulary": 20}, 300, 2, tmp_path / "wc")
    for name, of, operator in (("seed", tmp_path / "wc", "count"), ("operator", workspace / "wc", "split")):
        recording.record_oracle(workload.read(of), operator, tmp_path / name)
    for name, words in (
        ("seed", "different workload content_digest: "),
        ("operator", "different operator: count and split"),
    ):
        refused(command("diff", workspace / "count", tmp_path / name), words)


# --- replays ---------------------------------------------------------------------------------------------------------


@record
class Line:
    key: i64
    line: text


@record
class Sum:
    n: i64


def halves(row, out):
    if row.key % 2 == 0:
        out.emit(key=row.key, line=row.line[0:3])


def tally(row, state, out):
    state.n += 1
    if row.key == 4:
        out.emit(n=len(row.line))


def remains(state, out):
    out.emit(n=state.n)


def nothing(row, out):
    if row.n < 0:
        out.emit(n=row.n)


def never(row, state, out):
    state.n += 1
    out.emit(n=state.n)


def small():
    app = App("small")
    sums = app.source(Line).flat_map(halves, Line).key_by("key").process(tally, state=Sum, output=Sum, flush=remains)
    sums.union(sums.flat_map(nothing, Sum).process(never, state=Sum, output=Sum)).sink()

    @app.generates
    def draw(params, seed, start, stop):
        keys = np.arange(start, stop) % 10
        return {"key": keys, "line": [b"x" * key for key in keys.tolist()]}

    return app.check()


@pytest.mark.slow
def test_replays_profile_every_operator_of_an_application(tmp_path):
    app = small()
    workload.write(app, {}, 100, 1, tmp_path / "w")
    profiles = replays(workload.read(tmp_path / "w", app), 3)
    assert list(profiles) == ["halves", "tally", "nothing", "never"]
    figures = {name: (p.kind, p.rows_in, p.rows_out, p.bytes_in, p.bytes_out, p.keys) for name, p in profiles.items()}
    # A row holds its seq, a key and a text reference of 8 bytes each. The key gives the length of the line.
    assert figures == {
        "halves": ("stateless", 100, 50, 24 + 4.5, 24 + (0 + 2 + 3 + 3 + 3) / 5, None),
        "tally": ("partitioned", 50, 15, 24 + 11 / 5, 16.0, 5),
        "nothing": ("stateless", 15, 0, 16.0, None, None),
        "never": ("stateful", 0, 0, None, None, None),
    }
    assert [p.selectivity for p in profiles.values()] == [0.5, 0.3, 0.0, None]
    assert [p.ns_per_row is not None and p.ns_per_row > 0 for p in profiles.values()] == [True, True, True, False]


@pytest.mark.slow
def test_replays_profile_a_transaction(workspace):
    profiles = replays(workload.read(workspace / "sl"), 1)
    assert list(profiles) == ["ledger"]
    assert (profiles["ledger"].kind, profiles["ledger"].rows_in, profiles["ledger"].keys) == ("transaction", 300, None)
    assert profiles["ledger"].ns_per_row > 0


@record
class Moment:
    ts: i64
    line: text


@record
class Ended:
    ts: i64
    line: text
    n: i64


def passing():
    """Windows between operators of other kinds, which keep texts of expired rows."""

    def words(row, out):
        out.emit(ts=row.ts, line=row.line[0:3])
        if row.ts % 3 == 0:
            out.emit(ts=row.ts - 30, line=row.line[0:2])  # late: its windows have expired

    def met(row, window, state, out):
        state.n += 1

    def ended(window, state, out):
        out.emit(ts=window.end, line=window.key.line, n=state.n)

    def frequent(row, out):
        if row.n > 2:
            out.emit(ts=row.ts, line=row.line, n=row.n)

    app = App("passing")
    rows = app.source(Moment).flat_map(words, Moment)
    windows = rows.key_by("line").window(sliding(30, every=10)).apply(met, Sum, Ended, ended)
    windows.flat_map(frequent, Ended).sink()

    @app.generates
    def draw(params, seed, start, stop):
        at = np.arange(start, stop)
        return {"ts": at, "line": [b"x" * (n % 5) for n in at.tolist()]}

    return app.check()


@pytest.mark.slow
def test_replays_profile_windows_and_the_operators_after_them(tmp_path):
    app = passing()
    workload.write(app, {}, 300, 1, tmp_path / "w")
    source = workload.read(tmp_path / "w", app)
    profiles = replays(source, 1)
    assert [(name, p.kind, p.keys) for name, p in profiles.items()] == [
        ("words", "stateless", None), ("met", "windowed", None), ("frequent", "stateless", None),
    ]  # fmt: skip
    assert (profiles["words"].rows_in, profiles["met"].rows_in, profiles["frequent"].rows_in) == (
        300,
        400,
        profiles["met"].rows_out,
    )
    assert oracle.compute(source, tmp_path / "o")["dropped_late"] == 100
    assert 0 < profiles["frequent"].rows_out < profiles["frequent"].rows_in
    # A schedule moves `met`, which precedes `frequent`. It does not affect `words` and `frequent`.
    schedule = [{"event": 100, "owners": {"met": [1]}}, {"event": 200, "owners": {"met": 2}}]
    spec = Pinned(app="passing", threads=2, batch=7, schedule=schedule)
    for operator in ("met", "frequent"):
        recording.record(source, operator, tmp_path / f"{operator}.ours", spec)
        recording.record_oracle(source, operator, tmp_path / f"{operator}.theirs")
        assert diff(tmp_path / f"{operator}.ours", tmp_path / f"{operator}.theirs").exit_code == 0
    with pytest.raises(BadInput, match="passing has windows: pinned runs it with channel gate"):
        recording.record(source, "met", tmp_path / "x", Pinned(app="passing", channel="merge_sort"))


def test_a_failure_names_the_event_that_caused_the_row(tmp_path):
    def fails(row, out):
        out.emit(n=1 // (4 - row.key))

    app = App("failing")
    app.source(Line).flat_map(halves, Line).flat_map(fails, Sum).sink()
    app.generates(small().generator)
    workload.write(app, {}, 30, 1, tmp_path / "w")
    source = workload.read(tmp_path / "w", app)
    recording.record(source, "fails", tmp_path / "r", Pooled(app="failing", threads=2))
    with pytest.raises(RunFailed, match="operator fails failed at event 4: ZeroDivisionError"):
        replaying.replay(recording.read(tmp_path / "r", app), 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- parts of applications -------------------------------------------------------------------------------------------


def test_an_application_can_be_split_at_an_operator():
    lr = registry.load("lr")
    front = lr.upto("account_balance")
    assert [o.name for o in front.operators if o.name not in ("source", "outputs")] == [
        "position_reports", "balance_requests", "average_speed", "latest_velocity", "vehicle_count", "stopped_vehicle",
        "accident", "segment_crossing", "toll_notification", "charges",
    ]  # fmt: skip
    assert [o.name for o in front.operators[-1].inputs] == [o.name for o in lr.operator("account_balance").inputs]
    assert (front.event, front.outputs) == (lr.event, lr.operator("account_balance").input)
    alone = lr.only("account_balance")
    assert [o.kind for o in alone.operators] == ["source", "partitioned", "sink"]
    assert alone.operators[1].inputs == alone.operators[:1]
    assert (alone.event, alone.outputs) == (front.outputs, lr.operator("account_balance").output)
    assert lr.unordered is None or alone.unordered is None
    sl = registry.load("sl")
    assert (sl.upto("ledger").kind, sl.upto("ledger").tables) == ("dataflow", [])
    assert (sl.only("ledger").kind, sl.only("ledger").tables) == ("transaction", sl.tables)
    with pytest.raises(BadInput, match="app sl: unknown operator 'outputs'; known: ledger"):
        sl.only("outputs")
