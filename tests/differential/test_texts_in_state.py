"""Texts in states, against plain Python: bytes, dicts and lists. Variables keep a text that the state replaces."""

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import (
    App,
    Counter,
    Map,
    Queue,
    Set,
    agg,
    count_window,
    i64,
    record,
    rolling,
    session,
    sliding,
    text,
    tumbling,
)
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import ENGINE_EXECUTORS, Pinned, RunSpec
from tests.differential.case import Case, strategies
from tests.support.draws import some

N = 1500
LENGTHS = [0, 1, 7, 8, 9, 15, 16, 17, 40, 500]


@record
class Event:
    ts: i64
    k: i64
    word: text
    other: text


@record
class Kept:
    n: i64
    word: text


@record
class State:
    last: text
    names: Set[text]
    ages: Map[text, i64]
    pairs: Map[text, text]
    few: Map[i64, text]
    times: Counter[text]
    rows: Queue[Kept]


@record
class Out:
    first: text
    second: text
    third: text
    n: i64


def note(row, state, out):
    before = state.last
    state.last = row.word
    between = state.last
    state.last = row.other
    out.emit(first=before, second=between, third=state.last, n=int(state.names.add(row.word)))
    former = state.pairs.get(row.word, row.other)
    state.pairs.put(row.word, before)
    state.pairs.put(row.other, former)
    state.ages.put(row.other, row.ts)
    state.few.put(row.ts % 3, former)
    times = state.times.add(former, row.ts % 5)
    out.emit(first=former, second=state.few.value_at(0), third=state.pairs.key_at(0), n=times)
    state.rows.append(word=former, n=row.ts)
    oldest = state.rows[0].word
    if len(state.rows) > 4:
        state.rows.popleft()
        state.rows.append(n=1, word=oldest[1:])
    out.emit(first=oldest, second=state.rows[len(state.rows) - 1].word, third=between, n=state.ages.get(row.word, -1))
    if row.ts % 3 == 0:
        gone = int(state.pairs.remove(row.word)) + 2 * int(state.few.remove(row.ts % 2))
        first = state.pairs.key_at(0) if len(state.pairs) > 0 else former
        out.emit(first=first, second=former, third=oldest, n=gone)
    if row.ts % 29 == 0:
        state.names.clear()
        state.pairs.clear()
        state.rows.clear()
        out.emit(first=oldest, second=former, third=before, n=int(row.word in state.names))


def last(state, out):
    before = state.last
    state.last = state.few.get(1, before)
    out.emit(first=before, second=state.last, third=before, n=len(state.times))


def summary(window, state, out):
    first = state.names.at(0) if len(state.names) > 0 else state.last
    out.emit(first=state.last, second=first, third=state.times.key_at(0), n=len(state.rows))


def in_window(row, window, state, out):
    note(row, state, out)


class Plain:
    """The state of a key."""

    def __init__(self):
        self.last, self.names, self.ages, self.pairs, self.few, self.times, self.rows = b"", {}, {}, {}, {}, {}, []

    def note(self, row):
        word, other, ts = row["word"], row["other"], row["ts"]
        before, self.last = self.last, other
        out = [(before, word, other, int(word not in self.names))]
        self.names[word] = None
        former = self.pairs.get(word, other)
        self.pairs[word] = before
        self.pairs[other] = former
        self.ages[other] = ts
        self.few[ts % 3] = former
        self.times[former] = self.times.get(former, 0) + ts % 5
        out.append((former, next(iter(self.few.values())), next(iter(self.pairs)), self.times[former]))
        self.rows.append((ts, former))
        oldest = self.rows[0][1]
        if len(self.rows) > 4:
            self.rows = [*self.rows[1:], (1, oldest[1:])]
        out.append((oldest, self.rows[-1][1], word, self.ages.get(word, -1)))
        if ts % 3 == 0:
            gone = int(word in self.pairs) + 2 * int(ts % 2 in self.few)
            self.pairs.pop(word, None)
            self.few.pop(ts % 2, None)
            out.append((next(iter(self.pairs), former), former, oldest, gone))
        if ts % 29 == 0:
            self.names, self.pairs, self.rows = {}, {}, []
            out.append((oldest, former, before, 0))
        return out

    def flushed(self):
        before, self.last = self.last, self.few.get(1, self.last)
        return [(before, self.last, before, len(self.times))]

    def exported(self, key):
        pairs = [[{"key": k, "value": v} for k, v in table.items()] for table in (self.ages, self.pairs, self.few)]
        times = [{"key": k, "value": v} for k, v in self.times.items()]
        rows = [{"n": n, "word": word} for n, word in self.rows]
        values = (self.last, [*self.names], *pairs, times, rows)
        names = ("last", "names", "ages", "pairs", "few", "times", "rows")
        return {"key": key, **dict(zip(names, values, strict=True))}


def events(seed):
    """Few keys, and texts of every size of a block, many of them again and again."""
    r = np.random.default_rng(seed)
    words = [bytes(r.integers(97, 99, r.choice(LENGTHS)).astype(np.uint8)) for _ in range(60)]
    columns = {name: pa.array([words[i] for i in r.integers(0, 60, N)], pa.binary()) for name in ("word", "other")}
    return pa.table({"seq": np.arange(N), "ts": np.arange(N), "k": r.integers(0, 6, N), **columns})


@pytest.fixture(scope="module")
def keyed():
    app = App("texts")
    app.source(Event).key_by("k").process(note, State, Out, flush=last).sink()
    app.generates(lambda *arguments: {})
    return Case(app.check(), {}, events(0))


def test_interpreter_equals_plain_python(keyed):
    states, outputs = {}, []
    for row in keyed.events.tables[0].to_pylist():
        outputs += [(row["seq"], *entry) for entry in states.setdefault(row["k"], Plain()).note(row)]
    outputs += [(N, *entry) for key in sorted(states) for entry in states[key].flushed()]
    assert [tuple(v for name, v in row.items() if name != "sub") for row in keyed.outputs.to_pylist()] == outputs
    assert keyed.state["note"].to_pylist() == [states[key].exported(key) for key in sorted(states)]


@pytest.mark.slow
def test_loop_equals_the_interpreter_again_after_a_reset(keyed):
    loop, table = Loop(keyed.app, {}), keyed.events.tables[0]
    for _ in range(2):
        parts = [loop.process(table.slice(at, 400)) for at in range(0, N, 400)]
        compare("texts", keyed.outputs, pa.concat_tables([*parts, loop.finish(N)]), "outputs")
        compare("texts", keyed.state["note"], loop.state()["note"], "state")
        loop.reset()


@pytest.mark.parametrize("executor", [n for n, e in ENGINE_EXECUTORS.items() if "dataflow" in e.application_kinds])
def test_runtime_equals_the_interpreter(executor, keyed):
    for fields in strategies(executor)[::7]:
        for threads, batch in ((1, 256), (3, 7)):
            keyed.check(RunSpec.parse({"app": "texts", "threads": threads, "batch": batch, **fields}), 400)


@record
class Words:
    before: text
    names: Set[text]


@record
class Seen:
    before: text
    n: i64


EXTENTS = {"session": session(4), "multi": sliding(50, every=20), "single": rolling(50, every=20)}


def sets_of_texts(row, window, state, out):
    state.names.add(row.word)
    out.emit(before=state.before, n=len(state.names))
    state.before = row.other


def last_of_texts(window, state, out):
    out.emit(before=state.before, n=len(state.names))


def windowed(kind, update, state, output, result):
    app = App("texts")
    windows = app.source(Event).key_by("k").window(EXTENTS[kind])
    windows.apply(update=update, state=state, output=output, result=None if kind == "single" else result).sink()
    app.generates(lambda *arguments: {})
    return app.check()


# Every kind of container takes long to compile.
@pytest.mark.parametrize("all_containers", some([False, True]))
@pytest.mark.parametrize("kind", some(EXTENTS))
def test_states_of_windows_move_with_their_texts(kind, all_containers):
    functions = (in_window, State, Out, summary) if all_containers else (sets_of_texts, Words, Seen, last_of_texts)
    case = Case(windowed(kind, *functions), {}, events(1))
    name = functions[0].__name__
    moves = [{"event": at, "owners": {name: [at // 90 % 2]}} for at in range(0, N, 90)]
    for parallelism in ("vsn", "sn", "vsn_esg"):
        sample = case.check(Pinned(app="texts", threads=2, batch=16, parallelism=parallelism, schedule=moves), 400)
        assert any(at.bytes for at in sample.reconfigurations) == (parallelism == "sn")


@pytest.mark.slow
@pytest.mark.parametrize("kind", EXTENTS)
def test_loop_keeps_texts_of_windows(kind):
    case = Case(windowed(kind, in_window, State, Out, summary), {}, events(1))
    outputs = Loop(case.app, {}).process(case.events.tables[0])
    compare("texts", case.outputs.slice(0, 1000), outputs.slice(0, 1000), "outputs")


def seen(row, state, out):
    state.names.add(row.word)
    out.emit(before=state.before, n=len(state.names))
    state.before = row.other


def aggregated(stream):
    windows = stream.window(count_window(4))
    return windows.aggregate(first=agg.first("word"), last=agg.last("other"), n=agg.count_distinct("word"))


READY = {
    "aggregate": aggregated,
    "top": lambda stream: stream.window(tumbling(20)).top(2, by="ts"),
    "process": lambda stream: stream.process(seen, Words, Seen, ttl=8),
}


def aggregates_of(rows):
    """What `READY` says of the rows of a key: of every four, the greatest two of every twenty units, since a gap."""
    four = [rows[at : at + 4] for at in range(0, len(rows) - 3, 4)]
    yield [(rows[0]["word"], rows[3]["other"], len({row["word"] for row in rows})) for rows in four]
    spans = {row["ts"] // 20: [] for row in rows}
    for row in rows:
        spans[row["ts"] // 20].insert(0, row)
    yield [(rank, row["word"], row["other"]) for rows in spans.values() for rank, row in enumerate(rows[:2])]
    answers, names, before = [], set(), b""
    for last, row in zip([None, *rows], rows, strict=False):
        if last is not None and row["ts"] - last["ts"] >= 8:
            names, before = set(), b""
        names.add(row["word"])
        answers.append((before, len(names)))
        before = row["other"]
    yield answers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "columns"), [("process", "before n"), ("aggregate", "first last n"), ("top", "rank word other")]
)
def test_ready_made_operators_keep_texts(kind, columns):
    app = App("texts")
    READY[kind](app.source(Event).key_by("k")).sink()
    app.generates(lambda *arguments: {})
    table = events(2).slice(0, 300)
    case = Case(app.check(), {}, table)
    wanted = []
    for key in range(6):
        rows = [row for row in table.to_pylist() if row["k"] == key]
        wanted += list(aggregates_of(rows))[list(READY).index(kind)]
    answers = [tuple(row[name] for name in columns.split()) for row in case.outputs.to_pylist()]
    assert sorted(answers) == sorted(wanted)
    loop = Loop(app, {})
    compare("texts", case.outputs, pa.concat_tables([loop.process(table), loop.finish(300)]), "outputs")
    case.check(Pinned(app="texts", threads=2, batch=16, parallelism="vsn"), 100)
