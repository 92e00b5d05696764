"""The refusals of `lockstep stack`, and the configuration of its programs. tests/e2e/test_stack.py starts them."""

from __future__ import annotations

import configparser
import json
import os
import subprocess
from pathlib import Path

import pytest

from infra.stack import folder as folders
from infra.stack import programs, release, supervisor
from infra.stack.folder import Folder
from infra.stack.programs import Program
from tests.infra.cli.conftest import lockstep
from tests.support.programs import require

ROOT = Path(__file__).resolve().parents[3]
PORTS = {name: 20001 + number for number, name in enumerate(folders.PORTS)}


@pytest.fixture
def folder(tmp_path):
    new_folder = Folder.at(tmp_path / "s")
    new_folder.make()
    return new_folder


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("with space", "contains ' ': use letters"),
        ("x" * 120, "is too long for a Unix socket: use a shorter path"),
        ("file", "is not a folder"),
        ("other", "holds something else than a stack: name a new folder"),
    ],
)
@pytest.mark.parametrize("command", ["up", "down", "status", "test"])
def test_unsuitable_stack_folder_is_refused_in_one_line(command, name, reason, tmp_path, capfd):
    (tmp_path / "other" / "release").mkdir(parents=True)
    (tmp_path / "file").touch()
    assert lockstep("stack", command, "--folder", str(tmp_path / name)) == 2
    out, error = capfd.readouterr()
    assert out == ""
    assert error.startswith(f"lockstep: --folder: {tmp_path}")
    assert reason in error
    assert error.count("\n") == 1
    assert {path.name for path in tmp_path.rglob("*")} == {"file", "other", "release"}


def test_missing_packages_are_named_with_the_command_that_installs_them(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(folders, "POSTGRES_VERSIONS", tmp_path)
    monkeypatch.setattr(folders, "SSHD", tmp_path / "sshd")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert lockstep("stack", "up", "--folder", str(tmp_path / "s")) == 2
    error = capfd.readouterr().err
    packages = ("openssh-server", "postgresql", "redis-server", "supervisor")
    assert error.startswith(f"lockstep: a stack needs {', '.join(packages)}; to fix: ")
    assert error.endswith(f"apt-get install -y {' '.join(packages)}\n")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("command", ["status", "down", "test"])
def test_query_about_a_missing_stack_creates_none(command, tmp_path, capfd):
    code = lockstep("stack", command, "--folder", str(tmp_path / "s"))
    assert code == {"status": 1, "down": 0, "test": 2}[command]
    assert "no stack is up in " in "".join(capfd.readouterr())
    assert not (tmp_path / "s").exists()


def test_ports_are_free_and_differ():
    ports = folders.free_ports(None)
    assert set(ports) == set(folders.PORTS)
    assert len(set(ports.values())) == len(ports)


def test_passwords_stay_and_only_their_owner_reads_them(folder):
    before = folder.password("postgres"), folder.password("redis")
    folder.make()
    assert (folder.password("postgres"), folder.password("redis")) == before
    assert len(set(before)) == 2
    assert min(map(len, before)) >= 40
    for path in (folder.airflow, folder.logs, folder.root / "secrets", folder.root / "ssh"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert folder.secret("passwords.json").stat().st_mode & 0o077 == 0


def test_stack_environment_has_no_secret_of_the_shell(folder, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "a secret of this shell")
    assert "MY_TOKEN" not in programs.inherited()
    settings = programs.airflow_settings(folder, PORTS)
    text = json.dumps(settings)
    assert folder.password("postgres") not in text
    assert folder.password("redis") not in text
    assert settings["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD"] == f"cat {folder.secret('database')}"


def test_page_names_the_settings_that_the_stack_uses(folder):
    page = (ROOT / "docs" / "how-to" / "deploy-on-several-workers.md").read_text()
    settings = programs.airflow_settings(folder, PORTS).keys() - {"AIRFLOW__API__PORT", "AIRFLOW_HOME"}
    assert [name for name in settings if f"`{name}`" not in page] == []


def test_release_copies_the_checkout_and_runs_its_own_files(folder):
    """A later `git pull` in the checkout affects no program of the stack."""
    release.make(folder.release)
    paths = "import infra.checkout, dags.lib.plan, streaming_core; print(infra.checkout.ROOT, streaming_core.__file__)"
    done = subprocess.run(
        [folder.environment / "python", "-P", "-c", paths], cwd="/", capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(folder.release), str(folder.release / "streaming_core" / "__init__.py")]
    status = subprocess.run(["git", "status", "--short"], cwd=ROOT, capture_output=True, text=True, check=True)
    ours = subprocess.run(["git", "status", "--short"], cwd=folder.release, capture_output=True, text=True, check=True)
    assert sorted(line[2:] for line in ours.stdout.splitlines()) == sorted(
        line[2:] for line in status.stdout.splitlines()
    )
    text = (folder.environment / "streaming-core").read_text()
    assert str(folder.environment) in text
    assert programs.spark_environment(folder)["PYSPARK_PYTHON"] == str(folder.environment / "python")


def test_supervisor_configuration_keeps_commands_and_environments(folder):
    odd = {"JSON": '{"a": "b,c"}', "PERCENT": "100%", "PLAIN": "x=y;z"}
    text = supervisor.configuration(folder, [Program("one", ["/bin/true", "%h"], odd, user="someone", stop="INT")])
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    section = parser["program:one"]
    assert section["command"] == "/bin/true %%h"
    assert (section["user"], section["stopsignal"], section["autostart"]) == ("someone", "INT", "false")
    assert section["environment"] == """JSON='{"a": "b,c"}',PERCENT="100%%",PLAIN="x=y;z\""""


def test_ssh_server_accepts_keys_only_and_listens_on_loopback(folder):
    sshd = require("openssh-server")
    programs._configure_sshd(folder, PORTS["ssh"])
    tested = subprocess.run(
        [sshd, "-T", "-f", folder.root / "ssh" / "sshd_config"], capture_output=True, text=True, check=True
    )
    settings = dict(line.split(" ", 1) for line in tested.stdout.splitlines() if " " in line)
    assert settings["listenaddress"] == f"127.0.0.1:{PORTS['ssh']}"
    assert settings["authenticationmethods"] == "publickey"
    connection = programs.connections(folder, PORTS)[programs.HOST]
    assert connection["port"] == PORTS["ssh"]
    extra = json.loads(connection["extra"])
    assert extra["host_key"].startswith("ssh-ed25519 ")
    assert os.stat(extra["key_file"]).st_mode & 0o077 == 0


def test_queue_demands_a_password_and_listens_on_loopback(folder):
    programs._configure_redis(folder, PORTS["redis"])
    lines = folder.secret("redis.conf").read_text().splitlines()
    assert "bind 127.0.0.1" in lines
    assert f"requirepass {folder.password('redis')}" in lines
    assert folder.secret("redis.conf").stat().st_mode & 0o077 == 0
