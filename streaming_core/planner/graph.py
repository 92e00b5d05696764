"""A graph: an application as a planner sees it, operator by operator (BriskStream, section 3.1 and table 8).

Operators stand in topological order, the source first. The costs of an operator are per input. A row of a stream
costs a time to execute it and emit its outputs (T_e). It has a number of bytes (N) and of outputs.

The operator's kind decides how rows reach its replicas:

- *partitioned*: by key, as the runtime's owner map assigns key groups to replicas.
- *windowed*: every row to every replica. A replica *handles* the rows of its keys and *reads* the others.
- others: evenly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from streaming_core.planner.document import Amount, Document

GROUPS = 4096  # key groups (runtime/src/state/key_group.rs); no operator has more replicas
DEFAULT = "default"  # the stream of an operator that has but one
Kind = Literal["source", "stateless", "partitioned", "stateful", "windowed", "sink"]


class Input(Document):
    """An input stream of an operator."""

    producer: str | None = Field(description="Operator that emits the rows; null: the source, which reads the events.")
    stream: str = Field(DEFAULT, description="Stream of the producer.")
    ns: Amount = Field(
        description="T_e: ns to execute and emit a row. The paper's strategies use the median, ours the mean."
    )
    bytes: Amount = Field(0.0, description="N: bytes per row.")
    selectivity: dict[str, Amount] = Field(
        default_factory=lambda: {DEFAULT: 1.0},
        description="Output rows per input row, by stream; a single number for an operator with one stream.",
    )
    weights: list[Amount] | None = Field(None, description="Rows per key group, in any unit; null: the same for all.")
    read_ns: Amount = Field(0.0, description="Windowed operators only: ns per row that every replica spends on it.")
    read_bytes: Amount = Field(0.0, description="Windowed operators only: bytes per row that every replica reads.")

    @model_validator(mode="before")
    @classmethod
    def _one_stream(cls, data: Any) -> Any:
        if isinstance(data, dict) and type(data.get("selectivity")) in (int, float):
            return data | {"selectivity": {DEFAULT: data["selectivity"]}}
        return data

    @model_validator(mode="after")
    def _has_all_groups(self) -> Self:
        if self.weights is not None and (len(self.weights) != GROUPS or not sum(self.weights) > 0):
            raise ValueError(f"weights must be {GROUPS} numbers, at least one of them positive")
        return self


class Operator(Document):
    """One operator, with the measured costs of one replica."""

    name: str = Field(min_length=1)
    kind: Kind
    inputs: list[Input] = Field(min_length=1)
    others_ns: Amount = Field(0.0, description="ns per row besides T_e: gates, outlets, bookkeeping.")
    merge_ns: Amount | None = Field(
        None,
        description="ns per row on the thread of a merge task, which stands before each replica with several sources; "
        "null: the channel has no such threads.",
    )
    memory_bytes: Amount | None = Field(None, description="M: bytes of local memory traffic per row; null: unknown.")
    most: Annotated[int, Field(ge=1, le=GROUPS)] | None = Field(
        None,
        description="Maximum number of replicas; null: 1 for a stateful operator, else one per key group.",
    )

    @model_validator(mode="after")
    def _is_of_its_kind(self) -> Self:
        if (self.kind == "source") != (self.inputs[0].producer is None) or (self.kind == "source" and self.inputs[1:]):
            raise ValueError(f"{self.name}: a source must have one input with producer null; other operators have none")
        if self.kind == "stateful" and self.replicas > 1:
            raise ValueError(f"{self.name}: a stateful operator must have one replica, got {self.replicas}")
        for port in self.inputs:
            if port.weights is not None and self.kind not in ("partitioned", "windowed"):
                raise ValueError(f"{self.name}: a {self.kind} operator has no keys; remove the weights")
            if (port.read_ns or port.read_bytes) and self.kind != "windowed":
                raise ValueError(f"{self.name}: read_ns and read_bytes are only for windowed operators")
        return self

    @property
    def replicas(self) -> int:
        """The largest number of replicas."""
        return self.most or (1 if self.kind == "stateful" else GROUPS)

    @property
    def streams(self) -> list[str]:
        """The names of its output streams."""
        return sorted({stream for port in self.inputs for stream in port.selectivity})

    def shares(self, number: int) -> list[list[float]]:
        """Return the share of the rows that each of so many replicas handles, by replica and input."""
        if self.kind not in ("partitioned", "windowed"):
            return [[1 / number] * len(self.inputs) for _ in range(number)]
        bounds = [-(-replica * GROUPS // number) for replica in range(number + 1)]  # of OwnerMap::even
        shares = []
        for start, stop in itertools.pairwise(bounds):
            weights = [(port.weights, (stop - start) / GROUPS) for port in self.inputs]
            shares.append([even if w is None else sum(w[start:stop]) / sum(w) for w, even in weights])
        return shares


class Pattern(Document):
    """The costs of rows if some operators have several replicas.

    Then gates merge the rows of replicas, and rows carry the path that restores their order.
    """

    several: list[str] = Field(description="Operators with more than one replica; the others have one.")
    operators: list[Operator] = Field(min_length=2)


class Graph(Document):
    """An application and the workload it was measured with.

    If it was measured in several patterns, the costs of an operator depend on the replicas. The graph's own operators
    have the costs of one replica each.
    """

    app: str
    tolerance: Amount = Field(
        0.0, description="Relative error of the measured times. Two plans that are closer than this count as equal."
    )
    operators: list[Operator] = Field(min_length=2)
    patterns: list[Pattern] = Field(
        default_factory=list,
        description="Costs for each set of replicated operators; empty: the costs do not depend on the replicas.",
    )
    _replicated: dict[frozenset[str], Graph] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _is_a_pipeline(self) -> Self:
        before: dict[str, Operator] = {}
        for operator in self.operators:
            if operator.name in before:
                raise ValueError(f"two operators have the name {operator.name}; rename one")
            if (operator.kind == "source") == bool(before):
                raise ValueError(f"{operator.name}: the first operator, and no other, must be the source")
            for port in operator.inputs if before else []:
                if port.producer not in before:
                    raise ValueError(f"{operator.name}: its producer {port.producer} must come before it")
                if before[port.producer].kind == "sink" or port.stream not in before[port.producer].streams:
                    raise ValueError(f"{operator.name}: its producer {port.producer} has no stream {port.stream}")
            before[operator.name] = operator
        if not self.sinks:
            raise ValueError("the graph needs a sink")
        names = list(before)
        for pattern in self.patterns:
            if [operator.name for operator in pattern.operators] != names or not {*pattern.several} <= {*names}:
                raise ValueError(f"patterns: each pattern must list the operators {', '.join(names)}")
        return self

    @cached_property
    def by_name(self) -> Mapping[str, Operator]:
        """The operators, by name."""
        return {operator.name: operator for operator in self.operators}

    @property
    def sinks(self) -> list[Operator]:
        """The sinks; their rows are the application's throughput."""
        return [operator for operator in self.operators if operator.kind == "sink"]

    @cached_property
    def _near(self) -> Mapping[str, frozenset[str]]:
        """The operator, its producers and its consumers, by operator."""
        near = {name: {name} for name in self.by_name}
        for operator in self.operators:
            for port in operator.inputs:
                if port.producer is not None:
                    near[operator.name].add(port.producer)
                    near[port.producer].add(operator.name)
        return {name: frozenset(names) for name, names in near.items()}

    def mergers(self, replicas: Sequence[int]) -> list[tuple[int, int]]:
        """Return the replicas that have a merge task with a thread of its own, as operator and number.

        They are in the order of their threads: the runtime gives the first consumer the last thread.
        """
        number = dict(zip(self.by_name, replicas, strict=True))
        mergers = []
        for index, operator in enumerate(self.operators):
            sources = sum(number[port.producer] for port in operator.inputs if port.producer is not None)
            if operator.merge_ns is not None and sources > 1:
                mergers += [(index, replica) for replica in range(replicas[index])]
        return mergers[::-1]

    def replicated(self, replicas: Sequence[int]) -> Graph:
        """Return the graph with the costs of so many replicas.

        Each operator has its costs in the most similar pattern.
        """
        if not self.patterns:
            return self
        several = frozenset(operator.name for operator, n in zip(self.operators, replicas, strict=True) if n > 1)
        if several not in self._replicated:
            most_similar = self.most_similar(several)
            operators = [self.patterns[most_similar[name]].operators[index] for index, name in enumerate(self.by_name)]
            self._replicated[several] = self.changed(operators=operators, patterns=[])
        return self._replicated[several]

    def most_similar(self, several: frozenset[str]) -> dict[str, int]:
        """Return the index of the most similar pattern for each operator.

        Patterns compare by the operator and its neighbours first, then by all operators; the first of equal ones wins.

        Args:
            several: The operators with several replicas.
        """

        def difference(name: str, number: int) -> tuple[int, int]:
            other = several ^ {*self.patterns[number].several}
            return len(other & self._near[name]), len(other)

        return {name: min(range(len(self.patterns)), key=partial(difference, name)) for name in self.by_name}

    def mapped(self, change: Callable[[Operator], Operator]) -> Graph:
        """Return the graph with its operators changed, in all patterns."""
        patterns = [
            pattern.changed(operators=[change(operator) for operator in pattern.operators]) for pattern in self.patterns
        ]
        operators = [change(operator) for operator in self.operators]
        return self.changed(operators=operators, patterns=patterns)
