"""A soak of a live run: files appear for a long time, the run is killed again and again, and must keep up.

    python -m tests.e2e.soak wc --minutes 60 --kill 60 --folder /tmp/soak

It prints a line for each kill. `caught_up_s` is the time until the resumed run was less than 5 s behind. The lags are
those of the run and the oracle before the kill. At the end, the stream ends, and all outputs must equal the oracle's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.run.live_folder import read_status

LOCKSTEP = Path(sys.executable).with_name("lockstep")


@dataclass
class Feeder:
    """Writes files of events into a folder, one per second, in a thread of its own.

    Attributes:
        app: The name of the application, whose generator makes the events.
        folder: The folder.
        rows: Events per file.
        written: Per file, the number of events up to its end, and the time at which it appeared.
    """

    app: str
    folder: Path
    rows: int
    written: list[tuple[int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        params, most = registry.load(self.app).bind({}), 10_000 * self.rows
        while not self._stop.is_set():
            began, number = time.monotonic(), len(self.written)
            start = number * self.rows
            table = workload.generate_chunk(self.app, params, most, 1, start, start + self.rows)
            table = table.drop_columns([name for name in ("seq",) if name in table.column_names])
            hidden = self.folder / f".{number:06d}.parquet"
            pq.write_table(table, hidden)
            hidden.rename(self.folder / hidden.name[1:])
            self.written.append((start + self.rows, time.time()))
            self._stop.wait(max(0.0, began + 1 - time.monotonic()))

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the present file."""
        self._stop.set()
        self._thread.join()

    def lag(self, events: int) -> float:
        """The age in seconds of the oldest file whose events a run has not read, if it has read so many."""
        late = next((at for end, at in self.written if end > events), None)
        return 0.0 if late is None else time.time() - late


def memory_of(group: int) -> int:
    """Bytes of resident memory of a process group."""
    pages = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[2]) == group:
            pages += int(words[21])
    return pages * os.sysconf("SC_PAGE_SIZE")


def disk_of(folder: Path) -> int:
    """Bytes of the files in a folder, which may come and go."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


def soak(app: str, folder: Path, minutes: float, kill: float, rows: int, keep: str) -> list[dict[str, float]]:
    """Run the soak; returns the figures of each life of the run. Raises AssertionError if the run is not equal."""
    feeder, out = Feeder(app, folder / "incoming", rows), folder / "run"
    command = [LOCKSTEP, "follow", app, "--source", feeder.folder, "--out", out, "--keep", keep]
    feeder.start()
    lives, end = [], time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        began, born, caught_up, most = time.monotonic(), time.time(), None, 0
        with open(folder / "log", "ab") as log:
            run = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        while time.monotonic() < began + kill:
            assert run.poll() is None, (folder / "log").read_text()[-2000:]
            status = read_status(out) if (out / "status.json").exists() else None
            if caught_up is None and status and status.started >= born and feeder.lag(status.events) < 5:
                caught_up = time.monotonic() - began
            most = max(most, memory_of(run.pid))
            time.sleep(0.25)
        status = read_status(out)
        lives.append(
            {
                "events": status.events,
                "caught_up_s": -1.0 if caught_up is None else round(caught_up, 1),
                "lag_s": round(feeder.lag(status.events), 1),
                "verified_lag_s": round(feeder.lag(status.verified or 0), 1),
                "memory_mb": most >> 20,
                "disk_mb": disk_of(out) >> 20,
            }
        )
        print(json.dumps(lives[-1]), flush=True)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    feeder.stop()
    ended = subprocess.run([*command, "--until-idle", "0"], capture_output=True, text=True, timeout=900, check=False)
    print(ended.stdout, ended.stderr[-500:])
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "\nequal: " in ended.stdout, ended.stdout
    return lives


def main() -> None:
    """Read the arguments, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("app")
    parser.add_argument("--folder", type=Path, required=True, help="a folder that does not exist")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--kill", type=float, default=60, help="seconds between two kills")
    parser.add_argument("--rows", type=int, default=2000, help="events per second")
    parser.add_argument("--keep", default="5m")
    arguments = parser.parse_args()
    soak(**vars(arguments))
    shutil.rmtree(arguments.folder)


if __name__ == "__main__":
    main()
