"""A run killed at any moment and restarted until it ends leaves the files of an undisturbed run."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from streaming_core import _runtime
from streaming_core.data import workload
from streaming_core.data.digest import format_digest, state_digest
from streaming_core.data.rows import encode
from streaming_core.oracle import oracle
from streaming_core.run.checkpoint import file
from streaming_core.run.comparison import diff
from streaming_core.run.folder import CHECKPOINTS, WORK
from streaming_core.run.one_pass import final_state, load_tables
from streaming_core.run.way import EXECUTORS
from tests.differential.case import Case, images_of, resume
from tests.differential.containers import application, events
from tests.differential.killed import Command
from tests.differential.test_containers import without_errors
from tests.support.draws import some

SMALL = {
    "gs": {"n_items": 200, "gen_parts": 4, "theta": 0.9, "invalid_ratio": 0.05},
    "sl": {"n_items": 100, "gen_parts": 4, "init_balance": 1000, "invalid_ratio": 0.05},
    "tp": {"segments": 5, "vehicles": 3000, "window": 3, "flagged": True, "invalid_ratio": 0.05},
}
EVENTS = 9000
VERDICT = ("kind", "events", "outputs", "digest", "in_order", "dropped_invalid", "dropped_late", "rejected")


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    killed_command = Command(Path(os.environ.get("LOCKSTEP_HOME") or tmp_path_factory.mktemp("home")))
    yield killed_command
    killed_command.close()


def outcome_of(out):
    """All results of a run, without its measurements."""
    report = json.loads((out / "report.json").read_text())
    files = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    del files["report.json"]
    verdict = {name: report["samples"][0][name] for name in VERDICT}
    return files, verdict, report["state_digest"], report["cell"], report["workload"], len(report["samples"])


class Undisturbed:
    """An undisturbed run, equal to its oracle, and the command to start a disturbed one."""

    def __init__(self, command, source, root, app, punctuation, checkpoint, *options):
        self.command, self.root, self.source = command, root, source
        self.arguments = ["run", app, "--input", source / "workload", "--punctuation", punctuation, *options]
        self.arguments += ["--checkpoint", checkpoint]
        assert command(*self.arguments, "--out", root / "whole") == (0, "")
        self.outcome = outcome_of(root / "whole")
        self.parts = len(list((root / "whole" / "outputs").iterdir()))
        assert diff(root / "whole", source / "oracle").exit_code == 0

    def run(self, out, **killed):
        return self.command(*self.arguments, "--out", out, **killed)

    def check(self, out):
        assert outcome_of(out) == self.outcome
        assert not [path.name for path in out.iterdir() if path.name.startswith(".")]


@pytest.fixture(scope="module")
def undisturbed(command, tmp_path_factory):
    runs, sources = {}, {}

    def get(*run):
        app = run[0]
        if app not in sources:
            sources[app] = tmp_path_factory.mktemp(app)
            workload.write(app, SMALL[app], EVENTS, 3, sources[app] / "workload")
            oracle.run(sources[app] / "workload", sources[app] / "oracle")
        if run not in runs:
            runs[run] = Undisturbed(command, sources[app], tmp_path_factory.mktemp("whole"), *run)
        return runs[run]

    return get


# (application, punctuation interval, events between checkpoints, options): 10, 12 and 8 checkpoints
RUNS = [
    ("gs", 100, 900, "--threads", 2, "--scheme", "owners"),
    ("sl", 7, 700, "--threads", 2, "--scheme", "serial", "--repetitions", 1, "--seconds", 0),
    ("tp", 500, 1000, "--threads", 3, "--scheme", "owners"),
]


@pytest.mark.parametrize(
    ("run", "times"),
    [(RUNS[-1], 2)] + [pytest.param(run, 100, marks=pytest.mark.slow) for run in RUNS],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
@pytest.mark.slow
def test_run_killed_at_random_moments_resumes(run, times, undisturbed, tmp_path):
    whole, dice = undisturbed(*run), random.Random(f"{run[0]} {times}")
    assert whole.parts >= 9
    kills, resumed, out = 0, 0, tmp_path / "out"
    while kills < times:
        while True:
            # Soon after the start, while it resumes, or several checkpoints on.
            at, spin = dice.choice((dice.randrange(1, 6), dice.randrange(1, 60))), dice.randrange(0, 4000)
            code, error = whole.run(out, at=at, spin=spin)
            resumed += "resuming from the checkpoint at event" in error
            if code is not None:
                break
            kills += 1
        assert code == 0, error
        whole.check(out)
        if "resuming from the checkpoint at event" in error:
            last = json.loads((out / "report.json").read_text())["resumed"][-1]
            assert error == f"streaming-core: resuming from the checkpoint at event {last}\n"
        shutil.rmtree(out)
    assert resumed > times / 5  # how many is up to the machine


def killed_before_every_change(whole, out, begin):
    """`begin` prepares a folder. Returns the number of the last change of the file system that was not made."""
    at = 0
    while True:
        at += 1
        begin()
        code, error = whole.run(out, at=at)
        if code is not None:
            assert code == 0, error
            return at - 1
        code, error = whole.run(out)
        assert code == 0, (at, error)
        whole.check(out)
        shutil.rmtree(out)


@pytest.mark.slow
def test_run_killed_before_any_file_system_change_resumes(undisturbed, tmp_path):
    whole = undisturbed("sl", 500, 5000, "--threads", 1)
    assert killed_before_every_change(whole, tmp_path / "out", lambda: None) > 40


def everything(folder):
    """All files of a folder, without measurements."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    for name in ("report.json", "manifest.json"):
        if name in files:
            record = json.loads(files[name])
            for sample in record.get("samples", []):
                record |= {f"{sample['repetition']}": {key: sample[key] for key in VERDICT}}
            # The digest covers the measurements too.
            measured = ("samples", "seconds", "compile_seconds", "peak_memory_bytes", "energy_joules", "host", "digest")
            files[name] = {key: value for key, value in record.items() if key not in measured}
    return files


@pytest.mark.parametrize("stride", some([15, 1]))
@pytest.mark.parametrize("what", some(["run", "generate", "oracle"]))
def test_repeated_command_ends_as_if_the_first_had_not_been_killed(stride, what, command, undisturbed, tmp_path):
    """Without checkpoints, and without leftover files beside the output."""
    workload_of = undisturbed("sl", 500, 5000, "--threads", 1).source / "workload"
    options = {
        "run": ["run", "sl", "--input", workload_of, "--threads", 1, "--punctuation", 500, "--repetitions", 1,
                "--seconds", 0],
        "generate": ["generate", "sl", "--events", 9000],
        "oracle": ["oracle", "sl", "--input", workload_of],
    }[what]  # fmt: skip
    assert command(*options, "--out", tmp_path / "whole" / "out") == (0, "")
    whole, out, at, killed = everything(tmp_path / "whole" / "out"), tmp_path / "killed" / "out", 1 - stride, 0
    assert whole
    while True:
        at += stride
        code, _ = command(*options, "--out", out, at=at)
        assert code in (None, 0)
        if code == 0:
            break
        killed += 1
        code, error = command(*options, "--out", out)
        assert code == 0, (at, error)
        assert everything(out) == whole, at
        assert [path.name for path in out.parent.iterdir()] == ["out"], at
        assert not [path for path in out.iterdir() if path.name.startswith(".")], at
        shutil.rmtree(out.parent)
    assert killed > 12 // stride


def test_files_of_another_run_are_ignored(command, undisturbed, tmp_path):
    """A whole `.run` of another workload, as a run leaves it that is killed before it publishes anything."""
    whole = undisturbed("sl", 500, 5000, "--threads", 1)
    options = ["run", "sl", "--threads", 1, "--punctuation", 500, "--input"]
    out, other = tmp_path / "out", tmp_path / "other"
    workload.write("sl", SMALL["sl"], EVENTS, 4, other)
    assert command(*options, other, "--out", tmp_path / "theirs") == (0, "")
    assert command(*options, whole.source / "workload", "--out", tmp_path / "ours") == (0, "")
    (out / ".run").mkdir(parents=True)
    shutil.copy(tmp_path / "ours" / "spec.json", out)
    for name in ("outputs", "state"):
        shutil.copytree(tmp_path / "theirs" / name, out / ".run" / name)
    assert command(*options, whole.source / "workload", "--out", out) == (0, "")
    assert everything(out) == everything(tmp_path / "ours")
    assert diff(out, whole.source / "oracle").exit_code == 0
    code, error = command(*options, other, "--out", out)
    assert (code, error.count("\n")) == (2, 1)
    assert "another workload" in error


@pytest.mark.slow
@pytest.mark.parametrize("at", [20, 30, 40])
def test_resuming_run_killed_before_any_change_resumes_again(at, undisturbed, tmp_path):
    whole, out = undisturbed("sl", 500, 5000, "--threads", 1), tmp_path / "out"
    assert whole.run(tmp_path / "killed", at=at)[0] is None
    begin = lambda: shutil.copytree(tmp_path / "killed", out)  # noqa: E731
    assert killed_before_every_change(whole, out, begin) > 5


@pytest.mark.slow
def test_user_process_killed_after_a_checkpoint_resumes(undisturbed, tmp_path):
    """Start the processes as a user does, without test code inside. A run takes 150 checkpoints."""
    whole, out, dice, kills = undisturbed("gs", 60, 60, "--threads", 2), tmp_path / "out", random.Random(5), 0
    script = "from streaming_core.cli import main; main()"
    command = [sys.executable, "-c", script, *map(str, whole.arguments), "--out", str(out)]
    while True:
        before = last_checkpoint(out)
        process = subprocess.Popen(command, env=whole.command.world, stderr=subprocess.PIPE, text=True)
        wanted, number = dice.randrange(15, 40), 0
        while process.poll() is None and number < wanted:
            if (now := last_checkpoint(out)) != before:
                before, number = now, number + 1
        spin = dice.randrange(20_000)
        for _ in range(spin):
            pass
        process.send_signal(signal.SIGKILL)
        _, error = process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, error
        kills += 1
    whole.check(out)
    assert kills


def last_checkpoint(out: Path) -> str | None:
    """The name of the last checkpoint; None: there is none."""
    return next((path.name for path in file.paths(out / WORK / CHECKPOINTS)), None)


def all_containers(folder: Path) -> Case:
    """Transactions over rows with every kind of container that a table holds."""
    app = application(folder, "transaction")
    return Case(app, {}, without_errors(app, events(1, 3)))


@pytest.mark.slow
def test_containers_survive_in_images(tmp_path):
    """In engines that end after a while and hand on nothing but bytes."""
    case, dice = all_containers(tmp_path), random.Random(1)
    ways = [(s, t) for s in EXECUTORS["transactional"].axes()["scheme"] if s != "no_lock" for t in (1, 2, 3)]
    rows, text, _ = encode(case.events.tables[0], case.program.bound.event)

    def new_engine():
        scheme, threads = dice.choice(ways)
        options = {"executor": "transactional", "scheme": scheme, "threads": threads, "punctuation": 50}
        return _runtime.Engine(case.program.json(), json.dumps(options))

    grown = 0
    for _ in range(8):
        engine = new_engine()
        load_tables(engine, case.program)
        for begin, end in pairwise([0, *sorted(dice.sample(range(1, len(rows)), 9)), len(rows)]):
            engine.process(rows[begin:end].view(np.uint8), end - begin, text)
            standing, images = engine.standing(), images_of(engine)
            engine.stop()  # and with it the memory of its containers
            engine = new_engine()
            resume(engine, case.program, standing, images)
            assert (engine.standing(), images_of(engine)) == (standing, images)
            [table] = case.program.bound.tables
            grown += sum(len(image) for *_, image in images) > table.row.state[1] * table.size
        engine.finish(len(rows))
        metrics = json.loads(engine.metrics())
        state = final_state(engine, case.program)
        engine.stop()
        assert (format_digest(metrics["outputs"], metrics["digest"]), state_digest(state)) == case.expected["total"]
        assert (metrics["rejected"], metrics["dropped"]) == (case.rejected, case.dropped)
        assert metrics["in_order"]
        assert metrics["events"] == len(rows)
    assert grown > 8 * 9  # all but the first ones


@pytest.mark.slow
def test_invalid_image_is_refused(tmp_path):
    case = all_containers(tmp_path)
    rows, text, _ = encode(case.events.tables[0], case.program.bound.event)
    make = lambda: _runtime.Engine(case.program.json(), json.dumps({"executor": "transactional"}))  # noqa: E731
    engine = make()
    engine.process(rows.view(np.uint8), len(rows), text)
    standing, images = engine.standing(), images_of(engine)
    [(name, _, image), *_] = images
    for wrong in (image[:-1], image + b" ", b""):
        with pytest.raises(ValueError, match="image"):
            resume(make(), case.program, standing, [(name, 0, wrong)])
    with pytest.raises(ValueError, match="another"):
        resume(make(), case.program, standing, [("another", 0, image)])
    with pytest.raises(ValueError, match="standing"):
        resume(make(), case.program, standing.replace("events", "event"), images)
