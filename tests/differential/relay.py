"""The relay: many engines run a program in turns. Each stops at a checkpoint, and the next one runs in another way.

A leg restores a checkpoint, processes some blocks, makes the next checkpoint, and maybe goes on a little. Then its
engine ends, as if it were killed. The last leg must end with the oracle's outputs, states and counts.

Kind and number determine a program, its events, its ways and its legs. To run one again:

    python -m tests.differential.relay KIND NUMBER [RACE | START..STOP]

KIND is one of PROGRAMS, or `app` with a name.

`test_relay.py` starts this module and reads what it prints, a JSON object a line.
"""

import functools
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from streaming_core.apps import registry
from streaming_core.data import rows as row_format
from streaming_core.data import workload
from streaming_core.data.agreement import outputs_digest
from streaming_core.data.digest import format_digest
from streaming_core.kernels.program import Program, compile_app
from streaming_core.language.application import App
from streaming_core.run import one_pass
from streaming_core.run.energy import Spent
from streaming_core.run.failure import runtime_failures
from streaming_core.run.one_pass import PassEngine, PassRequest, PassResult, final_state, load_tables, sample_of
from streaming_core.search.trial import reports_earliest
from tests.differential import campaign, test_sources
from tests.differential.campaign import Expected, Way, draw_run, say
from tests.differential.streams import SEED
from tests.differential.test_engine import SMALL

PROGRAMS = {"windowed": 26, "failing": 6, "dataflow": 12, "unordered": 6, "transaction": 12, "sources": 6}
RACES = 24  # of a program
WAYS = 16  # among which the legs of a race choose
EVENTS = test_sources.EVENTS  # of an application


@dataclass(frozen=True)
class Checkpoint:
    """The state of an engine behind `blocks` blocks."""

    blocks: int
    standing: str
    images: list[tuple[str, int, bytes]] = field(repr=False)

    @staticmethod
    def of(engine: PassEngine, blocks: int) -> "Checkpoint":
        """The checkpoint of an engine, with images in one order."""
        images: list[tuple[str, int, bytes]] = []
        standing = engine.runtime.standing()
        engine.runtime.images(lambda name, part, image: images.append((name, part, bytes(image))))
        assert len({image[:2] for image in images}) == len(images), "an engine gives a part twice"
        return Checkpoint(blocks, standing, sorted(images))


class Leg(PassEngine):
    """An engine that continues from a checkpoint. The parts arrive in any order."""

    def __init__(self, program: Program, way: Way, sink: str, start: Checkpoint | None, r: random.Random):
        request = PassRequest(rate=way.spec.rate, cores=way.spec.threads)
        super().__init__(program, one_pass._runtime_options(way.spec, 0, request) | {"sink": sink})
        self._start, self._r = start, r

    def __enter__(self) -> "Leg":
        try:
            load_tables(self.runtime, self._program)
            if self._start is not None:
                for name, _, image in self._r.sample(self._start.images, len(self._start.images)):
                    self.runtime.restore(name, image)
                self.runtime.resume(self._start.standing)
        except BaseException:
            self.runtime.stop()
            raise
        return self


class Race:
    """One program over one stream, run by many engines in turns.

    Attributes:
        counts: Numbers of legs, resumes, and events that were processed and lost.
        way: The way of the current leg.
    """

    def __init__(self, app: App, program: Program, table: pa.Table, r: random.Random):
        self.app, self._program, self._table, self._r = app, program, table, r
        self.counts: Counter[str] = Counter()
        self.way: Way | None = None
        size = r.choice((2, 9, 60, 300))
        self._cuts = sorted({0, table.num_rows, *r.choices(range(table.num_rows + 1), k=table.num_rows // size)})
        most = r.choice((1, 3, 10))
        self._stops = sorted(r.choices(range(len(self._cuts)), k=most))

    def run(self, ways: list[Way]) -> PassResult:
        """Process all events, in legs of these ways."""
        r, last, delivered = self._r, None, []
        sink = r.choice(("digest", "digest", "parquet"))
        for stop in [*self._stops, None]:
            self.way = r.choice(ways)
            self.counts["resumes"] += last is not None
            with runtime_failures(), Leg(self._program, self.way, sink, last, r) as engine:
                begin = last.blocks if last is not None else 0
                delivered += self._process(engine, begin, len(self._cuts) - 1 if stop is None else stop)
                if stop is None:
                    return self._finish(engine, delivered, sink)
                last = Checkpoint.of(engine, stop)
                lost = min(stop + r.choice((0, 0, 1, 3)), len(self._cuts) - 1)
                self._process(engine, stop, lost)
                self.counts["lost"] += self._cuts[lost] - self._cuts[stop]
        raise AssertionError("a race ends in its last leg")

    def _process(self, engine: PassEngine, begin: int, end: int) -> list[pa.Table]:
        """Process some blocks; return their outputs, if the engine has them."""
        outputs: list[pa.Table] = []
        for start, stop in zip(self._cuts[begin:end], self._cuts[begin + 1 : end + 1], strict=True):
            part = self._table.slice(start, stop - start)
            rows, text, _ = row_format.encode(part, self._program.bound.event)
            engine.process(rows, text)
            outputs += engine.outputs()
            text[:] = 255  # whatever state refers to is its own
            rows.view(np.uint8)[:] = 255
        return outputs

    def _finish(self, engine: PassEngine, delivered: list[pa.Table], sink: str) -> PassResult:
        engine.runtime.finish(self._table.num_rows)
        delivered += engine.outputs()
        state, metrics = final_state(engine.runtime, self._program), json.loads(engine.runtime.metrics())
        sample = sample_of(metrics, PassRequest(), self._table.num_rows, Spent(None))
        assert metrics["events"] == self._table.num_rows
        if sink == "parquet":
            outputs = pa.concat_tables(delivered) if delivered else engine.schema.empty_table()
            digest = format_digest(*outputs_digest(self.app, self.way.spec.order, outputs))
            assert digest == sample.digest, "the legs do not deliver the outputs that the engine counts"
            places = outputs.select(["seq", "sub"]).to_pylist()
            if self.way.spec.order == "total":
                assert places == sorted(places, key=lambda place: (place["seq"], place["sub"])), "outputs change places"
        return PassResult(sample, state, {})


def program_of(kind: str, name: str, folder: Path, r: random.Random) -> tuple:
    """An application, its parameters, its compiled program and its events."""
    if kind in campaign.PROGRAMS:
        return campaign.program_of(kind, int(name), folder, r)
    if kind == "sources":
        path = folder / f"sources_{name}.py"
        path.write_text(test_sources.written(int(name)))
        app = campaign.load(path).app.check()
    else:
        app = registry.load(name)
    params = app.bind(SMALL.get(name, {}))
    return app, params, compile_app(app, params), workload.generate_chunk(app, params, EVENTS, 7, 0, EVENTS)


def ways_of(app: App, params: dict, events: int, order: str, r: random.Random) -> list[Way]:
    """Different ways with outputs in one order."""
    ways: dict[str, Way] = {}
    for _ in range(20 * WAYS):
        way = draw_run(app, params, events, r, {})
        if way.spec.order == order:
            ways[str(way)] = way
        if len(ways) == WAYS:
            break
    return list(ways.values())


def examine(kind: str, name: str, races: range = range(RACES)) -> None:
    """Run the races of one program and report the results."""
    began, counts = time.monotonic(), Counter(programs=1)
    with tempfile.TemporaryDirectory() as folder:
        r = random.Random(f"relay {SEED} {kind} {name}")
        app, params, program, table = program_of(kind, name, Path(folder), r)
        expected = Expected.of(app, params, table)
        ways = {order: ways_of(app, params, table.num_rows, order, r) for order in expected.digests or ("total",)}
        orders = [order for order in ways if ways[order]]
        for number in races:
            dice = random.Random(f"race {SEED} {kind} {name} {number}")
            order = dice.choice(orders)
            say(program=f"{kind} {name} {number}", way=order)
            race = Race(app, program, table, dice)
            run = functools.partial(race.run, ways[order])
            # A failure may be a later one if any leg may reach that first.
            loosest = next((way for way in ways[order] if not reports_earliest(way.spec)), ways[order][0])
            try:
                wrong = campaign.difference(app, loosest, expected, run)
            except (AssertionError, ValueError) as error:
                wrong = f"{type(error).__name__}: {error}"
            if wrong:
                say(differs=f"{wrong}\n  last leg: {race.way}")
            counts += race.counts + Counter(races=1, events=table.num_rows)
    counts["failing"] = int(expected.failure is not None)
    say(counts=counts, seconds=time.monotonic() - began)


def main(kind: str, *names: str) -> None:
    """`NUMBER`, `NUMBER RACE`, `NUMBER START..STOP` of its races, or `START..STOP` of programs."""
    if ".." in names[0]:
        for number in range(*map(int, names[0].split(".."))):
            examine(kind, str(number))
    else:
        name, *races = names
        first, _, stop = races[0].partition("..") if races else ("0", "", str(RACES))
        examine(kind, name, range(int(first), int(stop or int(first) + 1)))


if __name__ == "__main__":
    main(*sys.argv[1:])
