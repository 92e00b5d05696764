"""`lockstep version` prints what the checkout and its packages say."""

import json
import platform
import subprocess
import sys
import tomllib
from importlib.metadata import version

from infra.checkout import ROOT
from infra.cli.version import PACKAGES


def lockstep_version(*arguments):
    command = [sys.executable, "-m", "infra.cli", "version", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_json_has_the_versions_of_checkout_python_and_packages():
    facts = json.loads(lockstep_version("--json"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert facts["version"] == project["version"]
    assert facts["python"] == platform.python_version()
    assert facts["processor"] == platform.machine()
    assert facts["packages"] == {name: version(name) for name in PACKAGES}
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    assert commit.startswith(facts["build"].removesuffix("-dirty"))


def test_lines_begin_with_the_version():
    first, second, *packages = lockstep_version().splitlines()
    assert first.startswith("lockstep ")
    assert second.startswith(f"python {platform.python_version()} on ")
    assert [line.split()[0] for line in packages] == list(PACKAGES)
