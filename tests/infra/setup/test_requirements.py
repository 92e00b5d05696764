"""The locks of requirements: hashes, no addresses, and versions that agree. The environment has what they name."""

import csv
import re
import subprocess
import sys
from collections import defaultdict
from importlib.metadata import distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra.checkout import ROOT

FOLDER = ROOT / "requirements"
LOCKS = sorted(FOLDER.glob("*.lock"))
LEFT_OUT = re.compile(r"^\| (\S+) \| left out;", re.MULTILINE)  # in the table of deviations


def packages(lock: Path) -> dict[str, set[str]]:
    """The versions that a lock names, by package: several if they differ between versions of Python."""
    versions = defaultdict(set)
    for name, number in re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text(), re.MULTILINE):
        versions[name].add(number)
    return versions


def test_each_file_of_requirements_has_a_lock_and_a_line_in_the_table():
    names = {path.stem for path in FOLDER.glob("*.in")}
    assert {path.stem for path in LOCKS} == names
    readme = (FOLDER / "README.md").read_text()
    assert {name for name in names if f"| `{name}.in` |" in readme} == names


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_lock_has_a_hash_of_each_package_and_no_address(lock):
    text = lock.read_text()
    blocks = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(blocks) >= len(packages(lock)) > 0
    assert [block for block in blocks if "--hash=sha256:" not in block] == []
    assert "://" not in text
    assert "index-url" not in text


def test_what_runs_and_what_tests_need_have_one_version_each():
    runtime, dev = (packages(FOLDER / f"{name}.lock") for name in ("runtime", "dev"))
    assert runtime.keys() & dev.keys()
    assert {
        name: (runtime[name], dev[name]) for name in runtime.keys() & dev.keys() if runtime[name] != dev[name]
    } == {}


def test_runtime_has_no_tool_of_lint_or_tests():
    named = {
        re.split(r"[<=\[]", line)[0] for line in (FOLDER / "dev.in").read_text().splitlines() if line[:1].isalpha()
    }
    assert "pytest" in named
    assert named & packages(FOLDER / "runtime.lock").keys() <= {"markdown-it-py", "websockets"}  # others need them, too


def test_environment_lacks_only_the_packages_that_the_table_leaves_out():
    expected = set(LEFT_OUT.findall((FOLDER / "README.md").read_text()))
    uv = Path(sys.executable).with_name("uv")
    done = subprocess.run([uv, "pip", "check"], capture_output=True, text=True, timeout=60, cwd=ROOT)
    faults = re.findall(r"^The package .*$", done.stderr, re.MULTILINE)
    missing = [re.fullmatch(r"The package `\S+` requires `(.+)`, but it's not installed", line) for line in faults]
    assert None not in missing, faults
    assert {Requirement(line[1]).name for line in missing} == expected


def test_each_file_of_the_environment_belongs_to_one_package():
    owners = defaultdict(set)
    for distribution in distributions():
        name = canonicalize_name(distribution.name)  # it parses the metadata
        for path, *_ in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
            if path.endswith(".py") and not path.startswith(".."):
                owners[path].add(name)
    assert "pyspark/__init__.py" in owners
    shared = {path: names for path, names in owners.items() if len(names) > 1}
    assert {
        path: names for path, names in shared.items() if not re.fullmatch(r"dbt/(include/)?__init__.py", path)
    } == {}


def test_environment_has_the_version_of_spark_that_the_lock_names():
    assert packages(FOLDER / "runtime.lock")["pyspark"] == {version("pyspark")}
