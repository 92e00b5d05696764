"""Invalid windows and failing window operators: their errors; and windows on the command line."""

import json
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from streaming_core.api import App, Ring, i64, record
from streaming_core.errors import BadInput, RunFailed
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from tests.differential.windows import check_executed
from tests.streaming_core.language.windowed import Event, Output, Sum, counted, interpreted, pairs, summed


@record
class Untimed:
    n: i64


@record
class Sorted:
    ts: i64
    rate: Ring[i64, 3]


def slid(window, state):
    state.n = 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"advance": 0}, "window: advance must be between 1 and 2305843009213693952, got 0"),
        ({"advance": -3}, "window: advance must be between"),
        ({"advance": True}, "window: advance must be an integer, a text or None, got True"),
        ({"size": 0}, "window: size must be between 1 and 2305843009213693952, got 0"),
        ({"size": 1 << 63}, "window: size must be between"),
        ({"size": "f"}, "window: size must be between"),
        ({"size": "q"}, "unknown duration or parameter 'q'; known: p, f"),
        ({"size": 1}, "window: advance must be at most size (1), got 2"),
        ({"delay": -1}, "window: delay must be between 0 and"),
        ({"keys": None, "key": None, "every": "p"}, "window: every must be between 1 and"),
        ({"keys": None, "key": None, "every": 10**9}, "window: every must be between 1 and 1048576, got 1000000000"),
        ({"size": 1 << 61}, "window: a row has 1,152,921,504,606,846,976 windows (size / advance); at most 65,536"),
        ({"size": 1 << 40, "kind": "single", "slide": slid}, "window: a row has 549,755,813,888 windows"),
        ({"size": 1 << 17, "keys": None, "key": None, "every": 17}, "a row has 65,536 windows (size / advance) of 17"),
        ({"kind": "some"}, "window summed: unknown kind 'some'; known: multi, single, session"),
        ({"kind": "session"}, 'window summed: kind "session" has no advance'),
        ({"advance": None}, 'window summed: kind "multi" needs an advance'),
        ({"kind": "session", "advance": None, "slide": slid}, 'window summed: slide works only with kind="single"'),
        ({"multiplicity": "list"}, "window: unknown multiplicity 'list'; known: set, bag, or a parameter with one of"),
        ({"multiplicity": "p"}, "window: unknown multiplicity 0; known: set, bag, or a parameter with one of"),
        ({"every": 3}, "window summed: declare the keys in one way"),
        ({"keys": None}, "window summed: declare the keys in one way"),
        ({"key": "value"}, "window summed: declare the keys in one way"),
        ({"key": None, "keys": None}, "window summed: declare the keys in one way"),
        ({"key": "absent", "keys": None}, "window summed: all streams need a field 'absent' of the same type"),
        ({"key": Sorted}, "window summed: key field rate must be an integer or a text"),
        ({"keys": (pairs, pairs)}, "window summed: each stream needs one keys function; got 2 for 1 streams"),
        (
            {"update": (summed, summed)},
            "window summed: each stream needs one update function and one state; got 2 updates and 1 states",
        ),
        ({"slide": slid}, "window summed: slide works only with kind"),
        ({"result": slid}, "takes 2 arguments, but the call passes 3"),
    ],
)
def test_invalid_windows_are_refused(changed, message):
    with pytest.raises(BadInput, match=re.escape(message)):
        interpreted(counted(**changed), [])


def test_windows_require_rows_with_time():
    app = App("untimed")
    with pytest.raises(BadInput, match=r"window <lambda>: record Untimed\(n\) needs an integer field ts"):
        app.source(Untimed).window(size=1, advance=1).key_by(every=1).apply(
            update=lambda *args: None, state=Sum, output=Output
        )
    other = App("other").source(Event)
    with pytest.raises(BadInput, match="a stream of app other"):
        app.window(other, size=1, advance=1).key_by(every=1).apply(update=summed, state=Sum, output=Output)


def divides(row, window, state, out):
    state.total = row.value // (row.value - 7)


@pytest.mark.parametrize("make", [Interpreter, Loop])
def test_both_readers_name_a_failing_operator_with_its_event(make):
    table = pa.table({"seq": [0, 1, 2], "ts": [0, 1, 2], "keys": [1, 1, 1], "value": [1, 2, 7]})
    app = counted(update=divides)
    app.generates(lambda *args: {})
    with pytest.raises(RunFailed, match=r"operator divides, event 2: ZeroDivisionError: .*test_window_refusals.py:\d+"):
        make(app, app.bind({})).process(table)
    late = table.set_column(1, "ts", pa.array([0, 1, 1 << 62]))
    with pytest.raises(RunFailed, match=r"operator divides, event 2: OverflowError: "):
        make(app, app.bind({})).process(late)


def test_the_engine_names_a_failing_operator_with_its_event_and_window():
    table = pa.table({"seq": [0, 1, 2], "ts": [0, 1, 2], "keys": [1, 1, 3], "value": [1, 2, 7]})
    app = counted(update=divides)
    app.generates(lambda *args: {})
    why = r"operator divides failed at event 2 in window \[0, 4\): ZeroDivisionError: "
    for threads in (1, 3, 8):
        with pytest.raises(RunFailed, match=why):
            check_executed(app, app.bind({}), table, None, 0, ways=[(threads, 2, 10)])


def test_a_failing_operator_is_named_with_its_event():
    with pytest.raises(RunFailed, match=r"operator divides, event 2: ZeroDivisionError: .*test_window_refusals.py:\d+"):
        interpreted(counted(update=divides), [(0, 1, 1), (1, 1, 2), (2, 1, 7)])


WRITTEN = '''"""Windows in an application's file."""
import numpy as np

from streaming_core.api import App, i64, record

app = App("written")


@record
class Event:
    ts: i64
    user: i64


@record
class Count:
    n: i64


@record
class Counted:
    ts: i64
    user: i64
    n: i64


def moved(row, out):
    out.emit(ts=10 if row.ts == 99 else row.ts, user=row.user)


def seen(row, window, state, out):
    state.n += 1


def counted(window, state, out):
    out.emit(ts=window.end, user=window.key.user, n=state.n)


windows = app.source(Event).flat_map(moved, Event).window(advance=10, size=30).key_by("user")
windows.apply(state=Count, update=seen, result=counted, output=Counted).sink()


@app.generates
def events(params, seed, start, stop):
    return {"ts": np.arange(start, stop), "user": np.arange(start, stop) % 3}
'''


@pytest.mark.slow
def test_commands_run_windows(package, command, tmp_path, monkeypatch):
    (package / "written.py").write_text(WRITTEN)
    monkeypatch.chdir(tmp_path)
    assert command("generate", "written", "--events", 100, "--out", "w")[0] == 0
    code, stdout, _ = command("oracle", "written", "--input", "w", "--out", "o")
    first, _, last = stdout.strip().split(", ")
    assert (code, first, last) == (0, "o: 36 outputs", "1 events too late for every window")  # 12 windows, three users
    expected = Counter((10 * at + 30, n % 3) for n in range(99) for at in range(n // 10 - 2, n // 10 + 1))
    outputs = pa.parquet.read_table("o/outputs").to_pylist()
    assert {(row["ts"], row["user"]): row["n"] for row in outputs} == expected
    assert [row["ts"] for row in outputs] == sorted(row["ts"] for row in outputs)
    assert command("oracle", "written", "--input", "w", "--out", "c", "--mode", "compiled")[0] == 0
    assert pa.parquet.read_table("c/outputs").equals(pa.parquet.read_table("o/outputs"))
    for out, options in (("r", ()), ("s", ("--threads", 3, "--batch", 7, "--repetitions", 1, "--seconds", 0))):
        assert command("run", "written", "--input", "w", "--out", out, "--sink", "parquet", *options)[0] == 0
        code, stdout, _ = command("diff", out, "o")
        assert (code, stdout.splitlines()[0]) == (0, "equal: 36 outputs and 0 rows of final state")
    assert json.loads(Path("r/report.json").read_bytes())["samples"][0]["dropped_late"] == 1
    for options, why in (
        (("--executor", "pooled"), "application written does not run on pooled; it supports: pinned, spark"),
        (("--executor", "pinned", "--channel", "merge_sort"),
         "application written has windows: pinned runs it with channel gate"),
    ):  # fmt: skip
        assert command("run", "written", "--input", "w", "--out", "x", *options) == (2, "", f"streaming-core: {why}\n")
    assert not (tmp_path / "x").exists()


def test_an_operator_of_two_streams_cannot_run_alone():
    app = App("two")
    source = app.source(Event)
    app.window(source, source, size=1, advance=1).key_by(every=1).apply(
        update=(both, both), state=(Sum, Sum), output=Output
    ).sink()
    for part in (app.only, app.upto):
        with pytest.raises(BadInput, match="two: cannot record or run both alone, because it takes several streams"):
            part("both")
    assert counted().only("summed").operators[1].window.streams == (0,)


def both(row, window, mine, theirs, out):
    mine.n += 1
