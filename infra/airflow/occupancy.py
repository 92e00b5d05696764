"""Who uses AIRFLOW_HOME: one `make run` or one `make ui` at a time, because both would schedule the same tasks.

Held as a lock on a file, so that it ends with its process however that ends.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from streaming_core.storage import Lock


class Occupancy:
    """The lock of one AIRFLOW_HOME."""

    def __init__(self, airflow_home: Path):
        airflow_home.mkdir(parents=True, exist_ok=True)
        self._lock = Lock(airflow_home / "in-use.json")

    def take(self, what: str, **details: object) -> bool:
        """Takes it for `what` (`run` or `ui`); False when somebody else has it."""
        return self._lock.take(json.dumps({"what": what, "pid": os.getpid(), **details}))

    def holder(self) -> dict:
        """What the holder told; {} when it has not yet, or there is none."""
        try:
            return json.loads(self._lock.path.read_text())
        except (OSError, ValueError):
            return {}

    def leave(self) -> None:
        """Gives it back."""
        self._lock.leave()
