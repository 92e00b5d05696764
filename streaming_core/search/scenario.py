"""What a property of an author sees (stub)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa


@contextmanager
def counted_branches() -> Iterator[set[int]]:
    """Count the branches that interpreters reach during the block."""
    yield set()


def broken(app: Any, params: dict[str, Any], events: pa.Table, names: Sequence[str] = ()) -> Iterator[Any]:
    """The outcome of each property that does not hold."""
    yield from ()
