"""A declaration with wrong values is a valid application, or refused in one line that names the wrong value."""

import itertools
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_core.apps import registry
from streaming_core.errors import BadInput

HEAD = '''"""An application with wrong values."""
import math

from streaming_core.api import (
    App, Array, Counter, Map, Param, Profile, Queue, Ring, Set, TopK, agg, boolean, count_window, f64, i64, record,
    rolling, session, sliding, text, tumbling, u8,
)

app = App(NAME, params={"k": Param(2, minimum=1), "word": Param("x")})
other = App("other")


@record
class Left:
    ts: i64
    k: i64
    v: i64
    x: f64
    p: boolean
    line: text


@record
class Right:
    ts: i64
    k: i64
    w: i64


@record
class Other:
    ts: i64
    k: i64
    w: i64


@record
class State:
    n: i64
    seen: Set[i64]


def work(row, out):
    out.emit(ts=row.ts, k=row.k, w=1)


def keep_all(row, out):
    out.emit(ts=row.ts, k=row.k, w=2)


def nothing(row, state, out):
    pass


def keep(row, state, out):
    state.n += 1
    out.emit(ts=row.ts, k=row.k, w=state.n)


def gone(state, out):
    out.emit(ts=0, k=0, w=state.n)


def update(row, window, state, out):
    state.n += 1


def meet(row, window, one, two, out):
    one.n += 1


def total(window, state, out):
    out.emit(ts=window.end, k=0, w=state.n)


def totals(window, one, two, out):
    out.emit(ts=window.end, k=0, w=one.n)


def of_row(row):
    return row.ts > 1


def plan(event, txn):
    txn.modify(txn.row(rows, 0), change)


def change(row, event):
    row.n += 1


def reply(event, txn, out):
    out.emit(ts=event.ts, k=event.k, w=0)


def ones(params):
    import numpy as np
    return np.ones(3)


stranger = other.source(Right)
'''
ONE = "left = app.source(Left, delay=«None»)\n"
TWO = "left, right = app.sources(«Other», «Right», delay=«None»)\napp.generates(ones, ones)\n"
WINDOWED = "left.key_by('k').window(«tumbling(10)», delay=«None», idle=«None», early=«None», lateness=«None»)"
# Declarations, whose values stand in « ».
DECLARED = [
    ONE + "left.flat_map(«work», «Right», scratch=«None»).sink(«'outputs'»)",
    ONE + "left.process(«keep», «State», «Right», flush=«gone»).sink(«'outputs'»)",
    ONE + "left.key_by(«'k'»).distinct().sink()",
    ONE + "left.key_by(«'k'»).process(«keep», state=«State», output=«Right», flush=«gone»).sink()",
    ONE + "left.flat_map(work, Right).sink(«'a'»)\nleft.flat_map(keep_all, Right).sink(«'b'»)",
    TWO + "left.flat_map(work, Right).union(«right», «right»).sink()",
    ONE + f"{WINDOWED}.aggregate(n=«agg.count()», v=«agg.max('v')»).sink()",
    ONE + f"{WINDOWED}.late().sink()",
    ONE + f"{WINDOWED}.aggregate(a=agg.sum(«'v'»), b=agg.avg(«'x'»), c=agg.count_distinct(«'v'»)).sink()",
    ONE + f"{WINDOWED}.aggregate(a=agg.min(«'x'»), b=agg.max(«'x'»), c=agg.first(«'v'»), d=agg.last(«'x'»)).sink()",
    ONE
    + "rows = left.select(«'ts'», «'x'», a=«'k'», b=«(f64, of_row)»).filter(«of_row»)\n"
    + "rows.window(tumbling(9)).top(«2», by=«'x'»).sink()",
    ONE + f"{WINDOWED}.top_k(«'v'», «3»).sink()",
    ONE + f"{WINDOWED}.apply(«update», «State», «Right», «total», slide=«None»).sink()",
    ONE + "left.key_by('line').window(tumbling(«10»)).aggregate(n=agg.count()).sink()",
    ONE + "left.key_by('line').window(sliding(«10», every=«5»)).aggregate(n=agg.count()).sink()",
    ONE + "left.key_by('k').window(session(«10»)).aggregate(n=agg.count()).sink()",
    ONE + "left.key_by('k').window(count_window(«10»)).aggregate(n=agg.count()).sink()",
    ONE + "left.key_by(«'k'», keys=«None», every=«None», multiplicity=«'set'»).window(rolling(«10», every=«1»))"
    ".apply(«update», «State», «Right», result=«total», slide=«None»).sink()",
    TWO + "app.connect(«left», «right»).key_by(«'k'»).window(tumbling(10))"
    ".apply(«(meet, meet)», «(State, State)», «Right», result=«totals»).sink()",
    TWO + "app.join(«left», «right», «'k'», within=«5», ttl=«0», how=«'inner'», band=«None»).sink()",
    TWO + "app.join(left, right, on=«'k'», within=«5», band=«{'w': ('w', 3)}»).sink()",
    "rows = app.table(«'rows'», «State», «4», init=«None», key=«None», lookup=«None», keys=«None»)\n"
    "app.transaction(«Left», «Right»)(«plan»).post(«reply»)",
    ONE + "left.flat_map(work, Right).sink()\napp.constant(«ones»)\napp.agrees_unordered(«'w'», states=«()»)",
    ONE
    + "left.flat_map(work, Right).sink()\napp.invariant(«'positive'», «'SELECT * FROM outputs WHERE w < 0'», «False»)",
    "app = App(«NAME», params=«None», profiles=«None», reads=«''», time=«'ms'»)\n"
    + ONE
    + "left.flat_map(work, Right).sink()",
    "app = App(NAME, params={'k': Param(«2», doc=«''», minimum=«1», maximum=«5», choices=«None»)}, "
    "profiles={'p': Profile(«''», «{'k': 3}»)})\n" + ONE + "left.flat_map(work, Right).sink()",
    "@record\nclass Held:\n    one: «i64»\n    two: Array[«i64», «2»]\n    three: Ring[«i64», «2»]\n"
    "    four: Set[«i64»]\n"
    "    five: Map[«i64», «f64»]\n    six: Counter[«i64»]\n    seven: TopK[«2»]\n    eight: Queue[«Right»]\n"
    + ONE
    + "left.process(keep, State, Right).process(nothing, Held, Right).sink()",
    ONE + "left.flat_map(work, Right).sink()\napp.generates(«ones»)",
]
WRONG = [
    "None", "True", "0", "1", "-1", "2", "1 << 61", "1 << 64", "0.5", "1e300", "math.nan", "math.inf", "''", "' '",
    "'k'", "'v'", "'ts'", "'seq'", "'key'", "'word'", "'nosuch'", "'1m'", "'1m '", "'٣s'", "'1_0s'", "'k*k'", "'k*'",
    "'a b'", "'é'", "'class'", "'x' * 300", "'\\0'", "b'k'", "'single'", "'session'", "'hash'", "()", "[]", "{}",
    "set()", "('k',)", "['k']", "{'k': 1}", "{'k': ('k', 1)}", "{'w': 'w'}", "object()", "len",
    "lambda row, out: None", "print", "App", "app", "other", "stranger", "stranger.key_by('k')",
    "stranger.window(tumbling(5))", "agg", "agg.count()", "agg.count", "Left", "Right", "State", "int",
    "i64", "f64", "boolean", "text", "Array[i64, 2]", "Set[i64]", "TopK[1]", "Queue[Right]", "Param(1)", "work",
    "keep", "update", "tumbling(3)", "session(3)", "count_window(2)", "(work, work)", "(State, State)", "NAME", "...",
]  # fmt: skip
NUMBERS = itertools.count()
SLOT = re.compile("«(.*?)»")


def with_wrong(declared: str, wrong: dict[int, str]) -> str:
    """The declaration with other values in some of its slots."""
    slots = iter(range(declared.count("«")))
    return SLOT.sub(lambda slot: wrong.get(next(slots), slot[1]), declared)


def loaded(package, name: str, declared: str) -> str | None:
    """Load an application; the refusal if it is refused."""
    text = HEAD + declared + "\nif not app._generators:\n    app.generates(lambda params, seed, start, stop: {})\n"
    (package / f"{name}.py").write_text(text.replace("NAME", repr(name)))
    try:
        registry.load(name)
    except BadInput as error:
        return str(error)
    return None


def test_declarations_are_valid_before_their_values_go_wrong(package):
    for number, declared in enumerate(DECLARED):
        assert loaded(package, f"right{number}", with_wrong(declared, {})) is None


@pytest.mark.parametrize(
    ("declared", "refusal"),
    [
        (ONE + "left.sink()", "no operator is between source and sink"),
        (ONE + "left.union(left).sink()", "no operator is between source and sink"),
        (ONE + "left.flat_map(work, Right).sink(1)", "sink: name must be a text, got 1"),
        (ONE + "left.flat_map(work, Right).sink(None)", "sink: name must be a text, got None"),
        (ONE + "left.key_by('k').window(tumbling(10)).top_k('v', '').sink()", "unknown parameter ''"),
        (ONE + "left.key_by('k').window(tumbling('٣s')).top_k('v', 1).sink()", "'٣s' is not a duration"),
        (TWO + "app.join(right, right, 'k', within=5).sink()", "two fields of the result are called right_w"),
        (TWO + "app.join(left, right, 'ts', within=5).sink()", "join on 'ts': the result has a field ts of its own"),
        *(
            (ONE + f"left.flat_map(work, Right).sink()\n{twice}\n{twice}", refusal)
            for twice, refusal in (
                ("app.invariant('one', 'SELECT 1')", "two invariants are called 'one'"),
                ("app.agrees_unordered('w')", "agrees_unordered: name all columns in one call"),
                ("app.generates(ones)", "the generator is declared already"),
            )
        ),
        *(
            (f"rows = app.table('rows', State, 4)\napp.table('{name}', State, 4)\n"
             "app.transaction(Left, Right)(plan).post(reply)", f"a table and {other} are called {name}")
            for name, other in (("rows", "a table"), ("plan", "an operator"))
        ),
    ],
)  # fmt: skip
def test_faulty_declaration_is_refused_with_its_reason(package, declared, refusal):
    assert refusal in str(loaded(package, "wrong", with_wrong(declared, {})))


# Python's own words for a wrong value, which name neither the argument nor the remedy.
PYTHON = re.compile(r": (\w*(Error|Exception|Warning|Iteration)): (?!a stream|windows|a keyed|keyed)")


def property_of(examples: int):
    """The property, over so many draws."""

    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
    @given(data=st.data())
    def check(package, data):
        declared = data.draw(st.sampled_from(DECLARED))
        slots = st.integers(0, declared.count("«") - 1)
        wrong = data.draw(st.dictionaries(slots, st.sampled_from(WRONG), min_size=1, max_size=2))
        refusal = loaded(package, f"wrong{next(NUMBERS)}", with_wrong(declared, wrong))
        assert refusal is None or ("\n" not in refusal and not PYTHON.search(refusal))

    return check


test_wrong_values_are_valid_or_refused_in_one_line = property_of(100)
test_many_wrong_values_are_valid_or_refused_in_one_line = pytest.mark.slow(property_of(3000))
