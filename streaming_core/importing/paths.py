"""The files that an import may read: regular files and, for the DAG `import_data`, only those in configured folders.

An import first resolves all links of a path, and then checks the path. It checks every file of a folder too.
`open_regular` does not open a link or a FIFO that replaced a file after the check.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from streaming_core.errors import BadInput
from streaming_core.importing.records import is_utf8

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link that leads to itself",
}
# Where table formats keep the list of the files that count.
_TABLES = {
    "_delta_log": "Delta Lake",
    ".hoodie": "Hudi",
    "metadata/*.metadata.json": "Iceberg",
    "_spark_metadata": "Spark's streaming sink",
}


def regular_files(named: Path, roots: Sequence[Path] | None) -> list[tuple[Path, Path]]:
    """The named file, or the files in the named folder.

    Names that begin with '.' or '_' in a folder do not count.

    Args:
        named: A file or a folder.
        roots: The folders that an import may read; None means every folder.

    Returns:
        Each file as the user names it, and its path without links.

    Raises:
        BadInput: A path is missing or unreadable, lies outside the roots, or is no regular file nor a folder.
    """
    target, mode = _checked(named, roots)
    if not stat.S_ISDIR(mode):
        return [(named, target)]
    files = [(path, regular_file(path, roots)) for path in within(named)]
    if not files:
        raise BadInput(f"folder {named} has no files; names that begin with '.' or '_' do not count")
    return files


def regular_file(path: Path, roots: Sequence[Path] | None) -> Path:
    """The path without links of a file in a folder.

    Raises:
        BadInput: As `regular_files`, or the path is a link to a folder.
    """
    target, mode = _checked(path, roots)
    if stat.S_ISDIR(mode):
        raise BadInput(f"{path} is a link to a folder: name that folder itself")
    return target


def open_regular(target: Path) -> BinaryIO:
    """Open a file by the path that `regular_files` returned.

    Raises:
        OSError: The file is unreadable, or the path does not lead to the checked file any more.
    """
    # A FIFO without a writer would block without O_NONBLOCK. It makes no difference for a regular file.
    file = os.fdopen(os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    # A folder above the file may have become a link, which O_NOFOLLOW does not see.
    if not is_regular or os.readlink(f"/proc/self/fd/{file.fileno()}") != str(target):
        file.close()
        raise OSError(errno.ESTALE, "another program replaced it while the import ran")
    return file


def _checked(path: Path, roots: Sequence[Path] | None) -> tuple[Path, int]:
    """The path without links, and the mode of the regular file or folder there."""
    target = Path(os.path.realpath(path))
    # First of all: the errors below would tell whether a file outside the roots exists.
    if roots is not None and not any(target.is_relative_to(os.path.realpath(root)) for root in roots):
        folders = ", ".join(map(str, roots))
        raise BadInput(
            f"{path} is outside the folders that may be read ({folders}): copy the file there, or add its folder to "
            "LOCKSTEP_IMPORT_ROOTS"
        )
    try:
        mode = os.lstat(target).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{path} does not exist") from None
    except OSError as error:
        raise BadInput(f"{path} is unreadable: {error.strerror}") from None
    if not is_utf8(str(path)):
        raise BadInput(f"{os.fsencode(path)!r} is not a name in UTF-8: rename it")
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise BadInput(f"{path} is {kind}: only regular files, and folders of them, can be imported")
    return target, mode


def _check_table(folder: Path) -> None:
    """Raise BadInput for a table whose log removes some of its files."""
    for pattern, name in _TABLES.items():
        if log := next(folder.glob(pattern), None):
            raise BadInput(
                f"{folder} is a table of {name}, and {log} says which of its files count: "
                "export its rows to Parquet first"
            )


def within(folder: Path) -> list[Path]:
    """Everything in a folder and the folders below it, in order; folders only if they are links.

    Raises:
        BadInput: A folder is unreadable, or belongs to a table (_TABLES).
    """

    def fail(error: OSError) -> None:
        if isinstance(error, FileNotFoundError):
            return  # another program removed it meanwhile
        raise BadInput(f"{error.filename} is unreadable: {error.strerror}") from None

    for parent in folder.resolve().parents:
        _check_table(parent)
    paths: list[Path] = []
    for at, folders, names in os.walk(folder, onerror=fail):
        _check_table(Path(at))
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        names += [name for name in folders if os.path.islink(os.path.join(at, name))]
        paths += [Path(at) / name for name in names if not name.startswith((".", "_"))]
    return sorted(paths)
