"""The preflight of a host behind a real SSH server, and the build that the host gets."""

import json
import os
import re
import shutil
import sys
import threading

import pytest

from infra.airflow.hosts import Host, preflight
from infra.hosts import build, machine, wheel
from infra.hosts.judgement import DISK_BYTES, MEMORY_BYTES, judge
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from streaming_core.regression.project import named
from tests.infra.cli.conftest import lockstep
from tests.support.draws import some
from tests.support.sshd import Sshd


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Sshd(tmp_path_factory.mktemp("host") / "sshd") as running:
        yield running


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home(tmp_path_factory.mktemp("home") / "lockstep")


@pytest.fixture(scope="module")
def packed(home):
    return wheel.wheel_of(build.checkout(), home)


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """The builds on the host, which has this one after the first test."""
    return tmp_path_factory.mktemp("host") / "its folder" / "builds"


@pytest.fixture
def connect(server, builds, home, monkeypatch):
    """A function that sets the connection `node`, which mounts LOCKSTEP_HOME, with additional fields in its extra."""

    def set_connection(to: Sshd = server, **extra):
        own = {"python": sys.executable, "folder": str(builds.parent), "lockstep_home": str(home.root)}
        extra = own | extra
        monkeypatch.setenv("AIRFLOW_CONN_NODE", json.dumps(to.connection(**extra)))

    set_connection()
    return set_connection


@pytest.fixture
def python(tmp_path):
    """Makes an interpreter that runs this code before every program."""

    def write_interpreter(code: str) -> str:
        folder = tmp_path / "its python"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(code)
        path = folder / "python"
        path.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec {sys.executable} "$@"\n')
        path.chmod(0o755)
        return str(path)

    return write_interpreter


def test_fit_host_reports_its_facts_and_has_the_build(connect, home, packed, builds):
    result = preflight("node", home)
    assert result.reason is None
    assert (result.host, result.build) == ("node", packed.digest)
    assert result.cores == len(os.sched_getaffinity(0))
    assert 1 <= sum(result.sockets) <= result.cores
    assert result.points[-1] == min(sum(result.sockets), result.threads)
    assert result.python == ".".join(map(str, sys.version_info[:3]))
    assert result.distances[0][0] == 10
    assert result.skew_seconds == 0
    assert result.memory_bytes > MEMORY_BYTES
    assert result.disk_bytes > DISK_BYTES
    assert [path.name for path in builds.iterdir()] == [packed.digest]
    assert not list(home.root.glob(".preflight-*"))


def test_local_machine_reports_the_same_facts(connect, home, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_HERE", json.dumps({"conn_type": "generic"}))
    here, node = preflight("here", home), preflight("node", home)
    same = ("reason", "machine", "cpu", "cores", "sockets", "bound", "distances", "governor", "turbo", "isolated")
    for fact in (*same, "python"):
        assert getattr(here, fact) == getattr(node, fact), fact


@pytest.mark.slow
def test_two_runs_at_once_ship_one_build(connect, home, packed, tmp_path):
    connect(folder=str(tmp_path / "new"))
    drivers = []
    threads = [threading.Thread(target=lambda: drivers.append(Host.of("node", home).driver)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert drivers == [str(tmp_path / "new" / "builds" / packed.digest / "infra" / "hosts" / "cell.py")] * 3
    assert [path.name for path in (tmp_path / "new" / "builds").iterdir()] == [packed.digest]


def test_damaged_wheel_is_not_used(connect, packed, tmp_path):
    home = Home(tmp_path / "home")
    copy = wheel.wheel_of(build.checkout(), home)
    copy.path.write_bytes(copy.path.read_bytes()[:-1000])
    connect(folder=str(tmp_path / "new"))
    reason = f"the build arrived damaged: remove {copy.path.parent}, and try again"
    assert preflight("node", home).reason == reason
    assert list((tmp_path / "new" / "builds").iterdir()) == []


EXTRAS = {
    "no python": ({"python": "/nowhere/python"}, r"`/nowhere/python` does not run there \(.*\): set python in the ext"),
    "no home": ({"lockstep_home": "/nowhere"}, r"it does not share LOCKSTEP_HOME \(/nowhere/.*: No such file or dire"),
    "no folder": ({"folder": "/proc"}, r"the build cannot be kept there: /proc/builds: .*: set folder in the "),
    "no key": ({"key_file": "/nowhere/key"}, r"lost the SSH connection to 127\.0\.0\.1: .*/nowhere/key'; check that"),
    "bad wrapper": ({"wrapper": "numactl"}, r"wrapper must be a list of words, got 'numactl': set it in the extra"),
    "new host": ({"host_key": None}, r"its key is unknown; connect once with `ssh -p \d+ \S+@127.0.0.1` and accept "),
    "bad host key": ({"host_key": "nonsense"}, r"its connection is not valid: "),
}


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("fault", EXTRAS)
def test_host_with_a_wrong_connection_has_a_reason_in_one_line(fault, connect, home):
    extra, reason = EXTRAS[fault]
    connect(**extra)
    result = preflight("node", home)
    assert re.match(reason, result.reason), result.reason
    assert "\n" not in result.reason
    assert not list(home.root.glob(".preflight-*"))


# What an interpreter does before every program, by the fault that it has.
CODE = {
    "old": "import platform, sys; sys.version_info = (3, 9, 2); platform.python_version = lambda: '3.9.2'",
    "free-threaded": "import sysconfig; real = sysconfig.get_config_var\n"
    "sysconfig.get_config_var = lambda name: 1 if name == 'Py_GIL_DISABLED' else real(name)",
    "another processor": "import sysconfig; sysconfig.get_platform = lambda: 'linux-riscv64'",
    "other packages": "from importlib import metadata; real = metadata.version\n"
    "def version(name):\n"
    "    if name == 'pyarrow': raise metadata.PackageNotFoundError(name)\n"
    "    return '0.1' if name == 'numba' else real(name)\n"
    "metadata.version = version",
    "old system": "import sys; sys.modules['streaming_core._runtime'] = None",
    **{
        f"clock {side}": f"import time; real = time.time; time.time = lambda: real() {shift}"
        for side, shift in (("ahead", "+ 90"), ("behind", "- 90"))
    },
}
PYTHONS = {
    "old": " there is CPython 3.9.2, but the build needs CPython 3.11 or newer: set python in the extra of the conn",
    "free-threaded": " there is free-threaded CPython 3.",
    "another processor": ", but that host is linux-riscv64: run its cells from a Lockstep on a linux-riscv64 machine",
    "other packages": "its packages differ from those here (numba 0.1, pyarrow is missing): type `",
    "old system": "the engine does not load there (ModuleNotFoundError: import of streaming_core._runtime halted",
    "clock ahead": " s ahead of the one here: synchronise the clocks of both machines (NTP)",
    "clock behind": " s behind the one here: synchronise the clocks of both machines (NTP)",
}


@pytest.mark.parametrize("fault", some(PYTHONS))
def test_unfit_host_has_a_reason_in_one_line(fault, connect, home, python):
    connect(python=python(CODE[fault]))
    result = preflight("node", home)
    assert PYTHONS[fault] in result.reason
    assert "\n" not in result.reason
    if fault == "other packages":
        assert result.reason.endswith("): type `lockstep hosts --install node`")
    if fault.startswith("clock"):
        assert 80 < abs(result.skew_seconds) <= 90


def test_unfit_build_counts_as_no_attempt(connect, home, python):
    connect(python=python(CODE["old"]))
    with pytest.raises(BadInput, match=r"the build needs CPython 3\.11 or newer"):
        Host.of("node", home).driver  # noqa: B018 - it ships the build


def test_folder_without_visible_changes_is_not_shared(connect, home, python, tmp_path):
    """Before each program, this interpreter copies LOCKSTEP_HOME to another folder, which it then works in."""
    copy = tmp_path / "copy"
    code = f"import shutil; shutil.copytree({str(home.root)!r}, {str(copy)!r}, dirs_exist_ok=True)"
    connect(python=python(code), lockstep_home=str(copy))
    reason = preflight("node", home).reason
    assert reason.startswith("it does not share LOCKSTEP_HOME (what it writes there does not arrive here): mount")
    shutil.rmtree(copy)


ROOM = "the disk of LOCKSTEP_HOME has 537 MB of free space there, and a run needs 537 MB: "
MEMORY = "it has 537 MB of free memory, and needs 537 MB: end other programs there"
FACTS = [("memory_bytes", MEMORY_BYTES, MEMORY), ("disk_bytes", DISK_BYTES, ROOM)]


@pytest.mark.parametrize(("fact", "least", "reason"), FACTS)
def test_host_without_room_is_unfit(fact, least, reason, home):
    facts = machine.facts(str(home.root))
    assert judge("node", facts | {fact: least}).reason is None
    assert judge("node", facts | {fact: least - 1}).reason.startswith(reason)


@pytest.fixture
def command(airflow_home, home, monkeypatch, capfd):
    """Runs `lockstep hosts` with these words: its exit code, output and errors."""
    monkeypatch.setenv("LOCKSTEP_HOME", str(home.root))

    def run(*words: str) -> tuple[int, str, str]:
        code = lockstep("hosts", *words)
        return (code, *capfd.readouterr())

    return run


@pytest.mark.slow
def test_command_prints_its_observations(command, connect, packed):
    """One connection is in Airflow's database, one in the environment."""
    code, out, _ = command(named("local"), "node", "--json")
    assert code == 0
    here, node = json.loads(out)
    assert (here["host"], here["reason"], here["build"]) == (named("local"), None, "")
    assert (node["host"], node["reason"], node["build"]) == ("node", None, packed.digest)


@pytest.mark.slow
def test_command_exits_with_2_if_a_host_is_unfit(command, connect):
    connect(lockstep_home="/nowhere")
    code, out, _ = command(named("local"), "node")
    assert code == 2
    assert f"{named('local')}: fit" in out
    assert "\nnode: it does not share LOCKSTEP_HOME (/nowhere/" in out


@pytest.mark.slow
def test_command_refuses_an_unknown_connection_in_one_line(command):
    line = "lockstep: hosts: Airflow has no connection 'nosuch'; add it under Admin, Connections\n"
    assert command("nosuch") == (2, "", line)
