"""Confines this process to a number of cores, so that a way of executing gets no more cores than it has threads.

Threads that exist when the confinement begins are confined, and so are the threads that they start. The runtime then
binds threads to these cores only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streaming_core.run import probe

TASKS = Path("/proc/self/task")


@contextmanager
def confined(threads: int) -> Iterator[list[int]]:
    """Confine the process to the first `threads` cores, in the order in which the runtime binds threads.

    Yields the cores. With at least as many threads as cores, nothing changes.
    """
    cores = [core["id"] for core in probe.topology()["cores"]][:threads]
    if len(cores) < threads or set(cores) == os.sched_getaffinity(0):
        yield cores
        return
    before = {task: os.sched_getaffinity(task) for task in _tasks()}
    _confine({task: set(cores) for task in before})
    try:
        yield cores
    finally:
        # Threads that were started meanwhile get what the main thread had.
        usual = before[os.getpid()]
        _confine({task: before.get(task, usual) for task in _tasks()})


def _tasks() -> list[int]:
    return [int(path.name) for path in TASKS.iterdir()]


def _confine(cores: dict[int, set[int]]) -> None:
    for task, chosen in cores.items():
        with suppress(ProcessLookupError):  # a thread may end at any time
            os.sched_setaffinity(task, chosen)
