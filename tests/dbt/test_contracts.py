"""Every mart has an enforced contract, and a NULL where it declares none is refused, which Parquet alone lets pass."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from streaming_core.regression.home import Home
from tests.dbt.conftest import python
from tests.dbt.raw_runs import GREEN, write_runs

PROJECT = Path(__file__).resolve().parents[2] / "dbt"

# Builds one mart from a copy of the project. Its model has a NULL or a type that the contract does not allow.
BUILD = """
import json, sys
from pathlib import Path
from infra.history import marts
from streaming_core.regression.home import Home

marts.PROJECT = Path(sys.argv[1])
home, results = Home(), {}
with marts.spark(home, "test"):
    for name, select in json.loads(sys.argv[2]).items():
        (marts.PROJECT / "models" / "marts" / "runs.sql").write_text(select)
        select = ["--select", "+runs", "--exclude-resource-type", "unit_test", "--indirect-selection", "cautious"]
        done = marts.dbt(home, "build", *select)
        results[name] = [[node.node.name, str(node.status), node.message or ""] for node in done.result]
json.dump(results, open(sys.argv[3], "w"))
"""


@pytest.mark.slow
def test_every_mart_has_an_enforced_contract_with_columns_that_are_never_null(built):
    manifest = json.loads((built.home.root / "warehouse" / "dbt" / "manifest.json").read_text())
    marts = {n["name"]: n for n in manifest["nodes"].values() if n.get("path", "").startswith("marts/")}
    assert marts.keys() == {path.stem for path in (PROJECT / "models" / "marts").glob("*.sql")}
    assert [name for name, node in marts.items() if not node["config"]["contract"]["enforced"]] == []
    tests = [n for n in manifest["nodes"].values() if (n.get("test_metadata") or {}).get("name") == "one_row_per"]
    assert {f"model.lockstep.{name}.v1" for name in marts} <= {n["attached_node"] for n in tests}
    for name, node in marts.items():
        never = {
            c for c, column in node["columns"].items() if {"not_null"} <= {k["type"] for k in column["constraints"]}
        }
        assert "run_id" in never, name
        holes = [c for c in never for row in built.mart(name) if row[c] is None]
        assert holes == [], name


def test_every_column_of_a_mart_has_a_type():
    for path in (PROJECT / "models" / "marts").glob("*.yml"):
        (model,) = yaml.safe_load(path.read_text())["models"]
        assert all(column.get("data_type") for column in model["columns"]), path.name


@pytest.mark.slow
def test_mart_refuses_a_null_and_a_wrong_type(tmp_path):
    home, project = Home(tmp_path / "home"), tmp_path / "dbt"
    write_runs(home, (GREEN,))
    shutil.copytree(PROJECT, project)
    runs = (PROJECT / "models" / "marts" / "runs.sql").read_text()
    planted = {
        "null": runs.replace("  min(run_at) as run_at", "  cast(null as timestamp) as run_at"),
        "type": runs.replace("  count(*) as cells", "  cast(count(*) as int) as cells"),
        "right": runs,
    }
    results = tmp_path / "results.json"
    process = python(home, "-c", BUILD, str(project), json.dumps(planted), str(results))
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    outcome = {
        name: {node: (status, why) for node, status, why in rows}
        for name, rows in json.loads(results.read_text()).items()
    }
    check = "every_run_has_one_row"
    assert outcome["null"]["runs"][0] == "success", "Parquet takes a NULL"
    assert (outcome["null"][check][0], outcome["type"]["runs"][0]) == ("fail", "error")
    assert "contract" in outcome["type"]["runs"][1]
    assert {status for status, _ in outcome["right"].values()} <= {"success", "pass"}
