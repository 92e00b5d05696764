"""Backs up the history and the decisions of LOCKSTEP_HOME into one file, and restores them from it.

A backup holds the files of `FOLDERS`, which no command can make again. It leaves out everything else: workloads,
oracles, builds, compiled kernels, marts, pages and logs. Of a run it leaves out the outputs and final states, as
`lockstep prune` does.

The file is a gzipped tar archive. Its first member, `manifest.json`, lists the others with their SHA-256 digests. A
file of a backup appears whole or not at all, and so does a restored LOCKSTEP_HOME.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any

from infra.history.disk_space import OUTPUTS
from reports.history import History
from streaming_core.errors import BadInput, CommandFailed, refusal
from streaming_core.regression.decisions import entries
from streaming_core.regression.home import RUN_ID, Home
from streaming_core.regression.lock import hold, of_home
from streaming_core.regression.warehouse import SCHEMA_VERSION, check_versions
from streaming_core.storage import appearing, held, replacing

# What a backup must have to be read by this checkout: the version of its format, and that of the raw tables.
VERSIONS = {"format": 1, "raw_schema": SCHEMA_VERSION}
MANIFEST = "manifest.json"
# The folders of LOCKSTEP_HOME that hold history and decisions. Acknowledgements are rows of a raw table.
FOLDERS = ("expectations/results", "finds", "imported", "reports/bench", "runs", "warehouse/raw")
OF_RUN = re.compile(rf"lockstep-{RUN_ID.pattern}\.tar\.gz")  # the name of a run sorts by time
_DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, ArithmeticError, RecursionError)


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
        for parent, _, names in os.walk(home.root / folder, followlinks=True):
            below = Path(parent).relative_to(home.root).as_posix()
            paths += [path for name in names if is_history(path := f"{below}/{name}") and (home.root / path).is_file()]
    return sorted(paths)


def backup(home: Home, file: Path, say: Callable[[str], None]) -> str:
    """Write the history and the decisions of `home` to a new file; wait until no run is in progress.

    Args:
        home: LOCKSTEP_HOME.
        file: The file.
        say: Takes one line if another command uses LOCKSTEP_HOME.

    Returns:
        A line about the content.

    Raises:
        BadInput: The file exists or cannot be written, or `home` has no history, or a file of it cannot be read.
        CommandFailed: The disk is full, or a file of `home` changed meanwhile.
    """
    if file.exists() or file.is_symlink():
        raise BadInput(f"{file} already exists: choose another name, or remove it")
    if not history(home):
        raise BadInput(f"LOCKSTEP_HOME={home.root} has no history: there is nothing to back up")
    # A run in progress writes its folder and its raw results one after the other.
    with hold(of_home(home), "backup", say=say):
        check_versions(home)
        try:
            digests = {path: _digest(home.root / path) for path in history(home)}
            with replacing(file) as out:
                _write(home, digests, out)
        except OSError as error:
            raise refusal(error, f"cannot write {file}") from None
        return _content(home, file, list(digests))


def keep_newest(home: Home, run_id: str, folder: Path, count: int, say: Callable[[str], None]) -> str:
    """Write a backup named after a run, unless it exists, and keep the newest of that kind; returns a line about it."""
    file = folder / f"lockstep-{run_id}.tar.gz"
    if file.exists():
        return f"{file} exists"
    content = backup(home, file, say)
    oldest = sorted(path for path in folder.iterdir() if OF_RUN.fullmatch(path.name))[:-count]
    for path in oldest:
        path.unlink()
    return f"{content}; {len(oldest)} older ones were removed"


def restore(home: Home, file: Path) -> str:
    """Make `home`, which is missing or empty, from a backup. It appears after every file of it was checked.

    Returns:
        A line about the content.

    Raises:
        BadInput: `home` is not empty. Or the backup cannot be read, is damaged, or has another version.
        CommandFailed: The disk is full, or another command uses `home`.
    """
    root = home.root.resolve()
    with held(root):
        try:
            names = sorted(os.listdir(root)) if root.exists() else []
        except OSError as error:
            raise refusal(error, f"LOCKSTEP_HOME={home.root}") from None
        if names:
            raise BadInput(
                f"LOCKSTEP_HOME={home.root} is not empty: it holds {names[0]}; set LOCKSTEP_HOME to a new folder"
            )
        with appearing(root) as folder:
            paths = _read(file, folder)
            if root.is_dir():
                shutil.copymode(root, folder)
        # The folder replaces an empty one, and no other.
        if not all((root / path).is_file() for path in paths):
            raise CommandFailed(
                f"LOCKSTEP_HOME={home.root} cannot be replaced: another command writes to it, or it is a mount point; "
                "set LOCKSTEP_HOME to a new folder"
            )
    return _content(home, file, paths)


def _content(home: Home, file: Path, paths: list[str]) -> str:
    runs, acknowledgements = len(History(home).run_ids()), len(entries(home))
    counts = {"run": runs, "acknowledgement": acknowledgements, "file": len(paths)}
    texts = [f"{number:,} {what}{'s' * (number != 1)}" for what, number in counts.items()]
    size = sum((home.root / path).stat().st_size for path in paths)
    return f"{file} holds {', '.join(texts)} ({size / 1e6:.1f} MB)"


def _digest(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise refusal(error, f"cannot read {path}") from None


def _write(home: Home, digests: dict[str, str], out: IO[bytes]) -> None:
    files = [
        {"path": path, "size": (home.root / path).stat().st_size, "sha256": digest} for path, digest in digests.items()
    ]
    manifest = VERSIONS | {"created_at": datetime.now(UTC).isoformat(timespec="seconds"), "files": files}
    content = json.dumps(manifest, indent=1).encode() + b"\n"
    with (
        gzip.GzipFile("", "wb", 6, out) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        first = tarfile.TarInfo(MANIFEST)
        first.size = len(content)
        archive.addfile(first, io.BytesIO(content))
        for path, digest in digests.items():
            with open(home.root / path, "rb") as file:
                status = os.fstat(file.fileno())
                member = tarfile.TarInfo(path)
                # An estimate takes the newest attempt at a cell, by the time of its file.
                member.size, member.mtime = status.st_size, int(status.st_mtime)
                archive.addfile(member, file)
            if _digest(home.root / path) != digest:
                raise CommandFailed(f"{home.root / path} changed during the backup: start the backup again")


def _read(file: Path, folder: Path) -> list[str]:
    """Write the files of a backup below a folder, and check each of them; returns their paths.

    Raises:
        BadInput: The file cannot be read, is no backup, is damaged, or has another version.
    """
    try:
        # In a stream, tarfile never goes back, wherever a damaged head leads it.
        with gzip.open(file) as compressed, tarfile.open(fileobj=compressed, mode="r|") as archive:
            first = archive.next()
            content = archive.extractfile(first) if first is not None and first.name == MANIFEST else None
            if content is None:
                raise BadInput(f"{file} is not a backup: its first member is not {MANIFEST}")
            digests = _digests(file, json.loads(content.read()))
            for member in archive:
                if member.name == MANIFEST:
                    continue
                if member.name not in digests or not member.isreg() or member.issparse():
                    raise ValueError(f"{member.name!r} is not a regular file that {MANIFEST} lists")
                write_member(archive, member, folder)
            while compressed.read(1 << 20):  # up to the checksum at its end
                pass
        for path, digest in digests.items():
            if not (folder / path).is_file():
                raise ValueError(f"{path} is missing")
            if _digest(folder / path) != digest:
                raise ValueError(f"{path} has another digest than {MANIFEST} says")
    except BadInput:
        raise
    except _DAMAGED as error:
        raise BadInput(f"{file} is damaged: {error}; use another backup") from None
    except OSError as error:
        raise refusal(error, error.filename or f"cannot restore {file}") from None
    return list(digests)


def write_member(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a regular file of an archive, with its time, below a folder. Its name must be a path of the history.

    Debian 12 has Python 3.11.2, whose `extractall` takes no filter, and so trusts every name and every mode.
    """
    path = folder / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.extractfile(member) as content, open(path, "wb") as file:  # type: ignore[union-attr]
        shutil.copyfileobj(content, file)
    os.utime(path, (member.mtime, member.mtime))


def _digests(file: Path, manifest: Any) -> dict[str, str]:
    """The digests in the manifest of a backup, by path."""
    for name, version in VERSIONS.items():
        if (other := manifest.get(name) if isinstance(manifest, dict) else None) != version:
            raise BadInput(
                f"{file} has {name} {other}, but this checkout reads only {version}; use the version of Lockstep that "
                "made it"
            )
    try:
        digests = {str(file["path"]): file["sha256"] for file in manifest["files"]}
    except (LookupError, TypeError) as error:
        raise ValueError(f"{MANIFEST}: {error!r}") from None
    if foreign := [path for path in digests if not is_history(path)]:
        raise ValueError(f"{foreign[0]!r} is not a path of the history in LOCKSTEP_HOME")
    return digests
