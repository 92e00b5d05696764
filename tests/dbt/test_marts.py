"""The marts over a known history have the expected content, and dbt's own tests and unit tests pass on it."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from reports.history import History
from reports.pages import Pages
from reports.views.built import Built
from streaming_core.regression.warehouse import rows as raw_rows
from streaming_core.run.way import RunSpec
from tests.dbt.raw_runs import (
    FASTER,
    GATED,
    GREEN,
    QUARANTINED,
    RED,
    RUNS,
    WITH_ENERGY,
    WITH_LOOP,
    base_speed,
    expected_verdict,
    slowdown,
    specs,
)

# A build takes a minute. In `make test`, the run of tests/e2e/test_regression.py builds the marts, and checks them.
pytestmark = pytest.mark.slow
MODELS = Path(__file__).resolve().parents[2] / "dbt" / "models"


def by_key(rows: list[dict], *key: str) -> dict[tuple, dict]:
    """Rows by their grain, which they must have."""
    by_value = {tuple(row[name] for name in key): row for row in rows}
    assert len(by_value) == len(rows), f"more than one row per {key}"
    return by_value


def equal_cells() -> dict[tuple[str, str], RunSpec]:
    return {
        (run_id, spec.cell): spec for run_id in RUNS for spec in specs() if expected_verdict(run_id, spec) == "equal"
    }


def test_build_of_a_history_reports_success_in_its_last_line(built):
    assert built.process.returncode == 0, built.process.stdout[-4000:] + built.process.stderr[-4000:]
    summaries = [line for line in built.process.stdout.splitlines() if line.startswith("warehouse: ")]
    assert len(summaries) == 1
    assert "dbt built 21 models, 1 seed, and 26 tests passed; 2 tests warned" in summaries[0]
    assert summaries[0].endswith(f"; run {QUARANTINED} is quarantined: samples: seconds > 0 and events_per_s >= 0")


def test_quarantined_run_appears_in_one_mart_only(built):
    (row,) = built.mart("quarantine")
    broken = "seconds > 0 and events_per_s >= 0"
    assert row == {"run_id": QUARANTINED, "table_name": "samples", "rows_broken": 1, "reason": broken}
    for path in (built.home.root / "warehouse" / "marts").iterdir():
        if path.name != "quarantine":
            assert {row["run_id"] for row in built.mart(path.name)} <= {*RUNS}, path.name
    judged = pq.read_table(built.home.root / "warehouse" / "speed" / "trends", columns=["run_id"])
    assert judged.num_rows
    assert set(judged["run_id"].to_pylist()) <= {*RUNS}, "nights in quarantine are no nights of a series"


def test_every_unit_test_of_the_project_ran_and_passed(built):
    written = {
        test["name"]
        for path in MODELS.rglob("*.yml")
        for test in yaml.safe_load(path.read_text()).get("unit_tests", [])
    }
    assert written
    ran = {name.removesuffix("_v1") for name in built.unit_tests}  # dbt adds the version of the model
    assert ran == written | {"own_hosts_are_counted_by_rack"}
    assert {name: result for name, result in built.unit_tests.items() if result[0] != "pass"} == {}


def test_cells_measured_against_a_commit_have_a_verdict(built):
    gated = by_key(built.mart("gate"), "run_id", "cell")
    wanted = {key: spec for key, spec in equal_cells().items() if key[0] in GATED}
    assert gated.keys() == wanted.keys()
    for key, spec in wanted.items():
        row = gated[key]
        assert row["verdict"] == ("slower" if spec.threads == 2 else "unchanged"), key
        assert row["change"] == pytest.approx(1 / slowdown(FASTER, spec) - 1, abs=1e-3)
        assert row["change_low"] < row["change"] < row["change_high"]
        assert (row["baseline"], row["baseline_ref"], row["build"], row["pairs"]) == ("build-01", "v1", "build-03", 32)
        assert not row["environment_changed"]


def test_cell_keeps_its_loaded_columns_and_has_its_verdict_reason_and_rate(built):
    cells = by_key(built.mart("cells"), "run_id", "cell")
    wanted = {(run_id, spec.cell): expected_verdict(run_id, spec) for run_id in RUNS for spec in specs()}
    assert {key: row["verdict"] for key, row in cells.items()} == wanted
    assert set(wanted.values()) == {"equal", "different", "failed", "not_run", "not_comparable"}
    for row in (row for run_id in RUNS for row in raw_rows(built.home, "cells", run_id)):
        names, mart = row.keys() - {"schema_version"}, cells[row["run_id"], row["cell"]]
        assert {name: mart[name] for name in names} == {name: row[name] for name in names}
    reasons = {row["verdict"]: row["reason"] for row in cells.values() if row["run_id"] == RED}
    reasons.pop("not_comparable")
    assert reasons == {
        "equal": None,
        "different": "outputs: 2 rows differ, first at seq 5; 2 different",
        "failed": "operator debit: event 17: division by zero",
        "not_run": "completed: it never started",
    }
    for row in cells.values():
        measured = row["verdict"] not in ("failed", "not_run")
        rate = pytest.approx(base_speed(row["run_id"], row["threads"])) if measured else None
        assert row["median_events_per_s"] == rate, row["cell"]
        assert row["processing_p99_us"] == (33.0 if measured else None)
        assert row["end_to_end_p99_us"] == (600.0 if measured and row["app"] == "sl" else None)


def test_throughput_mart_has_equal_cells_only(built):
    rows = by_key(built.mart("throughput"), "run_id", "cell")
    assert rows.keys() == equal_cells().keys()
    for (run_id, _), row in rows.items():
        speed = base_speed(run_id, row["threads"])
        assert row["samples"] == 3
        assert row["median_events_per_s"] == pytest.approx(speed)
        assert (row["min_events_per_s"], row["max_events_per_s"]) == pytest.approx((0.9 * speed, 1.2 * speed))
        assert row["speedup"] == pytest.approx(row["threads"] ** 0.5)
        assert row["cpu_ns"] == pytest.approx(row["threads"] * 1e9 / speed)
        assert row["energy_nj"] == (pytest.approx(40e9 / speed) if run_id in WITH_ENERGY else None)


def test_speed_mart_has_equal_cells_measured_against_the_loop(built):
    rows = by_key(built.mart("speed"), "run_id", "cell")
    measured = {key for key in equal_cells() if key[0] in WITH_LOOP}
    # Passes of less than a millisecond have no loop beside them.
    too_short = {
        (run_id, cell)
        for (run_id, cell), spec in equal_cells().items()
        if run_id not in WITH_LOOP and 1000 / base_speed(run_id, spec.threads) < 0.001
    }
    assert rows.keys() == measured | too_short
    assert {key for key, row in rows.items() if row["verdict"] == "too_short"} == too_short
    assert too_short
    for row in (rows[key] for key in measured):
        assert (row["verdict"], row["nights"]) == ("too_new", 1)
        assert row["to_loop"] == pytest.approx(0.5)
        assert row["series"].endswith("/1000/1/node1")


def test_latency_mart_has_equal_cells_and_measured_kinds(built):
    rows = by_key(built.mart("latency"), "run_id", "cell", "kind")
    wanted = set()
    for (run_id, cell), spec in equal_cells().items():
        wanted.add((run_id, cell, "processing"))
        if spec.rate:
            wanted.add((run_id, cell, "end_to_end"))
    assert rows.keys() == wanted
    for (_, _, kind), row in rows.items():
        percentiles = [row[f"{name}_us"] for name in ("p50", "p95", "p99", "p999", "max")]
        first = 11.0 if kind == "processing" else 200.0
        assert percentiles == [first * (i + 1) for i in range(5)]


def test_verdicts_mart_has_every_check_including_bounds_and_red_cells(built):
    rows = by_key(built.mart("verdicts"), "run_id", "cell", "check")
    by_strategy = {}
    for row in rows.values():
        if row["run_id"] == RED and row["check"] == "outputs":
            by_strategy[row["strategy"], row["threads"]] = row
    wrong = by_strategy["owners", 1]
    assert (wrong["verdict"], wrong["different"], wrong["violations"]) == ("different", 2, 2)
    assert (wrong["first_violation"], wrong["first_seq"], wrong["first_sub"]) == ("different", 5, 0)
    bound = by_strategy["no_lock", 2]
    assert (bound["verdict"], bound["is_bound"], bound["violations"]) == ("not_comparable", True, 2)
    assert by_strategy["affinity", 1]["violations"] == 0


def test_quality_mart_has_every_result_of_great_expectations(built):
    rows = by_key(built.mart("quality"), "run_id", "data_set", "number")
    assert rows.keys() == {(run_id, "cells", number) for run_id in RUNS for number in (0, 1)}
    assert {key for key, row in rows.items() if not row["success"]} == {(RED, "cells", 1)}
    red = rows[RED, "cells", 1]
    assert (red["rule"], red["observed_value"], red["unexpected_share"]) == ("Every cell ran to its end", 2.0, 1 / 3)
    assert red["run_at"] == datetime(2025, 3, 2, 2, 0, tzinfo=UTC)
    assert rows[GREEN, "cells", 0]["observed_value"] == 6.0


def test_run_counts_its_cells_and_bounds_do_not_turn_it_red(built):
    runs = by_key(built.mart("runs"), "run_id")
    names = ("cells", "equal", "different", "failed", "not_run", "not_comparable", "is_green")
    assert {run_id: tuple(row[name] for name in names) for (run_id,), row in runs.items()} == {
        GREEN: (6, 4, 0, 0, 0, 2, True),
        RED: (6, 1, 1, 1, 1, 2, False),
        FASTER: (6, 4, 0, 0, 0, 2, True),
    }
    assert runs[(GREEN,)]["run_at"] == datetime(2025, 3, 1, 2, 0, tzinfo=UTC)


def test_marts_have_their_documented_columns(built):
    files = built.home.root / "warehouse" / "dbt"
    manifest, catalog = (json.loads((files / f"{name}.json").read_text()) for name in ("manifest", "catalog"))
    marts = {name for name, node in manifest["nodes"].items() if node.get("path", "").startswith("marts/")}
    assert len(marts) == len([*(built.home.root / "warehouse" / "marts").iterdir()])
    names = {"long": "bigint", "integer": "int"}  # Spark's own, and what SQL calls them
    for mart in marts:
        columns = sorted(catalog["nodes"][mart]["columns"].values(), key=lambda column: column["index"])
        documented = manifest["nodes"][mart]["columns"].values()
        assert [(column["name"], column["data_type"]) for column in documented] == [
            (column["name"], names.get(column["type"].lower(), column["type"].lower())) for column in columns
        ], mart


def test_run_keeps_and_shows_the_dbt_result_of_each_model_and_test(built):
    results = Built.of(History(built.home).run(GREEN))
    manifest = json.loads((built.home.root / "warehouse" / "dbt" / "manifest.json").read_text())["nodes"].values()
    built_kinds = ("model", "seed", "test")
    nodes = {node["name"] for node in manifest if node["resource_type"] in built_kinds} - {"own_ephemeral"}
    assert {node.name.removesuffix(".v2") for node in results.nodes} == nodes
    assert not results.failures
    by_name = {node.name: node for node in results.nodes}
    rows = {mart.name: mart.rows for mart in results.others if mart.of == "marts"}
    assert rows == {name: len(built.mart(name)) for name in rows}
    incremental = {mart.name for mart in results.others if mart.how == "incremental"}
    assert incremental == {"cells", "verdicts", "throughput", "latency", "quality", "own_new"}
    # Nodes of a user, outside of the project's folders.
    assert by_name["own_table"].of == "some/where"
    assert (by_name["own_singular"].of, by_name["own_singular"].state) == ("", "passed")
    assert {(warning.name, warning.of, warning.rows) for warning in results.warnings} == {
        ("own_warning", "runs, own_racks", 3),
        ("own_rack_is_known", "own_racks", 1),
    }
    assert results.passed(by_name["own_racks"]) == "1 of 3"
    assert results.passed(by_name["own_cells.v2"]) == results.passed(by_name["own_hosts"]) == "1 of 1"
    pages = Pages(History(built.home))
    page = pages.built(pages.history.run(GREEN))
    assert f'<h1 class="amber">{results.sentence}</h1>' in page
    assert "configured to warn" in page
    for mart in results.others:
        assert f'<th scope="row">{mart.name}</th>' in page


def test_documentation_is_one_file_that_loads_nothing(built):
    page = (built.home.reports / "dbt" / "docs.html").read_text()
    assert "One row per run and equal cell." in page
    assert re.findall(r"<(?:link|script|img|iframe)[^>]*https?:[^>]*>", page) == []
    assert re.findall(r"\s(?:xlink:)?href=\"(?:{{|\${)", page) == [], "a template that the browser would load"
