"""The store of checkpoints, over an engine whose state is a mapping: what it resumes is what was made, or nothing."""

import errno
import json
import os
import random
import re
import resource
import shutil
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from streaming_core.errors import BadInput, CommandFailed
from streaming_core.run.checkpoint import file, states, store, writing
from streaming_core.run.checkpoint.store import Checkpoints
from streaming_core.run.way import Interval
from streaming_core.storage import Lock
from tests.support.draws import seeds, some

ABOUT = {"application code": "a", "workload": "3:1"}
STATES = {"count": [["word", "text"], ["n", "i64"]]}
STANDING = json.dumps({"delivered": {"digest": {"rows": 0, "sum": 0}}})


class Engine:
    """An engine in these tests: its state is the image of each part."""

    def __init__(self):
        self.parts = {}

    def standing(self):
        return STANDING

    def images(self, take):
        for (name, number), image in sorted(self.parts.items()):
            take(name, number, image)

    def restore(self, name, image):
        self.parts[name, image[0]] = image

    def resume(self, standing):
        assert standing == STANDING


@pytest.fixture
def begin(tmp_path):
    """Opens the checkpoints of a folder, and the engine at the newest; `lines` has what the user reads."""

    def begin(events=10, folder=tmp_path, about=ABOUT, declared=STATES):
        begin.lines.clear()
        checkpoints = Checkpoints(folder, Interval(events=events), about, declared, {"app": "wc"}, begin.lines.append)
        checkpoints.recover()
        engine = Engine()
        if checkpoints.last:
            checkpoints.restore(engine)
        return checkpoints, engine

    begin.lines = []
    return begin


def change(engine, dice, parts=64):
    """Changes some parts of the state; the first byte of an image is its number."""
    for number in dice.sample(range(parts), dice.choice([1, parts // 4, parts])):
        engine.parts["count", number] = bytes([number]) + dice.randbytes(dice.randrange(1, 4000))


def make(begin, dice, count, parts=64):
    """Makes checkpoints; returns the state at each by its events."""
    checkpoints, engine = begin()
    after, first = {}, checkpoints.last.events if checkpoints.last else 0
    for events in range(first + 10, first + 10 * count + 1, 10):
        change(engine, dice, parts)
        assert checkpoints.is_due(events)
        checkpoints.make(engine, (events, events * 7), 0.0)
        after[events] = dict(engine.parts)
    checkpoints.settle()
    return after


@pytest.mark.parametrize("parts", some([64, 2]))
def test_a_run_resumes_with_the_state_at_its_last_checkpoint_and_the_disk_stays_bounded(begin, tmp_path, parts):
    dice = random.Random(parts)
    for _ in range(6):
        after = make(begin, dice, dice.randrange(1, 9), parts)
        checkpoints, engine = begin()
        assert engine.parts == after[checkpoints.last.events]
        assert checkpoints.last.events == max(after)
        assert checkpoints.last.read == (max(after), max(after) * 7)
        assert begin.lines == []
        live = sum(map(len, engine.parts.values()))
        size = sum(path.stat().st_size for path in tmp_path.iterdir())
        assert size < 6 * live + (3 << 20)
        assert len(list(tmp_path.iterdir())) <= 2 * store.MOST_FILES
        assert all(file.NAME.fullmatch(path.name) for path in tmp_path.iterdir())


def test_parts_that_have_not_changed_are_not_written_again(begin, tmp_path):
    checkpoints, engine = begin()
    for number in range(64):
        engine.parts["count", number] = bytes([number]) * 10_000
    for events in (10, 20):
        engine.parts["count", 7] = bytes([7]) * events
        checkpoints.make(engine, (events, 0), 0.0)
    checkpoints.settle()
    newest, first = [file.read(path) for path in file.paths(tmp_path)]
    assert [part.number for part in newest.parts if part.file == newest.name] == [7]
    assert newest.files == {newest.name, first.name}
    assert (tmp_path / newest.name).stat().st_size < 30_000


def test_everything_is_written_anew_before_old_files_pile_up(begin, tmp_path):
    checkpoints, engine = begin()
    most = 0
    for number in range(64):
        engine.parts["count", number] = bytes([number]) * 100
    for events in range(10, 250, 10):
        engine.parts["count", events % 63] = bytes([events % 63]) * events
        checkpoints.make(engine, (events, 0), 0.0)
        checkpoints.settle()
        most = max(most, len(file.read(file.paths(tmp_path)[0]).files))
    assert most == store.MOST_FILES + 1


def damages(folder, dice, foreign):
    """Damages one checkpoint file in one way; returns a description."""
    path = dice.choice(file.paths(folder))
    data = bytearray(path.read_bytes())
    kind = dice.choice(["flip", "cut", "lose", "swap", "foreign", "rename", "append", "zeros"])
    if kind == "flip":
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    elif kind == "cut":
        del data[dice.randrange(len(data)) :]
    elif kind == "zeros":
        at = dice.randrange(len(data))
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    elif kind == "append":
        data += dice.randbytes(dice.randrange(1, 100))
    elif kind == "swap":
        [*_, a, b] = sorted(file.read(path).parts, key=lambda part: (part.file == path.name, part.size))
        if (a.file, b.file) == (path.name, path.name):
            left, right = data[a.offset : a.offset + a.size], data[b.offset : b.offset + b.size]
            data[b.offset : b.offset + b.size], data[a.offset : a.offset + a.size] = left[: b.size], right[: a.size]
    elif kind == "foreign":
        data = bytearray(dice.choice(file.paths(foreign)).read_bytes())
    elif kind == "rename":
        data = bytearray(dice.choice(file.paths(folder)).read_bytes())
    if kind == "lose":
        path.unlink()
    else:
        path.write_bytes(data)
    return kind


@pytest.mark.parametrize("seed", seeds(1, of=3))
def test_no_damaged_checkpoint_is_used(begin, tmp_path, seed):
    """The run resumes from a sound one and names both, or is refused in one line."""
    dice, kinds = random.Random(seed), {}
    (tmp_path / "whole").mkdir()
    (tmp_path / "foreign").mkdir()
    here = lambda name: lambda *a, **k: begin(*a, folder=tmp_path / name, **k)  # noqa: E731
    make(partial(here("foreign"), about=ABOUT | {"workload": "4:1"}), dice, 4)
    after = make(here("whole"), dice, 6)
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    for _ in range(100):
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", folder)
        kind = damages(folder, dice, tmp_path / "foreign")
        is_changed = {path.name: path.read_bytes() for path in folder.iterdir()} != whole
        try:
            checkpoints, engine = begin(folder=folder)
        except BadInput as error:
            refused = str(error)
            kinds.setdefault(kind, set()).add("refused")
            assert re.fullmatch(r".*(is damaged: |has another workload).*; choose a new folder, or remove .*", refused)
            continue
        if checkpoints.last is None:
            assert not file.paths(folder)
            continue
        assert engine.parts == after[checkpoints.last.events], kind
        if checkpoints.last.events < max(after) and (folder / f"checkpoint-{max(after):015d}").exists():
            [line] = begin.lines
            assert re.match(rf"checkpoint-{max(after):015d} in {folder} (is damaged: |has another workload)", line)
            assert line.endswith(f"; using {checkpoints.last.name}")
        kinds.setdefault(kind, set()).add("older" if checkpoints.last.events < max(after) else "newest")
        assert is_changed or checkpoints.last.events == max(after)
    assert len(kinds) == 8, kinds
    assert {result for results in kinds.values() for result in results} >= {"older", "newest"}


def test_a_checkpoint_of_another_run_is_refused_and_the_field_named(begin, tmp_path):
    make(begin, random.Random(1), 2)
    before = sorted(path.read_bytes() for path in tmp_path.iterdir())
    for about, declared, words in [
        (ABOUT | {"workload": "4:1"}, STATES, "has another workload (3:1, now 4:1)"),
        (ABOUT | {"application code": "b"}, STATES, "has another application code (a, now b)"),
        (
            ABOUT | {"application code": "b"},
            {"count": [["word", "text"], ["n", "i32"]]},
            "has another application code (state count: field n was i64, now i32)",
        ),
    ]:
        with pytest.raises(BadInput) as refused:
            begin(about=about, declared=declared)
        assert words in str(refused.value)
        assert str(refused.value).endswith(f"; choose a new folder, or remove {tmp_path} to start over")
    assert sorted(path.read_bytes() for path in tmp_path.iterdir()) == before


def test_a_difference_of_declarations_names_state_and_field():
    n, m = ["n", "i64"], ["m", "f64"]
    for before, now, words in [
        ({"count": [n]}, {"count": [n]}, None),
        ({"count": [n]}, {}, "state count was removed"),
        ({}, {"count": [n]}, "state count was added"),
        ({"count": [n, m]}, {"count": [n]}, "state count: field m was removed"),
        ({"count": [n]}, {"count": [m, n]}, "state count: field m was added"),
        ({"count": [n, m]}, {"count": [m, n]}, "state count: its fields have another order"),
    ]:
        assert states.difference(before, now) == words


def test_a_checkpoint_of_another_version_is_not_used(begin, tmp_path):
    after = make(begin, random.Random(2), 3)
    newest = file.paths(tmp_path)[0]
    newest.write_bytes(newest.read_bytes().replace(b"lockstep checkpoint 2\n", b"lockstep checkpoint 3\n", 1))
    checkpoints, engine = begin()
    assert engine.parts == after[checkpoints.last.events]
    assert begin.lines == [
        f"{newest.name} in {tmp_path} is damaged: it has another version; using {checkpoints.last.name}"
    ]


# --- writing ---------------------------------------------------------------------------------------------------------


def test_a_killed_writer_commits_nothing_and_the_run_goes_on(begin, tmp_path, monkeypatch):
    checkpoints, engine = begin()
    change(engine, random.Random(3))
    with monkeypatch.context() as patched:
        patched.setattr(file, "write", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        for events in (10, 20):
            checkpoints.make(engine, (events, 0), 0.0)
            checkpoints.settle()
    assert begin.lines == ["no checkpoint at event 10: its process was ended by signal 9; the run goes on"]
    assert list(tmp_path.iterdir()) == []
    assert checkpoints.is_due(30)
    checkpoints.make(engine, (30, 0), 0.0)
    checkpoints.settle()
    assert [path.name[-2:] for path in file.paths(tmp_path)] == ["30"]


def test_a_full_disk_costs_the_checkpoint_and_not_the_run(begin, tmp_path):
    checkpoints, engine = begin()
    change(engine, random.Random(4), 64)
    checkpoints.make(engine, (10, 0), 0.0)
    checkpoints.settle()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal_before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        engine.parts["count", 0] = bytes(5000)
        checkpoints.make(engine, (20, 0), 0.0)
        checkpoints.settle()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, signal_before)
    assert begin.lines == ["no checkpoint at event 20: File too large; the run goes on"]
    checkpoints.make(engine, (30, 0), 0.0)
    checkpoints.settle()
    assert [int(path.name[-15:]) for path in file.paths(tmp_path)] == [30, 10]
    assert begin()[1].parts == engine.parts


def test_outputs_that_do_not_get_to_the_disk_end_the_run(begin, tmp_path):
    checkpoints, engine = begin()
    checkpoints.make(engine, (10, 0), 0.0, [tmp_path / "outputs" / "part-00000.parquet"])
    with pytest.raises(CommandFailed, match="outputs before a checkpoint"):
        checkpoints.settle()
    assert list(tmp_path.iterdir()) == []


def test_without_memory_for_a_process_the_run_writes_by_itself(begin, tmp_path, monkeypatch):
    def none():
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(os, "fork", none)
    after = make(begin, random.Random(5), 3)
    assert begin()[1].parts == after[30]


def test_the_writer_holds_no_lock_and_ends_with_its_run(tmp_path):
    """A process begins to write and is killed: its writer has closed the lock, and ends too."""
    lock, notes = Lock(tmp_path / ".lock"), tmp_path / "writer"
    run = os.fork()
    if not run:
        assert lock.take()

        def write():
            notes.write_text(f"{os.getpid()} {sorted(map(int, os.listdir('/proc/self/fd')))}")
            signal.pause()

        writing.Writing(write)
        signal.pause()
    while not notes.exists() or not notes.read_text():
        assert os.waitpid(run, os.WNOHANG) == (0, 0)
        time.sleep(0.01)
    writer, descriptors = notes.read_text().split(" ", 1)
    assert json.loads(descriptors)[:3] == [0, 1, 2]
    assert len(json.loads(descriptors)) <= 4
    assert not lock.take()
    os.kill(run, signal.SIGKILL)
    os.waitpid(run, 0)
    assert lock.take()
    until = time.monotonic() + 20
    while Path(f"/proc/{writer}").exists() and "\nState:\tZ" not in Path(f"/proc/{writer}/status").read_text():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_seconds_make_one_checkpoint_at_a_time(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    checkpoints = Checkpoints(tmp_path, Interval(seconds=10), ABOUT, STATES, {}, print)
    engine, held = Engine(), os.pipe()
    engine.images = lambda take: os.read(held[0], 1)
    monkeypatch.setattr(os, "closerange", lambda *_: None)
    assert not checkpoints.is_due(1)
    now[0] = 109.0
    assert not checkpoints.is_due(2)
    now[0] = 110.0
    assert checkpoints.is_due(3)
    checkpoints.make(engine, (3, 0), 0.0)
    now[0] = 200.0
    assert not checkpoints.is_due(4), "the last one is still being written"
    os.write(held[1], b"!")
    checkpoints.settle()
    assert checkpoints.is_due(5)
    assert not Checkpoints(tmp_path, Interval(), ABOUT, STATES, {}, print).is_due(1 << 40)
