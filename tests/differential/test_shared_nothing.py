"""Replicas of windowed operators that share nothing: rows are copied, and states of any kind as keys change owners."""

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import (
    App,
    Array,
    Counter,
    Map,
    Queue,
    Ring,
    Set,
    TopK,
    boolean,
    f64,
    i8,
    i16,
    i64,
    record,
    text,
)
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.run.way import Pinned
from tests.differential.case import Case
from tests.support.draws import some
from tests.support.windows import declare_window


@record
class Event:
    ts: i64
    line: text
    number: i64


@record
class Word:
    word: text
    is_long: boolean


@record
class Item:
    few: i8
    x: f64
    n: i16
    number: i64


@record
class Before:
    times: i64


@record
class Kept:
    """A container of every kind, so that all that an entry may hold goes along."""

    few: Array[i16, 3]
    numbers: Set[i64]
    prices: Map[i64, f64]
    n: i64
    visits: Counter[i64]
    best: TopK[3]
    rows: Queue[Item]
    last: Ring[i64, 4]


@record
class Summary:
    ts: i64
    word: text
    n: i64
    a: i64
    b: i64
    c: i64
    x: f64


def words(row, keys):
    """One key for each byte but spaces, and one longer one."""
    for at in range(len(row.line)):
        if row.line[at] != 32:
            keys.add(word=row.line[at : at + 1], is_long=False)
    if len(row.line) > 8:
        keys.add(word=row.line, is_long=True)


def keep(row, window, before, kept, out):
    before.times += 1
    kept.few[row.number % 3] = row.number % 1000
    new = kept.numbers.add(row.number % 11)
    kept.prices.put(row.number % 7, kept.prices.get(row.number % 7, 0.5) * 1.5 + row.number)
    kept.n += 1
    kept.visits.add(row.number % 5, 2)
    kept.best.offer(row.number % 13, row.number)
    kept.rows.append(few=row.number % 100, x=row.number / 3, n=kept.n % 1000, number=row.number)
    while len(kept.rows) > 6 or (row.number % 17 == 0 and len(kept.rows) > 0):
        kept.rows.popleft()
    if row.number % 23 == 0:
        kept.numbers.clear()
    kept.last.append(row.number)
    if new or before.times % 4 == 0:
        emit_summary(window, before, kept, out)


def emit_summary(window, before, kept, out):
    """Emit the content of every container in order."""
    a = 0
    b = 0
    c = 0
    x = 0.0
    for i in range(len(kept.numbers)):
        a = a * 31 + kept.numbers.at(i)
    for i in range(len(kept.prices)):
        a = a * 31 + kept.prices.key_at(i)
        x += kept.prices.value_at(i)
    for i in range(len(kept.visits)):
        b = b * 31 + kept.visits.key_at(i) * 100 + kept.visits.value_at(i)
    for i in range(len(kept.best)):
        b = b * 31 + kept.best.key_at(i) * 1000 + kept.best.score_at(i)
    for i in range(len(kept.rows)):
        c = c * 31 + kept.rows[i].few + kept.rows[i].n * 7 + kept.rows[i].number
        x += kept.rows[i].x
    for i in range(len(kept.last)):
        c = c * 31 + kept.last[i]
    for i in range(3):
        c = c * 31 + kept.few[i]
    out.emit(ts=window.end, word=window.key.word, n=before.times, a=a, b=b, c=c, x=x)


def expired(window, before, kept, out):
    emit_summary(window, before, kept, out)


def slid(window, before, kept):
    before.times += 100
    if len(kept.rows) > 0:
        kept.rows.popleft()


def from_nothing(row, window, before, kept, out):
    before.times += 3


# Multi; and single: with a result, without one, and with windows that slide at every moment.
KINDS = {
    "multi": {"kind": "multi", "advance": 7, "size": 17, "delay": 3, "result": expired},
    "slides": {"kind": "single", "advance": 5, "size": 20, "result": expired, "slide": slid},
    "silent": {"kind": "single", "advance": 5, "size": 20},
    "moments": {"kind": "single", "advance": 1, "size": 12},
}


def application(kind):
    app = App(kind)
    source = app.source(Event)
    declare_window(
        app,
        source,
        source,
        keys=(words, words),
        key=Word,
        state=(Before, Kept),
        update=(from_nothing, keep),
        output=Summary,
        **KINDS[kind],
    ).sink()
    app.generates(lambda *arguments: {})
    return app.check()


def table(events, seed):
    rng = np.random.default_rng(seed)
    lines = [b"abc de", b"", b"a", b"  ", b"the longest of all lines", b"another of the longer ones", b"cafe"]
    ts = np.cumsum(rng.choice([0, 0, 1, 4], events)) - rng.choice([0, 0, 0, 2, 30], events)
    return pa.table(
        {
            "seq": pa.array(range(events), pa.int64()),
            "ts": pa.array(ts, pa.int64()),
            "line": pa.array([lines[i] for i in rng.integers(0, len(lines), events)], pa.binary()),
            "number": pa.array(rng.integers(0, 500, events), pa.int64()),
        }
    )


def swapped(operators, replicas, events, every):
    """Move all keys to each replica in turn, and to all replicas, again and again."""
    shares = [*([replica] for replica in range(replicas)), list(range(replicas)), list(reversed(range(replicas)))]
    return [
        {"event": event, "owners": dict.fromkeys(operators, shares[turn % len(shares)])}
        for turn, event in enumerate(range(0, events, every))
    ]


@pytest.fixture(scope="module", params=KINDS)
def kept(request):
    app = application(request.param)
    return Case(app, app.bind({}), table(600, 3))


@pytest.mark.parametrize(("threads", "batch", "block"), some([(3, 7, 100), (1, 1, 40), (2, 16, 600), (8, 3, 250)]))
def test_every_container_moves_with_its_key(kept, threads, batch, block):
    (name,) = [operator.name for operator in kept.app.operators if operator.kind == "windowed"]
    for every in (600, 40, 9):
        schedule = swapped([name], threads, 600, every)
        how = {"threads": threads, "batch": batch, "schedule": schedule}
        kept.check(Pinned(app=kept.app.name, **how, parallelism="vsn_esg"), block)
        how["parallelism"] = "sn"
        sample = kept.check(Pinned(app=kept.app.name, **how), block)
        reconfigurations = sample.reconfigurations
        assert [at.event for at in reconfigurations] == list(range(0, 600, every))
        assert all((at.bytes > 0) == (at.moved > 0) for at in reconfigurations)
    assert kept.late > 0 or kept.app.name != "multi"


WINDOWED = [name for name in registry.names() if registry.load(name).kind == "windowed"]


@pytest.mark.parametrize("name", some(WINDOWED))
def test_applications_equal_the_interpreter_for_every_key_owner(name):
    app = registry.load(name)
    params = app.bind({"keys": 20} if name in ("scalejoin", "hedge") else {})
    events = 400
    case = Case(app, params, workload.generate_chunk(app, params, events, 5, 0, events))
    operators = [operator.name for operator in app.operators if operator.kind == "windowed"]
    for threads in (1, 2, 3):
        for every in (events, 31):
            how = {"threads": threads, "batch": 16, "schedule": swapped(operators, threads, events, every)}
            shared = case.check(Pinned(app=name, **how), 100)
            apart = case.check(Pinned(app=name, **how, parallelism="sn"), 100)
            history = [(at.event, at.replicas, at.moved) for at in apart.reconfigurations]
            assert history == [(at.event, at.replicas, at.moved) for at in shared.reconfigurations]
            assert {at.bytes for at in shared.reconfigurations} == {0}
            published = case.check(Pinned(app=name, **how, parallelism="vsn_esg"), 100)
            assert [(at.event, at.replicas, at.moved, at.bytes) for at in published.reconfigurations] == [
                (*one, 0) for one in history
            ]
