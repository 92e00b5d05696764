"""Processor time, energy and loads from memory nodes of a pass. The energy is that of the processor packages (RAPL).

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

from streaming_core.run.node_loads import Counters, NodeLoads

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
    """The expense of a pass while the engine is active.

    Attributes:
        cpu: Seconds of processor time.
        joules: Energy; None if it cannot be read.
        node_loads: Loads from memory nodes; None if they are not counted.
    """

    def __init__(self, meter: Meter | None, cpu: float = 0.0, counters: Counters | None = None):
        self.cpu = cpu
        self.joules = 0.0 if meter is not None and not meter.why else None
        self.node_loads = NodeLoads(0, 0) if counters is not None and not counters.why else None
        self._meter, self._counters = meter, counters

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Add the expense of the block."""
        meter = self._meter if self.joules is not None else None
        before = meter.read() if meter is not None else None
        loads = self._counters.read() if self._counters is not None else None
        started = time.process_time()
        yield
        self.cpu += time.process_time() - started
        if self.node_loads is not None and self._counters is not None:
            more_loads = zip(self.node_loads, loads or (0, 0), self._counters.read() or (0, 0), strict=True)
            self.node_loads = NodeLoads(*(known + after - before for known, before, after in more_loads))
        if meter is not None and self.joules is not None:
            more = meter.joules(before, meter.read())
            self.joules = None if more is None else self.joules + more
