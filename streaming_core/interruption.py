"""Signals that ask a command to end (SIGTERM, Ctrl-C): noted when they come, looked at where the command can end.

A handler written in Python raises wherever the main thread happens to be: in a callback of LLVM, say, where the
exception is printed and lost, and the command goes on to its end. So the handler is the runtime's (interruption.rs),
which only notes that a signal came: threads at work look between two batches, and Python calls `check` after every
compilation, between blocks and passes, and before anything is published. A second SIGINT ends the process at once.

In a process that does not `heed` (a Spark task, a test) `check` does nothing, and signals do what they did.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streaming_core.exit_codes import ExitCode

_noted: Callable[[], int] = int  # 0, until `heeded`


class Interrupted(BaseException):
    """A signal came. No `Exception`: nobody handles it on the way but to clean up."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = ExitCode.SIGNAL + number


def check() -> None:
    """Raises Interrupted once a signal has come."""
    if number := _noted():
        raise Interrupted(number)


@contextmanager
def heeded() -> Iterator[None]:
    """Notes signals for the length of the block, in the main thread; once one has come, to the end of the process."""
    from streaming_core import _runtime

    global _noted
    _runtime.heed_signals()
    _noted = _runtime.signalled
    try:
        yield
    finally:
        if not _noted():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.getsignal(number))  # the action that Python knows of
            _noted = int
