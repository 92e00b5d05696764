"""Verifies a live run while it goes on: a process of low priority, in which the oracle follows the run.

The process takes the recorded micro-batches behind its last snapshot, and compares the oracle's outputs with the files
of the run, row by row. It writes up to which event the run is verified, and makes a snapshot from time to time. At the
end of the stream, it compares the last outputs, the final state and the counts of the whole run.

The run tells it on its standard input how far it is. A line has the number of events at the end of a micro-batch, as
JSON. The last line has the counts of the run, too. If the process finds a difference, it ends with 1 and a line on
stderr.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming_core import process, storage
from streaming_core.apps import registry
from streaming_core.data import comparison, microbatch
from streaming_core.data.parts import states
from streaming_core.errors import BadInput, CommandFailed, ExitCode, RunFailed
from streaming_core.oracle.segments import Verifier
from streaming_core.process import ending
from streaming_core.run import live_folder
from streaming_core.run.live_folder import BATCHES, LIVE, ORACLE, VERIFIED

NAME = "verification"
BLOCK = 1 << 14  # events that are compared at a time
SNAPSHOT_SECONDS = 10.0


class Verification:
    """The process that verifies a live run, as the run sees it."""

    def __init__(self, out: Path):
        """Start it."""
        self._out = out
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # `close` closes it
        command = [sys.executable, "-m", "streaming_core.run.verification", str(out)]
        self._process = process.start(command, signal.SIGKILL, stdin=subprocess.PIPE, stderr=self._errors)

    def tell(self, events: int, counts: dict[str, int] | None = None) -> None:
        """Say that the outputs of so many events are written; with the counts of the run, that the stream has ended."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `check` finds the reason
            self._process.stdin.write(json.dumps({"events": events, "counts": counts}).encode() + b"\n")
            self._process.stdin.flush()

    def check(self) -> bool:
        """Whether all is verified.

        Raises:
            RunFailed: The run differs from the oracle.
            BadInput: A file that is needed was changed.
            CommandFailed: The process failed.
        """
        code = self._process.poll()
        if code is None or code == ExitCode.SUCCESS:
            return code is not None
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        line = lines[-1].removeprefix(f"{NAME}: ") if lines else f"it ended with {code}"
        if code == ExitCode.FAILED:
            raise RunFailed(line)
        if code == ExitCode.BAD_INPUT:
            raise BadInput(line)
        raise CommandFailed(f"the process that verifies the run failed: {line}")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._errors.close()


# --- the process -----------------------------------------------------------------------------------------------------


class _Oracle:
    """The oracle beside a live run."""

    def __init__(self, out: Path):
        request = live_folder.request_of(out)
        self._app = registry.load(request["options"]["app"])
        self._params = self._app.bind(request["options"]["params"])
        self._out, self._root = out, out / LIVE / BATCHES
        self._verifier = Verifier(self._app, self._params, out / LIVE / ORACLE)
        for note in self._verifier.notes:
            ending.say(NAME, note)
        self._saved = time.monotonic()

    def follow(self, events: int) -> None:
        """Compare the outputs of the micro-batches up to this number of events.

        Snapshots come in between, too: a process that is killed often must not begin again each time.
        """
        verifier = self._verifier
        for block in self._blocks(events) if events > verifier.events else ():
            _check(verifier.compare([block], live_folder.parts_from(self._out, verifier.events)))
            if time.monotonic() - self._saved >= SNAPSHOT_SECONDS:
                verifier.write()
                self._saved = time.monotonic()
            self._write()
        self._write()  # also without a new event

    def finish(self, counts: dict[str, int]) -> None:
        """Compare the end of the stream: the last outputs, the final state, and these counts."""
        verifier, final = self._verifier, states(self._out)
        written = live_folder.parts_from(self._out, verifier.events)
        for differences in verifier.finish(verifier.events, written, final):
            _check(differences)
        for name, expected in verifier.counts.items():
            if counts[name] != expected:
                raise RunFailed(f"the run differs from the oracle: {name}: expected {expected}, got {counts[name]}")
        self._write(sum(table.rows for table in final.values()))

    def _blocks(self, events: int) -> Iterator[pa.Table]:
        """The recorded events from where the oracle stands to this number of events."""
        first = microbatch.behind(self._root, self._verifier.events)
        for batch in microbatch.read_all(self._root, self._app, self._params, first):
            if batch.start > self._verifier.events:
                raise BadInput(f"the events before {batch.start} were dropped and cannot be verified: add --no-verify")
            for block in batch.blocks(BLOCK):
                if rows := block.slice(max(0, self._verifier.next_seq - block["seq"][0].as_py())):
                    yield rows
            if batch.position.total[0] >= events:
                return

    def _write(self, rows: int | None = None) -> None:
        """Note how far the run is verified; with the rows of its final state, that all of it is."""
        verifier = self._verifier
        about = {"events": verifier.events, "outputs": verifier.digest[0], "time": time.time(), "needs": verifier.needs}
        storage.write_json(self._out / VERIFIED, about | {"states": rows, "is_complete": rows is not None})


def _check(differences: comparison.Differences) -> None:
    """Raise RunFailed for the first difference."""
    for difference in differences.differences[:1]:
        raise RunFailed(f"the run differs from the oracle: {difference.lines()[0]}")


def _main(out: Path) -> None:
    os.nice(19)
    lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(json.loads(line))
        os._exit(ExitCode.COMMAND_FAILED)  # the run has ended without a last line

    threading.Thread(target=read, daemon=True).start()
    oracle = _Oracle(out)
    counts = None
    while counts is None:
        line = lines.get()
        while not lines.empty():  # the newest one counts
            line = lines.get()
        counts = line["counts"]
        oracle.follow(line["events"])
    oracle.finish(counts)


if __name__ == "__main__":
    ending.begin(NAME)
    ending.end(NAME, lambda: _main(Path(sys.argv[1])))
