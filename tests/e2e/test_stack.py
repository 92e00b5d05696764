"""The production topology, started and tried as a user does: `lockstep stack up`, `test`, `status`, `down`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.support.checkout import FOREIGN
from tests.support.programs import require
from tests.support.waiting import alive

LOCKSTEP = str(Path(sys.executable).with_name("lockstep"))
PATIENCE = 1800
pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def lockstep(*arguments: str, folder: Path) -> subprocess.CompletedProcess:
    """`lockstep stack ARGUMENTS`, with a secret and variables of other programs, which the stack must not inherit."""
    done = subprocess.run(
        [LOCKSTEP, "stack", *arguments, "--folder", str(folder)],
        env={
            **(os.environ | FOREIGN),
            "MY_TOKEN": "a secret of this shell",
            "LOCKSTEP_HOST_LOCK": str(folder / "host.lock"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    print(done.stdout, done.stderr)
    return done


@pytest.fixture(scope="module")
def folder(with_compiled):
    """A stack that is up. Its folder lets the user of the database through, unlike pytest's own."""
    for package in ("openssh-server", "postgresql", "redis-server", "supervisor"):
        require(package)
    root = Path(tempfile.mkdtemp(prefix="stack-"))
    root.chmod(0o755)
    with_compiled(root / "lockstep")
    try:
        done = lockstep("up", folder=root)
        assert done.returncode == 0, done.stdout + done.stderr
        yield root
    finally:
        lockstep("down", folder=root)
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def family(folder):
    """Every process of the stack."""
    supervisor = psutil.Process(json.loads((folder / "stack.json").read_text())["supervisor"]["pid"])
    return [supervisor, *supervisor.children(recursive=True)]


def test_every_program_of_the_stack_runs(folder):
    done = lockstep("status", "--json", folder=folder)
    assert done.returncode == 0
    state = json.loads(done.stdout)
    assert state["up"]
    assert len(state["programs"]) == 12
    assert {program["state"] for program in state["programs"]} == {"RUNNING"}


def test_second_start_is_refused_in_one_line(folder):
    done = lockstep("up", folder=folder)
    assert done.returncode == 2
    assert done.stderr.startswith(f"lockstep: a stack is up in {folder}: http://localhost:")
    assert done.stderr.count("\n") == 1


def test_runs_are_green_while_a_spark_worker_and_the_scheduler_are_killed(folder):
    done = lockstep("test", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["ok"] * 4
    assert "All 4 cells equal the oracle" in lines[0]
    assert lines[-1].startswith("all trials are green after ")


def test_nothing_listens_beyond_loopback(family):
    addresses = set()
    for process in family:
        try:
            addresses |= {c.laddr.ip for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        except psutil.Error:
            continue
    assert addresses
    assert {ip.removeprefix("::ffff:") for ip in addresses} <= {"127.0.0.1", "::1"}


def test_no_secret_is_in_a_command_line_environment_or_log(folder, family):
    names = ("secrets/passwords.json", "airflow/secrets.json", "airflow/passwords.json")
    secret_files = [json.loads((folder / name).read_text()) for name in names]
    secrets = [secret for values in secret_files for secret in values.values()] + ["a secret of this shell"]
    shown = []
    for process in family:
        try:
            shown += [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
    assert any("celery" in text for text in shown)
    assert not [text for text in shown if any(secret in text for secret in secrets)]
    logs = [
        path for path in (folder / "logs", folder / "airflow" / "logs") for path in path.rglob("*") if path.is_file()
    ]
    assert len(logs) > 12
    assert not [path for path in logs if any(secret.encode() in path.read_bytes() for secret in secrets)]
    for path in (folder / "secrets").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_no_process_outlives_the_stack(folder, family):
    family = [*family, *family[0].children(recursive=True)]
    done = lockstep("down", folder=folder)
    assert (done.returncode, done.stdout) == (0, "the stack is down\n")
    assert [process for process in family if alive(process.pid)] == []
    done = lockstep("status", folder=folder)
    assert (done.returncode, done.stdout) == (1, f"no stack is up in {folder}\n")
