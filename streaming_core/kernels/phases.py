"""Kernels of a transaction's phases: plan, apply, post-processing.

`plan_kernel` writes down accesses, the runtime deals them out, `apply_kernel` applies them, and `post_kernel` emits
outputs. The kernel of direct.py does it all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from streaming_core.kernels import abi, entry
from streaming_core.kernels import ir as code
from streaming_core.kernels import transaction as tx
from streaming_core.kernels.emitter import EmitterType
from streaming_core.kernels.memory import AHEAD, fetch, load_half, load_word, store_half, store_word
from streaming_core.language.record import Resolved

# First bits of an access's table and kind, in the half word that begins with its function.
_TABLE, _KIND = 8 * (abi.ACCESS_TABLE - abi.ACCESS_FUNCTION), 8 * (abi.ACCESS_KIND - abi.ACCESS_FUNCTION)


@intrinsic
def stack_counters(typingctx):
    """Return the address of the per-event counters of a plan, on the kernel's stack."""

    def codegen(context, builder, signature, args):
        area = cgutils.alloca_once(builder, ir.ArrayType(code.I64, tx.COUNTERS_SIZE // 8))
        return builder.ptrtoint(area, code.I64)

    return types.int64(), codegen


@entry.compiled
def _conditions_first(accesses, first, last):
    """Move the conditions among accesses first..last-1 to the front; both kinds keep their order."""
    place = first
    for i in range(first, last):
        access = accesses + i * abi.ACCESS_SIZE
        kind = load_half(access, abi.ACCESS_FUNCTION) >> _KIND
        if kind == abi.CONDITION or kind >= abi.CAPTURE:
            low, high = load_word(access, abi.ACCESS_EVENT), load_word(access, abi.ACCESS_SLOT)
            for j in range(i, place, -1):
                moved = accesses + j * abi.ACCESS_SIZE
                store_word(moved, abi.ACCESS_EVENT, load_word(moved - abi.ACCESS_SIZE, abi.ACCESS_EVENT))
                store_word(moved, abi.ACCESS_SLOT, load_word(moved - abi.ACCESS_SIZE, abi.ACCESS_SLOT))
            front = accesses + place * abi.ACCESS_SIZE
            store_word(front, abi.ACCESS_EVENT, low)
            store_word(front, abi.ACCESS_SLOT, high)
            place += 1


def plan_kernel(function: Callable, event: Resolved, bound: tx.Bound) -> bytes:
    """Compute mode: `function(request, txn)` writes down the accesses of each event."""
    make_row, make_txn, size = entry.row_maker(event, True), entry.maker(tx.PlanType(bound), 3), event.event[1]
    dropped_mark, dropped_bit = 1 << 32, tx.DROPPED_BIT
    conditions, late, reads = tx.CONDITIONS, tx.LATE, tx.READS
    operations, capture_words, failed, most = tx.OPERATIONS, tx.CAPTURE_WORDS, tx.FAILED, tx.MAX_CONDITIONS
    reserve_results = tx.reserve_results

    def plan_events(context):
        rows, begin, end, text = (
            load_word(context, abi.PLAN_ROWS), load_word(context, abi.PLAN_BEGIN),
            load_word(context, abi.PLAN_END), load_word(context, abi.PLAN_TEXT),
        )  # fmt: skip
        decisions, results = load_word(context, abi.PLAN_DECISIONS), load_word(context, abi.PLAN_RESULTS)
        first, captures = load_word(context, abi.PLAN_FIRST), load_word(context, abi.PLAN_CAPTURES)
        counters = stack_counters()
        for event in range(begin, end):
            store_word(context, abi.PLAN_ERROR_AT, event)
            store_word(counters, reads, 0)
            store_word(counters, conditions, 0)
            store_word(counters, operations, 0)
            store_word(counters, capture_words, 0)
            store_word(counters, late, 0)
            store_word(counters, failed, 0)
            store_word(results, event * 8, 0)
            store_word(captures, event * 8, 0)
            start = load_word(context, abi.PLAN_LEN)
            store_half(first, event * 4, start)
            txn = make_txn(context, event, counters)
            row = rows + event * size
            fetch(row + AHEAD, size)
            function(make_row(row, text, 0), txn)
            reserve_results(txn)
            decision = load_word(counters, conditions)
            if decision >= dropped_mark:
                decision = dropped_bit
                store_word(context, abi.PLAN_LEN, start)
            else:
                if decision > most:
                    raise OverflowError("a transaction has 16383 conditions, and changes by other rows, at most")
                if load_word(counters, late) != 0:
                    _conditions_first(load_word(context, abi.PLAN_ACCESSES), start, load_word(context, abi.PLAN_LEN))
                decision |= load_word(counters, failed)
            store_half(decisions, event * 4, decision)
        return 0

    return entry.kernel(plan_events, abi.PLAN_ERROR)


def post_kernel(function: Callable, event: Resolved, bound: tx.Bound, output: Resolved) -> bytes:
    """Post-processing: `function(request, txn, out)` for each event that was not dropped."""
    make_row, make_out, size = entry.row_maker(event, True), entry.maker(EmitterType(output), 3), event.event[1]
    make_txn = entry.maker(tx.PostType(bound), 2)
    failed_mask, dropped_bit = tx.FAILED_MASK, tx.DROPPED_BIT

    def post_events(context):
        rows, begin, end, text = (
            load_word(context, abi.POST_ROWS), load_word(context, abi.POST_BEGIN),
            load_word(context, abi.POST_END), load_word(context, abi.POST_TEXT),
        )  # fmt: skip
        decisions, results, emitter = (
            load_word(context, abi.POST_DECISIONS),
            load_word(context, abi.POST_RESULTS),
            load_word(context, abi.POST_EMITTER),
        )
        rejected = 0
        for event in range(begin, end):
            decision = load_half(decisions, event * 4)
            if decision & dropped_bit:
                continue
            rejected += (decision & failed_mask) != 0
            store_word(context, abi.POST_ERROR_AT, event)
            address = rows + event * size
            txn = make_txn(decision, load_word(results, event * 8))
            function(make_row(address, text, 0), txn, make_out(emitter, load_word(address, 0), event))
        store_word(context, abi.POST_REJECTED, load_word(context, abi.POST_REJECTED) + rejected)
        return 0

    return entry.kernel(post_events, abi.POST_ERROR)


@intrinsic
def _decide(typingctx, decisions, event, amount, shared):
    """Add `amount` to an event's decision.

    ORDERING: release, so that a thread that sees the event decided also sees the state that the condition read.
    ORDERING: acquire, so that the last of a group sees the other captures.
    """

    def codegen(context, builder, signature, args):
        base = builder.inttoptr(args[0], code.PTR)
        word = code.at(builder, base, builder.mul(args[1], code.i64(4)))
        word = builder.bitcast(word, ir.PointerType(code.I32))
        amount = builder.trunc(args[2], code.I32)
        alone = builder.icmp_signed("==", args[3], code.i64(0))
        with builder.if_else(alone) as (then, otherwise):
            with then:
                builder.store(builder.add(builder.load(word), amount), word)
            with otherwise:
                builder.atomic_rmw("add", word, amount, "acq_rel")
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64, types.int64), codegen


@intrinsic
def _decision(typingctx, decisions, event):
    """Load an event's decision. ORDERING: acquire, pairs with `_decide`."""

    def codegen(context, builder, signature, args):
        base = builder.inttoptr(args[0], code.PTR)
        word = code.at(builder, base, builder.mul(args[1], code.i64(4)))
        raw = builder.load_atomic(builder.bitcast(word, ir.PointerType(code.I32)), "acquire", 4)
        return builder.zext(raw, code.I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def _arrive(typingctx, group, shared):
    """Count one capture of a group; returns the number of missing ones.

    ORDERING: acquire and release, so that the last one sees every copied row.
    """

    def codegen(context, builder, signature, args):
        word = builder.inttoptr(args[0], ir.PointerType(code.I64))
        left = cgutils.alloca_once(builder, code.I64)
        alone = builder.icmp_signed("==", args[1], code.i64(0))
        with builder.if_else(alone) as (then, otherwise):
            with then:
                less = builder.sub(builder.load(word), code.i64(1))
                builder.store(less, word)
                builder.store(less, left)
            with otherwise:
                old = builder.atomic_rmw("sub", word, code.i64(1), "acq_rel")
                builder.store(builder.sub(old, code.i64(1)), left)
        return builder.and_(builder.load(left), code.i64(0xFFFFFFFF))  # the upper half is the condition's argument

    return types.int64(types.int64, types.int64), codegen


def _copier(begin: int, end: int) -> Callable:
    """Return an intrinsic that copies these bytes of a row."""

    @intrinsic
    def copy(typingctx, target, source):
        def codegen(context, builder, signature, args):
            source = code.at(builder, builder.inttoptr(args[1], code.PTR), begin)
            code.copy(builder, builder.inttoptr(args[0], code.PTR), source, end - begin)
            return context.get_dummy_value()

        return types.none(types.int64, types.int64), codegen

    return copy


def apply_kernel(bound: tx.Bound, event: Resolved, modifications: list[Callable], conditions: list[Callable]) -> bytes:
    """Compile the kernel that applies accesses, one after the other, until one waits for a decision.

    An application has few functions, all of them known. So the kernel compares numbers, and LLVM inlines them.
    """
    namespace = _namespace(bound, event, modifications, conditions)
    calls = _Calls(bound, modifications, conditions)
    exec(_apply_source(bound, event, calls), namespace)
    return entry.kernel(namespace["apply_accesses"], abi.APPLY_ERROR)


def _namespace(
    bound: tx.Bound, event: Resolved, modifications: list[Callable], conditions: list[Callable]
) -> dict[str, Any]:
    """Return what the source of the apply kernel calls, by name."""
    namespace: dict[str, Any] = {
        "abi": abi,
        "load_word": load_word,
        "load_half": load_half,
        "store_word": store_word,
        "decision_of": _decision,
        "decide": _decide,
        "arrive": _arrive,
        "make_event": entry.row_maker(event, True),
    }
    for t, table in enumerate(bound.tables):
        namespace[f"copy_{t}"] = _copier(0, table.row.state[1])
        namespace[f"read_{t}"] = _copier(*bound.spans[t])
        namespace[f"row_{t}"] = entry.row_maker(table.row, False)
    namespace |= {f"modify_{fn}": modifications[function] for (function, _), fn in bound.modifications.items()}
    namespace |= {f"condition_{fn}": conditions[function] for (function, _), fn in bound.conditions.items()}
    return namespace


# The operand of an access, in the source of the apply kernel: an argument, or an offset.
_OPERAND = f"load_half(access, {abi.ACCESS_SLOT})"
_GROUP_ARGUMENT = "load_half(group, 4)"


class _Calls:
    """Source of the calls of modifications and conditions, by the `fn` of an access.

    Attributes:
        modify: Modifications.
        alone: Conditions over one row.
        together: Conditions over several captured rows.
    """

    def __init__(self, bound: tx.Bound, modifications: list[Callable], conditions: list[Callable]):
        self._bound = bound
        self.modify: dict[int, str] = {}
        for (function, (t, *others)), fn in bound.modifications.items():
            rows, argument, group = f"row_{t}({self.address(t)}, 0, arena)", _OPERAND, ""
            if others:
                rows, argument = f"{rows}, {self._captured(tuple(others))}", _GROUP_ARGUMENT
                group = f"group = load_word(captures, event * 8) + {_OPERAND} * 8; "
            extra = _extra(modifications[function], 1 + len(others), argument)
            self.modify[fn] = f"{group}modify_{fn}({rows}, request{extra})"
        self.alone: dict[int, str] = {}
        self.together: dict[int, str] = {}
        for (function, tables), fn in bound.conditions.items():
            if len(tables) == 1:
                row = f"row_{tables[0]}({self.address(tables[0])}, 0, arena)"
                extra = _extra(conditions[function], 1, _OPERAND)
                self.alone[fn] = f"holds = condition_{fn}({row}, request{extra})"
            else:
                extra = _extra(conditions[function], len(tables), _GROUP_ARGUMENT)
                self.together[fn] = f"holds = condition_{fn}({self._captured(tables)}, request{extra})"

    def address(self, t: int) -> str:
        """Return the source of the address of the access's row, in table t."""
        return f"table_{t} + row * {self._bound.tables[t].row.state[1]}"

    def _captured(self, tables: tuple[int, ...]) -> str:
        stride = self._bound.row_stride
        return ", ".join(f"row_{t}(group + {8 + j * stride}, 0, 0)" for j, t in enumerate(tables))


def _extra(function: Callable, rows: int, argument: str) -> str:
    """Return the source of the integer argument, if the function takes one behind so many rows."""
    return f", {argument}" if tx.takes_argument(function, rows) else ""


def _choose(name: str, branches: dict[int, str], depth: int) -> str:
    """Return an if-chain over a small number; plans only write down numbers that it has."""
    indent = " " * (4 * depth)
    lines = [f"{indent}if {name} == {n}:\n{indent}    {branch}" for n, branch in branches.items()]
    return "\n".join(lines) if lines else f"{indent}pass"


def _apply_source(bound: tx.Bound, event: Resolved, calls: _Calls) -> str:
    """Return the source of the apply kernel."""
    names = range(len(bound.tables))
    return f"""
def apply_accesses(context):
    rows, text = load_word(context, abi.APPLY_ROWS), load_word(context, abi.APPLY_TEXT)
    accesses, n = load_word(context, abi.APPLY_ACCESSES), load_word(context, abi.APPLY_N)
    tables, decisions = load_word(context, abi.APPLY_TABLES), load_word(context, abi.APPLY_DECISIONS)
    results, captures = load_word(context, abi.APPLY_RESULTS), load_word(context, abi.APPLY_CAPTURES)
    arena, shared = load_word(context, abi.APPLY_ARENA), load_word(context, abi.APPLY_SHARED)
    {"; ".join(f"table_{t} = load_word(tables, {8 * t})" for t in names)}
    i = 0
    while i < n:
        access = accesses + i * {abi.ACCESS_SIZE}
        event, row = load_half(access, {abi.ACCESS_EVENT}), load_half(access, {abi.ACCESS_ROW})
        what = load_half(access, {abi.ACCESS_FUNCTION})
        kind, table, fn = what >> {_KIND}, (what >> {_TABLE}) & 255, what & 65535
        request = make_event(rows + event * {event.event[1]}, text, 0)
        if kind == {abi.MODIFY} or kind == {abi.READ}:
            decision = decision_of(decisions, event)
            failed = decision & {tx.FAILED_MASK}
            if failed == 0 and decision & {tx.WAITING_MASK} != 0:
                break
            if kind == {abi.READ}:
                slot = load_word(results, event * 8) + {_OPERAND} * {bound.result_stride}
{_choose("table", {t: f"read_{t}(slot, {calls.address(t)})" for t in names}, 4)}
            elif failed == 0:
                store_word(context, abi.APPLY_ERROR_AT, event)
{_choose("fn", calls.modify, 4)}
        else:
            store_word(context, abi.APPLY_ERROR_AT, event)
            holds = True
            complete = True
            if kind == {abi.CONDITION}:
{_choose("fn", calls.alone, 4)}
            else:
                group = load_word(captures, event * 8) + {_OPERAND} * 8
                copied = group + 8 + (kind - {abi.CAPTURE}) * {bound.row_stride}
{_choose("table", {t: f"copy_{t}(copied, {calls.address(t)})" for t in names}, 4)}
                complete = arrive(group, shared) == 0
                if complete:
{_choose("fn", calls.together, 5)}
            if complete:
                decide(decisions, event, -1 if holds else {tx.FAILED_UNIT - 1}, shared)
        i += 1
    store_word(context, abi.APPLY_DONE, i)
    return 0
"""
