"""`lockstep follow`, killed while files appear: each row becomes one event, and no output is lost or changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.checkout import ROOT
from streaming_core.data import workload
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
# The test kills a process when a new file of one of these patterns appears. The patterns stand for three moments: Spark
# has decided what the next micro-batch is; the micro-batch is recorded; its outputs are written.
MOMENTS = [".live/checkpoint/offsets/[0-9]*", ".live/batches/[0-9]*", "outputs/part-*.parquet"] * 2
WAYS = {
    "pooled": ("wc", ["--executor", "pooled", "--threads", "2"], '{{"ts": {0}, "line": "event {0} of many"}}'),
    "checkpoints": (
        "sl",
        ["--threads", "2", "--punctuation", "10", "--checkpoint", "2"],
        None,
    ),
}


def appear(folder: Path, number: int, rows: list[str]) -> None:
    """Let a file appear at once."""
    hidden = folder / f".{number}.jsonl"
    hidden.write_text("\n".join(rows) + "\n")
    os.utime(hidden, (number, number))  # files of the same time are read in the order of their names
    hidden.rename(folder / f"{number}.jsonl")


@pytest.mark.parametrize("way", WAYS)
def test_killed_command_processes_each_row_once(way, tmp_path):
    app, options, line = WAYS[way]
    if line is None:
        workload.write(app, {}, 320, 1, tmp_path / "generated")
        (table,) = workload.read(tmp_path / "generated").blocks(320)
        rows = [json.dumps(row) for row in table.drop_columns(["seq"]).to_pylist()]
    else:
        rows = [line.format(i) for i in range(320)]
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    environment = os.environ | {"LOCKSTEP_HOME": str(tmp_path / "home")}
    follow = [
        sys.executable,
        "-m",
        "infra.cli",
        "follow",
        app,
        "--source",
        source,
        "--out",
        out,
        "--limit",
        "1",
        *options,
    ]
    written: dict[str, bytes] = {}
    for number, moment in enumerate(MOMENTS):
        for half in range(2):
            appear(source, 2 * number + half, rows[:20])
            del rows[:20]
        before = len(list(out.glob(moment)))
        running = subprocess.Popen(follow, env=environment, cwd=ROOT)
        wait_for(lambda: running.poll() is not None or len(list(out.glob(moment))) > before, 120)  # noqa: B023
        assert running.poll() is None
        running.kill()
        running.wait()
        parts = {path.name: path.read_bytes() for path in out.glob("outputs/part-*.parquet")}
        assert written.items() <= parts.items()
        written = parts
    appear(source, 99, rows)
    closing = [*follow, "--until-idle", "0", "--verify", "--json"]
    done = subprocess.run(closing, check=True, env=environment, cwd=ROOT, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert report["comparison"]["verdict"] == "equal"
    assert report["samples"][0]["events"] == 320
    assert written.items() <= {path.name: path.read_bytes() for path in out.glob("outputs/*")}.items()
