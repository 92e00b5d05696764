"""Profiles of real cells: a slow operator is the widest by name, and refusals leave nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from socket import gethostname

import pytest

from infra.checkout import ROOT
from infra.hosts.build import Build, checkout
from infra.profile import cell, perf
from reports.history.profile import FILE, Profile
from reports.site import profile_name
from reports.views.profile import ProfileView
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.regression.home import Home
from streaming_core.run.way import RunSpec
from tests.infra.cli.conftest import lockstep, refused
from tests.infra.gate import measured_run
from tests.support.programs import require

EVENTS = 20_000
SPEC = RunSpec.parse({"app": "wc", "executor": "pinned", "threads": 1})
# Twenty times the work in operator count.
FAST = "    state.n += 1\n"
SLOW = """    waste = state.n
    for i in range(400):
        waste = (waste * 31 + i) % 1000003
    state.n += 1 + waste % 2
"""


@pytest.fixture
def source(tmp_path) -> Path:
    app = registry.load("wc")
    workload.write(app, app.bind(), EVENTS, 1, tmp_path / "events")
    return tmp_path / "events"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch, with_compiled) -> Home:
    monkeypatch.setenv("LOCKSTEP_HOST_LOCK", str(tmp_path / "host.lock"))
    monkeypatch.setenv("LOCKSTEP_HOME", str(with_compiled(tmp_path / "home")))
    return Home(tmp_path / "home")


@pytest.fixture
def without_perf(tmp_path, monkeypatch):
    """A host without perf."""
    (tmp_path / "bin").mkdir()
    for name in ("env", "git"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def sampling():
    require("linux-perf")
    if reason := perf.obstacle():
        pytest.skip(reason)


def slow_build(folder: Path) -> Build:
    """This checkout, with an operator `count` that wastes time."""
    shutil.copytree(ROOT / "streaming_core", folder / "streaming_core", ignore=shutil.ignore_patterns("runtime"))
    file = folder / "streaming_core" / "apps" / "wc.py"
    assert FAST in file.read_text()
    file.write_text(file.read_text().replace(FAST, SLOW))
    return Build("slow", folder)


def profile_of(build, baseline=None) -> Profile:
    return Profile("run", "cell", "host", "2026-01-01T00:00:00+00:00", build, baseline, "", "")


@pytest.mark.slow  # not every machine may sample
def test_slow_operator_is_the_widest_frame_by_name(tmp_path, source):
    sampling()
    report, samples = perf.sampled(slow_build(tmp_path / "slow"), SPEC, source, 3)
    assert perf.events_of(report) == 4 * EVENTS
    whole = sum(samples.values())
    assert samples["operators", "count", "count.process"] > whole / 2
    assert any(stack[:3] == ("operators", "split", "split.map") for stack in samples)
    assert any(stack[0] == "runtime" for stack in samples)


@pytest.mark.slow
def test_difference_shows_the_slow_operator_as_more(tmp_path, source):
    sampling()
    builds = slow_build(tmp_path / "slow"), checkout()
    slow, fast = (cell.measure(build, SPEC, source, 1.0, True, print) for build in builds)
    assert slow.counters.keys() == {*perf.COUNTERS}
    assert slow.counters["task-clock"] > fast.counters["task-clock"] > 0
    view = ProfileView.of(profile_of(slow, fast))
    assert view.headline.startswith("Operator count takes ")
    assert "; it takes " in view.headline
    assert " more than in build " in view.headline
    assert 'fill="#e5604d"><title>count.process: ' in view.difference  # the reddest


def test_times_of_tasks_take_the_place_of_samples(home, without_perf, capsys):
    run_id, names = measured_run.make(home)
    assert lockstep("profile", names[0], "--seconds", "0.1") == 0
    out, error = capsys.readouterr()
    assert "perf is not installed" in error
    assert "not available on this host" not in out
    page = home.report(run_id, profile_name(names[0]))
    assert out.endswith(f"{page}\n")
    profile = Profile.read(home.cell(run_id, names[0]))
    assert (profile.host, profile.build.samples, profile.build.counters) == (gethostname(), None, {})
    assert sum(profile.build.stacks.values()) > 0
    assert "perf is not installed" in page.read_text()
    assert f'href="{profile_name(names[0])}"' in home.report(run_id, f"{names[0]}.html").read_text()
    assert profile_name(names[1]) not in home.report(run_id, f"{names[1]}.html").read_text()


def test_tasks_of_executor_pinned_have_the_names_of_operators(source):
    side = cell.measure(checkout(), SPEC, source, 0.1, False, print)
    assert {"operators;split;operator", "operators;count;operator"} <= side.stacks.keys()


def test_perf_that_may_not_sample_is_an_obstacle_with_its_reason(tmp_path, monkeypatch):
    program = tmp_path / "perf"
    program.write_text("#!/bin/sh\necho 'Error:'\necho 'Access to performance monitoring is limited.'\nexit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Access to performance monitoring is limited" in perf.obstacle()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "unknown cell 'nosuch'"),
        (["CELL", "--run", "20990101T000000Z-00000000"], "no run '20990101T000000Z-00000000'"),
        (["CELL", "--against", "no-such-commit"], "'no-such-commit' is not a commit"),
        (["CELL", "--seconds", "0"], "--seconds"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(home, capsys, arguments, message):
    run_id, names = measured_run.make(home)
    assert message in refused(
        capsys, "profile", *[names[0] if argument == "CELL" else argument for argument in arguments]
    )
    assert not list(home.run(run_id).rglob(FILE))
    assert not list(home.reports.rglob("profile-*"))


def test_removed_workload_is_refused(home, capsys):
    _, names = measured_run.make(home)
    shutil.rmtree(home.root / "workloads")
    assert "was removed: run its application again" in refused(capsys, "profile", names[0])


def test_profile_that_ends_in_the_middle_leaves_nothing(home, tmp_path):
    run_id, names = measured_run.make(home)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "infra.profile.cell", run_id, names[0]]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert any(line.startswith("profiling build") for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM
    assert not list(home.run(run_id).rglob(FILE))
    assert not list(scratch.iterdir())


def test_file_of_another_version_is_no_profile(tmp_path):
    (tmp_path / FILE).write_text('{"cell": "x"}')
    assert Profile.read(tmp_path) is None
    assert Profile.read(Home(tmp_path).cell("20990101T000000Z-00000000", "x")) is None
