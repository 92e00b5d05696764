"""Sessions of random streams, against their definition in docs/explanation/windows.md, written in plain Python."""

import itertools
import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Param, boolean, f64, i32, i64, record, session, text
from streaming_core.errors import BadInput
from streaming_core.language.record import Array, Record
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import Pinned
from tests.differential.case import Case
from tests.support.draws import seeds, some

ROWS = 30  # of a stream
MOST = 1 << 61  # the highest `ts`


@record
class Click:
    ts: i64
    user: text
    value: f64
    words: text
    small: i32
    is_new: boolean


@record
class Taken:
    n: i64
    last: i64
    letters: i64
    sign: i64


@record
class Burst:
    ts: i64
    start: i64
    user: text
    n: i64
    last: i64
    letters: i64
    sign: i64


def passed(row, out):
    if not row.is_new:
        out.emit(ts=row.ts, user=row.user, value=row.value, words=row.words, small=row.small, is_new=row.is_new)


def take(row, window, state, out):
    state.n += 1
    state.letters += len(row.words)
    state.last = row.ts
    state.sign += 1 if row.value > 0 else 0


def burst(window, state, out):
    out.emit(
        ts=window.end, start=window.start, user=window.key.user, n=state.n, last=state.last, letters=state.letters,
        sign=state.sign,
    )  # fmt: skip


def clicks(rng, streams, gap, delay):
    """Rows of many streams, too far apart in time to meet. A stream has disorder up to the delay, or beyond it."""
    n = streams * ROWS
    steps = rng.choice([0, 0, 1, gap - 1, gap, gap + 1, 3 * gap], (streams, ROWS)).cumsum(axis=1)
    reach = delay + rng.choice([0, 0, 1, gap, 3 * gap], (streams, 1))
    ts = steps - rng.integers(0, reach + 1, (streams, ROWS)) * rng.integers(0, 2, (streams, ROWS))
    ts += -MOST + 50_000 + (2 * MOST - 100_000) // streams * np.arange(streams)[:, None]
    ts[0, 0], ts[-1, -1] = -MOST, MOST
    words = np.array([b"", b"a", b"b", "ü".encode() * 20_000], object)
    return {
        "seq": np.arange(n), "ts": ts.ravel(), "user": words[rng.choice(4, n, p=[0.3, 0.4, 0.299, 0.001])],
        "value": rng.choice([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5], n),
        "words": words[rng.choice(4, n, p=[0.5, 0.3, 0.199, 0.001])],
        "small": rng.choice([-(1 << 31), 0, (1 << 31) - 1], n), "is_new": rng.random(n) < 0.05,
    }  # fmt: skip


def sessions(rows, gap, delay, most):
    """The rows of each session, and the events of late rows."""
    highest, late, by_user = -MOST, [], {}
    for row in rows:
        highest = max(highest, row["ts"])
        if row["ts"] + gap <= highest - delay:
            late.append(row["seq"])
        else:
            by_user.setdefault(row["user"], []).append(row)
    bursts = []
    for taken in by_user.values():
        taken.sort(key=lambda row: row["ts"])
        steps = [0]
        for i in range(1, len(taken)):
            ts, first = taken[i]["ts"], taken[steps[-1]]["ts"]
            if ts - taken[i - 1]["ts"] >= gap or (most is not None and ts - first >= most):
                steps.append(i)
        bursts += [taken[start:stop] for start, stop in itertools.pairwise([*steps, len(taken)])]
    return bursts, late


@pytest.mark.parametrize(
    ("gap", "delay", "most"), some([(30, 1, 70), (5, 10, 12), (5, 10, None), (2, 40, 2), (30, 1, None)])
)
@pytest.mark.parametrize("seed", seeds(1, of=20))
def test_a_session_holds_the_rows_of_a_key_without_a_gap(seed, gap, delay, most):
    app = App("sessions", params={"gap": Param(gap), "delay": Param(delay), "most": Param(most or 0)})
    extent = session("gap", most and "most")
    windows = app.source(Click, delay="delay").flat_map(passed, Click).key_by("user").window(extent)
    windows.apply(take, Taken, Burst, burst).sink("bursts")
    windows.top_k("small", 1).sink("top")
    windows.late().sink("late")
    app.generates(lambda *arguments: {})
    columns = clicks(np.random.default_rng(seed), 100, gap, delay)
    table = pa.table(columns).cast(app.event.resolve({}).arrow(("seq",)))
    interpreter = Interpreter(app, app.bind())
    outputs = pa.concat_tables([interpreter.process(table), interpreter.finish(len(table))])
    if seed == 0 and gap == 5:
        loop = Loop(app, app.bind())
        compare("sessions", outputs, pa.concat_tables([loop.process(table), loop.finish(len(table))]), "outputs")
        case = Case(app, app.bind(), table)
        for threads, parallelism in ((1, "vsn"), (3, "vsn"), (2, "sn"), (3, "vsn_esg")):
            case.check(Pinned(app="sessions", threads=threads, batch=7, parallelism=parallelism), 100)
    bursts, late = sessions([row for row in table.to_pylist() if not row["is_new"]], gap, delay, most)
    wanted, tops = Counter(), Counter()
    for taken in bursts:
        first, last, user = taken[0]["ts"], taken[-1]["ts"], taken[0]["user"]
        letters, sign = sum(len(row["words"]) for row in taken), sum(row["value"] > 0 for row in taken)
        end = min(last + gap, first + most) if most else last + gap
        wanted[end, first, user, len(taken), last, letters, sign] += 1
        value, count = min(Counter(row["small"] for row in taken).items(), key=lambda item: (-item[1], item[0]))
        tops[end, user, value, count] += 1
    by_sink = [[row for row in outputs.to_pylist() if row["sink"] == sink] for sink in range(3)]
    names = ("ts", "start", "user", "n", "last", "letters", "sign")
    assert Counter(tuple(row[name] for name in names) for row in by_sink[0]) == wanted
    assert Counter(tuple(row[name] for name in ("ts", "user", "top_value", "count")) for row in by_sink[1]) == tops
    assert [row["seq"] for row in by_sink[2]] == late
    assert interpreter.dropped_late == 2 * len(late) > 0


def numbered(row, window, state, out):
    state.n += 1


def silent(row, out):
    pass


def test_sessions_with_a_delay_that_cannot_keep_their_rows_are_refused():
    app = App("sessions")
    stream = app.source(Click, delay=5)
    other = stream.flat_map(silent, Record("Many", {"ts": i64, "many": Array(i64, 3)}, None))
    for streams, why in (((stream, stream), "take one stream"), ((other,), "leave many out with select")):
        keyed = app.connect(*streams).key_by(every=2).window(session(5))
        with pytest.raises(BadInput, match=why):
            keyed.apply((numbered,) * len(streams), (Taken,) * len(streams), Burst, burst)
