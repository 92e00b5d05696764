"""Windowed applications on the engine, compared with an oracle on the same events."""

import itertools
import random
import tempfile
from pathlib import Path

import pyarrow.dataset as ds

from streaming_core.data.agreement import outputs_digest
from streaming_core.data.digest import format_digest
from streaming_core.kernels.program import compile_app
from streaming_core.oracle.oracle import compare
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.one_pass import PassRequest
from streaming_core.run.way import AXES, CELLS, Pinned
from tests.differential.case import Events

# Threads, batch size, block size.
WAYS = [(1, 256, 1000), (2, 7, 31), (3, 1, 40), (8, 16, 1000)]


def drawn_owners(replicas, rng):
    """A pattern of owners: each of some replicas once, some more often than others, or one for each cell."""
    if rng.random() < 0.5:
        return rng.sample(range(replicas), rng.randint(1, replicas))
    return rng.choices(range(replicas), k=rng.choice([2, 3, 7, CELLS]))


def drawn_schedule(app, threads, events, seed):
    """Reconfigurations at events of all kinds: the first, the last, one behind it, several at once, to any owners."""
    rng = random.Random(seed)
    names = [operator.name for operator in app.operators if operator.kind == "windowed"]
    at = sorted(rng.choice([0, events - 1, events, rng.randrange(events + 1)]) for _ in range(rng.randrange(12)))
    schedule = []
    for event in at:
        some = rng.sample(names, rng.randint(1, len(names)))
        owners = {name: drawn_owners(threads, rng) for name in some}
        schedule.append({"event": max(event, 0), "owners": owners})
    return schedule


def check_executed(app, params, table, outputs, late, end=None, ways=WAYS):
    """Run all of `ways` over one table of events, and check outputs and the count of late rows against the oracle."""
    program = compile_app(app, params)
    events = Events([table])
    events.end = table.num_rows if end is None else end
    # Of a run that fails there is none.
    wanted = None if outputs is None else format_digest(*outputs_digest(app, "total", outputs))
    for number, (threads, batch, block) in enumerate(itertools.chain(ways, ways)):
        # Once with nothing but what the plan says, once with reconfigurations; whether replicas share is drawn.
        seed = 1000 * table.num_rows + number
        schedule = drawn_schedule(app, threads, table.num_rows, seed) if number >= len(ways) else []
        how = {"batch": batch, "schedule": schedule, "parallelism": random.Random(seed).choice(AXES["parallelism"])}
        spec = Pinned(app=app.name, threads=threads, sink="parquet", **how)
        sample, state, _ = one_pass.run(spec, program, Blocks(events, program, block), PassRequest(cores=threads))
        if sample.digest != wanted:  # once more, to say where they differ
            with tempfile.TemporaryDirectory() as folder:
                blocks = Blocks(events, program, block)
                one_pass.run(spec, program, blocks, PassRequest(sink="parquet", folder=Path(folder)))
                written = ds.dataset(Path(folder) / "outputs").to_table()
            compare(app.name, outputs, written.cast(outputs.schema), f"outputs of {threads} threads, {how}")
        assert sample.digest == wanted, (threads, block, how)
        assert sample.in_order
        assert state == {}
        assert sample.dropped_late == late
