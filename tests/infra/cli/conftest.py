"""The command line in the tests' own process: it ends as it does in a shell, with a code and a line."""

import pytest

from infra.cli import command
from streaming_core.process import ending
from streaming_core.regression.home import Home


def lockstep(*arguments: str) -> int:
    """The exit code of `lockstep ARGUMENTS`."""
    with pytest.raises(SystemExit) as ended:
        ending.end(command.NAME, lambda: command.main(arguments))
    return ended.value.code


def refused(captured: pytest.CaptureFixture, *arguments: str) -> str:
    """The one line that bad input gets."""
    assert lockstep(*arguments) == 2
    out, error = captured.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    return error


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")
