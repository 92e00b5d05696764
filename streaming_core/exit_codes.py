"""The exit codes of `streaming-core` and `lockstep`.

Standard library only: `ending.py` needs it when nothing else can be loaded.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of every command. A signal n that stops a command makes SIGNAL + n."""

    SUCCESS = 0
    FAILED = 1
    BAD_INPUT = 2
    COMMAND_FAILED = 3
    SIGNAL = 128
