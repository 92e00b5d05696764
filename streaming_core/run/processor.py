"""The processor, as the system describes it.

The module uses the standard library only, because a host describes itself before Lockstep knows its packages.
"""

from __future__ import annotations

import platform
from pathlib import Path

GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def processor() -> str:
    """The processor's name, as the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


def governor(path: Path = GOVERNOR) -> str | None:
    """The governor of the cores' frequency; None where the system has none or does not tell."""
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
