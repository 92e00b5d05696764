"""Removal from sets, maps and counters equals that from Python's dicts, over random operations, in all engines."""

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Counter, Map, Set, f64, i64, record
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import RunSpec
from tests.differential.case import Case
from tests.support.draws import some

PUT, REMOVE, READ, FIRST, LAST, CLEAR, WALK = range(7)


@record
class Event:
    ts: i64
    group: i64
    what: i64
    k: i64


@record
class Held:
    marks: Set[i64]
    values: Map[i64, f64]
    counts: Counter[i64]


@record
class Answer:
    ts: i64
    change: i64
    n: i64
    k: i64
    value: f64
    count: i64


def apply(row, held):
    """Change all three containers alike; returns whether each of them had, or has not had, the key."""
    if row.what == 0:
        held.values.put(row.k, float(row.ts))
        return (1 if held.marks.add(row.k) else 0) + 2 * held.counts.add(row.k, row.ts)
    if row.what == 1:
        change = (1 if held.marks.remove(row.k) else 0) + (2 if held.values.remove(row.k) else 0)
        return change + (4 if held.counts.remove(row.k) else 0)
    if row.what == 5:
        held.marks.clear()
        held.values.clear()
        held.counts.clear()
    return 0


def place(row, n):
    """The position to read."""
    return 0 if row.what == 3 else n - 1 if row.what == 4 else row.k % n


def step(row, held, out):
    change = apply(row, held)
    n = len(held.marks)
    if row.what == 6:
        for i in range(n):
            out.emit(
                ts=row.ts,
                change=0,
                n=n,
                k=held.values.key_at(i),
                value=held.values.value_at(i),
                count=held.counts.value_at(i),
            )
    elif n == 0:
        out.emit(ts=row.ts, change=change, n=0, k=0, value=held.values.get(row.k, -1.0), count=held.counts.get(row.k))
    else:
        i = place(row, n)
        out.emit(
            ts=row.ts,
            change=change,
            n=n,
            k=held.marks.at(i),
            value=held.values.value_at(i),
            count=held.counts.value_at(i),
        )


def expected(table):
    """The outputs and the final entries by group, with dicts."""
    outputs, groups = [], {}
    for row in table.to_pylist():
        values, counts = groups.setdefault(row["group"], ({}, {}))
        ts, k, change = row["ts"], row["k"], 0
        match row["what"]:
            case 0:
                change = int(k not in counts)
                values[k], counts[k] = float(ts), counts.get(k, 0) + ts
                change += 2 * counts[k]
            case 1:
                change = 7 * (k in counts)
                values.pop(k, None), counts.pop(k, None)
            case 5:
                values.clear(), counts.clear()
        keys, n = list(counts), len(counts)
        chosen = range(n) if row["what"] == WALK else [{FIRST: 0, LAST: n - 1}.get(row["what"], k % n)] if n else []
        if not n and row["what"] != WALK:
            outputs.append((ts, change, 0, 0, -1.0, 0))
        outputs += [(ts, change, n, keys[i], values[keys[i]], counts[keys[i]]) for i in chosen]
    return outputs, groups


def drawn(seed, rows=4000):
    """Phases in which keys come, go, or both; so containers grow, empty, and are full of gaps."""
    rng = np.random.default_rng(seed)
    phase = np.repeat(rng.integers(0, 4, rows // 200), 200)
    chance = np.array(
        [[12, 2, 3, 1, 1, 0, 0.02], [2, 12, 3, 1, 1, 0, 0.02], [8, 7, 3, 2, 2, 0.02, 0.02], [6, 6, 0, 0, 0, 0, 0]]
    )
    chance /= chance.sum(axis=1, keepdims=True)
    what = np.array([rng.choice(7, p=chance[index]) for index in phase])
    span = np.array([7, 40, 500])[rng.integers(0, 3, rows)]
    return pa.table(
        {
            "seq": np.arange(rows),
            "ts": np.arange(rows),
            "group": rng.choice(3, rows, p=[0.8, 0.15, 0.05]),
            "what": what,
            "k": rng.integers(0, span),
        }
    )


def app():
    declared = App("removal")
    declared.source(Event).key_by("group").process(step, Held, Answer).sink()
    declared.generates(lambda *arguments: {})
    return declared.check()


@pytest.mark.parametrize(("seed", "in_loop"), some([(0, False), *((seed, True) for seed in range(20))]))
def test_removal_equals_that_of_dicts(seed, in_loop):
    table = drawn(seed)
    outputs, groups = expected(table)
    case = Case(app(), {}, table)
    assert [tuple(row.values())[2:] for row in case.outputs.to_pylist()] == outputs
    [states] = case.state.values()
    for state in states.to_pylist():
        values, counts = groups[state["key"]]
        assert state["marks"] == list(counts)
        assert [(pair["key"], pair["value"]) for pair in state["values"]] == list(values.items())
        assert [(pair["key"], pair["value"]) for pair in state["counts"]] == list(counts.items())
    if in_loop:
        loop = Loop(case.app, {})
        compare("removal", case.outputs, loop.process(table), "outputs")
        for name, rows in case.state.items():
            compare("removal", rows, loop.state()[name], name)
    for executor, threads in (("pinned", 1), ("pooled", 3), ("morsel", 2)):
        case.check(RunSpec.parse({"app": "removal", "executor": executor, "threads": threads, "batch": 64}))
