"""The whole gate: its refusals before any build, and its verdicts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from socket import gethostname

import pytest

from infra.checkout import ROOT
from jobs.raw import write_raw
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import rows
from streaming_core.run import provenance
from streaming_core.storage import write_json
from tests.dbt.raw_runs import FASTER, GREEN, plan_of, specs, write_runs
from tests.infra.hosts import small_repository
from tests.infra.hosts.small_repository import git
from tests.reports.test_pages import Outline

# A command of this checkout that takes another repository for it: REPOSITORY MODULE ARGUMENTS.
ELSEWHERE = """
import runpy, sys
from pathlib import Path
from infra.hosts import build

build.ROOT = Path(sys.argv.pop(1))
sys.argv.pop(0)
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    return small_repository.make(tmp_path_factory.mktemp("small") / "repository")


@pytest.fixture
def home(tmp_path) -> Home:
    """Two runs of this checkout on this host; the second one is the newest."""
    home = Home(tmp_path / "home")
    write_runs(home, (GREEN, FASTER))
    for run_id in (GREEN, FASTER):
        here = {"build": provenance.build(), "host": gethostname()}
        write_raw(home, "cells", run_id, [row | here for row in rows(home, "cells", run_id) or []])
        home.part("pairs", run_id).unlink()
        write_json(home.run(run_id) / "plan.json", plan_of(run_id))
    return home


@pytest.mark.slow
def test_slower_build_is_red_and_pages_name_both_builds(home, repository):
    """By the command line, then by the command of the DAG, which finds the commit built."""
    git(repository, "checkout", "--quiet", "slow")
    cell = next(spec.cell for spec in specs() if not spec.is_bound)
    environment = os.environ | {"LOCKSTEP_HOME": str(home.root), "LOCKSTEP_HOST_LOCK": str(home.root / "host.lock")}
    environment |= {"PYTHONPATH": str(ROOT), "CARGO_NET_OFFLINE": "true"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment.pop("SPARK_REMOTE", None)

    def ended(*words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-c", ELSEWHERE, str(repository), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=540)

    done = ended("infra.cli", "gate", "--against", "v1", FASTER, "--cells", cell, "--json")
    commit = git(repository, "rev-parse", "v1")
    against = f"v1 ({commit[:9]})"
    assert done.returncode == 1, done.stderr
    assert f"building {against} in a temporary worktree" in done.stderr
    (verdict,) = json.loads(done.stdout)["gate"]
    assert (verdict["cell"], verdict["verdict"], verdict["pairs"]) == (cell, "slower", 32)
    assert (verdict["baseline"], verdict["baseline_ref"], verdict["build"]) == (commit, "v1", provenance.build())
    assert verdict["change"] == pytest.approx(-0.5)
    assert verdict["environment_changed"], "v1 locks other packages"
    for page in (home.report(FASTER, "index.html"), home.report(FASTER, f"{cell}.html")):
        assert f"Against {against}: " in Outline(page.read_text()).text

    done = ended("infra.gate.evaluation", "v1", FASTER, "--cells", cell)
    assert done.returncode == 1, done.stderr
    assert "building" not in done.stdout + done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"gate: Against {against}: sl/owners/t1 is 50.0 % slower")
