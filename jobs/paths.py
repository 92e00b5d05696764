"""The files that an import may read: regular files and, for the DAG `import_data`, only those in configured folders.

An import first resolves all links of a path, and then checks the path. It checks every file of a folder too.
`open_regular` does not open a link or a FIFO that replaced a file after the check. Spark opens Parquet files itself, by
the checked path.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from streaming_core.errors import BadInput

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link that leads to itself",
}


def regular_files(named: Path, roots: Sequence[Path] | None) -> list[tuple[Path, Path]]:
    """The named file, or the files in the named folder.

    Names that begin with '.' or '_' in a folder do not count.

    Args:
        named: A file or a folder.
        roots: The folders that may be read; None means every folder.

    Returns:
        Each file as the user names it, and its path without links.

    Raises:
        BadInput: A path is missing or unreadable, lies outside the roots, or is neither a regular file nor a folder.
    """
    target, mode = _checked(named, roots)
    if not stat.S_ISDIR(mode):
        return [(named, target)]
    within = _within(named)
    if not within:
        raise BadInput(f"folder {named} has no files; names that begin with '.' or '_' do not count")
    files = []
    for path in within:
        target, mode = _checked(path, roots)
        if stat.S_ISDIR(mode):
            raise BadInput(f"{path} is a link to a folder: name that folder itself")
        files.append((path, target))
    return files


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
        raise OSError(errno.ESTALE, "it was replaced while the import ran")
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
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise BadInput(f"{path} is {kind}: only regular files, and folders of them, can be imported")
    return target, mode


def _within(folder: Path) -> list[Path]:
    """Everything in a folder and the folders below it, in order; folders only if they are links."""

    def fail(error: OSError) -> None:
        raise BadInput(f"{error.filename} cannot be read: {error.strerror}") from None

    paths: list[Path] = []
    for at, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        names += [name for name in folders if os.path.islink(os.path.join(at, name))]
        paths += [Path(at) / name for name in names if not name.startswith((".", "_"))]
    return sorted(paths)
