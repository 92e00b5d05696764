"""A run's folder as the jobs read it: its plan, and what became of each attempt at a cell."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from streaming_core.regression.status import stop_of
from streaming_core.run.report import RunReport
from streaming_core.storage import left_json, write_json

STOPPED = "stopped"  # the error in the exit.json of a run that was stopped (infra/services/cell.py)


def read_plan(home: Home, run_id: str) -> dict:
    """plan.json of a run.

    Raises:
        BadInput: it does not exist or is not a plan.
    """
    path = home.run(run_id) / "plan.json"
    try:
        plan = json.loads(path.read_text())
    except FileNotFoundError:
        raise BadInput(f"no run {run_id}: {path} does not exist") from None
    except ValueError as error:
        raise BadInput(f"{path} is not JSON: {error}") from None
    missing = {"workloads", "cells"} - plan.keys() if isinstance(plan, dict) else {"workloads", "cells"}
    if missing:
        raise BadInput(f"{path} is not a plan: it lacks {', '.join(sorted(missing))}")
    return plan


def read_oracles(home: Home, run_id: str) -> dict[str, str]:
    """Workload address -> oracle address, as run_oracle left it; empty where it did not get that far."""
    path = home.run(run_id) / "oracles.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def complain(home: Home, run_id: str, job: str, complaints: dict[str, str]) -> None:
    """Notes for which workloads, and why, a job did not do what it is for: address -> one line. Of what it said when it
    ran before nothing stays."""
    path = home.run(run_id) / "complaints.json"
    write_json(path, left_json(path) | {job: complaints})


def read_complaints(home: Home, run_id: str, *jobs: str) -> dict[str, str]:
    """Workload address -> why it has no oracle, as far as that is known: said first by any job, or by `jobs`."""
    said = left_json(home.run(run_id) / "complaints.json")
    chosen = [said.get(job, {}) for job in jobs or ("prepare_workloads", "run_oracle")]
    return {address: line for complaints in reversed(chosen) for address, line in complaints.items()}


@dataclass(frozen=True)
class Attempt:
    """One attempt at a cell. `status`: ok, failed (then `error` says why) or not_run."""

    number: int
    path: Path | None
    status: str
    error: str | None
    report: RunReport | None
    exit: dict

    @property
    def folder(self) -> Path:
        """`path` of one that was made."""
        assert self.path is not None
        return self.path

    @property
    def measured(self) -> RunReport:
        """`report` of one that is ok."""
        assert self.report is not None
        return self.report


def attempts(home: Home, run_id: str, cell: dict) -> list[Attempt]:
    """Every attempt at a planned cell, oldest first; a single `not_run` one where there is none.

    An attempt is `ok` only when it left a report of this cell's spec on this cell's workload and its command, as
    far as is known, exited with 0.
    """
    folder = home.cell(run_id, cell["cell"])
    found = sorted((int(p.name.removeprefix("attempt-")), p) for p in folder.glob("attempt-[0-9]*") if p.is_dir())
    if found:
        stopped_by = stop_of(home, run_id, cell["cell"]) or ""
        return [_attempt(number, path, cell, stopped_by) for number, path in found]
    error = "it never started"
    if cell["workload"] not in read_oracles(home, run_id):
        error += f": {read_complaints(home, run_id).get(cell['workload'], 'its workload has no oracle')}"
    return [Attempt(0, None, "not_run", error, None, {})]


def _attempt(number: int, path: Path, cell: dict, stopped_by: str) -> Attempt:
    left = left_json(path / "exit.json")
    report, complaint = _read_report(path / "report.json", cell)
    code = left.get("exit_code")
    if not left and report is None and complaint is None:
        status, error = "not_run", "it left neither report.json nor exit.json"
    elif code not in (0, None):
        status, error = "failed", left.get("error") or f"it ended with exit code {code}"
        if stopped_by and error == STOPPED:
            error = f"{STOPPED} by {stopped_by}"
    elif complaint or report is None:
        status, error = "failed", complaint or "it ended with exit code 0 but left no report.json"
    else:
        status, error = "ok", None
    return Attempt(number, path, status, " ".join(error.split()) if error else None, report, left)


def _read_report(path: Path, cell: dict) -> tuple[RunReport | None, str | None]:
    if not path.is_file():
        return None, None
    try:
        report = RunReport.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        return None, f"report.json is no run report: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    if report.cell != cell["cell"]:
        return None, f"report.json is of another cell: {report.cell}"
    if report.workload.get("address") != cell["workload"]:
        return None, f"it ran on workload {report.workload.get('address')}, planned was {cell['workload']}"
    if not report.samples:
        return None, "report.json holds no measured pass"
    return report, None
