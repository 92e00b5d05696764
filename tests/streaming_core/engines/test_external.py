"""run/external.py: cells on other engines, both correct and faulty."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streaming_core.data import workload
from streaming_core.engines import environment, registry
from streaming_core.errors import BadInput, RunFailed
from streaming_core.oracle import oracle
from streaming_core.process import alive, identity
from streaming_core.run import external
from streaming_core.run.comparison import diff
from streaming_core.run.way import RunSpec
from tests.streaming_core.engines.planted import WC, plant
from tests.support.draws import some
from tests.support.waiting import wait_for

EVENTS = 60


@pytest.fixture(scope="module")
def wc(tmp_path_factory):
    """A folder with a workload and the oracle's result."""
    folder = tmp_path_factory.mktemp("wc")
    workload.write("wc", {}, EVENTS, 1, folder / "workload")
    oracle.run(folder / "workload", folder / "oracle")
    return folder


@pytest.fixture
def engines(tmp_path, monkeypatch):
    """The folder of engines."""
    monkeypatch.setenv(registry.SETTING, str(tmp_path / "engines"))
    return tmp_path / "engines"


def spec_of(name, **fields):
    return RunSpec.parse({"app": "wc", "executor": name, "sink": "parquet"} | fields)


def test_a_cell_holds_the_outputs_and_the_report_of_its_engine(wc, engines, tmp_path):
    plant(engines, "right", WC.format(fault=""))
    report = external.run(spec_of("right", repetitions=2, seconds=0), wc / "workload", tmp_path / "run")
    assert [sample.kind for sample in report.samples] == ["verified", "peak", "peak"]
    assert report.state_digest is None
    assert report.host["engine"] == {"system": "Test right", "python": "3"}
    outcome = diff(tmp_path / "run", wc / "oracle")
    assert (outcome.exit_code, outcome.states, outcome.outputs) == (0, None, 10 * EVENTS)
    # The same call reads the report again.
    assert external.run(spec_of("right", repetitions=2, seconds=0), wc / "workload", tmp_path / "run") == report


@pytest.mark.slow
def test_a_run_killed_while_publishing_starts_over(wc, engines, tmp_path):
    plant(engines, "right", WC.format(fault=""))
    external.run(spec_of("right"), wc / "workload", tmp_path / "run")
    (tmp_path / "run" / "report.json").unlink()
    (tmp_path / "run" / ".run").mkdir()
    external.run(spec_of("right"), wc / "workload", tmp_path / "run")
    assert diff(tmp_path / "run", wc / "oracle").exit_code == 0
    assert not (tmp_path / "run" / ".run").exists()


def test_the_compiled_loop_is_measured_with_an_engine(wc, engines, tmp_path):
    plant(engines, "right", WC.format(fault=""))
    report = external.run(spec_of("right", repetitions=1, seconds=0.01), wc / "workload", tmp_path / "run")
    assert report.yardstick
    assert report.samples[1].loop_seconds > 0


@pytest.mark.slow
def test_an_engine_without_order_is_compared_by_the_declared_columns(wc, engines, tmp_path):
    program = WC.format(fault="main_ = main\ndef main(applications, versions): main_(applications, versions)").replace(
        "pa.schema(columns)", "task.schema"
    )
    plant(engines, "loose", program, applications={"wc": "none"})
    external.run(spec_of("loose"), wc / "workload", tmp_path / "run")
    assert pq.read_table(tmp_path / "run" / "outputs").column_names == ["word", "n"]
    assert diff(tmp_path / "run", wc / "oracle").exit_code == 0


def test_wrong_outputs_are_published_for_the_comparison(wc, engines, tmp_path):
    fault = "right = wc\ndef wc(task):\n    one = right(task)\n    return lambda: one().slice(1)"
    plant(engines, "short", WC.format(fault=fault))
    external.run(spec_of("short"), wc / "workload", tmp_path / "run")
    outcome = diff(tmp_path / "run", wc / "oracle")
    assert outcome.counts["outputs"] == 1
    first = outcome.differences[0]
    assert (first.kind, first.row) == ("missing", {"seq": 0, "sub": 0})


# Faults of a report, and of the file of outputs.
REPORT = """
import lockstep_engine as e
write = e.write_report
def changed(task, passes, versions):
    {}
    write(task, passes, versions)
e.write_report = changed
"""
OUTPUTS = """
import lockstep_engine as e
import pyarrow.parquet as pq
def write(task, table):
    (task.out / 'outputs').mkdir()
    pq.write_table({}, task.out / 'outputs/part-0.parquet')
e.write_outputs = write
"""
FAULTS = {
    "crash": ("print('before'); print(1 / 0)", r"exit code 1; its log ends: .*\| ZeroDivisionError: division by zero$"),
    "silent": ("raise SystemExit(7)", r"it ended with exit code 7; its log is empty$"),
    "killed": ("import os; os.kill(os.getpid(), 9)", r"it was killed by signal 9; its log is empty$"),
    "no report": ("raise SystemExit(0)", r"it wrote no report\.json; its log is empty$"),
    "no outputs": ("import lockstep_engine as e\ne.write_outputs = lambda *a: None", r"it wrote no outputs/part-\*"),
    "bad report": (REPORT.format("passes[0]['seconds'] = 0"), r"report\.json is invalid: passes\.0\.seconds must be"),
    "no digest": (REPORT.format("passes[0]['digest'] = 'none'"), r"report\.json is invalid: passes\.0\.digest"),
    "no passes": (REPORT.format("del passes[1:]"),
     r"report\.json is wrong: it has 0 measured passes, expected at least"),
    "a kind": (REPORT.format("passes.reverse()"), r"the passes must be verified, peak, in this order, got peak, ver"),
    "events": (REPORT.format("passes[1]['events'] = 1"), r"pass 1 has 1 events, but the workload has 60"),
    "count": (REPORT.format("passes[0]['outputs'] = 9"), r"pass 0 has 9 outputs, but its digest is 600:"),
    "time": (REPORT.format("passes[0]['seconds'] = 1e6"), r"its passes took 1000000\.\d+ s, but its process only "),
    "fewer": (OUTPUTS.format("table.slice(1)"), r"outputs have digest 599:\w+, but its report\.json says 600:"),
    "a column": (OUTPUTS.format("table.drop_columns(['sub'])"), r"another schema: column sub is missing;"),
    "one more": (OUTPUTS.format("table.append_column('x', table['n'])"),
     r"schema: column x does not belong there; exp"),
    "a type": (OUTPUTS.format("table.set_column(3, 'n', table['n'].cast('int32'))"),
     r"another schema: column n has type int32, expected int64;"),
    "columns": (OUTPUTS.format("table.select(['sub', 'seq', 'word', 'n'])"), r"the columns are sub, seq, word, n, exp"),
    "no table": (
     "import lockstep_engine as e\n" "def write(task, table):\n" "    (task.out / 'outputs').mkdir()\n"
     "    (task.out / 'outputs/part-0.parquet').write_bytes(b'PAR1')\n" "e.write_outputs = write", r"part-0\.parquet"),
}  # fmt: skip


@pytest.mark.parametrize("fault", some(FAULTS))
def test_a_failed_cell_names_its_engines_fault(wc, engines, tmp_path, fault):
    code, message = FAULTS[fault]
    plant(engines, "wrong", WC.format(fault=code))
    with pytest.raises(RunFailed, match=f"^engine wrong: .*{message}"):
        external.run(spec_of("wrong", repetitions=1, seconds=0), wc / "workload", tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["engine.log", "spec.json"]


def test_an_engine_that_hangs_is_stopped_with_its_children(wc, engines, tmp_path):
    fault = (
        "import signal, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print('child', child.pid); signal.pause()"
    )
    plant(engines, "slow", WC.format(fault=fault), limit=4)
    with pytest.raises(
        RunFailed, match=r"did not end within 4 s, so it was stopped; its log ends: child \d+$"
    ) as error:
        external.run(spec_of("slow"), wc / "workload", tmp_path / "run")
    assert not alive(identity(int(str(error.value).rpartition(" ")[2])))


@pytest.mark.slow
def test_a_signal_also_stops_the_engine(wc, engines, tmp_path):
    plant(engines, "slow", WC.format(fault="import os, signal\nprint('engine', os.getpid()); signal.pause()"))
    command = [Path(sys.executable).with_name("streaming-core"), "run", "wc", "--executor", "slow"]
    command += ["--input", wc / "workload", "--out", tmp_path / "run"]
    run = subprocess.Popen(list(map(str, command)), env=os.environ | {registry.SETTING: str(engines)})
    log = tmp_path / "run" / "engine.log"
    wait_for(lambda: log.exists() and log.read_text().endswith("\n"), 60)
    run.send_signal(signal.SIGTERM)
    assert run.wait(30) == 128 + signal.SIGTERM
    assert not alive(identity(int(log.read_text().split()[-1])))
    assert not (tmp_path / "run" / "outputs").exists()


def test_a_cell_requires_an_up_to_date_installed_engine(wc, engines, tmp_path):
    engine = plant(engines, "mine", WC.format(fault=""))
    (engine.folder / environment.LOCK).write_text("# another package\n")
    command = "type `lockstep engines install mine`"
    with pytest.raises(BadInput, match=f"^engine mine changed since it was installed; {command}$"):
        external.run(spec_of("mine"), wc / "workload", tmp_path / "run")
    (environment.home(engine) / environment.INSTALLED).unlink()
    with pytest.raises(BadInput, match=f"^engine mine is not installed on this machine; {command}$"):
        external.run(spec_of("mine"), wc / "workload", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_engine_sees_no_secrets_and_no_settings_of_lockstep(engines):
    engine = plant(engines, "mine", "")
    seen = environment.variables(engine, {"PATH": "/bin", "LOCKSTEP_HOME": "/home", "PYTHONPATH": "/x", "LANG": "C"})
    assert seen["PATH"] == f"{environment.home(engine)}/venv/bin:/bin"
    assert seen["PYTHONPATH"] == str(environment.CLIENT)
    assert "LOCKSTEP_HOME" not in seen
    assert seen["LANG"] == "C"


def test_the_task_describes_the_run(wc, engines, tmp_path):
    program = (
        "import json, pathlib, sys\n"
        "spec = pathlib.Path(sys.argv[sys.argv.index('--spec') + 1])\n"
        "print(json.dumps(json.loads(spec.read_text())), flush=True)\n"
        "raise SystemExit(1)"
    )
    plant(engines, "mine", program, open_loop=True)
    spec = spec_of("mine", threads=3, batch=7, rate=10, repetitions=2)
    with pytest.raises(RunFailed, match="exit code 1"):
        external.run(spec, wc / "workload", tmp_path / "run")
    task = json.loads((tmp_path / "run" / "engine.log").read_text())
    names = ("version", "app", "threads", "batch", "order", "rate", "repetitions", "seconds")
    assert [task[name] for name in names] == [1, "wc", 3, 7, "total", 10, 2, 0.4]
    assert task["params"]["words"] == 10
