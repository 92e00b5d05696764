"""Machine code: kept on disk between runs, loaded without the compiler that emitted it (emission.py).

A compiled function is one object file that exports one C function; everything else in it is internal and pruned.
Blocks of memory that it works on are symbols, which get their addresses when it is loaded. Compiling takes seconds and
importing numba most of another; loading takes milliseconds.

Kept code saves time and nothing else. It lies in `compiled` of LOCKSTEP_HOME, else in the user's cache folder, under an
address that covers everything it was made from, beside its digest. What is damaged, of another address or another
user's is not there; a folder that cannot be written keeps nothing. Above a limit, what was used longest ago goes.
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

LIMIT = 256 << 20  # bytes kept in one folder: the code of all applications under a dozen versions of the compiler
_EMISSION = Path(__file__).with_name("emission.py")  # how code is made is part of its address
EXPORT = "lockstep_entry"  # the one function of an object file
# LLVM's table of symbols is the process's: no other thread's places may come between some and their use.
_SYMBOLS = threading.Lock()


class Loaded:
    """An object file in memory; `address`, that of its function, lives as long as this object.

    Args:
        places: addresses by symbol; the code holds them as constants from now on.
    """

    def __init__(self, code: bytes, places: Mapping[str, int] | None = None):
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
        with _SYMBOLS:
            for name, address in (places or {}).items():
                llvm.add_symbol(name, address)
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()
        self.address: int = self._engine.get_function_address(EXPORT)
        if not self.address:
            raise ValueError(f"object file does not export {EXPORT}")


def _target() -> llvm.TargetMachine:
    """A target of its own for each engine, which takes it over."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine()


@cache
def fingerprint(*sources: Path) -> str:
    """16 hex digits over what machine code depends on besides the program: compiler, processor, and these sources.

    Args:
        sources: Python files, and packages with all that is in them, which say how a program becomes code.
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

    An entry is one file, which appears by renaming: the digest of everything behind it, a line of JSON (address; names
    and sizes of the parts), the parts. Whoever writes an address writes the same, so it does not matter who comes last.
    """

    def __init__(self, folder: Path | None, limit: int = LIMIT):
        self.folder, self.limit = folder, limit

    def read(self, address: str) -> dict[str, bytes] | None:
        """The parts of an entry; None if there is no sound one."""
        if self.folder is None:
            return None
        path = self.folder / address
        try:
            if not _owned(os.stat(self.folder)):
                return None
            # No link is followed: the file looked at is the file in this folder.
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                found = os.fstat(file.fileno())
                if not _owned(found) or not stat.S_ISREG(found.st_mode):
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
        with suppress(OSError):  # another process may have swept it away meanwhile; what was read is whole
            os.utime(path)  # used now: the last to go
        parts, at = {}, 0
        for name, size in about["parts"]:
            parts[name] = body[at : at + size]
            at += size
        return parts

    def write(self, address: str, parts: Mapping[str, bytes]) -> None:
        """Keeps the parts of an entry, if that is possible."""
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
        """Removes what was used longest ago until the rest is within the limit; never the entry just written."""
        assert self.folder is not None
        found = []
        for entry in os.scandir(self.folder):
            # Files that someone is writing count, too: one left behind by a process that was killed goes in its turn.
            try:
                about = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(about.st_mode):
                found.append((about.st_mtime_ns, entry.name, about.st_size))
        total = sum(size for _, _, size in found)
        for _, name, size in sorted(found):
            if total <= self.limit:
                return
            if name != newest:
                (self.folder / name).unlink(missing_ok=True)
                total -= size


def _owned(found: os.stat_result) -> bool:
    """Whether it is this user's own: what others can put there is not executed."""
    return found.st_uid == os.geteuid()


def kept() -> Kept:
    """Where this process keeps machine code."""
    if home := os.environ.get("LOCKSTEP_HOME"):
        return Kept(Path(home).absolute() / "compiled")
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # A relative one is invalid and to be ignored, says the XDG specification.
        return Kept((Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "lockstep")
    except RuntimeError:  # a user without a home
        return Kept(None)
