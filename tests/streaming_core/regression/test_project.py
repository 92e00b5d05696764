"""The names of the project come from pyproject.toml; an invalid table is refused in one line."""

from __future__ import annotations

import pytest

from streaming_core.errors import BadInput
from streaming_core.regression import project

TABLE = "[tool.lockstep]\n"


@pytest.fixture
def read(tmp_path):
    def of(text: str) -> project.Names:
        (tmp_path / "pyproject.toml").write_text(text)
        return project.read(tmp_path / "pyproject.toml")

    return of


def test_the_table_sets_the_names(read):
    assert read(f'{TABLE}title = "Fraud checks"\nprefix = "fraud_"\n') == ("Fraud checks", "fraud_")


def test_names_default_to_lockstep_s_own(read, tmp_path):
    assert read("") == project.read(tmp_path / "nosuch.toml") == ("Lockstep", "")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('prefix = "Fraud_"', "prefix must be empty, or "),
        ('prefix = "fraud"', "end with '_', got 'fraud'"),
        ('prefix = "a-b_"', "prefix must be "),
        ("prefix = 1", "prefix must be "),
        ('title = " "', "title must be a line of text"),
        ('title = "a\\nb"', "title must be a line of text"),
        ('name = "fraud"', "may have the keys title, prefix"),
    ],
)
def test_an_invalid_table_is_refused_in_one_line(read, text, fault):
    with pytest.raises(BadInput) as refused:
        read(TABLE + text + "\n")
    assert fault in str(refused.value)
    assert "\n" not in str(refused.value)


def test_ids_and_labels_begin_with_the_name(monkeypatch):
    monkeypatch.setattr(project, "PREFIX", "fraud_")
    monkeypatch.setattr(project, "TITLE", "Fraud")
    assert project.named("import_data") == "fraud_import_data"
    assert project.labelled("1 Regression") == "Fraud: 1 Regression"
