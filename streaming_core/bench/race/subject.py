"""One workload and the passes over it: of the compiled loop, and of any way of executing.

Both sides run from decoded rows to encoded outputs and a digest. Both use memory that the process has used before. New
pages can cost more than the work on them, and malloc may or may not return the loop's memory to the system.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming_core import interruption
from streaming_core.apps import registry
from streaming_core.bench.race.handwritten import Handwritten
from streaming_core.bench.race.reconfigurations import columns
from streaming_core.bench.race.requests import Asking, Requests
from streaming_core.bench.race.turns import Pass, Turn, beside
from streaming_core.data import workload
from streaming_core.data.agreement import outputs_digest, states_digest
from streaming_core.data.digest import add, format_digest
from streaming_core.kernels.program import Program, compile_app
from streaming_core.language.application import App
from streaming_core.regression.home import Home
from streaming_core.run import external, one_pass, planning
from streaming_core.run.blocks import BLOCK, Blocks, block_size
from streaming_core.run.energy import Meter, Spent
from streaming_core.run.one_pass import PassRequest, Rates
from streaming_core.run.way import External, RunSpec
from streaming_core.run.yardstick import keep_memory

SEED = 1
KEEP = 1 << 30  # blocks: all of them


@contextmanager
def prepared(app: App, program: Program, events: int, block: int) -> Iterator[tuple[workload.Workload, Blocks]]:
    """The events of a compiled application, and blocks of them that are decoded already, so that no pass decodes.

    The events lie in a folder that goes with the block. The decoded ones stay.
    """
    root = Home().root
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=root) as folder:
        workload.write(app, program.params, events, SEED, Path(folder) / "workload")
        source = workload.read(Path(folder) / "workload", app)
        blocks = Blocks(source, program, block, keep=KEEP)
        for _ in blocks:
            pass
        yield source, blocks


class Subject:
    """One workload, generated and decoded, with its compiled program, for any number of passes.

    Attributes:
        events: The events of the workload.
        handwritten: The numbers of threads of the hand-written loop.
        preparation: The seconds that it took to generate and decode them.
    """

    def __init__(
        self,
        app: str,
        params: dict[str, Any],
        events: int,
        meter: Meter | None = None,
        handwritten: Sequence[int] = (),
    ):
        """Generate and decode the events, and compile the application.

        Args:
            app: The application.
            params: Its parameters.
            events: The number of events.
            meter: The source of energy figures; None: this machine's counters.
            handwritten: The numbers of threads of the application's hand-written loop that take part.
        """
        from streaming_core.oracle.loop import Loop

        keep_memory()
        self.app, self.params, self.events = registry.load(app), params, events
        bound = self.app.bind(params)
        self.loop, self.program = Loop(self.app, bound), compile_app(self.app, bound)
        began = time.monotonic()
        home = Home().root
        home.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="bench-", dir=home))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._folder = folder
        workload.write(self.app, bound, events, SEED, folder / "workload")
        self.source = workload.read(folder / "workload", self.app)
        self._decoded = [self.loop.decode(table) for table in self.source.blocks(BLOCK)]
        self.preparation = time.monotonic() - began
        self._blocks: dict[int, Blocks] = {}  # by their size in events
        self._expected: dict[str, tuple[str, str]] = {}  # digests of outputs and final state, by order
        self._planned: dict[str, RunSpec] = {}  # specs with the plan that was found, by the spec's digest
        self._meter = meter or Meter()
        self.handwritten = tuple(handwritten)
        self._handwritten = None
        if handwritten:
            blocks = Blocks(self.source, self.program, BLOCK)
            self._handwritten = Handwritten(self.app, self.program, blocks, folder, handwritten, params)
            weakref.finalize(self, self._handwritten.close)

    @property
    def bytes_per_event(self) -> float:
        """Bytes of memory that a decoded event takes, in all forms in which ways read it."""
        forms = [self._decoded, *(list(blocks) for blocks in self._blocks.values())]
        return sum(part.nbytes for form in forms for block in form for part in block) / max(1, self.events)

    def slowest(self, ways: Sequence[RunSpec]) -> float:
        """Return the seconds of the slowest way, or of the loop, in a run after one that warms up."""
        took = []
        for _ in range(2):
            took = [self.turn(1).seconds]
            took += [self.one_pass(way, 1, 0.0, None, took[0], False, False).seconds for way in ways]
        return max(took)

    def plan(self, spec: RunSpec) -> RunSpec:
        """Return a spec with the plan that the planner finds for it; one that needs none, as it is.

        Raises:
            BadInput: No plan was found.
        """
        if not spec.needs_plan:
            return spec
        if spec.spec_digest not in self._planned:
            best, _ = planning.planned(spec, self.source)
            self._planned[spec.spec_digest] = spec.model_copy(update={"plan": best.plan, "pin": True})
        return self._planned[spec.spec_digest]

    @property
    def outputs_per_event(self) -> float:
        """The number of outputs divided by that of events, which is not 0."""
        return int(self._expected["total"][0].partition(":")[0]) / self.events

    def turn(self, times: int) -> Turn:
        """Run the loop some times, and keep the expected results."""
        took, costs = [], []
        for _ in range(times):
            self.loop.reset()
            spent = Spent(self._meter)
            self.loop.running = spent.counting
            for rows, text in self._decoded:
                interruption.check()
                self.loop.run(rows, text, keep=False)
            self.loop.finish(self.events)
            took.append(self.loop.seconds)
            costs.append(spent)
        if "total" not in self._expected:
            self._expect()
        return Turn(self.events, took, costs)

    def handwritten_turn(self, threads: int, times: int) -> tuple[Turn, bool]:
        """Run the hand-written loop some times. Returns its turn, and whether all digests equal the loop's."""
        assert self._handwritten is not None
        runs = [self._handwritten.run(threads) for _ in range(times)]
        wanted, _ = self._expected["total"]
        return Turn(self.events, [seconds for seconds, _ in runs], []), all(digest == wanted for _, digest in runs)

    def _expect(self) -> None:
        state = self.loop.state()
        self._expected["total"] = format_digest(*self.loop.digest), states_digest(self.app, "total", state)
        if self.app.unordered is not None:
            parts = [
                outputs_digest(self.app, "none", table) for table in [self.outputs(), self.loop.finish(self.events)]
            ]
            self._expected["none"] = format_digest(*add(*parts)), states_digest(self.app, "none", state)

    def one_pass(
        self,
        spec: RunSpec,
        times: int,
        rate: float | Rates,
        requests: Requests | None,
        loop_seconds: float,
        deliveries: bool,
        middle: bool,
    ) -> Pass:
        """Make a pass of `times` runs. Checks the outputs of every run, and the final state of the last one."""
        if isinstance(spec, External):
            return self._external_pass(spec, times)
        result = Pass()
        order = spec.order
        assert order is not None  # every RunSpec has an order
        outputs, final = self._expected[order]
        if spec.sink == "count":
            outputs = outputs.partition(":")[0]
        size = block_size(spec)
        for number in range(times):
            asking = Asking(requests, loop_seconds) if requests is not None else None
            is_last = number + 1 == times
            sample, state, more = one_pass.run(
                spec,
                self.program,
                self._blocks_of(size),
                PassRequest(
                    sink=spec.sink,
                    rate=rate,
                    exports_state=is_last,
                    meter=self._meter,
                    beside=beside(result, asking),
                    records_deliveries=deliveries,
                    trims_latencies=middle,
                ),
            )
            digest = sample.digest.partition(":")[0] if spec.sink == "count" else sample.digest
            result.is_right &= digest == outputs and (sample.in_order or order == "none")
            if is_last:
                result.is_right &= states_digest(self.app, order, state) == final
            result.samples.append(sample)
            if deliveries:
                result.deliveries.append(columns(more["deliveries"] or ()))
        return result

    def _external_pass(self, spec: External, times: int) -> Pass:
        """Call another engine once for `times` measured runs, after the one that warms it up. Check all outputs.

        Raises:
            BadInput: The engine is not installed.
            RunFailed: The engine failed.
        """
        assert spec.order is not None  # the manifest has one
        expected, _ = self._expected[spec.order]
        # Without seconds, the engine makes `times` runs, and no loop beside them.
        exact = spec.model_copy(update={"sink": "parquet", "repetitions": times, "seconds": 0.0})
        with tempfile.TemporaryDirectory(dir=self._folder) as out:
            samples = external.run(exact, self._folder / "workload", Path(out)).samples
        return Pass(samples=samples[1:], is_right=all(sample.digest == expected for sample in samples))

    def outputs(self) -> pa.Table:
        """Return the outputs of the loop, from one run without timing."""
        self.loop.reset()
        tables = [self.loop.process(table) for table in self.source.blocks(BLOCK)]
        return pa.concat_tables([self.loop.output_schema.empty_table(), *tables])

    def _blocks_of(self, size: int) -> Blocks:
        if size not in self._blocks:
            self._blocks[size] = Blocks(self.source, self.program, size, keep=KEEP)
        return self._blocks[size]
