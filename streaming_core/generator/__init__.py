"""What generators are made of: addressed draws, distributions, periods, keys, lines of text; and shared inputs.

    from streaming_core.generator import Draws, zipf

All vectorised. The same events come out on every host, however a workload is cut into slices.
"""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from pathlib import Path

from streaming_core.generator.distributions import Discrete, bell, proportional, weighted, zipf
from streaming_core.generator.draws import Draws, mix64, of_eight, splitmix64
from streaming_core.generator.keys import Keys
from streaming_core.generator.periods import by_period
from streaming_core.generator.tokens import Tokens, words

__all__ = [
    "Discrete",
    "Draws",
    "Keys",
    "Tokens",
    "bell",
    "by_period",
    "mix64",
    "of_eight",
    "proportional",
    "splitmix64",
    "version",
    "weighted",
    "words",
    "zipf",
]


@cache
def version() -> str:
    """16 hex digits over the files of this package and the version of Python: part of every workload's address."""
    content = hashlib.sha256(repr(sys.version_info[:2]).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        content.update(path.name.encode() + b"\0" + path.read_bytes())
    return content.hexdigest()[:16]
