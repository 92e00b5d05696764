"""The rows of tables before the first event: all readers of an application refuse the same ones alike."""

import re
from functools import partial

import numpy as np
import pytest

from streaming_core.api import App, Array, Param, Set, boolean, f64, i64, record, u8
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.kernels.program import compile_app
from streaming_core.language.bound import BoundApp
from streaming_core.language.record import NAN_BITS
from streaming_core.language.tables import MOST_ROWS
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop


@record
class Row:
    small: u8
    flag: boolean
    real: f64
    few: Array[u8, 3]
    seen: Set[i64]


@record
class Event:
    ts: i64


def bank(size=4, init=None, offsets=None):
    """An application with one table, and an operator that reads it."""
    app = App("bank", params={"size": Param(4)})
    rows = app.table("rows", Row, size, init)
    shift = app.constant(offsets or (lambda params: np.zeros(1)))

    def plan(event, txn):
        txn.read(txn.row(rows, event.ts))

    def answer(event, txn, out):
        out.emit(ts=txn.result(rows, 0).small + int(shift[0]))

    app.transaction(input=Event, output=Event)(plan).post(answer)
    app.generates(lambda *args: {})
    return app


def overflowing(key, params):
    return {"small": 300 - key}


def negative(key, params):
    return {"few": [0, -1, 2]}


def fractional(key, params):
    return {"small": key / 2}


def wordy(key, params):
    return {"small": "seven"}


def three_valued(key, params):
    return {"flag": key}


def too_long(key, params):
    return {"small": np.arange(3)}


def unknown(key, params):
    return {"large": 1}


def boxed(key, params):
    return {"seen": 1}


def listed(key, params):
    return [1]


def branching(key, params):
    if key > 2:
        return {"small": 1}
    return {"small": 2}


def lacking(key, params):
    return {"small": params["width"]}


REFUSED = {
    overflowing: "small must be between 0 and 255 (u8), got 300 in row 0",
    negative: "few must be between 0 and 255 (u8), got -1 in row 0",
    fractional: "small: cannot store values of type float64 in a field of type u8",
    wordy: "small: cannot store values of type <U5 in a field of type u8",
    three_valued: "flag must be between 0 and 1 (boolean), got 2 in row 2",
    too_long: "small: operands could not be broadcast together with remapped shapes [original->remapped]: (3,)",
    unknown: "Row has no scalar or array field 'large' to initialise",
    boxed: "Row has no scalar or array field 'seen' to initialise",
    listed: "must return a dict of columns by name, got a list",
    branching: "ValueError: The truth value of an array with more than one element is ambiguous",
    lacking: "KeyError: 'width'",
}
READERS = (Interpreter, Loop, compile_app)


def refusal(app):
    """The error with which every reader refuses the application."""
    messages = set()
    for reader in READERS:
        with pytest.raises(BadInput) as error:
            reader(app, app.bind())
        messages.add(str(error.value))
    [line] = messages
    return line


@pytest.mark.parametrize("init", REFUSED)
def test_every_reader_refuses_an_invalid_initial_row_alike(init):
    line = init.__code__.co_firstlineno + (init in (branching, lacking))
    where = f"app bank: table rows: init (test_tables.py:{line}): "
    assert refusal(bank(init=init)).startswith(where + REFUSED[init])


@pytest.mark.parametrize("size", [0, -1, MOST_ROWS + 1])
def test_table_sizes_have_one_bound(size):
    assert refusal(bank(size=size)) == f"app bank: table rows: the size must be between 1 and 4294967295, got {size!r}"


def no_constant(params):
    return np.zeros((2, 2))


def no_number(params):
    return np.log(-params["unknown"])


def test_every_reader_refuses_invalid_constants_alike():
    first = no_constant.__code__.co_firstlineno
    expected = f"app bank: constant no_constant (test_tables.py:{first}): "
    assert refusal(bank(offsets=no_constant)).startswith(f"{expected}must return a 1-D int64 or float64 array, got ")
    first = no_number.__code__.co_firstlineno
    expected = f"app bank: constant no_number (test_tables.py:{first + 1}): KeyError: 'unknown'"
    assert refusal(bank(offsets=no_number)) == expected


def fitting(key, params):
    assert key.dtype == np.int64
    reals = np.array([0xFFF8 << 48, 0x7FF0 << 48 | 1, 0, 1], np.uint64).view(np.float64)
    return {"small": 255 - key, "flag": key % 2 == 0, "real": reals, "few": [7, 8, 9]}


@pytest.mark.slow
def test_rows_begin_with_their_initial_values():
    app = bank(size="size", init=fitting)
    rows = BoundApp(app, app.bind()).tables[0].initial_rows()
    assert rows["small"].tolist() == [255, 254, 253, 252]
    assert rows["flag"].tolist() == [1, 0, 1, 0]
    assert rows["real"].view(np.uint64).tolist() == [NAN_BITS, NAN_BITS, 0, 1]
    assert rows["few"].tolist() == [[7, 8, 9]] * 4
    tables = [reader(app, app.bind()).state()["rows"] for reader in (Interpreter, Loop)]
    assert tables[0]["few"].to_pylist() == tables[1]["few"].to_pylist() == rows["few"].tolist()
    assert compile_app(app, app.bind()).initial[0].tobytes() == rows.tobytes()
    app = bank(init=lambda key, params: None)
    assert not BoundApp(app, {}).tables[0].initial_rows().view(np.uint8).any()


def failing(key, params):
    return {"balance": 1 // params["zero"]}


def test_commands_refuse_an_invalid_initial_row_in_one_line(tmp_path, monkeypatch, capfd, request):
    from streaming_core.cli import main

    app = registry.load("sl")
    workload.write(app, {}, 20, 1, tmp_path / "w")
    request.addfinalizer(partial(object.__setattr__, app.tables[0], "init", app.tables[0].init))
    object.__setattr__(app.tables[0], "init", failing)  # the table is frozen
    for what, out in (("oracle", "o"), ("run", "r")):
        monkeypatch.setattr(
            "sys.argv", ["streaming-core", what, "sl", "--input", str(tmp_path / "w"), "--out", str(tmp_path / out)]
        )
        with pytest.raises(SystemExit) as stopped:
            main()
        stderr = capfd.readouterr().err
        line = failing.__code__.co_firstlineno + 1
        assert stopped.value.code == 2
        assert re.fullmatch(
            rf"streaming-core: app sl: table accounts: init \(test_tables.py:{line}\): KeyError: 'zero'\n", stderr
        )
        assert not (tmp_path / out).exists()
