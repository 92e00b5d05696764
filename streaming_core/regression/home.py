"""The folders below LOCKSTEP_HOME, and the ids of runs."""

from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path

from streaming_core.storage import below

RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


def new_run_id(origin: str | None = None, when: float | None = None) -> str:
    """`YYYYMMDDTHHMMSSZ-<8 hex>`; `origin` (an Airflow run id, say) makes the hex part repeatable."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() if when is None else when))
    tail = hashlib.sha256(origin.encode()).hexdigest()[:8] if origin else os.urandom(4).hex()
    return f"{stamp}-{tail}"


class Home:
    """Paths below LOCKSTEP_HOME (default `.lockstep`), and no others.

    Raises:
        BadInput: A name would lead out of the folder. Names may come from anyone.
    """

    def __init__(self, root: str | os.PathLike | None = None):
        self.root = Path(root or os.environ.get("LOCKSTEP_HOME") or ".lockstep").absolute()

    def workload(self, app: str, address: str) -> Path:
        """Folder of one generated workload: events/*.parquet, manifest.json."""
        return below(self.root / "workloads", app, address)

    def imported(self, name: str) -> Path:
        """Folder of an import, by its name.

        Lockstep cannot make it again, so it stays until a person removes it.
        """
        return below(self.root / "imported", name)

    def oracle(self, app: str, address: str) -> Path:
        """Folder of one oracle result: outputs/*.parquet, state/*.parquet, manifest.json."""
        return below(self.root / "oracle", app, address)

    def corpus(self, app: str) -> Path:
        """Folder of the inputs that searches keep, and of what they tried."""
        return below(self.root / "corpus", app)

    def finds(self, app: str) -> Path:
        """Folder of the finds of an application, one folder for each."""
        return below(self.all_finds, app)

    @property
    def all_finds(self) -> Path:
        """Folder of the folders of finds, one for each application."""
        return self.root / "finds"

    def run(self, run_id: str) -> Path:
        """Folder of one run of the matrix."""
        return below(self.root / "runs", run_id)

    def cell(self, run_id: str, cell: str) -> Path:
        """Folder of all attempts at one cell."""
        return below(self.run(run_id), cell)

    def attempt(self, run_id: str, cell: str, attempt: int) -> Path:
        """Folder of one attempt at one cell: spec.json, outputs/, state/, report.json."""
        return below(self.cell(run_id, cell), f"attempt-{attempt}")

    def build(self, name: str) -> Path:
        """Folder of the engine as a commit of its repository builds it: its Python package and its runtime."""
        return below(self.root / "builds", name)

    def raw(self, table: str) -> Path:
        """Folder of one raw warehouse table: run_id=<run id>/part-0.parquet."""
        return self.root / "warehouse" / "raw" / table

    def part(self, table: str, run_id: str) -> Path:
        """File of one run's rows of a raw warehouse table."""
        return below(self.raw(table), run_id).with_name(f"run_id={run_id}") / "part-0.parquet"

    @property
    def reports(self) -> Path:
        """Folder of the pages, and of the results of benchmarks."""
        return self.root / "reports"

    def report(self, run_id: str, name: str) -> Path:
        """File of a run's pages."""
        return below(self.reports, run_id, name)

    def log(self, name: str) -> Path:
        """File with the log of a server."""
        return below(self.root / "logs", f"{name}.log")
