"""The number of passes in which a plan can execute at once, derived from the order in its source."""

import pytest

from streaming_core.kernels.plans import passes
from tests.differential.campaign import load

ONE, TWO, THREE = ("drop check act",), ("drop check", "act"), ("drop", "check", "act")
# Plans are only read, never run.
HELPERS = """
condition = change = table = None


def helper(request, txn):
    txn.modify(txn.row(table, 0), change)


def checker(request, txn):
    txn.require(condition, txn.row(table, 0))


def by_another_row(request, txn):
    return None
"""
ASK, ACT = "txn.require(condition, txn.row(table, {}))\n", "txn.modify(txn.row(table, {}), change)\n"
BY_ANOTHER = "txn.modify(txn.row(table, {}), by_another_row, txn.row(table, 1))\n"
PLANS = {
    "if request.a < 0:\n    txn.drop()\n    return\nrow = txn.row(table, request.a)\nif request.b:\n"
    "    txn.require(condition, row)\n    txn.modify(row, change)\n    txn.read(row)\nelse:\n"
    "    txn.require(condition, row)\n    txn.modify(row, change)\n": ONE,
    f"if request.b:\n    {ACT.format(0)}    return\n{ASK.format(1)}": ONE,
    "checker(request, txn)\nhelper(request, txn)\n": ONE,
    f"if request.b:\n    {ACT.format(0)}{ASK.format(1)}": TWO,
    f"for i in range(request.n):\n    {ASK.format('i')}    {ACT.format('i')}": TWO,
    "helper(request, txn)\nchecker(request, txn)\n": TWO,
    f"{ASK.format(1)}if request.b:\n    txn.drop()\n": THREE,
    f"{ASK.format(0)}{BY_ANOTHER.format(0)}{ACT.format(1)}": ONE,
    f"{ACT.format(1)}{BY_ANOTHER.format(0)}": TWO,
    f"for i in range(request.n):\n    {BY_ANOTHER.format('i')}": TWO,
    f"{BY_ANOTHER.format(0)}txn.drop()\n": THREE,
}


@pytest.mark.parametrize("plan", PLANS)
def test_passes(plan, tmp_path):
    file = tmp_path / "plans.py"
    file.write_text(HELPERS + "\n\ndef plan(request, txn):\n" + "".join(f"    {line}\n" for line in plan.splitlines()))
    module = load(file)
    assert passes(module.plan, [module.by_another_row]) == PLANS[plan]
