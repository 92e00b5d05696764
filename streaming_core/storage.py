"""Atomic files and folders, and locks: readers see a file or folder whole or not at all, and it has one writer.

A `Lock` is a lock on a file. It belongs to a process and ends with it. A `held` folder has one writing process, which
removes the temporary files of a killed predecessor. An `atomic_directory` is held, filled under a temporary name,
synchronised to the disk and renamed.

This module imports only the standard library, `errors` and `interruption`, because the driver on a host uses it too.
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
    """The lock on a file, which holds a text about the process that has the lock. Creates the file if necessary.

    Attributes:
        path: The file.
        remains: The text of a holder that was killed, after `take`; empty if the last holder left the lock.
    """

    def __init__(self, path: str | os.PathLike, of_all_users: bool = False):
        """Prepare the lock. With `of_all_users`, every user of this machine may take it."""
        self.path = Path(path)
        self.remains = ""
        self._of_all_users = of_all_users
        self._file: IO[str] | None = None

    @property
    def is_taken(self) -> bool:
        """Whether this object has the lock."""
        return self._file is not None

    def take(self, holder: str = "", shared: bool = False) -> bool:
        """Take the lock and write the holder into its file; False if another process has it.

        Args:
            holder: The text about this process.
            shared: Take it together with others that share it. Such holders leave the text as it is.
        """
        while True:
            file = self._open()
            try:
                fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                return False
            except BaseException:
                file.close()
                raise
            # The previous holder may have removed the file between our open and our lock. Then the lock is void.
            if _is(file, self.path):
                break
            file.close()
        self._file = file
        if not shared:
            file.seek(0)
            self.remains = file.read()
            self.tell(holder)
        return True

    def _open(self) -> IO[str]:
        # Append mode: a process that does not get the lock must not erase the holder's text. No links: in a folder of
        # all users, the lock would overwrite the target of a link and open it to everyone.
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags)
        except FileNotFoundError:
            descriptor = os.open(self.path, flags | os.O_CREAT, 0o666)
            if self._of_all_users:
                with contextlib.suppress(PermissionError):
                    os.fchmod(descriptor, 0o666)
        return os.fdopen(descriptor, "a+")

    def wait(self, holder: str = "") -> None:
        """Take the lock as soon as it is free, unless a signal ends the wait."""
        while not self.take(holder):
            interruption.check()
            time.sleep(POLL_SECONDS)

    def tell(self, holder: str) -> None:
        """Replace the text about the holder."""
        assert self._file is not None
        self._file.seek(0)
        self._file.truncate()
        self._file.write(holder)
        self._file.flush()

    def holder(self) -> str | None:
        """The text about the holder; None if the lock is free, or several processes share it."""
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
        """Release the lock. With `remove`, remove its file too."""
        if self._file is not None:
            if remove:
                self.path.unlink(missing_ok=True)
            self._file.close()
            self._file = None


def _is(file: IO[str], path: Path) -> bool:
    here = os.fstat(file.fileno())
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _beside(target: Path, suffix: str) -> Path:
    return target.with_name(f".{target.name}.{suffix}")


def check_place(target: Path) -> None:
    """Raise BadInput if a path cannot be written, or lies inside a workload, a run or another result."""
    try:
        target.stat()
    except FileNotFoundError:
        pass
    except OSError as error:  # such as a link to itself
        raise refusal(error, f"cannot write {target}") from None
    for parent in target.resolve().parents:
        is_result = any("app" in left_json(parent / name) for name in ("manifest.json", "report.json"))
        if is_result and not (parent / "workload").exists():  # a live run has its workload and its oracle inside
            raise BadInput(f"{target} lies inside {parent}, which holds another result; choose a path outside")


@contextmanager
def held(target: Path) -> Iterator[None]:
    """Make this process the only writer of a folder during the block; wait for another writer to finish.

    Raises:
        BadInput: As `check_place`.
    """
    check_place(target)
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
    """Yield a temporary folder beside `target`, and rename it to `target` if the block succeeds; else remove it.

    The caller holds `target`. The rename does not replace a folder that is not empty, and does not happen after a
    signal.
    """
    target = absolute(target)
    name = re.compile(rf"\.{re.escape(target.name)}(\.\d+)?\.new")
    for entry in target.parent.iterdir():
        if name.fullmatch(entry.name):
            shutil.rmtree(entry, ignore_errors=True)  # of a predecessor that was killed
    # A task on a Spark server may outlive that predecessor for a moment, and write into its folder.
    temporary = _beside(target, f"{os.getpid()}.new")
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
    """Hold `target` and fill it as `appearing` does. If two processes write it, the first result stays."""
    with held(target), appearing(target) as temporary:
        yield temporary


# A part of a path: it cannot lead out of its folder, look like an option, or need quotes in a shell.
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def below(root: Path, *parts: str) -> Path:
    """The path below `root` that these names, which may come from anyone, lead to.

    Raises:
        BadInput: A name is not a plain name.
    """
    for part in parts:
        if not isinstance(part, str) or not _PART.fullmatch(part):
            raise BadInput(f"invalid name {part!r}; use letters, digits, '.', '_' and '-', without '.' or '-' first")
    return root.joinpath(*parts)


def absolute(path: Path) -> Path:
    """The absolute path, so that `.` and `..` have a name too."""
    return Path(os.path.abspath(path))


# --- files -----------------------------------------------------------------------------------------------------------


def write_json(path: Path, value: object) -> None:
    """Write JSON, so that `path` is either absent or whole."""
    write_text(path, json_text(value))


def json_text(value: object) -> str:
    """JSON as it stands in files."""
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def save_json(path: Path, value: object) -> None:
    """As `write_json`, to a file that the user chose. Raises the errors of `save_text`."""
    save_text(path, json_text(value))


def save_text(path: Path, text: str) -> None:
    """As `write_text`, to a file that the user chose.

    Raises:
        BadInput: The path is not writable.
        CommandFailed: The disk is full, or fails.
    """
    check_place(path)
    try:
        write_text(path, text)
    except OSError as error:
        raise refusal(error, f"cannot write {path}") from None


def write_text(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a file, so that `path` is either absent, unchanged or whole.

    Half a surrogate pair, which is valid in JSON and invalid in UTF-8, becomes an escape.

    Args:
        path: The file.
        text: Its content.
        mode: As for `os.open`.
    """
    with replacing(path, mode) as file:
        file.write(text.encode(errors="backslashreplace"))


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator:
    """Yield a binary file that replaces `path` if the block succeeds, and disappears if it fails."""
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
    """The content of a JSON file; {} if the file is missing or not whole."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_manifest(directory: Path, kind: str, keys: set[str], command: str) -> dict[str, Any]:
    """Read the manifest of a folder.

    Args:
        directory: The folder.
        kind: The kind of folder, such as workload.
        keys: The keys of every manifest of this kind.
        command: The `streaming-core` command that makes such a folder.

    Raises:
        BadInput: The manifest is missing or unreadable, belongs to another kind of folder, or was changed.
    """
    path = Path(directory) / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(
            f"no {kind} at {directory}: {path.name} is missing; create it with `streaming-core {command}`"
        ) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{kind} {directory}: cannot read {path.name}: {error}") from None
    if missing := sorted(keys - manifest.keys() if isinstance(manifest, dict) else keys):
        names = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing in {path.name}"
        raise BadInput(f"{directory} is not {_article(kind)} {kind}: {names}")
    if fault := change(manifest):
        raise BadInput(f"{kind} {directory}: {path.name} {fault}; create it again with `streaming-core {command}`")
    return manifest


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def sweep_files(folder: Path) -> None:
    """Remove the temporary files of killed writers in a held folder (`replacing`)."""
    for path in folder.glob(".*.*"):
        if path.suffix[1:].isdigit() and path.is_file():
            path.unlink()


def sync(path: Path) -> None:
    """Synchronise a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Synchronise a folder and everything in it to the disk."""
    for at, _, names in os.walk(folder):
        for name in names:
            sync(Path(at) / name)
        sync(Path(at))


# --- digests ---------------------------------------------------------------------------------------------------------


def canonical_json(value: object) -> str:
    """One spelling per value: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def sha256_of(value: object) -> str:
    """SHA-256 over the canonical JSON of `value`, as 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def digest_of(value: object) -> str:
    """First 16 hex digits of SHA-256 over the canonical JSON of `value`."""
    return sha256_of(value)[:16]


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """A document with the digest of its other fields."""
    fields = {name: value for name, value in document.items() if name != "digest"}
    return fields | {"digest": digest_of(fields)}


def change(document: dict[str, Any]) -> str | None:
    """How a sealed document shows that it was edited; None if it was not."""
    digest, expected = sealed(document)["digest"], document.get("digest")
    return None if digest == expected else f"was changed (digest {digest}, expected {expected})"
