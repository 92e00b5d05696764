"""The hosts of a run, and the queues of its cells. A *lane* is the task of a run that executes cells on one host.

The task `run_on_spark` executes the cells of executor spark. It has a queue too, whose host is a Spark connection.

    runs/<run id>/hosts.json          the preflight of each host (preflight.py); a host with a `reason` has no lane
    runs/<run id>/claims/<cell>.json  the lane that took a cell: its host and round, whether the cell is over, the error
    runs/<run id>/lost/<host>.json    why a host was lost while the run was in progress

A lane takes a cell by creating the claim with `link`, which fails if the file exists, over NFS too. Only the lane of
that host changes the claim. A claim that is over stays, so a lane that has seen every cell over has nothing left to do.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from streaming_core.regression.home import Home
from streaming_core.regression.plan import PlannedCell, left_plan
from streaming_core.regression.preflight import preflights_of
from streaming_core.regression.project import named
from streaming_core.run.way import Spark, executor_of
from streaming_core.storage import below, left_json, write_json

LOCAL = named("local")  # the connection of this machine
SPARK = named("spark_default")  # the Spark connection of a run that names none


class Claim(NamedTuple):
    """A lane's claim to a cell.

    Attributes:
        host: the connection of the lane's host.
        round: how often a person had cleared the lane in Airflow.
        is_over: whether the cell needs nothing more of any lane.
        error: why it failed; None if it did not.
    """

    host: str
    round: int = 0
    is_over: bool = False
    error: str | None = None


def is_on_spark(cell: Mapping[str, Any]) -> bool:
    """Whether a planned cell runs on Spark. Its host is then the run's Spark connection, and no lane takes it."""
    return cell["spec"]["executor"] == Spark.name()


def is_of_engine(cell: Mapping[str, Any]) -> bool:
    """Whether Lockstep's engine runs a planned cell, so that any lane may take it. Other cells name their host."""
    return executor_of(cell["spec"]["executor"]).is_engine


def fit_hosts(home: Home, run_id: str) -> list[str]:
    """The hosts of a run that have a lane, in the order of the request."""
    unfit = _unfit(home, run_id)
    requested = left_plan(home, run_id).get("regression", {}).get("hosts", [])
    return [host for host in requested if host not in unfit]


def _unfit(home: Home, run_id: str) -> dict[str, str]:
    """The hosts that the preflight left out of a run, and why."""
    return {preflight.host: preflight.reason for preflight in preflights_of(home, run_id) if preflight.reason}


def record_loss(home: Home, run_id: str, host: str, reason: str) -> None:
    """Record that a host was lost while the run was in progress."""
    # Two lanes may lose their hosts at once, so each loss has a file of its own.
    write_json(below(home.run(run_id), "lost", host).with_name(f"{host}.json"), {"reason": reason})


def losses(home: Home, run_id: str) -> dict[str, str]:
    """The hosts that were lost while a run was in progress, and why."""
    return {path.stem: left_json(path).get("reason", "") for path in (home.run(run_id) / "lost").glob("*.json")}


def why_unused(home: Home, run_id: str, host: str) -> str | None:
    """Why a host ran no more cells of a run; None if it was neither left out nor lost."""
    if reason := _unfit(home, run_id).get(host):
        return f"host {host} was left out of the run: {reason}"
    if reason := losses(home, run_id).get(host):
        return f"host {host} was lost: {reason}"
    return None


def claims(home: Home, run_id: str) -> dict[str, Claim]:
    """The claims to cells of a run, by cell."""
    paths = (home.run(run_id) / "claims").glob("[!.]*.json")
    return {path.stem: Claim(**left) for path in paths if (left := left_json(path))}


def reset(home: Home, run_id: str) -> None:
    """Drop all claims and losses of a run, so that its cells run again."""
    for name in ("claims", "lost"):
        shutil.rmtree(home.run(run_id) / name, ignore_errors=True)


class Queue:
    """The cells of a run as one lane sees them.

    With `placement: every`, each planned cell names its host. With `any`, every lane may take a cell without hosts.
    A cell on Spark always names its connection, and a cell of another engine names this machine.
    """

    def __init__(self, home: Home, run_id: str, host: str, round_: int = 0):
        self.host = host
        self._round = round_
        self._run = home.run(run_id)

    @cached_property
    def cells(self) -> dict[str, PlannedCell]:
        """The planned cells that this lane may take, by name."""
        planned = json.loads((self._run / "plan.json").read_text())["cells"]
        return {
            cell["cell"]: cell
            for cell in planned
            if cell.get("host", self.host) == self.host and self.host in cell.get("hosts", [self.host])
        }

    @property
    def is_over(self) -> bool:
        """Whether every cell that this lane may take is over."""
        return not self._free and not self._is_in_progress

    @property
    def waits(self) -> bool:
        """Whether other lanes hold every cell that is not over."""
        return not self._free and self._is_in_progress

    @property
    def failures(self) -> dict[str, str]:
        """This lane's failed cells, and why they failed."""
        own = {name: claim for name in self.cells if (claim := self._own(name))}
        return {name: claim.error for name, claim in own.items() if claim.error}

    def renew(self) -> None:
        """Give back the failed cells of a lane that a person has cleared since then, so that they run again."""
        for name in self.cells:
            claim = self._own(name)
            if claim and claim.round != self._round and (claim.error or not claim.is_over):
                self.give_back(name)

    @property
    def begun(self) -> PlannedCell | None:
        """The planned cell that this lane took, and that is not over."""
        own = ((cell, self._own(name)) for name, cell in self.cells.items())
        return next((cell for cell, claim in own if claim and not claim.is_over), None)

    def take(self) -> PlannedCell | None:
        """The planned cell that this lane runs next: the one that it began, else a free one; None if there is none."""
        return self.begun or next((self.cells[name] for name in self._free if self._take(name)), None)

    def finish(self, cell: str, error: str | None = None) -> None:
        """Record that a cell of this lane is over."""
        write_json(self._path(cell), Claim(self.host, self._round, True, error)._asdict())

    def give_back(self, cell: str) -> None:
        """Let any lane take a cell that this lane has taken."""
        self._path(cell).unlink(missing_ok=True)

    @property
    def _free(self) -> list[str]:
        """The cells that no lane has claimed, in the order of the plan: one scan of the folder, and no file is read."""
        try:
            files = set(os.listdir(self._run / "claims"))
        except FileNotFoundError:
            files = set()
        return [cell for cell in self.cells if f"{cell}.json" not in files]

    @property
    def _is_in_progress(self) -> bool:
        """Whether a claim is not over. Lanes take cells in order, so the last ones answer first."""
        return any((claim := self._claim(cell)) is None or not claim.is_over for cell in reversed(self.cells))

    def _take(self, cell: str) -> bool:
        path = self._path(cell)
        own = path.with_name(f".{cell}.{self.host}")
        write_json(own, Claim(self.host, self._round)._asdict())
        try:
            with contextlib.suppress(FileExistsError):
                os.link(own, path)
            # An NFS client may repeat a request whose answer was lost. The number of links tells what happened.
            return own.stat().st_nlink == 2
        finally:
            own.unlink()

    def _own(self, cell: str) -> Claim | None:
        claim = self._claim(cell)
        return claim if claim and claim.host == self.host else None

    def _claim(self, cell: str) -> Claim | None:
        left = left_json(self._path(cell))
        return Claim(**left) if left else None

    def _path(self, cell: str) -> Path:
        return below(self._run / "claims", cell).with_name(f"{cell}.json")


class SparkQueue(Queue):
    """The cells of a run on Spark, as the task `run_on_spark` sees them. Its host is the run's Spark connection."""

    @cached_property
    def cells(self) -> dict[str, PlannedCell]:
        """The planned cells on Spark, by name."""
        return {name: cell for name, cell in super().cells.items() if is_on_spark(cell)}
