"""Interpreted windows against an independent definition: every row, every window, every key."""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Param, Ring, i64, record, session, sliding
from streaming_core.kernels.program import compile_app
from streaming_core.oracle.interpreter.windows import GROUPS, key_group
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.way import Pinned
from tests.differential.case import Events
from tests.streaming_core.language.windowed import Event, Output, Pair, Sum, emit_sums, interpreted, pairs, summed
from tests.support.draws import seeds, some
from tests.support.windows import declare_window, extent

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
    for at, key in sorted(sums, key=lambda place: (place[0], key_group(place[1]), touched[place])):
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
    app.source(Event).key_by(Pair, keys=pairs, multiplicity="multiplicity" if seed % 3 else multiplicity).window(
        sliding(size, "advance"), delay="late"
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
        app.source(Event).key_by(Pair, keys=pairs).window(extent(size, advance, kind)).apply(
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


@pytest.mark.parametrize("base", some([0, -(1 << 61), (1 << 61) - 2000]))
@pytest.mark.parametrize("seed", seeds(1, of=12))
def test_sessions_match_their_definition(seed, base):
    rng = np.random.default_rng([seed, abs(base) % 97])
    gap = int(rng.integers(1, 25))
    steps = np.cumsum(rng.choice([0, 0, 1, 2, 40], 120)) + 30 - rng.choice([0, 0, 3, 30], 120)
    rows = [(base + int(t), int(rng.integers(0, 5)), int(rng.integers(0, 50))) for t in steps]
    app = App("sessions", params={"gap": Param(gap)})
    app.source(Event).key_by(Pair, keys=pairs).window(session("gap")).apply(
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
    first, second = itertools.islice((key for key in itertools.count() if key_group((key,)) == group), 2)
    app = App("together")
    app.source(Event).key_by("value").window(session(10)).apply(
        update=summed, state=Sum, output=Output, result=emit_value
    ).sink()
    rows = [(0, first), (1, second), (4, first), (5, second), (10, 7), (11, 7), (5, first), (14, 7), (15, 7)]
    outputs, _ = interpreted(app, [(ts, 0, key) for ts, key in rows])
    assert [(row["seq"], row["ts"], row["a"]) for row in outputs] == [(8, 15, first), (8, 15, second), (9, 25, 7)]


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


@pytest.mark.parametrize("parallelism", some(["sn", "vsn"]))
def test_windowed_operators_in_a_row_order_all_rows(parallelism):
    """A rank says how far behind the watermark a window ended; the next operator counts the rows anew."""
    delay = 1 << 59
    app = in_a_row(5, delay)
    ts = [0, delay + 10, 2 * delay + 30]
    table = pa.table({"seq": range(3), "ts": ts, "keys": [1, 2, 3], "value": [0, 1, 2]})
    program = compile_app(app, {})
    digests = []
    for threads in (1, 2):
        spec = Pinned(app="row", threads=threads, batch=16, parallelism=parallelism, sink="digest")
        digests.append(one_pass.run(spec, program, Blocks(Events([table]), program, 25)).sample.digest)
    assert digests[0] == digests[1]
