"""Commands of the release: run one, and keep the end of its output as the reason if it fails."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from streaming_core.errors import CommandFailed


def output(
    folder: Path, command: Sequence[str], environment: Mapping[str, str] | None = None, limit: float | None = None
) -> str:
    """Run a command in a folder and return its standard output.

    Args:
        folder: The working directory.
        command: Program and arguments.
        environment: All environment variables. None: those of this process.
        limit: The longest time in seconds.

    Raises:
        CommandFailed: The exit code is not 0. The message has the last lines of the output.
    """
    process = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment, timeout=limit
    )
    if process.returncode:
        lines = (process.stdout + process.stderr).strip().splitlines()
        reason = " / ".join(lines[-3:])
        raise CommandFailed(f"`{' '.join(command)}` ended with exit code {process.returncode}: {reason}")
    return process.stdout
