"""Builds replace only the months that changed, and removed and broken runs leave the marts."""

import json
import os
import shutil

import pytest

from infra.history import months
from jobs.raw import write_raw
from streaming_core.regression.home import Home
from tests.dbt.conftest import python
from tests.dbt.raw_runs import specs, write_runs

JANUARY = ("20250110T020000Z-00000001", "20250111T020000Z-00000002")
FEBRUARY = "20250210T020000Z-00000003"
BESIDE = "20250211T020000Z-00000004"
MARTS = ("cells", "verdicts", "throughput", "latency", "quality")

# Runs steps of a test in one process, because a Spark server takes as long as a build.
STEPS = """
import json, sys
from infra.history import months, marts
from streaming_core.regression.home import Home
from tests.dbt import test_months

home = Home()
seen = {}
with marts.spark(home, "test"):
    for step in test_months.SCRIPT:
        getattr(test_months, step)(home)
        result = marts._marts(home, months.changed(home))
        seen[step] = test_months.observed(home) | {"failed": [
            outcome.node.name for outcome in result.result if str(outcome.status) not in ("success", "pass", "no-op")
        ]}
    marts._build(home, is_documented=True)  # after models that are incremental
json.dump(seen, open(sys.argv[1], "w"))
"""


def observed(home: Home) -> dict:
    """The files of each month, and the rows of each mart."""
    marts = home.root / "warehouse" / "marts"
    from reports.history import History

    rows = {name: sorted(map(repr, map(dict.items, History(home).mart(name)))) for name in (*MARTS, "runs")}
    files = sorted(str(path.relative_to(marts)) for path in marts.glob("*/month=*/*.parquet"))
    runs = {name: sorted({row["run_id"] for row in History(home).mart(name)}) for name in (*MARTS, "runs")}
    return {"files": files, "rows": rows, "runs": runs}


def first(home: Home) -> None:
    write_runs(home, JANUARY)


def february(home: Home) -> None:
    write_runs(home, (FEBRUARY,))


def nothing(home: Home) -> None:
    pass


def beside(home: Home) -> None:
    """Another run goes on: it has checked its outputs and measured, and its cells are not loaded."""
    write_runs(home, (BESIDE,))
    shutil.rmtree(home.raw("cells") / f"run_id={BESIDE}")


def new_server(home: Home) -> None:
    """Spark knows no table any more, and the files are there. A run is loaded again, and the one beside it is gone."""
    from pyspark.sql import SparkSession

    for table in months.RESULTS:
        shutil.rmtree(home.raw(table) / f"run_id={BESIDE}", ignore_errors=True)
    SparkSession.builder.getOrCreate().sql("drop schema lockstep cascade")
    write_runs(home, (FEBRUARY,))


def gone(home: Home) -> None:
    for table in months.RESULTS:
        shutil.rmtree(home.raw(table) / f"run_id={JANUARY[1]}")


def broken(home: Home) -> None:
    """All rows of February break a rule."""
    rows = [{"run_id": FEBRUARY, "cell": specs()[0].cell, "kind": "peak", "repetition": 0, "seconds": 0.0}]
    write_raw(home, "samples", FEBRUARY, rows)


def month_gone(home: Home) -> None:
    for table in months.RESULTS:
        shutil.rmtree(home.raw(table) / f"run_id={FEBRUARY}")


SCRIPT = ("first", "february", "nothing", "beside", "new_server", "gone", "broken", "month_gone")


def of_month(files: list[str], month: str) -> list[str]:
    return [name for name in files if f"month={month}/" in name]


@pytest.mark.slow
def test_build_replaces_changed_months_only(tmp_path):
    results = tmp_path / "seen.json"
    process = python(Home(tmp_path / "home"), "-c", STEPS, str(results))
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    seen = json.loads(results.read_text())
    assert {step: state["failed"] for step, state in seen.items()} == {step: [] for step in SCRIPT}

    def runs(step: str) -> set[str]:
        assert len({tuple(runs) for runs in seen[step]["runs"].values()}) == 1, "all marts have the same runs"
        return set(seen[step]["runs"]["runs"])

    def files(step: str, month: str) -> list[str]:
        return of_month(seen[step]["files"], month)

    assert runs("first") == {*JANUARY}
    assert runs("february") == {*JANUARY, FEBRUARY}
    assert files("february", "2025-01") == files("first", "2025-01")
    assert {name.split("/")[0] for name in files("february", "2025-02")} == {*MARTS}
    assert seen["nothing"] == seen["february"]
    assert seen["beside"]["rows"] == seen["february"]["rows"], "a run counts once its cells are loaded"
    assert seen["new_server"]["rows"] == seen["february"]["rows"], "history was lost"
    assert files("new_server", "2025-01") == files("first", "2025-01")
    assert files("new_server", "2025-02") != files("february", "2025-02")
    assert runs("gone") == {JANUARY[0], FEBRUARY}
    assert files("gone", "2025-02") == files("new_server", "2025-02")
    assert runs("broken") == {JANUARY[0]}
    assert runs("month_gone") == {JANUARY[0]}


def test_files_decide_what_a_build_replaces(tmp_path, monkeypatch):
    home = Home(tmp_path)
    write_runs(home, JANUARY)
    marts = [home.root / "warehouse" / "marts" / path.stem for path in months.PROJECT.glob("models/marts/*.sql")]
    for mart in marts:
        mart.mkdir(parents=True)
    assert months.changed(home).is_whole, "nothing is built yet"
    months.keep(home, months.changed(home).state)
    assert (months.changed(home).changed, months.changed(home).is_whole) == ([], False)
    write_runs(home, (FEBRUARY,))
    assert (months.changed(home).changed, months.changed(home).is_whole) == (["2025-02"], False)
    months.keep(home, months.changed(home).state)
    (path,) = (home.raw("cells") / f"run_id={JANUARY[0]}").glob("*.parquet")
    os.utime(path, ns=(1, 1))
    assert (months.changed(home).changed, months.changed(home).is_whole) == (["2025-01"], False)
    months.keep(home, months.changed(home).state)
    gone(home)
    assert (months.changed(home).changed, months.changed(home).is_whole) == (["2025-01"], False)
    month_gone(home)
    assert months.changed(home).is_whole
    months.keep(home, months.changed(home).state)
    assert not months.changed(home).is_whole
    for mart in marts:
        mart.rmdir()
        assert months.changed(home).is_whole, mart.name
        mart.mkdir()
    monkeypatch.setattr(months, "_project", lambda: "another")
    assert months.changed(home).is_whole
