"""Fixtures of end-to-end tests: a copy of the checkout, and a shell in it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import checkout
from tests.support.checkout import FOREIGN

PATIENCE = 900


@pytest.fixture(scope="module")
def copied(tmp_path_factory) -> Path:
    """A copy of the checkout, which a test may change."""
    return checkout.copy(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def user_environment(copied, tmp_path_factory, with_compiled) -> dict[str, str]:
    """The variables of a shell in the copy; everything that commands write lies in a temporary folder."""
    folder = tmp_path_factory.mktemp("user")
    with_compiled(folder / "lockstep")
    return checkout.environment(copied) | checkout.homes(folder) | {"XDG_CONFIG_HOME": str(folder / ".config")}


@pytest.fixture
def shell(copied, user_environment) -> Callable[[str], str]:
    """Runs a block of commands in the copy, as a page has it; returns what it prints on both streams.

    Other programs have left their variables in the shell, but for those that a page's own `git` and `python` heed.
    """
    others = {name: value for name, value in FOREIGN.items() if not name.startswith(("GIT_", "NUMBA_", "PYTHON"))}

    def run(block: str) -> str:
        command = ["bash", "-euo", "pipefail", "-c", block]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(
            command, cwd=copied, env=others | user_environment, text=True, timeout=PATIENCE, check=False, **pipes
        )
        assert done.returncode == 0, block + done.stdout
        return done.stdout

    return run
