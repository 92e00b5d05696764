"""What the states of an application consist of, as a checkpoint declares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from streaming_core.language.bound import BoundApp
from streaming_core.language.record import Record, Scalar, Text

Declarations = dict[str, list[list[str]]]  # the name and the type of each field, by table or operator


def declarations(bound: BoundApp) -> Declarations:
    """The fields of the rows and states of an application, keys first, by table and operator."""
    states = {}
    for table in bound.tables:
        key = [] if table.index is None else [["key", _type(table.index.key)]]
        states[table.name] = key + _fields(table.declared.row)
    for operator in bound.app.operators:
        if operator.window is not None:
            window = operator.window
            several = len(window.states) > 1
            states[operator.name] = _fields(window.key) + [
                field for number, state in enumerate(window.states) for field in _fields(state, f"{number}." * several)
            ]
        elif operator.state is not None:
            keys = [[name, _type(operator.input.fields[name])] for name in operator.key]
            states[operator.name] = keys + _fields(operator.state)
    return states


def difference(before: Mapping[str, list[list[str]]], now: Mapping[str, list[list[str]]]) -> str | None:
    """The first difference of two declarations: `state count: field n was i64, now i32`; None if they are the same."""
    for state in [*before, *now]:
        if state not in now or state not in before:
            return f"state {state} was {'removed' if state in before else 'added'}"
        old, new = [{row[0]: row[1] for row in of[state]} for of in (before, now)]
        for name in [*old, *new]:
            if name not in new or name not in old:
                return f"state {state}: field {name} was {'removed' if name in old else 'added'}"
            if old[name] != new[name]:
                return f"state {state}: field {name} was {old[name]}, now {new[name]}"
        if list(old) != list(new):
            return f"state {state}: its fields have another order"
    return None


def _fields(record: Record, prefix: str = "") -> list[list[str]]:
    return [[prefix + name, _type(kind)] for name, kind in record.fields.items()]


def _type(kind: Any) -> str:
    """A type as an application declares it, such as `Ring[u8, window]`."""
    match kind:
        case Scalar():
            return kind.declared
        case Text():
            return "text"
        case Record():
            return f"({', '.join(f'{name}: {_type(field)}' for name, field in kind.fields.items())})"
    if is_dataclass(kind):
        return f"{type(kind).__name__}[{', '.join(_type(getattr(kind, field.name)) for field in fields(kind))}]"
    return str(kind)
