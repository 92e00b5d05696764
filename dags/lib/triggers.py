"""Triggers that a lane waits for, while its worker slot is free: for a cell on another machine, and for other lanes.

`CellTrigger` holds an SSH connection that runs infra/hosts/cell.py. That program never starts an engine twice: a
second call waits for the attempt, or reads how it ended. So a lost connection, a triggerer that restarts, and a lane
that runs again all do the same: they call it again.

Airflow's `SSHRemoteJobOperator` works with a job folder on the host, a random id for each try, and a shell wrapper that
writes an exit code. Each of them duplicates a part of cell.py, which also holds the host's lock and verifies a
process by its start time. A subclass would have to disable all three and its polling, so these triggers use only the
provider's asynchronous hook.

All triggers of a triggerer share one event loop. LOCKSTEP_HOME may be a slow network file system, so triggers read and
write it in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypedDict

import asyncssh
from airflow.providers.ssh.hooks.ssh import SSHHookAsync
from airflow.triggers.base import BaseTrigger, TriggerEvent

from infra.hosts.mirror import fetch_checkpoints
from streaming_core.errors import line_of
from streaming_core.regression.fleet import Queue
from streaming_core.regression.home import Home

KEEPALIVE_SECONDS = 15
LONGEST_PAUSE = 15.0  # seconds between two tries to connect, or two looks at the queue
FETCH_SECONDS = 30.0  # between two looks for a newer checkpoint
UNREACHABLE = (OSError, asyncssh.Error, TimeoutError)
asyncssh.set_log_level("WARNING")  # it logs several lines for each connection


class LaneKey(TypedDict):
    """The lane that a trigger belongs to. Airflow stores it with the trigger, as JSON.

    Attributes:
        home: LOCKSTEP_HOME on this machine.
        run: The run.
        host: The connection of the host.
    """

    home: str
    run: str
    host: str


def queue_of(lane: LaneKey) -> Queue:
    """The queue from which a lane takes cells."""
    return Queue(Home(lane["home"]), lane["run"], lane["host"])


def pauses(growth: float, longest: float) -> Iterator[float]:
    """Seconds between tries, forever: the first pause is a second, and each is `growth` times the one before."""
    pause = 1.0
    while True:
        yield min(pause, longest)
        pause = min(pause * growth, longest)


class CellTrigger(BaseTrigger):
    """Runs an attempt at a cell on another machine, or waits for it if it already runs.

    The event is {"cell", "attempt", "code": the exit code, "line": the last line of its output}. If the host cannot be
    reached for `patience` seconds, it is {"cell", "attempt", "lost": the reason}.
    """

    def __init__(
        self,
        *,
        lane: LaneKey,
        cell: str,
        attempt: str,
        command: Sequence[str],
        stop: Sequence[str],
        patience: float,
        folder: str | None = None,
    ):
        """Keep the arguments.

        Args:
            lane: the lane that waits.
            cell: the cell.
            attempt: the name of the attempt's folder.
            command: the command on the host that runs the attempt.
            stop: the command on the host that stops it.
            patience: seconds without a connection after which the host is lost.
            folder: the attempt's folder there, whose checkpoints come here; None if the host mounts LOCKSTEP_HOME.
        """
        super().__init__()
        self.lane = lane
        self.cell = cell
        self.attempt = attempt
        self.command = list(command)
        self.stop = list(stop)
        self.patience = patience
        self.folder = folder

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class, and the arguments of this trigger."""
        names = ("lane", "cell", "attempt", "command", "stop", "patience", "folder")
        arguments = {name: getattr(self, name) for name in names}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the event once the attempt has ended, or the host is lost."""
        event = {"cell": self.cell, "attempt": self.attempt}
        lost_at: float | None = None
        longest = min(LONGEST_PAUSE, max(1.0, self.patience / 4))
        steps = pauses(2.0, longest)
        while True:
            try:
                async with await self._connect() as connection:
                    if lost_at is not None:
                        self.log.info("connected to host %s again", self.lane["host"])
                    lost_at, steps = None, pauses(2.0, longest)
                    async with self._fetching(connection):
                        code, line = await self._follow(connection)
                if code is not None:
                    yield TriggerEvent(event | {"code": code, "line": line})
                    return
                reason = "the connection ended before the cell did"
            except UNREACHABLE as error:
                reason = line_of(error)
            if lost_at is None:
                lost_at = time.monotonic()
                self.log.warning(
                    "lost host %s: %s; connecting again for %.0f s", self.lane["host"], reason, self.patience
                )
            elif time.monotonic() > lost_at + self.patience:
                yield TriggerEvent(event | {"lost": reason})
                return
            await asyncio.sleep(next(steps))

    async def on_kill(self) -> None:
        """Stop the attempt on the host, because a person ends the lane. Airflow limits the time of this call."""
        await asyncio.to_thread(queue_of(self.lane).finish, self.cell, "stopped")
        async with await self._connect() as connection:
            await connection.run(shlex.join(self.stop))

    async def _connect(self) -> asyncssh.SSHClientConnection:
        return await SSHHookAsync(self.lane["host"], keepalive_interval=KEEPALIVE_SECONDS).get_conn()

    @asynccontextmanager
    async def _fetching(self, connection: asyncssh.SSHClientConnection) -> AsyncIterator[None]:
        """Fetch each new checkpoint of the attempt during the block."""
        fetching = asyncio.create_task(self._fetch(connection))
        try:
            yield
        finally:
            fetching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await fetching

    async def _fetch(self, connection: asyncssh.SSHClientConnection) -> None:
        attempt = Home(self.lane["home"]).cell(self.lane["run"], self.cell) / self.attempt
        while self.folder is not None:
            await asyncio.sleep(FETCH_SECONDS)
            try:
                async with connection.start_sftp_client() as sftp:
                    await fetch_checkpoints(sftp, self.folder, attempt)
            except UNREACHABLE as error:  # the cell goes on without it
                self.log.warning("cannot fetch the checkpoints of %s: %s", self.cell, line_of(error))

    async def _follow(self, connection: asyncssh.SSHClientConnection) -> tuple[int | None, str]:
        """Run the command; returns its exit code, None if the connection ended before, and its last line."""
        line = ""
        # A remote shell reads the command, so every word is quoted.
        process = await connection.create_process(
            shlex.join(self.command), stderr=asyncssh.STDOUT, encoding="utf-8", errors="replace"
        )
        async for text in process.stdout:
            if text.strip():
                line = text.rstrip()
                self.log.info("%s", line)
        await process.wait_closed()
        code = process.exit_status
        return (None if code is None or code < 0 else code), line


class OthersTrigger(BaseTrigger):
    """Waits until a lane has work again or none is left: a cell is free, or every cell is over."""

    def __init__(self, *, lane: LaneKey):
        super().__init__()
        self.lane = lane

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class, and the arguments of this trigger."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"lane": self.lane}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an empty event."""
        queue = queue_of(self.lane)
        # The lane goes on late by a tenth of its wait at most.
        steps = pauses(1.1, LONGEST_PAUSE)
        while await asyncio.to_thread(lambda: queue.waits):
            await asyncio.sleep(next(steps))
        yield TriggerEvent({})
