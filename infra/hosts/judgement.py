"""Judges whether a host can run cells, from what the host says of itself (infra/hosts/machine.py)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from infra.hosts import machine
from infra.hosts.sharing import SKEW_SECONDS
from streaming_core.regression.fleet import LOCAL
from streaming_core.regression.home import Home
from streaming_core.regression.preflight import Preflight

MEMORY_BYTES = 512 << 20  # a cell of the smallest matrix peaks at half of it; with less the system kills the engine
DISK_BYTES = 512 << 20  # room for the outputs of some cells; a full disk fails a cell in its middle


@contextmanager
def token(home: Home) -> Iterator[Path]:
    """Make a folder in LOCKSTEP_HOME with a file `here`, which the host copies to `there` if it sees the folder."""
    folder = home.root / f".preflight-{uuid4().hex}"
    folder.mkdir(parents=True)
    try:
        (folder / "here").write_text(uuid4().hex)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_token_here(folder: Path) -> bool:
    """Whether the host's copy of the token is here."""
    try:
        return (folder / "there").read_bytes() == (folder / "here").read_bytes()
    except OSError:
        return False


def this_machine(home: Home, host: str = LOCAL) -> Preflight:
    """The preflight of this machine, under the name of its connection."""
    return judge(host, machine.facts(str(home.root)) | machine.places())


def judge(host: str, facts: Mapping[str, Any], build: str = "", skew: float = 0.0, is_shared: bool = True) -> Preflight:
    """The preflight of a host that answered.

    Args:
        host: The id of its connection.
        facts: What `machine.main` printed there, or `machine.facts` of this machine.
        build: The digest of its build; empty for this machine.
        skew: Seconds by which its clock is ahead.
        is_shared: Whether its copy of the token arrived here.
    """
    fields = {name: facts[name] for name in facts if name in Preflight.__dataclass_fields__}
    return Preflight(host, _reason(host, facts, skew, is_shared), build=build, skew_seconds=skew, **fields)


def _reason(host: str, facts: Mapping[str, Any], skew: float, is_shared: bool) -> str | None:
    """The first fault of a host with its remedy; None if there is none."""
    if facts.get("differences"):
        wrong = [f"{name} {version or 'is missing'}" for name, (_, version) in facts["differences"].items()]
        return f"its packages differ from those here ({', '.join(wrong)}): type `lockstep hosts --install {host}`"
    if facts.get("fault"):
        return f"the engine does not load there ({facts['fault']}): give it a system as new as this one"
    if facts.get("unshared") or not is_shared:
        reason = facts.get("unshared") or "what it writes there does not arrive here"
        return (
            f"it does not share LOCKSTEP_HOME ({reason}): mount the folder there, or remove lockstep_home from the "
            "extra of the connection, so that Lockstep sends the data"
        )
    if abs(skew) > SKEW_SECONDS:
        return (
            f"its clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the one here: "
            "synchronise the clocks of both machines (NTP)"
        )
    memory, disk = facts["memory_bytes"], facts["disk_bytes"]
    if memory is not None and memory < MEMORY_BYTES:
        return f"it has {_mb(memory)} of free memory, and needs {_mb(MEMORY_BYTES)}: end other programs there"
    if disk is not None and disk < DISK_BYTES:
        return (
            f"the disk of LOCKSTEP_HOME has {_mb(disk)} of free space there, and a run needs {_mb(DISK_BYTES)}: "
            "make room, for example with `lockstep prune`"
        )
    return None


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
