"""The options of `lockstep run`, which are fields of RegressionSpec, and the conf of the run that they make."""

from __future__ import annotations

import json
from typing import Annotated, Any, get_args

import typer

from infra import checkout
from infra.checkout import home
from infra.fields import CHOICES, description
from streaming_core.errors import BadInput
from streaming_core.language.parameters import integer, real
from streaming_core.regression.fleet import LOCAL
from streaming_core.regression.request import AUTO_THREADS, RegressionSpec

DEFAULTS: dict[str, Any] = {
    name: field.get_default(call_default_factory=True) for name, field in RegressionSpec.model_fields.items()
}

EXAMPLES = {"params": '{"wc": {"skew": 1.0}}', "data": '{"wc": "lines"}'}  # of fields that take JSON
# Only a matrix, the form and the API set these fields.
NOT_OPTIONS = ("partitionings", "partitions", "slice", "throughput_window", "linger", "controllers", "orders")


def _option(name: str) -> Any:
    """A field as an option: a flag, or text. RegressionSpec checks the value."""
    default = DEFAULTS[name]
    match default:
        case bool():
            return Annotated[bool | None, typer.Option(f"--{name}/--no-{name}", help=description(name))]
        case list():
            shape, shown = "A,B,...", "all" if default == CHOICES.get(name, [])[1:] else ", ".join(map(str, default))
        case dict():
            shape, shown = "JSON", "none"
        case str():
            choices = get_args(RegressionSpec.model_fields[name].annotation)
            shape, shown = "|".join(choices) or "TEXT", default or "none"
        case _:
            shape, shown = "N", str(default)
    values = f" Values: {', '.join(CHOICES[name])}." if name in CHOICES else ""
    text = f"{description(name)}{values} Default: {shown}."
    return Annotated[str | None, typer.Option(f"--{name}", metavar=shape, help=text)]


OPTIONS = {name: _option(name) for name in DEFAULTS if name not in NOT_OPTIONS}


def conf(options: dict[str, str | bool], named: str | None) -> dict[str, Any]:
    """The conf of a run: only the fields with an option, so that defaults or the matrix give the others.

    Args:
        options: Field -> the text of its option, or the value of its flag.
        named: The name of a matrix, or None.

    Raises:
        BadInput: The task plan_matrix would refuse the request.
    """
    from infra.hosts import build
    from infra.hosts.judgement import this_machine
    from streaming_core.regression import matrices, matrix

    values = {
        name: text if isinstance(text, bool) else _value(name, text, DEFAULTS[name]) for name, text in options.items()
    }
    regression = matrices.request(checkout.MATRICES, home(), values, named).regression
    if regression.gate_against:
        build.resolve(regression.gate_against)
    matrix.cells(regression, matrix.imported(regression, home()), {LOCAL: this_machine(home())})
    return ({"matrix": named} if named else {}) | values


def _value(name: str, text: str, default: object) -> object:
    match default:
        case list():
            items = [item.strip() for item in text.split(",") if item.strip()]
            if not items:
                raise BadInput(f"--{name}: give at least one value")
            if isinstance(default[0], str):
                return items
            return [item if item == AUTO_THREADS and name == "threads" else _number(name, item) for item in items]
        case dict():
            try:
                return json.loads(text)
            except (ValueError, RecursionError) as error:
                raise BadInput(f"--{name}: must be JSON, for example {EXAMPLES[name]}; got {text!r}: {error}") from None
        case str():
            return text
    return _number(name, text)


def _number(name: str, text: str) -> int | float:
    try:
        return real(text) if "." in text or "e" in text.lower() else integer(text)
    except ValueError:
        kinds = f"a number or {AUTO_THREADS}" if name == "threads" else "a number"
        raise BadInput(f"--{name}: must be {kinds}, got {text!r}") from None
