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

from tests.support import checkout
from tests.support.programs import DOCTOR, require

RELEASE = "bookworm"
PATIENCE = 7000
SETTINGS = ("/etc/apt/apt.conf.d", "/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/hosts", "/etc/pip.conf")
SETTINGS += ("/etc/resolv.conf", "/etc/ssl", "/etc/uv")
SETTINGS += ("/usr/local/share/ca-certificates", "/usr/share/ca-certificates")
OF_HOME = (".cargo/config", ".cargo/config.toml", ".config/pip", ".config/uv", ".netrc", ".pip")
VARIABLES = re.compile(
    r"(PIP|UV|CARGO_(HTTP|NET|REGISTRIES|REGISTRY|SOURCE)|SSL|CURL|REQUESTS)_\w+|(https?|no|all)_proxy", re.I
)
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
        packages = ["--variant=minbase", "--include=make,git"]
        log = root.with_name("debootstrap.log")
        with open(log, "w") as out:
            done = subprocess.run([require("debootstrap"), *packages, RELEASE, root, mirror()], stdout=out, stderr=out)
        assert done.returncode == 0, log.read_text()[-3000:]
        home = Path.home()
        for path in map(Path, [*SETTINGS, *(home / name for name in OF_HOME), *self._named_files()]):
            # The root of the machine has its home in /root, wherever ours is.
            target = Path("/root") / path.relative_to(home) if path.is_relative_to(home) else path
            self._copy(path, root / target.relative_to("/"))
        checkout.track(root / "srv" / "lockstep")
        policy = root / "usr" / "sbin" / "policy-rc.d"  # packages start no services, which would take our ports
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)

    @staticmethod
    def variables() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if VARIABLES.fullmatch(name)}

    def _named_files(self) -> list[str]:
        """Certificates and other files that variables name."""
        return [value for value in self.variables().values() if value.startswith("/") and os.path.exists(value)]

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)

    def run(self, *command: str) -> tuple[int, str]:
        """Exit code and output of a command in the checkout. Nothing that it starts or mounts outlives it."""
        inside = ["/usr/bin/env", "-C", "/srv/lockstep", *command]
        paths = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        world = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": paths}
        left_by_other_programs = {name: text for name, text in checkout.FOREIGN.items() if "proxy" not in name.lower()}
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", ENTER, str(self.root), *inside],
            env={**left_by_other_programs, **self.variables(), **world},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        return done.returncode, done.stdout


def mirror() -> str:
    """The address that this machine takes Debian's packages from."""
    command = ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(CODENAME)", "Created-By: Packages"]
    targets = [line.split() for line in subprocess.check_output(command, text=True).splitlines()]
    sites = [site for site, *releases in targets if RELEASE in releases]
    assert sites, "this machine has no source of Debian 12"
    return sites[0]


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
