"""Windows as operators see them, and the kernels of windowed operators (runtime/ABI.md).

The kernels find the keys of rows, update windows with rows, and finish or slide windows.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import register_model

from streaming_core.kernels import abi, batches, entry, owned
from streaming_core.kernels import ir as code
from streaming_core.kernels.emitter import EmitterType, emit
from streaming_core.kernels.memory import load_word, store_word
from streaming_core.kernels.values import RowType
from streaming_core.language.record import Resolved
from streaming_core.language.window import MOST

_SEQ_BYTES = 8


class WindowType(types.Type):
    """A window of a key: its entry, its start and its end."""

    def __init__(self, key: Resolved):
        self.row = RowType(key, header=True, kept=True)
        super().__init__(f"Window({key.name}@{id(key):x})")


@register_model(WindowType)
class _Model(models.StructModel):
    def __init__(self, manager, fe_type):
        members = [("entry", types.voidptr), ("start", types.int64), ("end", types.int64)]
        super().__init__(manager, fe_type, members)


@infer_getattr
class _WindowAttributes(AttributeTemplate):
    key = WindowType

    def generic_resolve(self, window, name):
        """Return the type of a part of the window; None if it has no such part."""
        return {"start": types.int64, "end": types.int64, "key": window.row}.get(name)


@lower_getattr_generic(WindowType)
def _load_part(context, builder, kind, value, name):
    window = cgutils.create_struct_proxy(kind)(context, builder, value)
    if name != "key":
        return getattr(window, name)
    key = cgutils.create_struct_proxy(kind.row)(context, builder)
    key.address = code.at(builder, window.entry, abi.ENTRY_SIZE - _SEQ_BYTES)
    key.text, key.arena = window.entry, ir.Constant(code.PTR, None)
    return key._getvalue()


def keys_kernel(keys: Callable, event: Resolved, key: Resolved) -> bytes:
    """Compile `keys(row, keys)` for every row; raises if the row's `ts` has no window."""
    most = MOST

    @entry.compiled
    def checked(row, out):
        if row.ts < -most or row.ts > most:
            raise OverflowError("ts has no window: it must lie in -2^61..2^61")
        keys(row, out)

    return batches.map_kernel(checked, event, key, None)


def field_key(field: str) -> Callable:
    """Return the keys function of rows with a field as their only key."""
    namespace = {"emit": emit}
    exec(f"def keys(row, keys):\n    emit(keys, (row.{field},))", namespace)
    return entry.compiled(namespace["keys"])


@entry.compiled
def no_keys(row, keys):
    """The keys function of an operator with the same keys for every row."""


def states_at(key: Resolved, states: list[Resolved]) -> tuple[list[int], int]:
    """Return the offsets of a key's states in an entry, and their total bytes."""
    first = at = abi.ENTRY_SIZE + key.event[1] - _SEQ_BYTES
    places = []
    for state in states:
        places.append(at)
        at += state.state[1]
    return places, at - first


@entry.compiled
def _earlier(entry, row):
    """Return the start of a session that a row joins."""
    start = min(load_word(entry, abi.BEFORE_START - abi.BEFORE_SIZE), row.ts)
    store_word(entry, abi.BEFORE_START - abi.BEFORE_SIZE, start)
    return start


def window_kernel(
    function: Callable,
    event: Resolved | None,
    key: Resolved,
    states: list[Resolved],
    output: Resolved | None,
    is_session: bool,
    has_fixed_start: bool,
) -> bytes:
    """Compile `function(row, window, *states, out)` over windows.

    Without an event, the function has no row and is about expired windows; without an output, about windows that slid.
    A session has its start before its entry, and `start` is that of the window of its latest row. An earlier row moves
    its start, unless it is fixed.
    """
    operands, before, begin = ["make_window(entry, begin, start + span)"], "0", "start"
    if is_session:
        begin = "load_word(entry, abi.BEFORE_START - abi.BEFORE_SIZE)"
    namespace = {
        "function": function, "abi": abi, "load_word": load_word, "store_word": store_word,
        "make_window": entry.maker(WindowType(key), 3),
    }  # fmt: skip
    if event is not None:
        namespace["make_row"] = entry.row_maker(event, True)
        operands.insert(0, "make_row(address, text, 0)")
        before = "load_word(rows, i * 8)"
        if is_session and not has_fixed_start:
            begin = "earlier(entry, make_row(address, text, 0))"
            namespace["earlier"] = _earlier
    for number, (place, state) in enumerate(zip(states_at(key, states)[0], states, strict=True)):
        namespace[f"make_state_{number}"] = entry.row_maker(state, False)
        arena = "load_word(entry, abi.BEFORE_ARENA - abi.BEFORE_SIZE)" if state.growing else "0"
        operands.append(f"make_state_{number}(entry + {place}, 0, {arena})")
    settle = ""
    if any(state.keeps_texts for state in states):
        namespace["settle"] = owned.settle
        settle = "settle(load_word(entry, abi.BEFORE_ARENA - abi.BEFORE_SIZE))"
    if output is not None:
        namespace["make_out"] = entry.maker(EmitterType(output, homes=True), 3)
        seq = "seq" if event is None else "load_word(address, 0)"
        operands.append(f"make_out(emitter, {seq}, i)")
    source = f"""
def each_window(context):
    rows, n, entries = load_word(context, abi.WINDOW_ROWS), load_word(context, abi.WINDOW_N), load_word(context, abi.WINDOW_ENTRIES)
    starts, span, text = load_word(context, abi.WINDOW_STARTS), load_word(context, abi.WINDOW_SPAN), load_word(context, abi.WINDOW_TEXT)
    emitter, seq = load_word(context, abi.WINDOW_EMITTER), load_word(context, abi.WINDOW_SEQ)
    for i in range(n):
        store_word(context, abi.WINDOW_ERROR_AT, i)
        address, entry, start = {before}, load_word(entries, i * 8), load_word(starts, i * 8)
        begin = {begin}
        {settle}
        function({", ".join(operands)})
    return 0
"""  # noqa: E501
    exec(source, namespace)
    return entry.kernel(namespace["each_window"], abi.WINDOW_ERROR)
