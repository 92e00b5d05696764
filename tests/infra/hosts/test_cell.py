"""infra/hosts/cell.py with small programs in place of the engine: start, stop and record of a process."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streaming_core.regression.lock import of_host, signature
from tests.support.draws import some
from tests.support.waiting import alive, wait_for

DRIVER = Path(__file__).resolve().parents[3] / "infra" / "hosts" / "cell.py"
PATIENCE = 30


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOST_LOCK", str(tmp_path / "host.lock"))
    folder = tmp_path / "attempt-1"
    folder.mkdir()
    (folder / "spec.json").write_text("{}")
    return folder


def engine(tmp_path: Path, text: str, name: str = "engine") -> list[str]:
    """A program that is called as the engine is: run SPEC --input DIR --out DIR."""
    path = tmp_path / f"{name}.py"
    path.write_text(f"import os, sys, time, signal\nout = sys.argv[sys.argv.index('--out') + 1]\n{text}\n")
    return [sys.executable, str(path)]


def arguments(attempt: Path, command: list[str], *more: str) -> list[str]:
    return [sys.executable, str(DRIVER), "run", str(attempt), "--input", "w", "--wrapper", json.dumps(command), *more]


def run(attempt: Path, command: list[str], *more: str) -> subprocess.CompletedProcess:
    return subprocess.run(arguments(attempt, command, *more), capture_output=True, text=True, timeout=PATIENCE)


def start(attempt: Path, command: list[str], *more: str, **kwargs) -> subprocess.Popen:
    return subprocess.Popen(arguments(attempt, command, *more), stderr=subprocess.PIPE, text=True, **kwargs)


def beside(attempt: Path, name: str) -> Path:
    """A file of the driver, outside the engine's folder."""
    return attempt.with_name(f"{attempt.name}.{name}")


def left(attempt: Path) -> dict:
    return json.loads((attempt / "exit.json").read_text())


def pid_in(path: Path) -> int:
    return int(wait_for(lambda: path.exists() and path.read_text().strip(), PATIENCE))


# Tells its own id and that of a child of its own, then never ends by itself.
HANGS = """
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
open(out + "/child", "w").write(str(child))
open(out + "/pid", "w").write(str(os.getpid()))
time.sleep(600)
"""


def test_engine_receives_no_airflow_setting_and_no_secret(attempt, tmp_path, monkeypatch):
    """The engine runs a user's application, which could print its environment into the log of the cell."""
    for name in ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW_CONN_LOCAL", "SPARK_CONNECT_AUTHENTICATE_TOKEN"):
        monkeypatch.setenv(name, "a secret")
    for name in ("MY_TOKEN", "PGPASSWORD", "CLOUD_KEY"):
        monkeypatch.setenv(name, "a secret")
    monkeypatch.setenv("LOCKSTEP_APP_MODE", "fast")
    assert run(attempt, engine(tmp_path, "import json; print(json.dumps(dict(os.environ)))")).returncode == 0
    seen = json.loads(beside(attempt, "stdout.log").read_text())
    assert "a secret" not in seen.values()
    assert not [name for name in seen if name.startswith("AIRFLOW")]
    assert (seen["LOCKSTEP_APP_MODE"], seen["PATH"]) == ("fast", os.environ["PATH"])


# A program, the driver's exit code, and the error that it records.
ENDS = [
    ("print('hello')", 0, None),
    ("sys.stderr.write('first\\noperator debit: boom\\n'); sys.exit(1)", 1, "operator debit: boom"),
    ("os.kill(os.getpid(), signal.SIGSEGV)", 128 + signal.SIGSEGV, "killed by SIGSEGV"),
]


@pytest.mark.parametrize(("program", "code", "error"), ENDS)
def test_end_of_a_run_is_recorded_with_its_reason(attempt, tmp_path, program, code, error):
    done = run(attempt, engine(tmp_path, program))
    assert (done.returncode, done.stderr.strip()) == (code, error or "")
    assert (left(attempt)["exit_code"], left(attempt)["error"]) == (code, error)
    assert left(attempt)["host"]
    assert beside(attempt, "stdout.log").read_text() == ("" if code else "hello\n")


def test_command_that_cannot_start_is_a_failed_run(attempt):
    assert run(attempt, ["/no/such/engine"]).returncode == 1
    assert left(attempt)["error"] == "cannot start /no/such/engine: No such file or directory"


def test_hung_run_is_stopped_with_its_children(attempt, tmp_path):
    done = run(attempt, engine(tmp_path, HANGS), "--timeout", "1")
    assert done.returncode == 124
    assert left(attempt)["error"] == "it did not end within 1 s, so it was killed"
    assert not alive(pid_in(attempt / "pid"))
    assert wait_for(lambda: not alive(pid_in(attempt / "child")), PATIENCE)


@pytest.mark.parametrize("number", some([signal.SIGTERM, signal.SIGINT]))
def test_bursts_of_signals_end_a_run_once(attempt, tmp_path, number):
    """Hundreds, also while it handles the first, ends the group and writes its last words."""
    for burst in range(2):
        folder = attempt.with_name(f"burst-{burst}")
        shutil.copytree(attempt, folder)
        driver = start(folder, engine(tmp_path, HANGS))
        pid, child = pid_in(folder / "pid"), pid_in(folder / "child")
        sent = 0
        while driver.poll() is None and sent < 1000:
            driver.send_signal(number)
            sent += 1
        driver.communicate(timeout=PATIENCE)
        assert sent > 100
        assert (driver.returncode, left(folder)["error"]) == (137, "stopped")
        assert not alive(pid)
        assert wait_for(lambda child=child: not alive(child), PATIENCE)
        lock = of_host()
        assert lock.take(signature("next")), "the host is free"
        lock.leave()


@pytest.mark.parametrize(
    ("option", "error"), [(["--tether"], "stopped"), (["--lease", "0.5"], "its connection was lost for ")]
)
def test_run_with_a_lost_connection_ends_at_once_or_with_its_lease(attempt, tmp_path, option, error):
    driver = start(attempt, engine(tmp_path, HANGS), *option, stdin=subprocess.PIPE)
    pid = pid_in(attempt / "pid")
    driver.stdin.close()
    driver.wait(PATIENCE)
    assert left(attempt)["error"].startswith(error)
    assert not alive(pid)


def test_waiting_call_renews_the_lease_of_the_run(attempt, tmp_path):
    waits = "open(out + '/pid', 'w').write(str(os.getpid()))\nwhile not os.path.exists(out + '/go'): time.sleep(0.01)"
    driver = start(attempt, engine(tmp_path, waits), "--lease", "2", stdin=subprocess.PIPE)
    wait_for(lambda: beside(attempt, "process.json").exists(), PATIENCE)
    follower = start(attempt, engine(tmp_path, waits), "--lease", "2", stdin=subprocess.PIPE)
    wait_for(lambda: beside(attempt, "followed").exists(), PATIENCE)
    lost_at = time.time()
    driver.stdin.close()
    wait_for(lambda: beside(attempt, "followed").stat().st_mtime > lost_at + 3, PATIENCE)
    assert driver.poll() is None
    (attempt / "go").touch()
    assert (driver.wait(PATIENCE), follower.wait(PATIENCE)) == (0, 0)


def test_stop_ends_a_run_that_waits_for_the_host_and_no_engine_starts(attempt, tmp_path):
    lock = of_host()
    assert lock.take(signature("another cell"))
    driver = start(attempt, engine(tmp_path, "open(out + '/ran', 'w')"))
    assert "in use" in driver.stderr.readline()
    assert subprocess.run([sys.executable, str(DRIVER), "stop", str(attempt)], timeout=PATIENCE).returncode == 0
    assert driver.wait(PATIENCE) == 137
    lock.leave()
    assert not (attempt / "ran").exists()


def test_second_waiting_call_does_not_rerun_the_engine(attempt, tmp_path):
    lock = of_host()
    assert lock.take(signature("another cell"))
    drivers = [start(attempt, engine(tmp_path, "open(out + '/runs', 'a').write('x')")) for _ in range(2)]
    for driver in drivers:
        assert "in use" in driver.stderr.readline()
    lock.leave()
    assert [driver.wait(PATIENCE) for driver in drivers] == [0, 0]
    assert (attempt / "runs").read_text() == "x"


def test_killed_driver_ends_the_engine_and_the_attempt_is_lost(attempt, tmp_path):
    driver = start(attempt, engine(tmp_path, HANGS))
    pid = pid_in(attempt / "pid")
    wait_for(lambda: beside(attempt, "process.json").exists(), PATIENCE)
    driver.kill()
    driver.communicate()
    wait_for(lambda: not alive(pid), PATIENCE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # the engine's own children are orphans now
    assert not (attempt / "exit.json").exists()
    assert run(attempt, engine(tmp_path, "print('a second copy')", "other")).returncode == 75
    assert beside(attempt, "stdout.log").read_text() == "", "a lost attempt is not run again in the same folder"


def test_lost_run_resumes_from_its_checkpoint(attempt, tmp_path):
    path = "out + '/.run/checkpoints/checkpoint-000000000000042'"
    saves = f"os.makedirs(out + '/.run/checkpoints'); open({path}, 'w').write('42')"
    driver = start(attempt, engine(tmp_path, saves + HANGS))
    pid, child = pid_in(attempt / "pid"), pid_in(attempt / "child")
    wait_for(lambda: beside(attempt, "process.json").exists(), PATIENCE)
    driver.kill()
    driver.communicate()
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: not alive(pid), PATIENCE)
    goes_on = engine(tmp_path, f"print('from', open({path}).read())", "other")
    assert run(attempt, goes_on).returncode == 0
    assert beside(attempt, "stdout.log").read_text() == "from 42\n"
    assert run(attempt, engine(tmp_path, "sys.exit(1)", "third")).returncode == 0, "it has ended, and once is enough"


def test_second_call_joins_the_run_in_progress(attempt, tmp_path):
    waits = (
        "while not os.path.exists(out + '/go'):\n    time.sleep(0.01)\nopen(out + '/ran', 'a').write('x')\nsys.exit(3)"
    )
    first = start(attempt, engine(tmp_path, waits))
    wait_for(lambda: beside(attempt, "process.json").exists(), PATIENCE)
    second = start(attempt, engine(tmp_path, waits))
    (attempt / "go").touch()
    for driver in (first, second):
        driver.communicate(timeout=PATIENCE)
    assert (first.returncode, second.returncode) == (3, 3)
    assert (attempt / "ran").read_text() == "x"


def test_host_executes_one_run_at_a_time(attempt, tmp_path):
    first = start(attempt, engine(tmp_path, HANGS))
    pid_in(attempt / "pid")
    other = tmp_path / "attempt-2"
    other.mkdir()
    second = start(other, engine(tmp_path, "pass", "quick"))
    own = f"cell {attempt.parent.name} of run {attempt.parent.parent.name}"
    assert second.stderr.readline().strip().startswith(f"waiting: the host is in use by {own} on ")
    assert not beside(other, "process.json").exists()
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=PATIENCE)
    second.communicate(timeout=PATIENCE)
    assert second.returncode == 0


def test_shell_interprets_no_part_of_a_run(attempt, tmp_path):
    marker = tmp_path / "marker"
    run(attempt, [*engine(tmp_path, "open(out + '/seen', 'w').write(repr(sys.argv[1]))"), f"; touch {marker}"])
    assert (attempt / "seen").read_text() == repr(f"; touch {marker}")
    assert not marker.exists()
    assert os.listdir(tmp_path / "attempt-1")
