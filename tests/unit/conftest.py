"""What several of these tests need."""

import sys

import pytest

import streaming_core.apps
from streaming_core.apps import registry
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


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The folder of the applications, empty: a test puts files into it."""
    monkeypatch.setattr(registry, "_HERE", tmp_path)
    monkeypatch.setattr(streaming_core.apps, "__path__", [str(tmp_path)])
    yield tmp_path
    for name in list(sys.modules):
        if name.startswith("streaming_core.apps.") and not name.endswith(".registry"):
            file = getattr(sys.modules[name], "__file__", "") or ""
            if file.startswith(str(tmp_path)):
                del sys.modules[name]
