"""The words of a state transaction in compute mode (`plan`) and in post-processing.

A plan does not touch any table: it writes down accesses (runtime/ABI.md) for the runtime to apply. The kernels are in
phases.py, the words of direct execution in direct.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.imputils import lower_getattr
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, overload, register_model

from streaming_core.kernels import abi
from streaming_core.kernels import ir as code
from streaming_core.kernels.abi import CAPTURE, CONDITION, MODIFY, READ
from streaming_core.kernels.emitter import drop
from streaming_core.kernels.values import RowType, text_type
from streaming_core.language.record import Resolved, Text

if TYPE_CHECKING:
    from numba.core.dispatcher import Dispatcher

    from streaming_core.language.tables import BoundTable

FAILED_UNIT, FAILED_MASK, WAITING_MASK, DROPPED_BIT = 1 << 16, abi.FAILED, abi.PENDING, abi.DROPPED
MAX_CONDITIONS = FAILED_MASK >> 16
NO_CONDITION = (1 << 16) - 1  # the `fn` of a CAPTURE for a modification: no condition has it, so that it holds


@dataclass(eq=False)
class Bound:
    """The tables of a bound application, and what numba learns of its plan while it compiles it.

    Attributes:
        tables: The tables.
        event: The event record.
        modifications: The `fn` of an access, by function index and tables, the modification's own first.
        conditions: The `fn` of an access, by function index and tables.
        spans: The bytes of a row that a READ copies, by table.
        seen: The fields that post-processing reads, by table; None: nothing collects them.
    """

    tables: list[BoundTable]
    event: Resolved
    modifications: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)
    conditions: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)
    spans: list[tuple[int, int]] = field(default_factory=list)
    seen: list[set[str]] | None = None

    def __post_init__(self):
        self.spans = self.spans or [(0, t.row.state[1]) for t in self.tables]

    @property
    def readers(self) -> set[int]:
        """Indexes of modifications that read other rows than their own."""
        return {function for function, tables in self.modifications if len(tables) > 1}

    @property
    def result_stride(self) -> int:
        """Bytes of a result slot."""
        return max(end - begin for begin, end in self.spans)

    @property
    def row_stride(self) -> int:
        """Bytes of the largest row."""
        return max(t.row.state[1] for t in self.tables)

    def spans_seen(self) -> list[tuple[int, int]]:
        """Return the bytes, in whole words, from the first to the last field in `seen`, by table."""
        assert self.seen is not None
        spans = []
        for table, names in zip(self.tables, self.seen, strict=True):
            slots = [table.row.state[0][name] for name in names]
            begin = min((slot.offset for slot in slots), default=0) & ~7
            end = -(-max((slot.offset + slot.size for slot in slots), default=0) // 8) * 8
            spans.append((begin, min(end, table.row.state[1])))
        return spans


class PlanType(types.Type):
    """`txn` in compute mode."""

    # The member that holds the address of the kernel's context, and where that has indexes and the number of look-ups.
    context, indexes, lookups = "address", abi.PLAN_INDEXES, abi.PLAN_LOOKUPS

    def __init__(self, bound: Bound):
        self.bound = bound
        super().__init__(f"Plan({id(bound):x})")


class PostType(types.Type):
    """`txn` in post-processing."""

    def __init__(self, bound: Bound):
        self.bound = bound
        super().__init__(f"Post({id(bound):x})")


class NamedRow(types.Type):
    """A row a transaction has named: its number in a table known at compile time."""

    def __init__(self, table: int):
        self.table = table
        super().__init__(f"NamedRow({table})")


@register_model(PlanType)
class _PlanModel(models.StructModel):
    def __init__(self, manager, fe_type):
        # `counters` points at the event's counters on the kernel's stack.
        members = [("address", types.voidptr), ("event", types.int64), ("counters", types.voidptr)]
        super().__init__(manager, fe_type, members)


@register_model(PostType)
class _PostModel(models.StructModel):
    def __init__(self, manager, fe_type):
        members = [("decision", types.int64), ("results", types.voidptr)]
        super().__init__(manager, fe_type, members)


@register_model(NamedRow)
class _NamedRowModel(models.PrimitiveModel):
    def __init__(self, manager, fe_type):
        super().__init__(manager, fe_type, code.I64)


def txn_row(txn, table, key):
    """`txn.row(table, key)`: names a row."""


def txn_require(txn, condition, rows):
    """`txn.require(condition, row, ...)` or `txn.require(condition, row, ..., argument)`."""


def txn_request(txn):
    """The event's row, for a condition that reads nothing else."""


def txn_hold(txn, holds):
    """`txn.require(condition)`; `holds` is the condition's value."""


def txn_modify(txn, row, function, extra):
    """`txn.modify(row, function, ...)`; `extra` has the other rows and the argument, if any."""


def txn_read(txn, row):
    """`txn.read(row)`."""


def txn_result(txn, table, i):
    """`txn.result(table, i)`, in post-processing."""


def takes_argument(function: Dispatcher, rows: int) -> bool:
    """Whether a modification or condition over `rows` rows takes an integer behind rows and request."""
    return function.py_func.__code__.co_argcount == rows + 2


@intrinsic(prefer_literal=True)
def name_row(typingctx, txn, table, key):
    """Name the row of a key: its number in a dense table, or that in the index."""
    number = table.literal_value
    bound = txn.bound.tables[number]

    def codegen(context, builder, signature, args):
        if bound.index is None:
            key = context.cast(builder, args[2], signature.args[2], types.int64)
            return code.checked_index(context, builder, key, code.i64(bound.size), f"table {number}")
        return _find(context, builder, txn, number, args[0], args[2], signature.args[2])

    return NamedRow(number)(txn, table, types.unliteral(key)), codegen


def _find(context, builder, txn, number: int, held, key, kind: types.Type):
    """Look up the row of a key in a table's index, or insert one."""
    table = txn.bound.tables[number]
    key_type, name = table.index.key, table.name
    address = getattr(cgutils.create_struct_proxy(txn)(context, builder, held), txn.context)
    indexes = code.load(builder, address, txn.indexes, code.PTR, code.CONTEXT)
    index = code.load(builder, indexes, 8 * number, code.PTR, code.CONTEXT)
    if isinstance(key_type, Text):
        text = cgutils.create_struct_proxy(text_type)(context, builder, key)
        words = builder.ptrtoint(text.address, code.I64), text.length
    else:
        wide = context.cast(builder, key, kind, types.int64)
        if key_type.width < 8:
            low, high = key_type.bounds
            beyond = builder.icmp_unsigned(">", builder.sub(wide, code.i64(low)), code.i64(high - low))
            reason = f"table {name}: the key does not fit {key_type.name}"
            code.raise_if(context, builder, beyond, OverflowError, reason)
        words = wide, code.i64(0)
    find = code.load(builder, index, abi.INDEX_FIND, code.PTR, code.CONTEXT)
    row = code.call(builder, find, index, *words, code.at(builder, address, txn.lookups))
    with builder.if_then(builder.icmp_signed("<", row, code.i64(0)), likely=False):
        for answer, error, reason in (
            (abi.ABSENT, KeyError, f"table {name} has no row with this key"),
            (abi.FULL, OverflowError, f"table {name} is full: it has at most {table.size} rows"),
        ):
            code.raise_if(context, builder, builder.icmp_signed("==", row, code.i64(-answer)), error, reason)
        code.raise_error(context, builder, MemoryError, f"no memory for a row of table {name}")
    return row


# Per-event counters the plan kernel keeps on its stack, zeroed for each event (bytes).
READS, CONDITIONS, OPERATIONS, CAPTURE_WORDS, LATE, FAILED = 0, 8, 16, 24, 32, 40
COUNTERS_SIZE = 48


@dataclass(frozen=True)
class _Access:
    """What numba knows of an access while it compiles: its function, table and kind."""

    fn: int
    table: int
    kind: int


def _append(context, builder, held, row, slot, access: _Access):
    """Append an access of a plan's event; `row` and `slot` are i64 values."""
    plan = held.address
    length = code.load(builder, plan, abi.PLAN_LEN, code.I64, code.CONTEXT)
    full = builder.icmp_unsigned("==", length, code.load(builder, plan, abi.PLAN_CAP, code.I64, code.CONTEXT))
    with builder.if_then(full, likely=False):
        grow = code.load(builder, plan, abi.PLAN_GROW, code.PTR, code.CONTEXT)
        failed = builder.icmp_unsigned("!=", code.call(builder, grow, plan), code.i64(0))
        code.raise_if(context, builder, failed, MemoryError, "no room for accesses")
    accesses = code.load(builder, plan, abi.PLAN_ACCESSES, code.PTR, code.CONTEXT)
    target = code.at(builder, accesses, builder.mul(length, code.i64(abi.ACCESS_SIZE)))
    # Two words: event and row are below 2^32, and so is the slot.
    place = builder.or_(held.event, builder.shl(row, code.i64(8 * (abi.ACCESS_ROW - abi.ACCESS_EVENT))))
    known = ((abi.ACCESS_FUNCTION, access.fn), (abi.ACCESS_TABLE, access.table), (abi.ACCESS_KIND, access.kind))
    what = builder.or_(slot, code.i64(sum(value << 8 * (at - abi.ACCESS_SLOT) for at, value in known)))
    code.store(builder, place, target, abi.ACCESS_EVENT, code.ROW)
    code.store(builder, what, target, abi.ACCESS_SLOT, code.ROW)
    code.store(builder, builder.add(length, code.i64(1)), plan, abi.PLAN_LEN, code.CONTEXT)
    return length


def _bump(context, builder, plan, begin_address, used, size) -> tuple:
    """Extend the event's area, which begins at `*begin_address` and holds `used` bytes, by `size`.

    When something else lies behind the area, or the chunk ends, the area moves, and its address changes. Returns
    (address before, address after); the caller copies the content.
    """
    before = code.load(builder, begin_address, 0, code.I64, code.ROW)
    following = builder.ptrtoint(code.load(builder, plan, abi.PLAN_NEXT, code.PTR, code.CONTEXT), code.I64)
    limit = builder.ptrtoint(code.load(builder, plan, abi.PLAN_LIMIT, code.PTR, code.CONTEXT), code.I64)
    elsewhere = builder.icmp_unsigned("!=", builder.add(before, used), following)
    begin = builder.select(elsewhere, following, before)
    needed = builder.add(used, size)
    code.store(builder, begin, begin_address, 0, code.ROW)
    short = builder.icmp_unsigned(">", builder.add(begin, needed), limit)
    with builder.if_then(short, likely=False):
        more = code.load(builder, plan, abi.PLAN_MORE, code.PTR, code.CONTEXT)
        failed = builder.icmp_unsigned("!=", code.call(builder, more, plan, needed), code.i64(0))
        code.raise_if(context, builder, failed, MemoryError, "no room for results")
        code.store(builder, code.load(builder, plan, abi.PLAN_NEXT, code.I64, code.CONTEXT), begin_address, 0, code.ROW)
    after = code.load(builder, begin_address, 0, code.I64, code.ROW)
    code.store(builder, builder.add(after, needed), plan, abi.PLAN_NEXT, code.CONTEXT)
    return before, after


def checked_argument(context, builder, value, kind: types.Type, word: str):
    """Return the integer argument of a modification or condition, as i64."""
    argument = context.cast(builder, value, kind, types.int64)
    beyond = builder.icmp_unsigned(">=", argument, code.i64(1 << 32))
    code.raise_if(context, builder, beyond, OverflowError, f"the argument of txn.{word} lies in 0..2^32-1")
    return argument


def row_tables(extra: types.BaseTuple) -> tuple[int, ...]:
    """Return the tables of the rows of a condition or modification, which stand before the argument."""
    return tuple(kind.table for kind in extra.types if isinstance(kind, NamedRow))


def _argument(context, builder, extra: types.BaseTuple, values, word: str):
    """Return the integer behind the rows, as i64; 0 if there is none."""
    n = len(row_tables(extra))
    if len(extra.types) == n:
        return code.i64(0)
    return checked_argument(context, builder, builder.extract_value(values, n), types.unliteral(extra.types[n]), word)


def _late_if_operated(builder, held) -> None:
    """Mark an access that reads the state before the event but follows an operation; phases.py moves it."""
    operations = code.load(builder, held.counters, OPERATIONS, code.I64)
    with builder.if_then(builder.icmp_unsigned("!=", operations, code.i64(0)), likely=False):
        code.store(builder, code.i64(1), held.counters, LATE)


def _count(builder, held, counter: int) -> None:
    count = code.load(builder, held.counters, counter, code.I64)
    code.store(builder, builder.add(count, code.i64(1)), held.counters, counter)


@intrinsic(prefer_literal=True)
def _plan_modify(typingctx, txn, row, function, extra):
    others = row_tables(extra)
    key = (function.literal_value, (row.table, *others))
    fn = txn.bound.modifications.setdefault(key, len(txn.bound.modifications))

    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(txn)(context, builder, args[0])
        slot = _argument(context, builder, extra, args[3], "modify")
        if others:
            # Capture the rows by a condition that always holds, so that no thread decides the event before that.
            _late_if_operated(builder, held)
            slot = _capture(context, builder, held, txn.bound, args[3], slot, _Captured(NO_CONDITION, others))
            _count(builder, held, CONDITIONS)
        _append(context, builder, held, args[1], slot, _Access(fn, row.table, MODIFY))
        _count(builder, held, OPERATIONS)
        return context.get_dummy_value()

    return types.none(txn, row, function, extra), codegen


@intrinsic
def _plan_read(typingctx, txn, row):
    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(txn)(context, builder, args[0])
        reads = code.load(builder, held.counters, READS, code.I64)
        _append(context, builder, held, args[1], reads, _Access(0, row.table, READ))
        code.store(builder, builder.add(reads, code.i64(1)), held.counters, READS)
        _count(builder, held, OPERATIONS)
        return context.get_dummy_value()

    return types.none(txn, row), codegen


@intrinsic(prefer_literal=True)
def _plan_require(typingctx, txn, condition, rows):
    tables = row_tables(rows)
    key = (condition.literal_value, tables)
    fn = txn.bound.conditions.setdefault(key, len(txn.bound.conditions))

    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(txn)(context, builder, args[0])
        _late_if_operated(builder, held)
        argument = _argument(context, builder, rows, args[2], "require")
        if len(tables) == 1:
            row = builder.extract_value(args[2], 0)
            _append(context, builder, held, row, argument, _Access(fn, tables[0], CONDITION))
        else:
            _capture(context, builder, held, txn.bound, args[2], argument, _Captured(fn, tables))
        _count(builder, held, CONDITIONS)
        return context.get_dummy_value()

    return types.none(txn, condition, rows), codegen


@dataclass(frozen=True)
class _Captured:
    """A condition over several rows: its `fn`, and the tables of the rows."""

    fn: int
    tables: tuple[int, ...]


def _capture(context, builder, held, bound: Bound, rows, argument, condition: _Captured) -> ir.Value:
    """Append the captures of a condition; returns the offset of their group, in words.

    Each row's owner copies it into the group, and the last one evaluates the condition.
    """
    fn, tables = condition.fn, condition.tables
    size = 8 + len(tables) * bound.row_stride
    captures = code.load(builder, held.address, abi.PLAN_CAPTURES, code.PTR, code.CONTEXT)
    begin = code.at(builder, captures, builder.mul(held.event, code.i64(8)))
    words = code.load(builder, held.counters, CAPTURE_WORDS, code.I64)
    used = builder.mul(words, code.i64(8))
    before, after = _bump(context, builder, held.address, begin, used, code.i64(size))
    # Earlier groups move along: their counters are set.
    with builder.if_then(builder.icmp_unsigned("!=", before, after), likely=False):
        cgutils.raw_memcpy(builder, builder.inttoptr(after, code.PTR), builder.inttoptr(before, code.PTR), used, 1)
    group = builder.add(after, used)
    missing = builder.or_(code.i64(len(tables)), builder.shl(argument, code.i64(32)))
    code.store(builder, missing, builder.inttoptr(group, code.PTR), 0)
    for j, table in enumerate(tables):
        row = builder.extract_value(rows, j)
        _append(context, builder, held, row, words, _Access(fn, table, CAPTURE + j))
    code.store(builder, builder.add(words, code.i64(size // 8)), held.counters, CAPTURE_WORDS)
    return words


@intrinsic
def _plan_request(typingctx, txn):
    row = RowType(txn.bound.event, header=True)

    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(txn)(context, builder, args[0])
        rows = code.load(builder, held.address, abi.PLAN_ROWS, code.PTR, code.CONTEXT)
        request = cgutils.create_struct_proxy(row)(context, builder)
        request.address = code.at(builder, rows, builder.mul(held.event, code.i64(row.size)))
        request.text = code.load(builder, held.address, abi.PLAN_TEXT, code.PTR, code.CONTEXT)
        return request._getvalue()

    return row(txn), codegen


@intrinsic
def _plan_fail(typingctx, txn):
    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(txn)(context, builder, args[0])
        code.store(builder, code.i64(FAILED_UNIT), held.counters, FAILED)
        return context.get_dummy_value()

    return types.none(txn), codegen


@intrinsic
def reserve_results(typingctx, txn):
    """Reserve room for the results of the event's reads, after its plan; their number stands before them."""
    stride = txn.bound.result_stride

    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(txn)(context, builder, args[0])
        reads = code.load(builder, held.counters, READS, code.I64)
        results = code.load(builder, held.address, abi.PLAN_RESULTS, code.PTR, code.CONTEXT)
        begin = code.at(builder, results, builder.mul(held.event, code.i64(8)))
        size = builder.add(builder.mul(reads, code.i64(stride)), code.i64(8))
        _, area = _bump(context, builder, held.address, begin, code.i64(0), size)
        code.store(builder, reads, builder.inttoptr(area, code.PTR), 0, code.ROW)
        code.store(builder, builder.add(area, code.i64(8)), begin, 0, code.ROW)
        return context.get_dummy_value()

    return types.none(txn), codegen


@intrinsic
def _plan_drop(typingctx, txn):
    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(txn)(context, builder, args[0])
        dropped = code.load(builder, held.address, abi.PLAN_DROPPED, code.I64, code.CONTEXT)
        code.store(builder, builder.add(dropped, code.i64(1)), held.address, abi.PLAN_DROPPED)
        code.store(builder, code.i64(1 << 32), held.counters, CONDITIONS)
        return context.get_dummy_value()

    return types.none(txn), codegen


@intrinsic(prefer_literal=True)
def _post_result(typingctx, txn, table, i):
    index = table.literal_value
    seen = txn.bound.seen[index] if txn.bound.seen else None
    row = RowType(txn.bound.tables[index].row, False, seen)
    stride, begin = txn.bound.result_stride, txn.bound.spans[index][0]

    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(txn)(context, builder, args[0])
        i = context.cast(builder, args[2], signature.args[2], types.int64)
        code.checked_index(context, builder, i, code.load(builder, held.results, -8, code.I64, code.ROW), "txn.result")
        result = cgutils.create_struct_proxy(row)(context, builder)
        offset = builder.sub(builder.mul(i, code.i64(stride)), code.i64(begin))
        result.address = code.at(builder, held.results, offset)
        return result._getvalue()

    return row(txn, table, types.unliteral(i)), codegen


@overload(txn_row, prefer_literal=True)
def _row(txn, table, key):
    return (lambda txn, table, key: name_row(txn, table, key)) if isinstance(txn, PlanType) else None


@overload(txn_require, prefer_literal=True)
def _require(txn, condition, rows):
    return (lambda txn, condition, rows: _plan_require(txn, condition, rows)) if isinstance(txn, PlanType) else None


@overload(txn_request)
def _request(txn):
    return (lambda txn: _plan_request(txn)) if isinstance(txn, PlanType) else None


@overload(txn_hold)
def _hold(txn, holds):
    if not isinstance(txn, PlanType) or not isinstance(types.unliteral(holds), types.Number | types.Boolean):
        return None

    def hold(txn, holds):
        if not holds:
            _plan_fail(txn)

    return hold


@overload(txn_modify, prefer_literal=True)
def _modify(txn, row, function, extra):
    if not isinstance(txn, PlanType):
        return None
    return lambda txn, row, function, extra: _plan_modify(txn, row, function, extra)


@overload(txn_read)
def _read(txn, row):
    return (lambda txn, row: _plan_read(txn, row)) if isinstance(txn, PlanType) else None


@overload(txn_result, prefer_literal=True)
def _result(txn, table, i):
    return (lambda txn, table, i: _post_result(txn, table, i)) if isinstance(txn, PostType) else None


@overload(drop)
def _drop_event(txn):
    return (lambda txn: _plan_drop(txn)) if isinstance(txn, PlanType) else None


@infer_getattr
class _PostAttributes(AttributeTemplate):
    key = PostType

    def resolve_accepted(self, txn):
        """Return the type of `txn.accepted`."""
        return types.boolean


@lower_getattr(PostType, "accepted")
def _accepted(context, builder, kind, value):
    held = cgutils.create_struct_proxy(kind)(context, builder, value)
    failed = builder.and_(held.decision, code.i64(FAILED_MASK))
    return builder.icmp_unsigned("==", failed, code.i64(0))
