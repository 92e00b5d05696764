"""The command line in the tests' own process: it ends as it does in a shell, with a code and a line."""

import pytest

from infra.cli import command
from streaming_core import ending


def lockstep(*arguments: str) -> int:
    """The exit code of `lockstep ARGUMENTS`."""
    with pytest.raises(SystemExit) as ended:
        ending.end(command.NAME, lambda: command.main(arguments))
    return ended.value.code
