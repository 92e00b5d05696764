"""The number of passes in which a plan can execute at once, derived from the order in its source."""

import pytest

from streaming_core.kernels.plans import passes

ONE, TWO, THREE = ("drop check act",), ("drop check", "act"), ("drop", "check", "act")
condition = change = table = None  # plans below are only read, never run


def in_order(request, txn):
    if request.a < 0:
        txn.drop()
        return
    row = txn.row(table, request.a)
    if request.b:
        txn.require(condition, row)
        txn.modify(row, change)
        txn.read(row)
    else:
        txn.require(condition, row)
        txn.modify(row, change)


def exclusive_paths(request, txn):
    if request.b:
        txn.modify(txn.row(table, 0), change)
        return
    txn.require(condition, txn.row(table, 1))


def condition_after_a_modification(request, txn):
    if request.b:
        txn.modify(txn.row(table, 0), change)
    txn.require(condition, txn.row(table, 1))


def condition_in_the_next_turn(request, txn):
    for i in range(request.n):
        txn.require(condition, txn.row(table, i))
        txn.modify(txn.row(table, i), change)


def drop_after_a_condition(request, txn):
    txn.require(condition, txn.row(table, 1))
    if request.b:
        txn.drop()


def helper(request, txn):
    txn.modify(txn.row(table, 0), change)


def checker(request, txn):
    txn.require(condition, txn.row(table, 0))


def joint_in_order(request, txn):
    checker(request, txn)
    helper(request, txn)


def by_another_row(request, txn):
    return None


def another_row_first(request, txn):
    txn.require(condition, txn.row(table, 0))
    txn.modify(txn.row(table, 0), by_another_row, txn.row(table, 1))
    txn.modify(txn.row(table, 1), change)


def another_row_after_a_modification(request, txn):
    txn.modify(txn.row(table, 1), change)
    txn.modify(txn.row(table, 0), by_another_row, txn.row(table, 1))


def other_rows_in_turns(request, txn):
    for i in range(request.n):
        txn.modify(txn.row(table, i), by_another_row, txn.row(table, 1))


def drop_after_another_row(request, txn):
    txn.modify(txn.row(table, 0), by_another_row, txn.row(table, 1))
    txn.drop()


def joint_out_of_order(request, txn):
    helper(request, txn)
    checker(request, txn)


@pytest.mark.parametrize(
    ("plan", "wanted"),
    [
        (in_order, ONE),
        (exclusive_paths, ONE),
        (joint_in_order, ONE),
        (condition_after_a_modification, TWO),
        (condition_in_the_next_turn, TWO),
        (joint_out_of_order, TWO),
        (drop_after_a_condition, THREE),
        (another_row_first, ONE),
        (another_row_after_a_modification, TWO),
        (other_rows_in_turns, TWO),
        (drop_after_another_row, THREE),
    ],
)
def test_passes(plan, wanted):
    assert passes(plan, [by_another_row]) == wanted
