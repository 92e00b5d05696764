"""Functions of operators that Lockstep writes itself: those of streams, aggregates and joins.

No file holds them, but `inspect` finds their sources. So every reader treats them like functions of the application's
file.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.language.declaration import NAME_RULE, is_name


def function(module: str, text: str, names: dict[str, Any] | None = None) -> Callable:
    """Compile a function from its source.

    Args:
        module: The module that the function appears to belong to.
        text: The source. The name of the function's file identifies this text.
        names: The objects that the function can use, by name.
    """
    name = text.partition("\n")[0].rpartition("(")[0].removeprefix("def ")
    if not is_name(name):
        raise BadInput(f"invalid name {name!r} of an operator; {NAME_RULE}")
    file = f"<{name} {hashlib.sha256(text.encode()).hexdigest()[:8]}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    namespace: dict[str, Any] = {**(names or {}), "__name__": module}
    exec(compile(text, file, "exec"), namespace)
    compiled = namespace[name]
    assert callable(compiled)
    return compiled
