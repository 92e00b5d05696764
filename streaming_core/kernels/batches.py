"""Kernels of dataflow operators without windows: loops of an operator function over the rows, or states, of a batch."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from streaming_core.kernels import abi, entry, owned
from streaming_core.kernels import ir as code
from streaming_core.kernels.emitter import EmitterType
from streaming_core.kernels.memory import load_word, store_word
from streaming_core.kernels.values import arena_of
from streaming_core.language.record import Resolved


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

    make = entry.row_maker(scratch, False)

    @entry.compiled
    def fresh(address):
        wipe(address)
        return make(address, 0, 0)

    return area, fresh


def map_kernel(function: Callable, event: Resolved, output: Resolved, scratch: Resolved | None) -> bytes:
    """Stateless: `function(row, out)`, or `function(row, scratch, out)`, for every row."""
    make_row, make_out, size = entry.row_maker(event, True), entry.maker(EmitterType(output), 3), event.event[1]
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

        return entry.kernel(map_with_scratch, abi.BATCH_ERROR)

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

    return entry.kernel(map_batch, abi.BATCH_ERROR)


def settled(function: Callable, state: Resolved) -> Callable:
    """Return `function(row, state, out)`, which first frees the texts that the last call replaced, if there are any."""
    if not state.keeps_texts:
        return function

    @entry.compiled
    def with_settled(row, state, out):
        owned.settle(arena_of(state))
        function(row, state, out)

    return with_settled


def process_kernel(function: Callable, event: Resolved, state: Resolved, output: Resolved) -> bytes:
    """Stateful and partitioned stateful: `function(row, state, out)` for every row."""
    make_row, size = entry.row_maker(event, True), event.event[1]
    make_out, make_state = entry.maker(EmitterType(output, state.keeps_texts), 3), entry.row_maker(state, False)
    function = settled(function, state)

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

    return entry.kernel(process_batch, abi.BATCH_ERROR)


def flush_kernel(function: Callable, state: Resolved, output: Resolved) -> bytes:
    """End of the stream: `function(state, out)` for every state."""
    make_out, make_state = entry.maker(EmitterType(output, state.keeps_texts), 3), entry.row_maker(state, False)

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

    return entry.kernel(flush_states, abi.BATCH_ERROR)
