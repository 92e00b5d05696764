"""States that end, and timers: an operator of a keyed stream becomes a windowed one (language/windowed.py).

    orders.key_by("order").process(of_order, Open, Late, ttl="1h")
    orders.key_by("order").process(of_order, Open, Late, ttl="1h", timer=on_timer, every="1s")

A state with a time to live is that of a session whose gap is the time, and nothing happens when it ends. With a timer,
it is that of a `single` window, which advances by `every`: each advance looks whether the timer is due.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.language import generated
from streaming_core.language.aggregation import as_text, resets
from streaming_core.language.extent import Extent, in_units
from streaming_core.language.record import FieldType, Record, boolean, i64
from streaming_core.language.windowed import Keys, Windows

# The state's own fields: whether its key has had a row, and the latest `ts` of these rows.
_OWN: dict[str, FieldType] = {"has_row": boolean, "latest_row": i64}
# Calls the function of the timer as long as the timer is due. A function that sets it no later than it was waits.
_FIRE = """\
    fired = -4611686018427387904
    while state.timer != 0 and fired < state.timer and state.timer <= {until}:
        fired = state.timer
        state.timer = 0
        _timer(fired, window.key, state, out)
"""


def expiring(
    stream: Any,
    keys: Keys,
    fn: Callable,
    state: Record,
    output: Record,
    ttl: int | str,
    timer: Callable | None,
    every: int | str | None,
) -> Any:
    """Declare the operator `fn(row, state, out)` whose states end `ttl` after the latest row of their key.

    Raises:
        BadInput: `timer` and `every` do not come together, or the state cannot have these functions.
    """
    app, name = stream._app, getattr(fn, "__name__", "process")

    def refusal(why: str) -> BadInput:
        return BadInput(f"app {app.name}: process {name}: {why}")

    if (timer is None) != (every is None):
        raise refusal('a timer needs both: timer=function, and every="1s", the time between two looks at the timers')
    if timer is not None and state.fields.get("timer") != i64:
        raise refusal(f"{state!r} needs a field `timer: i64`, the time of the timer; 0 means none")
    if clash := sorted(_OWN.keys() & state.fields.keys()):
        raise refusal(f"{state!r}: the field name {clash[0]!r} is reserved; rename the field")
    duration, delay = as_text(in_units(ttl, app)), as_text(app._delay(None))
    statements = [line for field, kind in state.fields.items() for line in resets(field, kind)]
    reset = "\n        ".join([*statements, "state.has_row = False"])
    fire = _FIRE.format(until=f"row.ts - {delay}") if timer is not None else ""
    text = (
        f"def {name}(row, window, state, out):\n{fire}"
        f"    if state.has_row and row.ts - state.latest_row >= {duration}:\n        {reset}\n"
        "    if not state.has_row or row.ts > state.latest_row:\n"
        "        state.has_row = True\n        state.latest_row = row.ts\n"
        "    _update(row, state, out)\n"
    )
    names = {"app": app, "_update": fn, "_timer": timer}
    functions = {"update_0": generated.function(stream._module, text, names)}
    if timer is not None:
        text = f"def {name}_timer(window, state, out):\n{_FIRE.format(until=f'window.end - {delay}')}"
        functions["result"] = generated.function(stream._module, text, names)
    kind = "session" if timer is None else "single"
    windows = Windows(app, (stream,), keys, Extent(1 if every is None else every, ttl, kind), None, None)
    windows.check_time(name)
    record = Record(state.name, {**state.fields, **_OWN}, None)
    return windows.added(name, functions, (record,), output)
