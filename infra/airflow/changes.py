"""The changes of tasks that run in this process, as lines of JSON, which `lockstep run` shows.

Only run_dag.py opens them. In every other process of Airflow, nothing reads them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TextIO

_out: TextIO | None = None
_written: set[tuple[str, int]] = set()
_begin: Callable[[str], None] | None = None


def write_to(descriptor: int, begin: Callable[[str], None]) -> None:
    """Write a line for each change from now on.

    Args:
        descriptor: of the file to write to.
        begin: called with Airflow's id of the run once its first task begins, in the process of that task.
    """
    global _out, _begin
    _out, _begin = os.fdopen(descriptor, "w", buffering=1), begin


def tell(task: Any) -> None:
    """Write the state of a task: {"task", "map_index", "label", "state", "start", "end"}, with epoch seconds.

    Args:
        task: an instance of a task, as Airflow hands it to a listener.
    """
    if _out is None:
        return
    if _begin and not _written:
        _begin(task.run_id)
    _written.add((task.task_id, task.map_index))
    start, end = _seconds(task.start_date), None if task.state == "running" else _seconds(task.end_date)
    about = {"task": task.task_id, "map_index": task.map_index, "label": task.rendered_map_index}
    say(about | {"state": task.state, "start": start, "end": end})


def conclude(tasks: Iterable[Any]) -> None:
    """Write the states of the tasks that never began: Airflow tells no listener that it skips them."""
    for task in tasks:
        if (task.task_id, task.map_index) not in _written:
            tell(task)


def say(line: dict) -> None:
    """Write one line."""
    with contextlib.suppress(BrokenPipeError):  # the reader has gone; the run goes on
        assert _out is not None
        _out.write(json.dumps(line) + "\n")


def _seconds(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None
