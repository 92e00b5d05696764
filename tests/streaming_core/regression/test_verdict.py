"""The verdict on a cell and on a run, from raw rows alone."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from streaming_core.regression.verdict import Verdict, find_cell, is_green, judge, of, of_run

CELL, BOUND = {"is_bound": False, "status": "ok"}, {"is_bound": True, "status": "ok"}
CRASHED = {"status": "failed", "error": "operator debit, event 17: division by zero"}


def check(verdict: str, rows: int = 10, name: str = "outputs", **fields) -> dict:
    return {"cell": "c", "check": name, "verdict": verdict, "expected_rows": rows, "actual_rows": rows} | fields


BROKEN = check("invariant_broken", name="invariant:money", different=1)


def passes(*digests: str) -> list[dict]:
    return [{"cell": "c", "digest": digest} for digest in digests]


@pytest.mark.parametrize(
    ("cell", "checks", "digests", "verdict", "reason"),
    [
        (CELL, [check("equal")], "aaa", "equal", None),
        (CELL, [check("equal"), check("equal", name="digest")], "", "equal", None),
        # Results are missing or insufficient.
        (CELL, [], "", "not_run", "no result was compared"),
        (CELL | {"status": "not_run", "error": "it never started"}, [], "", "not_run", "it never started"),
        (CELL | {"status": "not_run"}, [check("equal")], "", "not_run", "no result was compared"),
        (CELL, [check("equal"), check("not_run", name="completed", detail="gone")], "", "not_run", "completed: gone"),
        # A check without compared rows has not passed, whatever the other checks show.
        (CELL, [check("equal", rows=0)], "", "not_run", "outputs: no row was compared"),
        (CELL, [check("equal"), check("equal", rows=0, name="order")], "", "not_run", "order: no row was compared"),
        (CELL, [check("equal", rows=None)], "", "not_run", "outputs: no row was compared"),
        # A difference outranks everything else.
        (CELL, [check("equal"), check("different", name="state:t", missing=1)], "", "different", "state:t: 1 missing"),
        (CELL | CRASHED, [check("different", extra=2)], "", "different", "outputs: 2 extra"),
        (CELL, [check("different", extra=2), check("failed", name="completed")], "", "different", "outputs: 2 extra"),
        (CELL, [check("equal")], "aab", "different", "the measured passes have 2 different digests"),
        # A broken invariant has its own verdict if the rows agree, and outranks weaker evidence.
        (CELL, [check("equal"), BROKEN], "", "invariant_broken", "invariant:money: 1 row breaks it"),
        (CELL, [BROKEN | {"different": 3}], "a", "invariant_broken", "invariant:money: 3 rows break it"),
        (CELL, [BROKEN, check("different", extra=2)], "", "different", "outputs: 2 extra"),
        (CELL, [BROKEN, check("failed", name="invariant:b", detail="no SQL")], "", "invariant_broken", ANY),
        (CELL, [check("equal"), BROKEN | {"verdict": "different"}], "", "different", "invariant:money: 1 different"),
        (BOUND, [BROKEN], "", "not_comparable", ANY),
        # A crash is never excused.
        (CELL | CRASHED, [], "", "failed", CRASHED["error"]),
        (CELL | CRASHED, [check("equal")], "a", "failed", CRASHED["error"]),
        (CELL, [check("equal"), check("failed", name="completed", detail="exit 1")], "", "failed", "completed: exit 1"),
        (BOUND | CRASHED, [check("not_comparable")], "", "failed", CRASHED["error"]),
        (BOUND, [check("failed", name="completed")], "", "failed", "the run of the cell failed"),
        # A bound that ran is a bound, whatever its outputs.
        (BOUND, [check("not_comparable")], "aa", "not_comparable", "the cell is a bound, not a result"),
        (BOUND, [check("not_comparable", different=3)], "ab", "not_comparable", "outputs: 3 different"),
        (BOUND, [check("different", different=3)], "", "not_comparable", "outputs: 3 different"),
        (BOUND, [], "", "not_run", "no result was compared"),
        (BOUND | {"status": "not_run"}, [check("not_comparable")], "", "not_run", "no result was compared"),
        # Other words do not make a result right.
        (CELL, [check("not_comparable")], "", "not_run", "not all checks found the results equal"),
        (CELL, [check("equal"), check("splendid")], "", "not_run", "not all checks found the results equal"),
        # A run that is not loaded yet.
        ({"is_bound": False}, [check("equal")], "", "equal", None),
    ],
)
def test_rows_determine_the_verdict_of_a_cell(cell, checks, digests, verdict, reason):
    assert judge(cell, checks, passes(*digests)) == (verdict, reason)


def test_a_reason_lists_the_most_telling_check_first():
    digest, state = check("different", name="digest", different=4), check("different", name="state:t", different=1)
    rows = check("different", missing=1, extra=2, out_of_order=3, detail="no file was written")
    assert judge(CELL, [digest, state], []).reason == "state:t: 1 different"
    assert (
        judge(CELL, [digest, state, rows], []).reason
        == "outputs: no file was written; 1 missing, 2 extra, 3 out of order"
    )
    vacuous = check("equal", rows=0)
    assert judge(CELL, [vacuous, digest], []).reason == "digest: 4 different", "of what decided, not of another check"


def test_a_loaded_verdict_is_kept():
    loaded = CELL | {"verdict": "different", "reason": "outputs: 1 extra"}
    assert of(loaded, [check("equal")], []) == ("different", "outputs: 1 extra")
    assert of(CELL | {"verdict": None, "reason": None}, [check("equal")], []) == ("equal", None)


def test_every_planned_cell_has_a_verdict_from_its_own_rows():
    cells = [CELL | {"cell": "a"}, CELL | {"cell": "b"}]
    checks = [check("equal") | {"cell": "a"}, check("different", extra=1) | {"cell": "b"}]
    assert of_run(["gone", "b", "a"], cells, checks, []) == {
        "gone": Verdict("not_run", "no result was compared"),
        "b": Verdict("different", "outputs: 1 extra"),
        "a": Verdict("equal", None),
    }
    assert of_run(None, cells, checks, passes("a", "b")).keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("verdicts", "green"),
    [
        (["equal", "equal"], True),
        (["equal", "not_comparable"], True),
        (["equal", "different"], False),
        (["equal", "invariant_broken"], False),
        (["equal", "failed"], False),
        (["equal", "not_run"], False),
        (["equal", "unheard of"], False),
        ([], False),
    ],
)
def test_a_run_is_green_when_every_cell_is_equal_or_a_bound(verdicts, green):
    assert is_green(verdicts) == green


def test_find_is_red_by_its_symptom():
    kinds = {
        "result": "different",
        "oracle": "different",
        "invariant": "invariant_broken",
        "property": "invariant_broken",
    }
    for kind, verdict in (kinds | dict.fromkeys(("failure", "crash", "hang"), "failed")).items():
        find = {"cell": find_cell("wc", "ab"), "kind": kind, "reason": "3 events"}
        assert of_run(None, [], [], [], [find]) == {"wc.find.ab": (verdict, "3 events")}
