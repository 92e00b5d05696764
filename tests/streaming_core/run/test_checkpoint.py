"""Checkpoints on disk: damaged or foreign ones are refused in one line, and never give a wrong result."""

import json
import shutil
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core.cli import main
from streaming_core.data import workload
from streaming_core.errors import BadInput, CommandFailed
from streaming_core.run import checkpoint, engine
from streaming_core.run.way import RunSpec, Transactional
from streaming_core.storage import Lock

EVENTS = 600


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A workload of sl in three parts of different lengths."""
    folder = tmp_path_factory.mktemp("sl") / "workload"
    params = {"n_items": 100, "gen_parts": 4}
    table = workload.generate_chunk("sl", params, EVENTS, 1, 0, EVENTS)
    cuts = [0, 250, 260, EVENTS]
    parts = [workload.write_part(folder, i, table.slice(a, b - a)) for i, (a, b) in enumerate(pairwise(cuts))]
    workload.seal(folder, "sl", params, EVENTS, 1, parts)
    return folder


@pytest.fixture
def spec(source):
    params = {"n_items": 100, "gen_parts": 4}
    return Transactional(app="sl", params=params, punctuation=20, checkpoint=4, sink="parquet", threads=2)


class Stop(Exception):
    """Ends a run in these tests as if it were killed."""


@pytest.fixture
def stopped(spec, source, tmp_path):
    """The folder of a run that ended after its fourth checkpoint."""
    out = tmp_path / "out"

    def progress(kind, done, total):
        if done == 320:
            raise Stop

    with pytest.raises(Stop):
        engine.run(spec, source, out, progress)
    return out


@pytest.fixture
def refused(spec, source, stopped, capsys, monkeypatch):
    """Resumes the run on the command line, and expects one line with the words and no lost files."""

    def check(*words, workload=source, change=None):
        (stopped.parent / "spec.json").write_text(json.dumps(spec.model_dump(mode="json") | (change or {})))
        before = {
            path: path.read_bytes() for path in sorted((stopped / checkpoint.FOLDER).rglob("*")) if path.is_file()
        }
        arguments = ["run", stopped.parent / "spec.json", "--input", workload, "--out", stopped]
        monkeypatch.setattr("sys.argv", ["streaming-core", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        stderr = capsys.readouterr().err
        assert ended.value.code == 2, stderr
        assert stderr.count("\n") == 1
        for word in words:
            assert word in stderr
        assert sorted(path.name for path in stopped.iterdir()) == [checkpoint.FOLDER, "spec.json"]
        assert all(path.read_bytes() == data for path, data in before.items())

    return check


def test_a_run_resumes_from_its_last_checkpoint(spec, source, stopped, tmp_path):
    messages, passes = [], []
    (stopped / checkpoint.FOLDER / "outputs" / "part-00042.parquet").write_bytes(b"of nobody")
    report = engine.run(spec, source, stopped, lambda *at: passes.append(at), messages.append)
    assert messages == ["resuming from the checkpoint at event 320"]
    assert [done for _, done, _ in passes] == [400, 480, 560, 600]
    assert report.resumed == [320]
    assert report.verified.events == EVENTS
    whole = engine.run(spec, source, tmp_path / "whole")
    assert whole.resumed == []
    assert (report.verified.digest, report.state_digest) == (whole.verified.digest, whole.state_digest)
    names = [path.name for path in sorted((stopped / "outputs").iterdir())]
    assert names == [f"part-{i:05d}.parquet" for i in range(8)]
    for folder, name in [("outputs", name) for name in names] + [("state", "accounts.parquet")]:
        assert (stopped / folder / name).read_bytes() == (tmp_path / "whole" / folder / name).read_bytes()


def test_a_resumed_run_keeps_earlier_measurements(spec, source, stopped):
    before = checkpoint.read(stopped / checkpoint.FOLDER / "last")
    assert before.events == before.standing["events"] == 320
    batches = sum(count for _, count in before.standing["processing"])
    assert batches >= 4  # one for each block
    report = engine.run(spec, source, stopped)
    assert report.verified.seconds > before.standing["nanoseconds"] / 1e9
    assert report.verified.cpu_seconds > before.cpu_seconds
    slowest = max(nanoseconds for nanoseconds, _ in before.standing["processing"])
    assert report.verified.processing.max >= slowest / 1e3


@pytest.mark.parametrize("sink", ["digest", "count"])
def test_a_run_without_output_files_also_resumes(spec, source, tmp_path, sink):
    spec = RunSpec.parse(spec.model_dump() | {"sink": sink})

    def progress(kind, done, total):
        if done == 320:
            raise Stop

    with pytest.raises(Stop):
        engine.run(spec, source, tmp_path / "out", progress)
    report = engine.run(spec, source, tmp_path / "out")
    whole = engine.run(spec, source, tmp_path / "whole")
    assert report.resumed == [320]
    assert (report.verified.digest, report.state_digest) == (whole.verified.digest, whole.state_digest)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.json", "spec.json", "state"]


def test_a_complete_run_is_not_repeated(spec, source, tmp_path):
    report, messages = engine.run(spec, source, tmp_path / "out"), []
    assert engine.run(spec, source, tmp_path / "out", say=messages.append) == report
    assert messages == [f"{tmp_path / 'out'} already holds this run; nothing to do"]
    workload.write("sl", {"n_items": 100, "gen_parts": 4}, EVENTS, 2, tmp_path / "other")
    with pytest.raises(BadInput, match="another workload"):
        engine.run(spec, tmp_path / "other", tmp_path / "out")
    with pytest.raises(BadInput, match="already holds"):
        engine.run(RunSpec.parse(spec.model_dump() | {"checkpoint": 0}), source, stripped(tmp_path / "out"))


def stripped(out):
    (out / "spec.json").unlink()
    return out


@pytest.mark.parametrize("length", [0, 10, 90, 200, -1])
def test_a_truncated_checkpoint_is_refused(stopped, refused, length):
    path = stopped / checkpoint.FOLDER / "last"
    path.write_bytes(path.read_bytes()[:length])
    refused("damaged", "start over")


def test_a_changed_byte_is_detected(stopped, refused):
    path = stopped / checkpoint.FOLDER / "last"
    data = path.read_bytes()
    for at in (0, 25, 100, 500, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        refused("damaged", "its digest is wrong")


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
        (lose, ["part-00001.parquet"]),
        (truncate, ["part-00001.parquet"]),
        (exchange, ["its outputs were changed"]),
        (alter, ["its outputs were changed"]),
        (other_columns, ["part-00001.parquet must have the same columns"]),
    ],
)
def test_damaged_outputs_are_refused(stopped, refused, change, words):
    change(stopped / checkpoint.FOLDER / "outputs" / "part-00001.parquet")
    refused("damaged", "start over", *words)


def test_another_spec_is_refused(stopped, refused):
    refused("a run with other options", change={"threads": 1})
    (stopped / "spec.json").unlink()
    refused("has another spec", change={"threads": 1})


def test_another_workload_is_refused(refused, tmp_path):
    workload.write("sl", {"n_items": 100, "gen_parts": 4}, EVENTS, 2, tmp_path / "other")
    refused("another workload", "new folder", workload=tmp_path / "other")


def test_other_code_is_refused(refused, monkeypatch):
    monkeypatch.setattr("streaming_core.apps.registry.code_digest", lambda app: "edited")
    refused("another application code", "edited", "new folder")


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

    def progress(kind, done, total):
        if done == 320:
            raise Stop

    with pytest.raises(Stop):
        engine.run(spec, changed, tmp_path / "out", progress)
    shutil.copy(source / "events" / "part-00000.parquet", part)  # mended, and too late
    with pytest.raises(BadInput, match="the rows were changed after they were written"):
        engine.run(spec, changed, tmp_path / "out")
    with pytest.raises(BadInput, match="the rows were changed after they were written"):
        engine.run(spec, changed, tmp_path / "out")


def test_a_second_concurrent_run_is_refused(spec, source, stopped):
    other = Lock(stopped / ".lock")
    assert other.take()
    with pytest.raises(BadInput, match="another run is using the folder"):
        engine.run(spec, source, stopped)
    other.leave()
    assert engine.run(spec, source, stopped).resumed == [320]


@pytest.mark.parametrize("name", ["sync", "Checkpoints.save"])
def test_a_run_resumes_after_a_failed_write(spec, source, stopped, monkeypatch, name):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(f"streaming_core.run.checkpoint.{name}", full)
        with pytest.raises(CommandFailed, match="No space left"):
            engine.run(spec, source, stopped)
    assert engine.run(spec, source, stopped).resumed == [320]


@pytest.mark.slow
def test_an_executor_without_checkpoints_refuses_the_option(spec, source, tmp_path):
    with pytest.raises(BadInput, match="executor pooled has no checkpoint; transactional has"):
        RunSpec.parse({"app": "wc", "executor": "pooled", "checkpoint": 1})
    with pytest.raises(BadInput, match="checkpoint"):
        RunSpec.parse({"app": "sl", "executor": "transactional", "checkpoint": -1})
    folder = tmp_path / "workload"
    shutil.copytree(source, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    monster = RunSpec.parse(spec.model_dump() | {"checkpoint": 1, "punctuation": 1})
    assert manifest["events"] // monster.checkpoint_interval <= engine.MAX_CHECKPOINTS
    engine.run(monster, folder, tmp_path / "out")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engine, "MAX_CHECKPOINTS", EVENTS - 1)
        with pytest.raises(BadInput, match="raise checkpoint"):
            engine.run(monster, folder, tmp_path / "more")
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize(("size", "cut"), [(70, 40), (1000, 40), (33, None), (64, 1000), (7, 1)])
def test_a_workload_can_be_read_from_any_event(source, size, cut):
    opened = workload.read(source)

    def tables_after(read):
        return list(opened.read_on(read, size, lambda table: (table, opened.hashes(table)), cut))

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
