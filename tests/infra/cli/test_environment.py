"""infra/setup/environment: make and `lockstep` give every program the same environment, whatever the shell has set."""

import shutil
import subprocess
from pathlib import Path

import pytest
from dotenv import dotenv_values

from infra.checkout import ROOT
from infra.engines.installation import REQUIREMENTS
from streaming_core.engines.environment import FOLDER
from tests.streaming_core.engines.planted import WC, plant
from tests.support import checkout as copies
from tests.support.checkout import FOREIGN

# What the two need not agree upon: where one stands, and what make tells itself.
APART = {"_", "PWD", "OLDPWD", "SHLVL", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKE_TERMOUT", "MAKE_TERMERR"}
PATIENCE = 900
LOCKS = ("requirements/runtime.lock", "requirements/dev.lock")
LOOPBACK = "localhost,127.0.0.1"
# The variables that a user may set for the installation, or for a run.
KEPT = {
    **{"PIP_INDEX_URL": "https://index.example", "PIP_CERT": "/a.pem", "UV_DEFAULT_INDEX": "https://index.example"},
    **{"UV_INDEX_OURS_PASSWORD": "secret", "CARGO_REGISTRIES_OURS_INDEX": "https://index.example"},
    **{"https_proxy": "http://proxy.example:3128", "JAVA_HOME": "/java", "SPARK_REMOTE": "sc://spark.example"},
    **{"AIRFLOW_CONN_NODE": "{}", "AIRFLOW__CORE__PARALLELISM": "2", "NO_PROXY": "a.example"},
}
TELLS = """#!/bin/sh
env -0 > "$SEEN.$(basename $0)"
printf '%s\\n' "$@" > "$SEEN.arguments"
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose programs only record their environment."""
    root = tmp_path / "checkout"
    for name in ("Makefile", "infra/cli/lockstep", "infra/setup/environment", "streaming_core/foreign.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (root / "streaming_core" / "runtime").mkdir(parents=True)
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / "requirements").mkdir()
    for name in ("infra/setup/doctor", "Cargo.toml", "pyproject.toml", *LOCKS):
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
    ("settings", "shell", "expected"),
    [
        ("", {"LOCKSTEP_HOME": "/some/where/../place", "AIRFLOW_HOME": ""}, {"LOCKSTEP_HOME": "/some/place"}),
        ("OTHER='$(shell touch marker) #$$'\n", {}, {"OTHER": "$(shell touch marker) #$$", "no_proxy": LOOPBACK}),
        ("OTHER=file\n", {"OTHER": "shell", "no_proxy": "a.example"}, {"OTHER": "shell"}),
        ("HADOOP_CONF_DIR=/etc/hadoop\n", FOREIGN, {"HADOOP_CONF_DIR": "/etc/hadoop"}),
        ("", FOREIGN | KEPT, KEPT | dict.fromkeys(("NO_PROXY", "no_proxy"), f"a.example,{LOOPBACK}")),
    ],
)
def test_command_and_make_have_the_same_environment(checkout, tmp_path, settings, shell, expected):
    (checkout / ".env").write_text(settings)
    by_make = call(checkout, ["make", "bench"], checkout, shell, "streaming-core")
    link = checkout / ".venv" / "bin" / "lockstep"
    assert link.is_symlink(), "make setup links it"
    typed = call(checkout, [str(link), "report"], tmp_path, shell, "python")
    assert {name for name in typed.keys() | by_make if typed.get(name) != by_make.get(name)} <= APART
    assert typed["PATH"] == f"{checkout}/.venv/bin:/usr/local/bin:/usr/bin:/bin:/nowhere/.cargo/bin"
    assert {name: typed[name] for name in expected} == expected
    assert not [name for name in FOREIGN if name in typed and name not in expected and "proxy" not in name.lower()]
    assert not list(checkout.rglob("marker"))


ACCEPTED = {
    **{"A=1": "1", "export A=1": "1", "A = 1  ": "1", "  A=1": "1", "A=1\r": "1", "A=": "", "lower_1=1": "1"},
    **{"A=p#w": "p#w", "A=p # comment": "p", "A=a=b;c & d (e)": "a=b;c & d (e)", "A=%p": "%p", "A=a:=b": "a:=b"},
    **{"A='$(touch marker) `x` \\ #$$'": "$(touch marker) `x` \\ #$$", 'A="a b" # comment': "a b", "A=''": ""},
    **{"A=~/x": "/nowhere/x", "A=~": "/nowhere", "A=/a:~/x": "/a:/nowhere/x", "A='~/x'": "~/x"},
}
REFUSED = ["A=$B", "A=`x`", "A=\\x", 'A="$B"', "A='p", 'A="p', "A='p'x", "A=#p", "A=~ben/x", "A", "export A", "A-B=1"]


@pytest.mark.parametrize("line", ACCEPTED)
def test_line_of_the_settings_file_means_what_dotenv_reads(checkout, line):
    (checkout / ".env").write_bytes(f"# mine\n\n{line}\n".encode())
    name = "lower_1" if "lower" in line else "A"
    assert call(checkout, ["infra/setup/environment", "python"], checkout, {}, "python")[name] == ACCEPTED[line]
    if "~" not in line:  # dotenv leaves it to its caller, and a shell expands it
        assert dotenv_values(checkout / ".env", interpolate=False) == {name: ACCEPTED[line]}


@pytest.mark.parametrize("line", REFUSED)
def test_line_that_shells_and_dotenv_read_differently_is_refused(checkout, line):
    (checkout / ".env").write_text(f"# mine\n{line}\n")
    command = [checkout / "infra" / "cli" / "lockstep", "run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"lockstep: {checkout}/.env:2: ")


def test_make_stops_at_a_line_that_is_refused(checkout):
    (checkout / ".env").write_text("A\n")
    done = subprocess.run(["make", "bench"], cwd=checkout, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == f"lockstep: {checkout}/.env:1: write NAME=value"
    assert done.stderr.count("\n") == 2


@pytest.mark.parametrize("home", ["mine", "~/mine"])
def test_relative_home_starts_at_the_working_directory(checkout, tmp_path, home):
    command = [str(checkout / "infra" / "cli" / "lockstep"), "report", "a b", "$c"]
    typed = call(checkout, command, tmp_path, {"LOCKSTEP_HOME": home, "HOME": str(tmp_path)}, "python")
    assert typed["LOCKSTEP_HOME"] == str(tmp_path / "mine")
    assert typed["AIRFLOW_HOME"] == str(checkout / ".airflow")
    assert (tmp_path / "seen.arguments").read_text().splitlines() == ["-P", "-m", "infra.cli", "report", "a b", "$c"]


def test_command_before_setup_names_the_setup_command(checkout):
    shutil.rmtree(checkout / ".venv")
    done = subprocess.run([checkout / "infra" / "cli" / "lockstep", "run"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"lockstep: {checkout} is not set up: type `make -C {checkout} setup`\n"


# Lines of a shell in a folder with homes and engines, and a part of what they print.
LINES = {
    """
    streaming-core generate wc --events 200 --out a
    streaming-core run wc --input a --threads 2 --out b
    streaming-core oracle wc --input a --out c
    streaming-core diff b c
    """: "equal",
    """
    lockstep run --applications wc --executors pooled --threads 1 --events 500 --repetitions 1
    lockstep report
    """: "The one cell equals the oracle",
    "lockstep engines lock bare && lockstep engines install bare && lockstep engines list": "engine bare is ready",
}


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line.split()[:3]))
def test_command_works_beside_the_variables_of_other_programs(tmp_path, with_compiled, line):
    """tests/e2e/test_how_to.py has other commands beside them."""
    bare = plant(tmp_path / "engines", "bare", WC.format(fault="")).folder
    shutil.rmtree(bare / FOLDER)
    (bare / REQUIREMENTS).touch()
    foreign = dict(FOREIGN)
    if "streaming-core" in line:
        del foreign["PYTHONHOME"]  # with it, no script of Python reaches its first line
    own = {"LOCKSTEP_HOME": str(with_compiled(tmp_path / "home")), "AIRFLOW_HOME": str(tmp_path / "airflow")}
    own |= {"LOCKSTEP_HOST_LOCK": str(tmp_path / "host.lock"), "LOCKSTEP_ENGINES": str(tmp_path / "engines")}
    environment = copies.environment(ROOT) | foreign | own
    command = ["bash", "-euo", "pipefail", "-c", line]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert LINES[line] in done.stdout + done.stderr
