"""A live run killed at any step and resumed equals the undisturbed run, and that one equals the oracle."""

import errno
import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streaming_core.data import workload
from streaming_core.data.parts import Parts
from streaming_core.errors import CommandFailed
from streaming_core.oracle import oracle
from streaming_core.run import live
from streaming_core.run.comparison import diff
from streaming_core.run.way import RunSpec
from tests.differential.killed import Command
from tests.differential.live import CUTS, follow
from tests.support.draws import some

# An application, the way of a run that is killed, and the way of the run that goes on.
WAYS = {
    "dataflow": (
        "wc",
        ("executor=pooled", "threads=2", "checkpoint=100"),
        ("executor=morsel", "threads=1", "checkpoint=70"),
    ),
    "transactions": (
        "gs",
        ("executor=transactional", "threads=2", "punctuation=50", "checkpoint=150"),
        ("executor=transactional", "threads=1", "scheme=serial", "checkpoint=0"),
    ),
    "windows": (
        "hashtag",
        ("executor=pinned", "threads=2", "checkpoint=100"),
        ("executor=pinned", "threads=1", "checkpoint=100"),
    ),
}


@pytest.fixture(scope="module")
def command(tmp_path_factory, with_compiled):
    live_command = Command(with_compiled(tmp_path_factory.mktemp("home")))
    yield live_command
    live_command.close()


@pytest.fixture(scope="module", params=some(WAYS))
def undisturbed(request, command, tmp_path_factory):
    """The way, its workload, and the folder of a run that is equal to the oracle's."""
    app, options, others = WAYS[request.param]
    root = tmp_path_factory.mktemp(request.param)
    workload.write(app, {}, CUTS[-1], 1, root / "events")
    live = ("live", app, root / "events")
    assert command(*live, root / "whole", *options) == (0, "")
    oracle.run(root / "whole" / "workload", root / "oracle")
    difference = diff(root / "whole", root / "oracle")
    assert (difference.exit_code, difference.outputs > 0) == (0, True)
    return lambda out, at=None: command(*live, out, *(options if at else others), at=at), root


def content(out: Path) -> dict:
    """The content of a run, without measurements. Its outputs are rows, because parts depend on the way."""
    files = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    for name in ("status.json", "verified.json", "live.html", "live.json"):
        files.pop(name, None)
    files = {name: value for name, value in files.items() if not name.startswith("outputs/")}
    report = json.loads(files.pop("report.json"))
    sample = report["samples"][0]
    counts = {name: sample[name] for name in ("digest", "events", "outputs", "in_order")}
    return files | counts | {"rows": Parts.of(out / "outputs").read()}


def kill(run, root: Path, steps) -> int:
    """Kill a run before each of these steps, resume it, and compare. Returns how many were killed."""
    expected, killed = content(root / "whole"), 0
    for step in steps:
        out = root / "killed"
        code, error = run(out, at=step)
        parts = {path.name: path.read_bytes() for path in out.glob("outputs/part-*.parquet")}
        if code is not None:
            assert (code, error) == (0, "")
        killed += code is None
        assert run(out) == (0, ""), step
        assert content(out) == expected, step
        # A reader took these outputs while the run was at work.
        assert parts.items() <= {path.name: path.read_bytes() for path in out.glob("outputs/*")}.items(), step
        shutil.rmtree(out)
    return killed


@pytest.mark.slow
def test_killed_run_resumes_with_the_same_result(undisturbed):
    assert kill(*undisturbed, [20, 60, 100, 140]) == 4


@pytest.mark.slow
def test_run_killed_at_any_step_resumes_with_the_same_result(undisturbed):
    assert kill(*undisturbed, range(1, 400, 3)) > 50


@pytest.mark.slow
def test_workload_does_not_depend_on_the_micro_batches(undisturbed):
    _, root = undisturbed
    recorded, source = workload.read(root / "whole" / "workload"), workload.read(root / "events")
    assert recorded.manifest["content_digest"] == source.manifest["content_digest"]
    assert len(recorded.parts.paths) == 1


def test_changed_output_is_refused(undisturbed):
    run, root = undisturbed
    out = root / "changed"
    for step in range(100, 300, 20):  # an executor has written outputs after more steps than another
        shutil.rmtree(out, ignore_errors=True)
        code, _ = run(out, at=step)
        assert code is None
        if parts := sorted(out.glob("outputs/part-*.parquet")):
            break
    last = parts[-1]  # behind the last checkpoint
    pq.write_table(pq.read_table(last).slice(1), last)
    code, error = run(out)
    assert (code, error.count("\n")) == (2, 1)
    assert "were changed or removed" in error


@pytest.mark.slow
def test_full_disk_fails_the_command_and_the_next_one_resumes(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    workload.write("wc", {}, CUTS[-1], 1, tmp_path / "events")
    spec = RunSpec.parse({"app": "wc", "params": {}, "executor": "pooled", "threads": 1, "sink": "parquet"})
    with monkeypatch.context() as patch:
        patch.setattr(live, "write_whole", full)
        with pytest.raises(CommandFailed, match="No space left on device"):
            follow(spec, tmp_path / "events", tmp_path / "out")
    report = follow(spec, tmp_path / "events", tmp_path / "out")
    assert report.verified.events == CUTS[-1]
