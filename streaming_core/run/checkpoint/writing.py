"""Writes beside the engine's work, in a forked process.

The child sees memory as it was at the fork, while the engine goes on. It writes, and ends. The parent alone decides
what becomes of the files. The child closes the descriptors of its parent, so that it holds no lock, and dies with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import os
import signal
from collections.abc import Callable
from typing import NoReturn

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
UNKNOWN = 255  # the result of a write that failed for another reason than an OSError


class Writing:
    """One write that goes on beside its caller, or was made at once if there is no memory for a process."""

    def __init__(self, write: Callable[[], None]):
        """Begin. `write` only reads memory and writes files."""
        parent, self._child, self._code = os.getpid(), 0, 0
        try:
            self._child = os.fork()
        except OSError as error:
            if error.errno not in (errno.ENOMEM, errno.EAGAIN):
                raise
            try:
                write()
            except OSError as failure:
                self._code = failure.errno or errno.EIO
            return
        if not self._child:
            _be_child(parent, write)

    def result(self, wait: bool) -> int | None:
        """The error number of the write; 0 if it succeeded, negative for a signal, None while it goes on.

        Args:
            wait: Whether to wait for its end.
        """
        if self._child:
            pid, status = os.waitpid(self._child, 0 if wait else os.WNOHANG)
            if not pid:
                return None
            self._child = 0
            self._code = os.waitstatus_to_exitcode(status)
        return self._code


def _be_child(parent: int, write: Callable[[], None]) -> NoReturn:
    """Write, and end this process without any step of the parent's ending."""
    code = UNKNOWN
    with contextlib.suppress(BaseException):
        gc.disable()  # what the collector would find belongs to threads that this process does not have
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(code)
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        for _ in range(3):
            os.open(os.devnull, os.O_RDWR)
        try:
            write()
            code = 0
        except OSError as error:
            code = error.errno or errno.EIO
    os._exit(code)
