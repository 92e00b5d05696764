"""Entry points: compiles a loop over a context to a C function, and makes the intrinsics that build its arguments.

The loops are plain Python functions over an address (batches.py, phases.py, windows.py, direct.py). `kernel` wraps one
in a C function that neither unwinds nor takes the GIL. An exception leaves numba's pickled description in the context
and the status 1 (runtime/ABI.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from streaming_core.kernels import abi
from streaming_core.kernels import ir as code
from streaming_core.kernels.values import RowType
from streaming_core.language.record import Resolved
from streaming_core.machine_code import emission

if TYPE_CHECKING:
    from numba.core.dispatcher import Dispatcher

# No fastmath; `python` semantics for division by zero; the words check bounds themselves. Only compiled code calls
# these functions: wrappers for Python would be a sixth of the time to compile.
OPTIONS = {
    "error_model": "python",
    "fastmath": False,
    "boundscheck": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def compiled(function: Callable) -> Dispatcher:
    """Wrap a function in njit, with the options of every operator and kernel."""
    return njit(**OPTIONS)(function)


def kernel(function: Callable, error_offset: int) -> bytes:
    """Return the object file of a C function `kernel(context: i64) -> i64` around `function(context)`.

    `error_offset` is the offset of `error: *u8, error_len: i64` in the context.
    """
    with emission.compiling():
        dispatcher = compiled(function)
        dispatcher.compile((types.int64,))
        result = dispatcher.overloads[(types.int64,)]
        context = result.target_context
        library = context.codegen().create_library("kernel")
        module = library.create_ir_module("kernel")
        wrapper = ir.Function(module, ir.FunctionType(code.I64, [code.I64]), "kernel")
        builder = ir.IRBuilder(wrapper.append_basic_block("entry"))
        callee = context.declare_function(module, result.fndesc)
        status, _ = context.call_conv.call_function(
            builder, callee, result.fndesc.restype, result.fndesc.argtypes, [wrapper.args[0]]
        )
        with builder.if_then(status.is_error, likely=False):
            with builder.if_then(status.is_user_exc):
                pickled = builder.load(status.excinfoptr)
                address = builder.inttoptr(wrapper.args[0], code.PTR)
                code.store(builder, builder.extract_value(pickled, 0), address, error_offset)
                length = builder.sext(builder.extract_value(pickled, 1), code.I64)
                code.store(builder, length, address, error_offset + 8)
            builder.ret(code.i64(1))
        if emission.refers_to(result.library, abi.TEXT_FUNCTIONS):
            table = ir.GlobalVariable(module, code.I8, abi.TEXT_FUNCTIONS)
            code.call(builder, code.load(builder, table, 8 * abi.TEXT_RELEASE, code.PTR))
        builder.ret(code.i64(0))
        library.add_ir_module(module)
        library.add_linking_library(result.library)
        library.finalize()
    return emission.emit(library, "kernel")


def maker(kind: types.Type, members: int) -> Callable:
    """Return an intrinsic that builds a value of a struct-modelled type from `members` i64 (addresses or numbers)."""

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
