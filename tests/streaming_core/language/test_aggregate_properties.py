"""Aggregates of windows over random streams, against plain Python written from the documentation."""

import math
from collections import Counter as Counts
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import (
    App,
    Param,
    agg,
    boolean,
    count_window,
    f64,
    global_window,
    i64,
    record,
    sliding,
    text,
    tumbling,
)
from streaming_core.data.digest import format_digest
from streaming_core.language.extent import CountWindow, Extent
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.run.way import RunSpec
from tests.differential.case import Case
from tests.differential.streams import SEED
from tests.support.draws import some

DELAY, LATENESS, ROWS = 5, 6, 3
EDGE = 1 << 61  # of `ts`
INTEGERS = (-(1 << 63), (1 << 63) - 1, -1, 0, 1)
FLOATS = (math.nan, math.inf, -math.inf, -0.0, 0.0, 0.1, -2.5, 1e308, 5e-324)
TEXTS = (b"", b"\0", b"k", "ü".encode(), b"k" * 4096, b"k" * 4095 + b"l")


@record
class Row:
    ts: i64
    name: text
    number: i64
    price: f64
    is_dear: boolean


def stream(rng):
    """Few random rows, out of order by up to five times the delay, in any region of time."""
    n = int(rng.integers(0, 40))
    ts = np.cumsum(rng.choice([0, 0, 1, 3, rng.choice([4, 50])], n))
    ts -= rng.integers(0, rng.choice([1, DELAY + 1, 5 * DELAY]), n)
    ts += rng.choice([0, -20, -EDGE + 5 * DELAY, EDGE - 50 * 40])
    names = [TEXTS[i] for i in rng.integers(0, rng.integers(1, len(TEXTS) + 1), n)]
    if rng.integers(0, 50) == 0:
        names = [b"%06d" % len(name) * 11_000 for name in names]
    numbers = np.where(rng.random(n) < rng.choice([0, 0.3]), rng.choice(INTEGERS, n), rng.integers(-2, 3, n))
    prices = np.where(rng.random(n) < rng.choice([0, 0.3]), rng.choice(FLOATS, n), rng.integers(-9, 9, n) / 10)
    columns = [range(n), ts, names, numbers, prices, rng.integers(0, 2, n).astype(bool)]
    schema = Row.resolve({}).arrow(("seq",))
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


def wrapped(number):
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def extreme(best, field):
    """NaN is greater than every number, and -0.0 counts as 0.0."""
    return lambda rows: [(best((r[field] for r in rows), key=lambda value: (math.isnan(value), value)) + 0,)]


def total(rows):
    """Floats are added in the order of the rows."""
    result = 0.0
    for row in rows:
        result += row["price"]
    return [(result,)]


def frequent(rows):
    counts = Counts(row["number"] for row in rows)
    best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:2]
    return [(rank, value, count) for rank, (value, count) in enumerate(best)]


def greatest(rows):
    """Ties: the row that came first. NaN is greater than every number."""
    best = sorted(rows, key=lambda row: (not math.isnan(row["price"]), -row["price"]))[:2]
    return [(rank, row["number"], row["price"], row["is_dear"]) for rank, row in enumerate(best)]


def tied(rows):
    """As `greatest`, and rows whose price equals that of the second; -0.0 equals 0.0."""
    best = sorted(rows, key=lambda row: (not math.isnan(row["price"]), -row["price"]))
    worth = [(math.isnan(row["price"]), math.isnan(row["price"]) or row["price"]) for row in best]
    best = [row for row, value in zip(best, worth, strict=True) if value in worth[:2]]
    return [(rank, row["number"], row["price"], row["is_dear"]) for rank, row in enumerate(best)]


def several(rows):
    """Each aggregate of one operator."""
    numbers, dear = [row["number"] for row in rows], [row["is_dear"] for row in rows]
    [[price]], sums = total(rows), wrapped(sum(numbers))
    cheap = [row["number"] for row in rows if not row["is_dear"]]
    values = (len(rows), sums, sums / len(rows), price / len(rows), len(set(numbers)), sum(dear))
    values += (len(cheap), wrapped(sum(cheap)), len(set(cheap)))
    return [(*values, *extreme(min, "number")(rows)[0], *extreme(max, "is_dear")(rows)[0], dear[0], rows[-1]["price"])]


def is_cheap(row):
    return not row.is_dear


SEVERAL = {
    "n": agg.count(), "total": agg.sum("number"), "mean": agg.avg("number"), "cost": agg.avg("price"),
    "kinds": agg.count_distinct("number"), "dear": agg.sum("is_dear"),
    "cheap": agg.count(where=is_cheap), "debt": agg.sum("number", where=lambda row: not row.is_dear),
    "cheap_kinds": agg.count_distinct("number", where=is_cheap), "least": agg.min("number"),
    "dearest": agg.max("is_dear"), "opened": agg.first("is_dear"), "closed": agg.last("price"),
}  # fmt: skip


def whole(field):
    """Aggregates of an integer: windows that overlap may merge those of their slices."""

    def results(rows):
        values = [int(row[field]) for row in rows]
        return [(len(values), wrapped(sum(values)), wrapped(sum(values)) / len(values), min(values), max(values))]

    columns = {"n": agg.count(), "units": agg.sum(field), "mean": agg.avg(field)}
    columns |= {"lowest": agg.min(field), "greatest": agg.max(field)}
    return lambda windowed: windowed.aggregate(**columns), [*columns], results


# For each key, the aggregates: their declaration, their fields, and the results for rows of a window and key.
FAMILIES = {
    "name": [
        (lambda windowed: windowed.aggregate(**SEVERAL), [*SEVERAL], several),
        (lambda windowed: windowed.top_k("number", 2), ["rank", "value", "count"], frequent),
        (lambda windowed: windowed.top(2, by="price"), ["rank", "number", "price", "is_dear"], greatest),
        (lambda windowed: windowed.top(2, by="price", ties=True), ["rank", "number", "price", "is_dear"], tied),
        whole("number"),
    ],
    "number": [
        (lambda windowed: windowed.aggregate(total=agg.sum("price")), ["total"], total),
        (lambda windowed: windowed.aggregate(least=agg.min("price")), ["least"], extreme(min, "price")),
        (lambda windowed: windowed.aggregate(most=agg.max("price")), ["most"], extreme(max, "price")),
        whole("is_dear"),
    ],
    None: [(lambda windowed: windowed.aggregate(**SEVERAL), [*SEVERAL], several)],
}  # fmt: skip
# Extent, early, lateness.
EXTENTS = {
    "tumbling": (tumbling(10), None, None),
    "sliding": (sliding(10, every=4), None, None),
    "slices": (sliding(12, every=4), None, None),
    "early": (sliding(9, every=3), 2, None),
    "lateness": (sliding(10, every=5), None, LATENESS),
    "count": (count_window("rows"), None, None),
    "global": (global_window(), None, None),
    "global_early": (global_window(), ROWS, None),
}


def has_late(extent, family):
    """Whether late rows are an output too; a row of another sink has no text for them without a name."""
    return isinstance(extent, Extent) and family == "name"


def declared(extent, family):
    app = App("aggregates", params={"rows": Param(ROWS, minimum=1)})
    extent, early, lateness = EXTENTS[extent]
    rows = app.source(Row, delay=DELAY)
    windowed = (rows.key_by(family) if family else rows).window(extent, early=early, lateness=lateness)
    for number, (declare, _, _) in enumerate(FAMILIES[family]):
        declare(windowed).sink(f"sink_{number}")
    if has_late(extent, family):
        windowed.late().sink("late")
    app.generates(lambda *arguments: {})
    return app


def of_rows(rows, key, size):
    """When the results of count windows leave, with which `ts` and key, and their rows."""
    rows_of = defaultdict(list)
    for row in rows:
        kept = rows_of[row.get(key)]
        kept.append(row)
        if len(kept) % size == 0:
            yield row["seq"], row["ts"], row.get(key), kept[-size:]


def of_stream(rows, key, early):
    """When the results of global windows leave, with which `ts` and key, and their rows: by key at the end."""
    rows_of = defaultdict(list)
    for row in rows:
        kept = rows_of[row.get(key)]
        kept.append(row)
        if early and len(kept) % early == 0:
            yield row["seq"], row["ts"], row.get(key), kept[:]
    for value, kept in sorted(rows_of.items()):
        yield len(rows), kept[-1]["ts"], value, kept


def of_time(rows, key, extent, early, lateness):
    """When the results of time windows leave, with which `ts` and key, and their rows; then the late rows."""
    kept, closed, late, highest = defaultdict(list), set(), [], -math.inf
    results = []

    def close(seq, watermark):
        for end, value in list(kept):
            if end <= watermark and (end, value) not in closed:
                closed.add((end, value))
                results.append((seq, end, value, list(kept[end, value])))

    for row in rows:
        highest = max(highest, row["ts"])
        close(row["seq"], highest - DELAY)
        first = (row["ts"] - extent.size) // extent.advance + 1
        ends = [n * extent.advance + extent.size for n in range(first, row["ts"] // extent.advance + 1)]
        taken = [end for end in ends if end > highest - DELAY - (lateness or 0)]
        for end in taken:
            window = kept[end, row.get(key)]
            window.append(row)
            if end <= highest - DELAY:
                closed.add((end, row.get(key)))  # its first result is that of a late row
            if end <= highest - DELAY or (early and len(window) % early == 0):
                results.append((row["seq"], end, row.get(key), list(window)))
        if not taken:
            late.append(row)
    close(len(rows), math.inf)
    return results, late


def shown(values):
    """Values that compare as they print: NaN equals itself, and -0.0 differs from 0.0."""
    return tuple(repr(float(value)) if isinstance(value, float) else value for value in values)


def expected(rows, extent, family):
    extent, early, lateness = EXTENTS[extent]
    if isinstance(extent, CountWindow):
        results = list(of_stream(rows, family, early) if extent.rows is None else of_rows(rows, family, ROWS))
        late = []
    else:
        results, late = of_time(rows, family, extent, early, lateness)
    outputs = Counts()
    for sink, (_, _, aggregate) in enumerate(FAMILIES[family]):
        for *place, part in results:
            outputs.update((sink, *place, *shown(values)) for values in aggregate(part))
    if has_late(extent, family):
        outputs.update((len(FAMILIES[family]), *shown(row.values())) for row in late)
    return outputs


def produced(outputs, family):
    fields = [["seq", "ts", family, *names] for _, names, _ in FAMILIES[family]]
    fields.append(["seq", *Row.fields])
    rows = outputs.to_pylist()
    assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
    sinks = [row.get("sink", 0) for row in rows]  # of one sink, there is no column
    return Counts((sink, *shown(map(row.get, fields[sink]))) for sink, row in zip(sinks, rows, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("extent", some(EXTENTS))
def test_aggregates_of_random_streams_match_their_definition(extent, family):
    app, rows = declared(extent, family), 0
    for number in range(20):
        table = stream(np.random.default_rng([SEED, number]))
        oracle = Interpreter(app, app.bind())
        outputs = pa.concat_tables([oracle.process(table), oracle.finish(len(table))])
        assert produced(outputs, family) == expected(table.to_pylist(), extent, family), f"stream {number}"
        rows += len(outputs)
    assert rows > 100


@pytest.mark.parametrize(
    ("extent", "family", "count"),
    [
        ("slices", "name", 40),
        ("sliding", "name", 20),
        ("lateness", "name", 20),
        ("count", "number", 20),
        ("count", None, 20),
        ("global", "name", 20),
        ("global_early", None, 20),
        ("early", None, 20),
    ]
    + [pytest.param(extent, family, 2_000, marks=pytest.mark.slow) for extent in EXTENTS for family in FAMILIES],
)
@pytest.mark.slow
def test_compiled_aggregates_of_random_streams_match_their_definition(extent, family, count):
    app, program, loop = declared(extent, family), None, None
    is_of_rows = isinstance(EXTENTS[extent][0], CountWindow)
    executors = ("pinned", "pooled", "morsel") if is_of_rows else ("pinned",)
    for number in range(count):
        table = stream(np.random.default_rng([SEED, number]))
        case = Case(app, app.bind(), table, program)
        program = case.program
        assert produced(case.outputs, family) == expected(table.to_pylist(), extent, family), f"stream {number}"
        way = {"executor": executors[number % len(executors)], "threads": 1 + number // 3 % 3}
        if way["executor"] == "pinned":
            way["batch"] = (7, 1, 64)[number % 3]
        if not is_of_rows:
            way["parallelism"] = ("vsn", "sn", "vsn_esg")[number // 2 % 3]
        case.check(RunSpec.parse({"app": app.name, **way}), (100, 3)[number % 2])
        if count > 100 or extent == "lateness":
            loop = loop or Loop(app, app.bind())
            loop.reset()
            loop.process(table)
            loop.finish(len(table))
            assert format_digest(*loop.digest) == case.expected["total"][0], f"stream {number}"
