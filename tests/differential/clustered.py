"""Drawn programs on a cluster engine, against the interpreter."""

from __future__ import annotations

import dataclasses
import functools
import random
from pathlib import Path

import pyarrow as pa

from streaming_core.cluster.task import Figures, Prepared, SparkPass, state_parts
from streaming_core.data import workload
from streaming_core.data.parts import Parts
from streaming_core.oracle.interpreter import Interpreter
from tests.differential import campaign

KINDS = ("windowed", "dataflow", "failing")


@dataclasses.dataclass(frozen=True)
class DrawnPass(SparkPass):
    """A pass of an application in a file that is not in the registry."""

    file: str = ""

    @property
    def prepared(self) -> Prepared:
        return _prepared(self.file, self.params)


@functools.lru_cache(maxsize=2)
def _prepared(file: str, params: tuple) -> Prepared:
    return Prepared.of(campaign.load(Path(file)).app.check(), dict(params))


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A random program with its workload on disk and the interpreter's result; without outputs if it fails."""

    name: str
    pass_: DrawnPass
    content_digest: str
    outputs: pa.Table | None
    states: dict[str, pa.Table]
    counts: tuple[int, int]

    @classmethod
    def of(cls, kind: str, number: int, folder: Path) -> Drawn:
        """Program `number` of a kind (`campaign.py`), on a random number of shares."""
        r = random.Random(f"program {campaign.SEED} {kind} {number}")
        app, params, _, table = campaign.program_of(kind, number, folder, r)
        manifest = workload.write(app, params, table.num_rows, 0, folder / "workload", [table])
        pass_ = DrawnPass(
            app=app.name, params=tuple(params.items()), workload=str(folder / "workload"), events=table.num_rows,
            end=table.num_rows, shares=random.Random(f"shares of {kind} {number}").choice((1, 2, 3, 5)),
            folder=str(folder / "pass"), writes=True, file=str(app.file),
        )  # fmt: skip
        oracle = Interpreter(app, params)
        try:
            outputs = pa.concat_tables([oracle.process(table), oracle.finish(table.num_rows)])
        except campaign.RunFailed:
            return cls(f"{kind} {number}", pass_, manifest["content_digest"], None, {}, (0, 0))
        counts = (oracle.dropped_invalid, oracle.dropped_late)
        return cls(f"{kind} {number}", pass_, manifest["content_digest"], outputs, oracle.state(), counts)

    def difference(self, outputs: pa.Table, states: dict[str, pa.Table], figures: list[Figures]) -> str | None:
        """The difference between a pass and the interpreter; None if they agree."""
        assert self.outputs is not None
        if not outputs.equals(self.outputs.cast(outputs.schema)):
            return f"{outputs.num_rows} outputs, expected {self.outputs.num_rows}"
        for name, state in states.items():
            if not state.equals(self.states[name].cast(state.schema)):
                return f"the state of {name} differs"
        counts = (sum(figure.dropped for figure in figures), sum(figure.late for figure in figures))
        return None if counts == self.counts else f"dropped and late: {counts}, expected {self.counts}"


def shared_states(pass_: SparkPass) -> dict[str, pa.Table]:
    """The states of all shares, by ascending key."""
    states = {}
    for operator in pass_.prepared.program.app.operators:
        if operator.state is not None:
            state = state_parts(pass_, operator.name).read()
            keys = [(name, "ascending") for name in operator.key_columns]
            states[operator.name] = state.sort_by(keys) if keys else state
    return states


def shared_outputs(pass_: SparkPass) -> pa.Table:
    """The outputs that the sink of a pass wrote."""
    folders = sorted(Path(pass_.folder, "outputs").glob("[0-9]*"))
    return Parts([path for folder in folders for path in Parts.of(folder).paths]).read()
