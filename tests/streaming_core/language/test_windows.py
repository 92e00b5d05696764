"""Interpreted windows against an independent definition: every row, every window, every key."""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Param, Ring, Set, boolean, i64, record, text, u8
from streaming_core.apps.hashtag import Hashtag, Longest, LongestTweet, Tweet, hashtags, longer, longest
from streaming_core.data.agreement import outputs_digest
from streaming_core.data.digest import format_digest
from streaming_core.errors import BadInput, RunFailed
from streaming_core.kernels.program import compile_app
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.interpreter.windows import GROUPS, key_group
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.way import Pinned
from tests.differential.case import Events
from tests.differential.windows import drawn_schedule
from tests.streaming_core.language.windowed import Event, Output, Pair, Sum, emit_sums, interpreted, pairs, summed
from tests.support.draws import seeds, some
from tests.support.windows import declare_window

MINUTE = 60_000


def ordered(keys):
    """Keys in the order of their expiry; keys of one group keep the order of first use."""
    return sorted(keys, key=lambda key: key_group((key,) if not isinstance(key, tuple) else key))


# --- the paper's example ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_longest_tweet_of_each_hashtag_matches_the_papers_trace():
    """STRETCH, appendices C to E: figure 15 and listing 16."""
    app = App("longest")
    app.source(Tweet).window(size=60 * MINUTE, advance=30 * MINUTE).key_by(Hashtag, keys=hashtags).apply(
        update=longer, state=Longest, output=LongestTweet, result=longest
    ).sink()

    def at(hour, minute):
        return (60 * hour + minute) * MINUTE

    outputs, _ = interpreted(
        app, [(at(9, 50), 1, b"hello #pink"), (at(9, 58), 2, b"hi #red #pink"), (at(10, 0), 3, b"nothing # at all")]
    )
    first = {(row["seq"], row["ts"], row["hashtag"], row["chars"]) for row in outputs if row["ts"] == at(10, 0)}
    assert first == {(2, at(10, 0), b"red", 13), (2, at(10, 0), b"pink", 13)}
    assert [(row["ts"], row["hashtag"]) for row in outputs] == [
        (end, tag) for end in (at(10, 0), at(10, 30)) for tag in ordered([b"pink", b"red"])
    ]
    assert [row["seq"] for row in outputs] == [2, 2, 3, 3]


# --- any windows -----------------------------------------------------------------------------------------------------


def keys_of(value, count, is_set):
    keys = [((value + i) % 3, i % 2) for i in range(count)]
    return list(dict.fromkeys(keys)) if is_set else keys


def expected_sums(rows, advance, size, delay, is_set):
    """Sums by definition: tests every row against every window that contains any row."""
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


@pytest.mark.parametrize("seed", seeds(1, of=12))
@pytest.mark.parametrize("multiplicity", some(["set", "bag"]))
def test_windows_match_their_definition(seed, multiplicity):
    rng = np.random.default_rng([seed, len(multiplicity)])
    advance = int(rng.integers(1, 9))
    size = advance + int(rng.integers(0, 20))  # divided by the advance, or not
    delay = int(rng.integers(0, 12)) if seed % 2 else 0
    steps = rng.choice([0, 0, 1, 2, 40], 120)
    ts = np.cumsum(steps) - 5 - (rng.integers(0, 2 * delay + 1, 120) if delay else 0)  # some too late, some below zero
    rows = [(int(t), int(rng.integers(0, 5)), int(rng.integers(0, 50))) for t in ts]
    app = App("sums", params={"advance": Param(advance), "late": Param(delay), "multiplicity": Param("set")})
    app.source(Event).window(size=size, advance="advance", delay="late").key_by(
        Pair, keys=pairs, multiplicity="multiplicity" if seed % 3 else multiplicity
    ).apply(update=summed, state=Sum, output=Output, result=emit_sums).sink()
    outputs, interpreter = interpreted(app, rows, multiplicity=multiplicity)
    wanted, late = expected_sums(rows, advance, size, delay, multiplicity == "set")
    assert [tuple(v for k, v in row.items() if k != "sub") for row in outputs] == wanted
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
@pytest.mark.slow
def test_a_sliding_single_window_equals_multiple_windows(seed):
    """One aggregate with a sliding state per key equals the aggregate with a state per window."""
    rng = np.random.default_rng(seed)
    advance = int(rng.integers(1, 6))
    size = advance * int(rng.integers(1, 4)) + int(rng.integers(0, 3))
    rows = [
        (int(t), int(rng.integers(0, 4)), int(rng.integers(0, 9))) for t in np.cumsum(rng.choice([0, 1, 3, 60], 90))
    ]
    counts = []
    for kind, state, update, result, slide in (
        ("multi", Sum, summed, emit_sums, None), ("single", Recent, remembered, recalled, purge)
    ):  # fmt: skip
        app = App(f"sums_{kind}")
        app.source(Event).window(size=size, advance=advance, kind=kind).key_by(Pair, keys=pairs).apply(
            update=update, state=state, output=Output, result=result, slide=slide
        ).sink()
        outputs, interpreter = interpreted(app, rows)
        counts.append(Counter((r["seq"], r["ts"], r["start"], r["a"], r["b"], r["n"], r["total"]) for r in outputs))
        assert interpreter.dropped_late == 0
    assert counts[0] == counts[1]
    assert counts[0]


# --- sessions --------------------------------------------------------------------------------------------------------


def expected_sessions(rows, gap):
    """Sessions by definition: the rows of each key, split where the watermark reaches the end of a session."""
    reached = np.maximum.accumulate([ts for ts, _, _ in rows])
    late = [ts + gap <= reached[seq] for seq, (ts, _, _) in enumerate(rows)]
    sessions = []  # (key, rows) of each session
    touched = {}  # key -> its open session
    for seq, (ts, count, value) in enumerate(rows):
        for key in [] if late[seq] else keys_of(value, count, True):
            session = touched.get(key)
            if session is None or max(t for _, t, _ in session[1]) + gap <= reached[seq]:
                session = touched[key] = (key, [])
                sessions.append(session)
            session[1].append((seq, ts, value))
    rows_out = []
    for number, (key, members) in enumerate(sessions):
        end = max(ts for _, ts, _ in members) + gap
        at = next((seq for seq in range(len(rows)) if reached[seq] >= end), len(rows))
        start, total = min(ts for _, ts, _ in members), sum(value for _, _, value in members)
        rows_out.append((at, end, key_group(key), number, start, *key, len(members), total, members[0][0]))
    return [(at, end, *rest) for at, end, _, _, *rest in sorted(rows_out)], sum(late)


@pytest.mark.parametrize("base", [0, -(1 << 61), (1 << 61) - 2000])
@pytest.mark.parametrize("seed", seeds(1, of=12))
def test_sessions_match_their_definition(seed, base):
    rng = np.random.default_rng([seed, abs(base) % 97])
    gap = int(rng.integers(1, 25))
    steps = np.cumsum(rng.choice([0, 0, 1, 2, 40], 120)) + 30 - rng.choice([0, 0, 3, 30], 120)
    rows = [(base + int(t), int(rng.integers(0, 5)), int(rng.integers(0, 50))) for t in steps]
    app = App("sessions", params={"gap": Param(gap)})
    app.source(Event).window(size="gap", kind="session").key_by(Pair, keys=pairs).apply(
        update=summed, state=Sum, output=Output, result=emit_sums
    ).sink()
    outputs, interpreter = interpreted(app, rows)
    wanted, late = expected_sessions(rows, gap)
    assert [tuple(v for k, v in row.items() if k != "sub") for row in outputs] == wanted
    assert interpreter.dropped_late == late
    assert interpreter.state() == {}


def emit_value(window, state, out):
    out.emit(ts=window.end, start=window.start, a=window.key.value, b=0, n=state.n, total=0, first=state.first)


@pytest.mark.slow
def test_sessions_of_a_key_group_with_equal_ends_leave_in_order_of_first_rows():
    """Until late, the first session appears to end before the other one."""
    group = key_group((0,))
    one, other = itertools.islice((key for key in itertools.count() if key_group((key,)) == group), 2)
    app = App("together")
    app.source(Event).window(size=10, kind="session").key_by("value").apply(
        update=summed, state=Sum, output=Output, result=emit_value
    ).sink()
    rows = [(0, one), (1, other), (4, one), (5, other), (10, 7), (11, 7), (5, one), (14, 7), (15, 7)]
    outputs, _ = interpreted(app, [(ts, 0, key) for ts, key in rows])
    assert [(row["seq"], row["ts"], row["a"]) for row in outputs] == [(8, 15, one), (8, 15, other), (9, 25, 7)]


@pytest.mark.slow
def test_sessions_of_shared_keys_end_together():
    keys = 5000
    app = App("every")
    app.source(Event).window(size=10, kind="session").key_by(every=keys).apply(
        update=summed, state=Sum, output=Output, result=emit_index
    ).sink()
    outputs, _ = interpreted(app, [(0, 0, 1), (4, 0, 1), (9, 0, 1), (40, 0, 1)])
    assert [row["ts"] for row in outputs] == [19] * keys + [50] * keys
    assert [row["a"] for row in outputs[:keys]] == [row["a"] for row in outputs[keys:]]


def emit_index(window, state, out):
    out.emit(
        ts=window.end, start=window.start, a=window.key.index, b=0, n=state.n, total=state.total, first=state.first
    )


def from_pair(row, window, mine, theirs, out):
    mine.n += 1
    theirs.total += row.value


def from_other(row, window, theirs, mine, out):
    mine.n += 1
    out.emit(ts=window.end, start=window.start, a=window.key.value, b=mine.n, n=theirs.n, total=mine.total, first=0)


def emit_both(window, one, other, out):
    out.emit(ts=window.end, start=window.start, a=window.key.value, b=other.n, n=one.n, total=other.total, first=1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.slow
def test_a_session_of_several_streams_holds_the_rows_of_all(seed):
    rng = np.random.default_rng(seed)
    steps = np.cumsum(rng.choice([0, 1, 9], 90))
    rows = [(int(t), 0, int(rng.integers(0, 4))) for t in steps]
    app = App("both")
    source = app.source(Event)
    app.window(source, source, size=7, kind="session").key_by("value").apply(
        update=(from_pair, from_other), state=(Sum, Sum), output=Output, result=emit_both
    ).sink()
    outputs, _ = interpreted(app, rows)
    ends = [row for row in outputs if row["first"] == 1]
    assert sum(row["n"] for row in ends) == sum(row["b"] for row in ends) == len(rows)
    assert len(outputs) == len(rows) + len(ends)


@pytest.mark.slow
def test_sessions_without_a_result_function_still_expire():
    app = App("silent")
    app.source(Event).window(size=5, kind="session").key_by("value").apply(
        update=numbered, state=Sum, output=Output
    ).sink()
    outputs, _ = interpreted(app, [(0, 0, 1), (4, 0, 1), (8, 0, 1), (13, 0, 1), (14, 0, 2), (14, 0, 1)])
    assert [(row["start"], row["ts"], row["n"]) for row in outputs] == [
        (0, 5, 1), (0, 9, 2), (0, 13, 3), (13, 18, 1), (14, 19, 1), (13, 19, 2),
    ]  # fmt: skip


def numbered(row, window, state, out):
    state.n += 1
    out.emit(ts=window.end, start=window.start, a=0, b=0, n=state.n, total=0, first=0)


# --- windows behind windows, and texts -------------------------------------------------------------------------------


@record
class Line:
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
    """The line, cut in two at every third position."""
    for at in range(0, len(row.line) + 1, 3):
        keys.add(number=row.number % 2, first=row.line[0:at], rest=row.line[at:], is_long=len(row.line) > 16)


def emit_line(row, window, state, out):
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
    """Windows after windows, whose update and result both emit texts of rows and of keys."""
    app = App(name)
    first = (
        app.source(Line)
        .window(size=7, advance=3, delay=2)
        .key_by(Phrase, keys=phrases)
        .apply(update=emit_line, state=Seen, output=Phrases, result=ended)
    )
    declare_window(first, key="rest", state=Sum, update=by_end, result=every_end, output=Ends, **second).sink()
    return app


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.slow
def test_windows_after_windows_handle_texts_of_any_length(seed):
    """Updates of the first windows emit rows out of order, so the second windows drop late rows."""
    rng = np.random.default_rng(seed)
    ts = np.cumsum(rng.choice([0, 1, 9], 60)) - rng.integers(0, 4, 60)
    lines = [b"", b"abc", b"abcdefghabcdefgh", b"abcdefghabcdefghi", bytes(range(60)), b"abcdefgh\0bcdefgh"]
    rows = [(int(t), lines[int(rng.integers(0, 6))], int(rng.integers(0, 4))) for t in ts]
    outputs, interpreter = interpreted(behind("late", advance=2, size=5), rows)
    assert interpreter.dropped_late > 0
    assert outputs
    patient, interpreter = interpreted(behind("patient", advance=2, size=5, delay=60), rows)
    assert sum(row["n"] for row in patient) > sum(row["n"] for row in outputs)


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


@pytest.mark.parametrize("seed", seeds(1, of=4))
def test_a_join_of_two_streams_emits_every_pair_once(seed):
    """`every`: each row has all keys, and one of them makes a pair. No operator observes an expiry."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(5, 30))
    rows = [
        (int(t), int(rng.integers(0, 2)), int(rng.integers(0, 9))) for t in np.cumsum(rng.choice([0, 1, 2, 50], 80))
    ]
    app = App("joined", params={"n": Param(3)})
    source = app.source(Event)
    left, right = source.flat_map(to_left, Left), source.flat_map(to_right, Right)
    app.window(left, right, size=size, advance=1, kind="single").key_by(every="n").apply(
        update=(from_left, from_right), state=(Times, Times), output=Match
    ).sink()
    outputs, _ = interpreted(app, rows)
    wanted = Counter()
    for i, (ts, side, value) in enumerate(rows):
        for before, other, theirs in rows[:i]:
            if side != other and before > ts - size:
                x, y = (value, theirs) if side == 0 else (theirs, value)
                wanted[i, ts + 1, y % 3, x, y] += 1
    assert Counter((r["seq"], r["ts"], r["key"], r["x"], r["y"]) for r in outputs) == wanted
    assert wanted


def test_key_groups_equal_the_runtimes():
    """Published: runtime/src/state/key_group.rs holds the same vectors."""
    assert key_group((0,)) == 0x7837_0140_C1AB_1441 * GROUPS >> 64
    assert key_group((b"lockstep!",)) == 0xF879_29D7_8C02_A65B * GROUPS >> 64
    assert key_group((-1,)) == key_group(((1 << 64) - 1,))
    assert len({key_group((b"a", i)) for i in range(100)} | {key_group((i, b"a")) for i in range(100)}) > 150


# --- many windowed operators in a row --------------------------------------------------------------------------------


def several(row, keys):
    for i in range(row.keys):
        keys.add(a=(row.value + i) % 5, b=i)


def passed_on(number):
    """New functions for each operator, which emit a row from each window of each key."""

    def update(row, window, state, out):
        state.n += 1
        state.total = state.total * 3 + row.value

    def result(window, state, out):
        out.emit(ts=window.end, keys=state.n % 3 + 1, value=state.total % 97)

    update.__name__, result.__name__ = f"update_{number}", f"result_{number}"
    return {"update": update, "result": result}


def in_a_row(operators, delay=300):
    app = App("row")
    app.generates(lambda *arguments: {})
    stream = app.source(Event)
    for number in range(operators):
        stream = declare_window(
            stream, keys=several, key=Pair, advance=1, size=2, delay=delay, state=Sum, output=Event, **passed_on(number)
        )
    stream.sink()
    return app


def drawn_table(events):
    rng = np.random.default_rng(1)
    ts = np.cumsum(rng.choice([0, 1, 30, 90], events))
    columns = {"ts": ts, "keys": rng.integers(0, 4, events), "value": rng.integers(0, 50, events)}
    return pa.table({"seq": range(events), **columns})


@pytest.mark.slow
def test_any_number_of_chained_windowed_operators_keeps_order():
    app, table = in_a_row(6), drawn_table(60)
    interpreter = Interpreter(app, {})
    outputs = pa.concat_tables([interpreter.process(table), interpreter.finish(60)])
    assert outputs.num_rows > 300
    program = compile_app(app, {})
    for threads, batch in ((1, 16), (2, 16), (3, 3), (8, 1)):
        for schedule in ([], drawn_schedule(app, threads, 60, threads)):
            spec = Pinned(app="row", threads=threads, batch=batch, schedule=schedule, sink="digest")
            sample, _, _ = one_pass.run(spec, program, Blocks(Events([table]), program, 25))
            assert sample.digest == format_digest(*outputs_digest(app, "total", outputs))


def many(row, keys):
    for i in range(row.keys):
        keys.add(a=i, b=0)


def each_key(window, state, out):
    out.emit(ts=window.end, keys=1, value=window.key.a)


def of_value(row, keys):
    keys.add(a=row.value, b=0)


@pytest.mark.slow
def test_all_rows_from_windows_that_expire_at_the_end_are_emitted():
    """At the end, the first operator emits rows of three windows. Each lets many keys expire in the second one."""
    app, first, second = App("ends"), passed_on(0) | {"result": each_key}, passed_on(1)
    stream = declare_window(
        app.source(Event), keys=many, key=Pair, advance=10, size=10, delay=100, state=Sum, output=Event, **first
    )
    declare_window(stream, keys=of_value, key=Pair, advance=5, size=5, state=Sum, output=Event, **second).sink()
    outputs, _ = interpreted(app, [(ts, 1500, 0) for ts in (1, 11, 21)])
    assert len(outputs) == 3 * 1500


def test_longer_chains_than_copies_can_order_are_refused():
    app = in_a_row(4)
    Pinned(app="row", threads=2).check(app)
    Pinned(app="row", threads=1, parallelism="sn").check(app)
    Pinned(app="row", threads=2, parallelism="sn").check(in_a_row(3))
    names = "update_0, update_1, update_2, update_3"
    with pytest.raises(BadInput, match=rf"application row: 4 windowed operators in a row \({names}\): .* at most 3"):
        Pinned(app="row", threads=2, parallelism="sn").check(app)
    Pinned(app="row", threads=2, parallelism="sn", plan={"update_0": [0]}).check(in_a_row(3))
    with pytest.raises(BadInput, match="at most 3"):
        Pinned(app="row", threads=1, parallelism="sn", plan={"update_0": [0, 0]}).check(app)


def test_a_run_fails_at_the_event_whose_rows_copies_cannot_order():
    """The rank of an output says how far behind the watermark its window ended, at each operator."""
    delay = 1 << 59
    app = in_a_row(2, delay)
    ts = [0, delay + 10, 2 * delay + 30]
    table = pa.table({"seq": range(3), "ts": ts, "keys": [1, 1, 1], "value": [0, 0, 0]})
    spec = Pinned(app="row", threads=2, batch=16, parallelism="sn", sink="digest")
    with pytest.raises(RunFailed, match="event 2 becomes too many rows to keep their order; use one"):
        one_pass.run(spec, compile_app(app, {}), Blocks(Events([table]), compile_app(app, {}), 25))
