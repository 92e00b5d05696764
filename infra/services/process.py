"""Processes that are supervised: each in a process group of its own, and ended as one, with whatever it has started.

What asks a supervisor itself to end is a signal, and its handler only notes the number (`Noted`): a handler runs
between any two instructions of the main thread, also inside of an `Event`, a queue or another handler, and one that
takes a lock which is held there waits for ever. Supervisors look at the number several times a second.

Standard library only: the driver on a host (cell.py) uses it, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

GRACE_SECONDS = 15
POLL_SECONDS = 0.05

# Found here, for a child between fork and exec must not import: another thread may have held the lock for that.
_PRCTL, _PR_SET_PDEATHSIG = ctypes.CDLL(None).prctl, 1


class Noted:
    """Signals that were noted. `number` is the first that came, 0 if none did; written by handlers only, and by whoever
    else has a reason to end."""

    def __init__(self, *numbers: int):
        """Notes these signals from now on; in the main thread. None of them interrupts anything any more."""
        self.number = 0
        self._numbers = numbers
        for number in numbers:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        self.number = self.number or number

    def ignore(self) -> None:
        """Ignores them from now on, also while the interpreter ends: how this process ends is settled."""
        for number in self._numbers:
            signal.signal(number, signal.SIG_IGN)


def start(command: Sequence[str], dies_by: int | None = signal.SIGTERM, **options: Any) -> subprocess.Popen:
    """Starts a command in a process group of its own; no shell is involved, its input is empty unless it is given.

    Args:
        dies_by: what it is sent when the thread that starts it is gone, however that ends (Linux); None: it lives on.
        options: as for Popen.
    """

    def die_with_parent() -> None:
        _PRCTL(_PR_SET_PDEATHSIG, dies_by)

    options = {"stdin": subprocess.DEVNULL, "preexec_fn": die_with_parent if dies_by else None, **options}
    return subprocess.Popen(command, start_new_session=True, **options)


def identity(pid: int) -> dict[str, int | None]:
    """A process for later: ids are used again, so the time it started at goes with it."""
    return {"pid": pid, "started": _start_time(pid)}


def alive(process: Mapping[str, Any]) -> bool:
    """Whether this very process is there, and no zombie."""
    return process["started"] is not None and _start_time(process["pid"]) == process["started"]


def _start_time(pid: int) -> int | None:
    """Clock ticks since boot at which a process started; None when it is gone or a zombie (Linux)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def signal_group(leader: int, number: int) -> None:
    """Sends a signal to a group, if it is there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def end_groups(leaders: Sequence[Mapping[str, Any]], grace: float = GRACE_SECONDS) -> None:
    """End process groups that this process need not have started: SIGTERM, and SIGKILL once their leaders have ended.

    Args:
        leaders: the `identity` of each group's leader; a leader that has ended is passed over.
        grace: seconds that the leaders have to end.
    """
    present = [leader for leader in leaders if alive(leader)]
    for leader in present:
        signal_group(leader["pid"], signal.SIGTERM)
    deadline = time.monotonic() + grace
    while any(map(alive, present)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for leader in present:
        signal_group(leader["pid"], signal.SIGKILL)


def end_group(child: subprocess.Popen, grace: float = GRACE_SECONDS) -> None:
    """SIGTERM, then SIGKILL to what is left of the group once the child has ended, or after `grace` seconds."""
    if child.poll() is None:
        signal_group(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace)
    signal_group(child.pid, signal.SIGKILL)  # the child ended in time; a child of its own may not have
    child.wait()


class Process:
    """One command at a time, which ends with who runs it."""

    def __init__(self) -> None:
        self._child: subprocess.Popen | None = None
        self._asked: float | None = None  # when `kill` was called

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
            command: program and arguments.
            environment: added to this process's environment. The place for secrets: a command line can be read by all.
            tether: give the child an input that ends when this process does.

        Whatever ends the wait (a timeout, a stopped task, Ctrl-C) ends the whole group first.
        """
        self._asked = None
        self._child = start(
            command,
            env={**os.environ, **(environment or {})},
            cwd=folder,
            stdin=subprocess.PIPE if tether else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            assert self._child.stdout is not None
            for line in self._lines(self._child.stdout.fileno()):
                say(line.decode("utf-8", "replace").rstrip())
            while self._child.poll() is None:
                self._insist()
                time.sleep(POLL_SECONDS)
            return self._child.returncode
        finally:
            end_group(self._child)
            for stream in (self._child.stdin, self._child.stdout):
                if stream:
                    stream.close()

    def kill(self) -> None:
        """Asks the group to end; `run` makes it end a little later. Takes no lock: a signal handler may call it."""
        child = self._child
        if child is None or child.returncode is not None:
            return
        self._asked = self._asked or time.monotonic()
        signal_group(child.pid, signal.SIGTERM)

    def _lines(self, descriptor: int) -> Iterator[bytes]:
        pending, poll = b"", select.poll()
        poll.register(descriptor, select.POLLIN)
        while True:
            self._insist()
            if not poll.poll(POLL_SECONDS * 1000):
                continue
            data = os.read(descriptor, 1 << 16)
            *lines, pending = (pending + data).split(b"\n")
            yield from lines
            if not data:
                if pending:
                    yield pending
                return

    def _insist(self) -> None:
        if self._child is not None and self._asked is not None and time.monotonic() > self._asked + GRACE_SECONDS:
            signal_group(self._child.pid, signal.SIGKILL)
