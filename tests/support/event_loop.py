"""What code does on the thread of an event loop, which a slow file system would block."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Audit events of Python for calls that touch files. A call of `stat` has none.
CALLS = {"open", "os.listdir", "os.scandir", "os.mkdir", "os.link", "os.rename", "os.remove", "os.utime"}
_watched: dict[str, list[str]] = {}


def _audit(event: str, arguments: tuple) -> None:
    if not _watched or event not in CALLS or not isinstance(arguments[0], str | Path):
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # no loop runs in this thread
        return
    for root, calls in _watched.items():
        if str(arguments[0]).startswith(root):
            calls.append(f"{event} {arguments[0]}")


sys.addaudithook(_audit)  # nothing can remove it


@contextmanager
def calls_below(root: Path) -> Iterator[list[str]]:
    """Yield the calls on files below `root` that block an event loop during the block."""
    calls = _watched.setdefault(str(root), [])
    try:
        yield calls
    finally:
        del _watched[str(root)]
