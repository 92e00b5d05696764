"""Waiting in tests of several processes: for a condition, or for the end of a process."""

import time
from collections.abc import Callable
from typing import Any

import psutil


def wait_for(condition: Callable[[], Any], patience: float) -> Any:
    """Wait until `condition` is true and return its value. The test fails after `patience` seconds."""
    deadline = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)
    return value


def alive(pid: int) -> bool:
    """Whether a process runs. One that has ended and that its parent has not waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
