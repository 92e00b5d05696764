"""The compiled sequential loop beside a run: the yardstick of the same minute.

Machines are shared, and their speed drifts by factors. So the seconds of two nights hardly compare two builds. The time
of a pass relative to the loop's, measured right before and after it, compares them: a slow machine slows both.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_core import interruption
from streaming_core.data import workload
from streaming_core.errors import BadInput, CommandFailed, RunFailed
from streaming_core.kernels.program import Program
from streaming_core.run.blocks import BLOCK, Blocks
from streaming_core.run.disturbance import Disturbance
from streaming_core.run.processor import processor
from streaming_core.run.report import Sample
from streaming_core.storage import digest_of

if TYPE_CHECKING:
    from streaming_core.oracle.loop import Loop

METHOD = 1  # raised when passes are measured in another way, so that their ratios are no longer comparable
SHORTEST = 1e-3  # seconds; a shorter pass is mostly start and end, so its time is no measure of speed
PATIENCE = 3  # a repetition ends after so many times its seconds: passes also do work that is not measured


class Yardstick:
    """The loop of a workload's application, over that workload.

    Attributes:
        name: Digest of the loop's code, the processor and the way of measuring. Ratios to loops of the same name are
            comparable.
    """

    def __init__(self, loop: Loop, blocks: Iterable[tuple[np.ndarray, np.ndarray]], end: int):
        """Prepare the loop.

        Args:
            loop: The compiled loop.
            blocks: The workload, as the loop decodes it.
            end: The sequence number behind the last event.
        """
        self._loop, self._blocks, self._end = loop, blocks, end
        self.name = digest_of([METHOD, loop.code, processor()])

    def one_pass(self) -> float:
        """Make one pass from fresh state; return its seconds without decoding.

        Raises:
            RunFailed: An operator raised.
        """
        self._loop.reset()
        for rows, text in self._blocks:
            interruption.check()
            self._loop.run(rows, text, keep=False)
        self._loop.finish(self._end)
        return self._loop.seconds


class Turns:
    """The passes of a run's repetitions, in turns with the compiled loop.

    Attributes:
        yardstick: Name of the loop; None until a loop ran.
        host: Facts for `host` of the report: the disturbances (disturbance.py), or the reason for having no loop.
    """

    def __init__(self, seconds: float, make: Callable[[], Yardstick]):
        """Prepare for repetitions.

        Args:
            seconds: The least seconds of a repetition. 0: a repetition is one pass, without the loop.
            make: Makes the loop.
        """
        self.yardstick: str | None = None
        self.host: dict[str, Any] = {}
        self._seconds, self._make = seconds, make
        self._loop: Yardstick | None = None
        self._disturbance: Disturbance | None = None

    def repetition(self, make_pass: Callable[[], Sample], first: Sample) -> Sample:
        """Make a repetition; return the sample of its pass of median time.

        If the result of a pass differs from that of the first pass of the run, return its sample instead.

        Args:
            make_pass: Makes a pass.
            first: The sample of the first pass of the run.
        """
        samples, loop_seconds = [], []
        if self._disturbance is None:
            samples += self._begin(make_pass, first)
        warm, began = len(samples), time.monotonic()
        while True:
            if self._loop is not None:
                loop_seconds.append(self._loop.one_pass())
            samples.append(make_pass())
            measured = sum(loop_seconds) + sum(sample.seconds for sample in samples[warm:])
            late = time.monotonic() - began >= PATIENCE * self._seconds
            if self._loop is None or measured >= self._seconds or late:
                break
        assert self._disturbance is not None
        self.host |= self._disturbance.seen()
        wrong = [s for s in samples if (s.digest, s.in_order) != (first.digest, first.in_order)]
        passes = sorted(samples[warm:], key=lambda sample: sample.seconds)
        typical = wrong[0] if wrong else passes[len(passes) // 2]
        median = statistics.median(loop_seconds) if loop_seconds else None
        return typical.model_copy(update={"passes": len(passes), "loop_seconds": median})

    def _begin(self, make_pass: Callable[[], Sample], first: Sample) -> list[Sample]:
        """Make the loop, and warm both sides up with one pass; return the sample of that pass."""
        warm = []
        if self._seconds and first.seconds < SHORTEST:
            self.host["yardstick"] = f"the loop was not measured: a pass takes less than {SHORTEST * 1e3:g} ms"
        elif self._seconds:
            try:
                self._loop = self._make()
                self._loop.one_pass()
            except (BadInput, CommandFailed, RunFailed) as error:  # the comparison, not the loop, finds wrong runs
                self._loop, self.host["yardstick"] = None, f"the loop was not measured: {error}"
            else:
                self.yardstick = self._loop.name
                warm = [make_pass()]
        self._disturbance = Disturbance()
        return warm


def yardstick_of(program: Program, opened: workload.Workload) -> Yardstick:
    """Compile the loop of a workload's application."""
    from streaming_core.oracle.loop import Loop  # loads the compiler, which cached kernels do not need

    loop = Loop(program.app, opened.manifest["params"])
    return Yardstick(loop, Blocks(opened, program, BLOCK, decode=loop.decode), opened.end)


def keep_memory() -> None:
    """Make malloc (glibc) keep its pages. Getting new pages from the system takes longer than filling them."""
    trim_threshold, mmap_max = -1, -4  # malloc.h
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_max, 0)
