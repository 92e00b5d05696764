"""Backs up the history and the decisions of LOCKSTEP_HOME into one file, and restores them from it.

A backup holds the files of `FOLDERS`, which no command can make again. It leaves out everything else: workloads,
oracles, builds, compiled kernels, marts, pages and logs. Of a run it leaves out the outputs and final states, as
`lockstep prune` does.

The file is a gzipped tar archive. Its first member, `manifest.json`, lists the others in their order, with sizes and
SHA-256 digests. A file of a backup appears whole or not at all, and so does a restored LOCKSTEP_HOME.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO

from pydantic import BaseModel, ConfigDict, ValidationError

from infra.services.lock import hold, of_home, signature
from infra.services.prune import OUTPUTS
from streaming_core.errors import BadInput, CommandFailed, one_line, refusal
from streaming_core.regression.home import RUN_ID, Home
from streaming_core.regression.warehouse import SCHEMA_VERSION, check_versions
from streaming_core.storage import appearing, held, replacing

# Raise it whenever this checkout could no longer read its older backups: restore refuses any other version.
FORMAT = 1
MANIFEST = "manifest.json"
LARGEST_MANIFEST = 256 << 20
CHUNK = 1 << 20
# A backup that the DAG writes is named after its run. The name of a run sorts by time.
NAME, SUFFIX = "lockstep-", ".tar.gz"

# The folders of LOCKSTEP_HOME that hold history and decisions. Acknowledgements are rows of a raw table.
FOLDERS = ("expectations/results", "imported", "reports/bench", "runs", "warehouse/raw")
_DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, OverflowError, RecursionError)


class File(BaseModel):
    """A file of a backup: its path below LOCKSTEP_HOME, its size in bytes, and its digest."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: str
    size: int
    sha256: str


class Manifest(BaseModel):
    """The contents of a backup: the version of its format, the version of the raw tables, its time, its files."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: int
    raw_schema: int
    created_at: str
    files: list[File]


def is_history(path: str) -> bool:
    """Whether a path below LOCKSTEP_HOME is one of a backup. A path that leads elsewhere is not."""
    parts = PurePosixPath(path).parts
    if "/".join(parts) != path or not path.startswith(tuple(f"{folder}/" for folder in FOLDERS)):
        return False
    # Hidden files are locks, or temporary files of a process that is still writing.
    if any(part.startswith(".") for part in parts):
        return False
    return not (parts[0] == "runs" and len(parts) > 5 and parts[4] in OUTPUTS and parts[3].startswith("attempt-"))


def history(home: Home) -> list[str]:
    """The paths of all files that a backup of `home` holds, in their order."""
    paths = []
    for folder in FOLDERS:
        for parent, folders, names in os.walk(home.root / folder, followlinks=True):
            below = Path(parent).relative_to(home.root).as_posix()
            folders[:] = [name for name in folders if is_history(f"{below}/{name}/file")]
            paths += [path for name in names if is_history(path := f"{below}/{name}") and (home.root / path).is_file()]
    return sorted(paths)


def backup(home: Home, file: Path, say: Callable[[str], None]) -> Manifest:
    """Write the history and the decisions of `home` to a new file; wait until no run is in progress.

    Args:
        home: LOCKSTEP_HOME.
        file: The file.
        say: Takes one line if another command uses LOCKSTEP_HOME.

    Raises:
        BadInput: The file exists or cannot be written, or `home` has no history, or a file of it cannot be read.
        CommandFailed: The disk is full, or a file of `home` changed meanwhile.
    """
    if file.exists() or file.is_symlink():
        raise BadInput(f"{file} already exists: choose another name, or remove it")
    if not home.root.is_dir():
        raise BadInput(f"LOCKSTEP_HOME={home.root} does not exist: there is nothing to back up")
    # A run in progress writes its folder and its raw results one after the other.
    with hold(home, "backup", say):
        paths = history(home)
        if not paths:
            raise BadInput(f"LOCKSTEP_HOME={home.root} has no history: there is nothing to back up")
        check_versions(home)
        manifest = Manifest(
            format=FORMAT,
            raw_schema=SCHEMA_VERSION,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            files=[_measure(home, path) for path in paths],
        )
        try:
            with replacing(file) as out:
                _write(home, manifest, out)
        except OSError as error:
            raise refusal(error, f"cannot write {file}") from None
    return manifest


def remove_oldest(folder: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep` backups that are named after a run; returns the removed files."""
    files = (file for file in folder.glob(f"{NAME}*{SUFFIX}") if RUN_ID.fullmatch(file.name[len(NAME) : -len(SUFFIX)]))
    oldest = sorted(files)[:-keep]
    for file in oldest:
        file.unlink()
    return oldest


def restore(home: Home, file: Path) -> Manifest:
    """Make `home`, which is missing or empty, from a backup. The whole backup is checked before anything changes.

    Args:
        home: LOCKSTEP_HOME.
        file: The backup.

    Raises:
        BadInput: `home` is not empty. Or the backup cannot be read, is damaged, or has another version.
        CommandFailed: The disk is full, or another command uses `home`.
    """
    _check_empty(home)
    manifest = _read(file)
    root = home.root.resolve()
    with held(root), appearing(root) as folder:
        _read(file, folder)
        _check_empty(home)
        if root.is_dir():
            shutil.copymode(root, folder)
            _remove_lock(home)
    # The folder replaces an empty one, and no other.
    if not all((root / one.path).is_file() for one in manifest.files):
        raise CommandFailed(
            f"LOCKSTEP_HOME={home.root} cannot be replaced: another command writes to it, or it is a mount point; "
            "set LOCKSTEP_HOME to a new folder"
        )
    return manifest


def _check_empty(home: Home) -> None:
    lock = of_home(home).path.name
    try:
        names = sorted(path.name for path in home.root.iterdir() if path.name != lock)
    except FileNotFoundError:
        return
    except OSError as error:
        raise refusal(error, f"LOCKSTEP_HOME={home.root}") from None
    if paths := history(home):
        raise BadInput(
            f"LOCKSTEP_HOME={home.root} already holds history, such as {paths[0]}; set LOCKSTEP_HOME to a new folder"
        )
    if names:
        raise BadInput(
            f"LOCKSTEP_HOME={home.root} is not empty: it holds {names[0]}; set LOCKSTEP_HOME to a new folder"
        )


def _remove_lock(home: Home) -> None:
    """Remove the file of the lock, which other commands leave. A process that has it open locks the next one."""
    lock = of_home(home)
    if not lock.take(signature("restore")):
        raise CommandFailed(f"LOCKSTEP_HOME={home.root} is in use by another command: wait until it ends")
    lock.leave(remove=True)


# --- writing ---------------------------------------------------------------------------------------------------------


class _Hashed:
    """A file that is read once, and the digest of what was read."""

    def __init__(self, file: IO[bytes]):
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


def _measure(home: Home, path: str) -> File:
    try:
        with open(home.root / path, "rb") as file:
            hashed, size = _Hashed(file), 0
            while data := hashed.read(CHUNK):
                size += len(data)
    except OSError as error:
        raise refusal(error, f"cannot read {home.root / path}") from None
    return File(path=path, size=size, sha256=hashed.digest.hexdigest())


def _write(home: Home, manifest: Manifest, out: IO[bytes]) -> None:
    # The name and the time in the head of a gzip file would make two backups of the same files differ.
    with (
        gzip.GzipFile("", "wb", 6, out, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        content = json.dumps(manifest.model_dump(), indent=1).encode() + b"\n"
        archive.addfile(_member(MANIFEST, len(content)), io.BytesIO(content))
        for one in manifest.files:
            with open(home.root / one.path, "rb") as file:
                hashed = _Hashed(file)
                member = _member(one.path, one.size)
                # An estimate takes the newest attempt at a cell, by the time of its file.
                member.mtime = int(os.fstat(file.fileno()).st_mtime)
                archive.addfile(member, hashed)
            if hashed.digest.hexdigest() != one.sha256:
                raise CommandFailed(f"{home.root / one.path} changed during the backup: start the backup again")


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    return member


# --- reading ---------------------------------------------------------------------------------------------------------


def _read(file: Path, into: Path | None = None) -> Manifest:
    """Read a backup and check all of it. With `into`, also write its files below that folder.

    Raises:
        BadInput: The file cannot be read, is no backup, is damaged, or has another version.
    """
    try:
        # In a stream, tarfile never goes back, wherever a damaged head leads it.
        with gzip.open(file) as compressed, tarfile.open(fileobj=compressed, mode="r|") as archive:
            manifest = _manifest(file, archive)
            for one in manifest.files:
                _check_member(file, archive, one, into)
            if (extra := archive.next()) is not None:
                raise ValueError(f"{MANIFEST} does not list {extra.name}")
            while compressed.read(CHUNK):  # up to the checksum at its end
                pass
    except BadInput:
        raise
    except _DAMAGED as error:
        raise BadInput(f"{file} is damaged: {error}; use another backup") from None
    except OSError as error:
        raise refusal(error, error.filename or f"cannot restore {file}") from None
    return manifest


def _manifest(file: Path, archive: tarfile.TarFile) -> Manifest:
    first = archive.next()
    if first is None or first.name != MANIFEST or not first.isreg() or first.size > LARGEST_MANIFEST:
        raise BadInput(f"{file} is not a backup: its first member is not {MANIFEST}")
    content = json.loads(_content(archive, first).read())
    version = content.get("format") if isinstance(content, dict) else None
    if version != FORMAT:
        raise BadInput(
            f"{file} has backup format {version}, but this checkout reads only {FORMAT}; use the version of Lockstep "
            "that made it"
        )
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{MANIFEST}: {one_line(error)}") from None
    if manifest.raw_schema != SCHEMA_VERSION:
        raise BadInput(
            f"{file} has raw schema version {manifest.raw_schema}, but this checkout reads only {SCHEMA_VERSION}; use "
            "the version of Lockstep that made it"
        )
    paths = [one.path for one in manifest.files]
    if paths != sorted(set(paths)):
        raise ValueError(f"the paths in {MANIFEST} are not in order")
    for path in paths:
        _check_path(file, path)
    return manifest


def _check_path(file: Path, path: str) -> None:
    if not is_history(path):
        raise BadInput(f"{file}: {path!r} is not a path of the history in LOCKSTEP_HOME; use another backup")


def _check_member(file: Path, archive: tarfile.TarFile, expected: File, into: Path | None) -> None:
    """Check the next member, and write it below a folder if there is one."""
    member = archive.next()
    if member is None:
        raise ValueError(f"{expected.path} is missing")
    _check_path(file, member.name)
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
        raise BadInput(f"{file}: {member.name!r} is not a regular file; use another backup")
    tarfile.data_filter(member, str(into or file.parent))
    if (member.name, member.size) != (expected.path, expected.size):
        raise ValueError(f"{member.name} has another place or size than {MANIFEST} says")
    target = Path(os.devnull) if into is None else into / member.name
    target.parent.mkdir(parents=True, exist_ok=True)
    source = _Hashed(_content(archive, member))
    with open(target, "wb") as out:
        shutil.copyfileobj(source, out, CHUNK)
    if into is not None:
        os.utime(target, (member.mtime, member.mtime))
    if source.digest.hexdigest() != expected.sha256:
        raise ValueError(f"{member.name} has another digest than {MANIFEST} says")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(member)
    assert content is not None, "a regular file has content"
    return content
