#!/usr/bin/env python3
"""Runs one attempt at a cell on this host, and waits for its end.

    cell.py run ATTEMPT --input WORKLOAD --timeout SECONDS [--wrapper '["numactl", "-N0"]'] [--tether | --lease SECONDS]
    cell.py stop ATTEMPT

The program waits for the host's lock, because a host runs one cell at a time. It starts the engine in its own process
group, writes the engine's output to ATTEMPT.stdout.log and ATTEMPT.stderr.log, and writes ATTEMPT/exit.json last.

A second call with the same attempt never starts a second engine. It waits for a running attempt, and reads the exit
code of an ended one from exit.json, so a lost connection costs nothing. It restarts a lost attempt if that left a
checkpoint.

The kernel closes standard input when the connection ends, or the process that started this one. With --tether, the
attempt then stops. With --lease, it stops later, unless another call waits for it in the meantime.

The exit code is the engine's. Code 3 means that this program itself failed, for example on a full disk. Code 75 means
that the attempt was lost: its process is gone, and exit.json is missing.

The engine is the one beside this program: that of this checkout, or on another host that of the build which was
shipped there. So a host never runs another version. The program uses the standard library, and modules of the checkout
that use nothing else.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

from streaming_core.process import POLL_SECONDS, Noted, alive, end_group, for_applications, identity, start  # noqa: E402
from streaming_core.regression.lock import of_host, signature  # noqa: E402
from streaming_core.storage import write_json  # noqa: E402

FAILED = 3
LOST = 75
KILLED = 137
TIMED_OUT = 124
GRACE_SECONDS = 10
# It imports nothing from the working folder.
ENGINE = [sys.executable, "-P", "-c", "from streaming_core.cli import main; main()"]


class Caller:
    """The process that waits for this one, or its connection."""

    def __init__(self, attempt: str, lease: float | None):
        """Watch for its end.

        Args:
            attempt: Folder of the attempt.
            lease: Seconds after which an attempt that no call waits for stops; None if it never stops.
        """
        self.followed = attempt + ".followed"  # its time is when a later call last waited for the attempt
        self.lease = lease
        self.left_at: float | None = None
        if lease is not None:
            threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        self.left_at = time.time()

    def follow(self) -> None:
        """Tell the first call that this one waits for the attempt too."""
        if self.lease is not None and self.left_at is None and time.time() - self._followed_at() > self.lease / 10:
            with open(self.followed, "a"):
                os.utime(self.followed, (time.time(), time.time()))

    def _followed_at(self) -> float:
        try:
            return os.path.getmtime(self.followed)
        except OSError:
            return 0.0

    def complaint(self) -> str | None:
        """The reason why the attempt must stop; None while a call waits for it, or did so within the lease."""
        if (
            self.lease is None
            or self.left_at is None
            or time.time() - max(self.left_at, self._followed_at()) < self.lease
        ):
            return None
        if self.lease == 0:
            return "stopped"
        return f"its connection was lost for {self.lease:.0f} s, so it was stopped"


def run(attempt: str, workload: str, wrapper: list[str], timeout: float, lease: float | None) -> int:
    """Run one attempt, or wait for it, or read how it ended.

    Args:
        attempt: Folder of the attempt.
        workload: Folder of the workload.
        wrapper: Words before the engine's command.
        timeout: Seconds after which the engine is killed.
        lease: As for `Caller`.

    Returns:
        The exit code.
    """
    caller = Caller(attempt, lease)
    if (known := read_json(os.path.join(attempt, "exit.json"))) is not None:
        return known["exit_code"]
    if (process := read_json(attempt + ".process.json")) is not None:
        code = follow(attempt, process, caller)
        # If the attempt was lost with its host, the engine resumes from a checkpoint in the same folder.
        if code != LOST or not any(Path(attempt).glob(".run/checkpoints/checkpoint-*")):
            return code

    noted = Noted(signal.SIGTERM, signal.SIGINT)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the run continues without the connection
    lock, waits, own = of_host(), "", signature_of(attempt)
    try:
        while not lock.take(own):
            if noted.number or caller.complaint():
                return finish(attempt, KILLED, "stopped while it waited for the host", now(), now())
            if (known := read_json(os.path.join(attempt, "exit.json"))) is not None:
                return known["exit_code"]
            if (line := lock.waiting()) not in ("", waits):
                say(waits := line)
            time.sleep(POLL_SECONDS)
        # Two calls may have waited for the host. The first of them ran the attempt.
        if (known := read_json(os.path.join(attempt, "exit.json"))) is not None:
            return known["exit_code"]
        arguments = [*wrapper, *ENGINE, "run", os.path.join(attempt, "spec.json")]
        return measure(attempt, arguments, workload, timeout, noted, caller)
    finally:
        noted.ignore()
        lock.leave()


def measure(attempt: str, command: list[str], workload: str, timeout: float, noted: Noted, caller: Caller) -> int:
    """Run the engine, under the host's lock.

    Args:
        attempt: Folder of the attempt.
        command: The engine's command, without workload and output folder.
        workload: Folder of the workload.
        timeout: Seconds after which the engine is killed.
        noted: The signals that stop the attempt.
        caller: The process that waits for this one.

    Returns:
        The exit code.
    """
    started = now()
    errors = attempt + ".stderr.log"
    with open(attempt + ".stdout.log", "wb") as out, open(errors, "wb") as err:
        try:
            arguments = [*command, "--input", workload, "--out", attempt]
            environment = {**for_applications(os.environ), "PYTHONPATH": str(ROOT), "LOCKSTEP_TRACEBACK": "1"}
            engine = start(arguments, dies_by=signal.SIGKILL, stdout=out, stderr=err, env=environment)
        except OSError as error:
            return finish(attempt, 1, f"cannot start {command[0]}: {error.strerror}", started, now())
        write_json(Path(attempt + ".process.json"), {**identity(engine.pid), "watcher": identity(os.getpid())})
        deadline = time.monotonic() + timeout
        reason = None
        while engine.poll() is None:
            reason = "stopped" if noted.number else caller.complaint()
            late = time.monotonic() > deadline
            if reason or late:
                reason = reason or f"it did not end within {timeout:.0f} s, so it was killed"
                end_group(engine, GRACE_SECONDS)
                break
            time.sleep(POLL_SECONDS)
    code = engine.returncode
    if reason:
        code = TIMED_OUT if late else KILLED
    elif code < 0:
        reason = f"killed by {signal.Signals(-code).name}"
        code = 128 - code
    elif code:
        reason = last_line(errors) or f"exit code {code} without a message"
    return finish(attempt, code, reason, started, now())


def follow(attempt: str, process: dict[str, Any], caller: Caller) -> int:
    """Wait for an attempt that another call started; returns the exit code."""
    while alive(process):
        caller.follow()
        time.sleep(POLL_SECONDS)
    for _ in range(int(GRACE_SECONDS / POLL_SECONDS)):  # its watcher writes exit.json just after the engine ends
        if (known := read_json(os.path.join(attempt, "exit.json"))) is not None:
            return known["exit_code"]
        if not alive(process["watcher"]):
            break
        time.sleep(POLL_SECONDS)
    known = read_json(os.path.join(attempt, "exit.json"))
    return LOST if known is None else known["exit_code"]


def stop(attempt: str) -> int:
    """Stop an attempt on this host, and wait for its end; returns the exit code, 0."""
    process = read_json(attempt + ".process.json")
    if process is None and not os.path.exists(os.path.join(attempt, "exit.json")):
        # A call that waits for the host reads it.
        finish(attempt, KILLED, "stopped while it waited for the host", now(), now())
        return 0
    if process is None or not alive(process["watcher"]):
        return 0
    os.kill(process["watcher"]["pid"], signal.SIGTERM)
    while alive(process["watcher"]):
        time.sleep(POLL_SECONDS)
    return 0


def finish(attempt: str, code: int, error: str | None, started: str, ended: str) -> int:
    """Write exit.json, and the error on stderr; returns the exit code."""
    if error:
        say(error)
    write_json(
        Path(attempt, "exit.json"),
        {"exit_code": code, "error": error, "started_at": started, "ended_at": ended, "host": socket.gethostname()},
    )
    return code


def now() -> str:
    """The time in UTC, as exit.json has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def last_line(path: str) -> str | None:
    """The last line of a log, or None if the log is empty."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 8192))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip()[:1000] if lines else None


def say(line: str) -> None:
    """Print a line on stderr, if the connection is still there."""
    with contextlib.suppress(OSError):  # the connection is gone
        print(line, file=sys.stderr, flush=True)


def signature_of(attempt: str) -> str:
    """The signature of an attempt, RUN/CELL/attempt-N, for the processes that wait for this host."""
    folder = Path(attempt)
    return signature(f"cell {folder.parent.name}", run=folder.parent.parent.name)


def read_json(path: str) -> dict[str, Any] | None:
    """The content of a JSON file, or None if it is missing or incomplete."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def main(argv: list[str]) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="cell.py", description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["run", "stop"], help="run or stop the attempt")
    parser.add_argument("attempt", help="folder of the attempt")
    parser.add_argument("--input", metavar="DIR", help="folder of the workload")
    parser.add_argument(
        "--wrapper", type=json.loads, default=[], metavar="JSON", help="words before the engine's command, as a list"
    )
    parser.add_argument("--timeout", type=float, default=3600.0, metavar="SECONDS", help="kill it after this time")
    life = parser.add_mutually_exclusive_group()
    life.add_argument("--tether", action="store_const", const=0.0, dest="lease", help="stop when standard input ends")
    life.add_argument("--lease", type=float, metavar="SECONDS", help="stop so long after standard input has ended")
    options = parser.parse_args(argv)
    if options.action == "stop":
        return stop(options.attempt)
    if not options.input:
        parser.error("run needs --input")
    try:
        return run(options.attempt, options.input, options.wrapper, options.timeout, options.lease)
    except OSError as error:
        say(f"cell.py: {error.filename or options.attempt}: {error.strerror or error}")
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
