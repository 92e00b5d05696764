"""`python -m infra.lint` finds a planted violation of each kind in a small checkout."""

import shutil
import subprocess

import pytest

from infra.checkout import ROOT
from infra.lint.__main__ import files, main
from streaming_core.errors import CommandFailed

FOLDERS = ("streaming_core", "jobs", "expectations", "reports", "infra", "dags")
ACTOR = "Somebody waits.\n"
CLEAN = '"""A module."""\n'
PLANTED = {
    "docs/there.md": ("There is a row.\n", "prose/there-is"),
    "docs/actor.md": (ACTOR, "prose/who-noun"),
    "docs/chain.md": ("Runs, of which one failed.\n", "prose/chain"),
    "docs/passive.md": ("The row is written. " * 10 + "\n", "prose/passive"),
    "docs/spelling.md": ("The rec" + "ieved row.\n", "spelling"),
    "docs/link.md": ("See [this](missing.md).\n", "link"),
    "jobs/parameters.py": (
        CLEAN + "def _f(a: int, " + ", ".join(f"{name}: int" for name in "bcdefghi") + ") -> None: ...\n",
        "code/parameters",
    ),
    "jobs/length.py": (CLEAN + "def _f() -> None:\n" + "    print()\n" * 80, "code/long-function"),
    "jobs/participle.py": (CLEAN + "found = 1\n", "code/participle"),
    "jobs/participle.rs": ('fn f() {\n    let given = 1; // a rule is given, and "found"\n}\n', "code/participle"),
    "jobs/pronoun.py": (CLEAN + "print(*(one for one in range(2)))\n", "code/one"),
    "jobs/pronoun.rs": ('fn f() {\n    let one = 1; // one, and "one"\n}\n', "code/one"),
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
def lint(checkout, capsys):
    def run():
        return main(checkout), capsys.readouterr().out.splitlines()

    return run


def test_each_planted_violation_is_found(checkout, lint):
    for path, (text, _) in PLANTED.items():
        (checkout / path).write_text(text)
    code, lines = lint()
    assert code == 1
    assert [(line.split(":")[0], line.split()[1]) for line in lines] == sorted(
        (path, rule) for path, (_, rule) in PLANTED.items()
    )


def test_clean_checkout_is_silent(checkout, lint):
    (checkout / "ignored.md").write_text(ACTOR)
    (checkout / "streaming_core" / "kernels" / "compiled.py").write_text(CLEAN + "def _f(a): ...\n")
    assert lint() == (0, [])


def test_warning_alone_passes(checkout, lint):
    (checkout / "docs" / "there.md").write_text("There is a row.\n")
    assert lint() == (0, ['docs/there.md:1: prose/there-is warning: "There is": name the thing first'])


def test_folder_that_is_no_checkout_is_refused(tmp_path):
    with pytest.raises(CommandFailed, match="git cannot list the files"):
        files(tmp_path)
