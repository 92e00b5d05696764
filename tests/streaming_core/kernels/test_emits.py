"""The bounds of rows that an operator emits for an input."""

import pytest

from streaming_core.apps import registry
from streaming_core.kernels.emits import emits
from tests.differential.campaign import load

HELPERS = """
def helper(x, out):
    out.emit(x=x)


def echo(x, out):
    out.emit(x=x)
    return x
"""
# The body of an operator, and its bounds.
BODIES = {
    "out.emit(x=row.x)": (1, 1),
    "if row.x > 0:\n    out.emit(x=1)\nelse:\n    out.emit(x=-1)": (1, 1),
    "if row.x < 0:\n    out.drop()\n    return\nout.emit(x=row.x)": (0, 1),
    "if row.x > 0:\n    out.emit(x=1)\nif row.x > 1:\n    out.emit(x=2)": (0, 2),
    "for i in range(row.x):\n    if i > 3:\n        return\n    out.emit(x=i)": (0, None),
    "n = 0\nfor i in range(row.x):\n    if i > 10:\n        break\n    n += i\nout.emit(x=n)": (1, 1),
    "for i in range(row.x):\n    if i == row.y:\n        return\nout.emit(x=0)": (0, 1),
    "helper(row.x, out)": (0, None),
    "out.emit(x=echo(row.x, out))": (1, None),
    "return echo(row.x, out)": (0, None),
    "if echo(row.x, out) > 0:\n    out.emit(x=1)": (0, None),
    "out.drop()": (0, 0),
    "if row.x < 0:\n    out.drop()\nout.emit(x=row.x)": (0, 1),
    "out.emit(x=1)\nif row.x < 0:\n    out.drop()\nout.emit(x=2)": (1, 2),
    "for i in range(row.x):\n    if i == row.y:\n        out.drop()\nout.emit(x=0)": (0, 1),
    "if row.x < 0:\n    raise ValueError('negative')\nout.emit(x=row.x)": (1, 1),
}


@pytest.mark.parametrize("body", BODIES)
def test_bounds_cover_all_paths(body, tmp_path):
    file = tmp_path / "operators.py"
    file.write_text(HELPERS + "\n\ndef operate(row, out):\n    " + body.replace("\n", "\n    ") + "\n")
    bounds = emits(load(file).operate)
    assert (bounds.least, bounds.most) == BODIES[body]


def test_word_count_has_known_bounds():
    functions = {name: f for o in registry.load("wc").operators for name, f in o.functions.items()}
    assert (emits(functions["map"]).most, emits(functions["process"]).least) == (None, 1)
