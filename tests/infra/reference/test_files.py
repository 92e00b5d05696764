"""Generated files are current, and a stale file is rewritten or refused."""

import pytest

from infra.checkout import ROOT
from infra.reference import dbt, files
from infra.reference.markdown import COMMAND

FILES = files.files()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_generated_file_is_current(path):
    assert path.is_file(), f"{path.relative_to(ROOT)} is missing: run `{COMMAND}`"
    assert path.read_text() == FILES[path], f"{path.relative_to(ROOT)} is stale: run `{COMMAND}`"


def test_stale_lines_between_the_markers_are_replaced_and_the_others_stay(tmp_path):
    file = tmp_path / "some.yml"
    file.write_text(f"a: 1\nb:\n  {dbt.BEGIN}letters.\n  - x\n  - y\n  {dbt.END}\nc: 3\n")
    text = dbt.replace_section(file, ["- z"])
    assert text == f"a: 1\nb:\n  {dbt.BEGIN}letters.\n  - z\n  {dbt.END}\nc: 3\n"
    file.write_text(text)
    assert dbt.replace_section(file, ["- z"]) == text


def test_file_without_markers_is_refused(tmp_path):
    (tmp_path / "some.yml").write_text("a: 1\n")
    with pytest.raises(ValueError, match=r"some\.yml lacks the lines that mark its generated part"):
        dbt.replace_section(tmp_path / "some.yml", ["- z"])
