"""Locks that say in JSON who holds them: an owner, its process and host, since when, and what else others need to know.

The one on LOCKSTEP_HOME is held by a run's Spark server, or by who works there outside a run; the one on this host, by
who measures on it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streaming_core.regression.home import Home
from streaming_core.storage import Lock


def of_home(home: Home) -> Lock:
    """The lock on LOCKSTEP_HOME."""
    return Lock(home.root / "lock.json")


def of_host() -> Lock:
    """The lock on this host, whoever works on it."""
    return Lock(os.environ.get("LOCKSTEP_HOST_LOCK", "/tmp/lockstep-host.lock"), shared=True)


def signed(owner: str, **details: str) -> str:
    """What others read while this process holds a lock as `owner`."""
    since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
    return json.dumps({"owner": owner, "pid": os.getpid(), "host": socket.gethostname(), "since": since, **details})


def holder(lock: Lock) -> dict:
    """What its holder signed; {} when there is none, or it is signing this moment."""
    try:
        return json.loads(lock.holder() or "{}")
    except ValueError:
        return {}


@contextmanager
def hold(home: Home, owner: str, say: Callable[[str], None] = print) -> Iterator[None]:
    """Holds the lock on LOCKSTEP_HOME for the length of the block; waits for it, and says for whom.

    Args:
        owner: what others are told while they wait.
        say: takes the one line about waiting.
    """
    home.root.mkdir(parents=True, exist_ok=True)
    lock = of_home(home)
    if not lock.take(signed(owner)):
        by = holder(lock)
        who = f"{by['owner']} on {by['host']}" if by else "another process"
        say(f"waiting for {who}, which holds {home.root}")
        lock.wait(signed(owner))
    try:
        yield
    finally:
        lock.leave()
