"""Prints the facts of a host, and whether it can run the engine. The program is part of the build to run.

    machine.py LOCKSTEP_HOME TOKEN

The program prints one line of JSON. TOKEN is a folder in LOCKSTEP_HOME that the caller made. The program reads the file
`here` in it, and copies it to the file `there`. If LOCKSTEP_HOME is shared, the caller finds that copy.

The program uses the standard library. What needs other packages comes last, because the host may lack them.
"""

import contextlib
import json
import os
import platform
import re
import shutil
import socket
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from streaming_core.run.processor import governor, processor  # noqa: E402

SYSTEM = Path("/sys/devices/system")
REQUIREMENT = re.compile(r"Requires-Dist: (\S+)==(\S+)")


def facts(home: str) -> dict[str, Any]:
    """The facts of this machine.

    Args:
        home: LOCKSTEP_HOME; its disk is looked at.
    """
    return {
        "machine": socket.gethostname(),
        "python": platform.python_version(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "nodes": sum(1 for _ in (SYSTEM / "node").glob("node[0-9]*")) or 1,
        "governor": governor(),
        "isolated": first("(.*)", SYSTEM / "cpu/isolated") or "",
        "load": os.getloadavg()[0],
        "memory_bytes": int(first(r"MemAvailable:\s*(\d+) kB", "/proc/meminfo") or 0) * 1024 or None,
        "disk_bytes": free_disk(home),
    }


def first(pattern: str, path: str | Path) -> str | None:
    """The first match of a pattern in a file of the system; None if there is none, or no such file."""
    with contextlib.suppress(OSError):
        match = re.search(pattern, Path(path).read_text())
        return match[1].strip() if match else None
    return None


def free_disk(folder: str) -> int | None:
    """Free bytes of a folder's disk; None if the folder cannot be read."""
    with contextlib.suppress(OSError):
        return shutil.disk_usage(folder).free
    return None


def token(folder: str) -> str | None:
    """Read the caller's token and leave a copy beside it; returns why that fails, or None."""
    try:
        content = Path(folder, "here").read_bytes()
        Path(folder, "there").write_bytes(content)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def differences() -> dict[str, tuple[str, str | None]]:
    """Packages whose version is not the one that the build needs: name -> needed version, version here or None."""
    (described,) = ROOT.glob("*.dist-info/METADATA")
    needed = dict(REQUIREMENT.findall(described.read_text()))
    return {name: (needed[name], version) for name in needed if (version := installed(name)) != needed[name]}


def installed(name: str) -> str | None:
    """The installed version of a package; None if it is missing."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


def fault() -> str | None:
    """The reason why the engine of this build does not load here; None if it does."""
    try:
        from streaming_core.run import probe

        probe.topology()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def main(home: str, folder: str) -> None:
    """Print the facts of this host, what came of the token, and what keeps the engine from running."""
    about = {**facts(home), "unshared": token(folder), "differences": differences(), "fault": None}
    if not about["differences"]:
        about["fault"] = fault()
    print(json.dumps(about))


if __name__ == "__main__":
    main(*sys.argv[1:])
