"""The tables of verdicts on speed, from the raw tables of a home."""

import math

import pyarrow.parquet as pq
import pytest
import yaml

from infra.checkout import ROOT
from jobs import judge_speed
from jobs.raw import write_raw
from streaming_core.regression.home import Home
from tests.dbt.test_project import SQL_TYPES

CELL = {"cell": "x", "verdict": "equal", "spec_digest": "s", "params": "{}", "events": 9, "seed": 1, "threads": 2}
CELL |= {"workload_address": "w", "host": "h", "yardstick": "y", "build": "b", "steal": 0.0, "others": 0.0}
SAMPLE = {"cell": "x", "kind": "peak", "seconds": 0.25, "passes": 4, "loop_seconds": 0.5}
PAIR = {"cell": "x", "baseline": "old", "baseline_ref": "v1", "build": "new", "host": "h", "baseline_seconds": 1.0}
PAIR |= {"build_seconds": 1.1, "baseline_digest": "d", "build_digest": "d", "steal": 0.25, "others": 0.0}
PAIR |= {"baseline_environment": "one", "environment": "one"}


def run_id(night: int) -> str:
    return f"202601{night + 1:02}T020000Z-00000001"


def write(home: Home, night: int, cell: dict | None = None, samples=(SAMPLE,), pairs=()) -> None:
    write_raw(home, "cells", run_id(night), [CELL | (cell or {})])
    write_raw(home, "samples", run_id(night), list(samples))
    write_raw(home, "pairs", run_id(night), list(pairs))


def tables(home: Home, quarantine=()) -> tuple[list[dict], list[dict]]:
    judge_speed.work(home, quarantine)
    folder = home.root / "warehouse" / "speed"
    return tuple(pq.read_table(folder / name / "part-0.parquet").to_pylist() for name in ("trends", "gates"))


def test_home_without_results_has_empty_tables(tmp_path):
    assert tables(Home(tmp_path)) == ([], [])


def test_sources_of_dbt_declare_the_columns():
    (entry,) = yaml.safe_load((ROOT / "dbt" / "models" / "staging" / "speed.yml").read_text())["sources"]
    stated = {table["name"]: [(c["name"], c["data_type"]) for c in table["columns"]] for table in entry["tables"]}
    schemas = {"trends": judge_speed.TRENDS, "gates": judge_speed.GATES}
    assert stated == {
        name: [(field.name, SQL_TYPES[field.type]) for field in schema] for name, schema in schemas.items()
    }


def test_ratio_is_the_median_over_repetitions_beside_the_loop(tmp_path):
    home = Home(tmp_path)
    # The verified pass writes files and has no loop beside it.
    samples = [SAMPLE | {"kind": "verified", "seconds": 9.0, "passes": 1, "loop_seconds": None}]
    samples += [SAMPLE | {"passes": n, "loop_seconds": loop} for n, loop in ((2, 0.5), (3, 0.5625), (4, 0.625))]
    write(home, 0, samples=samples)
    write(home, 1, {"verdict": "different"})
    write(home, 2, {"yardstick": None}, [SAMPLE | {"loop_seconds": None}])  # the request wanted no loop
    ((row,), _) = tables(home)
    digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert row | {"run_id": run_id(0), "series": f"s/{digest}/9/1/h", "to_loop": 2.25, "repetitions": 3} == row
    assert (row["pass_seconds"], row["measured_seconds"], row["spread"]) == (0.25, 7.4375, 0.25)
    assert (row["verdict"], row["nights"], row["level"]) == ("too_new", 1, pytest.approx(2.25))


@pytest.mark.parametrize(
    ("cell", "samples", "unfit"),
    [
        ({}, [{"passes": 1, "seconds": 0.1, "loop_seconds": 0.1}], "too_short"),
        ({"yardstick": None}, [{"seconds": 0.0005, "loop_seconds": None}], "too_short"),
        ({"steal": 0.15, "others": 0.1}, [{"passes": 1, "seconds": 0.1}], "too_noisy"),
        ({"steal": 0.15, "others": 0.1, "threads": 1}, [{}], None),  # the loop has one thread too
        ({}, [{}, {"loop_seconds": 0.65}], "too_noisy"),
        ({"steal": 0.1, "others": 0.1}, [{}, {"loop_seconds": 0.6}], None),
        ({"steal": None, "others": None}, [{}], None),
    ],
)
def test_disturbed_and_short_runs_are_not_compared_and_say_so(tmp_path, cell, samples, unfit):
    write(Home(tmp_path), 0, cell, [SAMPLE | sample for sample in samples])
    ((row,), _) = tables(Home(tmp_path))
    assert row["verdict"] == (unfit or "too_new")
    assert (row["nights"] is None) == (unfit is not None)


def test_series_are_separate_and_quarantined_and_unfit_nights_are_left_out(tmp_path):
    home = Home(tmp_path)
    for night in range(20):
        loop = 0.5 if night < 17 else 0.4
        write(home, night, samples=[SAMPLE | {"loop_seconds": loop * (1 + 0.001 * math.sin(2 * night))}])
        (cell,) = [CELL | {"cell": "other", "host": "elsewhere"}]
        write_raw(home, "cells", run_id(night), [CELL | ({"others": 0.9} if night == 3 else {}), cell])
    rows, _ = tables(home)
    assert [row["verdict"] for row in rows] == [
        "too_noisy" if night == 3 else "too_new" if night < 15 else "unchanged" if night < 19 else "slower"
        for night in range(20)
    ]
    assert rows[-1]["since_run"] == run_id(17)
    quarantine = {run_id(18)}
    rows, _ = tables(home, quarantine)
    assert len(rows) == 19
    assert rows[-1]["verdict"] == "unchanged", "two nights are no change"


def test_gate_bridges_an_edit_even_if_the_night_that_it_measured_is_unfit(tmp_path):
    home, same = Home(tmp_path), [PAIR | {"pair": i, "build_seconds": 1.0, "baseline": "b"} for i in range(32)]
    for night in range(20):
        cell = {"workload_address": "edited"} if night >= 16 else {}
        cell |= {"others": 0.9} if night == 16 else {}
        write(home, night, cell, pairs=same if night == 16 else ())
    rows, gates = tables(home)
    assert [row["verdict"] for row in rows[15:]] == ["unchanged", "too_noisy"] + ["unchanged"] * 3
    assert {row["bridge_run"] for row in rows[17:]} == {run_id(16)}
    assert [(row["verdict"], row["change"]) for row in gates] == [("unchanged", 0.0)]


@pytest.mark.parametrize(
    ("rows", "change", "verdict", "reason"),
    [
        (32, {}, "slower", None),
        (32, {"baseline_seconds": 1.2}, "faster", None),
        (31, {}, None, None),
        (32, {"environment": "another"}, "slower", None),
        (32, {"baseline_seconds": 0.0004, "build_seconds": 0.0004}, "too_short", None),
        (1, {"build_digest": "e"}, "different", "the two builds have different results"),
        (1, {"error": "build new: it broke", "build_seconds": None}, "failed", "build new: it broke"),
        (
            1,
            {"pair": -1, "error": "its turn did not come", "build_seconds": None},
            "not_judged",
            "its turn did not come",
        ),
    ],
)
def test_gate_judges_the_pairs_of_a_cell(tmp_path, rows, change, verdict, reason):
    home = Home(tmp_path)
    write(home, 0, pairs=[PAIR | {"pair": i} | change for i in range(rows)])
    _, (row,) = tables(home)
    assert (row["verdict"], row["reason"], row["steal"]) == (verdict, reason, 0.25)
    assert row["pairs"] == (0 if verdict == "not_judged" else rows)
    assert row["environment_changed"] == ("environment" in change)
    assert (row["baseline"], row["baseline_ref"], row["build"]) == ("old", "v1", "new")
