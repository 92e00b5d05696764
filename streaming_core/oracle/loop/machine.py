"""Compiling: numba's functions with one set of options, and programs of such functions as machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numba import njit, types

import streaming_core.language.wrapping  # noqa: F401 - the oracle's integers wrap around too
from streaming_core import errors, interruption, language, machine_code
from streaming_core.data import digest
from streaming_core.machine_code import emission
from streaming_core.storage import digest_of

OPTIONS = {"error_model": "numpy", "fastmath": False, "boundscheck": False, "nogil": True}
# Only other compiled code calls these functions: wrappers for Python would take time to compile.
_WITHOUT_WRAPPERS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_THRESHOLD = 3000  # inlines a function with a single call, however large
# The code that turns an application into printed code, and printed code into machine code.
_SOURCES = [Path(language.__file__).parent, Path(__file__).parent.parent, Path(digest.__file__), Path(errors.__file__)]


def compiled(function):
    """Wrap a function in njit, with the one set of options."""
    return njit(**OPTIONS, **_WITHOUT_WRAPPERS)(function)


def programs(
    text: str, arguments: Mapping[str, int], make: Callable[[], Mapping[str, Any]], places: Mapping[str, int]
) -> dict[str, Machine]:
    """Load functions `(int64, ...) -> int64` as machine code; compile and store them if they are not on disk.

    Args:
        text: The source of the functions, beside that of the oracle.
        arguments: The number of arguments, by function.
        make: Returns the functions, by name.
        places: Addresses by symbol (memory.place).
    """
    address = digest_of([machine_code.fingerprint(*_SOURCES), text, dict(arguments)])
    kept = machine_code.kept()
    codes = kept.read(address)
    if codes is None:
        functions = make()
        codes = {name: _emit(functions[name], count) for name, count in arguments.items()}
        kept.write(address, codes)
    return {name: Machine(codes[name], count, places) for name, count in arguments.items()}


def _emit(function: Any, arguments: int) -> bytes:
    with emission.compiling():
        function.compile((types.int64,) * arguments)
    interruption.check()
    [result] = function.overloads.values()
    return emission.emit(result.library, result.fndesc.llvm_func_name, _THRESHOLD)


class Machine:
    """A compiled function in memory. Calling releases the GIL; a Python exception inside becomes `False`."""

    def __init__(self, code: bytes, arguments: int, places: Mapping[str, int]):
        self._loaded = machine_code.Loaded(code, places)
        pointer, word = ctypes.c_void_p, ctypes.c_int64
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, *[word] * arguments)(self._loaded.address)

    def __call__(self, *arguments: int) -> bool:
        """Whether it returned instead of raising."""
        value, error = ctypes.c_int64(), ctypes.c_void_p()
        return self._call(ctypes.addressof(value), ctypes.addressof(error), *arguments) == 0
