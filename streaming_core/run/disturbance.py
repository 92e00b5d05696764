"""What else went on while something was measured: a machine that is shared, throttled or busy gives other figures."""

from __future__ import annotations

import time

import psutil


class Disturbance:
    """Counts from where it is made to `seen`."""

    def __init__(self) -> None:
        self._mhz = _mhz()
        self._began, self._before = time.monotonic(), _times()

    def seen(self) -> dict[str, float | None]:
        """steal: share of the cores' time that the hypervisor gave to others; others: that other processes had;
        preempted: how often a second this process lost a core; mhz_before, mhz_after: the cores' mean frequency, where
        it can be read."""
        (steal, busy, total, own, lost) = (after - before for before, after in zip(self._before, _times(), strict=True))
        seconds = time.monotonic() - self._began
        return {
            "steal": steal / total if total else 0.0,
            # Clocks of the cores and of a process are different ones.
            "others": max(0.0, busy - own) / total if total else 0.0,
            "preempted": lost / seconds if seconds else 0.0,
            "mhz_before": self._mhz,
            "mhz_after": _mhz(),
        }


def _times() -> tuple[float, ...]:
    """Seconds of all cores together since the system began: stolen, at work, in all; of this process; and how often it
    lost a core."""
    cores, process = psutil.cpu_times(), psutil.Process()
    steal = getattr(cores, "steal", 0.0)
    # A guest's time is in user's as well.
    total = sum(cores) - getattr(cores, "guest", 0.0) - getattr(cores, "guest_nice", 0.0)
    busy = total - steal - cores.idle - getattr(cores, "iowait", 0.0)
    own = process.cpu_times()
    return steal, busy, total, own.user + own.system, float(process.num_ctx_switches().involuntary)


def _mhz() -> float | None:
    found = psutil.cpu_freq()
    return found.current if found is not None and found.current else None
