"""Windows over event time, as an application declares them: the stateful operator O+ (STRETCH, section 4.2).

Windows are `[l*advance, l*advance + size)` for every integer l, over the `ts` of the rows. For each row in order:

1. Each stream has a mark: the highest `ts` of its rows so far. The watermark W becomes the lowest mark less `delay`, if
   that is higher than W (STRETCH, section 2.3). A stream without a row has no mark: no window expires, and no row is
   late. With `idle`, W ignores streams without a mark, and streams whose mark is more than `idle` below the highest
   mark. A `single` window slides with the latest row of any stream, so its `idle` is 0. Its size includes the delay.
   Rows of a session with a delay first wait in sessions of their own, longer by the delay (language/windowed.py).
2. Windows with end <= W expire, ascending in l, within l by key group and then in first-touched order: `result` is
   called. A `multi` window then ends. A `single` window advances, and `slide` is called. It ends once no row of its key
   lies in it any more.
   Each burst of rows of a key has a `session`. It begins at the earliest `ts` of these rows, and ends at the latest
   `ts` plus `size`, the gap. It expires like other windows, and then ends. With `most`, it begins at the `ts` of its
   first row, whatever the `ts` of later ones, and ends at most so long after it.
3. `update` is called for the row's open windows, ascending in l. Within a window, it is called for the row's keys in
   the order in which the row added them. Of `single` windows, only the earliest open one counts. A row without any
   open window is late: it is dropped and counted. A row joins the open session of its key, or begins one; it is late if
   its own session would have expired.

At the end of the stream all windows expire. An output carries the `seq` of the event that caused it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streaming_core.errors import BadInput, unknown
from streaming_core.language.declaration import shown
from streaming_core.language.record import Record, i64

KINDS = ("multi", "single", "session")
MULTIPLICITIES = ("set", "bag")
MOST = 1 << 61  # largest advance, size, delay and ts: their sums still fit into 64 bits
MOST_KEYS = 1 << 20  # keys that every row can have, in all its windows: each costs a call of the operator and a state
MOST_WINDOWS = 1 << 16  # windows that a row can be in: each costs a pane beside its states
# The key of windows that have keys 0..every-1.
EVERY = Record("Every", {"index": i64}, "One of the keys that every row has.")


@dataclass(frozen=True)
class Window:
    """The windows of an operator, as declared. Numbers and the multiplicity may be names of parameters.

    Attributes:
        kind: `multi`: a state for each window of a key. `single`: one for each key, whose window slides. `session`: one
            for each burst of rows of a key.
        advance, size, delay: In units of `ts`. For a session, `size` is the gap, and `advance` is 1.
        idle: In units of `ts`; None: the watermark waits for every stream.
        key: The record of a key.
        field: The field of the rows that is their only key, if there is one.
        every: Every row has the keys 0..every-1, if not None.
        multiplicity: Whether a key that a row adds twice counts once (`set`) or twice (`bag`), or the parameter that
            says so.
        streams: For each input of the operator, the number of its stream.
        states: One record for each stream, or the only one.
        is_observed: Whether a function runs when a window has expired.
        most: The greatest length of a session, in units of `ts`; None: any.
        merge: For each field of the state, how its values in two parts of a window become one (`agg.Part`); empty: they
            do not.
    """

    kind: str
    advance: int | str
    size: int | str
    delay: int | str
    idle: int | str | None
    key: Record
    field: str | None
    every: int | str | None
    multiplicity: str
    streams: tuple[int, ...]
    states: tuple[Record, ...]
    is_observed: bool
    most: int | str | None = None
    merge: tuple[str | None, ...] = ()

    def bound(self, operator: str, params: dict[str, Any]) -> Bounds:
        """Return the numbers of the declaration under these parameters.

        Args:
            operator: What errors say of the operator: its name and place.
            params: The parameters.

        Raises:
            BadInput: A number is not an integer, or out of bounds.
        """
        advance = _number(operator, "advance", self.advance, params, 1)
        size = _number(operator, "gap" if self.kind == "session" else "size", self.size, params, 1)
        if advance > size:
            raise BadInput(f"{operator}: window: advance must be at most size ({size}), got {advance}")
        most = None if self.most is None else _number(operator, "most", self.most, params, size)
        is_multi = self.kind == "multi"
        delay = _number(operator, "delay", self.delay, params, 0, MOST if is_multi else MOST - size)
        if not is_multi:
            size, delay = size + delay, 0
        idle = None if self.kind == "multi" else 0
        if self.idle is not None:
            idle = _number(operator, "idle", self.idle, params, 0)
        if idle and self.kind != "multi":
            raise BadInput(f"{operator}: window: idle must be 0 for kind {self.kind}, got {idle}")
        every = None if self.every is None else _number(operator, "every", self.every, params, 1, MOST_KEYS)
        # A row updates them one by one, or a window of kind `single` passes through them before it ends.
        steps = -(-size // advance) if self.kind == "multi" or (self.kind == "single" and self.is_observed) else 1
        if steps > MOST_WINDOWS or steps * (every or 1) > MOST_KEYS:
            raise BadInput(
                f"{operator}: window: a row has {steps:,} windows (size / advance)"
                f"{f' of {every:,} keys' if every else ''}; at most {MOST_WINDOWS:,} windows and {MOST_KEYS:,} keys "
                "in windows are possible; raise advance"
            )
        multiplicity = params.get(self.multiplicity, self.multiplicity)
        if multiplicity not in MULTIPLICITIES:
            raise BadInput(
                f"{operator}: window: {unknown('multiplicity', multiplicity, MULTIPLICITIES)}, "
                "or a parameter with one of these values"
            )
        return Bounds(advance, size, delay, idle, every, multiplicity == "set", most)


@dataclass(frozen=True)
class Bounds:
    """The numbers of a window, and whether the keys of a row are a set. Each engine derives its behaviour from them."""

    advance: int
    size: int
    delay: int
    idle: int | None
    every: int | None
    is_set: bool
    most: int | None


def _number(operator: str, name: str, declared: int | str, params: dict[str, Any], least: int, most: int = MOST) -> int:
    value = declared
    if isinstance(declared, str):
        if declared not in params:
            raise BadInput(f"{operator}: window: {name}: {unknown('parameter', declared, params)}")
        value = params[declared]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadInput(f"{operator}: window: {name} must be between {least} and {most}, got {shown(value)}")
    return value
