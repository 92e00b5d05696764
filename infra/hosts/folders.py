"""Receives and sends folders on a host that does not share LOCKSTEP_HOME. The program is part of the build there.

    folders.py want FOLDER < FILES     which bytes of the files of a folder are missing here
    folders.py take FOLDER < FILES     check the files, and let the folder appear
    folders.py list FOLDER             the files of a folder, and of its logs beside it
    folders.py drop FOLDER             remove them

FILES and the answers are one line of JSON. FILES maps the path of each file to its size and its SHA-256.

A folder arrives in `.NAME.incoming` beside it, file by file. The caller appends to these files over SFTP, so that it
goes on where a lost connection left it. The folder appears by a rename, whole and checked. Folders that no run has used
for two days go.

The program uses the standard library.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

Files = dict[str, tuple[int, str]]  # relative path -> size in bytes, SHA-256 in hexadecimal

KEPT_SECONDS = 2 * 86400
SPARE_BYTES = 256 << 20  # of the disk that a transfer leaves free


def files_of(folder: Path, *, hidden: bool = False) -> Files:
    """The files below a folder; those in hidden folders, or with hidden names, only if `hidden`."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    relative = ((path, path.relative_to(folder)) for path in paths)
    return {
        name.as_posix(): (path.stat().st_size, digest_of(path))
        for path, name in relative
        if hidden or not any(part.startswith(".") for part in name.parts)
    }


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def incoming(folder: Path) -> Path:
    """Where the files of a folder arrive."""
    return folder.with_name(f".{folder.name}.incoming")


def want(folder: Path, files: Files) -> dict[str, Any]:
    """Prepare to receive a folder: the bytes of each file that are here; None if the whole folder is.

    Without files, it only answers whether the folder is here.
    """
    if folder.is_dir():
        os.utime(folder)
        return {"here": None}
    if not files:
        return {"here": {}}
    arriving = incoming(folder)
    for name in files:
        (arriving / name).parent.mkdir(parents=True, exist_ok=True)
    for path in [path for path in arriving.rglob("*") if path.is_file()]:
        size = files.get(path.relative_to(arriving).as_posix(), (-1, ""))[0]
        if path.stat().st_size > size:  # of another folder of this name
            path.unlink()
    here = {name: path.stat().st_size if (path := arriving / name).exists() else 0 for name in files}
    missing = sum(size - here[name] for name, (size, _) in files.items())
    free = shutil.disk_usage(arriving).free
    if missing + SPARE_BYTES > free:
        return {"error": f"the disk there has {free / 1e6:.0f} MB free, and {folder.name} needs {missing / 1e6:.0f} MB"}
    return {"here": here}


def take(folder: Path, files: Files) -> dict[str, Any]:
    """Let a folder appear whose files have arrived; names those that have not, or are damaged, and removes these."""
    if folder.is_dir():
        return {"missing": []}
    arriving = incoming(folder)
    here = files_of(arriving, hidden=True)
    missing = [name for name, expected in files.items() if here.get(name) != tuple(expected)]
    for name in missing:
        if name in here and here[name][0] >= files[name][0]:
            (arriving / name).unlink()
    if not missing:
        os.rename(arriving, folder)
        remove_unused(folder.parent)
    return {"missing": missing}


def list_(folder: Path) -> dict[str, Any]:
    """The files of a folder and of its logs, by path from the parent."""
    files = {f"{folder.name}/{name}": about for name, about in files_of(folder).items()} if folder.is_dir() else {}
    logs = folder.parent.glob(f"{folder.name}.*.log")
    return {"files": files | {path.name: (path.stat().st_size, digest_of(path)) for path in logs}}


def drop(folder: Path) -> dict[str, Any]:
    """Remove a folder, and the files beside it that begin with its name."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in folder.parent.glob(f"{folder.name}.*"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # other folders are there
        folder.parent.rmdir()
    return {}


def remove_unused(parent: Path) -> None:
    """Remove the folders in a folder that nothing has used for KEPT_SECONDS."""
    for path in parent.iterdir():
        with contextlib.suppress(OSError):  # another program removes it too
            if path.is_dir() and time.time() - path.stat().st_mtime > KEPT_SECONDS:
                shutil.rmtree(path)


def main(action: str, folder: str) -> int:
    """Do one action, and print its answer; a system error is an answer too."""
    try:
        if action in ("want", "take"):
            answer = {"want": want, "take": take}[action](Path(folder), json.load(sys.stdin))
        else:
            answer = {"list": list_, "drop": drop}[action](Path(folder))
    except OSError as error:
        answer = {"error": f"{error.filename or folder}: {error.strerror}"}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
