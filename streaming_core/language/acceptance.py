"""The check that an application keeps to the operator language. A violation is one line: where it is, and why.

Loading an application checks it with its defaults, so every command rejects an application that breaks the language.
Making a workload and compiling kernels check it with the parameters in use. Sizes, constants and reachable branches
depend on them, and so may the type of an operator.

A check takes a few milliseconds for each application and set of parameters, once in a process. The largest
application, lr, takes 25.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from streaming_core.language.application import App
from streaming_core.language.typed import Program


def accept(app: App, params: dict[str, Any]) -> None:
    """Accept an application with these parameters.

    Raises:
        BadInput: An operator is not part of the language; the line says where and why.
    """
    _read(app, tuple(params.items()))


@lru_cache(256)
def _read(app: App, params: tuple[tuple[str, Any], ...]) -> None:
    Program(app, dict(params))
