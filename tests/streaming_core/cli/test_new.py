"""A new application equals the one in the documentation, and works unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streaming_core.cli.new import TEMPLATES, new, templates
from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput
from tests.support.draws import some

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


def test_a_template_is_short_and_has_data():
    assert templates() == ["words", "join", "map", "session", "transaction", "window"]
    for template in templates():
        lines = (TEMPLATES / f"{template}.py.template").read_text().splitlines()
        is_declared = re.compile(r'"""|from |import |@record|class |    \w+: \w+$')
        assert sum(line != "" and not is_declared.match(line) for line in lines) <= 25
        assert list(TEMPLATES.glob(f"{template}*.csv"))


NINE = 1767344400000  # 2026-01-02 09:00 in ms
OUTPUTS = {
    "join": [(NINE + 300_000, 1, b"ann", 250)],
    "map": [(NINE, b"ann", 2.5), (NINE + 90_000, b"ann", 1.25)],
    "session": [(NINE + 50_000, b"ann", 2, b"cart"), (NINE + 120_000, b"bob", 1, b"home")],
    "transaction": [(1, True), (1, False), (2, True)],
    "window": [(NINE + 60_000, b"ann", 1, 250.0), (NINE + 60_000, b"bob", 1, 0.0), (NINE + 120_000, b"ann", 1, 125.0)],
}


def data_of(files):
    """The options that name the files of events."""
    names = [(path.name.split(".")[1:-1], path) for path in files if path.suffix == ".csv"]
    return [word for streams, path in names for word in ("--data", "=".join([*streams, str(path)]))]


@pytest.mark.parametrize("template", some(OUTPUTS))
def test_an_application_from_a_template_runs_on_its_data(template, package, tmp_path, command):
    files = new("mine", package, tmp_path / "nowhere", template)
    data = data_of(files)
    code, _, stderr = command("run", "mine", "--threads", 2, *data, "--out", tmp_path / "run")
    assert code == 0, stderr
    rows = Parts.of(tmp_path / "run" / "outputs").read().to_pylist()
    assert [tuple(row.values())[2:] for row in rows] == OUTPUTS[template]


def test_an_unknown_template_is_refused(tmp_path, command):
    code, _, error = command("new", "mine", "--template", "sessions")
    known = "words, join, map, session, transaction, window"
    assert (code, error) == (
        2, f"streaming-core: unknown template 'sessions' (did you mean 'session'?); known: {known}\n"
    )  # fmt: skip
