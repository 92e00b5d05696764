"""The packages of the engine on a host: packed from the installed ones, and made into an environment there."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

import pytest

from infra.airflow.hosts import Host, preflight
from infra.hosts import environment, packages
from infra.hosts.packages import Packages
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from tests.support.sshd import Sshd

HERE = {"version": list(sys.version_info[:2]), "python": "3.x", "glibc": [2, 36]}
NEEDED = Packages(Path("/packages"), sys.version_info[:2], (2, 28))
BASE = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}")


def test_packages_are_those_that_the_engine_imports_and_what_they_need():
    names = packages._distributions(["pydantic", "llvmlite"])
    assert {"pydantic", "pydantic_core", "typing_extensions", "llvmlite"} <= names.keys()
    assert "email-validator" not in names  # an extra


def test_wheel_has_modules_and_metadata_but_no_scripts_or_bytecode():
    (typer,) = packages._distributions(["typer"]).keys() & {"typer"}
    files = packages._files(packages._distributions(["typer"])[typer])
    assert "typer/main.py" in files
    assert f"typer-{version('typer')}.dist-info/METADATA" in files
    assert not any(name.startswith("..") or name.endswith(".pyc") for name in files)


def test_library_names_the_glibc_that_it_needs():
    major, minor = packages._glibc({})
    assert (major, minor) >= (2, 17)
    assert (major, minor) <= packages._here()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": [3, 99], "python": "3.99.1"}, "it has Python 3.99.1, and the packages here are for "),
        ({"glibc": [2, 17]}, "it has glibc 2.17, and the packages need 2.28 or newer: give it a newer system"),
        ({"glibc": None}, "it has no glibc, and the packages need 2.28 or newer"),
    ],
)
def test_host_that_does_not_fit_is_refused_in_one_line(change, message):
    packages.check(NEEDED, HERE)
    with pytest.raises(BadInput) as refused:
        packages.check(NEEDED, HERE | change)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_all_that_is_missing_is_named_at_once():
    with pytest.raises(BadInput, match=r"it has Python 3\.99.*; it has glibc 2\.17"):
        packages.check(NEEDED, HERE | {"version": [3, 99], "python": "3.99.1", "glibc": [2, 17]})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Lockstep's folder on a host, with one package."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    wheels = tmp_path / "lockstep" / "packages" / "abc"
    wheels.mkdir(parents=True)
    with ZipFile(wheels / "one.whl", "w") as wheel:
        wheel.writestr("one/__init__.py", "NUMBER = 1\n")
    return tmp_path / "lockstep"


def test_environment_has_the_packages_and_needs_no_pip(folder, capsys):
    for _ in range(2):  # the second time, it is there
        environment.main(str(folder), "abc")
        answer = json.loads(capsys.readouterr().out)
    assert answer["python"] == str(folder / "environment" / "bin" / "python")
    shown = subprocess.run([answer["python"], "-c", "import one; print(one.NUMBER)"], capture_output=True, text=True)
    assert shown.stdout == "1\n"
    unit = Path(answer["unit"])
    assert unit.read_text().splitlines()[1:] == [f"d {folder} 0700 - - -", f"e {folder}/data 0700 - - 7d"]
    assert [path.name for path in (folder / "environments").iterdir()] == ["abc"]


def test_damaged_wheel_leaves_no_environment(folder, capsys):
    (folder / "packages" / "abc" / "one.whl").write_text("nonsense")
    environment.main(str(folder), "abc")
    assert json.loads(capsys.readouterr().out) == {"error": "File is not a zip file"}
    assert list((folder / "environments").iterdir()) == []
    assert not (folder / "environment").exists()


@pytest.mark.slow
def test_bare_host_is_fit_after_the_installation(tmp_path, monkeypatch):
    """The host has Python without packages."""
    home = Home(tmp_path / "home")
    with Sshd(tmp_path / "sshd", {"XDG_CONFIG_HOME": str(tmp_path / "config")}) as server:
        extra = {"folder": str(tmp_path / "there")}
        monkeypatch.setenv("AIRFLOW_CONN_NODE", json.dumps(server.connection(**extra, python=BASE)))
        reason = preflight("node", home).reason
        assert reason.startswith("its packages differ from those here (")
        assert reason.endswith("type `lockstep hosts --install node`")
        connection = server.connection(**extra)
        monkeypatch.setenv("AIRFLOW_CONN_NODE", json.dumps(connection))
        monkeypatch.setattr("infra.airflow.hosts.SshHost.default_python", BASE)
        lines = []
        seen = preflight("node", home, installs=True, say=lines.append)
        assert seen.reason is None
        assert Host.of("node", home).interpreter == str(tmp_path / "there" / "environment" / "bin" / "python")
        assert any(line.startswith("sending ") for line in lines)
        again = []
        assert preflight("node", home, installs=True, say=again.append).reason is None
        assert not any(line.startswith("sending ") for line in again)
