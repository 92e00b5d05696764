"""State transactions executed directly: one kernel runs plan, state access and post-processing of an event.

The runtime calls it for a thread that has the tables to itself, so the kernel writes no accesses down and waits for
nothing. For it, numba compiles the plan function a second time, with a `txn` that acts at once.

A dropped event has no effect. Conditions read the state before the event, and any false one rejects the whole event.
Most plans check before they act. The kernel calls any other plan several times (`plans.passes`): first to see whether
it drops, then to check, then to act. The check copies the other rows that a modification reads. The event's results
stand behind the copies.
"""

from __future__ import annotations

from collections.abc import Callable

from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, overload, register_model

from streaming_core.kernels import abi, entry
from streaming_core.kernels import ir as code
from streaming_core.kernels import transaction as tx
from streaming_core.kernels.emitter import EmitterType, drop
from streaming_core.kernels.memory import AHEAD, fetch, load_half, load_word, store_word
from streaming_core.kernels.phases import stack_counters
from streaming_core.kernels.values import RowType
from streaming_core.language.record import Resolved

# Offsets of the event's counters on the kernel's stack. FAILED counts failed conditions, in units of a decision word.
# KEPT counts the bytes of rows copied for modifications, and USED how many of these modifications have used.
FAILED, READS, GONE, KEPT, USED = 0, 8, 16, 24, 32


class EventModel(models.StructModel):
    """The model of a `txn` in direct execution: the kernel's context, counters on its stack, the event's row."""

    def __init__(self, manager, fe_type):
        members = [("context", types.voidptr), ("counters", types.voidptr), ("request", types.voidptr)]
        super().__init__(manager, fe_type, members)


class DirectType(types.Type):
    """`txn` of one thread that has the tables to itself.

    Args:
        bound: The tables.
        modifications: Modifications by index.
        conditions: Conditions by index.
        what: What the pass does: "drop" looks for drops, "check" evaluates conditions, "act" changes rows.
    """

    context, indexes, lookups = "context", abi.EXECUTE_INDEXES, abi.EXECUTE_LOOKUPS

    def __init__(self, bound: tx.Bound, modifications: list[Callable], conditions: list[Callable], what: str):
        self.bound, self.modifications, self.conditions = bound, modifications, conditions
        self.drops, self.checks, self.acts = "drop" in what, "check" in what, "act" in what
        super().__init__(f"Direct({id(bound):x}, {what})")


register_model(DirectType)(EventModel)


def _held(context, builder, txn, value):
    return cgutils.create_struct_proxy(txn)(context, builder, value)


def _row_at(builder, txn, held, row, number):
    """Return the address of row `number` of the table that `row` names."""
    tables = code.load(builder, held.context, abi.EXECUTE_TABLES, code.PTR, code.CONTEXT)
    base = code.load(builder, tables, 8 * row.table, code.PTR, code.CONTEXT)
    return code.at(builder, base, builder.mul(number, code.i64(txn.bound.tables[row.table].row.state[1])))


@intrinsic
def _address(typingctx, txn, row):
    """Return the address of a named row."""

    def codegen(context, builder, signature, args):
        held = _held(context, builder, txn, args[0])
        return builder.ptrtoint(_row_at(builder, txn, held, row, args[1]), code.I64)

    return types.int64(txn, row), codegen


@intrinsic(prefer_literal=True)
def _known_row(typingctx, txn, table, key):
    """Name a row; an earlier pass has checked its key."""

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
    """Return the event's row."""
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
    """Return an intrinsic that sets a counter of the event."""

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
    """READ: copy the fields of a row that post-processing reads into the next result slot."""
    stride, (first, last) = txn.bound.result_stride, txn.bound.spans[row.table]

    def codegen(context, builder, signature, args):
        held = _held(context, builder, txn, args[0])
        reads = code.load(builder, held.counters, READS, code.I64)
        code.store(builder, builder.add(reads, code.i64(1)), held.counters, READS)
        begin = builder.mul(reads, code.i64(stride))
        if txn.bound.readers:
            begin = builder.add(begin, code.load(builder, held.counters, KEPT, code.I64))
        place = _room(context, builder, held, begin, stride)
        source = code.at(builder, _row_at(builder, txn, held, row, args[1]), first)
        code.copy(builder, place, source, last - first)
        return context.get_dummy_value()

    return types.none(txn, row), codegen


def _room(context, builder, held, begin, size: int):
    """Return the address of the bytes begin..begin+size-1 of the results, which may move."""
    capacity = code.load(builder, held.context, abi.EXECUTE_CAPACITY, code.I64, code.CONTEXT)
    needed = builder.add(begin, code.i64(size))
    with builder.if_then(builder.icmp_unsigned(">", needed, capacity), likely=False):
        more = code.load(builder, held.context, abi.EXECUTE_MORE, code.PTR, code.CONTEXT)
        failed = builder.icmp_unsigned("!=", code.call(builder, more, held.context, needed), code.i64(0))
        code.raise_if(context, builder, failed, MemoryError, "no room for results")
    results = code.load(builder, held.context, abi.EXECUTE_RESULTS, code.PTR, code.CONTEXT)
    return code.at(builder, results, begin)


@intrinsic
def _keep_row(typingctx, txn, row):
    """Copy a row, as it is before the event, behind the earlier copies for modifications."""
    size = txn.bound.tables[row.table].row.state[1]

    def codegen(context, builder, signature, args):
        held = _held(context, builder, txn, args[0])
        begin = code.load(builder, held.counters, KEPT, code.I64)
        code.copy(builder, _room(context, builder, held, begin, size), _row_at(builder, txn, held, row, args[1]), size)
        code.store(builder, builder.add(begin, code.i64(size)), held.counters, KEPT)
        return context.get_dummy_value()

    return types.none(txn, row), codegen


@intrinsic
def _kept_row(typingctx, txn, row):
    """Return the address of the next copied row."""
    size = txn.bound.tables[row.table].row.state[1]

    def codegen(context, builder, signature, args):
        held = _held(context, builder, txn, args[0])
        begin = code.load(builder, held.counters, USED, code.I64)
        code.store(builder, builder.add(begin, code.i64(size)), held.counters, USED)
        results = code.load(builder, held.context, abi.EXECUTE_RESULTS, code.PTR, code.CONTEXT)
        return builder.ptrtoint(code.at(builder, results, begin), code.I64)

    return types.int64(txn, row), codegen


@intrinsic(prefer_literal=True)
def _argument(typingctx, txn, word, value):
    """Return the integer argument of a modification or condition."""

    def codegen(context, builder, signature, args):
        return tx.checked_argument(context, builder, args[2], signature.args[2], word.literal_value)

    return types.int64(txn, word, types.unliteral(value)), codegen


@overload(tx.txn_row, prefer_literal=True)
def _name(txn, table, key):
    if not isinstance(txn, DirectType):
        return None
    # The first pass checks a dense row. Every pass looks up the index of a table.
    if txn.drops or (isinstance(table, types.IntegerLiteral) and txn.bound.tables[table.literal_value].index):
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
    tables = tx.row_tables(rows)
    function = txn.conditions[condition.literal_value]
    operands = [f"row_{j}(address(txn, rows[{j}]), 0, arena(txn))" for j in range(len(tables))] + ["request(txn)"]
    if len(rows.types) > len(tables):
        argument = f"argument(txn, 'require', rows[{len(tables)}])"
        operands += [argument] if tx.takes_argument(function, len(tables)) else []
    namespace = {"function": function, "fail": _fail, "address": _address, "arena": _arena, "request": request_row}
    namespace["argument"] = _argument
    for j, table in enumerate(tables):
        namespace[f"row_{j}"] = entry.row_maker(txn.bound.tables[table].row, False)
    source = f"def check(txn, condition, rows):\n    if not function({', '.join(operands)}):\n        fail(txn)\n"
    exec(source, namespace)
    return namespace["check"]


@overload(tx.txn_modify, prefer_literal=True)
def _modify(txn, row, function, extra):
    if not isinstance(txn, DirectType):
        return None
    act, others = txn.modifications[function.literal_value], tx.row_tables(extra)
    namespace = {"act": act, "accepted": _is_accepted, "address": _address, "arena": _arena, "request": request_row}
    namespace |= {"argument": _argument, "keep": _keep_row, "kept": _kept_row}
    records = [txn.bound.tables[table].row for table in (row.table, *others)]
    namespace |= {f"row_{j}": entry.row_maker(record, False) for j, record in enumerate(records)}
    lines = [f"keep(txn, extra[{j}])" for j in range(len(others))] if txn.checks else []
    if txn.acts:
        rows = ["row_0(address(txn, row), 0, arena(txn))"]
        for j in range(len(others)):
            lines.append(f"kept_{j} = kept(txn, extra[{j}])")
            rows.append(f"row_{j + 1}(kept_{j}, 0, 0)")
        if tx.takes_argument(act, 1 + len(others)):
            lines.append(f"i = argument(txn, 'modify', extra[{len(others)}])")
        rows += ["request(txn)", *(["i"] if tx.takes_argument(act, 1 + len(others)) else [])]
        lines += ["if accepted(txn):", f"    act({', '.join(rows)})"]
    body = "\n    ".join(lines or ["pass"])
    exec(f"def modify(txn, row, function, extra):\n    {body}\n", namespace)
    return namespace["modify"]


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
    """Compile the kernel that runs each event from its plan to its outputs; `passes` comes from `plans.passes`."""
    make_row, size = entry.row_maker(event, True), event.event[1]
    make_out, make_post = entry.maker(EmitterType(output), 3), entry.maker(tx.PostType(bound), 2)

    makers = [entry.maker(DirectType(bound, modifications, conditions, what), 3) for what in passes]
    make_first, make_second, make_third = (makers * 3)[:3]  # a plan with fewer passes ignores the rest
    two, three = len(passes) >= 2, len(passes) == 3
    keeps = bool(bound.readers)
    further, event_mask = 4 * abi.SELECTION_AHEAD, (1 << 31) - 1  # the runtime marks entries by the highest bit

    def execute_events(context):
        rows, begin, end, text = (
            load_word(context, abi.EXECUTE_ROWS), load_word(context, abi.EXECUTE_BEGIN),
            load_word(context, abi.EXECUTE_END), load_word(context, abi.EXECUTE_TEXT),
        )  # fmt: skip
        emitter, selection = load_word(context, abi.EXECUTE_EMITTER), load_word(context, abi.EXECUTE_SELECTION)
        counters = stack_counters()
        dropped, rejected = 0, 0
        for i in range(begin, end):
            number = i if selection == 0 else load_half(selection, i * 4)
            store_word(context, abi.EXECUTE_ERROR_AT, number)
            store_word(counters, FAILED, 0)
            store_word(counters, READS, 0)
            store_word(counters, GONE, 0)
            if keeps:
                store_word(counters, KEPT, 0)
                store_word(counters, USED, 0)
            address = rows + number * size
            if selection == 0:
                fetch(address + AHEAD, size)
            else:
                fetch(rows + (load_half(selection, i * 4 + further) & event_mask) * size, size)
            plan(make_row(address, text, 0), make_first(context, counters, address))
            if load_word(counters, GONE) != 0:
                dropped += 1
                continue
            if two:
                plan(make_row(address, text, 0), make_second(context, counters, address))
            if three:
                plan(make_row(address, text, 0), make_third(context, counters, address))
            failed, results = load_word(counters, FAILED), load_word(context, abi.EXECUTE_RESULTS)
            if keeps:
                results += load_word(counters, KEPT)  # results follow the copies
            rejected += failed != 0
            store_word(results, -8, load_word(counters, READS))
            out = make_out(emitter, load_word(address, 0), number)
            post(make_row(address, text, 0), make_post(failed, results), out)
        store_word(context, abi.EXECUTE_DROPPED, load_word(context, abi.EXECUTE_DROPPED) + dropped)
        store_word(context, abi.EXECUTE_REJECTED, load_word(context, abi.EXECUTE_REJECTED) + rejected)
        return 0

    return entry.kernel(execute_events, abi.EXECUTE_ERROR)
