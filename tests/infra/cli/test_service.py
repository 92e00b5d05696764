"""The systemd user unit: its command and homes. On a machine with systemd, systemd itself reads the unit."""

import subprocess

import pytest

from infra.checkout import ROOT
from tests.infra.cli.conftest import lockstep
from tests.support.programs import require

PATHS = ["plain", "with a space", 'quote"d', "100%", "dollar$HOME", "back\\slash"]


@pytest.fixture
def unit(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    return tmp_path / "config" / "systemd" / "user" / "lockstep.service"


def test_unit_starts_the_ui_on_loopback_and_is_not_started_yet(unit, tmp_path, capfd):
    assert lockstep("service", "--port", "8123") == 0
    text = unit.read_text()
    assert f'ExecStart="{ROOT}/.venv/bin/lockstep" ui --port 8123\n' in text
    assert f'Environment="LOCKSTEP_HOME={tmp_path}/home"\n' in text
    assert f'Environment="AIRFLOW_HOME={tmp_path}/airflow"\n' in text
    assert "systemctl --user enable --now lockstep.service" in capfd.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config"]


@pytest.mark.parametrize("name", PATHS)
def test_systemd_reads_the_unit_for_any_home_name(unit, tmp_path, monkeypatch, name):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / name))
    assert lockstep("service") == 0
    command = [require("systemd"), "verify", "--user", "--man=no", str(unit)]
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if "lockstep.service" in line]
    assert (done.returncode, complaints) == (0, []), done.stderr


def test_unwritable_unit_is_reported_in_one_line(unit, tmp_path, monkeypatch, capfd):
    (tmp_path / "config").write_text("a file")
    assert lockstep("service") == 2
    assert capfd.readouterr().err.count("\n") == 1
    (tmp_path / "config").unlink()
    monkeypatch.setenv("LOCKSTEP_HOME", "a\nb")
    assert lockstep("service") == 2
    assert "has a line break" in capfd.readouterr().err
    assert not unit.exists()
