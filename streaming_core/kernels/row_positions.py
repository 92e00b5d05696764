"""Positions of an event's rows, without access to them: they decide the thread that owns the event.

A row's position is relative to its table, in 2^16ths, so that owners get equal parts of tables of all sizes. For that,
numba compiles the plan function once more, with a `txn` that only records the lowest and the highest row that it names.
It records them for each size of tables, and derives their positions after the plan.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload, register_model

from streaming_core.kernels import abi, entry
from streaming_core.kernels import ir as code
from streaming_core.kernels import transaction as tx
from streaming_core.kernels.direct import EventModel, request_row
from streaming_core.kernels.emitter import drop
from streaming_core.kernels.memory import AHEAD, fetch, load_word, store_half, store_word
from streaming_core.language.record import Resolved

BITS = 16
NOWHERE = (1 << BITS) - 1  # an event without rows: the places are NOWHERE and 0
NONE = 1 << 32  # the lowest row while there is none; the highest is then 0


class PlaceType(types.Type):
    """`txn` that records rows."""

    context, indexes, lookups = "context", abi.PLACE_INDEXES, abi.PLACE_LOOKUPS

    def __init__(self, bound: tx.Bound):
        self.bound = bound
        # The kernel's stack holds the event's lowest and highest row for each size.
        self.sizes = sorted({table.size for table in bound.tables})
        super().__init__(f"Place({id(bound):x})")


register_model(PlaceType)(EventModel)


@intrinsic
def _note(typingctx, txn, row):
    """Record a row that an event names."""
    begin = 16 * txn.sizes.index(txn.bound.tables[row.table].size)

    def codegen(context, builder, signature, args):
        counters = cgutils.create_struct_proxy(txn)(context, builder, args[0]).counters
        for offset, closer in ((begin, "<"), (begin + 8, ">")):
            known = code.load(builder, counters, offset, code.I64)
            better = builder.icmp_unsigned(closer, args[1], known)
            code.store(builder, builder.select(better, args[1], known), counters, offset)
        return args[1]

    return row(txn, row), codegen


def _counting(kind: PlaceType) -> tuple[Callable, Callable, Callable]:
    """`area()` -> address of the counters; `reset(address)`; `places(address)` -> lowest place, and highest << 16."""

    @intrinsic
    def area(typingctx):
        def codegen(context, builder, signature, args):
            counters = cgutils.alloca_once(builder, ir.ArrayType(code.I64, 2 * len(kind.sizes)))
            return builder.ptrtoint(counters, code.I64)

        return types.int64(), codegen

    @intrinsic
    def reset(typingctx, address):
        def codegen(context, builder, signature, args):
            counters = builder.inttoptr(args[0], code.PTR)
            for number in range(len(kind.sizes)):
                code.store(builder, code.i64(NONE), counters, 16 * number)
                code.store(builder, code.i64(0), counters, 16 * number + 8)
            return context.get_dummy_value()

        return types.none(types.int64), codegen

    @intrinsic
    def places(typingctx, address):
        def codegen(context, builder, signature, args):
            counters = builder.inttoptr(args[0], code.PTR)
            lowest, highest = code.i64(NOWHERE), code.i64(0)
            for number, size in enumerate(kind.sizes):
                low, high = (code.load(builder, counters, 16 * number + at, code.I64) for at in (0, 8))
                exists = builder.icmp_unsigned("<=", low, high)
                # row < size, so the product stays below 2^48 and the place below 2^16.
                scaled = [
                    builder.lshr(builder.mul(row, code.i64((1 << 48) // size)), code.i64(32)) for row in (low, high)
                ]
                low, high = (
                    builder.select(exists, place, none) for place, none in zip(scaled, (lowest, highest), strict=True)
                )
                lowest = builder.select(builder.icmp_unsigned("<", low, lowest), low, lowest)
                highest = builder.select(builder.icmp_unsigned(">", high, highest), high, highest)
            return builder.or_(lowest, builder.shl(highest, code.i64(BITS)))

        return types.int64(types.int64), codegen

    return area, reset, places


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
def _modify(txn, row, function, extra):
    return (lambda txn, row, function, extra: None) if isinstance(txn, PlaceType) else None


@overload(tx.txn_read)
def _read(txn, row):
    return (lambda txn, row: None) if isinstance(txn, PlaceType) else None


@overload(drop)
def _drop(txn):
    return (lambda txn: None) if isinstance(txn, PlaceType) else None


def positions_kernel(plan: Callable, event: Resolved, bound: tx.Bound) -> bytes:
    """Compile the kernel that writes the lowest and highest position of each event's rows.

    An event without rows gets (2^16 - 1, 0).
    """
    make_row, size = entry.row_maker(event, True), event.event[1]
    kind = PlaceType(bound)
    make_txn = entry.maker(kind, 3)
    area, reset, places_of = _counting(kind)

    def place_events(context):
        rows, begin, end, text = (
            load_word(context, abi.PLACE_ROWS), load_word(context, abi.PLACE_BEGIN),
            load_word(context, abi.PLACE_END), load_word(context, abi.PLACE_TEXT),
        )  # fmt: skip
        places, counters = load_word(context, abi.PLACE_PLACES), area()
        for number in range(begin, end):
            store_word(context, abi.PLACE_ERROR_AT, number)
            reset(counters)
            address = rows + number * size
            fetch(address + AHEAD, size)
            plan(make_row(address, text, 0), make_txn(context, counters, address))
            store_half(places, number * 4, places_of(counters))
        return 0

    return entry.kernel(place_events, abi.PLACE_ERROR)
