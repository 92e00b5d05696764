"""Oracle results as folders: addresses, manifests, both ways to compute them, and failures."""

import json
import resource
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core import language
from streaming_core.apps import registry
from streaming_core.data import digest, parts, workload
from streaming_core.data.digest import digest_table, format_digest, state_digest
from streaming_core.errors import BadInput, CommandFailed, RunFailed
from streaming_core.oracle import oracle
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.storage import sealed


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oracle") / "wc"
    workload.write("wc", {"vocabulary": 50}, 400, 1, folder)
    return folder


def test_a_result_holds_outputs_state_and_a_manifest(words, tmp_path):
    manifest = oracle.run(words, tmp_path / "out")
    outputs = pq.read_table(tmp_path / "out" / "outputs")
    state = pq.read_table(tmp_path / "out" / "state" / "count.parquet")
    assert outputs.column_names == ["seq", "sub", "word", "n"]
    assert outputs.select(["seq", "sub"]).equals(
        outputs.select(["seq", "sub"]).sort_by([("seq", "ascending"), ("sub", "ascending")])
    )
    assert state["key"].to_pylist() == sorted(state["key"].to_pylist())
    assert manifest["mode"] == "interpreted"
    assert manifest["output_digest"] == format_digest(*digest_table(outputs, ("seq", "sub")))
    assert manifest["outputs"] == {"rows": 4000, "digest": manifest["output_digest"]}
    assert manifest["state_digest"] == state_digest({"count": state})
    assert sum(state["n"].to_pylist()) == 4000
    assert manifest["address"] == oracle.address(workload.read_manifest(words))
    assert manifest["workload"]["content_digest"] == workload.read_manifest(words)["content_digest"]
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_the_address_follows_content_parameters_and_code(words):
    manifest = workload.read_manifest(words)
    first = oracle.address(manifest)
    assert oracle.address(manifest | {"address": "other", "seed": 7}) == first
    assert oracle.address(manifest | {"content_digest": "1:0"}) != first
    assert oracle.address(manifest | {"params": manifest["params"] | {"skew": 0.5}}) != first


def test_compiled_results_are_checked_on_a_prefix_and_equal_interpreted_ones(words, tmp_path, monkeypatch):
    expected = oracle.run(words, tmp_path / "interpreted", mode="interpreted")
    monkeypatch.setattr(oracle, "INTERPRETED", 100)
    monkeypatch.setattr(oracle, "CHECKED", 150)
    monkeypatch.setattr(oracle, "_BLOCK", 70)
    monkeypatch.setattr(parts, "PART_ROWS", 1000)
    compiled = oracle.run(words, tmp_path / "compiled")
    assert (compiled["mode"], compiled["checked_events"]) == ("compiled", 150)
    for key in ("output_digest", "state_digest", "dropped_invalid", "rejected"):
        assert compiled[key] == expected[key]
    assert len(list((tmp_path / "compiled" / "outputs").iterdir())) > 1
    tables = [pq.read_table(tmp_path / mode / "outputs") for mode in ("interpreted", "compiled")]
    assert tables[0].equals(tables[1])


def test_a_disagreement_fails_the_run(words):
    app = registry.load("wc")
    machine = Interpreter(app, app.bind({"vocabulary": 50}))
    outputs = machine.process(next(workload.read(words).blocks(10)))
    oracle.compare("wc", outputs, outputs, "outputs")
    n = outputs["n"].to_pylist()
    wrong = outputs.set_column(3, outputs.schema.field("n"), pa.array([*n[:-1], n[-1] + 1]))
    seq, sub = outputs["seq"][-1], outputs["sub"][-1]
    line = f"disagree; this is a fault of Lockstep: outputs: seq {seq}, sub {sub}: n: expected {n[-1]}, got {n[-1] + 1}"
    with pytest.raises(RunFailed, match=f"^app wc: the compiled loop and the interpreter {line}$"):
        oracle.compare("wc", outputs, wrong, "outputs")
    with pytest.raises(RunFailed, match=r"Lockstep: outputs: column n is missing$"):
        oracle.compare("wc", outputs, outputs.drop_columns(["n"]), "outputs")
    with pytest.raises(RunFailed, match="Lockstep: outputs: seq 0, sub 0: missing row: word "):
        oracle.compare("wc", outputs, outputs.slice(1), "outputs")


def test_every_source_file_of_the_oracle_changes_its_version(tmp_path):
    package = tmp_path / "oracle"
    shutil.copytree(Path(oracle.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    assert oracle.source_digest(package, *oracle.DECLARATIONS) == oracle.version()
    versions = [oracle.source_digest(package), oracle.version()]
    assert {Path(digest.__file__), *Path(language.__file__).parent.rglob("*.py")} <= {*oracle.DECLARATIONS}
    sources = {path for path in package.rglob("*") if path.is_file()}
    assert {path.parent.name for path in sources} >= {"oracle", "interpreter", "loop"}
    for path in sources:
        with path.open("a") as file:
            file.write("# changed\n")
        versions.append(oracle.source_digest(package))
    (package / "loop" / "checks.py").rename(package / "checks.py")  # another path is another program
    versions.append(oracle.source_digest(package))
    assert len(set(versions)) == len(sources) + 3


def test_an_existing_result_is_kept(words, tmp_path):
    first = oracle.run(words, tmp_path / "out")
    assert oracle.run(words, tmp_path / "out") == first  # `seconds` would differ if it had run again


def test_a_foreign_folder_is_refused(words, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("precious")
    with pytest.raises(BadInput, match="no oracle result"):
        oracle.run(words, tmp_path / "out")
    oracle.run(words, tmp_path / "other")
    manifest = json.loads((tmp_path / "other" / "manifest.json").read_text())
    (tmp_path / "other" / "manifest.json").write_text(json.dumps(sealed(manifest | {"address": "0" * 16})))
    with pytest.raises(BadInput, match="holds another result"):
        oracle.run(words, tmp_path / "other")
    with pytest.raises(BadInput, match=r"is not an oracle result: dropped_invalid, .* are missing in manifest.json"):
        oracle.run(words, words)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_an_unwritable_folder_gives_one_line(words, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput) as failure:
        oracle.run(words, tmp_path / "file" / "out")
    assert str(failure.value) == f"cannot write {tmp_path / 'file' / 'out'}: Not a directory"


def test_a_full_disk_gives_one_line_and_leaves_no_output(words, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))  # larger files cannot be written
    try:
        with pytest.raises(CommandFailed, match=r"cannot write the result to .*: ") as failure:
            oracle.run(words, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(failure.value)
    assert list(tmp_path.iterdir()) == []


def test_bad_requests_are_refused(words, tmp_path):
    with pytest.raises(BadInput, match="unknown mode 'fast'; known: auto, interpreted, compiled"):
        oracle.run(words, tmp_path / "out", mode="fast")
    with pytest.raises(BadInput, match="no workload"):
        oracle.run(tmp_path / "nowhere", tmp_path / "out")
    part = next((words / "events").iterdir())
    content = part.read_bytes()
    try:
        part.write_bytes(content[: len(content) // 2])
        with pytest.raises(BadInput, match="cannot read "):
            oracle.run(words, tmp_path / "out")
    finally:
        part.write_bytes(content)
    assert list(tmp_path.iterdir()) == []
