"""Whether an application keeps to the operator language: yes, or the one line that says where it does not, and why.

Asked where an application is loaded, with its defaults, so that no command takes one that breaks the language; where a
workload is asked for and where kernels are compiled, with the parameters at hand. These decide sizes, which branches
are ever taken and what constants hold, and with that now and then whether an operator has a type.

Costs a few milliseconds for each application and set of parameters (the largest here, lr, 25), once in a process.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from streaming_core.language.application import App
from streaming_core.language.typed import Program


def accept(app: App, params: dict[str, Any]) -> None:
    """Reads every operator of an application, bound with these parameters.

    Raises:
        BadInput: one is not part of the language; the line says where and why.
    """
    _read(app, tuple(params.items()))


@lru_cache(256)
def _read(app: App, params: tuple[tuple[str, Any], ...]) -> None:
    Program(app, dict(params))
