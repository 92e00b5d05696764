"""The months whose raw results changed since the last build of the marts.

dbt builds most marts month by month (`incremental` in dbt/dbt_project.yml): a build replaces whole months. After a
build, warehouse/dbt/built.json holds a fingerprint of the raw files of each run, and one of dbt's project. The
difference decides what the next build makes:

| difference | months |
|---|---|
| none | none |
| a new run, a run loaded again, a run without raw files | the month of the run |
| a month without runs, a mart without files, another project, no such file | all |

The fingerprint of a file is its name, size and time of change, so nothing is read.

dbt's own strategy `microbatch` would not replace this module (docs/explanation/history.md has the reasons).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.checkout import ROOT
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import RAW, parts
from streaming_core.storage import left_json, write_json

PROJECT = ROOT / "dbt"
RESULTS = [table for table in RAW if table not in ("finds", "searches", "decisions")]  # those that marts read


@dataclass(frozen=True)
class Months:
    """The months that a build must make.

    Attributes:
        changed: The months to replace, such as `2026-01`.
        is_whole: Whether the build makes all months.
        state: The content of built.json after the build.
    """

    changed: list[str]
    is_whole: bool
    state: dict


def changed(home: Home) -> Months:
    """Compare the raw results with those in the marts."""
    runs = _fingerprints(home)
    state = {"project": _project(), "runs": runs}
    built = left_json(_path(home))
    before: dict[str, str] = built.get("runs", {})
    months = {_month(run) for run in runs.keys() | before.keys() if runs.get(run) != before.get(run)}
    is_gone = bool(months - set(map(_month, runs)))
    marts = home.root / "warehouse" / "marts"
    is_lost = not all((marts / model.stem).is_dir() for model in PROJECT.glob("models/marts/*.sql"))
    return Months(sorted(months), built.get("project") != state["project"] or is_gone or is_lost, state)


def keep(home: Home, state: dict) -> None:
    """Record what the marts hold."""
    write_json(_path(home), state)


def forget(home: Home) -> None:
    """Have the next build make every month."""
    _path(home).unlink(missing_ok=True)


def remove(home: Home) -> None:
    """Remove the files of all marts, before a build of every month: the folder of a month would outlive its runs."""
    forget(home)
    shutil.rmtree(home.root / "warehouse" / "marts", ignore_errors=True)


def files(home: Home, months: list[str]) -> set[Path]:
    """The files of the marts that hold these months."""
    return {path for folder in _folders(home) if _month_of(folder) in months for path in folder.glob("*.parquet")}


def _path(home: Home) -> Path:
    return home.root / "warehouse" / "dbt" / "built.json"


def _folders(home: Home) -> Iterator[Path]:
    yield from (home.root / "warehouse" / "marts").glob("*/month=*")


def _month_of(folder: Path) -> str:
    return folder.name.removeprefix("month=")


def _month(run_id: str) -> str:
    return f"{run_id[:4]}-{run_id[4:6]}"


def _fingerprints(home: Home) -> dict[str, str]:
    files: dict[str, list[str]] = {}
    for table in RESULTS:
        for path in parts(home, table):
            facts = path.stat()
            run_id = path.parent.name.removeprefix("run_id=")
            files.setdefault(run_id, []).append(f"{table}/{path.name} {facts.st_size} {facts.st_mtime_ns}")
    return {run_id: _digest("\n".join(lines).encode()) for run_id, lines in files.items()}


def _project() -> str:
    """A digest of dbt's project, without what dbt writes into it if a person runs it there."""
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(PROJECT):
        folders[:] = sorted(name for name in folders if name not in ("target", "logs", "dbt_packages"))
        for name in sorted(names):
            path = Path(folder, name)
            digest.update(f"{path.relative_to(PROJECT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
