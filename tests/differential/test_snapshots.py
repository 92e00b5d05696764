"""The state of either oracle, saved at any event and loaded elsewhere, goes on as if nothing had happened."""

import io
import random
import subprocess
import sys

import numpy as np
import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import BadInput, CommandFailed
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.loop.layout import REGION
from streaming_core.oracle.loop.region import Region
from streaming_core.oracle.oracle import DROPPED, compare
from tests.differential import dataflows, generated, test_dataflows, test_generated, windowings
from tests.differential.campaign import load
from tests.differential.streams import Stream
from tests.differential.test_engine import SMALL
from tests.support.draws import seeds, some

EVENTS = 2000
WRITERS = {
    "transactional": lambda folder, name, number: generated.write(folder, name),
    "dataflow": lambda folder, name, number: dataflows.write(folder, name, number % 2 == 1),
    "windowed": lambda folder, name, number: windowings.write(folder, name, number % 2 == 1),
}
EVENT = {"transactional": generated.EVENT, "dataflow": test_dataflows.EVENT, "windowed": test_dataflows.EVENT}


def events_of(name):
    app = registry.load(name)
    params = app.bind(SMALL.get(name, {}))
    return app, params, workload.generate_chunk(app, params, EVENTS, 5, 0, EVENTS)


def saved(machine) -> io.BytesIO:
    file = io.BytesIO()
    machine.save(file)
    file.seek(0)
    return file


def agree(app, expected, actual, end):
    """Ends the stream of both, and compares everything."""
    compare(app.name, expected.finish(end), actual.finish(end), "flush")
    states, others = expected.state(), actual.state()
    assert list(states) == list(others)
    for name in states:
        compare(app.name, states[name], others[name], name)
    for count in ("events", *DROPPED):
        assert getattr(expected, count) == getattr(actual, count), count


def goes_on(make, app, params, events, cuts):
    """Compares a machine that is saved, and replaced by another one, at each cut, with one that is not."""
    whole, parts = Interpreter(app, params), make(app, params)
    for start, stop in zip([0, *cuts], [*cuts, events.num_rows], strict=True):
        block = events.slice(start, stop - start)
        compare(app.name, whole.process(block), parts.process(block), "outputs")
        file = saved(parts)
        parts = None  # its addresses are free
        parts = make(app, params)
        if start % 2:  # it had another state
            parts.process(events.slice(0, 30))
        parts.load(file)
        assert file.read() == b""
    agree(app, whole, parts, events.num_rows)


def drawn_cuts(name, events=EVENTS):
    return sorted(random.Random(name).sample(range(events + 1), 3))


@pytest.mark.parametrize("name", some([*registry.names(), *registry.names("nexmark")], 2))
def test_interpreter_goes_on_from_a_snapshot(name):
    app, params, events = events_of(name)
    goes_on(Interpreter, app, params, events, drawn_cuts(name))


@pytest.mark.parametrize("name", some(["q3", *registry.names(), *registry.names("nexmark")], 1))
def test_loop_goes_on_from_a_snapshot(name):
    app, params, events = events_of(name)
    goes_on(Loop, app, params, events, drawn_cuts(name))


@pytest.mark.parametrize("number", seeds(1, of=8))
@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("make", some([Interpreter, Loop]))
def test_random_program_goes_on_from_a_snapshot(tmp_path, kind, number, make):
    path = WRITERS[kind](tmp_path, f"snapshots_{kind}_{number}", number)
    app = load(path).app.check()
    encode, size = (test_generated if kind == "transactional" else test_dataflows).encode(app), EVENT[kind]
    drawn = np.random.default_rng(number).bytes(300 * size)
    events = encode(Stream([drawn[at : at + size] for at in range(0, len(drawn), size)], 2, 64, False))
    goes_on(make, app, app.bind({}), events, drawn_cuts(f"{kind} {number}", events.num_rows))


SCRIPT = """
import sys
from tests.differential.test_snapshots import *
for name in sys.argv[2:]:
    app, params, events = events_of(name)
    cut = drawn_cuts(name)[1]
    whole = Interpreter(app, params)
    whole.process(events.slice(0, cut))
    outputs = whole.process(events.slice(cut))
    for make in (Interpreter, Loop):
        machine = make(app, params)
        with open(f"{sys.argv[1]}/{name}-{make.__name__}", "rb") as file:
            machine.load(file)
        compare(name, outputs, machine.process(events.slice(cut)), "outputs")
        if make is Loop:
            agree(app, whole, machine, EVENTS)
        machine = None
print("equal")
"""


@pytest.mark.parametrize("names", [("q3",), pytest.param(tuple(registry.names()), marks=pytest.mark.slow)])
def test_another_process_goes_on(tmp_path, names):
    for name in names:
        app, params, events = events_of(name)
        for make in (Interpreter, Loop):
            machine = make(app, params)
            machine.process(events.slice(0, drawn_cuts(name)[1]))
            (tmp_path / f"{name}-{make.__name__}").write_bytes(saved(machine).read())
            machine = None
    done = subprocess.run([sys.executable, "-c", SCRIPT, tmp_path, *names], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("equal\n", "")


def test_loop_with_large_free_blocks_goes_on():
    """A map that grew has left blocks behind; a snapshot leaves their pages out, and they are zero when used again."""
    app = registry.load("q3")
    params = app.bind({"users": 200_000, "items": 200_000})
    events = workload.generate_chunk(app, params, 60_000, 5, 0, 60_000)
    goes_on(Loop, app, params, events, [50_000])


def test_state_of_other_code_is_refused():
    app, params, _ = events_of("q3")
    loop = Loop(app, params)
    file = saved(loop)
    loop._printed = "other"
    with pytest.raises(BadInput, match="other code"):
        loop.load(file)


def test_state_without_its_addresses_is_refused():
    app, params, events = events_of("q3")
    first, second = Loop(app, params), Loop(app, params)
    first.process(events)
    with pytest.raises(CommandFailed, match="addresses at 0x"):
        second.load(saved(first))


def test_interpreter_loads_nothing_but_state():
    app, params, _ = events_of("q3")
    for text in (b"cos\nsystem\n(S'true'\ntR.", b"cstreaming_core.oracle.interpreter.rows\nzero\n."):
        with pytest.raises(BadInput, match="no state of an interpreter"):
            Interpreter(app, params).load(io.BytesIO(text))
    names = b"cstreaming_core.oracle.interpreter.rows\nrow_of\n((S'x=print(1)'\ntI1\ntR."
    with pytest.raises(BadInput, match="no such fields"):
        Interpreter(app, params).load(io.BytesIO(names))


LIMITED = """
import resource
from streaming_core.oracle.loop.region import Region
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
for left in (3 << 30, 1 << 20):
    resource.setrlimit(resource.RLIMIT_AS, (used + left, -1))
    Region().block(1 << 20)[:] = 1
"""


def test_a_limit_of_addresses_leaves_a_smaller_region_or_one_line():
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith(
        "CommandFailed: cannot reserve 1 GiB of addresses for the state of the oracle"
    )


def test_region_saves_only_used_pages():
    region = Region()
    region.block(1 << 30)[5] = 7
    file = saved(region)
    assert len(file.getvalue()) < 1 << 15
    base = region.base
    region = None
    other = Region(base)
    block = other.block(1 << 30)
    block[6] = 8
    other.load(file)
    assert (base % REGION, block[5], block[6]) == (0, 7, 0)
