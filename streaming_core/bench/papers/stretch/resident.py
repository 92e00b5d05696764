"""Resident memory over many rows and many reconfigurations of a windowed operator.

One pass takes all rows at the peak rate. Another one takes them at a lower rate, with a request for a reconfiguration
as soon as the last is settled. After each block, the process notes its resident memory. It has decoded all blocks
before, so a pass takes memory for the engine alone. What the second pass grows more
than the first is due to the reconfigurations.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import psutil

from streaming_core.apps import registry
from streaming_core.bench.claims import GOAL, Claim
from streaming_core.bench.papers.stretch.vsn import SHARED
from streaming_core.bench.race.ratios import Row
from streaming_core.bench.race.requests import repeatedly
from streaming_core.bench.race.subject import prepared
from streaming_core.bench.suite import Experiment, Plot
from streaming_core.data.digest import format_digest
from streaming_core.kernels.program import compile_app
from streaming_core.run import one_pass
from streaming_core.run.blocks import BLOCK, Blocks
from streaming_core.run.one_pass import Beside, PassRequest
from streaming_core.run.report import Sample
from streaming_core.run.way import Pinned

EVENTS = 10_000_000
REQUESTS = 10_000
PARAMS = {"keys": 2, "size": 101}  # a window has ten rows, so that a row is quick
THREADS = 2
PAUSE = 0.0005  # seconds between two looks whether a reconfiguration is settled
RATE = 0.1  # of the peak rate, with reconfigurations
FIRST = 0.2  # part of a pass in which memory is not looked at: it fills


class Watch:
    """The resident memory of a pass, after each block.

    Attributes:
        events: The events so far.
        bytes: The resident memory.
        seconds: The time since the watch began.
    """

    def __init__(self) -> None:
        """Begin."""
        self._process, self._began = psutil.Process(), time.monotonic()
        self.events: list[int] = []
        self.bytes: list[int] = []
        self.seconds: list[float] = []

    def note(self, kind: str, done: int, events: int) -> None:
        """Note the memory. This is an `Progress`."""
        self.events.append(done)
        self.bytes.append(self._process.memory_info().rss)
        self.seconds.append(time.monotonic() - self._began)

    @property
    def slope(self) -> float:
        """Bytes per event: the line of least squares, without the first part of the pass."""
        first = next((at for at, done in enumerate(self.events) if done >= FIRST * self.events[-1]), 0)
        events, resident = self.events[first:], self.bytes[first:]
        return float(np.polyfit(events, resident, 1)[0]) if len(events) > 1 else 0.0


def _requesting(runtime: Any) -> AbstractContextManager[None]:
    """A thread that requests reconfigurations, REQUESTS times: to one replica, and back to all."""
    control, shares = runtime.control("from_left"), itertools.cycle([[0], list(range(THREADS))])
    left = iter(range(REQUESTS))

    def ask() -> bool:
        if not control.is_settled():
            return True
        if next(left, None) is None:
            return False
        control.request(next(shares))
        return True

    return repeatedly(ask, PAUSE)


def _measure() -> Iterator[Row]:
    from streaming_core.oracle.loop import Loop

    app = registry.load("scalejoin")
    bound = app.bind(PARAMS)
    program = compile_app(app, bound)
    with prepared(app, program, EVENTS, min(BLOCK, max(1, EVENTS // 8))) as (source, blocks):
        loop = Loop(app, bound)
        for table in source.blocks(BLOCK):
            loop.run(*loop.decode(table), keep=False)
        loop.finish(EVENTS)
        expected = format_digest(*loop.digest)
        for parallelism in SHARED:
            fields = {"app": "scalejoin", "params": PARAMS, "threads": THREADS, "parallelism": parallelism}
            spec = Pinned.model_validate(fields)
            plain = _pass(spec, program, blocks, expected)
            yield from _rows(spec, *plain)
            rate = RATE * plain[0].events_per_s
            changing = _pass(spec, program, blocks, expected, rate, _requesting)
            changes = sum(one.microseconds is not None for one in changing[0].reconfigurations)
            changes += changing[0].omitted_reconfigurations
            more = (changing[1].slope - plain[1].slope) * EVENTS / changes if changes else None
            columns: Row = {"reconfigurations": changes, "bytes_per_reconfiguration": more}
            yield from _rows(spec, *changing, **columns)


def _pass(
    spec: Pinned,
    program: Any,
    blocks: Blocks,
    expected: str,
    rate: float = 0.0,
    beside: Beside | None = None,
) -> tuple[Sample, Watch, bool]:
    """Make a pass. Returns its sample, its memory, and whether the outputs are those of the loop."""
    watch = Watch()
    sample, _, _ = one_pass.run(
        spec, program, blocks, PassRequest(rate=rate, progress=watch.note, exports_state=False, beside=beside)
    )
    return sample, watch, sample.digest == expected and sample.in_order


def _rows(spec: Pinned, sample: Sample, watch: Watch, is_right: bool, **columns: Any) -> Iterator[Row]:
    """Yield the row of a pass, and a row for each note of its memory."""
    changes = "with reconfigurations" if columns else "without"
    whole: Row = {
        "app": spec.app,
        "params": spec.params,
        "way": spec.strategy,
        "parallelism": spec.parallelism,
        "name": f"{spec.parallelism}, {changes}",
        "threads": spec.threads,
        "result": "equal" if is_right else "different",
        "events": sample.events,
        "events_per_s": sample.events_per_s,
        "rates": [sample.events_per_s],
        "to_loop": None,
        "cpu_ns": sample.cpu_ns,
        "bytes_per_row": watch.slope,
        **columns,
    }
    yield whole
    for seconds, resident in zip(watch.seconds, watch.bytes, strict=True):
        yield whole | {"at_s": seconds, "resident_mb": resident / 1e6}


MEMORY = Claim(
    "Memory does not grow with the rows or with the reconfigurations.",
    GOAL,
    ours={"app": "scalejoin"},
    column="bytes_per_row",
    by=("name",),
    expects="<=",
    paper=1.0,
)
EXPERIMENT = Experiment(
    "memory",
    "none: a goal of this project",
    "Resident memory over many rows and reconfigurations",
    (MEMORY,),
    lambda counts: (
        [],
        [
            "A run reports its first 20,000 reconfigurations, so each of these keeps some bytes until the run ends.",
            f"The rows of both passes are the same. Slopes leave out the first {FIRST * 100:g} % of a pass.",
            f"Requests are made by a thread beside the engine, up to {REQUESTS:,}, at {RATE:g} times the peak rate.",
        ],
    ),
    (Plot("at_s", "resident_mb", "resident memory in MB", by="", lines=("name",), loop=False),),
    model=_measure,
)
