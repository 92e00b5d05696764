"""AIRFLOW_HOME is its owner's alone, and its settings let nothing listen but on loopback."""

import configparser
import json
import os
import sqlite3
import stat

import pytest

from infra.airflow import airflow_home
from streaming_core.errors import BadInput

LOOPBACK = {"127.0.0.1", "localhost"}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    before = os.umask(0)  # private files do not depend on the mask of the user
    yield airflow_home.existing_folder()
    os.umask(before)


@pytest.fixture
def settings(home):
    airflow_home.write_configuration(home)
    parser = configparser.RawConfigParser()
    parser.read(home / "airflow.cfg")
    return parser


def test_airflow_home_is_private_to_its_owner(home, settings):
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    for name in ("airflow.cfg", "secrets.json"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600, name


@pytest.mark.parametrize("name", ["airflow.cfg", "airflow.db"])
def test_home_of_another_airflow_is_refused_and_stays_as_it_is(home, name):
    (home / name).write_text("[core]\nfernet_key = theirs\n")
    for use in (airflow_home.occupancy, lambda: airflow_home.prepare(home / "logs" / "prepare.log")):
        with pytest.raises(BadInput, match=f"AIRFLOW_HOME={home} belongs to another Airflow: unset AIRFLOW_HOME"):
            use()
    assert [path.name for path in home.iterdir()] == [name]
    assert "theirs" in (home / name).read_text()


@pytest.mark.slow
def test_database_of_another_airflow_is_refused_and_stays_as_it_is(home, tmp_path, monkeypatch):
    with sqlite3.connect(tmp_path / "theirs.db") as database:
        database.execute("CREATE TABLE connection (conn_id text)")
        database.execute("INSERT INTO connection VALUES ('spark_default')")
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/theirs.db")
    with pytest.raises(BadInput, match="AIRFLOW__DATABASE__SQL_ALCHEMY_CONN belongs to another Airflow"):
        airflow_home.prepare(tmp_path / "prepare.log")
    with sqlite3.connect(tmp_path / "theirs.db") as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("connection",)]


def test_every_home_keeps_its_own_secrets(home, settings, tmp_path, monkeypatch):
    mine = json.loads((home / "secrets.json").read_text())
    airflow_home.write_configuration(home)
    assert json.loads((home / "secrets.json").read_text()) == mine
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "other"))
    airflow_home.write_configuration(airflow_home.existing_folder())
    other = json.loads((tmp_path / "other" / "secrets.json").read_text())
    assert not set(mine.values()) & set(other.values())
    assert {settings["core"]["fernet_key"], settings["api"]["secret_key"], settings["api_auth"]["jwt_secret"]} == set(
        mine.values()
    )
    assert min(map(len, mine.values())) >= 43


def test_every_component_listens_on_loopback_only(settings):
    assert settings["api"]["host"] in LOOPBACK
    assert settings["scheduler"]["scheduler_health_check_server_host"] in LOOPBACK
    assert not settings.getboolean("scheduler", "enable_health_check")
    for section in settings.values():
        for name, value in section.items():
            assert "0.0.0.0" not in value, name
            if "://" in value and not value.startswith("sqlite:"):
                assert value.split("://")[1].split(":")[0] in LOOPBACK, name


def test_airflow_requires_a_login(settings):
    assert not settings.has_option("core", "simple_auth_manager_all_admins")
    assert not settings.getboolean("usage_data_collection", "enabled")
