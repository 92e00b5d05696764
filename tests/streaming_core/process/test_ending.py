"""How a command ends when its environment fails: one line, exit code 3 (2 for bad names), no files left.

Through the command that a user types, in a process of its own: limits, descriptors and locales are a process's.
"""

import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streaming_core.cli import main
from streaming_core.process import ending
from tests.support.checkout import FOREIGN
from tests.support.draws import some

BIN = Path(sys.executable).parent
COMMAND = BIN / "streaming-core"
LONG = "x" * 300


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A workload of wc, a run, the oracle's result and a recording."""
    root = tmp_path_factory.mktemp("workspace")
    workload = ("--input", root / "w")
    for arguments in (
        ("generate", "wc", "--events", 500, "--out", root / "w"),
        ("run", "wc", *workload, "--out", root / "run"),
        ("oracle", "wc", *workload, "--out", root / "oracle"),
        ("record", "wc", "--operator", "count", *workload, "--out", root / "recording"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", ["streaming-core", *map(str, arguments)])
            with pytest.raises(SystemExit) as ended:
                main()
        assert ended.value.code == 0, arguments
    return root


def limited(kind, size):
    """A `preexec_fn` that limits a resource of the command."""
    return lambda: resource.setrlimit(kind, (size, size))


def call(*arguments, command="streaming-core", env=None, **options):
    arguments = [a if isinstance(a, bytes) else str(a) for a in arguments]
    options = {"stdout": subprocess.PIPE} | options
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
    # Under a size limit Python would write truncated bytecode files, which break later runs.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return subprocess.run([BIN / command, *arguments], stderr=subprocess.PIPE, env=environment | (env or {}), **options)


def ends(done, code, *words, name="streaming-core"):
    """Checks the exit code, and that stderr is one line with the words."""
    line = done.stderr.decode("utf-8", "replace")
    assert done.returncode == code, line
    assert line.startswith(f"{name}: ")
    assert line.count("\n") == 1
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    "words",
    some(
        [
            "run wc --input w --out new",
            "generate wc --events 20000 --out new",
            "oracle wc --input w --out new",
            "record wc --operator count --input w --out new",
            "oracle wc --operator count --input w --out new",
            "replay recording --repetitions 1 --out new",
            "bench wc --events 1000 --threads 1 --repetitions 1 --out new",
        ]
    ),
)
def test_a_full_disk_gives_one_line_and_leaves_no_output(workspace, tmp_path, with_compiled, words):
    paths = [tmp_path / a if a == "new" else workspace / a if a in ("w", "recording") else a for a in words.split()]
    full = limited(resource.RLIMIT_FSIZE, 1024)
    done = call(*paths, preexec_fn=full, env={"LOCKSTEP_HOME": str(with_compiled(tmp_path / "home"))})
    ends(done, 3, "cannot write ", "File too large")
    left = {path.name for path in tmp_path.rglob("*") if path.is_file() and tmp_path / "home" not in path.parents}
    assert left <= {"spec.json"}


@pytest.mark.parametrize(
    "arguments",
    some(["diff run oracle", "--help", "describe lr --json"]),
)
@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.slow)])
def test_an_unprintable_result_fails_the_command(workspace, arguments, unbuffered):
    paths = [workspace / a if a in ("run", "oracle", "w") else a for a in arguments.split()]
    with open("/dev/full", "wb") as full:
        ends(call(*paths, stdout=full, env={"PYTHONUNBUFFERED": unbuffered}), 3, "No space left on device")


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.slow)])
@pytest.mark.parametrize("arguments", some(["diff run oracle", "describe lr"]))
def test_a_closed_pipe_ends_the_command_silently(workspace, arguments, unbuffered):
    paths = [workspace / a if a in ("run", "oracle") else a for a in arguments.split()]
    reader, end = os.pipe()
    os.close(reader)
    done = call(*paths, stdout=end, env={"PYTHONUNBUFFERED": unbuffered})
    os.close(end)
    assert (done.returncode, done.stderr) == (3, b"")


def test_exit_code_is_right_when_stderr_is_full(workspace):
    with open("/dev/full", "wb") as full:
        options = {"stdout": full, "env": dict(os.environ)}
        assert subprocess.run([COMMAND, "describe", "nope"], stderr=full, **options).returncode == 2
        assert (
            subprocess.run(
                [COMMAND, "diff", workspace / "run", workspace / "oracle"], stderr=full, **options
            ).returncode
            == 3
        )


@pytest.mark.parametrize(
    "words",
    some(
        [
            f"run wc --input w --out {LONG}",
            f"run wc --input {LONG} --out new",
            f"generate wc --events 10 --out {LONG}",
            f"oracle wc --input w --out {LONG}",
            f"record wc --operator count --input w --out {LONG}",
            f"replay {LONG}",
            f"replay recording --out {LONG}",
            f"bench wc --events 1000 --threads 1 --repetitions 1 --out {LONG}",
        ]
    ),
    ids=lambda words: words.replace(LONG, "LONG"),
)
def test_an_overlong_name_is_bad_input(workspace, tmp_path, with_compiled, words):
    words = words.split()
    paths = [workspace / a if a in ("w", "recording") else tmp_path / a if a in (LONG, "new") else a for a in words]
    ends(call(*paths, env={"LOCKSTEP_HOME": str(with_compiled(tmp_path / "home"))}), 2, "File name too long")


def test_diff_refuses_an_overlong_name(workspace):
    ends(call("diff", workspace / "run", workspace / LONG), 2, "File name too long")


@pytest.mark.parametrize("app", some(["run", "generate", "oracle", "record"]))
def test_a_name_outside_utf_8_is_bad_input_and_nothing_is_written(workspace, tmp_path, app):
    out = os.fsencode(tmp_path) + b"/na\xefve"
    more = {"generate": ("--events", 10), "record": ("--input", workspace / "w", "--operator", "count")}
    ends(
        call(app, "wc", *more.get(app, ("--input", workspace / "w")), "--out", out),
        2,
        "na\\xefve",
        "is not valid UTF-8",
    )
    assert os.listdir(os.fsencode(tmp_path)) == []


def test_home_must_have_a_utf_8_name(tmp_path):
    home = os.fsencode(tmp_path) + b"/na\xefve"
    done = subprocess.run([COMMAND, "apps"], env={**os.environb, b"LOCKSTEP_HOME": home}, capture_output=True)
    ends(done, 2, "LOCKSTEP_HOME", "is not valid UTF-8")


ASCII = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_a_locale_that_misreads_names_is_refused(tmp_path):
    done = call("generate", "sl", "--events", 10, "--out", tmp_path / "é", env=ASCII)
    ends(done, 2, r"\xc3\xa9", "this system reads it as ascii; set PYTHONUTF8=1")
    assert list(tmp_path.iterdir()) == []
    done = call("generate", "sl", "--events", 10, "--out", tmp_path / "é", env={"LC_ALL": "C", "PYTHONUTF8": "1"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("env", some([ASCII, {"PYTHONIOENCODING": "ascii"}]))
def test_unprintable_characters_are_escaped(workspace, tmp_path, env):
    folder = tmp_path / "Ω" if env is not ASCII else tmp_path
    assert call("generate", "sl", "--events", 10, "--out", folder).returncode == 0
    done = call("generate", "sl", "--events", 10, "--out", folder, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    done = call("--help", env=env)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("megabytes", some([150, 40, 100, 250]))
def test_lack_of_memory_for_the_libraries_gives_one_line(workspace, megabytes):
    """Each of these sizes stops at another library; OpenBLAS would end the process with code 1 at the middle ones."""
    arguments = ("diff", workspace / "run", workspace / "oracle")
    ends(call(*arguments, preexec_fn=limited(resource.RLIMIT_AS, megabytes << 20)), 3)


def test_a_thread_that_cannot_start_gives_one_line(capsys):
    before = threading.stack_size(1 << 47)  # no process has so many addresses
    try:
        with pytest.raises(SystemExit) as ended:
            ending.end("lockstep", threading.Thread(target=print).start)
    finally:
        threading.stack_size(before)
    assert (ended.value.code, "cannot start a thread: a limit of memory" in capsys.readouterr().err) == (3, True)


def test_an_internal_error_gives_one_line_and_a_traceback_on_request(workspace):
    script = (
        "import sys\nfrom streaming_core.cli import main\nfrom streaming_core.run import comparison\n"
        "def broken(*_):\n    raise LookupError('no such\\nthing')\n"
        "comparison.diff = broken\nmain()\n"
    )
    command = [sys.executable, "-c", script, "diff", workspace / "run", workspace / "oracle"]
    done = subprocess.run(command, capture_output=True)
    ends(done, 3, "internal error: LookupError: no such thing (<string>:5); set LOCKSTEP_TRACEBACK=1")
    done = subprocess.run(command, capture_output=True, env={**os.environ, "LOCKSTEP_TRACEBACK": "1"})
    assert done.returncode == 3
    assert done.stderr.startswith(b"Traceback")
    assert done.stderr.splitlines()[-1].startswith(b"streaming-core: internal error: LookupError")


@pytest.mark.slow
def test_an_interrupted_diff_does_not_exit_as_different(workspace):
    # Raised in this thread: a signal to the process may come to another one, and be noted after it was looked for. Of
    # tests that a shell runs in the background SIGINT is ignored, which the command would respect.
    script = (
        "import signal\nfrom streaming_core import interruption\nfrom streaming_core.cli import main\n"
        "from streaming_core.run import comparison\n"
        "signal.signal(signal.%(name)s, signal.SIG_DFL)\n"
        "comparison.diff = lambda *_: (signal.raise_signal(signal.%(name)s), interruption.check())\nmain()\n"
    )
    for number, code in (("SIGINT", 130), ("SIGTERM", 143)):
        command = [sys.executable, "-c", script % {"name": number}, "diff", workspace / "run", workspace / "oracle"]
        ends(subprocess.run(command, capture_output=True), code, f"stopped by {number}")


@pytest.mark.parametrize("words", some(["run", "", "report", "prune", "warehouse build", "ui"]))
def test_all_commands_end_alike(tmp_path, words):
    env = {"LOCKSTEP_HOME": str(tmp_path / "l"), "AIRFLOW_HOME": str(tmp_path / "a"), "PYTHONUNBUFFERED": ""}
    house = {"command": "lockstep", "env": env}
    with open("/dev/full", "wb") as full:
        ends(call(*words.split(), "--help", stdout=full, **house), 3, "No space left on device", name="lockstep")
    few = limited(resource.RLIMIT_AS, 100 << 20)
    ends(call(*words.split(), "--help", preexec_fn=few, **house), 3, name="lockstep")
    (tmp_path / "l").write_text("no folder")
    if words.startswith(("prune", "warehouse")):
        ends(call(*words.split(), **house), 2, str(tmp_path / "l"), name="lockstep")


@pytest.mark.slow
def test_variables_of_other_work_do_not_reach_a_run(workspace, tmp_path):
    foreign = {name: value for name, value in FOREIGN.items() if not name.startswith("PYTHON")}
    done = call("run", "wc", "--input", workspace / "w", "--out", tmp_path / "run", env=foreign)
    assert done.returncode == 0, done.stderr
    reports = [json.loads((folder / "run" / "report.json").read_text()) for folder in (workspace, tmp_path)]
    assert reports[0]["build"] == reports[1]["build"] != "unknown"


@pytest.mark.slow
def test_report_fails_when_it_cannot_be_printed(tmp_path):
    from streaming_core.regression.home import Home
    from tests.reports import past_runs

    past_runs.make(Home(tmp_path / "l"), nights=1, red=False)
    house = {"command": "lockstep", "env": {"LOCKSTEP_HOME": str(tmp_path / "l")}}
    assert call("report", **house).returncode == 0
    with open("/dev/full", "wb") as full:
        ends(call("report", stdout=full, **house), 3, "No space left on device", name="lockstep")
    assert json.loads(call("report", "--json", **house).stdout)["green"]
