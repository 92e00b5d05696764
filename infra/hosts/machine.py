"""Prints the facts of a host, and whether it can run the engine. The program is part of the build to run.

    machine.py LOCKSTEP_HOME [TOKEN]

The program prints one line of JSON. TOKEN is a folder in LOCKSTEP_HOME that the caller made. The program reads the file
`here` in it, and copies it to the file `there`. If LOCKSTEP_HOME is shared, the caller finds that copy. Without TOKEN,
LOCKSTEP_HOME is a folder of this host alone, which the program makes.

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

from streaming_core.run.processor import SYSTEM, governor, processor, ranges  # noqa: E402

GROUPS, PAGES, KERNEL = Path("/sys/fs/cgroup"), Path("/sys/kernel/mm/transparent_hugepage"), Path("/proc/sys/kernel")
REQUIREMENT = re.compile(r"Requires-Dist: (\S+)==(\S+)")


def facts(home: str) -> dict[str, Any]:
    """The facts of this machine that the system tells.

    Args:
        home: LOCKSTEP_HOME; its disk is looked at.
    """
    available = int(first(r"MemAvailable:\s*(\d+) kB", "/proc/meminfo") or 0) * 1024
    quota, memory = limits()
    paranoid, balancing = first("(.*)", KERNEL / "perf_event_paranoid"), first("(.*)", KERNEL / "numa_balancing")
    return {
        "machine": socket.gethostname(),
        "python": platform.python_version(),
        "cpu": processor(),
        "quota": quota,
        "governor": governor(),
        "turbo": turbo(),
        "numa_balancing": None if balancing is None else balancing != "0",
        "transparent_hugepages": first(r"\[(\w+)\]", PAGES / "enabled"),
        "perf_event_paranoid": None if paranoid is None else int(paranoid),
        "isolated": first("(.*)", SYSTEM / "cpu/isolated") or "",
        "load": os.getloadavg()[0],
        "memory_bytes": min(available, memory) if memory is not None else available or None,
        "disk_bytes": free_disk(home),
    }


def places() -> dict[str, Any]:
    """The cores and nodes of this machine, as the engine sees them."""
    from streaming_core.run import cores, probe

    seen = probe.topology()
    sockets = cores.sockets(seen["cores"])
    return {
        "cores": len(seen["cores"]),
        "sockets": sockets,
        "bound": ranges(core["id"] for core in seen["cores"][: sum(sockets)]),
        "distances": seen["distances"],
    }


def turbo(system: Path = SYSTEM) -> str | None:
    """The interface that lets cores exceed their nominal frequency, `off`, or None if the system does not tell."""
    if (off := first("(.*)", system / "cpu/intel_pstate/no_turbo")) is not None:
        return "intel_pstate" if off == "0" else "off"
    if (on := first("(.*)", system / "cpu/cpufreq/boost")) is not None:
        return "cpufreq" if on != "0" else "off"
    return None


def limits(groups: Path = GROUPS, own: str | None = None) -> tuple[float | None, int | None]:
    """What the control groups of this process grant: cores' worth of time, and free bytes of memory. None: no limit.

    Args:
        groups: The file system of control groups, of version 2. With version 1, nothing is found.
        own: The group of this process; None: as the system names it.
    """
    group = first("^0::(.*)$", "/proc/self/cgroup") if own is None else own
    folder, quotas, bytes_ = groups / (group or "/").lstrip("/"), [], []
    for place in (folder, *folder.parents):
        if not place.is_relative_to(groups):
            break
        if (quota := first(r"^(\d+ \d+)$", place / "cpu.max")) is not None:
            granted, period = map(int, quota.split())
            quotas.append(granted / period)
        if (most := first(r"^(\d+)$", place / "memory.max")) is not None:
            bytes_.append(max(0, int(most) - int(first(r"^(\d+)$", place / "memory.current") or 0)))
    return min(quotas, default=None), min(bytes_, default=None)


def first(pattern: str, path: str | Path) -> str | None:
    """The first match of a pattern in a file of the system; None if there is none, or no such file."""
    with contextlib.suppress(OSError):
        match = re.search(pattern, Path(path).read_text(), re.MULTILINE)
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


def main(home: str, folder: str = "") -> None:
    """Print the facts of this host, what came of the token, and what keeps the engine from running."""
    if not folder:
        os.makedirs(home, mode=0o700, exist_ok=True)
    unshared = token(folder) if folder else None
    about = {**facts(home), "unshared": unshared, "differences": differences(), "fault": None}
    if not about["differences"]:
        try:
            about |= places()
        except Exception as error:  # the engine of this build does not load here
            about["fault"] = f"{type(error).__name__}: {error}".splitlines()[0]
    print(json.dumps(about))


if __name__ == "__main__":
    main(*sys.argv[1:])
