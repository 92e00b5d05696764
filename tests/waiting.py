"""What tests of several processes wait for: that something becomes true, or that a process is there no more."""

import time
from collections.abc import Callable
from typing import Any

import psutil


def wait_for(condition: Callable[[], Any], patience: float) -> Any:
    """What `condition` gives as soon as that is true; the test fails if it is not within `patience` seconds."""
    deadline = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)
    return value


def alive(pid: int) -> bool:
    """Whether a process is there, and not only because nobody has asked yet how it ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
