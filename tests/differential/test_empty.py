"""A stream without events: flushes without keys emit nothing, in every way of executing."""

import json

import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.oracle import oracle
from streaming_core.run import engine, recording
from streaming_core.run.comparison import diff
from streaming_core.run.replay import replay
from streaming_core.run.way import ENGINE_EXECUTORS, Pinned, RunSpec

# One of each kind; compiling the others takes longer than all that is tested here.
FAST = ("tp", "wc")


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in registry.names()]
)
@pytest.mark.slow
def test_empty_stream_is_processed(name, tmp_path):
    app = registry.load(name)
    assert workload.write(app, {}, 0, 1, tmp_path / "w")["content_digest"] == "0:0000000000000000"
    manifests = [oracle.run(tmp_path / "w", tmp_path / mode, mode) for mode in ("interpreted", "compiled")]
    for what in ("output_digest", "state_digest", "outputs", "state"):
        assert manifests[0][what] == manifests[1][what]
    assert manifests[0]["outputs"]["rows"] == 0
    for executor in (e for e in ENGINE_EXECUTORS.values() if app.kind in e.application_kinds):
        axis, ways = next(iter(executor.axes().items()))
        for number, way in enumerate(ways):
            fields = {axis: way, "threads": 1 + number % 3, "repetitions": 1, "rate": 1000.0, "sink": "parquet"}
            fields["checkpoint"] = "1"
            spec = RunSpec.parse({"app": name, "executor": executor.name(), **fields})
            try:
                spec.check(app)
            except BadInput:  # a strategy for other applications
                continue
            if spec.is_bound:
                continue
            report = engine.run(spec, tmp_path / "w", tmp_path / f"{executor.name()}{number}")
            difference = diff(tmp_path / f"{executor.name()}{number}", tmp_path / "compiled")
            assert difference.exit_code == 0, (spec.cell, difference.text())
            assert [s.events_per_s for s in report.samples] == [0.0] * 3
            assert report.samples[-1].end_to_end is None
            text = (tmp_path / f"{executor.name()}{number}" / "report.json").read_text()
            json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} in a report"))


def test_empty_recording_is_replayed(tmp_path):
    workload.write("wc", {}, 0, 1, tmp_path / "w")
    source = workload.read(tmp_path / "w", "wc")
    recording.record(source, "count", tmp_path / "a", Pinned(app="wc", threads=2))
    recording.record_oracle(source, "count", tmp_path / "b", "compiled")
    difference = diff(tmp_path / "a", tmp_path / "b")
    assert (difference.exit_code, difference.text()) == (0, "equal: 0 input rows of operator count on both sides")
    profile = replay(recording.read(tmp_path / "b"), 1, tmp_path / "c")
    assert (profile.rows_in, profile.rows_out, profile.ns_per_row, profile.selectivity) == (0, 0, None, None)
