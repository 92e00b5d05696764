"""README's commands on a fresh Debian 12 with `make` and `git` alone: they say what is missing, and YES=1 installs it.

The machine is a folder that debootstrap fills. Each command runs there in a chroot, with namespaces of its own, so its
mounts and processes end with it. The machine has our settings for package registries.
"""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.support import checkout, debian
from tests.support.programs import DOCTOR

PATIENCE = 7000
ENTER = """
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount --rbind /sys "$0/sys"
exec chroot "$0" "$@"
"""

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="a chroot needs root")]


class Machine:
    """The fresh machine."""

    def __init__(self, root: Path):
        self.root = root
        debian.fill(root, ["make", "git"])
        checkout.track(root / "srv" / "lockstep")
        policy = root / "usr" / "sbin" / "policy-rc.d"  # packages start no services, which would take our ports
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)

    def run(self, *command: str) -> tuple[int, str]:
        """Exit code and output of a command in the checkout. Nothing that it starts or mounts outlives it."""
        inside = ["/usr/bin/env", "-C", "/srv/lockstep", *command]
        paths = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        world = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": paths}
        left_by_other_programs = {name: text for name, text in checkout.FOREIGN.items() if "proxy" not in name.lower()}
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", ENTER, str(self.root), *inside],
            env={**left_by_other_programs, **debian.variables(), **world},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        return done.returncode, done.stdout


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    root = tmp_path_factory.mktemp("bare") / "debian"
    yield Machine(root)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    assert not [mount for mount in mounts if mount.startswith(str(root))]
    shutil.rmtree(root)


def test_make_run_without_yes_names_missing_tools_and_installs_nothing(machine):
    code, output = machine.run("make", "run", "ARGS=--applications wc")
    assert code != 0
    assert "missing  python      not found; to fix: apt-get update && apt-get install -y python3 python3-venv" in output
    assert "if you add YES=1" in output
    assert not (machine.root / "usr/bin/python3").exists()


def test_make_run_with_yes_installs_everything_and_is_green(machine):
    started = time.monotonic()
    code, output = machine.run("make", "run", "YES=1", "ARGS=--applications wc")
    print(output[-3000:], f"{time.monotonic() - started:.0f} s")
    assert code == 0, output[-5000:]
    assert re.search(r"All \d+ cells equal the oracle", output)


def test_make_test_skips_what_lacks_a_program_and_names_the_command(machine):
    code, output = machine.run("make", "test")
    assert code == 0, output[-5000:]
    for package in DOCTOR["PROGRAMS"]["test"]:
        line = rf"^\d+ skipped: needs {package}; `make test YES=1` installs it: .* install -y {package}$"
        assert re.search(line, output[-2000:], re.MULTILINE), output[-2000:]


def test_make_test_with_yes_installs_what_tests_need_and_skips_none(machine):
    code, output = machine.run("make", "test", "YES=1")
    assert code == 0, output[-5000:]
    assert "skipped" not in output[-2000:]
