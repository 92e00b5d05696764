"""Machine code: stored on disk between runs, loaded without the compiler that emitted it (emission.py).

A compiled function is one object file that exports one C function; everything else in it is internal and pruned. The
blocks of memory that it works on are symbols, which get their addresses when a process loads it. Compiling takes
seconds and importing numba most of another; loading takes milliseconds.

Stored code saves time and nothing else. `Kept` is the folder: `compiled` of LOCKSTEP_HOME, else of the user's cache.
An entry's address covers everything that the code depends on, and its digest stands beside it. `Kept.read` ignores an
entry that is damaged, has another address, or belongs to another user. `Kept.write` does nothing where the folder is
read-only. Above a limit, it removes the entries that no run has used for longest.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import stat
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from streaming_core.machine_code import perf_map

LIMIT = 256 << 20  # bytes in one folder: the code of all applications under a dozen versions of the compiler
_EMISSION = Path(__file__).with_name("emission.py")  # an address covers how the code is emitted
EXPORT = "lockstep_entry"  # the one function of an object file
# All threads share LLVM's table of symbols: none may add its own between another's symbols and their use.
_SYMBOLS = threading.Lock()


class Loaded:
    """An object file in memory.

    Args:
        code: The object file.
        places: Addresses by symbol; the code holds them as constants from now on.
        name: The name of the code in profiles.

    Attributes:
        address: The address of its function, valid as long as this object lives.
    """

    def __init__(self, code: bytes, places: Mapping[str, int] | None = None, name: str = EXPORT):
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
        with _SYMBOLS:
            for symbol, address in (places or {}).items():
                llvm.add_symbol(symbol, address)
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()
        self.address: int = self._engine.get_function_address(EXPORT)
        if not self.address:
            raise ValueError(f"object file does not export {EXPORT}")
        perf_map.note(name, code, EXPORT, self.address)


def _target() -> llvm.TargetMachine:
    """Return a new target: each engine takes its own over."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine()


@cache
def fingerprint(*sources: Path) -> str:
    """Return 16 hex digits over what machine code depends on besides the program: compiler, processor, these sources.

    Args:
        sources: The Python files and packages that turn a program into code.
    """
    digest = hashlib.sha256(f"python {platform.python_version()}\n".encode())
    for package in ("numba", "llvmlite", "numpy"):
        digest.update(f"{package} {importlib.metadata.version(package)}\n".encode())
    digest.update(f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()}\n".encode())
    digest.update(llvm.get_host_cpu_features().flatten().encode())
    for source in (Path(__file__), _EMISSION, *sources):
        for path in [source] if source.is_file() else sorted(source.rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"\n{path.relative_to(source.parent).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


class Kept:
    """A folder of entries: named parts under an address.

    An entry is one file, which appears by renaming. It begins with the digest of the rest. A line of JSON follows
    (address; names and sizes of the parts), then the parts. All processes write the same under an address, so their
    order does not matter.
    """

    def __init__(self, folder: Path | None, limit: int = LIMIT):
        self.folder, self.limit = folder, limit

    def read(self, address: str) -> dict[str, bytes] | None:
        """Return the parts of an entry; None if there is no sound one."""
        if self.folder is None:
            return None
        path = self.folder / address
        try:
            if not _owned(os.stat(self.folder)):
                return None
            # Follow no link: the checks below must be about a file in this folder.
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                status = os.fstat(file.fileno())
                if not _owned(status) or not stat.S_ISREG(status.st_mode):
                    return None
                content = file.read()
        except OSError:
            return None
        digest, _, rest = content.partition(b"\n")
        if digest.decode(errors="replace") != hashlib.sha256(rest).hexdigest():
            return None
        head, _, body = rest.partition(b"\n")
        about = json.loads(head)
        if about["address"] != address:
            return None
        with suppress(OSError):  # another process may have removed it meanwhile; the content is complete
            os.utime(path)  # used now: the last to go
        parts, at = {}, 0
        for name, size in about["parts"]:
            parts[name] = body[at : at + size]
            at += size
        return parts

    def write(self, address: str, parts: Mapping[str, bytes]) -> None:
        """Store the parts of an entry, if the folder allows it."""
        if self.folder is None:
            return
        head = json.dumps({"address": address, "parts": [(name, len(part)) for name, part in parts.items()]})
        rest = b"".join([head.encode(), b"\n", *parts.values()])
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _owned(os.stat(self.folder)):
                return
            handle, temporary = tempfile.mkstemp(prefix=".", dir=self.folder)
            try:
                with open(handle, "wb") as file:
                    file.write(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
                os.replace(temporary, self.folder / address)
            except BaseException:
                os.unlink(temporary)
                raise
            self._sweep(address)
        except OSError:
            pass  # the next run compiles again

    def _sweep(self, newest: str) -> None:
        """Remove the entries unused for longest until the rest is within the limit; never the newest one."""
        assert self.folder is not None
        files = []
        for entry in os.scandir(self.folder):
            # Temporary files count, too: this removes, in its turn, one that a killed process left behind.
            try:
                about = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(about.st_mode):
                files.append((about.st_mtime_ns, entry.name, about.st_size))
        total = sum(size for _, _, size in files)
        for _, name, size in sorted(files):
            if total <= self.limit:
                return
            if name != newest:
                (self.folder / name).unlink(missing_ok=True)
                total -= size


def _owned(status: os.stat_result) -> bool:
    """Whether this user owns a file: Lockstep executes no code of others."""
    return status.st_uid == os.geteuid()


def kept() -> Kept:
    """Return the folder where this process stores machine code."""
    if home := os.environ.get("LOCKSTEP_HOME"):
        return Kept(Path(home).absolute() / "compiled")
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification says to ignore a relative path.
        return Kept((Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "lockstep")
    except RuntimeError:  # a user without a home
        return Kept(None)
