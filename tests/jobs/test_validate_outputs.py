"""Every way in which a cell can be wrong gets its verdict and its evidence; the other cells keep theirs."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from jobs import load_metrics, validate_outputs
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.verdict import WRONG, is_green, of_run
from streaming_core.regression.warehouse import RAW, VIOLATION_CAP, rows
from tests.jobs.world import ORACLE, RUN_ID, WORKLOAD, Tables, World, bank, set_value, take, write_parts
from tests.support.draws import some

UNORDERED = {"completed", "outputs", "state:accounts", "digest", "counts", "invariant:money", "invariant:not_negative"}
CHECKS = UNORDERED | {"order", "invariant:in_sequence"}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(validate_outputs, "load", lambda name: bank())
    return World(tmp_path)


class Outcome:
    """The raw tables after validate_outputs."""

    def __init__(self, world: World, spark: SparkSession):
        try:
            validate_outputs.work(spark, world.home, RUN_ID)
            passes = True
        except RunFailed:
            passes = False
        self.planned = world.cells
        self.verdicts, self.violations = (
            pq.read_table(world.home.raw(table) / f"run_id={RUN_ID}" / "part-0.parquet", partitioning=None).to_pylist()
            for table in ("verdicts", "violations")
        )

        green = is_green(verdict for verdict, _ in of_run(None, self.planned, self.verdicts, []).values())
        assert passes == green

    def of(self, cell: str) -> dict[str, dict]:
        return {row["check"]: row for row in self.verdicts if row["cell"] == cell}

    def verdict(self, cell: str) -> str:
        return of_run(None, self.planned, self.verdicts, [])[cell].verdict

    def evidence(self, cell: str, check: str) -> list[dict]:
        return [row for row in self.violations if row["cell"] == cell and row["check"] == check]

    def wrong(self, cell: str) -> set[str]:
        return {check for check, row in self.of(cell).items() if row["verdict"] in WRONG}


def test_right_cells_are_equal_in_every_check(world, spark):
    for cell in world.plan(("serial", 1), ("owners", 1), ("owners", 2)):
        world.attempt(cell)
    outcome = Outcome(world, spark)
    for cell in world.cells:
        rows = outcome.of(cell["cell"])
        assert (rows.keys(), {row["verdict"] for row in rows.values()}) == (CHECKS, {"equal"})
        assert rows["outputs"]["expected_rows"] == rows["outputs"]["actual_rows"] == 60
        assert all(row["actual_rows"] > 0 for row in rows.values())
    assert outcome.violations == []
    again = Outcome(world, spark)
    assert (outcome.verdicts, outcome.violations) == (again.verdicts, again.violations)
    for table in ("verdicts", "violations"):
        path = world.home.raw(table) / f"run_id={RUN_ID}" / "part-0.parquet"
        assert pq.read_schema(path).equals(RAW[table])
        assert [p.name for p in path.parent.iterdir()] == ["part-0.parquet"]


@pytest.mark.parametrize("count", some(["outputs", "dropped_invalid", "dropped_late", "rejected"]))
@pytest.mark.parametrize("number", some([0, 1]))
def test_pass_with_a_different_count_is_different(world, spark, count, number):
    right, wrong = world.plan(("serial", 1), ("owners", 2))
    world.attempt(right)

    def tamper(report: dict) -> dict:
        report["samples"][number] = report["samples"][number] | {count: 7}
        return report

    world.attempt(wrong, report=tamper)
    outcome = Outcome(world, spark)
    assert outcome.verdict(right) == "equal"
    assert (outcome.verdict(wrong), outcome.wrong(wrong)) == ("different", {"counts"})
    assert f"has 7 {count}, expected " in outcome.of(wrong)["counts"]["detail"]


def of(name: str, change: Callable[[pa.Table], pa.Table]) -> Callable[[Tables], Tables]:
    """A change of one table."""
    return lambda tables: tables | {name: change(tables[name])}


def without(name: str) -> Callable[[Tables], Tables]:
    return lambda tables: {other: table for other, table in tables.items() if other != name}


def swap_results(t: pa.Table) -> pa.Table:
    """Two events of one account took effect in the wrong order: both outputs carry the other's balance."""
    balance = t["balance"].to_pylist()
    return set_value(set_value(t, "balance", 10, balance[17]), "balance", 17, balance[10])


drop_one = of("outputs", lambda t: take(t, [i for i in range(60) if i != 17]))
change_value = of("outputs", lambda t: set_value(t, "balance", 59, t["balance"][59].as_py() + 1))
change_bytes = of("outputs", lambda t: set_value(t, "name", 3, b"\xff\xfd"))
duplicate_one = of("outputs", lambda t: take(t, [*range(18), *range(17, 60)]))
change_bits = of("outputs", lambda t: set_value(t, "mean", 59, t["mean"][59].as_py() * (1 + 2**-52)))
negative = of("outputs", lambda t: set_value(t, "balance", 8, -5))
change_history = of("accounts", lambda t: set_value(t, "history", 2, [-0.0]))
change_order = of("outputs", lambda t: take(t, [*range(30), 31, 30, *range(32, 60)]))
money_plus_one = of("accounts", lambda t: set_value(t, "balance", 4, t["balance"][4].as_py() + 1))
empty_outputs = of("outputs", lambda t: t.slice(0, 0))
no_state, no_outputs = without("accounts"), without("outputs")
missing_column = of("outputs", lambda t: t.drop_columns(["mean"]))
wrong_type = of("outputs", lambda t: t.set_column(3, "balance", t["balance"].cast(pa.int32())))
extra_column = of("outputs", lambda t: t.append_column("more", t["seq"]))


# change, check that must be different, its counts, kinds of its violations, seqs of its violations
DAMAGES = [
    (drop_one, "outputs", {"missing": 1, "expected_rows": 60, "actual_rows": 59}, ["missing"], [17]),
    (duplicate_one, "outputs", {"extra": 1, "actual_rows": 61}, ["extra"], [17]),
    (of("outputs", swap_results), "outputs", {"different": 2}, ["different"] * 2, [10, 17]),
    (change_value, "outputs", {"different": 1}, ["different"], [59]),
    (change_bits, "outputs", {"different": 1}, ["different"], [59]),
    (change_bytes, "outputs", {"different": 1}, ["different"], [3]),
    (negative, "invariant:not_negative", {"different": 1}, ["invariant"], [8]),
    (change_order, "order", {"out_of_order": 1}, ["out_of_order"], [30]),
    (money_plus_one, "state:accounts", {"different": 1}, ["different"], [None]),
    (money_plus_one, "invariant:money", {"different": 1}, ["invariant"], [None]),
    (change_history, "state:accounts", {"different": 1}, ["different"], [None]),
    (of("outputs", lambda t: t.slice(0, 50)), "outputs", {"missing": 10}, ["missing"] * 10, list(range(50, 60))),
    (empty_outputs, "outputs", {"missing": 60, "actual_rows": 0}, ["missing"] * VIOLATION_CAP, list(range(20))),
    (of("accounts", lambda t: t.slice(0, 0)), "state:accounts", {"missing": 7}, ["missing"] * 7, [None] * 7),
    (no_state, "state:accounts", {"missing": 7, "actual_rows": 0}, [], []),
    (no_outputs, "outputs", {"missing": 60, "actual_rows": 0}, [], []),
    (missing_column, "outputs", {"missing": 0}, [], []),
    (wrong_type, "outputs", {"different": 0}, [], []),
    (extra_column, "outputs", {"extra": 0}, [], []),
    (lambda t: t | {"ghosts": t["accounts"]}, "state:ghosts", {"extra": 7, "expected_rows": 0}, [], []),
]

# Those of test_evidence_names_columns_rows_and_event, and a row too few or too many. Each takes a second.
FEW = (change_bytes, change_order, money_plus_one, change_value, missing_column, wrong_type, extra_column, no_state)
FEW_DAMAGES = [damage for damage in DAMAGES if damage[0] in (*FEW, drop_one, duplicate_one)]


@pytest.fixture(scope="module", params=some([FEW_DAMAGES, DAMAGES]), ids=["few", "all"])
def damaged(request, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[dict, Outcome]:
    """One run with a right cell first and then one cell for each damage; (damages by cell, outcome)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validate_outputs, "load", lambda name: bank())
        world = World(tmp_path_factory.mktemp("damaged"))
        right, *cells = world.plan(*(("serial", threads) for threads in range(1, len(request.param) + 2)))
        world.attempt(right)
        damages = dict(zip(cells, request.param, strict=True))
        for cell, (change, *_) in damages.items():
            world.attempt(cell, change)
        return damages, Outcome(world, spark)


def test_damage_is_detected_and_named(damaged):
    damages, outcome = damaged
    for bad, (_, check, counts, kinds, seqs) in damages.items():
        assert outcome.verdict(bad) == "different"
        row = outcome.of(bad)[check]
        assert row["verdict"] == ("invariant_broken" if check.startswith("invariant:") else "different")
        assert {name: row[name] for name in counts} == counts
        evidence = outcome.evidence(bad, check)
        assert ([e["kind"] for e in evidence], [e["seq"] for e in evidence]) == (kinds, seqs)
        assert [e["rank"] for e in evidence] == list(range(1, len(kinds) + 1))
        assert all((e["event"] is None) == (e["seq"] is None) for e in evidence)


def test_evidence_names_columns_rows_and_event(damaged):
    damages, outcome = damaged

    def damaged_by(change: Callable[[Tables], Tables]) -> str:
        return next(cell for cell, damage in damages.items() if damage[0] is change)

    (right,) = {cell["cell"] for cell in outcome.planned} - damages.keys()
    assert outcome.verdict(right) == "equal", "damage of other cells changes nothing"
    wrong = {change_value: {"outputs"}, change_order: {"order"}, money_plus_one: {"state:accounts", "invariant:money"}}
    assert {change: outcome.wrong(damaged_by(change)) for change in wrong} == wrong
    (row,) = outcome.evidence(damaged_by(change_bytes), "outputs")
    assert [json.loads(row[side])["name"] for side in ("expected", "actual")] == ["0xfffe", "0xfffd"]
    assert json.loads(row["event"]) == {"account": 3, "amount": 11, "seq": 3, "ts": 3}
    (row,) = outcome.evidence(damaged_by(change_order), "order")
    assert [json.loads(row[side])["seq"] for side in ("expected", "actual", "event")] == [31, 30, 30]
    (row,) = outcome.evidence(damaged_by(money_plus_one), "state:accounts")
    expected, actual = json.loads(row["expected"]), json.loads(row["actual"])
    assert expected["key"] == actual["key"] == 4
    assert actual["balance"] == expected["balance"] + 1
    (row,) = outcome.evidence(damaged_by(money_plus_one), "invariant:money")
    assert json.loads(row["actual"]) == {"actual": 362, "expected": 361}
    for change, check, detail in (
        (missing_column, "outputs", "column mean is missing"),
        (wrong_type, "outputs", "column balance is int32, expected int64"),
        (extra_column, "outputs", "column more is unexpected"),
        (no_state, "state:accounts", "the cell wrote no file"),
    ):
        assert outcome.of(damaged_by(change))[check]["detail"] == detail
    assert "did not write" in outcome.of(damaged_by(no_state))["invariant:money"]["detail"]


def reversed_and_renumbered(t: Tables) -> Tables:
    """A valid unordered result: other rows first, other balances at the time, any seq and sub."""
    outputs = take(t["outputs"], list(reversed(range(60))))
    for column in ("seq", "sub", "balance"):
        outputs = set_value(outputs, column, 0, 59)
    return t | {"outputs": outputs}


def spoil(column: str, value: object) -> Callable[[Tables], Tables]:
    def change(t: Tables) -> Tables:
        moved = reversed_and_renumbered(t)
        return moved | {"outputs": set_value(moved["outputs"], column, 56, value)}

    return change


def repeat_two(t: Tables) -> Tables:
    return t | {"outputs": take(t["outputs"], [*range(60), 4, 5, 4])}


# change, check that must be different, its counts, kinds of its violations
LOOSE_DAMAGES = [
    (drop_one, "outputs", {"missing": 1, "extra": 0}, ["missing"]),
    (repeat_two, "outputs", {"missing": 0, "extra": 3}, ["extra"] * 2),
    (spoil("name", b"\xff\xfd"), "outputs", {"missing": 1, "extra": 1}, ["missing", "extra"]),
    (spoil("mean", 0.1 + 0.2), "outputs", {"missing": 1, "extra": 1}, ["missing", "extra"]),
    (spoil("balance", -5), "invariant:not_negative", {"different": 1}, ["invariant"]),
    (empty_outputs, "outputs", {"missing": 60}, ["missing"] * VIOLATION_CAP),
    (no_outputs, "outputs", {"missing": 60}, []),
    (missing_column, "outputs", {"missing": 0}, []),
    (money_plus_one, "state:accounts", {"different": 1}, ["different"]),
    (no_state, "state:accounts", {"missing": 7}, []),
]


@pytest.mark.slow
def test_unordered_run_compares_declared_columns_as_a_multiset(world, spark):
    rings = [("shared_ring", threads) for threads in range(1, len(LOOSE_DAMAGES) + 3)]
    ordered, same, other, *bad = world.plan(("serial", 1), *rings)
    world.attempt(same)
    world.attempt(other, lambda t: reversed_and_renumbered(t) | {"ghosts": t["accounts"]})
    world.attempt(ordered, reversed_and_renumbered)
    for cell, (change, *_) in zip(bad, LOOSE_DAMAGES, strict=True):
        world.attempt(cell, change)
    outcome = Outcome(world, spark)
    assert outcome.of(same).keys() == outcome.of(other).keys() == UNORDERED
    assert outcome.verdict(same) == outcome.verdict(other) == "equal"
    assert outcome.of(other)["outputs"]["expected_rows"] == outcome.of(other)["outputs"]["actual_rows"] == 60
    assert {"outputs", "order"} <= outcome.wrong(ordered)
    for cell, (_, check, counts, kinds) in zip(bad, LOOSE_DAMAGES, strict=True):
        row = outcome.of(cell)[check]
        assert row["verdict"] == ("invariant_broken" if check.startswith("invariant:") else "different"), row
        assert ({name: row[name] for name in counts}, row["out_of_order"]) == (counts, 0)
        evidence = outcome.evidence(cell, check)
        assert sorted(e["kind"] for e in evidence) == sorted(kinds)  # they come by what they hold
        if check == "outputs":
            assert {(e["seq"], e["sub"], e["event"]) for e in evidence} <= {(None, None, None)}
            rows = [json.loads(text) for e in evidence for text in (e["expected"], e["actual"]) if text]
            assert all(row.keys() == {"account", "name", "mean"} for row in rows)
    assert outcome.of(bad[7])["outputs"]["detail"] == "column mean is missing"


@pytest.mark.slow
def test_unordered_run_has_digests_of_declared_columns(world, spark):
    passes, state, empty = world.plan(("shared_ring", 1), ("shared_ring", 2), ("shared_ring", 3))
    digest = {"digest": world.digests["output_digest"]}
    world.attempt(passes, report=lambda r: r | {"samples": [sample | digest for sample in r["samples"]]})
    world.attempt(state, report=lambda r: r | {"state_digest": world.digests["state_digest"]})
    nothing = world.right["outputs"].slice(0, 0)
    outcome = Outcome(world, spark)
    assert outcome.wrong(passes) == outcome.wrong(state) == {"digest"}
    assert outcome.verdict(empty) == "not_run"
    write_parts(world.home.oracle("bank", ORACLE) / "outputs", nothing)
    world.attempt(empty, lambda t: t | {"outputs": nothing})
    assert Outcome(world, spark).of(empty)["outputs"]["detail"].startswith("no row was compared")


@pytest.mark.slow
def test_empty_final_table_is_checked_only_if_rows_are_expected(world, spark):
    right, wrong = world.plan(("serial", 1), ("serial", 2))
    empty = world.right["accounts"].slice(0, 0)
    write_parts(world.home.oracle("bank", ORACLE) / "state", empty, name="ghosts.parquet")
    world.attempt(right, lambda t: t | {"ghosts": empty})
    world.attempt(wrong, lambda t: t | {"ghosts": t["accounts"]})
    outcome = Outcome(world, spark)
    assert outcome.of(right).keys() == CHECKS
    assert outcome.verdict(right) == "equal"
    assert outcome.of(wrong)["state:ghosts"]["extra"] == 7


def test_crashed_missing_and_unknown_cells_are_not_green(world, spark):
    cells = world.plan(*((scheme, threads) for scheme in ("serial", "owners") for threads in (1, 2, 3, 4)))
    world.attempt(cells[0])
    world.attempt(cells[1], exit_code=1, error="sl: operator transfer, event 17: division by zero", report=None)
    world.attempt(cells[3], report=None)
    world.attempt(cells[4], report=lambda r: r | {"cell": "another"})
    world.attempt(cells[5], report=lambda r: r | {"workload": r["workload"] | {"address": "other"}})
    world.attempt(cells[6], exit_code=137)
    (world.attempt(cells[7], report=None) / "exit.json").unlink()
    outcome = Outcome(world, spark)
    assert outcome.verdict(cells[0]) == "equal"
    expected = {
        1: ("failed", "sl: operator transfer, event 17: division by zero"),
        2: ("not_run", "it never started"),
        3: ("failed", "it ended with exit code 0, but wrote no report.json"),
        4: ("failed", "report.json belongs to another cell, another"),
        5: ("failed", f"it ran on workload other, but the plan says {WORKLOAD}"),
        6: ("failed", "it ended with exit code 137"),
        7: ("not_run", "it wrote neither report.json nor exit.json"),
    }
    for index, (verdict, line) in expected.items():
        rows = outcome.of(cells[index])
        assert rows.keys() == {"completed"}
        assert (rows["completed"]["verdict"], rows["completed"]["detail"]) == (verdict, line)


def test_run_without_an_oracle_is_not_green(world, spark):
    (cell,) = world.plan(("serial", 1))
    world.attempt(cell)
    (world.home.oracle("bank", ORACLE) / "manifest.json").unlink()
    outcome = Outcome(world, spark)
    assert outcome.verdict(cell) == "failed"
    assert WORKLOAD in outcome.of(cell)["completed"]["detail"]


def test_cell_without_comparison_does_not_pass(world, spark):
    (cell,) = world.plan(("serial", 1))
    empty = world.right["outputs"].slice(0, 0)
    world.right["outputs"] = empty
    write_parts(world.home.oracle("bank", ORACLE) / "outputs", empty)
    world.attempt(cell)
    outcome = Outcome(world, spark)
    row = outcome.of(cell)["outputs"]
    assert (row["verdict"], row["detail"]) == (
        "not_run",
        "no row was compared, because both sides are empty: run more events",
    )
    assert outcome.of(cell)["invariant:not_negative"]["verdict"] == "not_run"


def test_bounds_are_compared_and_never_green(world, spark):
    right, wrong = world.plan(("no_lock", 1), ("no_lock", 2))
    world.attempt(right)
    world.attempt(wrong, change_value)
    outcome = Outcome(world, spark)
    assert outcome.verdict(right) == outcome.verdict(wrong) == "not_comparable"
    assert outcome.of(right)["outputs"]["different"] == 0
    assert outcome.of(wrong)["outputs"]["different"] == 1
    assert len(outcome.evidence(wrong, "outputs")) == 1


def test_every_pass_must_agree_with_the_oracle(world, spark, capsys):
    cells = world.plan(("serial", 1), ("serial", 2), ("owners", 1), ("owners", 2), ("tstream", 1))

    def other_digest(report: dict) -> dict:
        report["samples"][1]["digest"] = "60:ffffffffffffffff"
        return report

    def unordered(report: dict) -> dict:
        report["samples"][1]["in_order"] = False
        return report

    world.attempt(cells[0], report=other_digest)
    world.attempt(cells[1], report=lambda r: r | {"state_digest": "7:0"})
    world.attempt(cells[2], report=unordered)
    rerun = {"kind": "peak", "repetition": 1, "passes": 2}
    attempt = world.attempt(cells[3], report=lambda r: other_digest(r) | {"rerun": rerun | {"differs": True}})
    write_parts(attempt / "rerun" / "outputs", change_value(world.right)["outputs"])
    world.attempt(cells[4], report=lambda r: other_digest(r) | {"rerun": rerun | {"differs": False}})
    outcome = Outcome(world, spark)
    wrong = [{"digest"}, {"digest"}, {"order"}, {"digest", "rerun"}, {"digest"}]
    assert [outcome.wrong(cell) for cell in cells] == wrong
    assert outcome.of(cells[0])["digest"]["detail"].endswith("the first pass alone, so there are none to show")
    ((row,), passes) = outcome.evidence(cells[3], "rerun"), "peak pass 1, made again 2 times with its rows kept,"
    assert (row["kind"], row["seq"], outcome.of(cells[3])["rerun"]["different"]) == ("different", 59, 1)
    assert json.loads(row["event"])["seq"] == 59
    assert outcome.of(cells[3])["digest"]["detail"].endswith(f"{passes} differed again")
    assert outcome.of(cells[4])["digest"]["detail"].endswith(f"{passes} did not differ, so there are no rows to show")
    assert f"{cells[0]}: different: digest: peak pass 1 has digest" in capsys.readouterr().out, "the log names the cell"
    assert "peak pass 1 has digest 60:ffffffffffffffff" in outcome.of(cells[0])["digest"]["detail"]
    assert "final state" in outcome.of(cells[1])["digest"]["detail"]
    assert outcome.of(cells[2])["order"]["detail"].startswith("not delivered in order: peak pass 1; the engine keeps")


@pytest.mark.slow
def test_retry_hides_nothing(world, spark):
    hidden, repaired, lost = world.plan(("serial", 1), ("serial", 2), ("owners", 1))
    world.attempt(hidden, change_value, number=1)
    world.attempt(hidden, number=2)
    world.attempt(repaired, exit_code=255, error="connection lost", report=None, number=1)
    world.attempt(repaired, number=2)
    world.attempt(lost, number=9)
    world.attempt(lost, exit_code=255, error="connection lost", report=None, number=10)
    outcome = Outcome(world, spark)
    assert outcome.wrong(hidden) == {"outputs"}
    assert outcome.verdict(repaired) == "equal"
    assert outcome.verdict(lost) == "failed"


def test_invariant_broken_by_right_rows_has_its_own_verdict_and_rows(world, spark, monkeypatch):
    app = bank()
    app.invariant("young", "SELECT seq, name, array(name) AS names FROM outputs WHERE seq IN (3, 4)")
    monkeypatch.setattr(validate_outputs, "load", lambda name: app)
    cells = world.plan(("serial", 1), ("owners", 1))
    for cell in cells:
        world.attempt(cell)
    outcome = Outcome(world, spark)
    for cell in cells:
        assert outcome.verdict(cell) == "invariant_broken"
        assert outcome.wrong(cell) == {"invariant:young"}
        evidence = sorted(outcome.evidence(cell, "invariant:young"), key=lambda row: row["seq"])
        names = [json.loads(row["actual"])["name"] for row in evidence]
        assert names == ["0xfffe", "<b>4</b>"], "bytes that are no text"
        assert json.loads(evidence[1]["actual"])["names"] == ["<b>4</b>"]
        assert json.loads(evidence[1]["event"])["seq"] == 4
    load_metrics.work(world.home, RUN_ID)
    loaded = rows(world.home, "cells", RUN_ID)
    assert {(row["verdict"], row["reason"]) for row in loaded} == {
        ("invariant_broken", "invariant:young: 2 rows break it")
    }


@pytest.mark.parametrize(
    "broken", some(["SELECT nonsense FROM outputs", "SELECT * FORM outputs", "SELECT 1 / (sub - sub) FROM outputs"])
)
def test_invalid_invariant_does_not_pass(world, spark, monkeypatch, broken):
    app = bank()
    app.invariant("broken", broken)
    monkeypatch.setattr(validate_outputs, "load", lambda name: app)
    (cell,) = world.plan(("serial", 1))
    world.attempt(cell)
    outcome = Outcome(world, spark)
    assert {row["verdict"] for name, row in outcome.of(cell).items() if name != "invariant:broken"} == {"equal"}
    broken = outcome.of(cell)["invariant:broken"]
    assert broken["verdict"] == "failed"  # which says nothing of the rows
    assert "cannot be evaluated" in broken["detail"]


@pytest.mark.parametrize(
    ("run", "line"),
    [("20260101T000000Z-ffffffff", "run 20260101T000000Z-ffffffff does not exist"), ("../../etc", "invalid name")],
)
def test_unknown_run_is_refused_in_one_line(world, spark, run, line):
    with pytest.raises(BadInput, match=line) as refused:
        validate_outputs.work(spark, world.home, run)
    assert "\n" not in str(refused.value)
    assert not world.home.raw("verdicts").exists()


@pytest.mark.slow
def test_new_checks_replace_earlier_verdicts(world, spark):
    (cell,) = world.plan(("serial", 1))
    world.attempt(cell)
    Outcome(world, spark)
    load_metrics.work(world.home, RUN_ID)
    assert [row["verdict"] for row in rows(world.home, "cells", RUN_ID)] == ["equal"]
    world.attempt(cell, change_value)
    Outcome(world, spark)
    assert rows(world.home, "cells", RUN_ID) is None, "a verdict on other outputs"
    load_metrics.work(world.home, RUN_ID)
    (row,) = rows(world.home, "cells", RUN_ID)
    assert row["verdict"] == "different"
    assert row["reason"].startswith("outputs: 1 different")
