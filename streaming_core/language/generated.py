"""Functions of operators that no file holds, because Lockstep writes them: those of streams, aggregates and joins.

Everything that reads an application reads them as if they stood in its file: `inspect` finds their sources.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable
from typing import Any


def function(module: str, text: str, names: dict[str, Any] | None = None) -> Callable:
    """The function with this source, as one of `module`, which can use what has these names.

    Its file is a name that stands for this very text.
    """
    name = text.split("(")[0].removeprefix("def ")
    file = f"<{name} {hashlib.sha256(text.encode()).hexdigest()[:8]}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    namespace: dict[str, Any] = {**(names or {}), "__name__": module}
    exec(compile(text, file, "exec"), namespace)
    made = namespace[name]
    assert callable(made)
    return made


def text_of(function: Callable) -> str:
    """The source of a generated function; empty if the function lies in a file."""
    file = function.__code__.co_filename
    return "".join(linecache.getlines(file)) if file.startswith("<") else ""
