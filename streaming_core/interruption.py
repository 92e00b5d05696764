"""Signals that ask a command to end (SIGTERM, Ctrl-C). The command notes them, and ends where it can.

A handler written in Python raises an exception wherever the main thread is. In a callback of LLVM, for example, Python
prints the exception and drops it, and the command continues. So the runtime has the handler (interruption.rs), which
only notes the signal. Worker threads look for it between two batches. Python calls `check` after every compilation,
between blocks and passes, and before it publishes anything. A process that has not ended five seconds after the signal,
because an operator loops for example, ends at once. So does one that gets a second SIGINT.

In a process without `heeded` (a Spark task, a test), `check` does nothing, and signals keep their actions.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streaming_core.errors import ExitCode

_noted: Callable[[], int] = int  # returns 0 outside of `heeded`


class Interrupted(BaseException):
    """A signal came. It is no `Exception`, so that code on the way only cleans up."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = ExitCode.SIGNAL + number


def check() -> None:
    """Raise Interrupted once a signal has come."""
    if number := _noted():
        raise Interrupted(number)


@contextmanager
def heeded() -> Iterator[None]:
    """Note signals during the block, in the main thread. After a first signal, note them to the end of the process."""
    from streaming_core import _runtime

    global _noted
    _runtime.heed_signals()
    _noted = _runtime.signalled
    try:
        yield
    finally:
        if not _noted():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
                signal.signal(number, signal.getsignal(number))  # the action that Python has recorded
            _noted = int
