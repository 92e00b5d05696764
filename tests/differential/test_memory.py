"""Ten times the events take no more memory, in the generator, in the oracle and in every kind of comparison."""

import gc
import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from streaming_core.data import comparison, parts, workload
from streaming_core.data.parts import Parts
from streaming_core.oracle import oracle

SMALL, TIMES = 12_000, 10
SPARE = 16 << 10  # KiB: what varies between two processes; the tables that a stage must not hold take 30 MiB and more
GENERATED = 4  # times the events, because they are small
INTERPRETED = 4  # of so many events, one is interpreted
# Small enough that SMALL events fill every buffer.
BLOCKS = {
    (workload, "CHUNK"): 2_000,
    (oracle, "_BLOCK"): 500,
    (comparison, "_SLICE"): 20_000,
    (parts, "PART_ROWS"): 10_000,
}


def run(stage: str, folder: Path, events: int) -> None:
    """Run a stage on the files of the previous stages in the folder."""
    if stage == "generate":
        for name, size in (("few", events // INTERPRETED), ("events", events), ("many", events * GENERATED)):
            workload.write("wc", {"vocabulary": 1_000}, size, 1, folder / name)
        return
    if stage in oracle.MODES:
        oracle.run(folder / ("few" if stage == "interpreted" else "events"), folder / stage, stage)
        return
    expected = Parts.of(folder / "compiled" / "outputs")
    # Without its first part, a table misses rows, and no row lines up.
    actual = Parts(expected.paths[1:] if stage == "by_range" else expected.paths)
    names = expected.schema.names
    if stage == "in_buckets":
        result = comparison.in_buckets("outputs", expected, actual, names[2:])
    else:
        result = comparison.matched("outputs", expected, actual, names)
    assert result.counts == ({"missing": expected.sizes[0]} if stage == "by_range" else {})


STAGES = ("generate", "interpreted", "compiled", "in_slices", "by_range", "in_buckets")


def peaks(folder: Path, events: int) -> dict[str, int]:
    """The peak of the resident set in KiB, by stage."""
    result = {}
    for stage in STAGES:
        gc.collect()
        pa.default_memory_pool().release_unused()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        run(stage, folder, events)
        result[stage] = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
    return result


def measure(folder: Path) -> list[dict[str, int]]:
    """The peaks with SMALL events and with TIMES as many, after a run for one-time work."""
    for (module, name), value in BLOCKS.items():
        mock.patch.object(module, name, value).start()
    return [peaks(folder / str(number), events) for number, events in enumerate([SMALL, SMALL, SMALL * TIMES])][1:]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The peaks of both sizes, in a process that did nothing else."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(measure, tmp_path_factory.mktemp("memory")).result()


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_ten_times_the_events_need_no_more_memory(measured, stage):
    small, large = measured
    assert large[stage] - small[stage] < SPARE
