"""lockstep prune removes reproducible files, and no history."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.history import ledger
from jobs.raw import write_raw
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import rows
from tests.infra.cli.conftest import lockstep, refused

CELL = "sl.transactional.owners.t1.0a0b0c0d"
BOUND = "sl.transactional.no_lock.t1.0a0b0c0e"
RED = ("different", "failed", "not_run")


def run_id(day: int) -> str:
    return f"202503{day:02d}T020000Z-{day:08x}"


def make_run(home: Home, day: int, verdict: str | None = "equal", bound: str = "not_comparable") -> Path:
    """A run of one cell and one bound, with every kind of file that a run leaves; verdict None: not judged yet."""
    run = home.run(run_id(day))
    plan = {"workloads": [{"address": f"w{day}"}], "cells": [{"cell": CELL}, {"cell": BOUND}]}
    for name, value in (("plan.json", plan), ("oracles.json", {f"w{day}": f"o{day}"})):
        run.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(json.dumps(value))
    for cell in (CELL, BOUND):
        attempt = home.attempt(run.name, cell, 1)
        for folder in ("outputs", "state"):
            (attempt / folder).mkdir(parents=True)
            (attempt / folder / "part-00000.parquet").write_bytes(b"x" * 100)
        for name in ("spec.json", "report.json", "exit.json"):
            (attempt / name).write_text("{}")
    if verdict is None:
        return run
    ends = {"failed": "failed", "not_run": "not_run"}
    key, cells = {"run_id": run.name}, ((CELL, verdict, False), (BOUND, bound, True))
    loaded = [{"cell": cell, "is_bound": is_bound, "status": ends.get(v, "ok")} for cell, v, is_bound in cells]
    write_raw(home, "cells", run.name, [key | row for row in loaded])
    compared = {"expected_rows": 1, "actual_rows": 1}
    checks = [key | compared | {"cell": cell, "check": "completed", "verdict": v} for cell, v, _ in cells]
    checks += [key | compared | {"cell": CELL, "check": "outputs", "verdict": verdict}]
    write_raw(home, "verdicts", run.name, checks)
    return run


def later_runs(home: Home) -> None:
    """More green runs than are kept."""
    for day in range(2, 12):
        make_run(home, day)


def is_kept(home: Home, run: Path) -> bool:
    """Whether a run's outputs are kept as evidence, many green runs later."""
    later_runs(home)
    assert lockstep("prune") == 0
    return len(outputs_of(run)) == 4


def change(home: Home, run: Path, table: str, edit: Callable[[list[dict]], list[dict]]) -> None:
    """Edits the rows of a raw table of a run."""
    write_raw(home, table, run.name, edit(rows(home, table, run.name) or []))


def make_cache(home: Home, kind: str, address: str, size: int, age: int) -> Path:
    """A workload or an oracle of `size` bytes, made `age` days before now."""
    folder = getattr(home, kind)("sl", address)
    folder.mkdir(parents=True)
    (folder / "part-00000.parquet").write_bytes(b"x" * size)
    modified = 1_700_000_000 - age * 86_400
    os.utime(folder, (modified, modified))
    return folder


def outputs_of(run: Path) -> list[Path]:
    return sorted(path for path in run.glob("*/attempt-*/*") if path.name in ("outputs", "state"))


def files(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file() and "lock.json" not in path.name}


def test_outputs_of_the_last_seven_green_runs_are_kept(home, capsys):
    runs = [make_run(home, day) for day in range(1, 10)]
    assert lockstep("prune") == 0
    assert [len(outputs_of(run)) for run in runs] == [0, 0] + [4] * 7
    output = capsys.readouterr().out
    assert output.count("the run is green, and not among the last 7") == 8
    assert str(home.attempt(run_id(1), CELL, 1) / "outputs") in output
    assert output.splitlines()[-1] == "prune: removed 8 folders, 0.0 MB"


def test_prune_removes_only_outputs_and_state(home):
    for day in range(1, 10):
        make_run(home, day)
    (home.reports / run_id(1)).mkdir(parents=True)
    (home.reports / run_id(1) / "summary.json").write_text("{}")
    before = files(home.root)
    assert lockstep("prune") == 0
    gone = before - files(home.root)
    assert gone
    assert {path.parent.name for path in gone} == {"outputs", "state"}


@pytest.mark.parametrize(("verdict", "bound"), [(verdict, "not_comparable") for verdict in RED] + [("equal", "failed")])
def test_red_run_keeps_its_outputs_until_it_is_acknowledged(home, verdict, bound, capsys):
    red = make_run(home, 1, verdict, bound)
    assert is_kept(home, red)
    assert "ada acknowledged 1 red cell: " in ledger.acknowledge(home, red.name, None, "ada", "seen")
    assert len(outputs_of(red)) == 4, "acknowledging removes nothing by itself"
    assert lockstep("prune") == 0
    assert outputs_of(red) == []
    assert "the run is red, and all its red cells are acknowledged" in capsys.readouterr().out


def test_red_run_keeps_its_outputs_until_all_of_its_red_cells_are_acknowledged(home):
    red = make_run(home, 1, "different", bound="failed")
    ledger.acknowledge(home, red.name, [BOUND], "ada", "the bound crashed")
    assert is_kept(home, red)
    ledger.acknowledge(home, red.name, [CELL], "ada", "known")
    assert lockstep("prune") == 0
    assert outputs_of(red) == []


def test_red_runs_do_not_push_green_ones_out(home):
    green = make_run(home, 1)
    for day in range(2, 12):
        make_run(home, day, "different")
    assert lockstep("prune") == 0
    assert len(outputs_of(green)) == 4


# What is not green: a table of a run, and its rows.
DOUBTS = {
    "a check that compared nothing": (
        "verdicts",
        lambda checks: [check | NOTHING if check["check"] == "outputs" else check for check in checks],
    ),
    "passes that disagree": ("samples", lambda _: [{"cell": CELL, "kind": "peak", "digest": d} for d in ("a", "b")]),
    "a planned cell that is not loaded": ("cells", lambda cells: [row for row in cells if row["cell"] != CELL]),
    "a loaded verdict": ("cells", lambda cells: [row | {"verdict": "different", "reason": "x"} for row in cells]),
    "no cells": ("cells", lambda _: []),
}
NOTHING = {"check": "outputs", "expected_rows": 0, "actual_rows": 0}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_run_that_is_not_surely_green_keeps_its_outputs(home, doubt):
    run = make_run(home, 1)
    change(home, run, *DOUBTS[doubt])
    if doubt == "no cells":
        (run / "plan.json").write_text(json.dumps({"workloads": [], "cells": []}))
    assert is_kept(home, run)


def test_run_without_verdicts_keeps_its_outputs_and_inputs(home):
    going_on = make_run(home, 1, None)
    later_runs(home)
    workload = make_cache(home, "workload", "w1", 1000, age=9)
    oracle = make_cache(home, "oracle", "o1", 1000, age=9)
    other = make_cache(home, "workload", "w2", 1000, age=1)
    assert lockstep("prune", "--cache-gb", "0") == 0
    assert len(outputs_of(going_on)) == 4
    assert workload.exists()
    assert oracle.exists()
    assert not other.exists()


def test_oldest_caches_are_removed_until_the_rest_fits(home):
    oldest = make_cache(home, "oracle", "o1", 400, age=3)
    older = make_cache(home, "workload", "w2", 400, age=2)
    newest = make_cache(home, "workload", "w3", 400, age=1)
    being_written = make_cache(home, "workload", "w4", 400, age=9)
    being_written = being_written.rename(being_written.with_name(".w4.new"))
    assert lockstep("prune", "--cache-gb", "0.0000008") == 0  # 800 bytes
    assert [path.exists() for path in (oldest, older, newest, being_written)] == [False, True, True, True]


def test_dry_run_lists_the_same_and_removes_nothing(home, capsys):
    for day in range(1, 10):
        make_run(home, day)
    make_cache(home, "workload", "w1", 400, age=1)
    before = files(home.root)
    assert lockstep("prune", "--dry-run", "--cache-gb", "0") == 0
    listed = capsys.readouterr().out.splitlines()
    assert files(home.root) == before
    assert listed[-1].endswith("nothing was removed (--dry-run)")
    assert lockstep("prune", "--cache-gb", "0") == 0
    assert capsys.readouterr().out.splitlines()[:-1] == listed[:-1]


def test_link_is_not_followed(home, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "precious").write_text("x")
    for day in range(1, 10):
        make_run(home, day)
    link = home.attempt(run_id(1), CELL, 2) / "outputs"
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    assert lockstep("prune") == 0
    assert (elsewhere / "precious").exists()
    assert link.is_symlink()


def test_undeletable_folder_is_reported_and_the_rest_is_removed(home, capsys, monkeypatch):
    runs = [make_run(home, day) for day in range(1, 10)]
    stuck = home.attempt(run_id(1), CELL, 1) / "outputs"
    rename = os.rename

    def refuse(source, target):
        if Path(source) == stuck:
            raise PermissionError(13, "Permission denied")
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    assert lockstep("prune") == 1
    assert capsys.readouterr().err == f"lockstep: cannot remove {stuck}: Permission denied\n"
    assert outputs_of(runs[0]) == [stuck]
    assert outputs_of(runs[1]) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cache-gb", "many"], "--cache-gb"),
        (["--cache-gb", "-1"], "must be between 0 and 1e9, got -1"),
        (["--cache-gb", "nan"], "--cache-gb must be a valid number"),
        (["everything"], "everything"),
    ],
)
def test_bad_input_gets_one_line_and_removes_nothing(home, capsys, arguments, message):
    make_run(home, 1)
    make_run(home, 2, None)
    before = files(home.root)
    assert message in refused(capsys, "prune", *arguments)
    assert files(home.root) == before


@pytest.mark.parametrize("name", ["plan.json", "oracles.json"])
def test_damaged_run_folder_is_named_and_nothing_is_removed(home, capsys, name):
    run = make_run(home, 1, None)
    (run / name).write_text('{"workloads": [')
    later_runs(home)
    before = files(home.root)
    assert lockstep("prune") == 2
    assert str(run / name) in capsys.readouterr().err
    assert files(home.root) == before


def test_missing_home_is_bad_input(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "absent"))
    assert lockstep("prune") == 2
    assert "does not exist" in capsys.readouterr().err
    assert not (tmp_path / "absent").exists()
