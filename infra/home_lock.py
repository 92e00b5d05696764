"""The lock on LOCKSTEP_HOME, for who works on it outside a run: the same file that a run's Spark server holds."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streaming_core.regression.home import Home


@contextmanager
def hold(home: Home, owner: str, say: Callable[[str], None] = print) -> Iterator[None]:
    """Holds the lock for the length of the block; waits for it, and says for whom.

    Args:
        owner: what others are told while they wait.
        say: takes the one line about waiting.
    """
    path = home.root / "lock.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Opened for appending: whoever waits must not wipe out the holder's name.
    with open(path, "a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for {_holder(lock)}, which holds {home.root}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
        json.dump({"owner": owner, "pid": os.getpid(), "host": socket.gethostname(), "since": since}, lock)
        lock.flush()
        yield


def _holder(lock) -> str:
    lock.seek(0)
    try:
        holder = json.loads(lock.read())
        return f"{holder['owner']} on {holder['host']}"
    except (ValueError, LookupError, TypeError):  # being written this moment
        return "another process"
