"""Where things lie below LOCKSTEP_HOME; how they appear there is `storage`'s."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from pathlib import Path
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.storage import atomic_directory, write_json  # noqa: F401  where they were looked for

RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


def new_run_id(origin: str | None = None, when: float | None = None) -> str:
    """`YYYYMMDDTHHMMSSZ-<8 hex>`; `origin` (an Airflow run id, say) makes the hex part repeatable."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() if when is None else when))
    tail = hashlib.sha256(origin.encode()).hexdigest()[:8] if origin else os.urandom(4).hex()
    return f"{stamp}-{tail}"


class Home:
    """Paths below LOCKSTEP_HOME (default `.lockstep`)."""

    def __init__(self, root: str | os.PathLike | None = None):
        self.root = Path(root or os.environ.get("LOCKSTEP_HOME") or ".lockstep").absolute()

    def workload(self, app: str, address: str) -> Path:
        """Folder of one generated workload: events/*.parquet, manifest.json."""
        return self.root / "workloads" / app / address

    def oracle(self, app: str, address: str) -> Path:
        """Folder of one oracle result: outputs/*.parquet, state/*.parquet, manifest.json."""
        return self.root / "oracle" / app / address

    def run(self, run_id: str) -> Path:
        """Folder of one run of the matrix."""
        return self.root / "runs" / run_id

    def attempt(self, run_id: str, cell: str, attempt: int) -> Path:
        """Folder of one attempt at one cell: spec.json, outputs/, state/, report.json."""
        return self.run(run_id) / cell / f"attempt-{attempt}"

    def raw(self, table: str) -> Path:
        """Folder of one raw warehouse table: run_id=<run id>/*.parquet."""
        return self.root / "warehouse" / "raw" / table

    @property
    def reports(self) -> Path:
        """Folder of everything made to be looked at."""
        return self.root / "reports"


def read_manifest(directory: Path, what: str, keys: set[str], command: str) -> dict[str, Any]:
    """The manifest of a folder that is whole.

    Args:
        what: kind of folder, such as workload.
        keys: those that every manifest of this kind has.
        command: the `streaming-core` command that makes such a folder.

    Raises:
        BadInput: there is none, it cannot be read, or it is of a folder of another kind.
    """
    path = Path(directory) / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(
            f"no {what} at {directory}: {path.name} is missing; make it with `streaming-core {command}`"
        ) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{what} {directory}: {path.name} cannot be read: {error}") from None
    if lacking := sorted(keys - manifest.keys() if isinstance(manifest, dict) else keys):
        raise BadInput(f"{directory} is no {what}: {path.name} lacks {', '.join(lacking)}")
    return manifest
