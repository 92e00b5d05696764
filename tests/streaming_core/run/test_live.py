"""A live run is verified while it goes on, drops what nothing needs, and says how far it is."""

import json
import os
import random
import shutil
import time
from pathlib import Path

import pyarrow.compute as pc
import pytest

from streaming_core.data import microbatch, workload
from streaming_core.data.parts import Parts, write_whole
from streaming_core.errors import BadInput, RunFailed
from streaming_core.oracle import oracle
from streaming_core.run import live, live_folder, verification
from streaming_core.run.comparison import diff
from streaming_core.run.live_folder import BATCHES, LIVE
from streaming_core.run.way import RunSpec
from tests.differential.live import CUTS, follow


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(scope="module")
def events(with_compiled, tmp_path_factory) -> Path:
    root = with_compiled(tmp_path_factory.mktemp("home")) / "events"
    workload.write("wc", {}, CUTS[-1], 1, root)
    return root


def spec(**options: object) -> RunSpec:
    defaults = {"app": "wc", "params": {}, "executor": "pooled", "threads": 1, "sink": "parquet", "checkpoint": "100"}
    return RunSpec.parse(defaults | options)


def killed_at(number: int, monkeypatch):
    """Let the run end when it is about to write this part of the outputs."""

    def write(path: Path, *arguments: object) -> None:
        if path.name == f"part-{number:05d}.parquet":
            raise Killed
        write_whole(path, *arguments)

    monkeypatch.setattr(live, "write_whole", write)


def kill(events: Path, out: Path, number: int, **options: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        killed_at(number, patch)
        with pytest.raises(Killed):
            follow(spec(), events, out, is_verified=False, **options)


def test_run_is_verified_to_its_end(events, tmp_path):
    report = follow(spec(), events, tmp_path / "out")
    verified = json.loads((tmp_path / "out" / "verified.json").read_text())
    assert verified["is_complete"]
    assert (verified["events"], verified["outputs"]) == (CUTS[-1], report.verified.outputs)
    status = live_folder.read_status(tmp_path / "out")
    assert (status.state, status.events, status.verified, status.lag) == ("complete", CUTS[-1], CUTS[-1], 0)


def test_wrong_output_ends_the_run_and_is_found_again(events, tmp_path, monkeypatch):
    def wrong(path, schema, tables):
        def changed(table):
            if path.name != "part-00003.parquet":
                return table
            return table.set_column(table.schema.get_field_index("n"), "n", pc.add(table["n"], 1)).cast(schema)

        write_whole(path, schema, map(changed, tables))

    with monkeypatch.context() as patch:
        patch.setattr(live, "write_whole", wrong)
        with pytest.raises(RunFailed, match=r"differs from the oracle: outputs: seq \d+, sub 0: n: expected"):
            follow(spec(), events, tmp_path / "out")
    status = live_folder.read_status(tmp_path / "out")
    assert status.state == "failed"
    assert status.reason.startswith("the run differs from the oracle: outputs: ")
    with pytest.raises(RunFailed, match="differs from the oracle"):
        follow(spec(executor="morsel"), events, tmp_path / "out")


def test_oracle_goes_on_from_its_snapshot(events, tmp_path, monkeypatch):
    monkeypatch.setattr(verification, "SNAPSHOT_SECONDS", 0.0)
    out = tmp_path / "out"
    kill(events, out, 6)
    verification._Oracle(out).follow(150)
    for path in (out / LIVE / BATCHES / "00000").rglob("*.parquet"):
        path.write_bytes(b"")
    verification._Oracle(out).follow(400)
    verified = json.loads((out / "verified.json").read_text())
    assert (verified["events"], verified["needs"], verified["is_complete"]) == (400, 150, False)
    assert live_folder.drop(out, 400, time.time() + 1) == 400
    verification._Oracle(out).follow(433)
    shutil.rmtree(out / LIVE / "oracle")
    with pytest.raises(BadInput, match="the events before 400 were dropped and cannot be verified: add --no-verify"):
        verification._Oracle(out).follow(433)


def test_resumed_run_repeats_only_what_is_behind_the_checkpoint(events, tmp_path):
    out, lines = tmp_path / "out", []
    kill(events, out, 6)
    status = live_folder.read_status(out)
    assert (status.state, status.resumed) == ("failed", None)
    # A resumed run does not even look at the micro-batches before its checkpoint.
    for path in (out / LIVE / BATCHES / "00000").rglob("*.parquet"):
        path.write_bytes(b"")
    with pytest.raises(BadInput, match="00000/events/part-00000"):  # at its end, it copies all of them
        follow(spec(executor="morsel"), events, out, is_verified=False, say=lines.append)
    status = live_folder.read_status(out)
    assert status.resumed is not None
    assert 0 < status.resumed <= status.resumed + status.repeated <= CUTS[-1]
    assert (status.events, status.micro_batches) == (CUTS[-1], len(CUTS) - 1)


@pytest.mark.slow  # test_store.py has a quick one
def test_damaged_checkpoint_gives_way_to_the_one_before(events, tmp_path):
    out, lines = tmp_path / "out", []
    kill(events, out, 6)
    newest, older, *_ = sorted((out / LIVE / "checkpoints").glob("checkpoint-*"), reverse=True)
    newest.write_bytes(newest.read_bytes()[:-1])
    follow(spec(), events, out, is_verified=False, say=lines.append)
    assert [line for line in lines if "damaged" in line] == [lines[0]]
    assert lines[0].endswith(f"using {older.name}")
    oracle.run(out / "workload", tmp_path / "oracle")
    assert diff(out, tmp_path / "oracle").exit_code == 0


def test_old_events_and_outputs_are_dropped(events, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "DROP_SECONDS", 0.0)
    whole, out = tmp_path / "whole", tmp_path / "out"
    follow(spec(), events, whole, is_verified=False)
    follow(spec(), events, out, is_verified=False, keep=0.0)
    first = json.loads((out / "report.json").read_text())["workload"]["start"]
    assert 0 < first < CUTS[-1]
    left, all_outputs = Parts.of(out / "outputs").read(), Parts.of(whole / "outputs").read()
    assert left.num_rows < all_outputs.num_rows
    assert left == all_outputs.slice(all_outputs.num_rows - left.num_rows)
    assert left["seq"][0].as_py() <= first
    recorded = Parts.of(out / "workload" / "events").read()
    assert recorded["seq"].to_pylist() == list(range(first, CUTS[-1]))
    with pytest.raises(BadInput, match=f"begins at event {first}: `lockstep follow --keep` dropped"):
        oracle.run(out / "workload", tmp_path / "oracle")
    oracle.run(whole / "workload", tmp_path / "oracle")
    assert diff(out, tmp_path / "oracle").text().startswith("not comparable: the live run dropped its events before")


@pytest.mark.slow
def test_young_or_needed_events_stay(events, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "DROP_SECONDS", 0.0)
    follow(spec(), events, tmp_path / "young", is_verified=False, keep=3600.0)
    follow(spec(checkpoint="0"), events, tmp_path / "needed", is_verified=False, keep=0.0)
    for out in ("young", "needed"):
        assert workload.read(tmp_path / out / "workload").rows == CUTS[-1]


def test_folder_of_a_run_with_another_source_is_refused(events, tmp_path):
    kill(events, tmp_path / "out", 3)
    (tmp_path / "other").symlink_to(events)
    with pytest.raises(BadInput, match=r"holds a live run with another source \(.*\); choose a new folder"):
        follow(spec(), tmp_path / "other", tmp_path / "out")


def test_status_of_other_folders_is_refused(tmp_path):
    with pytest.raises(BadInput, match="holds no live run"):
        live_folder.read_status(tmp_path)
    (tmp_path / "live.json").write_text("{}")
    with pytest.raises(BadInput, match=r"cannot read live\.json"):
        live_folder.read_status(tmp_path)


def test_drop_takes_the_oldest_micro_batches_below_the_limit(tmp_path):
    draws = random.Random(7)
    for case in range(60):
        out = tmp_path / str(case)
        root = out / LIVE / BATCHES
        root.mkdir(parents=True)
        (out / "outputs").mkdir()
        sizes = [draws.choice((0, 1, 5)) for _ in range(draws.randrange(1, 8))]
        starts = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
        first = draws.randrange(4)
        for number, size in enumerate(sizes):
            before = microbatch.Position(first + number, (starts[number], 0))
            microbatch.write(root, before, {}, lambda at, size=size: ([part(size)] if size else [], None, {}))
            os.utime(microbatch.folder_of(root, first + number), (number, number))
        limit, age = draws.randrange(-1, starts[-1] + 2), draws.randrange(-1, len(sizes) + 1)
        expected = 0
        while expected < len(sizes) - 1 and starts[expected + 1] <= limit and expected < age:
            expected += 1
        dropped = live_folder.drop(out, limit, age)
        assert microbatch.numbers(root) == range(first + expected, first + len(sizes))
        assert dropped == (starts[expected] if expected else None)
        for event in range(starts[-1] + 1):
            ends = starts[expected + 1 :]
            behind = next((n for n, end in enumerate(ends) if end > event), len(ends))
            assert microbatch.behind(root, event) == first + expected + behind


def part(rows: int) -> dict:
    return {"file": "events/part-00000.parquet", "rows": rows, "digest": "0"}
