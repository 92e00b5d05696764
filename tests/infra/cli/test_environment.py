"""infra/cli/lockstep: from any folder, and whatever the shell has set, commands get the environment that make gives."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# What the two need not agree upon: where one stands, and what make tells itself.
APART = {"_", "PWD", "OLDPWD", "SHLVL", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKE_TERMOUT", "MAKE_TERMERR", "PATH"}
HOSTILE = ["$(shell touch marker)", "$(touch marker)", "`touch marker`", "${HOME} $$ $1", "p#w", "p\\#w", " p ", "p\\"]
HOSTILE += ["'p", '"p', "p; touch marker", "p & touch marker", "$(error p)", "%p", "a:=b", "a=b"]
TELLS = """#!/bin/sh
env -0 > "$SEEN.$(basename $0)"
printf '%s\\n' "$@" > "$SEEN.arguments"
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose programs only record their environment."""
    root = tmp_path / "checkout"
    for name in ("Makefile", "infra/cli/lockstep"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (root / "infra" / "setup").mkdir()
    (root / "streaming_core" / "runtime").mkdir(parents=True)
    (root / ".venv" / "bin").mkdir(parents=True)
    for name in ("infra/setup/doctor", "requirements.lock", "Cargo.toml", "pyproject.toml"):
        (root / name).touch()
    for name in ("python", "streaming-core"):
        program = root / ".venv" / "bin" / name
        program.write_text(TELLS)
        program.chmod(0o755)
    for name in (".locked", ".runtime"):
        (root / ".venv" / name).touch()
    return root


def call(checkout: Path, command: list[str], folder: Path, more: dict[str, str], program: str) -> dict[str, str]:
    """The environment in which a command starts a program."""
    seen = checkout.parent / "seen"
    shell = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nowhere", "SEEN": str(seen)} | more
    done = subprocess.run(command, cwd=folder, env=shell, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done
    content = seen.with_name(f"seen.{program}").read_text().split("\0")
    return dict(line.split("=", 1) for line in content if line)


@pytest.mark.parametrize(
    ("settings", "shell"),
    [
        ("", {}),
        ("", {"PYTHONPATH": "/elsewhere", "PYTHONHOME": "/elsewhere", "PYTHONDONTWRITEBYTECODE": "1"}),
        ("", {"LOCKSTEP_HOME": "/some/where/../place", "AIRFLOW_HOME": ""}),
        ("# mine\nLOCKSTEP_HOME=../history\n#AIRFLOW_HOME=no\nAIRFLOW__CORE__PARALLELISM=2", {}),
        ("LOCKSTEP_HOME=../history\nOTHER=file\n", {"LOCKSTEP_HOME": "/mine", "OTHER": "shell"}),
        # What a shell or make would take for more than text.
        *((f"OTHER={text}\nNEXT=2", {}) for text in HOSTILE),
    ],
)
def test_command_and_make_have_the_same_environment(checkout, tmp_path, settings, shell):
    if settings:
        (checkout / ".env").write_text(settings)
    by_make = call(checkout, ["make", "bench"], checkout, shell, "streaming-core")
    link = checkout / ".venv" / "bin" / "lockstep"
    assert link.is_symlink(), "make setup links it"
    typed = call(checkout, [str(link), "report"], tmp_path, shell, "python")
    assert {k: v for k, v in typed.items() if k not in APART} == {k: v for k, v in by_make.items() if k not in APART}
    assert {env["PATH"].partition(":")[0] for env in (by_make, typed)} == {str(checkout / ".venv" / "bin")}
    lines = [line.partition("=") for line in settings.splitlines() if line.startswith(("OTHER=", "NEXT="))]
    assert {name: by_make[name] for name, _, _ in lines} == {name: shell.get(name, text) for name, _, text in lines}
    assert not [*checkout.rglob("marker"), *tmp_path.glob("marker")]


def test_file_derived_from_settings_is_private(checkout):
    (checkout / ".env").write_text("AIRFLOW_CONN_NODE=a secret\n")
    call(checkout, ["make", "bench"], checkout, {}, "streaming-core")
    copies = [path for path in checkout.rglob("*") if path.is_file() and "a secret" in path.read_text()]
    assert len(copies) == 2
    assert {path.name: path.stat().st_mode & 0o077 for path in copies if path.name != ".env"} == {"env.mk": 0}


def test_relative_home_starts_at_the_working_directory(checkout, tmp_path):
    command = [str(checkout / "infra" / "cli" / "lockstep"), "report", "a b", "$c"]
    typed = call(checkout, command, tmp_path, {"LOCKSTEP_HOME": "mine"}, "python")
    assert typed["LOCKSTEP_HOME"] == str(tmp_path / "mine")
    assert typed["AIRFLOW_HOME"] == str(checkout / ".airflow")
    assert (tmp_path / "seen.arguments").read_text().splitlines() == ["-P", "-m", "infra.cli", "report", "a b", "$c"]


def test_command_before_setup_names_the_setup_command(checkout):
    shutil.rmtree(checkout / ".venv")
    done = subprocess.run([checkout / "infra" / "cli" / "lockstep", "run"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"lockstep: {checkout} is not set up: type `make -C {checkout} setup`\n"
