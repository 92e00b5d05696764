"""When the stages of a run were at work, noted in its folder: reports/stages.py shows it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from infra.checkout import home
from streaming_core.storage import write_json


@contextmanager
def noted(run: str, stage: str, part: str | None = None) -> Iterator[None]:
    """Notes when a task of a run began and ended, however it ended; of one that is tried again, the last time.

    Args:
        stage: the task.
        part: which of them, of a task that there are several of.
    """
    began = time.time()
    try:
        yield
    finally:
        times = {"stage": stage, "began": began, "ended": time.time()}
        write_json(home().run(run) / "stages" / f"{part or stage}.json", times)
