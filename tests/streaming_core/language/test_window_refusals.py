"""Invalid windows and failing window operators: their errors; and windows on the command line."""

import re

import pyarrow as pa
import pyarrow.parquet
import pytest

from streaming_core.api import App, Ring, i64, record, tumbling
from streaming_core.errors import BadInput, RunFailed
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
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
        ({"advance": True}, "sliding: every must be an integer or a text, got True"),
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
        ({"kind": "session", "slide": slid}, "window summed: slide goes only with rolling windows; remove slide, or"),
        (
            {"kind": "session", "size": 5, "most": 4},
            "window: most must be between 5 and 2305843009213693952, got 4",
        ),
        ({"kind": "session", "most": 1.5}, "session: most must be an integer, a text or None, got 1.5"),
        ({"multiplicity": "list"}, "window: unknown multiplicity 'list'; known: set, bag, or a parameter with one of"),
        ({"multiplicity": "p"}, "window: unknown multiplicity 0; known: set, bag, or a parameter with one of"),
        ({"every": 3}, "key_by takes the key in one way"),
        ({"keys": None}, "key_by takes the key in one way"),
        ({"key": "value"}, "key_by takes the key in one way"),
        ({"key": None, "keys": None}, "key_by takes the key in one way"),
        (
            {"key": "absent", "keys": None},
            "key_by('absent'): 'absent' is no key; Event has the integer",
        ),
        ({"key": Sorted}, "key_by: key field rate must be an integer or a text"),
        ({"keys": (pairs, pairs)}, "key_by: each stream needs one keys function; got 2 for 1 streams"),
        (
            {"update": (summed, summed)},
            "window summed: each stream needs one update function and one state; got 2 updates and 1 states",
        ),
        ({"slide": slid}, "window summed: slide goes only with rolling"),
        ({"result": slid}, "takes 2 arguments, but the call passes 3"),
    ],
)
def test_invalid_windows_are_refused(changed, message):
    with pytest.raises(BadInput, match=re.escape(message)):
        interpreted(counted(**changed), [])


def test_windows_require_rows_with_time():
    app = App("untimed")
    with pytest.raises(BadInput, match=r"window <lambda>: record Untimed\(n\) needs an integer field ts"):
        app.source(Untimed).window(tumbling(1)).apply(update=lambda *args: None, state=Sum, output=Output)
    other = App("other").source(Event)
    with pytest.raises(BadInput, match="a stream of app other"):
        app.connect(other)


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


def test_an_operator_of_two_streams_cannot_run_alone():
    app = App("two")
    source = app.source(Event)
    app.connect(source, source).window(tumbling(1)).apply(update=(both, both), state=(Sum, Sum), output=Output).sink()
    for part in (app.only, app.upto):
        with pytest.raises(BadInput, match="two: cannot record or run both alone, because it takes several streams"):
            part("both")
    assert counted().only("summed").operators[1].window.streams == (0,)


def both(row, window, mine, theirs, out):
    mine.n += 1
