"""A child process that ends with the task that started it, and takes its children along."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence

GRACE_SECONDS = 15


class Process:
    """One command at a time, in a process group of its own."""

    def __init__(self) -> None:
        self._child: subprocess.Popen | None = None

    def run(
        self,
        command: Sequence[str],
        say: Callable[[str], None],
        environment: dict[str, str] | None = None,
        folder: str | os.PathLike | None = None,
        tether: bool = False,
    ) -> int:
        """Runs a command, passes its lines (both streams) to `say`, returns its exit code.

        Args:
            command: program and arguments; no shell is involved.
            environment: added to this process's environment. The place for secrets: a command line can be read by all.
            tether: give the child an input that ends when this process does.

        Whatever ends the wait (a timeout, a stopped task, Ctrl-C) ends the whole group first.
        """
        self._child = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            cwd=folder,
            stdin=subprocess.PIPE if tether else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        try:
            for line in self._child.stdout:
                say(line.decode("utf-8", "replace").rstrip())
            return self._child.wait()
        finally:
            self._end(self._child)

    def kill(self) -> None:
        """Asks the group to end, and makes it end a little later; does not wait, so a signal handler may call it."""
        child = self._child
        if child is None or child.returncode is not None:
            return
        _signal_group(child, signal.SIGTERM)
        timer = threading.Timer(GRACE_SECONDS, _signal_group, (child, signal.SIGKILL))
        timer.daemon = True
        timer.start()

    @staticmethod
    def _end(child: subprocess.Popen) -> None:
        if child.returncode is None:
            _signal_group(child, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_SECONDS)
        _signal_group(child, signal.SIGKILL)
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream:
                stream.close()


_PRCTL, _PR_SET_PDEATHSIG = ctypes.CDLL(None).prctl, 1


def _die_with_parent() -> None:
    """A process that is killed outright cannot clean up; the kernel tells its children (Linux)."""
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal_group(child: subprocess.Popen, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
