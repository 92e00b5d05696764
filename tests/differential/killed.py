"""Runs the command in processes that get SIGKILL on the way.

One process imports everything and forks the others, so hundreds of them cost seconds. Each child counts its steps:
every change of the file system by Python, every fsync, and every file opened for writing and still empty. The child
kills itself before step number `at`. With `spin`, its parent kills it that many microseconds after the step: in a
kernel, or in the middle of a write or a read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")


class Command:
    """Runs `streaming-core` in processes, and kills them on request."""

    def __init__(self, home: Path):
        self.world = {**os.environ, "LOCKSTEP_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
        self._parent = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.world
        )

    def __call__(self, *arguments: object, at: int | None = None, spin: int | None = None) -> tuple[int | None, str]:
        """The exit code (None: killed) and the text on stderr."""
        request = {"arguments": [str(a) for a in arguments], "at": at, "spin": spin}
        self._parent.stdin.write(json.dumps(request) + "\n")
        self._parent.stdin.flush()
        code, error = json.loads(self._parent.stdout.readline())
        return code, error

    def close(self) -> None:
        """End the process that forks the others."""
        self._parent.stdin.close()
        self._parent.wait()
        self._parent.stdout.close()


def forked(arguments: list[str], at: int | None, spin: int | None) -> tuple[int | None, str]:
    """Run one process from its start to its end; returns its exit code (None: killed) and its stderr."""
    reading, writing = os.pipe()
    reached, reaching = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.close(reached)
        os.dup2(writing, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if at is not None:
            watch(at, None if spin is None else reaching)
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
        return None, text
    return os.WEXITSTATUS(status), text


def watch(at: int, alert_pipe: int | None) -> None:
    """Kill this process before step `at`; with a pipe, write to it instead and go on."""
    steps = 0

    def step(opens: tuple | None = None) -> None:
        nonlocal steps
        steps += 1
        if steps == at:
            if alert_pipe is None:
                if opens:
                    with suppress(OSError):  # a failed open would have created no file
                        os.open(*opens)
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(alert_pipe, b"!")

    def heard(event: str, arguments: tuple) -> None:
        if event in CHANGES:
            step()
        elif event == "open" and steps < at:
            path, _, flags = arguments
            if flags & (os.O_WRONLY | os.O_RDWR) and not isinstance(path, int):  # else it is open already
                step()
                step((path, flags))

    fsync = os.fsync

    def counted(descriptor: int) -> None:
        step()
        fsync(descriptor)

    os.fsync = counted
    sys.addaudithook(heard)


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
    from streaming_core.cli import main as command_line
    from streaming_core.data.digest import digest_table
    from streaming_core.process import ending
    from tests.differential import live

    def main() -> None:
        """Run `streaming-core`, or a live run."""
        if sys.argv[1] != "live":
            command_line()
        ending.end("live", lambda: live.main(sys.argv[2:]))

    digest_table(pyarrow.table({"text": [b""]}))  # imports numba
    for line in sys.stdin:
        print(json.dumps(forked(**json.loads(line))), flush=True)
