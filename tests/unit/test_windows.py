"""Windows interpreted, against their definition worked out in another way: every row, every window, every key."""

import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from streaming_core.api import App, Param, Ring, Set, boolean, i64, record, text, u8
from streaming_core.apps.hashtag import Hashtag, Longest, LongestTweet, Tweet, hashtags, longer, longest
from streaming_core.errors import BadInput, RunFailed
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.interpreter.windows import GROUPS, key_group
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from tests.differential.windows import check_executed

MINUTE = 60_000


def interpreted(app, rows, end=None, **params):
    """What the interpreter makes of rows (tuples of the event's fields), and itself. The loop makes the same."""
    app.generates(lambda *args: {})
    interpreter = Interpreter(app, app.bind(params))
    kinds = interpreter.event.arrow()
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    table = pa.table(
        {"seq": pa.array(range(len(rows)), pa.int64())}
        | {field.name: pa.array(column, field.type) for field, column in zip(kinds, columns, strict=True)}
    )
    end = len(rows) if end is None else end
    made = pa.concat_tables([interpreter.process(table), interpreter.finish(end)])
    loop = Loop(app, app.bind(params))
    for _ in range(2):  # once more from the start
        half = len(rows) // 3
        parts = [loop.process(part) for part in (table[:half], table[half:])] + [loop.finish(end)]
        compare(app.name, made, pa.concat_tables(parts), "outputs")
        assert loop.dropped_late == interpreter.dropped_late
        assert loop.state() == {}
        loop.reset()
    check_executed(app, app.bind(params), table, made, interpreter.dropped_late, end)
    return made.to_pylist(), interpreter


def ordered(keys):
    """Keys in the order of their expiry, of which the first touched come first."""
    return sorted(keys, key=lambda key: key_group((key,) if not isinstance(key, tuple) else key))


# --- the paper's example ---------------------------------------------------------------------------------------------


def test_the_longest_tweet_of_each_hashtag_as_the_paper_traces_it():
    """STRETCH, appendices C to E: figure 15 and listing 16."""
    app = App("longest")
    app.source(Tweet).window(
        keys=hashtags, key=Hashtag, advance=30 * MINUTE, size=60 * MINUTE, state=Longest, update=longer,
        result=longest, output=LongestTweet,
    ).sink()  # fmt: skip

    def at(hour, minute):
        return (60 * hour + minute) * MINUTE

    made, _ = interpreted(
        app, [(at(9, 50), 1, b"hello #pink"), (at(9, 58), 2, b"hi #red #pink"), (at(10, 0), 3, b"nothing # at all")]
    )
    first = {(row["seq"], row["ts"], row["hashtag"], row["chars"]) for row in made if row["ts"] == at(10, 0)}
    assert first == {(2, at(10, 0), b"red", 13), (2, at(10, 0), b"pink", 13)}
    assert [(row["ts"], row["hashtag"]) for row in made] == [
        (end, tag) for end in (at(10, 0), at(10, 30)) for tag in ordered([b"pink", b"red"])
    ]
    assert [row["seq"] for row in made] == [2, 2, 3, 3]


# --- any windows -----------------------------------------------------------------------------------------------------


@record
class Event:
    ts: i64
    keys: i64
    value: i64


@record
class Pair:
    a: i64
    b: i64


@record
class Sum:
    n: i64
    total: i64
    first: i64


@record
class Found:
    ts: i64
    start: i64
    a: i64
    b: i64
    n: i64
    total: i64
    first: i64


def pairs(row, keys):
    """Keys of two parts, of which some are given twice; of some rows none."""
    for i in range(row.keys):
        keys.add(a=(row.value + i) % 3, b=i % 2)


def summed(row, window, state, out):
    if state.n == 0:
        state.first = row.seq
    state.n += 1
    state.total += row.value


def told(window, state, out):
    out.emit(
        ts=window.end, start=window.start, a=window.key.a, b=window.key.b, n=state.n, total=state.total,
        first=state.first,
    )  # fmt: skip


def keys_of(value, count, is_set):
    given = [((value + i) % 3, i % 2) for i in range(count)]
    return list(dict.fromkeys(given)) if is_set else given


def expected_sums(rows, advance, size, delay, is_set):
    """From the definition: all windows that any row falls in, each asked of every row."""
    latest, sums, touched, late = None, {}, {}, 0
    expiries = defaultdict(list)
    for seq, (ts, count, value) in enumerate(rows):
        latest = ts if latest is None else max(latest, ts)
        windows = [at for at in range(ts // advance - size // advance - 2, ts // advance + 2)
                   if at * advance <= ts < at * advance + size and at * advance + size > latest - delay]  # fmt: skip
        late += not windows
        for at in windows:
            for key in keys_of(value, count, is_set):
                n, total, first = sums.get((at, key), (0, 0, seq))
                sums[at, key] = n + 1, total + value, first
                touched.setdefault((at, key), len(touched))
    reached = None
    for at, key in sorted(sums, key=lambda one: (one[0], key_group(one[1]), touched[one])):
        end = at * advance + size
        reached = next((i for i, row in enumerate(rows) if max(r[0] for r in rows[: i + 1]) - delay >= end), len(rows))
        expiries[reached].append((end, at * advance, *key, *sums[at, key]))
    return [(seq, *row) for seq in sorted(expiries) for row in expiries[seq]], late


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("multiplicity", ["set", "bag"])
def test_windows_are_what_their_definition_says(seed, multiplicity):
    rng = np.random.default_rng([seed, len(multiplicity)])
    advance = int(rng.integers(1, 9))
    size = advance + int(rng.integers(0, 20))  # divided by the advance, or not
    delay = int(rng.integers(0, 12)) if seed % 2 else 0
    steps = rng.choice([0, 0, 1, 2, 40], 120)
    ts = np.cumsum(steps) - 5 - (rng.integers(0, 2 * delay + 1, 120) if delay else 0)  # some too late, some below zero
    rows = [(int(t), int(rng.integers(0, 5)), int(rng.integers(0, 50))) for t in ts]
    app = App("sums", params={"advance": Param(advance), "late": Param(delay), "given": Param("set")})
    app.source(Event).window(
        keys=pairs, key=Pair, advance="advance", size=size, delay="late",
        multiplicity="given" if seed % 3 else multiplicity, state=Sum, update=summed, result=told, output=Found,
    ).sink()  # fmt: skip
    made, interpreter = interpreted(app, rows, given=multiplicity)
    wanted, late = expected_sums(rows, advance, size, delay, multiplicity == "set")
    assert [tuple(v for k, v in row.items() if k != "sub") for row in made] == wanted
    assert interpreter.dropped_late == late
    assert interpreter.state() == {}  # everything has expired


@record
class Recent:
    values: Ring[i64, 1000]
    times: Ring[i64, 1000]
    purged: i64


def remembered(row, window, state, out):
    state.values.append(row.value)
    state.times.append(row.ts)


def purge(window, state):
    while state.purged < len(state.times) and state.times[state.purged] < window.start:
        state.purged += 1


def recalled(window, state, out):
    total = 0
    for i in range(state.purged, len(state.values)):
        total += state.values[i]
    out.emit(
        ts=window.end, start=window.start, a=window.key.a, b=window.key.b, n=len(state.values) - state.purged,
        total=total, first=0,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_a_single_window_that_slides_finds_what_many_find(seed):
    """The same aggregate with one set of states per key, purged as it slides, and with one per window."""
    rng = np.random.default_rng(seed)
    advance = int(rng.integers(1, 6))
    size = advance * int(rng.integers(1, 4)) + int(rng.integers(0, 3))
    rows = [
        (int(t), int(rng.integers(0, 4)), int(rng.integers(0, 9))) for t in np.cumsum(rng.choice([0, 1, 3, 60], 90))
    ]
    made = []
    for kind, state, update, result, slide in (
        ("multi", Sum, summed, told, None), ("single", Recent, remembered, recalled, purge)
    ):  # fmt: skip
        app = App(f"sums_{kind}")
        app.source(Event).window(
            keys=pairs, key=Pair, advance=advance, size=size, kind=kind, state=state, update=update, result=result,
            slide=slide, output=Found,
        ).sink()  # fmt: skip
        found, interpreter = interpreted(app, rows)
        made.append(Counter((r["seq"], r["ts"], r["start"], r["a"], r["b"], r["n"], r["total"]) for r in found))
        assert interpreter.dropped_late == 0
    assert made[0] == made[1]
    assert made[0]


# --- windows behind windows, and texts -------------------------------------------------------------------------------


@record
class Said:
    ts: i64
    line: text
    number: i64


@record
class Phrase:
    number: u8
    first: text
    rest: text
    is_long: boolean


@record
class Phrases:
    ts: i64
    number: i64
    first: text
    rest: text
    is_long: boolean
    n: i64
    seen: i64


@record
class Seen:
    n: i64
    numbers: Set[i64]


@record
class Ends:
    ts: i64
    rest: text
    n: i64
    total: i64


def phrases(row, keys):
    """The line, cut in two in every third place."""
    for at in range(0, len(row.line) + 1, 3):
        keys.add(number=row.number % 2, first=row.line[0:at], rest=row.line[at:], is_long=len(row.line) > 16)


def said(row, window, state, out):
    state.n += 1
    if state.numbers.add(row.number):
        out.emit(
            ts=window.end, number=row.number, first=window.key.first, rest=row.line, is_long=window.key.is_long,
            n=-state.n, seen=len(state.numbers),
        )  # fmt: skip


def ended(window, state, out):
    out.emit(
        ts=window.end, number=window.key.number, first=window.key.first, rest=window.key.rest,
        is_long=window.key.is_long, n=state.n, seen=len(state.numbers),
    )  # fmt: skip


def by_end(row, window, state, out):
    state.n += 1
    state.total += row.n


def every_end(window, state, out):
    out.emit(ts=window.end, rest=window.key.rest, n=state.n, total=state.total)


def behind(name, **second):
    """Windows behind windows, whose update and result both emit texts of rows and of keys."""
    app = App(name)
    first = app.source(Said).window(
        keys=phrases, key=Phrase, advance=3, size=7, delay=2, state=Seen, update=said, result=ended, output=Phrases
    )
    first.window(key="rest", state=Sum, update=by_end, result=every_end, output=Ends, **second).sink()
    return app


@pytest.mark.parametrize("seed", range(6))
def test_windows_behind_windows_and_texts_of_any_length(seed):
    """What is put out by the update of the first ones goes back in time: the second ones drop what is late."""
    rng = np.random.default_rng(seed)
    ts = np.cumsum(rng.choice([0, 1, 9], 60)) - rng.integers(0, 4, 60)
    lines = [b"", b"abc", b"abcdefghabcdefgh", b"abcdefghabcdefghi", bytes(range(60)), b"abcdefgh\0bcdefgh"]
    rows = [(int(t), lines[int(rng.integers(0, 6))], int(rng.integers(0, 4))) for t in ts]
    made, interpreter = interpreted(behind("late", advance=2, size=5), rows)
    assert interpreter.dropped_late > 0
    assert made
    patient, interpreter = interpreted(behind("patient", advance=2, size=5, delay=60), rows)
    assert sum(row["n"] for row in patient) > sum(row["n"] for row in made)


# --- several streams -------------------------------------------------------------------------------------------------


@record
class Left:
    ts: i64
    x: i64


@record
class Right:
    ts: i64
    y: i64


@record
class Times:
    ts: Ring[i64, 1000]
    values: Ring[i64, 1000]


@record
class Match:
    ts: i64
    key: i64
    x: i64
    y: i64


def to_left(row, out):
    if row.keys == 0:
        out.emit(ts=row.ts, x=row.value)


def to_right(row, out):
    if row.keys == 1:
        out.emit(ts=row.ts, y=row.value)


def from_left(row, window, lefts, rights, out):
    for i in range(len(rights.ts)):
        if rights.ts[i] >= window.start and rights.values[i] % 3 == window.key.index:
            out.emit(ts=window.end, key=window.key.index, x=row.x, y=rights.values[i])
    lefts.ts.append(row.ts)
    lefts.values.append(row.x)


def from_right(row, window, lefts, rights, out):
    for i in range(len(lefts.ts)):
        if lefts.ts[i] >= window.start and row.y % 3 == window.key.index:
            out.emit(ts=window.end, key=window.key.index, x=lefts.values[i], y=row.y)
    rights.ts.append(row.ts)
    rights.values.append(row.y)


@pytest.mark.parametrize("seed", range(4))
def test_a_join_of_two_streams_meets_every_pair_once(seed):
    """`every`: each row has all keys, and one of them makes a pair. Nobody is told of an expiry."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(5, 30))
    rows = [
        (int(t), int(rng.integers(0, 2)), int(rng.integers(0, 9))) for t in np.cumsum(rng.choice([0, 1, 2, 50], 80))
    ]
    app = App("joined", params={"n": Param(3)})
    source = app.source(Event)
    left, right = source.flat_map(to_left, Left), source.flat_map(to_right, Right)
    app.window(
        left, right, every="n", advance=1, size=size, kind="single", state=(Times, Times),
        update=(from_left, from_right), output=Match,
    ).sink()  # fmt: skip
    made, _ = interpreted(app, rows)
    wanted = Counter()
    for i, (ts, side, value) in enumerate(rows):
        for before, other, theirs in rows[:i]:
            if side != other and before > ts - size:
                x, y = (value, theirs) if side == 0 else (theirs, value)
                wanted[i, ts + 1, y % 3, x, y] += 1
    assert Counter((r["seq"], r["ts"], r["key"], r["x"], r["y"]) for r in made) == wanted
    assert wanted


# --- keys, and what is refused ---------------------------------------------------------------------------------------


def test_key_groups_are_those_of_the_runtime():
    """Published: runtime/src/state/key_group.rs holds the same vectors."""
    assert key_group((0,)) == 0x7837_0140_C1AB_1441 * GROUPS >> 64
    assert key_group((b"lockstep!",)) == 0xF879_29D7_8C02_A65B * GROUPS >> 64
    assert key_group((-1,)) == key_group(((1 << 64) - 1,))
    assert len({key_group((b"a", i)) for i in range(100)} | {key_group((i, b"a")) for i in range(100)}) > 150


def counted(**changed):
    app = App("counted", params={"p": Param(0), "f": Param(0.5)})
    source = app.source(Event)
    declared = {
        "keys": pairs, "key": Pair, "advance": 2, "size": 4, "state": Sum, "update": summed, "result": told,
        "output": Found,
    }  # fmt: skip
    source.window(**(declared | changed)).sink()
    return app


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
    ("changed", "said"),
    [
        ({"advance": 0}, "window: advance 0 must lie in 1..2305843009213693952"),
        ({"advance": -3}, "window: advance -3 must lie in"),
        ({"advance": True}, "window: advance True must lie in"),
        ({"size": 0}, "window: size 0 must lie in"),
        ({"size": 1 << 63}, "window: size 9223372036854775808 must lie in"),
        ({"size": "f"}, "window: size 0.5 must lie in"),
        ({"size": "q"}, "window: size: no parameter 'q'; known: p, f"),
        ({"size": 1}, "window: advance 2 is beyond size 1: rows would be lost"),
        ({"delay": -1}, "window: delay -1 must lie in 0.."),
        ({"keys": None, "key": None, "every": "p"}, "window: every 0 must lie in 1.."),
        ({"kind": "single", "delay": 3}, "window: a single window slides in order: delay must be 0, not 3"),
        ({"kind": "some"}, "window summed: unknown kind 'some'; known: multi, single"),
        ({"multiplicity": "list"}, "window: unknown multiplicity 'list'; known: set, bag, and parameters that are"),
        ({"multiplicity": "p"}, "window: unknown multiplicity 0; known: set, bag, and parameters that are one of"),
        ({"every": 3}, "window summed: keys are one of: key=field; key=record with keys=function; every=number"),
        ({"keys": None}, "window summed: keys are one of"),
        ({"key": "value"}, "window summed: keys are one of"),
        ({"key": None, "keys": None}, "window summed: keys are one of"),
        ({"key": "nobody", "keys": None}, "window summed: not all streams have a field 'nobody' of one type"),
        ({"key": Sorted}, "window summed: key: rate is neither an integer nor a text"),
        ({"keys": (pairs, pairs)}, "window summed: 1 streams need as many keys functions, not 2"),
        ({"update": (summed, summed)}, "window summed: 1 streams need as many updates and states, not 2, 1"),
        ({"slide": slid}, "window summed: a multi window does not slide"),
        ({"result": slid}, "takes 2 arguments, is given 3"),
    ],
)
def test_windows_that_make_no_sense_are_refused(changed, said):
    with pytest.raises(BadInput, match=said.replace("(", r"\(")):
        interpreted(counted(**changed), [])


def test_rows_without_time_have_no_windows():
    app = App("untimed")
    with pytest.raises(BadInput, match=r"window <lambda>: record Untimed\(n\) has no integer field ts"):
        app.source(Untimed).window(every=1, advance=1, size=1, state=Sum, update=lambda *args: None, output=Found)
    other = App("other").source(Event)
    with pytest.raises(BadInput, match="a stream of app other"):
        app.window(other, every=1, advance=1, size=1, state=Sum, update=summed, output=Found)


def divides(row, window, state, out):
    state.total = row.value // (row.value - 7)


@pytest.mark.parametrize("make", [Interpreter, Loop])
def test_an_operator_that_raises_is_named_with_its_event_by_both(make):
    table = pa.table({"seq": [0, 1, 2], "ts": [0, 1, 2], "keys": [1, 1, 1], "value": [1, 2, 7]})
    app = counted(update=divides)
    app.generates(lambda *args: {})
    with pytest.raises(RunFailed, match=r"operator divides, event 2: ZeroDivisionError: .*test_windows.py:\d+"):
        make(app, app.bind({})).process(table)
    late = table.set_column(1, "ts", pa.array([0, 1, 1 << 62]))
    with pytest.raises(RunFailed, match=r"operator divides, event 2: OverflowError: "):
        make(app, app.bind({})).process(late)


def test_an_operator_that_raises_is_named_with_its_event_and_window_by_the_engine():
    table = pa.table({"seq": [0, 1, 2], "ts": [0, 1, 2], "keys": [1, 1, 3], "value": [1, 2, 7]})
    app = counted(update=divides)
    app.generates(lambda *args: {})
    why = r"operator divides failed at event 2 in window \[0, 4\): ZeroDivisionError: "
    for threads in (1, 3, 8):
        with pytest.raises(RunFailed, match=why):
            check_executed(app, app.bind({}), table, None, 0, ways=[(threads, 2, 10)])


def test_an_operator_that_raises_is_named_with_its_event():
    with pytest.raises(RunFailed, match=r"operator divides, event 2: ZeroDivisionError: .*test_windows.py:\d+"):
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


app.source(Event).flat_map(moved, Event).window(
    key="user", advance=10, size=30, state=Count, update=seen, result=counted, output=Counted
).sink()


@app.generates
def events(params, seed, start, stop):
    return {"ts": np.arange(start, stop), "user": np.arange(start, stop) % 3}
'''


def test_commands_run_windows(package, command, tmp_path, monkeypatch):
    (package / "written.py").write_text(WRITTEN)
    monkeypatch.chdir(tmp_path)
    assert command("generate", "written", "--events", 100, "--out", "w")[0] == 0
    code, said, _ = command("oracle", "written", "--input", "w", "--out", "o")
    first, _, last = said.strip().split(", ")
    assert (code, first, last) == (0, "o: 36 outputs", "too late for any window: 1")  # 12 windows, three users
    expected = Counter((10 * at + 30, n % 3) for n in range(99) for at in range(n // 10 - 2, n // 10 + 1))
    outputs = pa.parquet.read_table("o/outputs").to_pylist()
    assert {(row["ts"], row["user"]): row["n"] for row in outputs} == expected
    assert [row["ts"] for row in outputs] == sorted(row["ts"] for row in outputs)
    assert command("oracle", "written", "--input", "w", "--out", "c", "--mode", "compiled")[0] == 0
    assert pa.parquet.read_table("c/outputs").equals(pa.parquet.read_table("o/outputs"))
    for out, options in (("r", ()), ("s", ("--threads", 3, "--batch", 7, "--repetitions", 1, "--seconds", 0))):
        assert command("run", "written", "--input", "w", "--out", out, "--sink", "parquet", *options)[0] == 0
        code, said, _ = command("diff", out, "o")
        assert (code, said.splitlines()[0]) == (0, "equal: 36 outputs and 0 rows of final state")
    assert json.loads(Path("r/report.json").read_bytes())["samples"][0]["dropped_late"] == 1
    for options, why in (
        (("--executor", "pooled"), "application written does not run on pooled; it supports: pinned"),
        (("--executor", "pinned", "--channel", "merge_sort"),
         "application written has windows: pinned runs it with channel scalegate"),
    ):  # fmt: skip
        assert command("run", "written", "--input", "w", "--out", "x", *options) == (2, "", f"streaming-core: {why}\n")
    assert not (tmp_path / "x").exists()


def test_an_app_of_two_streams_is_not_run_alone():
    app = App("two")
    source = app.source(Event)
    app.window(
        source, source, every=1, advance=1, size=1, state=(Sum, Sum), update=(both, both), output=Found
    ).sink()  # fmt: skip
    for part in (app.only, app.upto):
        with pytest.raises(BadInput, match="two: both takes several streams, and cannot be recorded or run alone"):
            part("both")
    assert counted().only("summed").operators[1].window.streams == (0,)


def both(row, window, mine, theirs, out):
    mine.n += 1
