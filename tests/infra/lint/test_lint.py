"""`python -m infra.lint` finds a planted violation of each kind in a small checkout, and shrinks its baseline."""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from infra.lint import baseline
from infra.lint.__main__ import files, main
from streaming_core.errors import CommandFailed

ROOT = Path(__file__).parents[3]
FOLDERS = ("streaming_core", "jobs", "expectations", "reports", "infra", "dags")
ACTOR = "Somebody waits.\n"
CLEAN = '"""A module."""\n'
PLANTED = {
    "docs/sentence.md": ("Words " * 26 + "\n", "prose/long-sentence"),
    "docs/actor.md": (ACTOR, "prose/who-noun"),
    "docs/chain.md": ("Runs, of which one failed.\n", "prose/chain"),
    "docs/passive.md": ("The row is written. " * 10 + "\n", "prose/passive"),
    "docs/spelling.md": ("The rec" + "ieved row.\n", "spelling"),
    "docs/link.md": ("See [this](missing.md).\n", "link"),
    "jobs/parameters.py": (
        CLEAN + "def _f(a: int, " + ", ".join(f"{name}: int" for name in "bcdefghi") + ") -> None: ...\n",
        "PLR0913",
    ),
    "jobs/complexity.py": (CLEAN + "def _f(a: int) -> None:\n" + "    if a:\n        a = 1\n" * 12, "C901"),
    "jobs/docstring.py": (CLEAN + "def f() -> None: ...\n", "D103"),
    "jobs/untyped.py": (CLEAN + "def _f(a): ...\n", "no-untyped-def"),
    "jobs/types.py": (CLEAN + 'x: int = "text"\n', "assignment"),
    "jobs/unused.py": (CLEAN + "import os\n", "F401"),
}


@pytest.fixture
def checkout(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".gitignore").write_text(".mypy_cache\n.ruff_cache\nignored.md\n")
    for folder in (*FOLDERS, "streaming_core/kernels"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text(CLEAN)
    (tmp_path / "infra" / "lint").mkdir()
    (tmp_path / "docs").mkdir()
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return tmp_path


@pytest.fixture
def lint(checkout, capsys, monkeypatch):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["lint", *arguments])
        return main(checkout), capsys.readouterr().out.splitlines()

    return run


def test_each_planted_violation_is_reported(checkout, lint):
    for path, (text, _) in PLANTED.items():
        (checkout / path).write_text(text)
    code, lines = lint()
    assert code == 1
    assert [(line.split(":")[0], line.split()[1]) for line in lines] == sorted(
        (path, rule) for path, (_, rule) in PLANTED.items()
    )
    assert lint("--shrink") == (code, lines)
    assert not (checkout / baseline.FILE).exists()


def test_clean_checkout_has_no_report(checkout, lint):
    (checkout / "ignored.md").write_text(ACTOR)
    (checkout / "streaming_core" / "kernels" / "compiled.py").write_text(CLEAN + "def _f(a): ...\n")
    assert lint() == (0, [])


def test_baseline_shrinks_and_does_not_grow_again(checkout, lint):
    (checkout / "docs" / "old.md").write_text(ACTOR)
    baseline.write(checkout / baseline.FILE, Counter({("docs/old.md", "prose/who-noun"): 2}))
    gone = "infra/lint/baseline.json counts too many violations (1): run `make lint ARGS=--shrink` and commit the file"
    assert lint() == (1, [gone])
    assert lint("--shrink") == (0, [])
    assert lint() == (0, [])
    (checkout / "docs" / "old.md").rename(checkout / "docs" / "moved.md")
    assert lint("--shrink") == (0, [])
    assert baseline.read(checkout / baseline.FILE) == {("docs/moved.md", "prose/who-noun"): 1}
    (checkout / "docs" / "new.md").write_text(ACTOR)
    new = (1, ['docs/new.md:1: prose/who-noun "Somebody": name the actor'])
    assert lint() == new
    assert lint("--shrink") == new
    assert baseline.read(checkout / baseline.FILE) == {("docs/moved.md", "prose/who-noun"): 1}


def test_folder_outside_a_checkout_is_refused(tmp_path):
    with pytest.raises(CommandFailed, match="git cannot list the files"):
        files(tmp_path)
