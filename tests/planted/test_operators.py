"""Each planted fault of an operator breaks its property on a few events, on which the sound application keeps it."""

import importlib.util
import sys

import pytest

from streaming_core.language.record import Array, Nullable, Scalar
from streaming_core.language.sources import TAG
from streaming_core.search import scenario
from streaming_core.search.scenario import Scenario
from tests.planted.operators import FAULTS

BIG = 1 << 62


def events(**columns):
    """Events with these columns; a single value is that of all."""
    size = max(len(column) for column in columns.values() if isinstance(column, list))
    return [
        {name: column[n] if isinstance(column, list) else column for name, column in columns.items()}
        for n in range(size)
    ]


def clicks(*items, **columns):
    return events(item_sk=[*items], sales_sk=-1, user_sk=1, **columns)


INPUTS = {
    "overdraft": ({}, events(source=[1], target=2, amount=100)),
    "self_transfer": ({}, events(source=[1], target=1, amount=5)),
    "overflow": ({}, events(cents=[BIG, BIG])),
    "floor": ({"every": 1}, events(cents=[-150])),
    "counter_not_reset": ({"every": 2}, events(cents=[1, 1])),
    "shared_state": ({}, events(shop=[1, 65])),
    "lost_flush": ({}, events(shop=[1])),
    "window_start": ({}, events(ts=[60])),
    "late_counted_twice": ({}, events(ts=[200, 7])),
    "window_multiple": ({}, events(ts=[200, 60])),
    "event_number": ({}, events(ts=[*range(8)])),
    "forgotten_number": ({}, events(number=[1, 2, 3, 4, 5, 6, 1])),
    "float_sum": ({}, events(value=[1e9, 1e-3, 1e-3, 1e-3, 0.7, 0.1, -1e9])),
    "nan": ({}, events(value=[1.0, float("nan")])),
    "null": ({}, events(quality=[3, None])),
    "order_of_ties": ({}, events(number=[*range(9)], ts=4)),
    "empty_word": ({}, events(line=[b"a  b"])),
    "session_gap": ({"timeout": 10}, clicks(1, 2, ts=[0, 10])),
    "join_band": ({"band": 3}, events(x=[4, 0], a=[0, 7], **{TAG: [0, 1]})),
    "top_tie": ({"limit": 1}, clicks(5, 2, 1, ts=0)),
}


def load(fault, source, folder):
    """The application of a fault, from this source."""
    name = f"planted_{fault.name}_{folder.name}"
    file = folder / f"{fault.app}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(name, file)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app.check()


def nothing(kind):
    """A value of a field that an input does not name."""
    if isinstance(kind, Nullable):
        return None
    if isinstance(kind, Scalar) and kind.name == "boolean":
        return False
    return 0 if isinstance(kind, Scalar) else [] if isinstance(kind, Array) else b""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_breaks_its_property_and_the_sound_application_keeps_it(name, tmp_path):
    fault, (params, rows) = FAULTS[name], INPUTS[name]
    broken = {}
    for source in ("source", "faulty"):
        (tmp_path / source).mkdir()
        app = load(fault, getattr(fault, source), tmp_path / source)
        full = [{field: nothing(kind) for field, kind in app.event.fields.items()} | row for row in rows]
        values = app.bind(params)
        broken[source] = [name for name, _ in scenario.broken(app, values, scenario._table(app, values, full))]
        assert Scenario(app, params, full).outputs is not None  # the oracle takes the events
    assert broken["source"] == []
    assert fault.by in broken["faulty"]


def test_every_fault_has_an_input():
    assert INPUTS.keys() == FAULTS.keys()
    assert len(FAULTS) == 20
