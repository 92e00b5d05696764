"""The oracle of a live run, segment by segment: it goes on from its own snapshots, and names the first difference."""

import errno
import random
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from streaming_core import storage
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.digest import digest_table
from streaming_core.data.parts import Parts, part_path, states, write_file, write_states
from streaming_core.errors import BadInput, CommandFailed
from streaming_core.oracle import oracle
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.segments import Verifier
from tests.support.draws import some

EVENTS = 1200
PARAMS = {
    "q3": {"items": 40, "users": 30},
    "wordcount": {"vocabulary": 50, "advance": 30, "size": 70},
    "gs": {"n_items": 20, "gen_parts": 1},
}


class Run:
    """A run that an interpreter plays: its events, and the files of its outputs and states."""

    def __init__(self, name: str, folder: Path):
        self.app, self.folder = registry.load(name), folder
        self.params = self.app.bind(PARAMS[name])
        self.events = workload.generate_chunk(self.app, self.params, EVENTS, 3, 0, EVENTS)
        machine = Interpreter(self.app, self.params)
        (folder / "outputs").mkdir(parents=True)
        self.outputs = pa.concat_tables([machine.process(self.events), machine.finish(EVENTS)])
        self.write(self.outputs)
        write_states(folder, machine.state())
        self.digest = digest_table(self.outputs, ("seq", "sub"))

    def write(self, outputs: pa.Table) -> None:
        """Write the outputs in two files."""
        half = outputs.num_rows // 2
        write_file(part_path(self.folder / "outputs", 0), outputs.slice(0, half))
        write_file(part_path(self.folder / "outputs", 1), outputs.slice(half))

    def verifier(self, mode: str = "interpreted") -> Verifier:
        """Open the verifier of the run."""
        return Verifier(self.app, self.params, self.folder / "verified", mode)

    def segment(self, verifier: Verifier, stop: int) -> dict[str, int]:
        """Verify the events up to this one, in blocks; return the counts of differences."""
        size = 1 + stop % 97
        blocks = [self.events.slice(at, min(size, stop - at)) for at in range(verifier.events, stop, size)]
        return dict(verifier.compare(blocks, Parts.of(self.folder / "outputs")).counts)

    def end(self, verifier: Verifier) -> list:
        """End the stream; return all differences."""
        tables = verifier.finish(EVENTS, Parts.of(self.folder / "outputs"), states(self.folder))
        return [difference for table in tables for difference in table.differences]


@pytest.fixture(params=some(["q3 interpreted", "q3 auto", "wordcount auto", "gs auto"], 2))
def opened(request, tmp_path):
    """A run, and a function that opens its verifier. The loop takes over after 500 events."""
    name, mode = request.param.split()
    run = Run(name, tmp_path)
    with mock.patch.object(oracle, "CHECKED", 500):
        yield run, lambda: run.verifier(mode)


def test_segments_equal_the_run_whatever_their_cuts_and_restarts(opened):
    run, verifier = opened
    cuts = sorted(random.Random(1).sample(range(1, EVENTS), 6))
    current = verifier()
    for number, stop in enumerate([*cuts, EVENTS]):
        assert run.segment(current, stop) == {}
        current.write()
        assert len(list((run.folder / "verified").iterdir())) == min(number + 1, 2)
        current = None  # the addresses of its loop are free
        current = verifier()
        assert (current.events, current.next_seq, current.notes) == (stop, stop, [])
    assert run.end(current) == []
    assert current.digest == run.digest


def test_a_segment_without_snapshot_is_verified_again(opened):
    run, verifier = opened
    current = verifier()
    run.segment(current, 700)
    current.write()
    run.segment(current, 900)
    current = None
    current = verifier()
    assert current.events == 700
    assert run.segment(current, EVENTS) == {}


def test_differences_are_named_and_counted_in_their_segment(tmp_path):
    run = Run("q3", tmp_path)
    wrong = run.outputs.to_pylist()
    at = len(wrong) // 2
    name = next(n for n in run.outputs.column_names if n not in ("seq", "sub") and isinstance(wrong[at][n], int))
    wrong[at][name] += 1
    seq = wrong[at]["seq"]
    run.write(pa.Table.from_pylist([*wrong[:10], *wrong[11:]], run.outputs.schema))
    verifier = run.verifier()
    counts = [run.segment(verifier, stop) for stop in (seq, seq + 1, EVENTS)]
    assert counts == [{"missing": 1}, {"different": 1}, {}]
    again = run.verifier()
    differences = again.compare([run.events], Parts.of(tmp_path / "outputs"))
    assert differences.differences[0].lines()[0].startswith(f"outputs: seq {wrong[10]['seq']}, sub")
    assert f": {name}: expected" in differences.differences[1].lines()[0]


def test_rows_that_the_oracle_lacks_are_extra(tmp_path):
    run = Run("q3", tmp_path)
    extra = run.outputs.slice(run.outputs.num_rows - 1).to_pylist()
    extra[0]["sub"] += 7
    run.write(pa.concat_tables([run.outputs, pa.Table.from_pylist(extra, run.outputs.schema)]))
    assert run.segment(run.verifier(), EVENTS) == {"extra": 1}


def test_a_run_without_files_misses_all_rows(tmp_path):
    run = Run("q3", tmp_path)
    assert run.verifier().compare([run.events], Parts([])).counts == {"missing": run.outputs.num_rows}


def test_another_column_is_a_difference(tmp_path):
    run = Run("q3", tmp_path)
    run.write(run.outputs.append_column("more", pa.array(np.zeros(run.outputs.num_rows))))
    assert run.segment(run.verifier(), EVENTS) == {"column": 1}


def test_final_states_are_compared(tmp_path):
    run = Run("gs", tmp_path)
    [path] = (tmp_path / "state").iterdir()
    table = Parts([path]).read()
    verifier = run.verifier()
    run.segment(verifier, EVENTS)
    write_file(path, table.slice(1))
    assert [d.lines()[0].split(":")[0] for d in run.end(verifier)] == [f"state {path.stem}"]
    path.unlink()
    verifier = run.verifier()
    run.segment(verifier, EVENTS)
    assert [d.lines()[0] for d in run.end(verifier)] == [f"state {path.stem}: expected a table, got no file"]


# --- bad snapshots ---------------------------------------------------------------------------------------------------


def damages(path: Path):
    """Damage a file, in every way."""
    content = path.read_bytes()
    at = random.Random(path.name).randrange(len(content))
    yield lambda: path.write_bytes(content[:at])
    yield lambda: path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    yield lambda: path.write_bytes(b"")
    yield path.unlink


def test_an_older_snapshot_replaces_a_damaged_one(tmp_path):
    run, folder = Run("q3", tmp_path), tmp_path / "verified"
    verifier = run.verifier("auto")
    for stop in (300, 600):
        run.segment(verifier, stop)
        verifier.write()
    shutil.copytree(folder, tmp_path / "sound")
    newest = f"{600:020d}"
    for name in ("manifest.json", "state", "first.parquet"):
        for damage in damages(folder / newest / name):
            damage()
            verifier = run.verifier("auto")
            [note] = verifier.notes
            assert f"{newest}: {name} is missing or was changed" in note
            assert (verifier.events, (folder / newest).exists()) == (300, False)
            shutil.rmtree(folder)
            shutil.copytree(tmp_path / "sound", folder)
    for path in folder.iterdir():
        (path / "state").write_bytes(b"")
    verifier = run.verifier("auto")
    assert (verifier.events, len(verifier.notes)) == (0, 2)
    assert run.segment(verifier, EVENTS) == {}


def test_foreign_snapshots_are_refused(tmp_path):
    run = Run("q3", tmp_path)
    verifier = run.verifier()
    run.segment(verifier, 300)
    verifier.write()
    folder = tmp_path / "verified"
    others = [
        lambda: Verifier(run.app, run.params | {"users": 31}, folder, "interpreted"),
        lambda: Verifier(run.app, run.params, folder, "auto"),
        lambda: Verifier(registry.load("wc"), registry.load("wc").bind({}), folder, "interpreted"),
    ]
    for other in others:
        with pytest.raises(BadInput, match="has snapshots of other code, parameters or mode"):
            other()
    with mock.patch.object(oracle, "version", return_value="another"), pytest.raises(BadInput, match="other code"):
        run.verifier()
    assert run.verifier().events == 300


def test_a_snapshot_appears_whole_or_not_at_all(tmp_path):
    run, full = Run("q3", tmp_path), OSError(errno.ENOSPC, "No space left on device")
    verifier = run.verifier()
    run.segment(verifier, 300)
    for module, name in ((storage, "sync_tree"), (storage, "write_json"), (storage.os, "rename")):
        with mock.patch.object(module, name, side_effect=full), pytest.raises(CommandFailed, match="No space left"):
            verifier.write()
        assert list((tmp_path / "verified").iterdir()) == []
    verifier.write()
    assert run.verifier().events == 300


def test_half_a_snapshot_of_a_killed_process_is_removed(tmp_path):
    run = Run("q3", tmp_path)
    half = tmp_path / "verified" / ".00000000000000000007.new"
    half.mkdir(parents=True)
    (half / "state").write_bytes(b"half")
    assert (run.verifier().notes, half.exists()) == ([], False)


def test_events_of_the_past_are_refused(tmp_path):
    run = Run("q3", tmp_path)
    verifier = run.verifier()
    run.segment(verifier, 300)
    with pytest.raises(BadInput, match="must begin at event 300 or later, but begins at 299"):
        list(verifier.outputs([run.events.slice(299)]))
