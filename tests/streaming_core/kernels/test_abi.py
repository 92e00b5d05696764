"""The constants that kernels use equal the runtime's own."""

import json

import pytest

from streaming_core import _runtime
from streaming_core.kernels import abi

RUNTIME = _runtime.abi()
NAMES = {name: value for name, value in vars(abi).items() if name.isupper() and isinstance(value, int)}


def test_every_constant_equals_the_runtimes_offset():
    fields = {
        f"{prefix}_{field.upper()}": offset
        for prefix, struct in abi.STRUCTS.items()
        for field, offset in RUNTIME[struct].items()
    }
    assert {name: fields.get(name, RUNTIME["constants"].get(name)) for name in NAMES} == NAMES
    assert len(NAMES) > 70


def test_both_sides_know_every_struct():
    assert {*abi.STRUCTS.values(), "constants"} == set(RUNTIME)


@pytest.mark.parametrize(("option", "value"), [("colour", 1), ("Threads", 2)])
def test_an_unknown_option_is_refused_in_one_line_with_its_name(option, value):
    program = {
        "kind": "dataflow", "event": {"stride": 8}, "outputs": [0], "columns": [],
        "operators": [{"kind": "stateless", "name": "pass", "inputs": [-1], "kernel": 1, "stride": 8}],
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"^options: unknown field") as refused:
        _runtime.Engine(json.dumps(program), json.dumps({"executor": "pooled", option: value}))
    assert f"`{option}`" in str(refused.value)
    assert "\n" not in str(refused.value)
