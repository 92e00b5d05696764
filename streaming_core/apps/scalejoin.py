"""ScaleJoin: pairs of rows of two streams, within a window of time, whose two columns are close to each other.

    Left, Right (sources) -> from_left (windows; every row has every key) -> sink

The application comes from STRETCH, section 8.3 and operator 10.

Every row visits all keys, and one key in turn stores it. A key compares each row with the rows of the other stream that
it stores. So all keys together compare the row with all rows of the other stream in the window. The number of
comparisons measures the work.

Two rows that are `size` - 1 ms apart still meet: the five minutes of the paper include both ends. The default window is
five seconds, so that an interpreter joins 100,000 rows within a minute.
"""

import numpy as np

from streaming_core.api import App, Param, Profile, Queue, boolean, f64, i64, record, rolling
from streaming_core.generator import Draws

app = App(
    "scalejoin",
    reads="STRETCH, sections 8.3 to 8.5 and operator 10",
    params={
        "keys": Param(32, "number of keys, which share the stored rows", minimum=1, maximum=100_000),
        "size": Param(5_001, "length of a window in milliseconds", minimum=1, maximum=1_000_000_000_000),
        "band": Param(10, "largest difference between the columns of a pair", minimum=0, maximum=1_000_000),
        "domain": Param(10_000, "number of different values in a column", minimum=1, maximum=1_000_000_000),
        "rate": Param(100, "rows per second, over both streams", minimum=1, maximum=1_000_000),
        "phases": Param(False, "change the rate every 100 to 300 seconds, to a rate from lowest to highest"),
        "lowest": Param(500, "lowest rate of a phase, in rows per second", minimum=1, maximum=1_000_000),
        "highest": Param(8_000, "highest rate of a phase, in rows per second", minimum=1, maximum=1_000_000),
    },
    profiles={
        "scalejoin-paper": Profile("a window of five minutes, 1,000 keys", {"size": 300_001, "keys": 1000}),
        "scalejoin-phases": Profile(
            "a window of one minute, abrupt changes of the rate", {"size": 60_001, "phases": True}
        ),
    },
)
p = app.params


@record
class Left:
    """A row of the left stream, with its time in milliseconds."""

    ts: i64
    x: i64
    y: f64


@record
class Right:
    """A row of the right stream, with its time in milliseconds; only `a` and `b` are compared."""

    ts: i64
    a: i64
    b: f64
    c: f64
    d: boolean


@record
class KeptLeft:
    """A stored row of the left stream; `number` is its `seq`."""

    ts: i64
    number: i64
    x: i64
    y: f64


@record
class KeptRight:
    """A stored row of the right stream; `number` is its `seq`."""

    ts: i64
    number: i64
    a: i64
    b: f64
    c: f64
    d: boolean


@record
class Lefts:
    """The stored rows of the left stream, and the number of rows that this key has seen."""

    seen: i64
    rows: Queue[KeptLeft]


@record
class Rights:
    """The stored rows of the right stream."""

    rows: Queue[KeptRight]


@record
class Match:
    """A pair of rows: `earlier` is the `seq` of the earlier one."""

    ts: i64
    earlier: i64
    x: i64
    y: f64
    a: i64
    b: f64
    c: f64
    d: boolean


def purge(rows, start):
    """Remove the rows that came before this time, in milliseconds."""
    while len(rows) > 0 and rows[0].ts < start:
        rows.popleft()


def from_left(row, window, lefts, rights, out):
    """Match a left row with the stored right rows, and store it if it is this key's turn."""
    lefts.seen += 1
    kept = rights.rows
    purge(kept, window.start)
    for i in range(len(kept)):
        if abs(row.x - kept[i].a) <= p.band and abs(row.y - kept[i].b) <= p.band:
            out.emit(
                ts=window.end,
                earlier=kept[i].number,
                x=row.x,
                y=row.y,
                a=kept[i].a,
                b=kept[i].b,
                c=kept[i].c,
                d=kept[i].d,
            )
    if lefts.seen % p.keys == window.key.index:
        purge(lefts.rows, window.start)  # the right stream may be silent
        lefts.rows.append(ts=row.ts, number=row.seq, x=row.x, y=row.y)


def from_right(row, window, lefts, rights, out):
    """Match a right row with the stored left rows, and store it if it is this key's turn."""
    lefts.seen += 1
    kept = lefts.rows
    purge(kept, window.start)
    for i in range(len(kept)):
        if abs(kept[i].x - row.a) <= p.band and abs(kept[i].y - row.b) <= p.band:
            out.emit(
                ts=window.end,
                earlier=kept[i].number,
                x=kept[i].x,
                y=kept[i].y,
                a=row.a,
                b=row.b,
                c=row.c,
                d=row.d,
            )
    if lefts.seen % p.keys == window.key.index:
        purge(rights.rows, window.start)  # the left stream may be silent
        rights.rows.append(ts=row.ts, number=row.seq, a=row.a, b=row.b, c=row.c, d=row.d)


left, right = app.sources(Left, Right)
windows = app.connect(left, right).key_by(every="keys").window(rolling("size"))
windows.apply(update=(from_left, from_right), state=(Lefts, Rights), output=Match).sink()

# The pairs do not depend on which key stores a row.
app.agrees_unordered("ts", "earlier", "x", "y", "a", "b", "c", "d")


# --- the generator ----------------------------------------------------------------------------------------------------


def lefts(params, seed, start, stop):
    """Draw whole numbers in 1..domain for all columns, so comparisons are exact; the streams alternate."""
    row = 2 * np.arange(start, stop)
    draws = Draws(seed, "scalejoin.rows", units=row)
    x, y = (1 + draws.below(d, params["domain"]) for d in range(2))
    return {"ts": _times(params, seed, row), "x": x, "y": y.astype(float)}


def rights(params, seed, start, stop):
    """Draw whole numbers in 1..domain for `a` and `b`, and any `c` and `d`."""
    row = 2 * np.arange(start, stop) + 1
    draws = Draws(seed, "scalejoin.rows", units=row)
    a, b = (1 + draws.below(d, params["domain"]) for d in range(2))
    c, d = draws.u53(2) / float(1 << 53), draws.chance(3, 0.5)
    return {"ts": _times(params, seed, row), "a": a, "b": b.astype(float), "c": c, "d": d}


def _times(params, seed, row):
    """Return times in ms, evenly spaced over both streams; a phase takes a whole number of seconds."""
    if not params["phases"]:
        return params["size"] + row * 1000 // params["rate"]
    firsts, begins = [0], [0]
    rates: list[int] = []
    while firsts[-1] <= row.max(initial=0):
        draws = Draws(seed, "scalejoin.phases", len(rates), len(rates) + 1)
        rates.append(params["lowest"] + int(draws.below(0, max(1, params["highest"] + 1 - params["lowest"]))[0]))
        seconds = 100 + int(draws.below(1, 201)[0])
        firsts.append(firsts[-1] + seconds * rates[-1])
        begins.append(begins[-1] + seconds)
    phase = np.searchsorted(firsts, row, side="right") - 1
    since = (row - np.array(firsts)[phase]) * 1000 // np.array(rates)[phase]
    return params["size"] + np.array(begins)[phase] * 1000 + since


app.generates(lefts, rights)


# Pairs with the columns of their rows.
PAIRS = """(SELECT o.*, e.ts AS ts_later, f.ts AS ts_earlier, e.stream AS later, f.stream AS before,
    CASE WHEN e.stream = 0 THEN e.x ELSE f.x END AS of_x, CASE WHEN e.stream = 0 THEN e.y ELSE f.y END AS of_y,
    CASE WHEN e.stream = 1 THEN e.a ELSE f.a END AS of_a, CASE WHEN e.stream = 1 THEN e.b ELSE f.b END AS of_b,
    CASE WHEN e.stream = 1 THEN e.c ELSE f.c END AS of_c, CASE WHEN e.stream = 1 THEN e.d ELSE f.d END AS of_d
    FROM outputs o LEFT JOIN events e ON o.seq = e.seq LEFT JOIN events f ON o.earlier = f.seq)"""

app.invariant(
    "a pair joins an unchanged left row and an unchanged right row that are close to each other",
    f"""SELECT * FROM {PAIRS} WHERE ts_later IS NULL OR ts_earlier IS NULL OR later = before
    OR x <> of_x OR y <> of_y OR a <> of_a OR b <> of_b OR c <> of_c OR d <> of_d
    OR abs(x - a) > :band OR abs(y - b) > :band""",
)
app.invariant(
    "a pair's rows lie in one window, and the pair is stamped one millisecond after the later row",
    f"""SELECT * FROM {PAIRS} WHERE earlier >= seq OR ts <> ts_later + 1 OR ts_later - ts_earlier >= :size""",
)
app.invariant(
    "no pair occurs twice in the output",
    "SELECT seq, earlier, count(*) AS times FROM outputs GROUP BY seq, earlier HAVING count(*) > 1",
)
app.invariant(
    "the number of pairs is close to that expected from the number of comparisons",
    """SELECT * FROM (SELECT (SELECT count(*) FROM outputs) AS pairs, sum(compared) * power(
            least(((2 * :band + 1) * :domain - :band * (:band + 1)) / power(:domain, 2), 1), 2) AS expected FROM
        (SELECT count(CASE WHEN stream = 0 THEN 1 END) OVER past * stream
            + count(CASE WHEN stream = 1 THEN 1 END) OVER past * (1 - stream) AS compared
            FROM events WINDOW past AS (ORDER BY ts RANGE BETWEEN :size - 1 PRECEDING AND CURRENT ROW)))
    WHERE :domain > :band AND abs(pairs - expected) > 5 * sqrt(expected) + 5""",
)


@app.property
def pairs_are_those_of_a_nested_loop(stream):
    """A row meets each earlier row of the other stream in its window, if both columns are close to each other."""
    size, band, expected = stream.params["size"], stream.params["band"], []
    for seq, row in enumerate(stream.events):
        for earlier in range(seq - 1, -1, -1):
            before = stream.events[earlier]
            if row["ts"] - before["ts"] >= size:
                break
            if before["stream"] != row["stream"]:
                first, second = (before, row) if row["stream"] else (row, before)
                near = abs(first["y"] - second["b"]) <= band
                if near and stream.wrap(abs(stream.wrap(first["x"] - second["a"]))) <= band:
                    expected.append((seq, earlier))
    assert sorted((row["seq"], row["earlier"]) for row in stream.outputs) == sorted(expected)
