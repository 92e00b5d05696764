"""Emits machine code: links what numba has typed and lowered, optimises it once, and writes an object file.

numba itself optimises every function alone and again in each of its callers, makes machine code of each, and loads it.
Lockstep calls only the whole, often from a process without numba. Between `compiling` and `emit`, two subclasses of
numba's code generator therefore link functions as they are. They override private hooks of numba, which
tests/streaming_core/machine_code/test_emission.py lists; only this module does so.

- The oracle's loop needs this. Its blocks of memory are symbols without an address until a process loads the
  code. LLVM ends a process in which numba loads such a function.
- It saves a third of the compile time. The table gives CPU seconds with and without the subclasses, as medians of 3
  rounds. Each round ran in a new process without stored code, after numba's own start. The machine had 2 cores of an
  AMD EPYC with other work on them, numba 0.68.1 and Python 3.11. Without the subclasses, the symbols had addresses
  beforehand.

  | application | kernels | loop | sum |
  |---|---|---|---|
  | wc | 0.33 / 0.54 | 1.73 / 2.42 | 2.06 / 2.96 |
  | tp | 1.99 / 3.06 | 1.88 / 2.41 | 3.87 / 5.47 |
  | q2 | 1.70 / 3.17 | 3.46 / 4.83 | 5.16 / 8.00 |

- After the table was made, `compiling` also left out the wrappers for callers in C: `sl` takes a sixth less.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from streaming_core.errors import CommandFailed
from streaming_core.machine_code import EXPORT

# LLVM would turn selects in loops into branches where it expects them to be predictable. In operators on streams, they
# depend on the data of the event, so no branch predictor gets them right.
llvm.set_option("", "-x86-cmov-converter=0")


class _Linked(JITCodeLibrary):
    """Functions to be linked into others: not optimised, not loaded, without an address."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_specific(self) -> None:
        pass

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: no function has an address yet."""
        self._ensure_finalized()
        return 0


class _Linking(JITCPUCodegen):
    """Numba's code generator for this processor, without its engine."""

    _library_class = _Linked

    def _add_module(self, module: Any) -> None:
        pass

    def set_env(self, env_name: str, env: Any) -> None:
        """Ignore the environment: compiled code that never calls Python needs none."""


@cache
def _generator() -> _Linking:
    return _Linking("linked")


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause garbage collection.

    numba holds on to its objects until it is done, and scanning them takes an eighth of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def compiling() -> Iterator[None]:
    """Have numba compile functions to emit, or to link into later ones, within this block; nothing can call them.

    So no function gets a wrapper for callers in C. An option of `njit` says so too, but numba's overloads ignore it.
    """
    context = cpu_target.target_context
    with global_compiler_lock, _uncollected():
        generator, context._internal_codegen = context._internal_codegen, _generator()
        context.create_cfunc_wrapper = lambda *_: None
        try:
            yield
        finally:
            context._internal_codegen = generator
            del context.create_cfunc_wrapper


def refers_to(library: Any, symbol: str) -> bool:
    """Whether the code of a finalized library uses a block of memory that is a symbol."""
    try:
        library._final_module.get_global_variable(symbol)
    except NameError:
        return False
    return True


def emit(library: Any, name: str, threshold: int | None = None) -> bytes:
    """Return the object file of a finalized code library, which exports only the function `name`.

    Everything else becomes internal before the optimiser runs, so that it may inline all of it. The state that an
    operator keeps beside the batch can then live in registers.

    Args:
        library: A finalized library, built within `compiling`.
        name: The function to export.
        threshold: Inline functions up to this cost; None inlines all (operators do not recurse).

    Raises:
        LookupError: The code calls a function outside the C library.
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
        # LLVM ends a process that loads a call of an unknown function, and numba's own helpers are known only to
        # processes with numba.
        name = function.name
        if function.is_declaration and not name.startswith("llvm.") and not hasattr(ctypes.CDLL(None), name):
            raise LookupError(f"compiled code calls {name}, which is not in the C library")
    return machine.emit_object(module)


def not_compiled(what: str, error: Exception) -> CommandFailed:
    """Return the error to raise where numba rejects a program that the language accepts: a fault of Lockstep."""
    reason = str(error).strip().replace("\x1b[1m", "").partition("\n")[0]  # without the terminal codes
    return CommandFailed(f"{what}: numba cannot compile this valid operator, a fault of Lockstep: {reason}")
