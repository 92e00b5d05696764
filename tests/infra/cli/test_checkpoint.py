"""`lockstep checkpoint`: what it lists and shows, and runs that go on in another folder."""

import json
import random
import shutil
import tarfile

import pytest

from streaming_core.data import workload
from streaming_core.run import engine
from streaming_core.run.checkpoint import file
from streaming_core.run.way import RunSpec
from tests.infra.cli.conftest import lockstep, refused
from tests.support.draws import some

FIELDS = {"app": "wc", "executor": "pooled", "sink": "parquet", "checkpoint": "100"}
SPEC = RunSpec.parse(FIELDS)


class Stop(Exception):
    """Ends a run in these tests as if it were killed."""


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    """A folder with a workload, the run `whole`, and the run `out` that ended after its third checkpoint."""
    root = tmp_path_factory.mktemp("past")
    workload.write("wc", {}, 500, 1, root / "w")
    engine.run(SPEC, root / "w", root / "whole")

    def progress(kind, done, total):
        if done == 300:
            raise Stop

    with pytest.raises(Stop):
        engine.run(SPEC, root / "w", root / "out", progress)
    return root


@pytest.fixture
def root(past, tmp_path):
    """A copy of `past`."""
    shutil.copytree(past, tmp_path / "past")
    return tmp_path / "past"


def listed(root, capsys):
    assert lockstep("checkpoint", "list", str(root / "out"), "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_list_names_events_sizes_and_damage(root, capsys):
    before = listed(root, capsys)
    assert [checkpoint["events"] for checkpoint in before][:2] == [300, 200]
    assert all(
        checkpoint["sound"] and checkpoint["time"].endswith("Z") and checkpoint["state_bytes"] for checkpoint in before
    )
    assert all(checkpoint["new_parts"] <= checkpoint["parts"] for checkpoint in before)
    path = file.paths(root / "out" / ".run" / "checkpoints")[0]
    path.write_bytes(path.read_bytes()[:-5])
    after = listed(root, capsys)
    assert (after[0]["sound"], after[0]["damage"]) == (False, "its end is missing")
    assert lockstep("checkpoint", "list", str(root / "out")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "events"
    assert lines[1].rstrip().endswith("its end is missing")
    assert lines[2].rstrip().endswith("yes")


def test_show_has_each_state_with_its_fields(root, capsys):
    assert lockstep("checkpoint", "show", str(root / "out"), "200", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["events"], shown["way"]["executor"], shown["outputs"]) == (200, "pooled", 2)
    [state] = shown["states"]
    assert (state["name"], state["fields"]) == ("count", [["word", "text"], ["n", "i64"]])
    assert state["bytes"] == shown["state_bytes"] > 0
    assert lockstep("checkpoint", "show", str(root / "out")) == 0
    out = capsys.readouterr().out
    assert out.startswith("event 300, 3 files of outputs, executor pooled\n")
    assert "word text, n i64" in out


@pytest.mark.parametrize("way", some([{"executor": "pinned"}, {"executor": "morsel", "threads": 2}, {"threads": 2}]))
def test_an_imported_checkpoint_resumes_with_the_same_result(root, capsys, way):
    assert lockstep("checkpoint", "export", str(root / "out"), str(root / "file")) == 0
    assert capsys.readouterr().out == f"wrote the checkpoint at event 300 to {root / 'file'}\n"
    shutil.rmtree(root / "out")
    assert lockstep("checkpoint", "import", str(root / "file"), str(root / "again")) == 0
    assert capsys.readouterr().out.startswith(f"{root / 'again'} has wc on pooled at event 300: ")
    assert sorted(path.name for path in root.iterdir()) == ["again", "file", "w", "whole"]
    report = engine.run(RunSpec.parse(FIELDS | way), root / "w", root / "again")
    whole = json.loads((root / "whole" / "report.json").read_text())
    assert report.resumed == [300]
    assert (report.verified.digest, report.state_digest) == (whole["samples"][0]["digest"], whole["state_digest"])


def test_an_export_takes_the_newest_sound_checkpoint(root, capsys):
    path = file.paths(root / "out" / ".run" / "checkpoints")[0]
    path.write_bytes(path.read_bytes()[:-5])
    assert lockstep("checkpoint", "export", str(root / "out"), str(root / "file")) == 0
    assert "the checkpoint at event 200" in capsys.readouterr().out


def test_no_damaged_export_is_imported(root, capsys):
    assert lockstep("checkpoint", "export", str(root / "out"), str(root / "file")) == 0
    capsys.readouterr()
    data, dice = (root / "file").read_bytes(), random.Random(1)
    for number in range(100):
        wrong = bytearray(data)
        if number % 3:
            wrong[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        else:
            del wrong[dice.randrange(len(data)) :]
        (root / "wrong").write_bytes(wrong)
        line = refused(capsys, "checkpoint", "import", str(root / "wrong"), str(root / "again"))
        assert line == f"lockstep: {root / 'wrong'} is not an exported checkpoint, or is damaged\n"
        assert not (root / "again").exists()


def test_bad_input_gets_one_line(root, capsys):
    out, gone = str(root / "out"), str(root / "gone")
    (root / "empty").mkdir()
    with tarfile.open(root / "tar", "w") as archive:
        archive.add(root / "w", "../w")
    for arguments, words in [
        (("list", gone), "is not a folder"),
        (("list", str(root / "empty")), "has no checkpoints"),
        (("list", str(root / "whole")), "has no checkpoints"),
        (("show", out, "7"), "has no checkpoint at event 7; it has 300, 200"),
        (("export", str(root / "whole"), gone), "has no checkpoint of a bounded run"),
        (("export", out, str(root / "none" / "file")), "cannot write"),
        (("export", out, str(root / "empty")), "cannot write"),
        (("import", gone, str(root / "again")), "cannot read"),
        (("import", str(root / "empty"), str(root / "again")), "cannot read"),
        (("import", str(root / "tar"), str(root / "again")), "is not an exported checkpoint"),
        (("import", str(root / "tar"), out), "already holds files"),
    ]:
        assert words in refused(capsys, "checkpoint", *arguments), arguments
    assert not (root / "again").exists()
    assert not (root / "gone").exists()
