"""Generated files: whether they are current, and what happens to a file that is not."""

import pytest

from infra.checkout import ROOT
from infra.services import generated


@pytest.mark.parametrize("path", generated.files(), ids=lambda path: path.name)
def test_a_generated_file_is_current(path):
    assert path.read_text() == generated.files()[path], f"{path.relative_to(ROOT)} is stale: run `{generated.COMMAND}`"


def test_stale_lines_between_the_markers_are_replaced_and_the_others_stay(tmp_path):
    file = tmp_path / "some.yml"
    file.write_text(f"a: 1\nb:\n  {generated.BEGIN}letters.\n  - x\n  - y\n  {generated.END}\nc: 3\n")
    text = generated.replace_section(file, ["- z"])
    assert text == f"a: 1\nb:\n  {generated.BEGIN}letters.\n  - z\n  {generated.END}\nc: 3\n"
    file.write_text(text)
    assert generated.replace_section(file, ["- z"]) == text


def test_a_file_without_markers_is_refused(tmp_path):
    (tmp_path / "some.yml").write_text("a: 1\n")
    with pytest.raises(ValueError, match=r"some\.yml lacks the lines that mark its generated part"):
        generated.replace_section(tmp_path / "some.yml", ["- z"])
