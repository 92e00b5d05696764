"""Runs the command in processes that get SIGKILL on the way.

One process imports everything and forks the others, so hundreds of them cost seconds. Each child counts its steps.
A step is a change of the file system by Python, an fsync, or a write of a checkpoint. So is a file that is opened for
writing and still empty. The child kills itself before step number `at`, and in the middle of a write. With `spin`,
its parent kills it that many microseconds after the step: in a kernel, or in the middle of a write or a read. With
`writer`, not the child is killed, but the process that writes its checkpoint of this number.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")


class Command:
    """Runs `streaming-core` in processes, and kills them on request.

    Attributes:
        events: Number of events that the engines of all processes have processed.
    """

    def __init__(self, home: Path, modules: Sequence[str] = ()):
        """`modules` are applications outside the package."""
        self.world = {**os.environ, "LOCKSTEP_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, __file__, *modules]
        self._parent = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.world
        )
        self.events = 0

    def __call__(
        self, *arguments: object, at: int | None = None, spin: int | None = None, writer: int | None = None
    ) -> tuple[int | None, str]:
        """The exit code (None: killed) and the text on stderr."""
        request = {"arguments": [str(a) for a in arguments], "at": at, "spin": spin, "writer": writer}
        self._parent.stdin.write(json.dumps(request) + "\n")
        self._parent.stdin.flush()
        code, error, events = json.loads(self._parent.stdout.readline())
        self.events += events
        return code, error

    def close(self) -> None:
        """End the process that forks the others."""
        self._parent.stdin.close()
        self._parent.wait()
        self._parent.stdout.close()


def forked(arguments: list[str], at: int | None, spin: int | None, writer: int | None) -> tuple[int | None, str, int]:
    """Run one process from its start to its end; returns its exit code (None: killed), its stderr, and its events."""
    events = memoryview(mmap.mmap(-1, 8)).cast("q")
    reading, writing = os.pipe()
    reached, reaching = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.close(reached)
        os.dup2(writing, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        count(events)
        if at is not None:
            Steps(at, None if spin is None else reaching, writer)
        sys.argv = ["streaming-core", *arguments]
        code = 70
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    os.close(reaching)
    if os.read(reached, 1):  # nothing when it has ended
        until = time.perf_counter_ns() + spin * 1000
        while time.perf_counter_ns() < until:
            pass
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as lines:
        text = lines.read()
    os.close(reached)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, (status, text)
        return None, text, events[0]
    return os.WEXITSTATUS(status), text, events[0]


def count(events: memoryview) -> None:
    """Add up the events that engines of this process take."""
    process = PassEngine.process

    def counted(self: PassEngine, rows: np.ndarray, text: np.ndarray) -> None:
        process(self, rows, text)
        events[0] += len(rows)

    PassEngine.process = counted


class Steps:
    """Counts steps of this process, or of the child that is its fork of number `writer`, and kills it before step `at`.

    With a pipe, it writes to that instead, and the process goes on.
    """

    def __init__(self, at: int, alert_pipe: int | None, writer: int | None):
        self._at, self._alert_pipe, self._writer = at, alert_pipe, writer or 0
        self._own, self._steps, self._forks = os.getpid(), 0, 0
        self._fsync, self._write = os.fsync, os.write
        os.fsync, os.write = self._synchronised, self._written
        sys.addaudithook(self._heard)

    def _step(self, first: Callable[[], object] | None = None) -> None:
        """Count a step. The process does `first` before it is killed."""
        if self._writer != (0 if os.getpid() == self._own else self._forks):
            return
        self._steps += 1
        if self._steps != self._at:
            return
        if self._alert_pipe is not None:
            self._write(self._alert_pipe, b"!")
            return
        if first:
            with suppress(OSError):  # a failed open would have created no file
                first()
        os.kill(os.getpid(), signal.SIGKILL)

    def _heard(self, event: str, arguments: tuple) -> None:
        if event == "os.fork":
            self._forks += 1
        elif event in CHANGES:
            self._step()
        elif event == "open" and self._steps < self._at:
            path, _, flags = arguments
            if flags & (os.O_WRONLY | os.O_RDWR) and not isinstance(path, int):  # else it is open already
                self._step()
                self._step(lambda: os.open(path, flags))

    def _synchronised(self, descriptor: int) -> None:
        self._step()
        self._fsync(descriptor)

    def _written(self, descriptor: int, data: bytes) -> int:
        self._step(lambda: self._write(descriptor, data[: len(data) // 2]))
        return self._write(descriptor, data)


if __name__ == "__main__":
    # All imports of a command, even pandas, which pyarrow's conversions import. Each process would take a second for
    # them, and the bytecode that the first one writes would count as changes of the file system.
    import pandas  # noqa: F401
    import pyarrow

    import streaming_core._runtime
    import streaming_core.cli.command
    import streaming_core.oracle.oracle
    import streaming_core.run.engine
    import streaming_core.run.planning  # noqa: F401
    from streaming_core.apps import registry
    from streaming_core.cli import main as command_line
    from streaming_core.data.digest import digest_table
    from streaming_core.process import ending
    from streaming_core.run.one_pass import PassEngine
    from tests.differential import live

    def main() -> None:
        """Run `streaming-core`, or a live run."""
        if sys.argv[1] != "live":
            command_line()
        ending.end("live", lambda: live.main(sys.argv[2:]))

    digest_table(pyarrow.table({"text": [b""]}))  # imports numba
    for module in sys.argv[1:]:
        registry.add(module)
    for line in sys.stdin:
        print(json.dumps(forked(**json.loads(line))), flush=True)
