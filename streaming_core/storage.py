"""Files and folders as others may see them: whole or not at all, and one writer at a time.

A `Lock` is a lock on a file. It is the process's and ends with it, however that ends. A `held` folder is one process's
to write: what a killed predecessor left beside it under a temporary name is nobody's, and goes. An `atomic_directory`
is held, filled under a temporary name, brought to the disk and renamed.

Standard library only, and of this package `errors` and `interruption`: the driver on a host uses it, too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from streaming_core import interruption
from streaming_core.errors import BadInput, refusal

POLL_SECONDS = 0.05


# --- locks -----------------------------------------------------------------------------------------------------------


class Lock:
    """The lock on a file, which is made if it is not there and tells who has it."""

    def __init__(self, path: str | os.PathLike, shared: bool = False):
        """`shared`: every user of this machine takes it."""
        self.path = Path(path)
        self._shared = shared
        self._file: IO[str] | None = None

    def take(self, holder: str = "") -> bool:
        """Takes it and notes the holder; False when somebody else has it."""
        while True:
            file = self._open()
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                return False
            except BaseException:
                file.close()
                raise
            # Who had it before may have removed the file between our opening and locking: then it is no lock any more.
            if _is(file, self.path):
                break
            file.close()
        self._file = file
        self.tell(holder)
        return True

    def _open(self) -> IO[str]:
        # Opened for appending: who does not get it must not wipe out the holder's name. In a folder that is everybody's
        # no link is followed: what it leads to would be written over, and made everybody's.
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags)
        except FileNotFoundError:
            descriptor = os.open(self.path, flags | os.O_CREAT, 0o666)
            if self._shared:
                with contextlib.suppress(PermissionError):
                    os.fchmod(descriptor, 0o666)
        return os.fdopen(descriptor, "a+")

    def wait(self, holder: str = "") -> None:
        """Takes it as soon as it is free, unless a signal ends the wait."""
        while not self.take(holder):
            interruption.check()
            time.sleep(POLL_SECONDS)

    def tell(self, holder: str) -> None:
        """Replaces what others read about the holder."""
        assert self._file is not None
        self._file.seek(0)
        self._file.truncate()
        self._file.write(holder)
        self._file.flush()

    def holder(self) -> str | None:
        """What the holder told; None when nobody has the lock."""
        try:
            with open(self.path) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return file.read()
        except OSError:
            pass
        return None

    def leave(self, remove: bool = False) -> None:
        """Gives it back; `remove`: and leaves no file."""
        if self._file is not None:
            if remove:
                self.path.unlink(missing_ok=True)
            self._file.close()
            self._file = None


def _is(file, path: Path) -> bool:
    here = os.fstat(file.fileno())
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _beside(target: Path, suffix: str) -> Path:
    return target.with_name(f".{target.name}.{suffix}")


@contextmanager
def held(target: Path) -> Iterator[None]:
    """The folder is this process's to write for the length of the block; waits for another one that is at it."""
    target = absolute(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = Lock(_beside(target, "lock"))
    lock.wait()
    try:
        yield
    finally:
        lock.leave(remove=True)


# --- folders ---------------------------------------------------------------------------------------------------------


@contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `target`, which the caller holds; renames it to `target` when the block
    succeeds, else removes it. It is not renamed over a folder that is not empty, nor once a signal has come."""
    target = absolute(target)
    temporary = _beside(target, "new")
    shutil.rmtree(temporary, ignore_errors=True)  # of a predecessor that was killed
    temporary.mkdir()
    try:
        yield temporary
        sync_tree(temporary)
        interruption.check()
        try:
            os.rename(temporary, target)
        except OSError:
            if not target.exists():
                raise
        sync(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def atomic_directory(target: Path) -> Iterator[Path]:
    """`appearing`, and held meanwhile. Of two writers of one address the first wins, the second's work is dropped."""
    with held(target), appearing(target) as temporary:
        yield temporary


# What may lead nowhere else, is no option and needs no quotes: each part of a name that files are found by.
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def below(root: Path, *parts: str) -> Path:
    """The place below `root` that these names lead to, whoever gave them.

    Raises:
        BadInput: one of them is no plain name.
    """
    for part in parts:
        if not isinstance(part, str) or not _PART.fullmatch(part):
            raise BadInput(f"{part!r} is no name of a file here: letters, digits and . _ - only, no . or - first")
    return root.joinpath(*parts)


def absolute(path: Path) -> Path:
    """The path, with a name also where it was `.` or ended in `..`."""
    return Path(os.path.abspath(path))


# --- files -----------------------------------------------------------------------------------------------------------


def write_json(path: Path, value: object) -> None:
    """Writes JSON so that `path` is either absent or whole."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def save_json(path: Path, value: object) -> None:
    """As `write_json`, to a file that somebody has named.

    Raises:
        BadInput, CommandFailed: it cannot be written.
    """
    try:
        write_json(path, value)
    except OSError as error:
        raise refusal(error, f"{path} cannot be written") from None


def write_text(path: Path, text: str, mode: int = 0o666) -> None:
    """Writes a file so that `path` is either absent, what it was, or whole; `mode` as for open. Half a surrogate pair,
    which JSON may hold and UTF-8 may not, is written as an escape."""
    with replacing(path, mode) as file:
        file.write(text.encode(errors="backslashreplace"))


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator:
    """Yields a binary file that replaces `path` when the block succeeds, and goes when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = _beside(path, str(os.getpid()))
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def left_json(path: Path) -> dict[str, Any]:
    """What somebody has left in a JSON file; nothing where it is not there, or was not written whole."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_manifest(directory: Path, what: str, keys: set[str], command: str) -> dict[str, Any]:
    """The manifest of a folder that is whole.

    Args:
        what: kind of folder, such as workload.
        keys: those that every manifest of this kind has.
        command: the `streaming-core` command that makes such a folder.

    Raises:
        BadInput: there is none, it cannot be read, or it is of a folder of another kind.
    """
    path = Path(directory) / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(
            f"no {what} at {directory}: {path.name} is missing; make it with `streaming-core {command}`"
        ) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{what} {directory}: {path.name} cannot be read: {error}") from None
    if lacking := sorted(keys - manifest.keys() if isinstance(manifest, dict) else keys):
        raise BadInput(f"{directory} is no {what}: {path.name} lacks {', '.join(lacking)}")
    return manifest


def sweep_files(folder: Path) -> None:
    """Removes what killed writers of a held folder's files left there (`replacing`)."""
    for path in folder.glob(".*.*"):
        if path.suffix[1:].isdigit() and path.is_file():
            path.unlink()


def sync(path: Path) -> None:
    """Sees to it that a file, or a folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """`sync` of a folder and all that is in it."""
    for at, _, names in os.walk(folder):
        for name in names:
            sync(Path(at) / name)
        sync(Path(at))


# --- digests ---------------------------------------------------------------------------------------------------------


def canonical_json(value: object) -> str:
    """One spelling per value: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest_of(value: object) -> str:
    """First 16 hex digits of SHA-256 over the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]
