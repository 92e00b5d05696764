"""Every type of the language in events, outputs, states and tables of a user's applications, through a whole run."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FIELDS = {
    **{"key": "text", "a": "i8", "b": "i16", "c": "i32", "d": "i64", "e": "u8", "f": "u16", "g": "u32", "x": "f64"},
    **{"yes": "boolean", "bytes": "Array[i8, 3]", "longs": "Array[i64, 1]", "words": "Array[u32, 2]"},
    **{"reals": "Array[f64, 2]", "flags": "Array[boolean, 2]"},
}
# Numbers reach their bounds. Texts are empty, or not UTF-8.
SHARED = '''"""Rows of every type."""
import numpy as np
from streaming_core.api import (
    App, Array, Counter, Map, Queue, Ring, Set, TopK, boolean, f64, i8, i16, i32, i64, record, text, u8, u16, u32
)
app = App("{name}")
@record
class Row:
    ts: i64
    {fields}
@record
class Result:
    {fields}
    total: i64
@app.generates
def rows(params, seed, start, stop):
    n = np.arange(start, stop)
    ends = lambda low, high: np.where(n % 3 == 0, low, np.where(n % 3 == 1, high, n % 100))
    reals = np.choose(n % 4, [np.nan, np.inf, -0.0, n / 3])
    return dict(
        ts=n, key=[[b"", b"\\xff\\x00", b"a"][i % 7 % 3] for i in range(start, stop)], x=reals, yes=n % 2 == 0,
        a=ends(-128, 127), b=ends(-(1 << 15), (1 << 15) - 1), c=ends(-(1 << 31), (1 << 31) - 1),
        d=ends(-(1 << 63), (1 << 63) - 1), e=ends(0, 255), f=ends(0, 65535), g=ends(0, (1 << 32) - 1),
        bytes=np.stack([ends(-128, 127)] * 3, axis=1), longs=ends(-(1 << 63), (1 << 63) - 1)[:, None],
        words=np.stack([n, ends(0, (1 << 32) - 1)], axis=1), reals=np.stack([reals, n / 7], axis=1),
        flags=np.stack([n % 2 == 0, n % 3 == 0], axis=1),
    )
app.invariant(
    "an output has the values of its event",
    "SELECT e.seq FROM events e FULL JOIN outputs o ON e.seq = o.seq WHERE e.seq IS NULL OR o.seq IS NULL OR {differs}",
)
@record
class Pair:
    n: i64
    x: f64
@record
class Kept:
    narrow: i16
    real: f64
    flag: boolean
    sums: Array[i64, 2]
    marks: Array[boolean, 2]
    reals: Array[f64, 1]
    last: Ring[i64, 3]
    ratios: Ring[f64, 2]
    seen: Set[i32]
    numbers: Map[u16, u32]
    prices: Map[i8, f64]
    counts: Counter[i8]
    best: TopK[2]
    {queue}
def keep(kept, row):
    kept.narrow = row.b
    kept.real = row.reals[1]
    kept.flag = row.yes
    kept.sums[1] += row.bytes[0]
    kept.marks[0] = row.flags[1]
    kept.reals[0] += row.reals[1]
    kept.last.append(row.d)
    kept.ratios.append(row.x)
    kept.seen.add(row.c)
    kept.numbers.put(row.f, row.words[1])
    kept.prices.put(row.a, row.x)
    kept.counts.add(row.a, 2)
    kept.best.offer(row.g, row.e)
def scalars_of(kept):
    return kept.narrow + int(kept.real) + int(kept.flag)
'''
COPY = ", ".join(f"{name}=row.{name}" for name in FIELDS)
DATAFLOW = f"""
@record
class Near:
    pair: Array[i64, 2]
    last: Ring[u8, 2]
def near(row, scratch, out):
    scratch.pair[1] = row.e
    scratch.last.append(row.e)
    out.emit({COPY}, total=scratch.pair[1] - scratch.last[0])
def total_of(kept):
    total = scalars_of(kept) + kept.sums[1] + int(kept.marks[0]) + int(kept.reals[0]) + kept.last[0]
    total += len(kept.ratios) + kept.seen.at(0) + kept.numbers.get(kept.numbers.key_at(0), 0) + len(kept.prices)
    return total + kept.counts.value_at(0) + kept.best.key_at(0) + kept.best.score_at(0) + kept.waiting[0].n
def count(row, state, out):
    keep(state, row)
    state.waiting.append(n=row.seq, x=row.x)
    if len(state.waiting) > 3:
        state.waiting.popleft()
    out.emit({COPY}, total=total_of(state) + row.total)
app.source(Row).flat_map(near, Result, scratch=Near).key_by("key").process(count, state=Kept, output=Result).sink()
"""
TRANSACTION = f"""
kept = app.table("kept", Kept, 10, key=text, lookup="insert")
by_number = app.table("by_number", Kept, 256)
@app.transaction(input=Row, output=Result)
def update(row, txn):
    named = txn.row(kept, row.key)
    numbered = txn.row(by_number, row.e)
    txn.modify(named, keep)
    txn.modify(numbered, keep)
    txn.read(named)
    txn.read(numbered)
@update.post
def answer(row, txn, out):
    out.emit({COPY}, total=scalars_of(txn.result(kept, 0)) + scalars_of(txn.result(by_number, 1)))
"""


def test_every_type_passes_a_whole_run(copied, shell, user_environment):
    differs = " OR ".join(f"e.{name} <> o.{name}" for name in FIELDS)
    fields = "\n    ".join(f"{name}: {kind}" for name, kind in FIELDS.items())
    for name, body, queue in (("flows", DATAFLOW, "waiting: Queue[Pair]"), ("changes", TRANSACTION, "")):
        source = SHARED.format(name=name, fields=fields, differs=differs, queue=queue) + body
        (copied / "streaming_core" / "apps" / f"{name}.py").write_text(source)
    output = shell(
        "lockstep run --applications flows,changes --executors transactional,pooled,pinned --schemes owners,tstream "
        "--events 500 --repetitions 1 --seconds 0"
    )
    assert "All 9 cells equal the oracle" in output
    assert (Path(user_environment["LOCKSTEP_HOME"]) / "reports" / "dbt" / "index.html").exists()
