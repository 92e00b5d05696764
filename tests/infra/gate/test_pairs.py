"""Pairs of passes: of small programs in the engine's place, and once of the engine."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from infra.checkout import ROOT
from infra.gate import pairs
from infra.gate.pairs import Request
from infra.hosts import build
from infra.hosts.build import Build
from streaming_core.errors import RunFailed
from streaming_core.regression.home import Home
from streaming_core.regression.lock import SharedLock, signature
from streaming_core.regression.warehouse import PAIRS
from streaming_core.run import engine
from streaming_core.run.way import RunSpec
from streaming_core.storage import write_json
from tests.infra.gate import measured_run
from tests.infra.hosts.small_repository import ANSWERS
from tests.support.waiting import alive, wait_for

PATIENCE = 30
SPEC = RunSpec.parse({"app": "wc", "executor": "pooled", "repetitions": 3, "sink": "parquet", "rate": 100.0})


def answering(folder: Path, **answer: object) -> Build:
    """A build whose passes take `seconds` and result in `digest`, or that fails with `error`."""
    (folder / "streaming_core").mkdir(parents=True)
    (folder / "streaming_core" / "__init__.py").touch()
    (folder / "streaming_core" / "cli.py").write_text(ANSWERS)
    write_json(folder / "streaming_core" / "answer", answer)
    return Build(folder.name, folder)


def two(folder: Path, baseline: dict, other: dict) -> dict[str, Build]:
    return {"baseline": answering(folder / "old", **baseline), "build": answering(folder / "new", **other)}


def requests_of(build: Build) -> list[dict]:
    return [json.loads(line) for line in (build.tree / "streaming_core" / "asked").read_text().splitlines()]


@pytest.mark.slow
def test_pair_has_two_processes_in_random_order(tmp_path):
    builds = two(tmp_path, {"seconds": 0.25, "steal": 0.1}, {"seconds": 0.3125})
    rows = pairs.paired(builds, SPEC, tmp_path, "a lot")
    assert [row["pair"] for row in rows] == list(range(pairs.PAIRS))
    assert {(row["baseline_seconds"], row["build_seconds"], row["passes"]) for row in rows} == {(0.25, 0.3125, 3)}
    assert {(row["baseline_digest"], row["build_digest"]) for row in rows} == {("1:a 0:0", "1:a 0:0")}
    assert {(row["steal"], row["others"]) for row in rows} == {(0.1, 0.0)}
    first = [row["first"] for row in rows]
    assert 8 < first.count("build") < 24
    wanted = RunSpec.parse({"app": "wc", "executor": "pooled", "repetitions": 3, "sink": "digest", "seconds": 0.0})
    for side in builds.values():
        # One more, which does not count; files, rates and the loop, which the cell has, are not asked for.
        assert [RunSpec.parse(spec) for spec in requests_of(side)] == [wanted] * 33
    assert not any({"error"} & row.keys() for row in rows)
    assert all(set(row) <= set(PAIRS.names) for row in rows)


@pytest.mark.slow
def test_order_of_builds_depends_on_cell_and_run_only(tmp_path, monkeypatch):
    monkeypatch.setattr(pairs, "PAIRS", 6)
    builds = two(tmp_path, {}, {})
    drawn = [[row["first"] for row in pairs.paired(builds, SPEC, tmp_path, lot)] for lot in ("a", "a", "b")]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(("baseline", "other", "passes"), [(0.125, 0.11, 5), (0.125, 2.0, 3), (0.004, 0.005, 100)])
def test_pass_count_fills_one_second_for_both_sides_together(tmp_path, monkeypatch, baseline, other, passes):
    monkeypatch.setattr(pairs, "PAIRS", 1)
    builds = two(tmp_path, {"seconds": baseline}, {"seconds": other})
    rows = pairs.paired(builds, SPEC, tmp_path, "x")
    assert [spec["repetitions"] for spec in requests_of(builds["build"])] == [3, passes]
    assert rows[0]["passes"] == passes


@pytest.mark.parametrize(
    ("baseline", "other", "fields"),
    [
        ({}, {"digest": "1:b"}, {"baseline_digest": "1:a 0:0", "build_digest": "1:b 0:0"}),
        ({"seconds": 0.0004}, {}, {"baseline_seconds": 0.0004, "build_seconds": 0.25}),
        ({}, {"error": "it broke"}, {"error": "build new: it broke"}),
        (
            {"means": "something else"},
            {},
            {"error": "build old reads the specification of the cell in another way, so they cannot be compared"},
        ),
    ],
)
def test_incomparable_builds_end_the_cell_with_one_error_row(tmp_path, baseline, other, fields):
    (row,) = pairs.paired(two(tmp_path, baseline, other), SPEC, tmp_path, "x")
    assert fields.items() <= row.items()


def test_real_engine_is_measured_and_its_row_fits_the_raw_table(tmp_path):
    home = Home(tmp_path / "home")
    run_id, _ = measured_run.make(home)
    (planned, *_) = json.loads((home.run(run_id) / "plan.json").read_text())["cells"]
    spec, source = RunSpec.parse(planned["spec"]), home.workload("wc", planned["workload"])
    side = pairs.one_side(build.checkout(), spec, source, 3)
    assert side.seconds > 0
    right = engine.run(RunSpec.parse({"app": "wc", "executor": "pooled"}), source, None)
    assert side.digest == f"{right.verified.digest} {right.state_digest}"
    with pytest.raises(RunFailed, match=r"^build .*: streaming-core: .*nothing"):
        pairs.one_side(build.checkout(), spec, tmp_path / "nothing", 3)


class Program:
    """The program for other hosts, with builds that answer, in its own process."""

    def __init__(
        self, folder: Path, seconds: float | None = None, workload: Path | None = None, wrapper: Sequence[str] = ()
    ):
        sides = {side: (built.name, str(built.tree)) for side, built in two(folder, {}, {"seconds": 0.5}).items()}
        spec, source = SPEC.model_dump(mode="json"), str(workload or folder)
        request = Request("a cell", spec, source, "a lot", seconds, list(wrapper), sides)
        command = [sys.executable, "-P", "-m", pairs.__name__, json.dumps(request._asdict())]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "LOCKSTEP_HOST_LOCK": str(folder / "host.lock")}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(command, env=environment, text=True, **pipes)

    def heard(self) -> dict:
        """Its next line of output, without heartbeats."""
        while not (message := json.loads(self.process.stdout.readline())):
            pass
        return message

    def end(self) -> tuple[int, str]:
        """Wait for its end: the exit code and its errors."""
        code = self.process.wait(PATIENCE)
        return code, self.process.communicate()[1]


@pytest.mark.slow
def test_host_program_prints_the_pairs(tmp_path):
    program = Program(tmp_path)
    rows = program.heard()["pairs"]
    assert program.end() == (0, "")
    assert {(row["baseline_seconds"], row["build_seconds"]) for row in rows} == {(0.25, 0.5)}
    assert len(rows) == pairs.PAIRS
    assert all(datetime.fromisoformat(row["measured_at"]).tzinfo for row in rows)


@pytest.mark.slow
def test_host_program_waits_for_its_host_until_the_timeout(tmp_path):
    lock = SharedLock(tmp_path / "host.lock", "the host")
    assert lock.take(signature("cell wc", run="7"))
    program = Program(tmp_path, seconds=0.5)
    assert program.heard()["say"].startswith("waiting: the host is in use by cell wc of run 7 on ")
    assert program.heard() == {"pairs": None}
    assert program.end() == (0, "")
    lock.leave()


def test_host_program_and_engine_end_with_the_connection(tmp_path):
    pid = tmp_path / "pid"
    wrapper = f"import os, signal; open({str(pid)!r}, 'w').write(str(os.getpid())); signal.pause()"
    program = Program(tmp_path, wrapper=[sys.executable, "-c", wrapper])
    engine = int(wait_for(lambda: pid.exists() and pid.read_text(), PATIENCE))
    program.process.stdin.close()
    program.process.stdin = None
    code, errors = program.end()
    assert (code, errors) == (128 + signal.SIGTERM, "pairs: stopped by SIGTERM\n")
    wait_for(lambda: not alive(engine), PATIENCE)


def test_host_program_refuses_a_workload_missing_on_its_host(tmp_path):
    code, errors = Program(tmp_path, workload=tmp_path / "nothing").end()
    line = f"pairs: {tmp_path}/nothing is missing there: mount LOCKSTEP_HOME, or run the cell again\n"
    assert (code, errors) == (2, line)
