"""Starts and ends processes. Each runs in its own process group, and ends together with its children.

A signal asks a supervising process to end. The handler only notes the number of the signal (`Noted`), and the
supervisor looks at it several times a second. A handler must not take a lock. It runs between any two instructions of
the main thread. If that thread holds the lock of an `Event` or a queue, the handler would wait for ever.

The module uses the standard library only, because the program on a host (cell.py) imports it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

GRACE_SECONDS = 15
POLL_SECONDS = 0.05

# Resolved here, because a child must not import between fork and exec: another thread may have held the import lock.
_PRCTL, _PR_SET_PDEATHSIG = ctypes.CDLL(None).prctl, 1


# The variables that a user's application sees. A list of secrets could never be complete, so this list has the rest.
APPLICATION_VARIABLES = (
    *("HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOCKSTEP_ENGINES", "LOCKSTEP_HOME", "LOCKSTEP_HOST_LOCK"),
    *("LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV", "XDG_CACHE_HOME"),
)
APPLICATION_PREFIXES = ("LC_", "LOCKSTEP_APP_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON")
FOREIGN = Path(__file__).with_name("foreign.txt")


def for_applications(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that user applications may see: no setting of Airflow, no token, no password."""
    return {
        name: value
        for name, value in environment.items()
        if name in APPLICATION_VARIABLES or name.startswith(APPLICATION_PREFIXES)
    }


def remove_foreign_variables() -> None:
    """Remove the variables of this process that are meant for other work, as infra/setup/environment does."""
    patterns = [line for line in FOREIGN.read_text().splitlines() if line and line[0] != "#"]
    for name in list(os.environ):
        matches = [pattern for pattern in patterns if fnmatchcase(name, pattern.lstrip("!"))]
        if matches and not matches[-1].startswith("!"):
            del os.environ[name]


def git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run git in the repository whose root is this folder.

    It never takes a repository around the folder. It also reads a folder of another user. Git alone refuses that,
    because settings in the folder may name programs, but this process runs programs of the folder anyway.
    """
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    command = ["git", "-C", str(folder), "-c", f"safe.directory={folder}", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)


class Noted:
    """The first signal that arrived: `number`, 0 if none did. Code that has another reason to end may set it too."""

    def __init__(self, *numbers: int):
        """Note these signals from now on; call it in the main thread. They then interrupt nothing."""
        self.number = 0
        self._numbers = numbers
        for number in numbers:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        self.number = self.number or number

    def ignore(self) -> None:
        """Ignore the signals from now on, until the interpreter has ended."""
        for number in self._numbers:
            signal.signal(number, signal.SIG_IGN)


def start(command: Sequence[str], dies_by: int | None = signal.SIGTERM, **options: Any) -> subprocess.Popen:
    """Start a command in its own process group, without a shell. Its input is empty by default.

    Args:
        command: Program and arguments.
        dies_by: The signal that the kernel sends it when the thread that starts it ends (Linux); None for no signal.
        options: Options of Popen.
    """

    def die_with_parent() -> None:
        _PRCTL(_PR_SET_PDEATHSIG, dies_by)

    options = {"stdin": subprocess.DEVNULL, "preexec_fn": die_with_parent if dies_by else None, **options}
    return subprocess.Popen(command, start_new_session=True, **options)


def identity(pid: int) -> dict[str, int | None]:
    """The id of a process with its start time, because the system uses ids again."""
    return {"pid": pid, "started": _start_time(pid)}


def alive(process: Mapping[str, Any]) -> bool:
    """Whether this process is running, and is not a zombie."""
    return process["started"] is not None and _start_time(process["pid"]) == process["started"]


def _start_time(pid: int) -> int | None:
    """The start of a process in clock ticks since boot; None if it is gone or a zombie (Linux)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def signal_group(leader: int, number: int) -> None:
    """Send a signal to a group, if it exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def end_groups(leaders: Sequence[Mapping[str, Any]], grace: float = GRACE_SECONDS) -> None:
    """End process groups, also those of other parents: SIGTERM, then SIGKILL once their leaders have ended.

    Args:
        leaders: The `identity` of each group's leader. A leader that has ended is ignored.
        grace: Seconds that the leaders get to end.
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
    """Send SIGTERM to the group of a child, then SIGKILL once the child has ended or `grace` seconds have passed."""
    if child.poll() is None:
        signal_group(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace)
    signal_group(child.pid, signal.SIGKILL)  # the child ended in time; a child of its own may not have
    child.wait()


@contextlib.contextmanager
def time_limit(seconds: float, end: Callable[[], object]) -> Iterator[threading.Event]:
    """Call `end`, in another thread, if the block takes longer than so many seconds.

    Yields:
        An event. It is set once the time is over.
    """
    is_late = threading.Event()

    def stop() -> None:
        is_late.set()
        end()

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield is_late
    finally:
        timer.cancel()


class Process:
    """Runs one command at a time. The command ends with the process that runs it."""

    def __init__(self) -> None:
        self._child: subprocess.Popen | None = None
        self._killed_at: float | None = None  # the time of the call of `kill`

    def run(
        self,
        command: Sequence[str],
        say: Callable[[str], None],
        environment: dict[str, str] | None = None,
        folder: str | os.PathLike | None = None,
        tether: bool = False,
        is_application: bool = False,
    ) -> int:
        """Run a command, pass the lines of its output and errors to `say`, and return its exit code.

        Args:
            command: Program and arguments.
            say: Receives each line.
            environment: Added to this process's environment. Put secrets here: other users can read a command line.
            folder: The folder that the command starts in; None: the current one.
            tether: Give the child an input that ends with this process.
            is_application: The command runs a user's application: of this process's environment, it gets
                `for_applications` only.

        If an exception (a timeout, a stopped task, Ctrl-C) ends the wait, the whole group ends first.
        """
        self._killed_at = None
        self._child = start(
            command,
            env={**(for_applications(os.environ) if is_application else os.environ), **(environment or {})},
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
        """Ask the group to end; `run` kills it after GRACE_SECONDS. Takes no lock, so a signal handler may call it."""
        child = self._child
        if child is None or child.returncode is not None:
            return
        self._killed_at = self._killed_at or time.monotonic()
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
        if self._child is None or self._killed_at is None:
            return
        if time.monotonic() > self._killed_at + GRACE_SECONDS:
            signal_group(self._child.pid, signal.SIGKILL)
