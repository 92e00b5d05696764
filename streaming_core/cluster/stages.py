"""Stages: how an application is cut for a cluster engine, which moves rows only between stages.

A stage begins with the events, or with an operator that has state. The stateless operators behind it belong to it as
well, up to the next operators with state and the sink. These are the *consumers* of the stage. An operator that several
stages reach runs in each of them, on the rows of that stage.

Rows between stages have a `seq` and a *rank* (`ranks.py`). The rank orders the rows of an event on their way to one
consumer. Each step appends to it. A step that joins several inputs puts the number of the input in front.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from streaming_core.errors import BadInput
from streaming_core.language.application import App
from streaming_core.language.operator import Operator

MOST_INPUTS = 1 << 8  # the number of an input takes eight bits of a rank


@dataclass(frozen=True)
class Step:
    """Operators that run one behind the other, without other rows between them.

    Attributes:
        operators: The first one, and stateless ones behind it.
        inputs: Pairs of two numbers. The first is that of an earlier step of the stage, or -1 for the stage's own rows.
            The second is that of the input of the first operator.
    """

    operators: tuple[Operator, ...]
    inputs: tuple[tuple[int, int], ...]

    @property
    def joins(self) -> bool:
        """Whether the first operator has several inputs, so that ranks begin with their numbers."""
        return len(self.operators[0].inputs) > 1


@dataclass(frozen=True)
class Exit:
    """The rows of a stage for one consumer.

    Attributes:
        consumer: An operator with state, or the sink.
        inputs: As in `Step`, with the numbers of the consumer's inputs.
    """

    consumer: Operator
    inputs: tuple[tuple[int, int], ...]

    @property
    def joins(self) -> bool:
        """As in `Step`."""
        return len(self.consumer.inputs) > 1


@dataclass(frozen=True)
class Stage:
    """A part of an application that a task runs without moving rows; see the module.

    Attributes:
        operator: The operator with state that it begins with; None: the events.
        steps: In topological order. The first one of a stage with an operator begins with that operator.
        exits: One for each consumer.
    """

    operator: Operator | None
    steps: tuple[Step, ...]
    exits: tuple[Exit, ...]

    @cached_property
    def name(self) -> str:
        """`events`, or the name of its operator."""
        return self.operator.name if self.operator else "events"

    def shares(self, shares: int) -> int:
        """The number of tasks, `shares` at most. An operator without keys has one state, so one task."""
        return 1 if self.operator is not None and not has_keys(self.operator) else shares


def has_keys(operator: Operator) -> bool:
    """Whether the rows of an operator are dealt to shares of its keys."""
    return operator.kind in ("partitioned", "windowed")


def has_state(operator: Operator) -> bool:
    """Whether Spark must move rows before the operator can run."""
    return has_keys(operator) or operator.kind == "stateful"


def stages(app: App) -> list[Stage]:
    """The stages of an application, in topological order.

    Raises:
        BadInput: An operator has more inputs than a rank can number.
    """
    readers: dict[int, list[Operator]] = {id(operator): [] for operator in app.operators}
    for operator in app.operators:
        if len(operator.inputs) > MOST_INPUTS:
            raise BadInput(
                f"application {app.name}: executor spark supports at most {MOST_INPUTS} inputs of an operator; "
                f"{operator.name} has {len(operator.inputs)}"
            )
        for before in operator.inputs:
            readers[id(before)].append(operator)
    source = app.operators[0]
    return [_stage(app, operator, readers) for operator in app.operators if operator is source or has_state(operator)]


def _stage(app: App, first: Operator, readers: dict[int, list[Operator]]) -> Stage:
    """The stage that begins with this operator, or with the source."""
    is_source = first is app.operators[0]
    steps: list[Step] = []
    step_of: dict[int, int] = {}  # the step that the last operator with this id ends
    if is_source:
        step_of[id(first)] = -1
    else:
        steps.append(Step((first,), ((-1, 0),)))
        step_of[id(first)] = 0

    def inputs_of(operator: Operator) -> tuple[tuple[int, int], ...]:
        known = enumerate(operator.inputs)
        return tuple((step_of[id(before)], number) for number, before in known if id(before) in step_of)

    reached = {id(first)}
    exits = []
    for operator in app.operators:
        if operator is first or not any(id(before) in reached for before in operator.inputs):
            continue
        if has_state(operator) or operator.kind == "sink":
            exits.append(operator)
            continue
        reached.add(id(operator))
        before = operator.inputs[0]
        number = step_of.get(id(before), -1)
        # An operator with windows is a program alone.
        if (
            len(operator.inputs) == 1
            and number >= 0
            and len(readers[id(before)]) == 1
            and steps[number].operators[-1] is before
            and steps[number].operators[0].kind != "windowed"
        ):
            steps[number] = Step((*steps[number].operators, operator), steps[number].inputs)
            step_of[id(operator)] = number
        else:
            steps.append(Step((operator,), inputs_of(operator)))
            step_of[id(operator)] = len(steps) - 1
    return Stage(
        None if is_source else first, tuple(steps), tuple(Exit(consumer, inputs_of(consumer)) for consumer in exits)
    )
