"""An operator, as an application declares it: one node of its pipeline."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from streaming_core.language.record import Record
from streaming_core.language.window import Window

# The name of a column of a final state that holds a key, or a field of one.
KEY_COLUMN = re.compile(r"key(_\d+)?")


def key_columns(fields: int) -> list[str]:
    """Return the columns of a key in a final state: `key`, or `key_0`, `key_1`, ... for several fields."""
    return ["key"] if fields == 1 else [f"key_{number}" for number in range(fields)]


@dataclass(eq=False)
class Operator:
    """One node of the pipeline. `kind`: source, stateless, partitioned, stateful, windowed, transaction, sink.

    A partitioned operator has a `key`: fields of its input, all integers and texts.
    """

    kind: str
    name: str
    inputs: list[Operator]
    output: Record | None
    functions: dict[str, Callable] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    state: Record | None = None
    scratch: Record | None = None
    window: Window | None = None

    @property
    def input(self) -> Record:
        """The record type this operator reads."""
        return self.inputs[0].emitted

    @property
    def streams(self) -> list[Record]:
        """The record of each of its streams, by number. An operator without windows has one stream."""
        if self.window is None:
            return [self.input]
        of = self.window.streams
        return [self.inputs[of.index(number)].emitted for number in range(len(self.window.states))]

    @property
    def emitted(self) -> Record:
        """`output` of an operator that has one: all but the sink."""
        assert self.output is not None, self.name
        return self.output

    @property
    def kept(self) -> Record:
        """`state` of an operator that has one."""
        assert self.state is not None, self.name
        return self.state

    @property
    def key_columns(self) -> list[str]:
        """The columns of the key in the final state, in the order of `key`."""
        return key_columns(len(self.key))
