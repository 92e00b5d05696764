"""A release has one version and an entry in the changelog, and its wheel runs far from the checkout."""

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from infra.checkout import ROOT

MATURIN = Path(sys.executable).with_name("maturin")
SOURCES = ("streaming_core", "Cargo.lock", "Cargo.toml", "LICENSE", "pyproject.toml")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_the_runtime_has_the_version_of_the_project():
    cargo = tomllib.loads((ROOT / "streaming_core/runtime/Cargo.toml").read_text())["package"]
    packages = {
        package["name"]: package["version"] for package in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    }
    assert (cargo["version"], packages[cargo["name"]]) == (VERSION, VERSION)


def test_the_newest_section_of_the_changelog_is_this_version_with_a_date_and_few_entries():
    newest = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1]
    assert re.match(rf"{re.escape(VERSION)} \(\d{{4}}-\d\d-\d\d\)\n", newest)
    assert re.search(r"^- ", newest, re.MULTILINE)
    assert len(newest.rstrip().splitlines()) <= 30


def test_the_source_distribution_has_every_source_of_the_wheel(tmp_path):
    subprocess.run([MATURIN, "sdist", "--out", tmp_path], cwd=ROOT, check=True, capture_output=True)
    tracked = subprocess.run(["git", "ls-files", *SOURCES], cwd=ROOT, check=True, capture_output=True, text=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert set(tracked.stdout.split()) <= names


def test_each_exception_from_the_allowed_licenses_is_a_package_of_a_lock_and_has_a_reason():
    lines = (ROOT / "infra/release/licenses.txt").read_text().splitlines()
    exceptions = [line.removeprefix("except ").partition(": ") for line in lines if line.startswith("except ")]
    locks = "".join((ROOT / "requirements" / f"{name}.lock").read_text() for name in ("runtime", "dev"))
    packages = set(re.findall(r"^([a-z0-9-]+)==", locks, re.MULTILINE))
    assert {name.replace("_", "-") for name, _, reason in exceptions if reason} <= packages
    assert all(reason for _, _, reason in exceptions)


def smoke(wheel):
    command = [ROOT / "infra" / "release" / "smoke", wheel, "3.11"]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_damaged_wheel_fails_the_smoke_test(tmp_path):
    (tmp_path / "lockstep-0.1.0-py3-none-any.whl").write_bytes(b"no wheel")
    done = smoke(tmp_path / "lockstep-0.1.0-py3-none-any.whl")
    assert done.returncode != 0
    assert "lockstep-0.1.0-py3-none-any.whl" in done.stderr


@pytest.mark.slow
def test_the_wheel_of_this_checkout_runs_far_from_it(tmp_path):
    subprocess.run([MATURIN, "build", "--release", "--quiet", "--out", tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    done = smoke(wheel)
    assert done.stdout.endswith(f"{wheel.name} runs on Python 3.11\n"), done.stdout + done.stderr
