"""The campaign: random programs over random events, each in many random ways, compared with the oracle.

Kind and number of a program determine its source, its events and its ways. To run one again:

    python -m tests.differential.campaign KIND NUMBER          in all of its ways
    python -m tests.differential.campaign KIND NUMBER WAY      in one

`test_campaign.py` starts this module for a range of numbers and reads what it prints, a JSON object a line.
"""

import dataclasses
import functools
import importlib.util
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa

from streaming_core.data.agreement import outputs_digest, states_digest
from streaming_core.data.digest import format_digest
from streaming_core.errors import RunFailed
from streaming_core.kernels.program import compile_app
from streaming_core.language.application import App
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.one_pass import PassRequest
from streaming_core.run.way import ACTIVE_CONTROLLERS, ENGINE_EXECUTORS, UNORDERED_CHANNELS, RunSpec
from streaming_core.search.trial import Failure, reports_earliest
from streaming_core.search.ways import draw_way
from tests.differential import dataflows, generated, test_dataflows, test_generated, windowings
from tests.differential.case import Events
from tests.differential.streams import SEED, Stream

PROGRAMS = {"windowed": 140, "failing": 40, "dataflow": 140, "unordered": 140, "transaction": 140}
WAYS = 72  # of a program, all different; nine tenths of a program's time go into its compilation
# Those that keep to the order of events; no_lock is a bound.
SCHEMES = [scheme for scheme in ENGINE_EXECUTORS["transactional"].axes()["scheme"] if scheme != "no_lock"]
CHANNELS = ENGINE_EXECUTORS["pinned"].axes()["channel"]
PLANS = 2  # random plans of each channel, for a program that is a dataflow


@dataclasses.dataclass(frozen=True)
class Way:
    """One way of executing, in blocks of `block` events."""

    spec: RunSpec
    block: int

    def __str__(self) -> str:
        return f"block {self.block}, {json.dumps(self.spec.digest_content)}"


def failure_of(error: RunFailed) -> Failure:
    """How a run fails, by the line of the engine or of the oracle."""
    failure = Failure.of(error)
    assert failure, f"a failure of no operator: {error}"
    return failure


# --- runs ---------------------------------------------------------------------------------------------------------


def load(path: Path) -> ModuleType:
    """The module of a written application."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plant(path: Path, r: random.Random, rarity: tuple[int, ...] = (97, 97, 500)) -> None:
    """Makes one or two functions of a written application fail at one of so many rows that they take."""
    source = path.read_text()
    heads = re.findall(r"^def (?:maps|works|keeps|meets|finds|does)\d+\(.*\bevent\b.*\):\n", source, re.M)
    for head in r.sample(heads, min(len(heads), r.randint(1, 2))):
        value = f"(event.a * 7 + event.b) % {r.choice(rarity)} - {r.randrange(min(rarity))}"
        source = source.replace(head, f"{head}    spare = event.m // ({value})\n")
    path.write_text(source)


def late(table: pa.Table, r: random.Random) -> pa.Table:
    """The events with gaps between their times, and some of them late."""
    rng = np.random.default_rng(r.getrandbits(32))
    ts = table["ts"].to_numpy() * r.choice((1, 1, 3)) + np.cumsum(rng.random(table.num_rows) < 0.03) * r.choice((0, 50))
    ts = ts - rng.choice([0, 0, 0, 0, 1, 4, 40], table.num_rows) * r.choice((0, 1))
    return table.set_column(table.schema.get_field_index("ts"), "ts", pa.array(ts, pa.int64()))


def events_of(r: random.Random, smallest: int, largest: int) -> Stream:
    """Events as bytes."""
    count = r.choice((3, 9, 40, 40, 120))
    drawn = [r.randbytes(r.randint(smallest, largest)) for _ in range(count)]
    return Stream(drawn, r.choice((1, 1, 2, 4)), r.choice((1, 2, 3, 64)), r.random() < 0.3)


def program_of(kind: str, number: int, folder: Path, r: random.Random) -> tuple:
    """The application of a number, its parameters, its compiled program and its events."""
    # Applications with windows have numbers of their own in both kinds.
    named = f"campaign_{SEED}_{number + 1000 * (kind == 'failing')}"
    is_planted = r.random() < 0.4
    if kind == "transaction":
        path = generated.write(folder, named)
        if is_planted:
            plant(path, r)
        app = load(path).app
        table = test_generated.encode(app)(events_of(r, generated.EVENT, generated.EVENT))
    else:
        is_text, size = number % 4 == 1, test_dataflows.EVENT
        is_windowed = kind in ("windowed", "failing")
        if is_windowed:
            path = windowings.write(folder, named, is_text)
        else:
            is_flushing = kind == "dataflow" and number % 4 == 2
            path = dataflows.write(folder, named, is_text, kind == "unordered", is_flushing)
        if kind == "failing":
            plant(path, r, (11, 31))
        elif is_planted:
            plant(path, r)
        app = load(path).app.check()
        table = test_dataflows.encode(app)(events_of(r, size, size))
        table = late(table, r) if is_windowed else table
    return app, app.bind({}), compile_app(app, app.bind({})), table


# --- ways -----------------------------------------------------------------------------------------------------------


def draw_run(app: App, params: dict, events: int, r: random.Random, fixed: dict) -> Way:
    """A random valid way for the application; `fixed` holds options with a fixed value."""
    return Way(draw_way(app, params, events, r, fixed), r.choice((1000, 1000, 64, 7, 3)))


def draw_ways(app: App, params: dict, events: int, kind: str, number: int) -> list[Way]:
    """The ways of a program, all different.

    Of transactions, every scheme on some numbers of threads. Of a dataflow, every channel that fits, with some plans.
    And others.
    """
    r, ways = random.Random(f"ways of {SEED} {kind} {number}"), {}
    fixed: list[dict] = []
    if app.kind == "transaction":
        fixed = [{"scheme": scheme, "threads": threads} for scheme in SCHEMES for threads in (1, 2, 3, 8)]
    elif app.kind == "dataflow":
        fits = [channel for channel in CHANNELS if app.unordered or channel not in UNORDERED_CHANNELS]
        fixed = [{"executor": "pinned", "channel": channel} for channel in fits for _ in range(PLANS)]
    for options in fixed:
        way = draw_run(app, params, events, r, options)
        ways[str(way)] = way
    while len(ways) < WAYS:
        way = draw_run(app, params, events, r, {})
        ways[str(way)] = way
    return list(ways.values())


# --- results ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Expected:
    """The oracle's result: digests of outputs and states for each order, and counts; or its failure."""

    failure: Failure | None
    digests: dict[str, tuple]
    counts: tuple[int, int, int]

    @staticmethod
    def of(app: App, params: dict, table: pa.Table) -> "Expected":
        """Interprets the events."""
        oracle = Interpreter(app, params)
        try:
            outputs = pa.concat_tables([oracle.process(table), oracle.finish(table.num_rows)])
        except RunFailed as error:
            return Expected(failure_of(error), {}, (0, 0, 0))
        orders = ("total", "none") if app.unordered else ("total",)
        digests = {
            order: (format_digest(*outputs_digest(app, order, outputs)), states_digest(app, order, oracle.state()))
            for order in orders
        }
        return Expected(None, digests, (oracle.rejected, oracle.dropped_invalid, oracle.dropped_late))


def difference(app: App, way: Way, expected: Expected, run: Callable) -> str | None:
    """The difference between a run and the oracle; None if they agree."""
    try:
        sample, state, _ = run()
    except RunFailed as error:
        failure = failure_of(error)
        if expected.failure is None:
            return f"fails, the oracle does not: {error}"
        if app.kind == "transaction":  # one function calls the others
            failure = dataclasses.replace(failure, operator=expected.failure.operator)
        is_same = failure == expected.failure
        is_later = failure.event >= expected.failure.event and not reports_earliest(way.spec)
        return None if is_same or is_later else f"fails with {failure}, the oracle with {expected.failure}"
    if expected.failure is not None:
        return f"does not fail, the oracle does: {expected.failure}"
    if not sample.in_order and way.spec.order == "total":
        return "outputs are not in order"
    actual = sample.digest, states_digest(app, way.spec.order, state)
    wanted = expected.digests[way.spec.order]
    if actual != wanted:
        return f"outputs and states have digests {actual}, the oracle's {wanted}"
    counts = sample.rejected, sample.dropped_invalid, sample.dropped_late
    if counts != expected.counts:
        return f"rejected, dropped and late events: {counts}, the oracle's {expected.counts}"
    return None


def say(**what) -> None:
    print(json.dumps(what), flush=True)


def examine(kind: str, number: int, only: int | None = None) -> None:
    """Run one program in its ways and report the results."""
    began = time.monotonic()
    say(program=f"{kind} {number}")
    with tempfile.TemporaryDirectory() as folder:
        r = random.Random(f"program {SEED} {kind} {number}")
        app, params, program, table = program_of(kind, number, Path(folder), r)
        expected = Expected.of(app, params, table)
        ways = draw_ways(app, params, table.num_rows, kind, number)
        for index, way in enumerate(ways):
            if only not in (None, index):
                continue
            say(program=f"{kind} {number} {index}", way=str(way))
            blocks = Blocks(Events([table]), program, way.block)
            run = functools.partial(
                one_pass.run, way.spec, program, blocks, PassRequest(rate=way.spec.rate, cores=way.spec.threads)
            )
            if differs := difference(app, way, expected, run):
                say(differs=differs)
    counts = {
        "programs": 1,
        "ways": len(ways),
        "events": len(ways) * table.num_rows,
        "failing": int(expected.failure is not None),
    }
    counts["schedules"] = sum(bool(way.spec.option("schedule")) for way in ways)
    for parallelism in ("vsn_esg", "sn"):
        counts[parallelism] = sum(way.spec.option("parallelism") == parallelism for way in ways)
    counts["controllers"] = sum(way.spec.option("controller") in ACTIVE_CONTROLLERS for way in ways)
    counts |= Counter(way.spec.channel for way in ways if way.spec.executor == "pinned")
    say(counts=counts, seconds=time.monotonic() - began)


def main(kind: str, *numbers: str) -> None:
    """`NUMBER [WAY]`, or `START..STOP`."""
    if ".." in numbers[0]:
        for number in range(*map(int, numbers[0].split(".."))):
            examine(kind, number)
    else:
        examine(kind, *map(int, numbers))


if __name__ == "__main__":
    main(*sys.argv[1:])
