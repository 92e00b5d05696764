"""The processor, as the system describes it.

The module uses the standard library only, because a host describes itself before Lockstep knows its packages.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path

SYSTEM = Path("/sys/devices/system")


def processor() -> str:
    """The processor's name, as the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


def governor(system: Path = SYSTEM) -> str | None:
    """The governor of the cores' frequency, such as `performance`; None where the system has none or does not tell.

    Cores with different governors have their numbers behind each: `performance 0-2, powersave 3`.
    """
    cores: dict[str, list[int]] = {}
    for path in system.glob("cpu/cpu[0-9]*/cpufreq/scaling_governor"):
        try:
            cores.setdefault(path.read_text().strip(), []).append(int(path.parts[-3].removeprefix("cpu")))
        except OSError:
            return None
    if len(cores) < 2:
        return next(iter(cores), None)
    return ", ".join(f"{name} {ranges(numbers)}" for name, numbers in sorted(cores.items()))


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in the kernel's form: `0-2,5`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
