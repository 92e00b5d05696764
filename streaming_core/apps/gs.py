"""Grep and Sum: each event reads and sums ten records of a table, or overwrites ten records.

    grep (transaction: 10 READs or 10 blind WRITEs) -> sum, in the post-processing -> sink

The application comes from TStream, section VI-A. Every write stores values that no other write stores. So the sum of a
read shows exactly which writes came before it.

A record has a value and `payload` more words, which all equal the value. A write stores every word, and a read copies
them all. By default, a record takes 32 bytes. With 15 words it takes the 128 bytes of the paper. An event with a key
outside the table is invalid.

A single-partition event has keys of one partition. A multi-partition event divides its keys among `mp_len` partitions.
Scheme `pat` has the same partitions, because `gen_parts` sets both. The paper has a partition per executor. Here the
number does not depend on threads, so all points of a curve have the same events.
"""

from typing import Literal

import numpy as np

from streaming_core.api import App, Array, Param, Profile, boolean, burn, i64, record, u32
from streaming_core.errors import BadInput
from streaming_core.generator import Draws, Keys, mix64, of_eight

app = App(
    "gs",
    reads="TStream, section VI-A",
    params={
        "length": Param(10, "records that an event reads or overwrites", minimum=1, maximum=16),
        "n_items": Param(10_000, "records in the table", minimum=1, maximum=100_000_000),
        "read_ratio": Param(0.5, "share of events that read", minimum=0.0, maximum=1.0),
        "summation": Param(True, "sum the values read; false: an answer holds the value of the last record read only"),
        "post_compute": Param(1, "rounds of extra work per read event, after the sum", minimum=0, maximum=1_000_000),
        "payload": Param(3, "words of 8 bytes in a record, besides its value", minimum=0, maximum=1_000),
        "index": Param(
            "dense",
            "dense: the key of a row is its number; hash: a hash index finds the row, as in TStream's code",
            choices=("dense", "hash"),
        ),
        "work": Param(0, "rounds of extra work per record read or written", minimum=0, maximum=1_000_000),
        "theta": Param(0.6, "Zipf exponent of the keys", minimum=0.0, maximum=4.0),
        "partitioned": Param(True, "draw keys partition by partition; false: from the whole table"),
        "gen_parts": Param(
            40, "partitions to draw keys from; independent of the number of threads", minimum=1, maximum=1024
        ),
        "mp_ratio": Param(0.25, "share of multi-partition events", minimum=0.0, maximum=1.0),
        "mp_len": Param(4, "partitions that a multi-partition event touches", minimum=1, maximum=1024),
        "mp_partitions": Param(
            "neighbours",
            "neighbours: a multi-partition event touches consecutive partitions; any: random ones",
            choices=("neighbours", "any"),
        ),
        "pattern": Param(
            "code",
            "code: the last of every 8 events are multi-partition, as in TStream's code; independent: random",
            choices=("code", "independent"),
        ),
        "duplicates": Param(False, "allow an event to name a key twice; its last write wins"),
        "invalid_ratio": Param(0.0, "share of events with a key outside the table", minimum=0.0, maximum=1.0),
    },
    profiles={
        "gs-write": Profile("writes only, to vary theta", {"read_ratio": 0.0}),
        "gs-hot": Profile("writes only, on few hot keys", {"read_ratio": 0.0, "theta": 1.0, "partitioned": False}),
        "gs-multi": Profile("half of the events span six consecutive partitions", {"mp_ratio": 0.5, "mp_len": 6}),
        "gs-scattered": Profile(
            "half of the events span six random partitions",
            {"mp_ratio": 0.5, "mp_len": 6, "mp_partitions": "any"},
        ),
        "gs-heavy": Profile("expensive post-processing after the state access", {"post_compute": 1000}),
    },
)
p = app.params


@record
class Request:
    """A read of the records at `keys`, or a write of `vals` to them."""

    ts: i64
    is_read: boolean
    keys: Array[u32, Literal["length"]]
    vals: Array[i64, Literal["length"]]


@record
class Item:
    """A record: its value, with words that all equal it."""

    value: i64
    payload: Array[i64, Literal["payload"]]


@record
class Result:
    """The answer to an event: the sum of the values read, and the outcome of the extra work on it."""

    is_read: boolean
    total: i64
    mixed: i64


items = app.table(
    "items",
    Item,
    "n_items",
    lambda key, params: {"value": key, "payload": key[:, None]},
    key=u32,
    lookup="index",
)


def write(item, request, i):
    """Store the event's value i in a record."""
    item.value = request.vals[i]
    for word in range(len(item.payload)):
        item.payload[word] = request.vals[i]
    if p.work > 0:
        item.value += burn(item.value, p.work)


def value_of(item):
    """The value of a record. A word of its payload that differs changes it, so that a torn record shows."""
    value = item.value
    for word in range(len(item.payload)):
        value += item.payload[word] - item.value
    return value


@app.transaction(input=Request, output=Result)
def grep(request, txn):
    """Read or overwrite all records of an event, and drop an event with a key outside the table."""
    keys = request.keys
    for i in range(len(keys)):
        if keys[i] >= p.n_items:
            txn.drop()
            return
    if request.is_read:
        for i in range(len(keys)):
            txn.read(txn.row(items, keys[i]))
    else:
        for i in range(len(keys)):
            txn.modify(txn.row(items, keys[i]), write, i)


@grep.post
def sum_up(request, txn, out):
    """Sum the values read, and do the extra work on the sum."""
    total = 0
    mixed = 0
    if request.is_read:
        first = 0 if p.summation else len(request.keys) - 1
        for i in range(first, len(request.keys)):
            total += value_of(txn.result(items, i))
            if p.work > 0:
                total += burn(total, p.work)
        # Only this field depends on the extra work. It is part of the output so that the compiler keeps the work.
        mixed = total % 2_147_483_647
        for _ in range(p.post_compute):
            mixed = (mixed * 48_271 + 11) % 2_147_483_647
    out.emit(is_read=request.is_read, total=total, mixed=mixed)


@app.generates
def requests(params, seed, start, stop):
    """Draw keys by partition, distinct within an event; ts is the number of the event."""
    length, n_items = params["length"], params["n_items"]
    if length > n_items and not params["duplicates"]:
        raise BadInput(f"app gs: {length} distinct keys need n_items of at least {length}, got {n_items}")
    drawn = params["pattern"] == "independent"
    kinds = Draws(seed, "gs.kinds", start, stop)
    is_read = of_eight(params["read_ratio"], kinds, 0, start, stop)
    multi = of_eight(params["mp_ratio"], kinds, 1, start, stop, drawn)

    draws = Draws(seed, "gs.keys", start, stop)
    space = Keys(n_items, params["theta"], params["gen_parts"], params["partitioned"])
    first = space.start(draws, length)
    shares = space.shares(length, params["mp_len"])
    partitions = space.partitions(draws, first, len(shares), params["mp_partitions"] == "neighbours")
    columns: list[np.ndarray] = []
    for group, share in enumerate(shares):
        partition = np.where(multi, partitions[group], first)
        for _ in range(share):
            needs, avoid = ((1, 1), ()) if params["duplicates"] else ((length, share), columns)
            columns.append(space.draw(draws, len(columns), partition, multi, needs, avoid))
    keys = np.stack(columns, axis=1)

    seq = np.arange(start, stop)
    slot = (seq[:, None] * 16 + np.arange(length)).astype(np.uint64)
    vals = (mix64(slot) % np.uint64(1_000_000)).astype(np.int64)
    vals[is_read] = 0
    if params["invalid_ratio"] > 0:
        invalid = Draws(seed, "gs.invalid", start, stop)
        broken = np.flatnonzero(invalid.chance(0, params["invalid_ratio"]))
        keys[broken, invalid.below(1, length)[broken]] += n_items
    return {"ts": seq, "is_read": is_read, "keys": keys, "vals": vals}


# The keys of the table are consecutive, so its number of rows tells which keys are valid.
VALID = "array_max(keys) < (SELECT count(*) FROM state_items)"

app.invariant(
    "each valid event has one output of its kind, with sum 0 for a write; other events have none",
    f"""SELECT * FROM (SELECT coalesce(e.seq, o.seq) AS seq, e.valid, e.is_read, o.outputs, o.of_kind FROM
    (SELECT seq, is_read, {VALID} AS valid FROM events) e FULL OUTER JOIN
    (SELECT seq, count(*) AS outputs, bool_and(is_read) AS of_kind,
    bool_and(is_read OR (total = 0 AND mixed = 0)) AS plain FROM outputs GROUP BY seq) o ON e.seq = o.seq
    WHERE e.seq IS NULL OR coalesce(o.outputs, 0) <> CAST(e.valid AS INT) OR o.of_kind <> e.is_read OR NOT o.plain)""",
)
app.invariant(
    "a record's final value is that of its last write, or the initial one",
    f"""SELECT s.key, s.value, w.newest FROM state_items s LEFT JOIN
    (SELECT key, max_by(vals[pos], struct(seq, pos)) AS newest FROM
    (SELECT seq, vals, posexplode(keys) AS (pos, key) FROM events WHERE NOT is_read AND {VALID}) GROUP BY key) w
    ON s.key = w.key WHERE s.value <> coalesce(w.newest, s.key)""",
)
app.invariant(
    "a read sums the latest earlier write of each record",
    f"""SELECT o.seq, o.total, r.expected FROM outputs o JOIN
    (SELECT seq, IF(:summation, sum(coalesce(seen, key)), max_by(coalesce(seen, key), pos)) AS expected FROM
    (SELECT seq, key, pos, is_read, last_value(CASE WHEN NOT is_read THEN vals[pos] END, true) OVER
    (PARTITION BY key ORDER BY seq, pos ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS seen FROM
    (SELECT seq, is_read, vals, posexplode(keys) AS (pos, key) FROM events WHERE {VALID}))
    WHERE is_read GROUP BY seq) r ON o.seq = r.seq WHERE o.total <> r.expected""",
)


@app.property
def a_read_sums_the_latest_values(stream):
    """Events take effect one after the other: a read sums the values of the last writes, or the initial ones."""
    values: dict = {}
    expected = []
    for event in stream.events:
        if max(event["keys"]) < stream.params["n_items"]:
            total = 0
            if event["is_read"]:
                read = [values.get(key, key) for key in event["keys"]]
                total = stream.wrap(sum(read if stream.params["summation"] else read[-1:]))
            else:
                values |= zip(event["keys"], event["vals"], strict=True)
            expected.append((event["is_read"], total))
    # Extra work changes the values.
    assert stream.params["work"] or [(row["is_read"], row["total"]) for row in stream.rows] == expected
