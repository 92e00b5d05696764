"""State transactions executed directly: plan, state access and post-processing of an event in one kernel.

For who is alone with the tables: nothing is written down, dealt out or waited for. The plan function is compiled a
second time, with a `txn` that acts at once. Nothing of a dropped event is ever done, conditions read the state before
the event, and any false one rejects all of it: so a plan that is not written in this order (`plans.passes` says) is
called several times, first to see whether it drops, then to check, then to act.
"""

from __future__ import annotations

from collections.abc import Callable

from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, overload, register_model

from streaming_core.kernels import abi, shapes
from streaming_core.kernels import ir as code
from streaming_core.kernels import transaction as tx
from streaming_core.kernels.emitter import EmitterType, drop
from streaming_core.kernels.memory import load_half, load_word, store_word
from streaming_core.kernels.values import RowType
from streaming_core.language.record import Resolved

# Of the event at hand, on the kernel's stack: conditions that failed (in units of a decision word), reads, dropped.
FAILED, READS, GONE = 0, 8, 16


class EventModel(models.StructModel):
    """A `txn` that goes through the plan of one event: the kernel's context, counters on its stack, the event's row."""

    def __init__(self, manager, fe_type):
        members = [("context", types.voidptr), ("counters", types.voidptr), ("request", types.voidptr)]
        super().__init__(manager, fe_type, members)


class DirectType(types.Type):
    """`txn` where nobody else is at the tables: it looks for drops, checks conditions, acts on rows, or several."""

    def __init__(self, bound: tx.Bound, modifications: list[Callable], conditions: list[Callable], what: str):
        self.bound, self.modifications, self.conditions = bound, modifications, conditions
        self.drops, self.checks, self.acts = "drop" in what, "check" in what, "act" in what
        super().__init__(f"Direct({id(bound):x}, {what})")


register_model(DirectType)(EventModel)


def _held(context, builder, txn, value):
    return cgutils.create_struct_proxy(txn)(context, builder, value)


def _row_at(builder, txn, held, row, number):
    """Address of row `number` of the table that `row` names."""
    tables = code.load(builder, held.context, abi.EXECUTE_TABLES, code.PTR, code.CONTEXT)
    base = code.load(builder, tables, 8 * row.table, code.PTR, code.CONTEXT)
    return code.at(builder, base, builder.mul(number, code.i64(txn.bound.tables[row.table].state[1])))


@intrinsic
def _address(typingctx, txn, row):
    """Address of a named row."""

    def codegen(context, builder, signature, args):
        held = _held(context, builder, txn, args[0])
        return builder.ptrtoint(_row_at(builder, txn, held, row, args[1]), code.I64)

    return types.int64(txn, row), codegen


@intrinsic(prefer_literal=True)
def _known_row(typingctx, txn, table, key):
    """Names a row whose key was checked before."""

    def codegen(context, builder, signature, args):
        return context.cast(builder, args[2], signature.args[2], types.int64)

    return tx.NamedRow(table.literal_value)(txn, table, types.unliteral(key)), codegen


@intrinsic
def _arena(typingctx, txn):
    def codegen(context, builder, signature, args):
        return code.load(
            builder, _held(context, builder, txn, args[0]).context, abi.EXECUTE_ARENA, code.I64, code.CONTEXT
        )

    return types.int64(txn), codegen


@intrinsic
def request_row(typingctx, txn):
    """The event's row."""
    row = RowType(txn.bound.event, header=True)

    def codegen(context, builder, signature, args):
        held = _held(context, builder, txn, args[0])
        request = cgutils.create_struct_proxy(row)(context, builder)
        request.address = held.request
        request.text = code.load(builder, held.context, abi.EXECUTE_TEXT, code.PTR, code.CONTEXT)
        return request._getvalue()

    return row(txn), codegen


@intrinsic
def _is_accepted(typingctx, txn):
    def codegen(context, builder, signature, args):
        failed = code.load(builder, _held(context, builder, txn, args[0]).counters, FAILED, code.I64)
        return builder.icmp_unsigned("==", failed, code.i64(0))

    return types.boolean(txn), codegen


def _counter(offset: int, value: int) -> Callable:
    """An intrinsic that sets a counter of the event at hand."""

    @intrinsic
    def count(typingctx, txn):
        def codegen(context, builder, signature, args):
            code.store(builder, code.i64(value), _held(context, builder, txn, args[0]).counters, offset)
            return context.get_dummy_value()

        return types.none(txn), codegen

    return count


_fail, _drop = _counter(FAILED, tx.FAILED_UNIT), _counter(GONE, 1)


@intrinsic
def _copy_row(typingctx, txn, row):
    """READ: the row as it is now, as far as it will be looked at, into the next result slot."""
    stride, (first, last) = txn.bound.result_stride, txn.bound.spans[row.table]

    def codegen(context, builder, signature, args):
        held = _held(context, builder, txn, args[0])
        reads = code.load(builder, held.counters, READS, code.I64)
        code.store(builder, builder.add(reads, code.i64(1)), held.counters, READS)
        begin = builder.mul(reads, code.i64(stride))
        capacity = code.load(builder, held.context, abi.EXECUTE_CAPACITY, code.I64, code.CONTEXT)
        needed = builder.add(begin, code.i64(stride))
        with builder.if_then(builder.icmp_unsigned(">", needed, capacity), likely=False):
            more = code.load(builder, held.context, abi.EXECUTE_MORE, code.PTR, code.CONTEXT)
            failed = builder.icmp_unsigned("!=", code.call(builder, more, held.context, needed), code.i64(0))
            code.raise_if(context, builder, failed, MemoryError, "no room for results")
        results = code.load(builder, held.context, abi.EXECUTE_RESULTS, code.PTR, code.CONTEXT)
        source = code.at(builder, _row_at(builder, txn, held, row, args[1]), first)
        code.copy(builder, code.at(builder, results, begin), source, last - first)
        return context.get_dummy_value()

    return types.none(txn, row), codegen


@intrinsic(prefer_literal=True)
def _argument(typingctx, txn, word, value):
    """The integer handed on to a modification or condition."""

    def codegen(context, builder, signature, args):
        return tx.checked_argument(context, builder, args[2], signature.args[2], word.literal_value)

    return types.int64(txn, word, types.unliteral(value)), codegen


@overload(tx.txn_row, prefer_literal=True)
def _name(txn, table, key):
    if not isinstance(txn, DirectType):
        return None
    if txn.drops:  # the first time
        return lambda txn, table, key: tx.name_row(txn, table, key)
    return lambda txn, table, key: _known_row(txn, table, key)


@overload(tx.txn_request)
def _event(txn):
    return (lambda txn: request_row(txn)) if isinstance(txn, DirectType) else None


@overload(tx.txn_hold)
def _hold(txn, holds):
    if not isinstance(txn, DirectType):
        return None

    def hold(txn, holds):
        if not holds:
            _fail(txn)

    return hold if txn.checks else lambda txn, holds: None


@overload(tx.txn_require, prefer_literal=True)
def _require(txn, condition, rows):
    if not isinstance(txn, DirectType):
        return None
    if not txn.checks:
        return lambda txn, condition, rows: None
    tables = [kind.table for kind in rows.types if isinstance(kind, tx.NamedRow)]
    function = txn.conditions[condition.literal_value]
    given = [f"row_{j}(address(txn, rows[{j}]), 0, arena(txn))" for j in range(len(tables))] + ["request(txn)"]
    if len(rows.types) > len(tables):
        argument = f"argument(txn, 'require', rows[{len(tables)}])"
        given += [argument] if tx.takes_argument(function, len(tables)) else []
    namespace = {"function": function, "fail": _fail, "address": _address, "arena": _arena, "request": request_row}
    namespace["argument"] = _argument
    for j, table in enumerate(tables):
        namespace[f"row_{j}"] = shapes.row_maker(txn.bound.tables[table], False)
    source = f"def check(txn, condition, rows):\n    if not function({', '.join(given)}):\n        fail(txn)\n"
    exec(source, namespace)
    return namespace["check"]


@overload(tx.txn_modify, prefer_literal=True)
def _modify(txn, row, function, argument):
    if not isinstance(txn, DirectType):
        return None
    if not txn.acts:
        return lambda txn, row, function, argument: None
    act = txn.modifications[function.literal_value]
    make_row = shapes.row_maker(txn.bound.tables[row.table], False)
    if tx.takes_argument(act, 1):

        def modify(txn, row, function, argument):
            i = _argument(txn, "modify", argument)
            if _is_accepted(txn):
                act(make_row(_address(txn, row), 0, _arena(txn)), request_row(txn), i)
    else:

        def modify(txn, row, function, argument):
            if _is_accepted(txn):
                act(make_row(_address(txn, row), 0, _arena(txn)), request_row(txn))

    return modify


@overload(tx.txn_read)
def _read(txn, row):
    if not isinstance(txn, DirectType):
        return None
    return (lambda txn, row: _copy_row(txn, row)) if txn.acts else lambda txn, row: None


@overload(drop)
def _drop_event(txn):
    if not isinstance(txn, DirectType):
        return None
    return (lambda txn: _drop(txn)) if txn.drops else lambda txn: None


def execute_kernel(
    plan: Callable,
    passes: tuple[str, ...],
    event: Resolved,
    bound: tx.Bound,
    modifications: list[Callable],
    conditions: list[Callable],
    post: Callable,
    output: Resolved,
) -> bytes:
    """Every event from its plan to its outputs, one after the other; `passes` as `plans.passes` has them."""
    make_row, size = shapes.row_maker(event, True), event.event[1]
    make_out, make_post = shapes.maker(EmitterType(output), 3), shapes.maker(tx.PostType(bound), 2)

    makers = [shapes.maker(DirectType(bound, modifications, conditions, what), 3) for what in passes]
    make_first, make_second, make_third = (makers * 3)[:3]  # of which as many are used as there are passes
    two, three = len(passes) >= 2, len(passes) == 3

    def execute_events(context):
        rows, begin, end, text = (
            load_word(context, abi.EXECUTE_ROWS), load_word(context, abi.EXECUTE_BEGIN),
            load_word(context, abi.EXECUTE_END), load_word(context, abi.EXECUTE_TEXT),
        )  # fmt: skip
        emitter, selection = load_word(context, abi.EXECUTE_EMITTER), load_word(context, abi.EXECUTE_SELECTION)
        counters = shapes.stack_counters()
        dropped, rejected = 0, 0
        for i in range(begin, end):
            number = i if selection == 0 else load_half(selection, i * 4)
            store_word(context, abi.EXECUTE_ERROR_AT, number)
            store_word(counters, FAILED, 0)
            store_word(counters, READS, 0)
            store_word(counters, GONE, 0)
            address = rows + number * size
            plan(make_row(address, text, 0), make_first(context, counters, address))
            if load_word(counters, GONE) != 0:
                dropped += 1
                continue
            if two:
                plan(make_row(address, text, 0), make_second(context, counters, address))
            if three:
                plan(make_row(address, text, 0), make_third(context, counters, address))
            failed, results = load_word(counters, FAILED), load_word(context, abi.EXECUTE_RESULTS)
            rejected += failed != 0
            store_word(results, -8, load_word(counters, READS))
            out = make_out(emitter, load_word(address, 0), number)
            post(make_row(address, text, 0), make_post(failed, results), out)
        store_word(context, abi.EXECUTE_DROPPED, load_word(context, abi.EXECUTE_DROPPED) + dropped)
        store_word(context, abi.EXECUTE_REJECTED, load_word(context, abi.EXECUTE_REJECTED) + rejected)
        return 0

    return shapes.kernel(execute_events, abi.EXECUTE_ERROR)
