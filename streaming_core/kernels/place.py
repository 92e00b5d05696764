"""Where an event's rows lie, without doing anything with them: what decides whose event it is.

A row's place is its relative position in its table, in 2^16ths, so that tables of all sizes are cut alike. The plan
function is compiled once more, with a `txn` that only takes note of the rows it names.
"""

from __future__ import annotations

from collections.abc import Callable

from numba.core import cgutils, types
from numba.extending import intrinsic, overload, register_model

from streaming_core.kernels import abi, shapes
from streaming_core.kernels import ir as code
from streaming_core.kernels import transaction as tx
from streaming_core.kernels.direct import EventModel, request_row
from streaming_core.kernels.emitter import drop
from streaming_core.kernels.memory import load_word, store_half, store_word
from streaming_core.language.record import Resolved

# Of the event at hand, on the kernel's stack: the lowest and the highest place of its rows.
LOW, HIGH = 0, 8
BITS = 16


class PlaceType(types.Type):
    """`txn` that takes note of rows."""

    context, indexes, lookups = "context", abi.PLACE_INDEXES, abi.PLACE_LOOKUPS

    def __init__(self, bound: tx.Bound):
        self.bound = bound
        super().__init__(f"Place({id(bound):x})")


register_model(PlaceType)(EventModel)


@intrinsic
def _note(typingctx, txn, row):
    size = txn.bound.sizes[row.table]

    def codegen(context, builder, signature, args):
        counters = cgutils.create_struct_proxy(txn)(context, builder, args[0]).counters
        # row < size, so the product stays below 2^48 and the place below 2^16.
        place = builder.lshr(builder.mul(args[1], code.i64((1 << 48) // size)), code.i64(32))
        for offset, closer in ((LOW, "<"), (HIGH, ">")):
            known = code.load(builder, counters, offset, code.I64)
            better = builder.icmp_unsigned(closer, place, known)
            code.store(builder, builder.select(better, place, known), counters, offset)
        return args[1]

    return row(txn, row), codegen


@overload(tx.txn_row, prefer_literal=True)
def _name(txn, table, key):
    return (lambda txn, table, key: _note(txn, tx.name_row(txn, table, key))) if isinstance(txn, PlaceType) else None


@overload(tx.txn_request)
def _event(txn):
    return (lambda txn: request_row(txn)) if isinstance(txn, PlaceType) else None


@overload(tx.txn_hold)
def _hold(txn, holds):
    return (lambda txn, holds: None) if isinstance(txn, PlaceType) else None


@overload(tx.txn_require, prefer_literal=True)
def _require(txn, condition, rows):
    return (lambda txn, condition, rows: None) if isinstance(txn, PlaceType) else None


@overload(tx.txn_modify, prefer_literal=True)
def _modify(txn, row, function, given):
    return (lambda txn, row, function, given: None) if isinstance(txn, PlaceType) else None


@overload(tx.txn_read)
def _read(txn, row):
    return (lambda txn, row: None) if isinstance(txn, PlaceType) else None


@overload(drop)
def _drop(txn):
    return (lambda txn: None) if isinstance(txn, PlaceType) else None


def place_kernel(plan: Callable, event: Resolved, bound: tx.Bound) -> bytes:
    """For every event the lowest and the highest place of its rows; (2^16 - 1, 0) where it names none."""
    make_row, size = shapes.row_maker(event, True), event.event[1]
    make_txn = shapes.maker(PlaceType(bound), 3)

    def place_events(context):
        rows, begin, end, text = (
            load_word(context, abi.PLACE_ROWS), load_word(context, abi.PLACE_BEGIN),
            load_word(context, abi.PLACE_END), load_word(context, abi.PLACE_TEXT),
        )  # fmt: skip
        places, counters = load_word(context, abi.PLACE_PLACES), shapes.stack_counters()
        for number in range(begin, end):
            store_word(context, abi.PLACE_ERROR_AT, number)
            store_word(counters, LOW, (1 << BITS) - 1)
            store_word(counters, HIGH, 0)
            address = rows + number * size
            plan(make_row(address, text, 0), make_txn(context, counters, address))
            store_half(places, number * 4, load_word(counters, LOW) | load_word(counters, HIGH) << BITS)
        return 0

    return shapes.kernel(place_events, abi.PLACE_ERROR)
