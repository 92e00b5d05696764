"""The speed gate after a nightly: the cells that it measures, their order, and the reasons for the others."""

import math
import time
from pathlib import Path
from socket import gethostname

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.gate import evaluation, pairs, suspects
from infra.gate.measurement import UNMEASURED
from infra.gate.pairs import Budget
from infra.gate.suspects import NotJudged
from infra.hosts import build
from jobs.raw import write_raw
from jobs.run_folder import read_plan
from reports.history import History
from reports.history.gate import note_path
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import rows
from streaming_core.run import provenance
from streaming_core.storage import write_json
from tests.dbt.raw_runs import FASTER, GREEN, plan_of, specs, write_runs
from tests.infra.hosts import small_repository
from tests.infra.hosts.small_repository import commit, git, put

CELLS = [spec.cell for spec in specs() if not spec.is_bound]
NIGHTLY = {"name": "nightly", "digest": "0" * 64, "overrides": []}


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """A checkout with two applications: `night` has the build of the last night, and `edited` another source of sl."""
    root = small_repository.make(tmp_path / "repository")
    git(root, "checkout", "--quiet", "-b", "work", "v1")
    put(root, {f"streaming_core/apps/{app}.py": "" for app in ("sl", "wc")})
    commit(root, "night")
    put(root, {"streaming_core/apps/sl.py": "# another\n"})
    commit(root, "edited")
    return small_repository.replace_checkout(root, monkeypatch)


@pytest.fixture
def home(tmp_path, repository) -> Home:
    """A green nightly, and the nightly after it in an edited checkout."""
    home = Home(tmp_path / "home")
    write_runs(home, (GREEN, FASTER))
    for run_id, name in ((GREEN, git(repository, "rev-parse", "--short", "night")), (FASTER, provenance.build())):
        facts = [row | {"build": name, "host": gethostname()} for row in rows(home, "cells", run_id) or []]
        write_raw(home, "cells", run_id, [row | {"yardstick": row["yardstick"] and "loop"} for row in facts])
        home.part("pairs", run_id).unlink()
        more = {"matrix": NIGHTLY, "regression": {"gate_minutes": 1.0, "gate_against": ""}}
        write_json(home.run(run_id) / "plan.json", plan_of(run_id) | more)
    return home


def mart(home: Home, name: str, table: list[dict]) -> None:
    folder = home.root / "warehouse" / "marts" / name
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(table), folder / "part-0.parquet")


def chosen(home: Home) -> list[tuple[str, str]]:
    reference = suspects.find_reference(home, FASTER, "")
    baseline = build.Build(reference.commit, home.root / "tree")
    put(baseline.tree, {"streaming_core/apps/sl.py": "", "streaming_core/apps/wc.py": ""})
    order = suspects.choose(home, FASTER, read_plan(home, FASTER)["cells"], reference, baseline)
    return [(suspect.cell["cell"], suspect.why) for suspect in order]


def test_suspects_are_ordered_by_edit_then_move_then_age_of_the_verdict(home):
    wc = [name for name in CELLS if name.startswith("wc")]
    speed = {"run_id": FASTER, "to_loop": 1.0, "level": 1.0, "noise": 0.01, "verdict": "unchanged"}
    mart(home, "speed", [speed | {"cell": name} for name in CELLS])
    judged = {"run_id": GREEN, "cell": wc[0], "verdict": "unchanged"}
    mart(home, "gate", [judged, judged | {"run_id": FASTER, "cell": wc[1], "verdict": "not_judged"}])
    order = chosen(home)
    assert {name for name, why in order[:2]} == set(CELLS) - set(wc)
    assert ({why for _, why in order[:2]}, order[2:]) == ({"source"}, [(wc[1], "sample"), (wc[0], "sample")])
    (home.root / "warehouse" / "marts" / "speed" / "part-0.parquet").unlink()
    (home.root / "warehouse" / "marts" / "speed").rmdir()
    moved = speed | {"cell": wc[0], "to_loop": math.exp(-0.031)}
    mart(home, "speed", [moved, speed | {"cell": wc[1], "to_loop": math.exp(0.029)}])
    assert chosen(home)[2:] == [(wc[0], "moved"), (wc[1], "sample")]


def test_changed_loop_makes_a_cell_a_suspect(home):
    facts = rows(home, "cells", GREEN) or []
    write_raw(home, "cells", GREEN, [row | {"yardstick": "an older loop"} for row in facts])
    assert {why for _, why in chosen(home)} == {"source"}


def test_application_that_the_baseline_lacks_is_kept_with_its_reason(home, tmp_path):
    reference = suspects.find_reference(home, FASTER, "")
    baseline = build.Build(reference.commit, tmp_path / "without")
    order = suspects.choose(home, FASTER, read_plan(home, FASTER)["cells"], reference, baseline)
    kept = suspects.measure(home, FASTER, order, baseline, pairs.FOREVER, lambda line: pytest.fail(line))
    assert {row["cell"] for row in kept} == {suspect.cell["cell"] for suspect in order}
    assert {row["error"] for row in kept if row["cell"].startswith("sl")} == {
        f"build {reference.commit[:9]} has no application sl"
    }


@pytest.mark.slow
def test_unmeasured_suspect_is_kept_with_its_reason(home, monkeypatch):
    monkeypatch.setattr(pairs, "PAIRS", 1)
    reference = suspects.find_reference(home, FASTER, "")
    baseline = build.at_commit(home, reference.commit, "night", lambda line: None)
    order = suspects.choose(home, FASTER, read_plan(home, FASTER)["cells"], reference, baseline)
    late = Budget(time.monotonic() - 1, "its turn did not come")
    kept = suspects.measure(home, FASTER, order, baseline, late, lambda line: pytest.fail(line))
    assert {(row["cell"], row["pair"], row["error"]) for row in kept} == {
        (name, UNMEASURED, "its turn did not come") for name in CELLS if name.startswith("sl")
    }, "every cell is in some sample"
    assert {row["baseline"] for row in kept} == {git(build.ROOT, "rev-parse", "night")}
    facts = rows(home, "cells", FASTER) or []
    write_raw(home, "cells", FASTER, [row | {"host": "numa-7"} for row in facts])
    kept = suspects.measure(home, FASTER, order, baseline, pairs.FOREVER, lambda line: pytest.fail(line))
    assert {row["error"] for row in kept} == {
        f"it ran on host numa-7, and this is {gethostname()}; run `lockstep gate` on that host"
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("first night", "no earlier night is green; name a commit in gate_against"),
        ("uncommitted night", "which no commit holds; commit before the night"),
        ("commit is gone", "'0123456' is not a commit of "),
        ("same engine", "the engine is the same as in the last green night, build "),
    ],
)
def test_nightly_without_a_reference_gives_reason_and_remedy(home, repository, monkeypatch, change, message):
    if change == "first night":
        (home.run(GREEN) / "plan.json").unlink()
    elif change == "same engine":
        git(repository, "checkout", "--quiet", "night")
    else:
        build_name = {"uncommitted night": "0123456-dirty", "commit is gone": "0123456"}[change]
        write_raw(home, "cells", GREEN, [row | {"build": build_name} for row in rows(home, "cells", GREEN) or []])
    with pytest.raises(NotJudged, match=message):
        suspects.find_reference(home, FASTER, "")
    assert suspects.work(home, FASTER, lambda line: None).startswith("not judged: ")
    assert message in History(home).run(FASTER).gate_sentence
    assert note_path(home, FASTER).exists()


def test_requested_commit_is_the_reference_whatever_its_source(home, repository):
    reference = suspects.find_reference(home, FASTER, "edited")
    assert (reference.ref, reference.commit) == ("edited", git(repository, "rev-parse", "edited"))


def test_later_measurement_of_some_cells_keeps_the_others(home):
    about = {"baseline": "c", "build": "b", "host": "h", "pair": UNMEASURED, "error": "late"}
    for names, baseline in ((CELLS[:2], "c"), (CELLS[1:2], "c")):
        evaluation.store(home, FASTER, "v1", [about | {"cell": name, "baseline": baseline} for name in names], print)
    kept = rows(home, "pairs", FASTER) or []
    assert sorted(row["cell"] for row in kept) == sorted(CELLS[:2])
    evaluation.store(home, FASTER, "v2", [about | {"cell": CELLS[0], "baseline": "d"}], print)
    assert [(row["cell"], row["baseline_ref"]) for row in rows(home, "pairs", FASTER) or []] == [(CELLS[0], "v2")]
