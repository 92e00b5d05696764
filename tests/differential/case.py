"""The interpreter's result on some events, and the comparison of the engine with it."""

import itertools

import pyarrow as pa

from streaming_core.data.agreement import outputs_digest, states_digest
from streaming_core.data.digest import format_digest
from streaming_core.errors import BadInput
from streaming_core.kernels.program import compile_app
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.one_pass import PassRequest, load_tables
from streaming_core.run.way import ACTIVE_CONTROLLERS, AXES, ENGINE_EXECUTORS, RunSpec

# Punctuation interval, batch size, block size: pairwise, each way of executing meets every one over the list.
CUTS = [(1, 1, 997), (7, 7, 1000), (500, 256, 3000), (100_000, 64, 512)]


def strategies(executor, app=None):
    """Every combination of an executor's strategies with a comparable result, as RunSpec fields.

    AXES lists the options to combine.

    Args:
        executor: the name of the executor.
        app: selects the combinations that can run it; None: those that keep order and need no windows.
    """
    axes = [(*ENGINE_EXECUTORS[executor].axes().get(axis, ()), None) for axis in AXES]
    ways = []
    for *chosen, stealing in itertools.product(*axes, (False, True)):
        try:
            spec = RunSpec.parse(
                {"app": "any", "executor": executor, "stealing": stealing, **dict(zip(AXES, chosen, strict=True))}
            )
            if app is not None:
                spec.check(app)
        except BadInput:  # these do not go together
            continue
        fields = {axis: value for axis in AXES if (value := spec.option(axis)) is not None}
        fields = {"executor": executor, **fields, "stealing": stealing}
        if app is None and (spec.order == "none" or spec.option("parallelism") in ("vsn_esg", "sn")):
            continue
        if spec.option("controller") in ACTIVE_CONTROLLERS:  # acts every 100 ms, longer than a case: test_requests.py
            continue
        if not spec.is_bound and fields not in ways:
            ways.append(fields)
    return ways


def pairwise(axes):
    """Few combinations of one value per axis that cover every pair of values of different axes; always the same ones.

    Each combination starts with an uncovered pair. Every other axis takes the value that covers most pairs with the
    values chosen so far.
    """
    names = list(axes)
    left = {
        frozenset(((a, x), (b, y))): None
        for a, b in itertools.combinations(names, 2)
        for x, y in itertools.product(axes[a], axes[b])
    }
    chosen = []
    while left:
        row = dict(sorted(next(iter(left))))
        for name in [n for n in names if n not in row]:
            met = [sum(frozenset(((name, v), other)) in left for other in row.items()) for v in axes[name]]
            # Ties rotate, so the remaining pairs do not all have the first value.
            turn = len(chosen) % len(met)
            best = max(range(len(met)), key=lambda i, met=met, turn=turn: (met[i], (i - turn) % len(met)))
            row[name] = axes[name][best]
        for pair in itertools.combinations(row.items(), 2):
            left.pop(frozenset(pair), None)
        chosen.append({name: row[name] for name in names})
    return chosen


class Events:
    """Tables of events that play the part of a workload."""

    def __init__(self, tables):
        self.tables = tables
        self.rows = self.end = sum(t.num_rows for t in tables)

    def read_on(self, read, size, decode, room=None, reading=iter):
        for table in self.tables:
            for at in range(0, table.num_rows, size):
                block, _ = decode(table.slice(at, size))
                yield block, read


class Case:
    """A bound application, its compiled program, its events and the result of an oracle on them."""

    def __init__(self, app, params, table, program=None, oracle=Interpreter):
        self.app, self.events = app, Events([table])
        self.program = program or compile_app(app, params)
        oracle = oracle(app, params)
        self.outputs = pa.concat_tables([oracle.process(table), oracle.finish(table.num_rows)])
        self.state = oracle.state()
        self.rejected, self.dropped, self.late = oracle.rejected, oracle.dropped_invalid, oracle.dropped_late
        self.blocks: dict[int, Blocks] = {}  # by block size, decoded once
        orders = ["total", "none"] if app.unordered else ["total"]
        self.expected = {
            order: (format_digest(*outputs_digest(app, order, self.outputs)), states_digest(app, order, self.state))
            for order in orders
        }

    def check(self, spec, block=1000, **options):
        """Runs one pass and compares outputs, order, final state and counts."""
        if block not in self.blocks:
            self.blocks[block] = Blocks(self.events, self.program, block, keep=self.events.rows)
        request = PassRequest(**{"cores": spec.threads, **options})  # more threads than cores all work
        sample, state, _ = one_pass.run(spec, self.program, self.blocks[block], request)
        assert sample.in_order or spec.order == "none"
        expected = self.expected[spec.order]
        assert (sample.digest, states_digest(self.app, spec.order, state)) == expected
        counts = sample.rejected, sample.dropped_invalid, sample.dropped_late
        assert counts == (self.rejected, self.dropped, self.late)
        return sample


def images_of(engine) -> list[tuple[str, int, bytes]]:
    """The parts of the state of an engine."""
    images = []
    engine.images(lambda *part: images.append(part))
    return images


def resume(engine, program, standing, images):
    """Brings a new engine to where another one stood."""
    load_tables(engine, program)
    for name, _, image in images:
        engine.restore(name, image)
    engine.resume(standing)
