"""The lock on LOCKSTEP_HOME, for who works on it outside a run: the same file that a run's Spark server holds."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streaming_core.regression.home import Home
from streaming_core.storage import Lock


@contextmanager
def hold(home: Home, owner: str, say: Callable[[str], None] = print) -> Iterator[None]:
    """Holds the lock for the length of the block; waits for it, and says for whom.

    Args:
        owner: what others are told while they wait.
        say: takes the one line about waiting.
    """
    home.root.mkdir(parents=True, exist_ok=True)
    lock = home_lock(home)
    if not lock.take(about(owner)):
        say(f"waiting for {_holder(lock)}, which holds {home.root}")
        lock.wait(about(owner))
    try:
        yield
    finally:
        lock.leave()


def home_lock(home: Home) -> Lock:
    """The lock itself."""
    return Lock(home.root / "lock.json")


def about(owner: str) -> str:
    """What others read about this process while it holds the lock."""
    since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
    return json.dumps({"owner": owner, "pid": os.getpid(), "host": socket.gethostname(), "since": since})


def _holder(lock: Lock) -> str:
    try:
        holder = json.loads(lock.holder() or "")
        return f"{holder['owner']} on {holder['host']}"
    except (ValueError, LookupError, TypeError):  # being written this moment
        return "another process"
