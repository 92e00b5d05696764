"""Queues that grow, slide and become empty, in one state and in one state per key.

Interpreter, compiled loop and runtime agree. The largest length of a queue bounds its memory.
"""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core.api import App, Queue, Ring, boolean, f64, i16, i64, record, u8
from streaming_core.kernels.program import compile_app
from streaming_core.oracle.loop import Loop, layout
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import RunSpec
from tests.differential.case import Case, strategies
from tests.differential.kernel import Kernel
from tests.differential.streams import examine

WAYS = [fields for executor in ("pooled", "pinned") for fields in strategies(executor)]
CUTS = [(1, 256, 1000), (2, 1, 64), (3, 7, 333)]  # threads, rows of a batch, of a block


@record
class Event:
    key: i64
    push: i64
    pop: i64
    at: i64
    x: f64
    empties: boolean


@record
class Item:
    """Columns of every width, so each one starts at another offset."""

    few: u8
    x: f64
    odd: boolean
    n: i16
    number: i64


@record
class State:
    pushed: i64
    turns: i64
    rows: Queue[Item]
    last: Ring[i64, 3]
    popped: Queue[Item]


@record
class Seen:
    key: i64
    count: i64
    sum: i64
    odd: i64
    x: f64
    at: i64


def turn(state):
    state.turns += 1
    return state.turns


def turned(state):
    state.turns += 1
    return state


def push(queue, number, x):
    """Writes fields in another order than the declaration, and passes the queue to other functions."""
    queue.append(number=number, n=number % 30000 - 15000, x=x - number, odd=number % 2, few=number % 256)
    return len(queue) - 1


def work(row, state, out):
    waiting = turned(state).rows
    if row.empties:
        waiting.clear()
    for _ in range(min(row.pop, len(waiting))):
        # Evaluated in the order of the code, not of the declaration.
        state.popped.append(
            number=waiting[0].number, n=turn(state) % 100, x=waiting[0].x, few=turn(state) % 100, odd=waiting[0].odd
        )
        waiting.popleft()
    for _ in range(row.push):
        push(waiting, state.pushed, row.x)
        state.pushed += 1
    # The address of a row comes before the address of its columns: a push may move the columns.
    newest = waiting[push(waiting, state.pushed, row.x)].number
    state.pushed += 1
    total = 0
    odd = 0
    x = 0.0
    for i in range(len(waiting)):
        total += waiting[i].few + 3 * waiting[i].n
        x += waiting[i].x
        if waiting[i].odd:
            odd += waiting[i].number - newest
    state.last.append(total)
    # The expression of the queue is evaluated once, and first.
    turned(state).popped.append(
        number=state.turns, n=turned(state).rows[0].n, x=1.0, few=len(turned(state).popped) % 100, odd=False
    )
    while len(state.popped) > 20:
        turned(state).popped.popleft()
    out.emit(key=row.key, count=len(waiting), sum=total, odd=odd, x=x, at=waiting[row.at % len(waiting)].number)


def end(state, out):
    while len(state.rows) > 0:
        out.emit(
            key=len(state.popped), count=len(state.rows), sum=state.rows[0].n, odd=state.rows[0].few,
            x=state.rows[0].x, at=state.rows[0].number,
        )  # fmt: skip
        state.rows.popleft()


def application(name):
    app = App(name)
    source = app.source(Event)
    stream = source.key_by("key") if name == "keyed" else source
    stream.process(work, State, Seen, flush=end).sink()
    app.generates(lambda *arguments: {})
    return app.check()


@pytest.fixture(scope="module", params=["alone", "keyed"])
def compiled_app(request):
    app = application(request.param)
    return app, compile_app(app, {})


def events(phases):
    """The events of phases: (key, rows pushed and popped by each event, events, does the first one empty the queue)."""
    rows = [
        (key, pushed, popped, at, None if at % 7 == 0 else at / 3, empties and turn == 0)
        for key, pushed, popped, turns, empties in phases
        for turn in range(turns)
        for at in [turn * 5 + pushed]
    ]
    key, pushed, popped, at, x, empties = zip(*rows, strict=True)
    endless = [float("inf") if value is None else value for value in x]
    columns = {"key": key, "push": pushed, "pop": popped, "at": at, "x": endless, "empties": empties}
    return pa.table({"seq": pa.array(range(len(rows)), pa.int64()), **columns})


phase = st.tuples(
    st.sampled_from((0, 1)),
    st.sampled_from((0, 0, 1, 2, 9, 40)),
    st.sampled_from((0, 1, 2, 3, 10, 60)),
    st.sampled_from((1, 2, 9, 40)),
    st.sampled_from((False, False, False, True)),
)


@pytest.mark.slow
def test_long_sequences_of_appends_and_removals_agree(compiled_app):
    app, program = compiled_app
    longest = []
    loop = Loop(app, {})

    @given(phases=st.lists(phase, min_size=1, max_size=12), way=st.sampled_from(WAYS), cut=st.sampled_from(CUTS))
    @examine(60)
    def agree(phases, way, cut):
        table = events(phases)
        threads, batch, block = cut
        case = Case(app, {}, table, program)
        loop.reset()
        outputs = pa.concat_tables([loop.process(table), loop.finish(table.num_rows)])
        compare(app.name, case.outputs, outputs, "outputs")
        compare(app.name, case.state["work"], loop.state()["work"], "state")
        case.check(RunSpec.parse({"app": app.name, "threads": threads, "batch": batch, **way}), block)
        longest.append(max(case.outputs["count"].to_pylist()))

    agree()
    assert max(longest) > 1000  # columns grew seven times
    assert min(longest) < 9


@pytest.mark.slow
def test_queue_memory_is_bounded_by_its_largest_length():
    """Each event adds a row; from the 100th event on, it also removes one."""
    app = application("alone")
    filling, steady = events([(0, 0, 0, 100, False)]), events([(0, 0, 1, 5000, False)])
    row = sum(scalar.width for scalar in State.fields["rows"].fields.values())
    most = 2 * 4 * (101 + 22) * row  # of both queues, including abandoned columns
    kernel, loop = Kernel(app, {}), Loop(app, {})
    taken = []
    for table in (filling, steady, steady, steady):
        kernel.process(table)
        loop.process(table)
        taken.append((sum(map(len, kernel.blocks)), int(loop._work.context[layout.ARENA // 8])))
    assert taken[0][0] < taken[1][0] <= most  # removed rows go to the other queue
    assert taken[1] == taken[2] == taken[3]
