"""Runs that inject faults: each fault happens, at the same events each time, and changes no result."""

import os
import random
import select
import signal
import subprocess
import sys
import time

import pytest

from streaming_core import _runtime
from streaming_core.data import workload
from streaming_core.errors import BadInput, CommandFailed, RunFailed
from streaming_core.oracle import oracle
from streaming_core.regression.request import RegressionSpec
from streaming_core.run import engine
from streaming_core.run.checkpoint import file
from streaming_core.run.comparison import diff
from streaming_core.run.faults import Fault, Faults
from streaming_core.run.folder import CHECKPOINTS, WORK
from streaming_core.run.supervision import Life, jump_clocks, supervised
from streaming_core.run.way import Pooled, RunSpec
from tests.support.draws import some

EVENTS = 400
WAYS = {
    "pooled": {"app": "wc", "executor": "pooled", "queue": "hybrid", "heuristic": "ct"},
    "transactional": {"app": "sl", "executor": "transactional", "punctuation": 20},
    "pinned": {"app": "wordcount", "executor": "pinned", "batch": 7},
    "morsel": {"app": "wc", "executor": "morsel"},
}


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """By application, the folder of a workload and of its oracle's result."""
    root = tmp_path_factory.mktemp("faults")
    for name in {way["app"] for way in WAYS.values()}:
        workload.write(name, {}, EVENTS, 1, root / name)
        oracle.run(root / name, root / f"{name}-oracle", "interpreted")
    return root


@pytest.fixture
def run(cases, tmp_path):
    """Runs a way with faults, and compares the result with the oracle's; returns the report and the lines."""

    def run(way, faults, checkpoint="40"):
        fields = {"threads": 2, "sink": "parquet", "checkpoint": checkpoint, "faults": faults} | WAYS[way]
        spec, lines, out = RunSpec.parse(fields), [], tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        report = engine.run(spec, cases / spec.app, out, say=lines.append)
        assert diff(out, cases / f"{spec.app}-oracle").exit_code == 0
        assert sorted(path.name for path in out.iterdir()) == ["outputs", "report.json", "spec.json", "state"]
        return report, lines

    return run


def happened(report):
    return [(fault.kind, fault.at, fault.life) for fault in report.faults]


# --- the request -----------------------------------------------------------------------------------------------------


def test_faults_are_read_and_written():
    assert Faults.parse(" kill,stall@0, kill@9,,clock").text == "kill,stall@0,kill@9,clock"
    assert Faults.parse("").entries == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "flood",
            "faults: must be a list such as kill@100,stall, with kinds kill, stall, full-disk, clock, got 'flood'",
        ),
        ("kill@", "got 'kill@'"),
        ("kill@-1", "got 'kill@-1'"),
        ("kill@07", "got 'kill@07'"),
        (["kill"], "got \\['kill'\\]"),
        ("kill,kill", "kill is one too many, because kill is listed before"),
        ("stall,stall@2", "stall@2 is one too many"),
        (",".join(f"kill@{number}" for number in range(17)), "at most 16 faults, got 17"),
    ],
)
def test_wrong_faults_are_refused_in_one_line(text, message):
    for parse in (RunSpec.parse, lambda fields: RegressionSpec.parse({"faults": fields["faults"]})):
        with pytest.raises(BadInput, match=message) as refused:
            parse({"app": "wc", "executor": "pooled", "faults": text})
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("executor", ["spark", "flink"])
def test_other_engines_inject_no_faults(executor):
    with pytest.raises(BadInput, match="faults: only executors of Lockstep's engine inject faults"):
        RunSpec.parse({"app": "wc", "executor": executor, "faults": "kill"})


def test_a_run_without_a_folder_injects_no_faults(cases):
    with pytest.raises(BadInput, match="needs a folder"):
        engine.run(Pooled(app="wc", faults="kill"), cases / "wc", None)


def test_faults_follow_from_the_workload():
    faults = Faults.parse("kill,stall,full-disk@7,clock@5000,kill@0")
    schedule = faults.schedule(1000, "3:0123", 1)
    assert [fault.kind for fault in schedule] == ["kill"] * 3 + ["stall", "full-disk", "clock", "kill"]
    assert schedule == faults.schedule(1000, "3:0123", 1) != faults.schedule(1000, "3:0124", 1)
    assert [fault.at for fault in schedule[-3:]] == [7, 1000, 0]
    stepped = faults.schedule(1000, "3:0123", 300)
    assert all(fault.kind == "stall" or fault.at in (0, 300, 600, 900, 1000) for fault in stepped)
    assert stepped[3] == schedule[3]


def test_the_cells_of_a_request_have_its_faults():
    request = RegressionSpec(applications=["wc"], executors=["pooled", "spark"], threads=[1], faults="kill@3")
    assert [cell.faults for cell in request.cells({"wc": "dataflow"})] == ["kill@3", ""]
    assert Pooled(app="wc", faults="kill").strategy == "affinity-faults"


# --- kills -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", some(WAYS))
def test_a_killed_run_resumes_and_ends_with_the_result(way, run):
    report, lines = run(way, "kill@130,kill@260,kill@400")
    step = WAYS[way].get("punctuation", 1)
    ends = [-(-at // step) * step for at in (130, 260, 400)]
    assert happened(report) == [("kill", at, life) for life, at in enumerate(ends, 1)]
    killed = [f"fault: killed at event {at}" for at in ends]
    assert [line for line in lines if line in killed] == killed
    assert report.resumed == [120, 240, 320] if step == 1 else report.resumed[0] < ends[0]


def test_a_run_that_is_killed_before_a_checkpoint_starts_again(run):
    report, lines = run("pooled", "kill", checkpoint="0")
    assert report.resumed == []
    assert [fault.life for fault in report.faults] == [1, 2, 3]
    assert len(lines) == 3
    assert run("pooled", "kill", checkpoint="0")[0].faults == report.faults


def test_a_complete_run_is_returned(cases, tmp_path):
    spec = Pooled(app="wc", faults="kill@9", sink="parquet")
    first = engine.run(spec, cases / "wc", tmp_path / "out")
    assert engine.run(spec, cases / "wc", tmp_path / "out") == first
    assert happened(first) == [("kill", 9, 1)]


# --- other faults ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", some(WAYS))
def test_a_run_on_a_full_disk_ends_and_resumes_with_the_result(way, cases, tmp_path):
    spec = RunSpec.parse({"threads": 2, "sink": "parquet", "checkpoint": "40", "faults": "full-disk@200"} | WAYS[way])
    out, lines = tmp_path / "out", []

    def say(line):
        """Note a line. Between the two lives, the folder is that of a run that was killed."""
        lines.append(line)
        if line.startswith("fault: "):
            assert sorted(path.name for path in out.iterdir()) == [WORK, "spec.json"]
            events = [file.read(path).events for path in file.paths(out / WORK / CHECKPOINTS)]
            assert events[:2] == [200, 160]

    report = engine.run(spec, cases / spec.app, out, say=say)
    assert happened(report) == [("full-disk", 200, 1)]
    assert lines[-2:] == [
        f"fault: disk full from event 200: cannot write run folder {out}: File too large",
        "resuming from the checkpoint at event 200",
    ]
    assert diff(out, cases / f"{spec.app}-oracle").exit_code == 0


def test_a_full_disk_refuses_checkpoints(cases, tmp_path):
    spec = RunSpec.parse(WAYS["pooled"] | {"checkpoint": "40", "faults": "full-disk@200"})
    lines = []
    report = engine.run(spec, cases / "wc", tmp_path / "out", say=lines.append)
    assert "no checkpoint at event 240: File too large; the run goes on" in lines
    assert report.resumed == [200]
    whole = engine.run(Pooled(app="wc"), cases / "wc", None)
    assert (report.verified.digest, report.state_digest) == (whole.verified.digest, whole.state_digest)


@pytest.mark.parametrize("way", some(WAYS))
def test_stalls_and_jumping_clocks_change_no_result(way, run):
    report, lines = run(way, "stall@7,clock@100", checkpoint="60s")
    assert happened(report) == [("stall", 7, 1), ("clock", 100, 1)]
    assert report.resumed == lines == []


def test_threads_pause_until_the_stalls_stop():
    before = pauses = _runtime.Stalls(3).stop()
    while pauses == before:
        pauses = _runtime.Stalls(4).stop()
    assert pauses > before


def test_the_clocks_of_a_life_jump(cases, tmp_path):
    wall, monotonic = time.time, time.monotonic

    def live(life):
        jump_clocks(random.Random(life.number))
        return time.time() - wall(), time.monotonic() - monotonic()

    differences = supervised([], live, None, print)
    assert min(map(abs, differences)) > 60
    assert (time.time, time.monotonic) == (wall, monotonic)
    workload.write("wc", {}, 30_000, 1, tmp_path / "events")
    report = engine.run(Pooled(app="wc", faults="clock@1"), tmp_path / "events", tmp_path / "out")
    assert report.verified.seconds > 60  # of engine time


# --- how a life ends -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RunFailed("a"), BadInput("b"), CommandFailed("c"), MemoryError(), KeyError("e")])
def test_the_error_of_a_life_is_that_of_the_run(error):
    def live(life: Life):
        raise error

    with pytest.raises(type(error)) as failed:
        supervised([Fault("kill", 3)], live, None, print)
    assert failed.value.args == error.args


CRASH = """
import os, signal
from streaming_core.run.supervision import supervised
def live(life):
    {body}
try:
    supervised([], live, None, print)
except BaseException as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("body", "code", "output"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV, ""),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("os._exit(7)", 0, "CommandFailed the process of the run ended with code 7\n"),
        ("os._exit(143)", 0, "Interrupted stopped by SIGTERM\n"),
    ],
)
def test_a_run_ends_as_its_life_ends(body, code, output):
    script = CRASH.format(body=body)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (code, output), ended.stderr


ENDLESS = """
import os, select
from streaming_core import interruption
from streaming_core.run.supervision import supervised
def live(life):
    life.say(str(os.getpid()))
    while True:
        select.select([], [], [], 0.01)  # a signal may come at any moment
        interruption.check()
with interruption.heeded():
    supervised([], live, None, lambda line: print(line, flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_life_survives_its_run(number):
    command = [sys.executable, "-c", ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        life = os.pidfd_open(int(process.stdout.readline()))
        process.send_signal(number)
        _, error = process.communicate(timeout=20)
        assert ("Interrupted" in error) == (number != signal.SIGKILL)
        assert select.select([life], [], [], 20)[0]  # it has ended
        os.close(life)
