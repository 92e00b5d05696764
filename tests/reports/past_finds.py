"""Finds of the past, as pages need them: no trial is made."""

from pathlib import Path

from reports.history import Cell, History
from streaming_core.apps import registry
from streaming_core.regression.home import Home
from streaming_core.run.way import RunSpec
from streaming_core.search import find
from streaming_core.search.case import Case, Symptom
from streaming_core.search.find import Find
from streaming_core.search.replay import numbered

LINES = (b"blue", b"blue <b>", b"", b"blue")
ROWS = ({"word": "blue", "n": 3}, {"word": "blue", "n": 4})


def add(folder: Path, **fields) -> Find:
    """Add a find of wc to a folder of finds; these fields are its own."""
    spec = RunSpec.parse({"app": "wc", "executor": "pooled", "threads": 2, "params": {"words": 3}})
    events = numbered(spec, [{"ts": 5 * ts, "line": line} for ts, line in enumerate(LINES)])
    case = Case(spec, events, Symptom("result", "outputs"), 0.25, "events of the generator, two of them alike")
    row = {"table": "outputs", "kind": "different", "row": {"seq": 3, "sub": 0}, "columns": ["n"]}
    about = {
        "digest": case.digest,
        "app": "wc",
        "symptom": case.symptom,
        "reason": "different: 1 in outputs (expected 4 outputs and 2 rows of final state)",
        "rate": case.rate,
        "origin": case.origin,
        "way": find.way_of(spec),
        "params": spec.params,
        "events": len(LINES),
        "threads": 2,
        "operator": "count",
        "place": "wc.py:79",
        "event": 3,
        "counts": {"outputs": 2},
        "differences": [row | {"expected": ROWS[0], "actual": ROWS[1]}],
        "seconds": 12.0,
        "shrinking": 3.0,
        "code": registry.code_digest(registry.load("wc")),
        "build": "0123abcd",
        "time": "2026-01-05T03:00:00+00:00",
    }
    about |= fields
    example = Find(folder / about["digest"], **about)
    example.folder.mkdir(parents=True)
    find.fill(example.folder, case, example)
    return example


def of_home(home: Home) -> list[Find]:
    """Two finds of a home: one with rows that differ, and one without."""
    crash = {"symptom": Symptom("crash", "SIGSEGV"), "reason": "the process ends by signal SIGSEGV", "rate": 1.0}
    plain = {"differences": [], "counts": {}, "operator": None, "place": None, "event": None}
    return [add(home.finds("wc")), add(home.finds("wc"), digest="0123456789abcdef", **plain, **crash)]


def of_cell(home: Home, run_id: str) -> tuple[Cell, Find]:
    """The smallest case of the cell that differs in a run."""
    run = History(home).run(run_id)
    cell = next(cell for cell in run.cells if cell.verdict == "different")
    return cell, add(run.attempts(cell) / find.SHRUNK)
