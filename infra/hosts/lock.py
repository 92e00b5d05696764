"""Locks with a holder's signature in JSON: owner, process, host and time, and details for the processes that wait.

The keeper of a run's Spark server holds the lock on LOCKSTEP_HOME during a run. Other commands hold it while they
change LOCKSTEP_HOME. A process that measures holds the lock on its host.

Workers on several machines may share LOCKSTEP_HOME over NFS 4. Linux then asks the NFS server for each `flock`. The
mount must not have the options `nolock` or `local_lock`, with which a lock holds on one machine only. Renames must be
atomic, which NFS ensures. The lock on a host is a file outside LOCKSTEP_HOME. Not tested on NFS.
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
    """The lock on this host, which all its users share."""
    return Lock(os.environ.get("LOCKSTEP_HOST_LOCK", "/tmp/lockstep-host.lock"), shared=True)


def host_in_use(lock: Lock) -> str:
    """The line of a process that waits for this host: `waiting: the host is in use by ...`."""
    return f"waiting: the host is in use by {(lock.holder() or '').strip() or 'another cell'}"


def signature(owner: str, **details: str) -> str:
    """The signature of a lock that this process holds as `owner`."""
    since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
    return json.dumps({"owner": owner, "pid": os.getpid(), "host": socket.gethostname(), "since": since, **details})


def holder(lock: Lock) -> dict:
    """The signature of a lock's holder; {} if the lock is free, or its holder is just signing."""
    try:
        return json.loads(lock.holder() or "{}")
    except ValueError:
        return {}


@contextmanager
def hold(home: Home, owner: str, say: Callable[[str], None] = print) -> Iterator[None]:
    """Hold the lock on LOCKSTEP_HOME during the block; wait until it is free.

    Args:
        home: LOCKSTEP_HOME.
        owner: The name that waiting processes see.
        say: Takes one line if the lock is not free.
    """
    home.root.mkdir(parents=True, exist_ok=True)
    lock = of_home(home)
    if not lock.take(signature(owner)):
        by = holder(lock)
        user = f"{by['owner']} on {by['host']} since {by['since']}" if by else "another process"
        say(f"waiting: {home.root} is in use by {user}")
        lock.wait(signature(owner))
    try:
        yield
    finally:
        lock.leave()
