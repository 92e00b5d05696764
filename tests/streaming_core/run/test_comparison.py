"""`diff` names every difference of value, row, order, table or pass, and explains incomparable results."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core.data import workload
from streaming_core.data.comparison import Difference, in_memory
from streaming_core.oracle import oracle
from streaming_core.run.comparison import Diff, diff
from streaming_core.run.report import Latency, RunReport, Sample
from streaming_core.run.way import RunSpec
from streaming_core.storage import sealed

APPS = {"wc": ("pooled", "count"), "sl": ("transactional", "accounts"), "sd": ("pooled", "moving_average")}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Application -> a folder with the oracle's result and an equal run."""
    root, folders = tmp_path_factory.mktemp("diff"), {}
    for app, (executor, _) in APPS.items():
        events = workload.write(app, {}, 300, 1, root / app / "workload")
        manifest = oracle.run(root / app / "workload", root / app / "oracle")
        shutil.copytree(root / app / "oracle", root / app / "run", ignore=shutil.ignore_patterns("manifest.json"))
        spec = RunSpec.parse({"app": app, "executor": executor})
        latency = Latency(p50=1, p95=1, p99=1, p999=1, max=1)
        sample = Sample(
            kind="verified", repetition=0, events=300, outputs=manifest["outputs"]["rows"],
            digest=manifest["output_digest"], in_order=True, seconds=1, events_per_s=300, processing=latency,
            breakdown={}, cpu_seconds=1, **{count: manifest[count] for count in oracle.DROPPED},
        )  # fmt: skip
        report = RunReport(
            spec=spec.model_dump(), spec_digest=spec.spec_digest, cell=spec.cell, app=app,
            code_digest=events["code_digest"], build="unknown", workload=manifest["workload"], is_bound=False,
            samples=[sample], state_digest=manifest["state_digest"], compile_seconds=0, peak_memory_bytes=0,
            topology={}, host={},
        )  # fmt: skip
        (root / app / "run" / "report.json").write_text(report.model_dump_json())
        folders[app] = root / app
    return folders


@pytest.fixture
def copied(results, tmp_path):
    """copied(app) -> a private copy of the run folder, and the oracle's folder."""

    def copy(app):
        shutil.copytree(results[app] / "run", tmp_path / app)
        return tmp_path / app, results[app] / "oracle"

    return copy


def rewrite(path, change):
    """Writes change(table) back."""
    table = pq.read_table(path)
    pq.write_table(change(table), path)


def changed(table, name, position):
    """The table with the smallest change of one value."""

    def other(value):
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return value + 1
        if isinstance(value, float):
            return float(np.nextafter(value, np.inf))
        if isinstance(value, bytes):
            return value[:-1] + bytes([value[-1] ^ 1])
        return [other(value[0]), *value[1:]]

    values = table[name].to_pylist()
    values[position] = other(values[position])
    index = table.column_names.index(name)
    return table.set_column(index, table.schema.field(name), pa.array(values, table.schema.field(name).type))


@pytest.mark.parametrize("app", APPS)
def test_equal_results_compare_equal(results, app):
    outcome = diff(results[app] / "run", results[app] / "oracle")
    assert (outcome.exit_code, outcome.reason, outcome.differences) == (0, None, [])
    assert outcome.text().startswith(f"equal: {outcome.outputs} outputs and {outcome.states} rows")
    assert outcome.outputs > 0
    assert outcome.states > 0


@pytest.mark.parametrize("app", APPS)
def test_any_changed_output_value_is_named(copied, app):
    run, theirs = copied(app)
    path = run / "outputs" / "part-00000.parquet"
    original = pq.read_table(path)
    for name in original.column_names[2:]:
        for position in (0, original.num_rows // 2, original.num_rows - 1):
            pq.write_table(changed(original, name, position), path)
            outcome = diff(run, theirs)
            assert outcome.exit_code == 1
            [difference] = outcome.differences
            assert (difference.kind, difference.columns, outcome.counts) == ("different", (name,), {"outputs": 1})
            row = {key: original[key][position].as_py() for key in ("seq", "sub")}
            assert difference.row == row
            assert difference.expected[name] == original[name][position].as_py()
            assert f"outputs: seq {row['seq']}, sub {row['sub']}: {name}: expected" in outcome.text()


@pytest.mark.parametrize("app", APPS)
def test_any_changed_state_value_is_named(copied, app):
    run, theirs = copied(app)
    name = APPS[app][1]
    path = run / "state" / f"{name}.parquet"
    original = pq.read_table(path)
    for column in original.column_names[1:]:
        position = original.num_rows - 1
        pq.write_table(changed(original, column, position), path)
        outcome = diff(run, theirs)
        [difference] = outcome.differences
        assert (outcome.exit_code, difference.table, difference.columns) == (1, f"state {name}", (column,))
        assert difference.row == {"key": original["key"][position].as_py()}


def test_missing_and_extra_state_rows_and_tables_are_named(copied):
    run, theirs = copied("sl")
    accounts, assets = (run / "state" / f"{name}.parquet" for name in ("accounts", "assets"))
    rewrite(accounts, lambda table: table.slice(1))
    shutil.copy(assets, run / "state" / "other.parquet")
    assets.unlink()
    outcome = diff(run, theirs)
    assert outcome.exit_code == 1
    assert [(d.table, d.kind) for d in outcome.differences] == [
        ("state accounts", "missing"), ("state assets", "table"), ("state other", "table"),
    ]  # fmt: skip


def test_lack_of_all_outputs_is_a_difference(copied):
    run, theirs = copied("wc")
    (run / "outputs" / "part-00000.parquet").unlink()
    assert diff(run, theirs).exit_code == 1


def test_a_different_digest_of_a_pass_is_a_difference(copied):
    run, theirs = copied("wc")
    report = json.loads((run / "report.json").read_text())
    report["samples"].append(
        report["samples"][0] | {"kind": "peak", "repetition": 1, "digest": "1:0", "in_order": False}
    )
    report["rerun"] = {"kind": "peak", "repetition": 1, "passes": 1, "differs": True}
    (run / "report.json").write_text(json.dumps(sealed(report)))
    shutil.copytree(run / "outputs", run / "rerun" / "outputs")
    rewrite(next((run / "rerun" / "outputs").iterdir()), lambda table: changed(table, "n", 7))
    outcome = diff(run, theirs)
    assert [(d.table, d.columns) for d in outcome.differences] == [
        ("rerun", ("n",)), ("passes", ("digest",)), ("passes", ("order",))
    ]  # fmt: skip
    assert "pass peak 1" in outcome.text()


@pytest.mark.parametrize("count", ["outputs", *oracle.DROPPED])
@pytest.mark.parametrize("side", ["run", "oracle"])
def test_a_different_count_on_either_side_is_a_difference(results, tmp_path, side, count):
    for name in ("run", "oracle"):
        shutil.copytree(results["sl"] / name, tmp_path / name)
    assert diff(tmp_path / "run", tmp_path / "oracle").exit_code == 0
    path = tmp_path / side / ("report.json" if side == "run" else "manifest.json")
    document = json.loads(path.read_text())
    if side == "run":
        document["samples"][0][count] += 1
    elif count == "outputs":
        document["outputs"]["rows"] += 1
    else:
        document[count] += 1
    path.write_text(json.dumps(sealed(document)))
    outcome = diff(tmp_path / "run", tmp_path / "oracle")
    assert outcome.exit_code == 1
    assert [(d.table, d.columns) for d in outcome.differences] == [("passes", (count,))]
    assert count in outcome.text()


@pytest.mark.parametrize("count", oracle.DROPPED)
def test_an_oracle_without_a_count_is_damaged(results, tmp_path, count):
    shutil.copytree(results["sl"] / "oracle", tmp_path / "oracle")
    manifest = json.loads((tmp_path / "oracle" / "manifest.json").read_text())
    del manifest[count]
    (tmp_path / "oracle" / "manifest.json").write_text(json.dumps(manifest))
    assert diff(results["sl"] / "run", tmp_path / "oracle").exit_code == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"is_bound": True}, "a bound and no result"),
        ({"app": "sl"}, "application"),
        ({"code_digest": "0" * 16}, "the application changed"),
        ({"workload": {"content_digest": "1:0", "params": {}}}, "the workloads differ"),
    ],
)
def test_incomparable_results_give_a_reason(copied, change, words):
    run, theirs = copied("wc")
    report = json.loads((run / "report.json").read_text())
    (run / "report.json").write_text(json.dumps(sealed(report | change)))
    outcome = diff(run, theirs)
    assert outcome.exit_code == 2
    assert words in outcome.reason
    assert outcome.as_dict()["verdict"] == "not_comparable"


@pytest.mark.parametrize(
    ("file", "edit"),
    [
        ("run/report.json", lambda report: report["samples"][0].update(seconds=0.5)),
        ("run/report.json", lambda report: report["samples"].append(report["samples"][0])),
        ("run/report.json", lambda report: report["spec"].update(threads=99)),
        ("run/report.json", lambda report: report.pop("digest")),
        ("oracle/manifest.json", lambda manifest: manifest["workload"].update(seed=5)),
        ("oracle/manifest.json", lambda manifest: manifest.pop("digest")),
    ],
)
def test_results_that_were_edited_are_refused(results, tmp_path, file, edit):
    shutil.copytree(results["wc"], tmp_path, dirs_exist_ok=True)
    document = json.loads((tmp_path / file).read_text())
    edit(document)
    (tmp_path / file).write_text(json.dumps(document))
    outcome = diff(tmp_path / "run", tmp_path / "oracle")
    assert outcome.exit_code == 2
    assert "was changed (digest" in outcome.reason


def test_missing_and_damaged_files_are_refused(copied, tmp_path):
    run, theirs = copied("wc")
    assert "manifest" in diff(run, run).reason or "no oracle result" in diff(run, run).reason
    assert "report.json is missing" in diff(tmp_path / "nowhere", theirs).reason
    path = run / "outputs" / "part-00000.parquet"
    path.write_bytes(path.read_bytes()[:100])
    assert diff(run, theirs).exit_code == 2
    shutil.rmtree(run / "outputs")
    assert "wrote no outputs" in diff(run, theirs).reason


def test_bits_are_printed_when_texts_agree():
    bits = [[0x7FF8 << 48, 0x7FF8 << 48, 0], [0x7FF8 << 48, 0xFFF8 << 48 | 5, 1 << 63]]
    expected, actual = (
        pa.table({"key": [0, 1, 2], "x": x, "some": pa.FixedSizeListArray.from_arrays(x, 1)})
        for x in (pa.array(np.array(side, np.uint64).view(np.float64)) for side in bits)
    )
    outcome = Diff("run", "oracle")
    outcome.take(in_memory("outputs", expected, actual))
    assert outcome.text().splitlines()[1:] == [
        "  outputs: key 1: x: expected NaN, got NaN (bits 0xfff8000000000005)",
        "  outputs: key 1: some: expected [NaN], got [NaN (bits 0xfff8000000000005)]",
        "  outputs: key 2: x: expected 0.0, got -0.0",
        "  outputs: key 2: some: expected [0.0], got [-0.0]",
    ]
    shown = outcome.as_dict()["differences"]
    assert [d["actual"] for d in shown] == [
        "NaN (bits 0xfff8000000000005)",
        ["NaN (bits 0xfff8000000000005)"],
        -0.0,
        [-0.0],
    ]


def test_the_first_different_item_is_shown_when_the_printed_part_agrees():
    expected, actual = list(range(500)), list(range(500))
    actual[300] = -1

    def lines(actual):
        rows = ({"items": items} for items in (expected, actual))
        return Difference("outputs", "different", {"seq": 1}, *rows, ("items",)).lines()

    assert lines(actual) == ["outputs: seq 1: items: expected 300 at [300], got -1 at [300]"]
    assert lines(expected[:499]) == ["outputs: seq 1: items: expected 500 items, got 499 items"]


def emptied(folder):
    """Empties every table of a result."""
    for path in folder.rglob("*.parquet"):
        rewrite(path, lambda table: table.slice(0, 0))


@pytest.mark.parametrize("app", APPS)
def test_an_empty_side_differs_unless_both_are_empty(copied, tmp_path, app):
    run, theirs = copied(app)
    full, empty = tmp_path / "full", tmp_path / "empty"
    shutil.copytree(theirs, full)
    shutil.copytree(theirs, empty)
    emptied(empty)
    outcome = diff(run, empty)
    assert (outcome.exit_code, outcome.reason) == (1, None)
    assert outcome.counts["outputs"] == pq.read_metadata(run / "outputs" / "part-00000.parquet").num_rows
    assert {d.kind for d in outcome.differences if d.table == "outputs"} == {"extra"}
    emptied(run)
    outcome = diff(run, full)
    assert (outcome.exit_code, outcome.reason) == (1, None)
    assert {d.kind for d in outcome.differences if d.table == "outputs"} == {"missing"}
    outcome = diff(run, empty)
    assert (outcome.exit_code, outcome.text()) == (0, "equal: 0 outputs and 0 rows of final state on both sides")
    (run / "outputs" / "part-00000.parquet").unlink()
    assert diff(run, empty).text().splitlines()[1] == "  outputs: expected 0 rows, got no file"


def test_the_name_of_a_folder_does_not_become_a_column(copied, tmp_path):
    run, theirs = copied("sl")
    shutil.copytree(theirs, tmp_path / "seed=1" / "oracle")
    assert diff(run, tmp_path / "seed=1" / "oracle").exit_code == 0
