"""Who uses AIRFLOW_HOME: one `make run` or one `make ui` at a time, because both would schedule the same tasks.

Held as a lock on a file, so that it ends with its process however that ends.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path


class Occupancy:
    """The lock of one AIRFLOW_HOME."""

    def __init__(self, airflow_home: Path):
        airflow_home.mkdir(parents=True, exist_ok=True)
        self._path = airflow_home / "in-use.json"
        self._file = None

    def take(self, what: str, **details: object) -> bool:
        """Takes it for `what` (`run` or `ui`); False when somebody else has it."""
        file = open(self._path, "a+")  # noqa: SIM115  it stays open as long as the lock is held
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._file = file
        self.tell(what, **details)
        return True

    def tell(self, what: str, **details: object) -> None:
        """Replaces what others read about the holder."""
        self._file.seek(0)
        self._file.truncate()
        json.dump({"what": what, "pid": os.getpid(), **details}, self._file)
        self._file.flush()

    def holder(self) -> dict:
        """What the holder told; {} when it has not yet, or there is none."""
        try:
            return json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}

    def leave(self) -> None:
        """Gives it back."""
        if self._file:
            self._file.close()
            self._file = None
