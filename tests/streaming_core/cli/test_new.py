"""A new application equals the one in the documentation, and works unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_core.cli.new import new
from streaming_core.errors import BadInput

ROOT = Path(__file__).resolve().parents[3]


def python_block(page):
    return (ROOT / page).read_text().split("```python\n")[1].split("```")[0]


def test_a_new_application_equals_the_one_in_the_docs(tmp_path):
    (tmp_path / "tests").mkdir()
    files = new("mine", tmp_path, tmp_path / "tests")
    assert files == [tmp_path / "mine.py", tmp_path / "mine.csv", tmp_path / "tests" / "test_mine.py"]
    assert files[0].read_text() == python_block("docs/how-to/write-an-application.md")
    assert python_block("README.md") in files[0].read_text()
    assert new("alone", tmp_path, tmp_path / "nowhere") == [tmp_path / "alone.py", tmp_path / "alone.csv"]


def test_a_new_application_loads_and_its_own_test_passes(package, tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    _, _, test = new("mine", package, tmp_path / "tests")
    space = {}
    exec(compile(test.read_text(), str(test), "exec"), space)
    tests = [value for name, value in space.items() if name.startswith("test_")]
    assert tests
    for each in tests:
        each()


@pytest.mark.parametrize("name", ["", "Mine", "9th", "my-app", "../mine", "class", "registry", "_mine", "a" * 40])
def test_an_invalid_application_name_is_refused(tmp_path, name):
    with pytest.raises(BadInput, match=r"invalid application name|is reserved"):
        new(name, tmp_path, tmp_path / "tests")
    assert list(tmp_path.iterdir()) == []


def test_existing_files_are_kept(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_mine.py").write_text("mine")
    with pytest.raises(BadInput, match=r"test_mine\.py already exists"):
        new("mine", tmp_path, tmp_path / "tests")
    assert not (tmp_path / "mine.py").exists()
    assert (tmp_path / "tests" / "test_mine.py").read_text() == "mine"
