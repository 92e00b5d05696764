"""What `lockstep run` is asked for: an option per field of RegressionSpec, and what was given as the run's conf."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from infra import checkout
from infra.checkout import home
from streaming_core.errors import BadInput
from streaming_core.regression.request import RegressionSpec

DEFAULTS: dict[str, Any] = {
    name: field.get_default(call_default_factory=True) for name, field in RegressionSpec.model_fields.items()
}


def _option(name: str) -> Any:
    """A field as an option. It takes text: what a value may be, the field says."""
    default = DEFAULTS[name]
    match default:
        case bool():
            shape, shown = "yes|no", "yes" if default else "no"
        case list():
            shape, shown = "A,B,...", ",".join(map(str, default))
        case dict():
            shape, shown = "JSON", "none"
        case _:
            shape, shown = "N", str(default)
    text = f"{RegressionSpec.model_fields[name].description} Default: {shown}."
    return Annotated[str | None, typer.Option(f"--{name}", metavar=shape, help=text)]


OPTIONS = {name: _option(name) for name in DEFAULTS}


def conf(given: dict[str, str], named: str | None) -> dict[str, Any]:
    """The conf of what was given and nothing else, so that the form's defaults stay the defaults, or the named matrix
    says the rest.

    Raises:
        BadInput: what plan_matrix would refuse.
    """
    from streaming_core.regression import matrices, matrix

    values = {name: _value(name, text, DEFAULTS[name]) for name, text in given.items()}
    regression = matrices.request(checkout.MATRICES, home(), values, named).regression
    matrix.cells(regression, matrix.imported(regression, home()))
    return ({"matrix": named} if named else {}) | values


def _value(name: str, text: str, default: object) -> object:
    match default:
        case bool():
            if text not in ("yes", "no"):
                raise BadInput(f"--{name}: {text!r} is neither yes nor no")
            return text == "yes"
        case list():
            items = [item.strip() for item in text.split(",") if item.strip()]
            if not items:
                raise BadInput(f"--{name}: name at least one")
            return [_number(name, item) for item in items] if isinstance(default[0], int) else items
        case dict():
            try:
                return json.loads(text)
            except (ValueError, RecursionError) as error:
                raise BadInput(f"--{name}: not JSON: {error}") from None
    return _number(name, text)


def _number(name: str, text: str) -> int | float:
    try:
        return float(text) if "." in text or "e" in text.lower() else int(text.replace("_", ""))
    except ValueError:
        raise BadInput(f"--{name}: {text!r} is not a number") from None
