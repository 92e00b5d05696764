"""The command line: bad input gets one line and exit code 2, and writes nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra.checkout import ROOT
from streaming_core.regression.home import Home
from tests.infra.cli.conftest import lockstep
from tests.reports import past_runs
from tests.support.draws import some

COMMAND = Path(sys.executable).parent / "lockstep"


@pytest.fixture
def call(tmp_path, monkeypatch, capfd):
    """Run a command in the test's own process, which starts at once."""
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "l"))
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "a"))

    def call(*arguments: str) -> subprocess.CompletedProcess:
        code = lockstep(*arguments)
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return call


@pytest.fixture
def refused(call, tmp_path):
    """Run bad input; returns its one line of error."""

    def refused(*arguments: str) -> str:
        done = call(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        error = done.stderr
        assert error.startswith("lockstep: ")
        assert error.count("\n") == 1
        assert list(tmp_path.iterdir()) == []
        return error

    return refused


def test_missing_command_prints_help_and_is_bad_input(call):
    done = call()
    assert done.returncode == 2
    assert all(f" {name} " in done.stdout for name in ("run", "ui", "stop", "report", "publish", "prune", "warehouse"))
    assert done.stderr == "lockstep: name a command; see `lockstep --help`\n"


def test_start_imports_no_slow_package():
    slow = {"pyspark", "airflow", "great_expectations", "duckdb", "numba", "pandas"}
    code = f"import sys, infra.cli.command; print(sorted({slow} & sys.modules.keys()))"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "unknown command 'rnu'"),
        (["ui", "--port", "70000"], "--port must be at most 65535"),
        (["ui", "--port", "x"], "--port must be a valid integer"),
        (["report", "--jsn"], "unknown option --jsn"),
        (["report", "one", "two"], "two"),
        (["publish", "--run", "20990101T000000Z-00000000"], "no run 20990101T000000Z-00000000"),
        (["acknowledge"], "missing argument 'RUN_ID'"),
        (["acknowledge", "20990101T000000Z-00000000"], "missing option '--reason'"),
        (["backup"], "missing argument 'FILE'"),
        (["restore"], "missing argument 'FILE'"),
        (["gate"], "missing option '--against'"),
        (["gate", "--against", "nosuch"], "'nosuch' is not a commit of "),
        (["gate", "--against", "HEAD"], " has no run yet: start one with `lockstep run`"),
        (["gate", "--against", "HEAD", "--cells", ","], "--cells: name at least one cell"),
        (
            ["acknowledge", past_runs.LAST, "--reason", "x" * 501],
            "the reason must have at most 500 characters, got 501",
        ),
    ],
)
def test_usage_error_is_one_line_and_writes_nothing(refused, arguments, message):
    assert message in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--applications", "nosuch"], "unknown application 'nosuch'; known: "),
        (["--queues", ""], "--queues must not be empty"),
        (["--batches", "x"], "--batches: must be a number, got 'x'"),
        (["--applications", "q1", "--channels", "shared_ring", "--executors", "pinned"], "no cell that can run: "),
        (["--stealing", "maybe"], "got unexpected extra argument(s) (maybe)"),
        (["--applications", "gs", "--executors", "pooled"], "application gs runs on the executors transactional, but "),
        (["--threads", "two"], "--threads: must be a number or auto, got 'two'"),
        (["--gate_against", "nosuch"], "'nosuch' is not a commit of "),
        (["--params", "{"], '--params: must be JSON, for example {"wc": {"skew": 1.0}}; got \'{\''),
        (["--params", '{"gs": {"nosuch": 1}}'], "nosuch"),
        (["--no-such-option"], "unknown option --no-such-option"),
        (["--matrix", "../nightly"], "unknown matrix '../nightly' (did you mean 'nightly'?); known: full, nightly, "),
        (["--matrix", "smoke", "--threads", "0"], "each number must be between 1 and 1024, got 0"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(refused, arguments, message):
    assert message in refused("run", *arguments)


@pytest.mark.parametrize("arguments", some([["run", "--applications", "nosuch"], ["report", "--jsn"]]))
def test_shell_prints_the_same_error(refused, tmp_path, arguments):
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert list(tmp_path.iterdir()) == []
    assert done.stderr == refused(*arguments)


def test_report_before_the_first_run_is_refused(call):
    done = call("report")
    assert done.returncode == 2
    assert "has no run yet: start one with `lockstep run`" in done.stderr


@pytest.mark.slow
def test_report_beside_another_run_is_a_page(call, tmp_path):
    home = Home(tmp_path / "l")
    past_runs.make(home)
    first = past_runs.RUN_IDS[0]
    done = call("report", "--beside", first)
    page = home.report(past_runs.LAST, f"beside-{first}.html")
    assert done.returncode == 1
    assert done.stdout.endswith(f"{page}\n3 of the 14 shared cells changed their verdict\n")
    assert "changed their verdict" in page.read_text()
    assert isinstance(json.loads(call("report", "--beside", first, "--json").stdout), dict)
    done = call("report", "--beside", "20000101T000000Z-00000000")
    assert (done.returncode, done.stdout) == (2, "")
    assert "has no run 20000101T000000Z-00000000; the newest are " in done.stderr


def test_report_prints_the_last_run_even_if_red(call, tmp_path):
    past_runs.make(Home(tmp_path / "l"))
    done = call("report")
    assert done.returncode == 1
    for phrase in ("application", "events/s", "p99", "different", "failed", "not_run", "not_comparable"):
        assert phrase in done.stdout
    assert "operator debit, event 17: division by zero" in done.stdout
    assert "…" not in done.stdout, "nothing is cut off, however narrow the terminal"
    assert "reports" in done.stdout
    *_, verdict, speed = done.stdout.strip().splitlines()
    assert verdict.startswith("7 of 10 cells equal the oracle; ")
    assert speed.startswith("Speed: gs/serial/t2 is ")
    assert call("report", past_runs.RUN_IDS[0]).returncode == 0


def test_report_prints_json_for_programs(call, tmp_path):
    past_runs.make(Home(tmp_path / "l"), nights=1, red=False)
    done = call("report", "--json")
    result = json.loads(done.stdout)
    assert done.returncode == 0
    assert result["green"]
    assert result["counts"]["equal"] == 10
    about = "cell host application executor strategy order speed gate threads events_per_s p99_us verdict reason"
    assert {*about.split(), "to_loop", "to_best", "to_limit"} == set(result["cells"][0])


def test_report_of_an_unknown_run_is_refused(call, tmp_path):
    past_runs.make(Home(tmp_path / "l"), nights=1)
    done = call("report", "20990101T000000Z-00000000")
    assert done.returncode == 2
    assert "has no run 20990101T000000Z-00000000; the newest are " in done.stderr
