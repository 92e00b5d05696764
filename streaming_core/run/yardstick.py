"""The compiled sequential loop beside a run: the yardstick of the very minute.

Machines are shared and their speed drifts, by factors: seconds of two nights say little of two builds. What a pass took
over what the loop took right before and after it says more, because what slows the one slows the other.
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
SHORTEST = 1e-3  # seconds of a pass below which it is mostly its beginning and its end: no figure, however often made
PATIENCE = 3  # a repetition ends, too short, after so many times its seconds: passes also take what is not measured


class Yardstick:
    """The loop of a workload's application, over that workload.

    Attributes:
        name: digest of the loop's code, the processor and the way of measuring; ratios to the same are comparable.
    """

    def __init__(self, loop: Loop, blocks: Iterable[tuple[np.ndarray, np.ndarray]], end: int):
        """blocks: the workload as the loop decodes it; end: the number of the event behind its last."""
        self._loop, self._blocks, self._end = loop, blocks, end
        self.name = digest_of([METHOD, loop.code, processor()])

    def one_pass(self) -> float:
        """Seconds of one pass from fresh state; decoding excluded.

        Raises:
            RunFailed: an operator raised.
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
        yardstick: name of the loop; None while none was beside them.
        host: what the report says of it in `host`: what disturbed them (disturbance.py), or why there was no loop.
    """

    def __init__(self, seconds: float, make: Callable[[], Yardstick]):
        """seconds: that a repetition takes at least; 0: it is one pass, and `make` is not asked for the loop."""
        self.yardstick: str | None = None
        self.host: dict[str, Any] = {}
        self._seconds, self._make = seconds, make
        self._loop: Yardstick | None = None
        self._disturbance: Disturbance | None = None

    def repetition(self, one: Callable[[], Sample], first: Sample) -> Sample:
        """A repetition, by the pass of median time; by one whose result is not that of the first pass of the run, if
        there is such. `one`: makes a pass."""
        made, yard = [], []
        if self._disturbance is None:
            made += self._begin(one, first)
        warm, began = len(made), time.monotonic()
        while True:
            if self._loop is not None:
                yard.append(self._loop.one_pass())
            made.append(one())
            measured = sum(yard) + sum(sample.seconds for sample in made[warm:])
            late = time.monotonic() - began >= PATIENCE * self._seconds
            if self._loop is None or measured >= self._seconds or late:
                break
        assert self._disturbance is not None
        self.host |= self._disturbance.seen()
        wrong = [s for s in made if (s.digest, s.in_order) != (first.digest, first.in_order)]
        passes = sorted(made[warm:], key=lambda sample: sample.seconds)
        typical = wrong[0] if wrong else passes[len(passes) // 2]
        told = {"passes": len(passes), "loop_seconds": statistics.median(yard) if yard else None}
        return typical.model_copy(update=told)

    def _begin(self, one: Callable[[], Sample], first: Sample) -> list[Sample]:
        """Makes the loop ready, and has both sides run once for nothing; returns that pass."""
        warm = []
        if self._seconds and first.seconds < SHORTEST:
            self.host["yardstick"] = f"the loop was not measured: a pass takes less than {SHORTEST * 1e3:g} ms"
        elif self._seconds:
            try:
                self._loop = self._make()
                self._loop.one_pass()
            except (BadInput, CommandFailed, RunFailed) as error:  # whether the run is right is not for the loop to say
                self._loop, self.host["yardstick"] = None, f"the loop was not measured: {error}"
            else:
                self.yardstick = self._loop.name
                warm = [one()]
        self._disturbance = Disturbance()
        return warm


def yardstick_of(program: Program, opened: workload.Workload) -> Yardstick:
    """Compile the loop of a workload's application."""
    from streaming_core.oracle.loop import Loop  # loads the compiler, which cached kernels do not need

    loop = Loop(program.app, opened.manifest["params"])
    return Yardstick(loop, Blocks(opened, program, BLOCK, decode=loop.decode), opened.end)


def keep_memory() -> None:
    """Makes malloc (glibc) keep its pages: to get new ones from the system takes longer than to fill them."""
    trim_threshold, mmap_max = -1, -4  # malloc.h
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_max, 0)
