"""HEAD"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from streaming_core.kernels import abi, entry
from streaming_core.kernels import ir as code
from streaming_core.kernels import transaction as tx
from streaming_core.kernels.emitter import EmitterType
from streaming_core.kernels.memory import AHEAD, fetch, load_half, load_word, store_half, store_word
from streaming_core.language.record import Resolved

# Where an access's table and kind begin, in bits of the half word that its function is in.
_TABLE, _KIND = 8 * (abi.ACCESS_TABLE - abi.ACCESS_FUNCTION), 8 * (abi.ACCESS_KIND - abi.ACCESS_FUNCTION)


@intrinsic
def stack_counters(typingctx):
    """Address of the per-event counters of a plan, on the kernel's stack."""

    def codegen(context, builder, signature, args):
        area = cgutils.alloca_once(builder, ir.ArrayType(code.I64, tx.COUNTERS_SIZE // 8))
        return builder.ptrtoint(area, code.I64)

    return types.int64(), codegen


@entry.compiled
def _conditions_first(accesses, first, last):
    """Moves the conditions among accesses first..last-1 to the front; both kinds keep their order."""
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
    """Adds `amount` to an event's decision. ORDERING: release, so that whoever sees the event decided also sees the
    state the condition was evaluated on; acquire, so that the last of a group sees the other captures."""

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
    """An event's decision. ORDERING: acquire, pairs with `_decide`."""

    def codegen(context, builder, signature, args):
        base = builder.inttoptr(args[0], code.PTR)
        word = code.at(builder, base, builder.mul(args[1], code.i64(4)))
        raw = builder.load_atomic(builder.bitcast(word, ir.PointerType(code.I32)), "acquire", 4)
        return builder.zext(raw, code.I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def _arrive(typingctx, group, shared):
    """Counts one capture of a group; returns how many are still missing. ORDERING: acquire and release, so that the
    last one sees every row that was copied."""

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
    """An intrinsic that copies these bytes of a row."""

    @intrinsic
    def copy(typingctx, target, source):
        def codegen(context, builder, signature, args):
            source = code.at(builder, builder.inttoptr(args[1], code.PTR), begin)
            code.copy(builder, builder.inttoptr(args[0], code.PTR), source, end - begin)
            return context.get_dummy_value()

        return types.none(types.int64, types.int64), codegen

    return copy


def apply_kernel(bound: tx.Bound, event: Resolved, modifications: list[Callable], conditions: list[Callable]) -> bytes:
    """State access: applies accesses one after the other until one waits for a decision.

    The functions of an application are few and known, so that they are chosen by comparison and inlined.
    """
    stride, row_stride = bound.result_stride, bound.row_stride
    namespace: dict = {
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
        namespace[f"copy_{t}"] = _copier(0, table.state[1])
        namespace[f"read_{t}"] = _copier(*bound.spans[t])
        namespace[f"row_{t}"] = entry.row_maker(table, False)
    namespace |= {f"modify_{fn}": modifications[function] for (function, _), fn in bound.modifications.items()}
    namespace |= {f"condition_{fn}": conditions[function] for (function, _), fn in bound.conditions.items()}

    def row(t: int) -> str:
        return f"table_{t} + row * {bound.tables[t].state[1]}"

    def captured(tables: tuple[int, ...]) -> str:
        return ", ".join(f"row_{t}(group + {8 + j * row_stride}, 0, 0)" for j, t in enumerate(tables))

    def argument(function: Callable, rows: int, where: str) -> str:
        return f", {where}" if tx.takes_argument(function, rows) else ""

    def choose(name: str, branches: dict[int, str], depth: int) -> str:
        """An if-chain over a small number; an unknown one cannot occur, plans only write down known ones."""
        indent = " " * (4 * depth)
        lines = [f"{indent}if {name} == {n}:\n{indent}    {branch}" for n, branch in branches.items()]
        return "\n".join(lines) if lines else f"{indent}pass"

    number = f"load_half(access, {abi.ACCESS_SLOT})"
    modify = {}
    for (function, (t, *others)), fn in bound.modifications.items():
        rows, where = f"row_{t}({row(t)}, 0, arena)", number
        if others:
            rows, where = f"{rows}, {captured(tuple(others))}", "load_half(group, 4)"
        change = f"modify_{fn}({rows}, request{argument(modifications[function], 1 + len(others), where)})"
        modify[fn] = f"{f'group = load_word(captures, event * 8) + {number} * 8; ' if others else ''}{change}"
    alone = {
        fn: f"holds = condition_{fn}(row_{tables[0]}({row(tables[0])}, 0, arena), request"
        f"{argument(conditions[function], 1, number)})"
        for (function, tables), fn in bound.conditions.items()
        if len(tables) == 1
    }
    together = {}
    for (function, tables), fn in bound.conditions.items():
        if len(tables) > 1:
            extra = argument(conditions[function], len(tables), "load_half(group, 4)")
            together[fn] = f"holds = condition_{fn}({captured(tables)}, request{extra})"
    names = range(len(bound.tables))
    source = f"""
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
                slot = load_word(results, event * 8) + {number} * {stride}
{choose("table", {t: f"read_{t}(slot, {row(t)})" for t in names}, 4)}
            elif failed == 0:
                store_word(context, abi.APPLY_ERROR_AT, event)
{choose("fn", modify, 4)}
        else:
            store_word(context, abi.APPLY_ERROR_AT, event)
            holds = True
            complete = True
            if kind == {abi.CONDITION}:
{choose("fn", alone, 4)}
            else:
                group = load_word(captures, event * 8) + {number} * 8
                copied = group + 8 + (kind - {abi.CAPTURE}) * {row_stride}
{choose("table", {t: f"copy_{t}(copied, {row(t)})" for t in names}, 4)}
                complete = arrive(group, shared) == 0
                if complete:
{choose("fn", together, 5)}
            if complete:
                decide(decisions, event, -1 if holds else {tx.FAILED_UNIT - 1}, shared)
        i += 1
    store_word(context, abi.APPLY_DONE, i)
    return 0
"""
    exec(source, namespace)
    return entry.kernel(namespace["apply_accesses"], abi.APPLY_ERROR)
