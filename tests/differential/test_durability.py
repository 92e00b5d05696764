"""A run that is killed at any moment, and started again until it ends, is the run that nobody killed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streaming_core import oracle, workload
from streaming_core.checkpoint import FOLDER
from streaming_core.diff import diff
from tests.differential.killed import Command

SMALL = {
    "gs": {"n_items": 200, "gen_parts": 4, "theta": 0.9, "invalid_ratio": 0.05},
    "sl": {"n_items": 100, "gen_parts": 4, "init_balance": 1000, "invalid_ratio": 0.05},
    "tp": {"segments": 5, "vehicles": 3000, "window": 3, "flagged": True, "invalid_ratio": 0.05},
}
EVENTS = 9000
VERDICT = ("kind", "events", "outputs", "digest", "in_order", "dropped_invalid", "rejected")


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    made = Command(tmp_path_factory.mktemp("home"))
    yield made
    made.close()


def found(out):
    """All that a run leaves behind, but for what it measured."""
    report = json.loads((out / "report.json").read_text())
    files = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    del files["report.json"]
    told = {name: report["samples"][0][name] for name in VERDICT}
    return files, told, report["state_digest"], report["cell"], report["workload"], len(report["samples"])


class Undisturbed:
    """A run that nobody disturbs, equal to its oracle, and how to make one that somebody does."""

    def __init__(self, command, root, app, punctuation, checkpoint, *options):
        self.command, self.root = command, root
        workload.write(app, SMALL[app], EVENTS, 3, root / "workload")
        self.given = ["run", app, "--input", root / "workload", "--punctuation", punctuation, *options]
        self.given += ["--checkpoint", checkpoint]
        assert command(*self.given, "--out", root / "whole") == (0, "")
        self.found = found(root / "whole")
        self.parts = len(list((root / "whole" / "outputs").iterdir()))
        oracle.run(root / "workload", root / "oracle")
        assert diff(root / "whole", root / "oracle").exit_code == 0

    def run(self, out, **killed):
        return self.command(*self.given, "--out", out, **killed)

    def check(self, out):
        assert found(out) == self.found
        assert not [path.name for path in out.iterdir() if path.name.startswith(".")]


@pytest.fixture(scope="module")
def undisturbed(command, tmp_path_factory):
    made = {}

    def get(app, punctuation, checkpoint, *options):
        key = (app, punctuation, checkpoint, options)
        if key not in made:
            made[key] = Undisturbed(command, tmp_path_factory.mktemp(app), *key[:3], *options)
        return made[key]

    return get


# (application, punctuation interval, punctuations between checkpoints, options): 10, 13 and 9 checkpoints
RUNS = [
    ("gs", 100, 9, "--threads", 2, "--scheme", "tstream"),
    ("sl", 7, 100, "--threads", 2, "--scheme", "serial", "--repetitions", 1),
    ("tp", 500, 2, "--threads", 3, "--scheme", "tstream"),
]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run[0])
@pytest.mark.parametrize("times", [8, pytest.param(400, marks=pytest.mark.slow)])
def test_killed_at_random_moments(run, times, undisturbed, tmp_path):
    whole, dice = undisturbed(*run), random.Random(f"{run[0]} {times}")
    assert whole.parts >= 9
    kills, resumed, out = 0, 0, tmp_path / "out"
    while kills < times:
        while True:
            # Soon after the start, while it resumes, or several checkpoints on.
            at, spin = dice.choice((dice.randrange(1, 6), dice.randrange(1, 60))), dice.randrange(0, 4000)
            code, said = whole.run(out, at=at, spin=spin)
            resumed += "resuming at event" in said
            if code is not None:
                break
            kills += 1
        assert code == 0, said
        whole.check(out)
        if "resuming at event" in said:
            last = json.loads((out / "report.json").read_text())["resumed"][-1]
            assert said == f"streaming-core: resuming at event {last}\n"
        shutil.rmtree(out)
    assert resumed > times / 3


def killed_before_every_change(whole, out, begin):
    """`begin` prepares a folder. Returns the number of changes of the file system that were not made."""
    at = 0
    while True:
        at += 1
        begin()
        code, said = whole.run(out, at=at)
        if code is not None:
            assert code == 0, said
            return at - 1
        code, said = whole.run(out)
        assert code == 0, (at, said)
        whole.check(out)
        shutil.rmtree(out)


def test_killed_before_every_change_of_the_file_system(undisturbed, tmp_path):
    changes = killed_before_every_change(undisturbed("sl", 500, 8, "--threads", 1), tmp_path / "out", lambda: None)
    assert changes > 40


@pytest.mark.slow
@pytest.mark.parametrize("at", [20, 35, 50])
def test_killed_before_every_change_while_it_resumes(at, undisturbed, tmp_path):
    whole, out = undisturbed("sl", 500, 8, "--threads", 1), tmp_path / "out"
    assert whole.run(tmp_path / "killed", at=at)[0] is None
    begin = lambda: shutil.copytree(tmp_path / "killed", out)  # noqa: E731
    assert killed_before_every_change(whole, out, begin) > 5


def test_processes_of_their_own_killed_when_a_checkpoint_is_there(undisturbed, tmp_path):
    """As a user starts them, with nothing of a test inside."""
    whole, out, dice, kills = undisturbed(*RUNS[0]), tmp_path / "out", random.Random(5), 0
    script = "from streaming_core.cli import main; main()"
    command = [sys.executable, "-c", script, *map(str, whole.given), "--out", str(out)]
    world = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LOCKSTEP_HOME": str(whole.root / "home")}
    while True:
        before = made(out)
        process = subprocess.Popen(command, env=world, stderr=subprocess.PIPE, text=True)
        wanted, number = 1 + dice.randrange(3), 0
        while process.poll() is None and number < wanted:
            if (now := made(out)) != before:
                before, number = now, number + 1
        spin = dice.randrange(20_000)
        for _ in range(spin):
            pass
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, said
        kills += 1
    whole.check(out)
    assert kills >= 2


def made(out: Path) -> int | None:
    """When the last checkpoint was made."""
    try:
        return (out / FOLDER / "last").stat().st_mtime_ns
    except FileNotFoundError:
        return None
