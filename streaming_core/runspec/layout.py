"""Where things lie below LOCKSTEP_HOME, and how a folder appears there: whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streaming_core.errors import BadInput

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


def write_json(path: Path, value: object) -> None:
    """Writes JSON so that `path` is either absent or whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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


@contextmanager
def atomic_directory(target: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `target`; renames it to `target` when the block succeeds, else removes it.

    Two writers of one address: the first rename wins, the second's work is dropped.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    os.chmod(temporary, 0o755)
    try:
        yield temporary
        for folder, _, names in os.walk(temporary):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    os.fsync(file.fileno())
        try:
            os.rename(temporary, target)
        except OSError:
            if not target.exists():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
