"""Machine code: what a compiled kernel comes down to, kept on disk and loaded without the compiler.

A kernel is one exported C function in one object file; everything else in it is internal and pruned. Compiling takes
seconds and importing numba most of another; loading takes milliseconds.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import pickle
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

_HERE = Path(__file__).parent


def emit(library, name: str) -> bytes:
    """The object file of a finalized numba code library, in which only `name` is exported.

    Everything else becomes part of its loop: what an operator keeps beside the batch can then live in registers.
    """
    module = library._final_module.clone()
    for function in module.functions:
        if not function.is_declaration and function.name != name:
            function.linkage = llvm.Linkage.internal
            function.add_function_attribute("alwaysinline")  # operators do not recurse (dialect.py)
    machine = library.codegen._tm
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


def _target() -> llvm.TargetMachine:
    """A target of its own for each engine, which takes it over."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine()


class Loaded:
    """A kernel's object file in memory; `address` lives as long as this object."""

    def __init__(self, code: bytes, name: str):
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self.address: int = self._engine.get_function_address(name)
        if not self.address:
            raise ValueError(f"object file does not export {name}")


@cache
def fingerprint() -> str:
    """Everything machine code depends on besides the application: compiler, processor, this package's source."""
    digest = hashlib.sha256()
    for package in ("numba", "llvmlite", "numpy"):
        digest.update(f"{package} {importlib.metadata.version(package)}\n".encode())
    digest.update(f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()}\n".encode())
    digest.update(llvm.get_host_cpu_features().flatten().encode())
    for package in ("kernels", "language"):
        for path in sorted((_HERE.parent / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def describe_error(payload: bytes) -> str:
    """`ZeroDivisionError: integer division by zero` from the pickled exception a kernel left behind."""
    if not payload:
        return "unknown error"
    error, args, _ = pickle.loads(payload)  # the location is the word's own, which tells a user nothing
    return f"{error.__name__}: {args[0]}" if args else error.__name__
