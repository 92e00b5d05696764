"""Emitting machine code: what numba typed and lowered, linked, optimised once and written as an object file.

Left to itself, numba optimises every function by itself and again in each of its callers, makes machine code of all of
them and loads that. Only the whole is ever called here, and that from a process that need not have numba: between
`compiling` and `emit` functions are linked as they are, which spares about half of the time.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from streaming_core.errors import CommandFailed
from streaming_core.machine_code import EXPORT


class _Linked(JITCodeLibrary):
    """Functions to be linked into others: not optimised, not loaded, at no address."""

    def _optimize_functions(self, ll_module):
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self):
        pass

    def _finalize_specific(self):
        pass

    def get_pointer_to_function(self, name):
        self._ensure_finalized()
        return 0


class _Linking(JITCPUCodegen):
    """Numba's code generator for this processor, without its engine."""

    _library_class = _Linked

    def _add_module(self, module):
        pass

    def set_env(self, env_name, env):
        """Nothing has an address yet; compiled code that never meets Python needs no environment."""


@cache
def _generator() -> _Linking:
    return _Linking("linked")


@contextmanager
def _uncollected() -> Iterator[None]:
    """What numba makes of a function is there until all of it is compiled: looking for garbage meanwhile finds none
    and takes an eighth of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def compiling() -> Iterator[None]:
    """What numba compiles in this block can be emitted, and linked into what is compiled later; it cannot be called."""
    context = cpu_target.target_context
    with global_compiler_lock, _uncollected():
        generator, context._internal_codegen = context._internal_codegen, _generator()
        try:
            yield
        finally:
            context._internal_codegen = generator


def emit(library, name: str, threshold: int | None = None) -> bytes:
    """The object file of a finalized code library, in which only the function `name` is exported.

    Everything else becomes internal before the optimiser runs, free to inline: what an operator keeps beside the batch
    can then live in registers.

    Args:
        threshold: up to which cost functions are inlined; None: all of them are (operators do not recurse).
    """
    module = library._final_module.clone()
    for function in module.functions:
        if function.name == name:
            function.name = EXPORT
        elif not function.is_declaration:
            function.linkage = llvm.Linkage.internal
            if threshold is None:
                function.add_function_attribute("alwaysinline")
    machine = library.codegen._tm
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    if threshold is not None:
        options.inlining_threshold = threshold
    # Functions are simplified one by one before the first is inlined: without it fd is a tenth slower.
    for function in module.functions:
        if not function.is_declaration:
            builder = llvm.create_pass_builder(machine, options)
            builder.getFunctionPassManager().run(function, builder)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    for function in module.functions:
        # LLVM ends a process that loads a call of a function which it does not know; what the compiler's own library
        # has is known only to processes that have loaded it.
        name = function.name
        if function.is_declaration and not name.startswith("llvm.") and not hasattr(ctypes.CDLL(None), name):
            raise LookupError(f"compiled code calls {name}, which is not in the C library")
    return machine.emit_object(module)


def not_compiled(what: str, error: Exception) -> CommandFailed:
    """What to raise where numba does not compile what the language allows: no fault of the application's."""
    reason = str(error).strip().replace("\x1b[1m", "").partition("\n")[0]  # without its emphasis
    return CommandFailed(f"{what}: accepted by the language but not by the compiler: {reason}")
