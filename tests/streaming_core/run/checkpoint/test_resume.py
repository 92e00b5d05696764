"""Bounded runs with checkpoints: they resume in any way with the same result, or are refused in one line."""

import json
import re
import shutil
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core.cli import main
from streaming_core.data import workload
from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput, CommandFailed
from streaming_core.run import engine, folder
from streaming_core.run.checkpoint import file
from streaming_core.run.way import RunSpec, Transactional
from streaming_core.storage import Lock
from tests.support.draws import some

EVENTS = 600
PARAMS = {"n_items": 100, "gen_parts": 4}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A workload of sl in three parts of different lengths."""
    directory = tmp_path_factory.mktemp("sl") / "workload"
    table = workload.generate_chunk("sl", PARAMS, EVENTS, 1, 0, EVENTS)
    cuts = [0, 250, 260, EVENTS]
    parts = [workload.write_part(directory, i, table.slice(a, b - a)) for i, (a, b) in enumerate(pairwise(cuts))]
    workload.seal(directory, "sl", PARAMS, EVENTS, 1, parts)
    return directory


@pytest.fixture
def spec(source):
    return Transactional(app="sl", params=PARAMS, punctuation=20, checkpoint="80", sink="parquet", threads=2)


class Stop(Exception):
    """Ends a run in these tests as if it were killed."""


def run_until(event, spec, source, out):
    """Runs, and stops after a checkpoint."""

    def progress(kind, done, total):
        if done >= event:
            raise Stop

    with pytest.raises(Stop):
        engine.run(spec, source, out, progress)


@pytest.fixture
def stopped(spec, source, tmp_path):
    """The folder of a run that ended after its fourth checkpoint."""
    run_until(320, spec, source, tmp_path / "out")
    return tmp_path / "out"


def checkpoints(out):
    return file.paths(out / folder.WORK / folder.CHECKPOINTS)


@pytest.fixture
def refused(spec, source, stopped, capsys, monkeypatch):
    """Resumes the run on the command line, and expects one line with the words and no lost files."""

    def check(*words, workload=source, change=None):
        (stopped.parent / "spec.json").write_text(json.dumps(spec.model_dump(mode="json") | (change or {})))
        before = {path: path.read_bytes() for path in sorted((stopped / folder.WORK).rglob("*")) if path.is_file()}
        arguments = ["run", stopped.parent / "spec.json", "--input", workload, "--out", stopped]
        monkeypatch.setattr("sys.argv", ["streaming-core", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        stderr = capsys.readouterr().err
        assert ended.value.code == 2, stderr
        assert stderr.count("\n") == 1
        for word in words:
            assert word in stderr
        assert sorted(path.name for path in stopped.iterdir()) == [folder.WORK, "spec.json"]
        assert all(path.read_bytes() == data for path, data in before.items())

    return check


# --- the same result -------------------------------------------------------------------------------------------------

POOLED = {"executor": "pooled", "threads": 2, "queue": "hybrid", "heuristic": "ct"}
PINNED = {"executor": "pinned", "threads": 2, "batch": 7}
ONE = {"executor": "pinned"}
WAYS = {
    "sl": [
        {"executor": "transactional", "threads": 2},
        {"executor": "transactional", "threads": 3, "scheme": "tstream", "punctuation": 70},
        {"executor": "transactional", "scheme": "serial"},
    ],
    "wc": [
        POOLED,
        PINNED,
        {"executor": "morsel", "threads": 3},
        {"executor": "pooled"},
        PINNED | {"channel": "scalegate"},
    ],
    "fd": [PINNED, {"executor": "morsel", "threads": 2}, POOLED],
    "wordcount": [PINNED, ONE, PINNED | {"parallelism": "sn"}, PINNED | {"threads": 3, "parallelism": "vsn_esg"}],
    "scalejoin": [ONE, PINNED | {"parallelism": "vsn_esg"}, PINNED],
}


# test_relay.py resumes programs of the other kinds.
@pytest.mark.slow  # relays do so with random programs
@pytest.mark.parametrize("app", WAYS)
def test_a_run_resumes_in_other_ways_with_the_same_result(app, tmp_path):
    """Each way goes on from a checkpoint of the way before it."""
    params = PARAMS if app == "sl" else {}
    workload.write(app, params, 1500, 1, tmp_path / "w")
    plain = {"app": app, "params": params, "sink": "parquet", "checkpoint": "70"}
    specs = [RunSpec.parse(plain | way) for way in WAYS[app]]
    whole = engine.run(specs[0], tmp_path / "w", tmp_path / "whole")
    for number, spec in enumerate(specs):
        run_until(300 * (number + 1), spec, tmp_path / "w", tmp_path / "out")
    report = engine.run(specs[0], tmp_path / "w", tmp_path / "out")
    assert len(report.resumed) == len(specs)
    assert (report.verified.digest, report.state_digest) == (whole.verified.digest, whole.state_digest)
    assert report.verified.in_order
    both = [tmp_path / name for name in ("whole", "out")]
    first, second = [Parts.of(out / "outputs").read() for out in both]
    assert first.equals(second)
    first, second = [{path.name: path.read_bytes() for path in (out / "state").iterdir()} for out in both]
    assert first == second
    names = [sorted(path.name for path in out.iterdir()) for out in both]
    assert names == [["outputs", "report.json", "spec.json", "state"]] * 2
    assert json.loads((tmp_path / "out" / "spec.json").read_text()) == specs[0].model_dump(mode="json")


def test_a_run_resumes_from_its_last_checkpoint(spec, source, stopped, tmp_path):
    messages, passes = [], []
    (stopped / folder.WORK / "outputs" / "part-00042.parquet").write_bytes(b"of no checkpoint")
    report = engine.run(spec, source, stopped, lambda *at: passes.append(at), messages.append)
    assert messages == ["resuming from the checkpoint at event 320"]
    assert [done for _, done, _ in passes] == [400, 480, 560, 600]
    assert report.resumed == [320]
    assert report.verified.events == EVENTS
    whole = engine.run(spec, source, tmp_path / "whole")
    assert whole.resumed == []
    names = [path.name for path in sorted((stopped / "outputs").iterdir())]
    assert names == [f"part-{i:05d}.parquet" for i in range(8)]
    for directory, name in [("outputs", name) for name in names] + [("state", "accounts.parquet")]:
        assert (stopped / directory / name).read_bytes() == (tmp_path / "whole" / directory / name).read_bytes()


def test_a_resumed_run_keeps_earlier_measurements(spec, source, stopped):
    before = file.read(checkpoints(stopped)[0])
    standing = json.loads(before.standing)
    assert before.events == standing["events"] == 320
    assert sum(count for _, count in standing["processing"]) >= 4  # one for each block
    report = engine.run(spec, source, stopped)
    assert report.verified.seconds > standing["nanoseconds"] / 1e9
    assert report.verified.cpu_seconds > before.cpu_seconds
    slowest = max(nanoseconds for nanoseconds, _ in standing["processing"])
    assert report.verified.processing.max >= slowest / 1e3


@pytest.mark.parametrize("sink", some(["digest", "count"]))
def test_a_run_without_output_files_also_resumes(spec, source, tmp_path, sink):
    spec = RunSpec.parse(spec.model_dump() | {"sink": sink})
    run_until(320, spec, source, tmp_path / "out")
    report = engine.run(spec, source, tmp_path / "out")
    whole = engine.run(spec, source, tmp_path / "whole")
    assert report.resumed == [320]
    assert (report.verified.digest, report.state_digest) == (whole.verified.digest, whole.state_digest)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.json", "spec.json", "state"]


def test_a_short_run_writes_no_checkpoint_by_default(spec, source, tmp_path, monkeypatch):
    monkeypatch.setattr("streaming_core.run.checkpoint.store.Checkpoints.make", None)
    spec = RunSpec.parse(spec.model_dump() | {"checkpoint": "60s"})
    assert spec == RunSpec.parse({name: value for name, value in spec.model_dump().items() if name != "checkpoint"})
    assert engine.run(spec, source, tmp_path / "out").verified.events == EVENTS


def test_a_run_with_seconds_makes_a_checkpoint_after_a_block(spec, source, tmp_path, monkeypatch):
    """Once so many seconds are over."""
    clock = iter(range(0, 1000, 6))
    monkeypatch.setattr("streaming_core.run.checkpoint.store.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("streaming_core.run.blocks.BLOCK", 100)
    spec = RunSpec.parse(spec.model_dump() | {"checkpoint": "10s"})
    run_until(300, spec, source, tmp_path / "out")
    assert [int(path.name[-15:]) for path in checkpoints(tmp_path / "out")] == [200]
    assert engine.run(spec, source, tmp_path / "out").resumed == [200]


def test_a_run_that_is_killed_before_its_first_checkpoint_starts_again(spec, source, tmp_path):
    run_until(1, RunSpec.parse(spec.model_dump() | {"checkpoint": "0"}), source, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["spec.json"]
    assert engine.run(spec, source, tmp_path / "out").resumed == []


def test_a_complete_run_is_not_repeated(spec, source, tmp_path):
    report, messages = engine.run(spec, source, tmp_path / "out"), []
    assert engine.run(spec, source, tmp_path / "out", say=messages.append) == report
    assert messages == [f"{tmp_path / 'out'} already holds this run; nothing to do"]
    workload.write("sl", PARAMS, EVENTS, 2, tmp_path / "other")
    with pytest.raises(BadInput, match="another workload"):
        engine.run(spec, tmp_path / "other", tmp_path / "out")
    with pytest.raises(BadInput, match="holds a run with other options"):
        engine.run(RunSpec.parse(spec.model_dump() | {"threads": 1}), source, tmp_path / "out")
    (tmp_path / "out" / "spec.json").unlink()
    with pytest.raises(BadInput, match="already holds"):
        engine.run(spec, source, tmp_path / "out")


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", some([-1, 0, 10, 90, 200]))
def test_the_older_checkpoint_replaces_a_damaged_one(spec, source, stopped, length):
    newest, older, *_ = checkpoints(stopped)
    newest.write_bytes(newest.read_bytes()[:length])
    messages = []
    assert engine.run(spec, source, stopped, say=messages.append).resumed == [240]
    assert re.fullmatch(rf"{newest.name} in .* is damaged: .*; using {older.name}", messages[0])
    assert messages[1:] == ["resuming from the checkpoint at event 240"]


def test_a_run_without_a_sound_checkpoint_is_refused(stopped, refused):
    for path in checkpoints(stopped):
        data = path.read_bytes()
        path.write_bytes(data[:500] + bytes([data[500] ^ 4]) + data[501:])
    refused("checkpoint-000000000000320", "is damaged", "choose a new folder, or remove", "to start over")


def lose(path):
    path.unlink()


def truncate(path):
    path.write_bytes(path.read_bytes()[:-50])


def exchange(path):
    shutil.copy(path.with_name("part-00002.parquet"), path)


def alter(path):
    table = pq.read_table(path)
    values = table.column("dst_acct").to_pylist()
    values[3] += 1
    place = table.column_names.index("dst_acct")
    column = pa.array(values, table.schema.field(place).type)
    pq.write_table(table.set_column(place, table.schema.field(place), column), path)


def other_columns(path):
    pq.write_table(pq.read_table(path).drop(["dst_acct"]), path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lose, ["part-00000.parquet is missing"]),
        (truncate, ["part-00000.parquet"]),
        (exchange, ["its outputs were changed"]),
        (alter, ["its outputs were changed"]),
        (other_columns, ["part-00001.parquet must have the same columns"]),
    ],
)
def test_damaged_outputs_are_refused(stopped, refused, change, words):
    change(stopped / folder.WORK / "outputs" / "part-00000.parquet")
    refused("damaged", "start over", *words)


def test_an_older_checkpoint_does_without_later_outputs(spec, source, stopped):
    lose(stopped / folder.WORK / "outputs" / "part-00003.parquet")
    assert engine.run(spec, source, stopped).resumed == [240]


# --- other runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sink": "digest"}, "holds a run with sink parquet, requested digest"),
        ({"app": "gs", "params": {}}, "workload"),
        ({"params": {"n_items": 101, "gen_parts": 4}}, "n_items"),
        ({"scheme": "no_lock"}, "holds a run with scheme owners, whose results differ"),
    ],
)
def test_a_run_with_another_result_is_refused(refused, change, words):
    refused(words, change=change)


def test_a_run_with_another_order_is_refused(tmp_path):
    workload.write("wc", {}, 400, 1, tmp_path / "w")
    spec = RunSpec.parse({"app": "wc", "executor": "morsel", "checkpoint": "100", "sink": "parquet"})
    run_until(200, spec, tmp_path / "w", tmp_path / "out")
    for way in ({"executor": "morsel", "order": "none"}, {"executor": "pinned", "channel": "pair_queue"}):
        with pytest.raises(BadInput, match="holds a run with order total, requested none; choose a new folder"):
            engine.run(RunSpec.parse({"app": "wc", "sink": "parquet", **way}), tmp_path / "w", tmp_path / "out")


def test_another_workload_is_refused(refused, tmp_path):
    workload.write("sl", PARAMS, EVENTS, 2, tmp_path / "other")
    refused("another workload", "new folder", workload=tmp_path / "other")


def test_other_code_is_refused(refused, monkeypatch):
    monkeypatch.setattr("streaming_core.apps.registry.code_digest", lambda app: "edited")
    refused("another application code", "edited", "new folder")


def test_another_declaration_of_state_is_refused_by_its_field(refused, monkeypatch):
    monkeypatch.setattr("streaming_core.apps.registry.code_digest", lambda app: "edited")
    fields = [["balance", "i32"], ["payload", "Array[i64, payload]"]]
    monkeypatch.setattr("streaming_core.run.engine.states.declarations", lambda bound: {"accounts": fields})
    refused("another application code (state accounts: field balance was i64, now i32)")


def test_events_changed_during_a_run_are_detected(spec, source, tmp_path):
    """The manifest is unchanged: the checkpoint holds the digest of the events before it."""
    changed = tmp_path / "changed"
    shutil.copytree(source, changed)
    part = changed / "events" / "part-00000.parquet"
    table = pq.read_table(part)
    place = table.column_names.index("amt_acct")
    values = table.column(place).to_pylist()
    values[7] += 1
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array(values, pa.int64())), part)
    run_until(320, spec, changed, tmp_path / "out")
    shutil.copy(source / "events" / "part-00000.parquet", part)  # mended, and too late
    for _ in range(2):
        with pytest.raises(BadInput, match=r"the rows were changed after they were written.*; choose a new folder"):
            engine.run(spec, changed, tmp_path / "out")


def test_a_second_concurrent_run_is_refused(spec, source, stopped):
    other = Lock(stopped / ".lock")
    assert other.take()
    with pytest.raises(BadInput, match="another run is using the folder"):
        engine.run(spec, source, stopped)
    other.leave()
    assert engine.run(spec, source, stopped).resumed == [320]


def test_a_run_resumes_after_a_failed_write(spec, source, stopped, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("streaming_core.run.one_pass.write_states", full)
        with pytest.raises(CommandFailed, match="No space left"):
            engine.run(spec, source, stopped)
    [last] = engine.run(spec, source, stopped).resumed[1:]
    assert last == 560


@pytest.mark.parametrize(("size", "cut"), some([(70, 40), (33, None), (1000, 40), (64, 1000), (7, 1)], 2))
def test_a_workload_can_be_read_from_any_event(source, size, cut):
    opened = workload.read(source)

    def room(before):
        return cut - before % cut if cut else None

    def tables_after(read):
        return list(opened.read_on(read, size, lambda table: (table, opened.hashes(table)), room))

    tables = tables_after((0, 0))
    whole = pa.concat_tables(table for table, _ in tables)
    assert whole.column("seq").to_pylist() == list(range(EVENTS))
    ends = [total[0] for _, total in tables]
    if cut:
        assert set(range(cut, EVENTS, cut)) <= set(ends)
    for _, total in tables[:: max(1, len(tables) // 10)] + tables[-1:]:
        rest = [table for table, _ in tables_after(total)]
        assert [table.num_rows for table in rest] == [b - a for a, b in pairwise(ends) if a >= total[0]]
        assert pa.concat_tables([whole.slice(0, 0), *rest]).equals(whole.slice(total[0]))
    with pytest.raises(BadInput, match="the rows were changed after they were written"):
        tables_after((ends[0], tables[0][1][1] ^ 1))
