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
from streaming_core.run.way import AXES, Pinned
from streaming_core.search.ways import draw_schedule
from tests.differential.case import Events

# Threads, batch size, block size.
WAYS = [(1, 256, 1000), (2, 7, 31), (3, 1, 40), (8, 16, 1000)]


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
        is_changed, r = number >= len(ways), random.Random(seed)
        schedule = draw_schedule(app, threads, {}, table.num_rows, r) if is_changed else []
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
