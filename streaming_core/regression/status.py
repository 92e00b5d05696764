"""The status of a run: in progress, finished, stopped or dead, and which stages failed.

The tasks of a run write it, and every page, report and exit code reads it:

    runs/<run id>/stages/<part>.json   one task: its stage, when it began and ended (epoch seconds), its error
    runs/<run id>/stops/<part>.json    a stage or a cell that a user stopped in Airflow
    runs/<run id>/status.json          how the run ended, written last; removed if a person clears a task of the run
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from streaming_core.errors import line_of
from streaming_core.interruption import Interrupted
from streaming_core.regression.home import Home
from streaming_core.regression.stages import AFTER_CELLS, AFTER_PAGES, WITH_CELLS, Stage
from streaming_core.storage import left_json, write_json

State = Literal["in_progress", "finished", "stopped", "died"]
LONGEST_ERROR = 400  # characters


@dataclass(frozen=True)
class Status:
    """How far a run is, or how it ended.

    Attributes:
        state: `stopped` by a person, or `died` with its process.
        ended: when it ended, in epoch seconds; None if it is in progress or nothing recorded it.
        failures: the stages after the cells that failed or never ran, and why, in the order of the stages.
        by: the person that stopped it, if known.
        cells: the number of cells whose core run ended.
    """

    state: State = "finished"
    ended: float | None = None
    failures: dict[Stage, str] = field(default_factory=dict)
    by: str = ""
    cells: int = 0

    def progress(self, planned: int) -> str:
        """`3 of 14 cells have run`."""
        return f"{self.cells} of {planned} cells have run"


@contextmanager
def recorded(home: Home, run_id: str, stage: str, part: str | None = None) -> Iterator[None]:
    """Record when a task of a run begins and ends, and the error that it ends with. A retry replaces the record.

    A task that a person stops has no end.

    Args:
        home: the LOCKSTEP_HOME of the run.
        run_id: the run.
        stage: the stage that the task belongs to.
        part: the task's part of a stage that consists of several tasks.
    """
    part = part or stage
    record_begin(home, run_id, stage, part)
    try:
        yield
    except Interrupted:
        raise
    except BaseException as error:
        record_end(home, run_id, part, line_of(error))
        raise
    record_end(home, run_id, part)


def record_begin(home: Home, run_id: str, stage: str, part: str) -> None:
    """Record that a part of a run begins, for work that ends in another process; see `recorded`.

    A run that had ended goes on.
    """
    (home.run(run_id) / "status.json").unlink(missing_ok=True)
    record = {"stage": str(stage), "began": time.time(), "ended": None, "error": None}
    write_json(_record(home, run_id, part), record)


def record_end(home: Home, run_id: str, part: str, error: str | None = None) -> None:
    """Record that a part of a run ends, and the error that it ends with."""
    path = _record(home, run_id, part)
    write_json(path, left_json(path) | {"ended": time.time(), "error": error and error[:LONGEST_ERROR]})


def forget(home: Home, run_id: str, *parts: str) -> None:
    """Drop the records of parts of a run that have to begin again."""
    for part in parts:
        _record(home, run_id, part).unlink(missing_ok=True)


def _record(home: Home, run_id: str, part: str) -> Path:
    return home.run(run_id) / "stages" / f"{part}.json"


def records(home: Home, run_id: str) -> dict[str, dict[str, Any]]:
    """The records of a run's tasks, by part. A damaged file is no record."""
    known = {path.stem: left_json(path) for path in sorted((home.run(run_id) / "stages").glob("*.json"))}
    return {part: record for part, record in known.items() if "stage" in record}


def record_stop(home: Home, run_id: str, by: str, part: str) -> None:
    """Record that a person stops a part of a run. A run that has no folder yet has nothing to stop.

    Args:
        home: the LOCKSTEP_HOME of the run.
        run_id: the run.
        by: the person.
        part: the stage or cell that the person stops.
    """
    if home.run(run_id).is_dir():
        write_json(home.run(run_id) / "stops" / f"{part}.json", {"by": by, "at": time.time()})


def stop_of(home: Home, run_id: str, part: str) -> str | None:
    """The person that stopped a part of a run; None if it was not stopped, or has begun again since then."""
    stop, record = left_json(home.run(run_id) / "stops" / f"{part}.json"), left_json(_record(home, run_id, part))
    return stop["by"] if stop and stop["at"] >= (record.get("began") or 0.0) else None


def conclude(home: Home, run_id: str, states: Mapping[str, str | None]) -> Status:
    """Write how a run ended, from the final states of Airflow's tasks.

    Args:
        home: the LOCKSTEP_HOME of the run.
        run_id: the run.
        states: Airflow's state of each task after the cells; None if the task never began.
    """
    known = records(home, run_id)
    failures = {
        stage: f"stopped by {person}"
        if (person := stop_of(home, run_id, stage))
        else (known.get(stage) or {}).get("error") or f"Airflow's task is {states.get(stage) or 'missing'}"
        for stage in AFTER_CELLS
        if states.get(stage) != "success"
    }
    # Airflow skips the tasks that have not begun when a person ends a run. Otherwise each of them succeeds or fails.
    if all(states.get(stage) in ("success", "failed") for stage in AFTER_CELLS):
        return end(home, run_id, "finished", failures)
    return end(home, run_id, "stopped")


def end(home: Home, run_id: str, state: State, failures: dict[Stage, str] | None = None, by: str = "") -> Status:
    """Write how a run ended; see `Status`."""
    content = {"state": state, "ended": time.time(), "failures": failures or {}, "by": by}
    write_json(home.run(run_id) / "status.json", content)
    return status_of(home, run_id)


def status_of(home: Home, run_id: str) -> Status:
    """The status of a run. A run without records, such as one of `lockstep check`, counts as finished."""
    known = records(home, run_id)
    cells = sum(record.get("stage") in WITH_CELLS and record.get("ended") is not None for record in known.values())
    written = left_json(home.run(run_id) / "status.json")
    if written:
        failures = {Stage(name): error for name, error in written["failures"].items()}
        return Status(written["state"], written["ended"], failures, written["by"], cells)
    failures = {stage: known[stage]["error"] for stage in AFTER_CELLS if known.get(stage, {}).get("error")}
    # When the pages are written, everything that they show has ended, unless a person cleared it after that.
    written_at = known.get(Stage.PUBLISH_REPORTS, {}).get("began")
    shown = [record["began"] for record in known.values() if record["stage"] not in AFTER_PAGES]
    finished = not known or (written_at is not None and written_at == max(shown, default=None))
    return Status("finished" if finished else "in_progress", None, failures, "", cells)


def state_of(home: Home, run_id: str) -> State:
    """The state of a run alone. It reads one file of a run that ended, where `status_of` reads one per task."""
    return left_json(home.run(run_id) / "status.json").get("state") or status_of(home, run_id).state
