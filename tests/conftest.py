"""What all tests share: machine code, compiled by the first test of a run that needs it.

Tests have homes of their own, and would compile everything in each of them. Code lies under an address that covers all
it was made from, so that sharing it changes no result; what is said of keeping it is tested in unit/test_machine.py.
"""

import os
from pathlib import Path

import pytest

from streaming_core import machine


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory):
    """The folder of kept machine code of this run: that of `make test`, else one for all its processes."""
    if home := os.environ.get("LOCKSTEP_HOME"):
        folder = Path(home).absolute() / "compiled"
    else:
        base = tmp_path_factory.getbasetemp()
        folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "kept", lambda: machine.Kept(folder))
        yield folder


@pytest.fixture(scope="session")
def with_compiled(compiled):
    """Has a home of another process share the machine code, too; returns it."""

    def share(home: Path) -> Path:
        home.mkdir(parents=True, exist_ok=True)
        (home / "compiled").symlink_to(compiled)
        return home

    return share
