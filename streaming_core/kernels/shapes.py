"""The shapes of kernels (runtime/ABI.md): the loops around operator functions, one C function each.

A shape is plain Python compiled by numba over an address; `kernel` gives it a C face that neither unwinds nor takes the
GIL: an exception leaves numba's pickled description in the context and the status 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from streaming_core import emission
from streaming_core.kernels import abi
from streaming_core.kernels import ir as code
from streaming_core.kernels import transaction as tx
from streaming_core.kernels.emitter import EmitterType
from streaming_core.kernels.memory import AHEAD, fetch, load_half, load_word, store_half, store_word
from streaming_core.kernels.values import RowType
from streaming_core.language.record import Resolved

if TYPE_CHECKING:
    from numba.core.dispatcher import Dispatcher

# No fastmath; `python` semantics for division by zero; bounds are checked by the words themselves. Nobody but other
# compiled code calls these functions: faces for Python would be a sixth of the time to compile.
OPTIONS = {
    "error_model": "python",
    "fastmath": False,
    "boundscheck": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def compiled(function: Callable) -> Dispatcher:
    """njit with the one set of options every operator and kernel is compiled with."""
    return njit(**OPTIONS)(function)


def kernel(function: Callable, error_offset: int) -> bytes:
    """Object file of a C function `kernel(context: i64) -> i64` around `function(context)`.

    `error_offset`: where the context keeps `error: *u8, error_len: i64`.
    """
    with emission.compiling():
        dispatcher = compiled(function)
        dispatcher.compile((types.int64,))
        result = dispatcher.overloads[(types.int64,)]
        context = result.target_context
        library = context.codegen().create_library("kernel")
        module = library.create_ir_module("kernel")
        face = ir.Function(module, ir.FunctionType(code.I64, [code.I64]), "kernel")
        builder = ir.IRBuilder(face.append_basic_block("entry"))
        callee = context.declare_function(module, result.fndesc)
        status, _ = context.call_conv.call_function(
            builder, callee, result.fndesc.restype, result.fndesc.argtypes, [face.args[0]]
        )
        with builder.if_then(status.is_error, likely=False):
            with builder.if_then(status.is_user_exc):
                pickled = builder.load(status.excinfoptr)
                address = builder.inttoptr(face.args[0], code.PTR)
                code.store(builder, builder.extract_value(pickled, 0), address, error_offset)
                length = builder.sext(builder.extract_value(pickled, 1), code.I64)
                code.store(builder, length, address, error_offset + 8)
            builder.ret(code.i64(1))
        builder.ret(code.i64(0))
        library.add_ir_module(module)
        library.add_linking_library(result.library)
        library.finalize()
    return emission.emit(library, "kernel")


@intrinsic
def stack_counters(typingctx):
    """Address of the per-event counters of a plan, on the kernel's stack."""

    def codegen(context, builder, signature, args):
        area = cgutils.alloca_once(builder, ir.ArrayType(code.I64, tx.COUNTERS_SIZE // 8))
        return builder.ptrtoint(area, code.I64)

    return types.int64(), codegen


def maker(kind: types.Type, members: int) -> Callable:
    """An intrinsic that builds a value of a struct-modelled type from `members` i64 (addresses or numbers)."""

    def build(context, builder, signature, args):
        held = cgutils.create_struct_proxy(kind)(context, builder)
        for i, value in enumerate(args):
            name = context.data_model_manager[kind]._fields[i]
            wanted = context.data_model_manager[kind].get_member_fe_type(name)
            setattr(held, name, builder.inttoptr(value, code.PTR) if wanted == types.voidptr else value)
        return held._getvalue()

    if members == 2:

        @intrinsic
        def make(typingctx, a, b):
            return kind(types.int64, types.int64), build
    else:

        @intrinsic
        def make(typingctx, a, b, c):
            return kind(types.int64, types.int64, types.int64), build

    return make


def row_maker(record: Resolved, header: bool) -> Callable:
    """`make(address, text, arena)` -> row."""
    return maker(RowType(record, header), 3)


# --- dataflow ------------------------------------------------------------------------------------------------------


def scratch_maker(scratch: Resolved) -> tuple[Callable, Callable]:
    """`area()` -> address on the kernel's stack, and `fresh(address)` -> a row there, all zero."""
    size = scratch.state[1]

    @intrinsic
    def area(typingctx):
        def codegen(context, builder, signature, args):
            return builder.ptrtoint(cgutils.alloca_once(builder, ir.ArrayType(code.I64, size // 8)), code.I64)

        return types.int64(), codegen

    @intrinsic
    def wipe(typingctx, address):
        def codegen(context, builder, signature, args):
            cgutils.memset(builder, builder.inttoptr(args[0], code.PTR), code.i64(size), 0)
            return context.get_dummy_value()

        return types.none(types.int64), codegen

    make = row_maker(scratch, False)

    @compiled
    def fresh(address):
        wipe(address)
        return make(address, 0, 0)

    return area, fresh


def map_kernel(function: Callable, event: Resolved, output: Resolved, scratch: Resolved | None) -> bytes:
    """Stateless: `function(row, out)`, or `function(row, scratch, out)`, for every row."""
    make_row, make_out, size = row_maker(event, True), maker(EmitterType(output), 3), event.event[1]
    if scratch is not None:
        area, fresh = scratch_maker(scratch)

        def map_with_scratch(context):
            rows, n, places = (
                load_word(context, abi.BATCH_ROWS),
                load_word(context, abi.BATCH_N),
                load_word(context, abi.BATCH_PLACES),
            )
            text, emitter = load_word(context, abi.BATCH_TEXT), load_word(context, abi.BATCH_EMITTER)
            address_of_scratch = area()
            for i in range(n):
                store_word(context, abi.BATCH_ERROR_AT, i)
                address = rows + i * size if places == 0 else load_word(places, i * 8)
                out = make_out(emitter, load_word(address, 0), i)
                function(make_row(address, text, 0), fresh(address_of_scratch), out)
            return 0

        return kernel(map_with_scratch, abi.BATCH_ERROR)

    def map_batch(context):
        rows, n, places = (
            load_word(context, abi.BATCH_ROWS),
            load_word(context, abi.BATCH_N),
            load_word(context, abi.BATCH_PLACES),
        )
        text, emitter = load_word(context, abi.BATCH_TEXT), load_word(context, abi.BATCH_EMITTER)
        for i in range(n):
            store_word(context, abi.BATCH_ERROR_AT, i)
            address = rows + i * size if places == 0 else load_word(places, i * 8)
            function(make_row(address, text, 0), make_out(emitter, load_word(address, 0), i))
        return 0

    return kernel(map_batch, abi.BATCH_ERROR)


def process_kernel(function: Callable, event: Resolved, state: Resolved, output: Resolved) -> bytes:
    """Stateful and partitioned stateful: `function(row, state, out)` for every row."""
    make_row, make_out, size = row_maker(event, True), maker(EmitterType(output), 3), event.event[1]
    make_state = row_maker(state, False)

    def process_batch(context):
        rows, n, places, states = (
            load_word(context, abi.BATCH_ROWS), load_word(context, abi.BATCH_N),
            load_word(context, abi.BATCH_PLACES), load_word(context, abi.BATCH_STATES),
        )  # fmt: skip
        text, emitter, arena = (
            load_word(context, abi.BATCH_TEXT),
            load_word(context, abi.BATCH_EMITTER),
            load_word(context, abi.BATCH_ARENA),
        )
        for i in range(n):
            store_word(context, abi.BATCH_ERROR_AT, i)
            address = rows + i * size if places == 0 else load_word(places, i * 8)
            out = make_out(emitter, load_word(address, 0), i)
            function(make_row(address, text, 0), make_state(load_word(states, i * 8), 0, arena), out)
        return 0

    return kernel(process_batch, abi.BATCH_ERROR)


def flush_kernel(function: Callable, state: Resolved, output: Resolved) -> bytes:
    """End of the stream: `function(state, out)` for every state."""
    make_out, make_state = maker(EmitterType(output), 3), row_maker(state, False)

    def flush_states(context):
        n, states, emitter = (
            load_word(context, abi.BATCH_N),
            load_word(context, abi.BATCH_STATES),
            load_word(context, abi.BATCH_EMITTER),
        )
        arena, seq = load_word(context, abi.BATCH_ARENA), load_word(context, abi.BATCH_SEQ)
        for j in range(n):
            store_word(context, abi.BATCH_ERROR_AT, j)
            function(make_state(load_word(states, j * 8), 0, arena), make_out(emitter, seq, j))
        return 0

    return kernel(flush_states, abi.BATCH_ERROR)


# --- transactions --------------------------------------------------------------------------------------------------


# Where an access's table and kind begin, in bits of the half word that its function is in.
_TABLE, _KIND = 8 * (abi.ACCESS_TABLE - abi.ACCESS_FUNCTION), 8 * (abi.ACCESS_KIND - abi.ACCESS_FUNCTION)


@compiled
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
    make_row, make_txn, size = row_maker(event, True), maker(tx.PlanType(bound), 3), event.event[1]
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

    return kernel(plan_events, abi.PLAN_ERROR)


def post_kernel(function: Callable, event: Resolved, bound: tx.Bound, output: Resolved) -> bytes:
    """Post-processing: `function(request, txn, out)` for each event that was not dropped."""
    make_row, make_out, size = row_maker(event, True), maker(EmitterType(output), 3), event.event[1]
    make_txn = maker(tx.PostType(bound), 2)
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

    return kernel(post_events, abi.POST_ERROR)


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
        "make_event": row_maker(event, True),
    }
    for t, table in enumerate(bound.tables):
        namespace[f"copy_{t}"] = _copier(0, table.state[1])
        namespace[f"read_{t}"] = _copier(*bound.spans[t])
        namespace[f"row_{t}"] = row_maker(table, False)
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
    return kernel(namespace["apply_accesses"], abi.APPLY_ERROR)
