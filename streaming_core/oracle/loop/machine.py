"""Compiling: numba's functions with one set of options, and whole programs as one piece of machine code."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
from numba import njit, types

from streaming_core import interruption

OPTIONS = {"error_model": "numpy", "fastmath": False, "boundscheck": False, "nogil": True}


def compiled(function):
    """njit, with the one set of options."""
    return njit(**OPTIONS)(function)


def internal(function):
    """The same, of a function that only compiled code calls: a face for Python would take time to compile."""
    return njit(**OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)


class Machine:
    """A compiled function `(int64, ...) -> int64` as one piece of machine code.

    numba links what a function calls, but inlines little of it; here everything else becomes internal and the
    optimiser runs once more, free to inline: operators called in one place move into their loop. Calling releases the
    GIL; a Python exception inside becomes `False`.
    """

    def __init__(self, function, arguments: int):
        function.compile((types.int64,) * arguments)
        interruption.check()
        [result] = function.overloads.values()
        name = result.fndesc.llvm_func_name
        module = result.library._final_module.clone()
        for other in module.functions:
            if not other.is_declaration and other.name != name:
                other.linkage = llvm.Linkage.internal
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = result.library.codegen._tm
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.inlining_threshold = 3000
        llvm.create_pass_builder(target, options).getModulePassManager().run(
            module, llvm.create_pass_builder(target, options)
        )
        host = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
        )
        self._engine = llvm.create_mcjit_compiler(module, host)
        self._engine.finalize_object()
        self._keep = result
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, *[word] * arguments)(
            self._engine.get_function_address(name)
        )

    def __call__(self, *arguments: int) -> bool:
        """Whether it returned instead of raising."""
        value, error = ctypes.c_int64(), ctypes.c_void_p()
        return self._call(ctypes.addressof(value), ctypes.addressof(error), *arguments) == 0
