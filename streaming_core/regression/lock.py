"""The locks that keep processes apart while several runs go on, each with the signatures of its holders.

| lock | shared by | alone for |
|---|---|---|
| `of_home`, LOCKSTEP_HOME | runs, and commands that add to it | prune, backup and retention |
| `of_host`, this machine | stages of runs | what measures: a cell, a pair, a search |
| `of_warehouse` | - | each write of raw results, marts or pages |

A process takes them in this order, and never one that it has. The keeper of a run's Spark server holds LOCKSTEP_HOME
during the run, so no task of the run takes that lock.

A signature is JSON: owner, process, host and time, and details for the processes that wait. The kernel releases the
lock of a process that dies.

Workers on several machines may share LOCKSTEP_HOME over NFS 4. Linux then asks the NFS server for each `flock`. The
mount must not have the options `nolock` or `local_lock`, with which a lock holds on one machine only. Renames must be
atomic, which NFS ensures. The lock on a host is a file outside LOCKSTEP_HOME. Not tested on NFS.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streaming_core import interruption
from streaming_core.regression.home import RUN_ID, Home
from streaming_core.storage import POLL_SECONDS, Lock


class SharedLock:
    """A lock that one process has alone, or several share.

    It consists of several files. PATH is the lock itself, with the signature of a process that has it alone. PATH.0 and
    so on have one signature each of the processes that share it. PATH.next is the head of the queue: only its holder
    tries the lock. So a process that wants the lock alone gets it when those that share it now have left.
    """

    def __init__(self, path: Path, what: str, of_all_users: bool = False):
        """Prepare the lock.

        Args:
            path: Its first file.
            what: What it is a lock on, for the line of a process that waits.
            of_all_users: Every user of this machine may take it.
        """
        self.path = path
        self.what = what
        self._of_all_users = of_all_users
        self._lock = self._beside("")
        self._next = self._beside(".next")
        self._place: Lock | None = None

    def _beside(self, suffix: str) -> Lock:
        return Lock(f"{self.path}{suffix}", self._of_all_users)

    def _places(self) -> Iterator[Lock]:
        return (self._beside(f".{number}") for number in itertools.count())

    def take(self, signature: str, shared: bool = False) -> bool:
        """Take the lock, or the next place in its queue; False if this process has to wait.

        Args:
            signature: The signature of this process.
            shared: Share the lock.
        """
        if not self._next.is_taken and not self._next.take(signature):
            return False
        if not self._lock.take(signature, shared):
            return False
        if shared:
            self._place = next(place for place in self._places() if place.take(signature))
        self._next.leave()
        return True

    def leave(self) -> None:
        """Release the lock, or the place in its queue."""
        if self._place is not None:
            self._place.leave()
            self._place = None
        elif self._lock.is_taken:
            self._lock.tell("")  # a signature that stays is that of a process that was killed
        self._lock.leave()
        self._next.leave()

    @property
    def remains(self) -> dict[str, Any]:
        """The signature of the last process that had the lock alone, if it was killed; else {}."""
        return _read(self._lock.remains)

    def holders(self) -> list[dict[str, Any]]:
        """The signatures of the processes that have the lock."""
        if (alone := self._lock.holder()) is not None:
            return [_read(alone)]
        places = itertools.takewhile(lambda place: place.path.exists(), self._places())
        return [_read(text) for place in places if (text := place.holder()) is not None]

    @property
    def users(self) -> str:
        """The processes that have the lock, as text; empty if it is free."""
        return _names(self.holders())

    def ahead(self, shared: bool = False) -> list[dict[str, Any]]:
        """The signatures of the processes that this one would wait for now; see `take`."""
        alone, first = self._lock.holder(), None if self._next.is_taken else self._next.holder()
        before = ([] if alone is None else [_read(alone)]) if shared else self.holders()
        return [*before, *([] if first is None else [_read(first)])]

    def waiting(self, shared: bool = False) -> str:
        """The line of a process that waits: `waiting: the host is in use by ...`; empty if it need not wait."""
        users = _names(self.ahead(shared))
        return f"waiting: {self.what} is in use by {users}" if users else ""


def of_home(home: Home) -> SharedLock:
    """The lock on LOCKSTEP_HOME."""
    return SharedLock(home.root / "lock.json", str(home.root))


def of_host() -> SharedLock:
    """The lock on this host, which all its users share."""
    path = Path(os.environ.get("LOCKSTEP_HOST_LOCK", "/tmp/lockstep-host.lock"))
    return SharedLock(path, "the host", of_all_users=True)


def of_warehouse(home: Home) -> SharedLock:
    """The lock on the warehouse and the pages."""
    return SharedLock(home.root / "warehouse" / "lock.json", "the warehouse")


def signature(owner: str, **details: str) -> str:
    """The signature of a lock that this process holds as `owner`."""
    since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
    return json.dumps({"owner": owner, "pid": os.getpid(), "host": socket.gethostname(), "since": since, **details})


def holder(lock: Lock) -> dict[str, Any]:
    """The signature of a lock's holder; {} if the lock is free, or its holder is just signing."""
    return _read(lock.holder() or "")


def _read(text: str) -> dict[str, Any]:
    try:
        return json.loads(text or "{}")
    except ValueError:  # its holder is just signing
        return {}


def _names(signatures: list[dict[str, Any]]) -> str:
    return ", ".join(map(_name, signatures))


def _name(owner: dict[str, Any]) -> str:
    if not owner:
        return "another process"
    name = f"run {owner['owner']}" if RUN_ID.fullmatch(owner["owner"]) else owner["owner"]
    of_run = f" of run {owner['run']}" if "run" in owner else ""
    return f"{name}{of_run} on {owner['host']} since {owner['since']}"


@contextmanager
def hold(
    lock: SharedLock,
    owner: str,
    shared: bool = False,
    say: Callable[[str], None] = print,
    check: Callable[[], None] = interruption.check,
    run: str = "",
    server: str = "",
) -> Iterator[None]:
    """Hold a lock during the block; wait until it is free.

    Args:
        lock: The lock.
        owner: The name that waiting processes see, such as the id of a run.
        shared: Share the lock.
        say: Takes a line that names the processes that this one waits for, and another one when they change.
        check: Called while this process waits. It raises to end the wait.
        run: The id of the run that the owner is a part of; empty if it is part of none.
        server: The owner of the Spark server that works under the lock; empty without one.
    """
    lock.path.parent.mkdir(parents=True, exist_ok=True)
    details, last = {name: value for name, value in (("run", run), ("server", server)) if value}, ""
    try:
        while not lock.take(signature(owner, **details), shared):
            check()
            if (line := lock.waiting(shared)) not in ("", last):
                say(last := line)
            time.sleep(POLL_SECONDS)
        yield
    finally:
        lock.leave()
