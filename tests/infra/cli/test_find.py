"""`lockstep find` with bad input: one line, exit code 2, and nothing written."""

import json

import pytest

from streaming_core.run.way import RunSpec
from streaming_core.search.case import Case
from streaming_core.search.replay import numbered
from tests.infra.cli.conftest import refused


@pytest.fixture
def case(tmp_path):
    spec = RunSpec.parse({"app": "wc", "executor": "pooled"})
    folder = tmp_path / "case"
    folder.mkdir()
    Case(spec, numbered(spec, [{"ts": 0, "line": b"a"}])).save(folder)
    return folder


def edit(case, **fields):
    about = json.loads((case / "case.json").read_bytes())
    about["spec"] |= fields
    (case / "case.json").write_text(json.dumps(about))


def test_folder_without_a_case_is_refused(home, tmp_path, capsys):
    assert "holds no case" in refused(capsys, "find", "--case", str(tmp_path / "nothing"))
    assert not home.root.exists()


@pytest.mark.parametrize("file", ["case.json", "events.parquet"])
def test_damaged_case_is_refused(home, case, capsys, file):
    (case / file).write_bytes(b"{")
    assert "holds no case" in refused(capsys, "find", "--case", str(case))


def test_case_of_an_unknown_application_is_refused(home, case, capsys):
    edit(case, app="nosuch")
    assert "unknown application 'nosuch'" in refused(capsys, "find", "--case", str(case))


def test_case_in_a_way_that_the_application_lacks_is_refused(home, case, capsys):
    edit(case, executor="transactional")
    assert refused(capsys, "find", "--case", str(case))


def test_case_of_other_records_is_refused(home, case, capsys):
    edit(case, app="pos_rep")
    assert "its records have changed" in refused(capsys, "find", "--case", str(case))


def test_search_names_one_application_or_a_case(home, case, capsys):
    assert "name an application" in refused(capsys, "find")
    assert "--case has application and events" in refused(capsys, "find", "wc", "--case", str(case))
    assert "unknown application" in refused(capsys, "find", "nosuch")
