"""Pairs of passes: of small programs in the engine's place, and once of the engine."""

from __future__ import annotations

import json
from pathlib import Path
from socket import gethostname

import pytest

from infra.services import build, pairs
from infra.services.build import Build
from jobs.raw import write_raw
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression import matrix
from streaming_core.regression.home import Home, new_run_id
from streaming_core.regression.request import RegressionSpec
from streaming_core.regression.warehouse import PAIRS
from streaming_core.run import engine
from streaming_core.run.way import RunSpec
from streaming_core.storage import write_json
from tests.infra.services import small_repository
from tests.infra.services.small_repository import ANSWERS

SPEC = RunSpec.parse({"app": "wc", "executor": "pooled", "repetitions": 3, "sink": "parquet", "rate": 100.0})


def answering(folder: Path, **answer: object) -> Build:
    """A build whose passes take `seconds` and come to `digest`, or that ends with `error`."""
    (folder / "streaming_core").mkdir(parents=True)
    (folder / "streaming_core" / "__init__.py").touch()
    (folder / "streaming_core" / "cli.py").write_text(ANSWERS)
    write_json(folder / "streaming_core" / "answer", answer)
    return Build(folder.name, folder)


def two(folder: Path, baseline: dict, other: dict) -> dict[str, Build]:
    return {"baseline": answering(folder / "old", **baseline), "build": answering(folder / "new", **other)}


def asked(build: Build) -> list[dict]:
    return [json.loads(line) for line in (build.tree / "streaming_core" / "asked").read_text().splitlines()]


def test_pairs_are_of_two_processes_and_lots_say_who_is_first(tmp_path):
    builds = two(tmp_path, {"seconds": 0.25, "steal": 0.1}, {"seconds": 0.3125})
    made = pairs.paired(builds, SPEC, tmp_path, "a lot")
    assert [row["pair"] for row in made] == list(range(pairs.PAIRS))
    assert {(row["baseline_seconds"], row["build_seconds"], row["passes"]) for row in made} == {(0.25, 0.3125, 3)}
    assert {(row["baseline_digest"], row["build_digest"]) for row in made} == {("1:a 0:0", "1:a 0:0")}
    assert {(row["steal"], row["others"]) for row in made} == {(0.1, 0.0)}
    first = [row["first"] for row in made]
    assert 8 < first.count("build") < 24
    wanted = RunSpec.parse({"app": "wc", "executor": "pooled", "repetitions": 3, "sink": "digest", "seconds": 0.0})
    for one in builds.values():
        # One more, which does not count; files, rates and the loop, which the cell has, are not asked for.
        assert [RunSpec.parse(spec) for spec in asked(one)] == [wanted] * 33
    assert not any({"error"} & row.keys() for row in made)
    assert all(set(row) <= set(PAIRS.names) for row in made)


def test_lots_are_the_same_for_the_same_cell_of_the_same_run_and_others_for_another(tmp_path, monkeypatch):
    monkeypatch.setattr(pairs, "PAIRS", 6)
    builds = two(tmp_path, {}, {})
    drawn = [[row["first"] for row in pairs.paired(builds, SPEC, tmp_path, lot)] for lot in ("a", "a", "b")]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(("baseline", "other", "passes"), [(0.125, 0.11, 5), (0.125, 2.0, 3), (0.004, 0.005, 100)])
def test_passes_are_as_many_as_a_second_takes_on_both_sides_together(tmp_path, monkeypatch, baseline, other, passes):
    monkeypatch.setattr(pairs, "PAIRS", 1)
    builds = two(tmp_path, {"seconds": baseline}, {"seconds": other})
    made = pairs.paired(builds, SPEC, tmp_path, "x")
    assert [spec["repetitions"] for spec in asked(builds["build"])] == [3, passes]
    assert made[0]["passes"] == passes


@pytest.mark.parametrize(
    ("baseline", "other", "said"),
    [
        ({}, {"digest": "1:b"}, {"baseline_digest": "1:a 0:0", "build_digest": "1:b 0:0"}),
        ({"seconds": 0.0004}, {}, {"baseline_seconds": 0.0004, "build_seconds": 0.25}),
        ({}, {"error": "it broke"}, {"error": "build new: it broke"}),
        (
            {"means": "something else"},
            {},
            {"error": "build old reads the specification of the cell in another way, so they cannot be compared"},
        ),
    ],
)
def test_what_cannot_be_compared_ends_the_cell_with_one_row_that_says_so(tmp_path, baseline, other, said):
    (row,) = pairs.paired(two(tmp_path, baseline, other), SPEC, tmp_path, "x")
    assert said.items() <= row.items()


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> tuple[Home, str, list[str]]:
    """A run of two cells that equal the oracle, and one that does not, as far as the gate looks at one."""
    home = Home(tmp_path_factory.mktemp("home"))
    run_id = new_run_id("measured", 1e9)
    regression = RegressionSpec(applications=["wc"], executors=["pooled"], threads=[1, 2, 3], events=2000)
    planned = matrix.plan(regression, home, run_id)
    address = planned["workloads"][0]["address"]
    app = registry.load("wc")
    workload.write(app, app.bind(), 2000, 1, home.workload("wc", address))
    names = [cell["cell"] for cell in planned["cells"]]
    about = {"host": gethostname(), "build": engine.build(), "status": "ok", "verdict": "equal"}
    rows = [about | {"cell": name} for name in names]
    rows[2]["verdict"] = "different"
    write_raw(home, "cells", run_id, rows)
    return home, run_id, names


def test_the_engine_is_measured_and_what_it_says_fits_the_raw_table(measured, tmp_path):
    home, run_id, _ = measured
    (planned, *_) = json.loads((home.run(run_id) / "plan.json").read_text())["cells"]
    spec, source = RunSpec.parse(planned["spec"]), home.workload("wc", planned["workload"])
    side = pairs.one_side(build.checkout(), spec, source, 3)
    assert side.seconds > 0
    right = engine.run(RunSpec.parse({"app": "wc", "executor": "pooled"}), source, None)
    assert side.digest == f"{right.verified.digest} {right.state_digest}"
    with pytest.raises(RunFailed, match=r"^build .*: streaming-core: .*nothing"):
        pairs.one_side(build.checkout(), spec, tmp_path / "nothing", 3)


def test_what_cannot_be_measured_is_refused(measured, tmp_path, monkeypatch):
    home, run_id, names = measured

    def refused(cells: list[str] | None = None, run: str = run_id) -> str:
        with pytest.raises(BadInput) as error:
            pairs.cells_of(home, run, cells)
        return str(error.value)

    assert [cell["cell"] for cell in pairs.cells_of(home, run_id, None)] == names[:2]
    assert [cell["cell"] for cell in pairs.cells_of(home, run_id, names[1:2])] == names[1:2]
    assert refused(["nosuch"]) == f"run {run_id} has no cell nosuch: its page lists the names"
    assert refused([names[2]]) == f"not equal to the oracle: {names[2]}; the gate measures only cells that are equal"
    assert refused(run=new_run_id("none", 1e9)).endswith("plan.json is missing")
    monkeypatch.setattr(pairs, "checkout", lambda: Build("def5678", tmp_path))
    assert refused().endswith("this checkout is build def5678: start a run of this checkout first")
    monkeypatch.undo()
    monkeypatch.setattr(pairs, "gethostname", lambda: "elsewhere")
    assert refused().endswith("use the gate on that host, or start a run here first")


def test_rows_say_which_builds_and_environments_they_are_of(measured, tmp_path, monkeypatch):
    home, run_id, names = measured
    repository = small_repository.make(tmp_path / "repository")
    cells = pairs.cells_of(home, run_id, names[:1])
    small_repository.replace_checkout(repository, monkeypatch)
    monkeypatch.setattr(pairs, "PAIRS", 2)
    commit = build.resolve("slow")
    baseline = build.at_commit(home, commit, "slow", lambda line: None)
    rows = pairs.measure(home, run_id, cells, baseline, lambda line: None)
    assert {(row["cell"], row["baseline"], row["build"], row["host"]) for row in rows} == {
        (names[0], commit, engine.build(), gethostname())
    }
    assert {(row["baseline_seconds"], row["build_seconds"]) for row in rows} == {(0.5, 0.25)}
    assert {row["baseline_environment"] for row in rows}.isdisjoint({row["environment"] for row in rows})
    assert all(set(row) | {"run_id", "schema_version", "baseline_ref", "error"} == set(PAIRS.names) for row in rows)
