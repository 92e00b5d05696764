"""Processor time and energy of a pass. The energy is that of the processor packages (RAPL).

Linux counts it in its powercap tree, in the files `intel-rapl:N/energy_uj`. A package counts the energy of all
processes. Counters move about once a millisecond. They wrap around at `max_energy_range_uj`, within minutes, so a
longer measurement reads them in between. Most virtual machines have no such tree, and most systems let only root read
it. Then there is no figure, and `why` gives the reason.

Source: Linux, Documentation/power/powercap; the tree has the same layout on processors of other makers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path("/sys/class/powercap")


class Meter:
    """The energy counters of the packages below `root`.

    Attributes:
        why: The reason for having no figure; empty while there is one.
    """

    def __init__(self, root: Path = ROOT):
        self.why = ""
        self._packages: list[tuple[Path, int]] = []  # counter, and the value at which it wraps around
        try:
            # `intel-rapl:0:1` is a part of package 0; `intel-rapl-mmio:0` counts the same package once more.
            for zone in sorted(root.glob("intel-rapl:*")):
                if zone.name.count(":") == 1 and (zone / "name").read_text().startswith("package"):
                    top = int((zone / "max_energy_range_uj").read_text())
                    self._packages.append((zone / "energy_uj", top))
        except (OSError, ValueError) as error:
            self._give_up(error)
        if not self._packages and not self.why:
            self.why = "this machine has no energy counters: Linux's powercap tree lists no package"
        self.read()

    def read(self) -> list[int] | None:
        """Read the counters, in microjoules. After the first failure, return None."""
        if self.why:
            return None
        try:
            return [int(counter.read_text()) for counter, _ in self._packages]
        except (OSError, ValueError) as error:
            self._give_up(error)
            return None

    def joules(self, before: list[int] | None, after: list[int] | None) -> float | None:
        """The energy between two readings, less than one turn of the counters apart; None without both."""
        if before is None or after is None:
            return None
        turns = zip(before, after, (top for _, top in self._packages), strict=True)
        return sum((b - a) + (top if b < a else 0) for a, b, top in turns) / 1e6

    def _give_up(self, error: Exception) -> None:
        self.why = f"cannot read the energy counters: {getattr(error, 'strerror', None) or error}"


class Spent:
    """Processor time and energy of a pass while the engine is active: seconds, and joules if they can be read."""

    def __init__(self, meter: Meter | None, cpu: float = 0.0):
        self.cpu = cpu
        self.joules = 0.0 if meter is not None and not meter.why else None
        self._meter = meter

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Add the time and the energy of the block."""
        meter = self._meter if self.joules is not None else None
        before = meter.read() if meter is not None else None
        started = time.process_time()
        yield
        self.cpu += time.process_time() - started
        if meter is not None and self.joules is not None:
            more = meter.joules(before, meter.read())
            self.joules = None if more is None else self.joules + more
