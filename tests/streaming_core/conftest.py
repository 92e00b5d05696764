"""Fixtures that several of these tests need."""

import pytest

from streaming_core.cli import main


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs `streaming-core ...` in this process; returns (exit code, stdout, stderr)."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["streaming-core", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run
