"""The folder of a run: its plan, and the attempts at its cells with their results."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from streaming_core.errors import BadInput, one_line
from streaming_core.regression.fleet import losses, why_unused
from streaming_core.regression.home import Home
from streaming_core.regression.plan import Plan, PlannedCell
from streaming_core.regression.status import stop_of
from streaming_core.run.folder import WORK
from streaming_core.run.report import RunReport
from streaming_core.storage import left_json, write_json

STOPPED = "stopped"  # the error in the exit.json of a run that was stopped (infra/hosts/cell.py)


def read_plan(home: Home, run_id: str) -> Plan:
    """plan.json of a run.

    Raises:
        BadInput: The file does not exist, or is not a plan.
    """
    path = home.run(run_id) / "plan.json"
    try:
        plan = json.loads(path.read_text())
    except FileNotFoundError:
        raise BadInput(f"run {run_id} does not exist: {path} is missing") from None
    except ValueError as error:
        raise BadInput(f"{path} is not valid JSON: {error}") from None
    missing = {"workloads", "cells"} - plan.keys() if isinstance(plan, dict) else {"workloads", "cells"}
    if missing:
        raise BadInput(f"{path} is not a plan: it lacks {', '.join(sorted(missing))}")
    return plan


def names_in(path: Path, choose: Callable[[Any], list[str]]) -> list[str]:
    """Names that a JSON file of a run holds; an empty list if the file does not exist.

    Args:
        path: The file.
        choose: Takes the names out of the content.

    Raises:
        BadInput: The file is damaged.
    """
    try:
        return choose(json.loads(path.read_text()))
    except FileNotFoundError:
        return []
    except (ValueError, LookupError, TypeError, AttributeError):
        raise BadInput(f"{path} is damaged: repair it, or remove {path.parent}") from None


def read_oracles(home: Home, run_id: str) -> dict[str, str]:
    """Workload address -> oracle address, from the task run_oracle; empty if that task has not run."""
    path = home.run(run_id) / "oracles.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def complain(home: Home, run_id: str, job: str, complaints: dict[str, str]) -> None:
    """Record the workloads that a job could not process. This replaces what an earlier try of the job recorded.

    Args:
        home: LOCKSTEP_HOME.
        run_id: The run.
        job: The job.
        complaints: Workload address -> the reason, in one line.
    """
    path = home.run(run_id) / "complaints.json"
    write_json(path, left_json(path) | {job: complaints})


def read_complaints(home: Home, run_id: str, *jobs: str) -> dict[str, str]:
    """Workload address -> why it has no oracle.

    Args:
        home: LOCKSTEP_HOME.
        run_id: The run.
        jobs: The jobs whose complaints count; without any, all jobs. The first complaint about a workload wins.
    """
    by_job = left_json(home.run(run_id) / "complaints.json")
    chosen = [by_job.get(job, {}) for job in jobs or ("prepare_workloads", "run_oracle")]
    return {address: line for complaints in reversed(chosen) for address, line in complaints.items()}


@dataclass(frozen=True)
class Attempt:
    """One attempt at a cell. `status` is ok, failed or not_run; `error` gives the reason unless it is ok."""

    number: int
    path: Path | None
    status: str
    error: str | None
    report: RunReport | None
    exit: dict

    @property
    def folder(self) -> Path:
        """`path` of an attempt that exists."""
        assert self.path is not None
        return self.path

    @property
    def measured(self) -> RunReport:
        """`report` of an attempt that is ok."""
        assert self.report is not None
        return self.report


def attempts(home: Home, run_id: str, cell: PlannedCell) -> list[Attempt]:
    """Every attempt at a planned cell, oldest first; without any, a single one with status `not_run`.

    An attempt is `ok` if its report matches the cell's spec and workload, and its exit code is 0 or unknown.
    """
    folder = home.cell(run_id, cell["cell"])
    folders = sorted((int(p.name.removeprefix("attempt-")), p) for p in folder.glob("attempt-[0-9]*") if p.is_dir())
    if folders:
        stopped_by = stop_of(home, run_id, cell["cell"]) or ""
        lost = {host: reason for host, reason in losses(home, run_id).items() if cell.get("host", host) == host}
        return [_attempt(number, path, cell, stopped_by, lost) for number, path in folders]
    error = "it never started"
    if (host := cell.get("host")) and (reason := why_unused(home, run_id, host)):
        error += f": {reason}"
    elif cell["workload"] not in read_oracles(home, run_id):
        error += f": {read_complaints(home, run_id).get(cell['workload'], 'its workload has no oracle')}"
    return [Attempt(0, None, "not_run", error, None, {})]


def _attempt(number: int, path: Path, cell: PlannedCell, stopped_by: str, lost: dict[str, str]) -> Attempt:
    left = left_json(path / "exit.json")
    report, complaint = _read_report(path / "report.json", cell)
    code = left.get("exit_code")
    if not left and report is None and complaint is None:
        status, error = "not_run", "it wrote neither report.json nor exit.json"
        if lost:
            error = f"it has no result: {'; '.join(f'host {host} was lost: {reason}' for host, reason in lost.items())}"
    elif code not in (0, None):
        status, error = "failed", left.get("error") or f"it ended with exit code {code}"
        if stopped_by and error == STOPPED:
            error = f"{STOPPED} by {stopped_by}"
    elif complaint or report is None:
        status, error = "failed", complaint or "it ended with exit code 0, but wrote no report.json"
    else:
        status, error = "ok", None
    return Attempt(number, path, status, " ".join(error.split()) if error else None, report, left)


def _read_report(path: Path, cell: PlannedCell) -> tuple[RunReport | None, str | None]:
    if not path.is_file():
        return None, None
    try:
        report = RunReport.model_validate_json(path.read_bytes())
    except ValidationError as error:
        return None, f"report.json is not a run report: {one_line(error).partition('; ')[0]}"
    # With the placement `every`, the name of a planned cell ends with its host (regression/matrix.py).
    if report.cell != cell["cell"].removesuffix(f".{cell.get('host')}"):
        return None, f"report.json belongs to another cell, {report.cell}"
    if report.workload.get("address") != cell["workload"]:
        return None, f"it ran on workload {report.workload.get('address')}, but the plan says {cell['workload']}"
    if not report.samples:
        return None, "report.json has no measured pass"
    return report, None


def next_attempt(folder: Path) -> Path:
    """The folder of the attempt to run now: the last one if it has not ended, else a new one."""
    number = max((_number(path) for path in folder.glob("attempt-[0-9]*") if path.is_dir()), default=0)
    last = folder / f"attempt-{number}"
    if last.is_dir() and not (last / "exit.json").exists() and not _lost(last).exists():
        return last
    return folder / f"attempt-{number + 1}"


def abandon_stopped(folder: Path) -> None:
    """Record that the last attempt was lost if it was stopped, because the lane that ran it was killed."""
    attempt = next_attempt(folder)
    before = attempt.with_name(f"attempt-{_number(attempt) - 1}")
    if left_json(before / "exit.json").get("error") == STOPPED:
        abandon(before)


def abandon(attempt: Path) -> None:
    """Record that an attempt was lost, so that the next try makes a new one."""
    _lost(attempt).write_text(time.strftime("%Y-%m-%dT%H:%M:%SZ\n", time.gmtime()))


def inherit(attempt: Path) -> Path | None:
    """Let a new attempt go on from the checkpoints of the last lost one; returns that one, None if it left none.

    The lost engine may still be at work on a host that is out of reach. It changes no file that a checkpoint counts, so
    the new attempt links these files. The engine takes the newest sound checkpoint.
    """
    for number in range(_number(attempt) - 1, 0, -1):
        before = attempt.with_name(f"attempt-{number}")
        if not _lost(before).exists() or not (checkpoints := _files(before / WORK / "checkpoints")):
            continue
        # At its end, an engine moves the outputs out of the folder of its work.
        outputs = _files(before / WORK / "outputs") or _files(before / "outputs")
        for name, files in (("outputs", outputs), ("checkpoints", checkpoints)):
            folder = attempt / WORK / name
            folder.mkdir(parents=True, exist_ok=True)
            for file in files:
                _link(file, folder / file.name)
        return before
    return None


def forget_checkpoints(cell: Path) -> None:
    """Remove what the attempts at a cell that is over left for the next attempt."""
    for work in cell.glob(f"attempt-*/{WORK}"):
        shutil.rmtree(work, ignore_errors=True)


def _files(folder: Path) -> list[Path]:
    """The files that have their name already."""
    return sorted(folder.glob("[!.]*"))


def _link(file: Path, to: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # the engine at work has removed it, and has a newer one
        try:
            os.link(file, to)
        except FileExistsError:
            return
        except OSError:  # a file system without links
            shutil.copyfile(file, to)


def _number(attempt: Path) -> int:
    return int(attempt.name.removeprefix("attempt-"))


def _lost(attempt: Path) -> Path:
    return attempt.with_name(f"{attempt.name}.lost")
