"""The notebook draws a point for each run of a cell, where the raw results of the home say."""

import re
import statistics
import subprocess
import sys

import pytest

from infra.checkout import ROOT
from streaming_core.regression import warehouse
from streaming_core.regression.home import Home
from tests.reports import past_runs

NOTEBOOK = ROOT / "docs" / "notebooks" / "trend.py"
POINT = re.compile(r'aria-label="([^"]*)"[^>]*aria-roledescription="point" transform="translate\(([^,]+),([^)]+)\)"')


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    home = Home(tmp_path_factory.mktemp("home"))
    past_runs.make(home, nights=4)
    return home


def run(*options: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, str(NOTEBOOK), *options], capture_output=True, text=True, timeout=120)


def test_picture_has_a_point_for_each_run_at_its_speed(home, tmp_path):
    run_ids = past_runs.RUN_IDS[:4]
    rows = {run_id: warehouse.rows(home, "cells", run_id) for run_id in run_ids}
    cell, verdict = next((row["cell"], row["verdict"]) for row in rows[run_ids[-1]] if row["verdict"] == "different")
    done = run("--home", str(home.root), "--cell", cell, "--out", str(tmp_path / "trend.svg"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path}/trend.svg: {cell} in 4 runs\n"
    points = [
        (dict(part.split(": ", 1) for part in label.split("; ")), float(x), float(y))
        for label, x, y in POINT.findall((tmp_path / "trend.svg").read_text())
    ]
    assert [label["run_id"] for label, _, _ in points] == run_ids
    assert [x for _, x, _ in points] == sorted(x for _, x, _ in points)
    assert [label["verdict"] for label, _, _ in points] == ["equal"] * 3 + [verdict]
    for label, _, _ in points:
        samples = warehouse.rows(home, "samples", label["run_id"])
        rates = [sample["events_per_s"] for sample in samples if sample["cell"] == cell and sample["kind"] == "peak"]
        assert float(label["median"]) == pytest.approx(statistics.median(rates))
        assert float(label["slowest"]) == pytest.approx(min(rates))
    faster_first = sorted(points, key=lambda point: float(point[0]["median"]), reverse=True)
    assert [y for _, _, y in faster_first] == sorted(y for _, _, y in points), "a faster run is higher"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--home", "nosuch"], "nosuch holds no results: run `lockstep run`"),
        (["--cell", "nosuch"], "no run measured the cell 'nosuch'"),
    ],
)
def test_bad_input_gets_one_line_and_writes_nothing(home, tmp_path, options, sentence):
    out = tmp_path / "trend.svg"
    done = run("--home", str(home.root), "--out", str(out), *options)
    assert (done.returncode, sentence in done.stderr) == (2, True)
    assert not out.exists()
