"""The bounds of rows that an operator emits for an input."""

import pytest

from streaming_core.apps import registry
from streaming_core.kernels.emits import emits


def one(row, out):
    out.emit(x=row.x)


def either(row, out):
    if row.x > 0:
        out.emit(x=1)
    else:
        out.emit(x=-1)


def valid(row, out):
    if row.x < 0:
        out.drop()
        return
    out.emit(x=row.x)


def up_to_two(row, state, out):
    if row.x > 0:
        out.emit(x=1)
    if row.x > 1:
        out.emit(x=2)


def many(row, out):
    for i in range(row.x):
        if i > 3:
            return
        out.emit(x=i)


def loop_without_rows(row, out):
    total = 0
    for i in range(row.x):
        if i > 10:
            break
        total += i
    out.emit(x=total)


def first(row, out):
    for i in range(row.x):
        if i == row.y:
            return
    out.emit(x=0)


def helper(x, out):
    out.emit(x=x)


def by_helper(row, out):
    helper(row.x, out)


def echo(x, out):
    out.emit(x=x)
    return x


def within_a_value(row, out):
    out.emit(x=echo(row.x, out))


def within_a_return(row, out):
    return echo(row.x, out)


def within_a_condition(row, out):
    if echo(row.x, out) > 0:
        out.emit(x=1)


def nothing(row, out):
    out.drop()


def drops_and_ends(row, out):
    if row.x < 0:
        out.drop()
    out.emit(x=row.x)


def emits_then_drops(row, out):
    out.emit(x=1)
    if row.x < 0:
        out.drop()
    out.emit(x=2)


def drops_in_a_loop(row, out):
    for i in range(row.x):
        if i == row.y:
            out.drop()
    out.emit(x=0)


def raises(row, out):
    if row.x < 0:
        raise ValueError("negative")
    out.emit(x=row.x)


@pytest.mark.parametrize(
    ("function", "bounds"),
    [
        (one, (1, 1)),
        (either, (1, 1)),
        (valid, (0, 1)),
        (up_to_two, (0, 2)),
        (many, (0, None)),
        (loop_without_rows, (1, 1)),
        (first, (0, 1)),
        (by_helper, (0, None)),
        (within_a_value, (1, None)),
        (within_a_return, (0, None)),
        (within_a_condition, (0, None)),
        (nothing, (0, 0)),
        (drops_and_ends, (0, 1)),
        (emits_then_drops, (1, 2)),
        (drops_in_a_loop, (0, 1)),
        (raises, (1, 1)),
    ],
)
def test_bounds_cover_all_paths(function, bounds):
    assert (emits(function).least, emits(function).most) == bounds


def test_word_count_has_known_bounds():
    functions = {name: f for o in registry.load("wc").operators for name, f in o.functions.items()}
    assert (emits(functions["map"]).most, emits(functions["process"]).least) == (None, 1)
