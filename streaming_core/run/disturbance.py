"""Disturbances of a measurement: a machine that is shared, throttled or busy gives other figures."""

from __future__ import annotations

import time

import psutil


class Disturbance:
    """The disturbances between its creation and `seen`."""

    def __init__(self) -> None:
        self._mhz = _mhz()
        self._began, self._before = time.monotonic(), _times()

    def seen(self) -> dict[str, float | None]:
        """Return the disturbances since the creation.

        Returns:
            - steal: the share of the cores' time that the hypervisor gave to others.
            - others: the share that other processes had.
            - preempted: how often per second this process lost a core.
            - mhz_before, mhz_after: the cores' mean frequency, where it is readable.
        """
        (steal, busy, total, own, lost) = (after - before for before, after in zip(self._before, _times(), strict=True))
        seconds = time.monotonic() - self._began
        return {
            "steal": steal / total if total else 0.0,
            # The difference may be negative: the cores and the process have different clocks.
            "others": max(0.0, busy - own) / total if total else 0.0,
            "preempted": lost / seconds if seconds else 0.0,
            "mhz_before": self._mhz,
            "mhz_after": _mhz(),
        }


def _times() -> tuple[float, ...]:
    """Figures since the system began.

    Returns:
        Seconds of all cores together: stolen, at work, and all. Then the seconds of this process, and how often it lost
        a core.
    """
    cores, process = psutil.cpu_times(), psutil.Process()
    steal = getattr(cores, "steal", 0.0)
    # The time of a guest is part of the time of users too.
    total = sum(cores) - getattr(cores, "guest", 0.0) - getattr(cores, "guest_nice", 0.0)
    busy = total - steal - cores.idle - getattr(cores, "iowait", 0.0)
    own = process.cpu_times()
    return steal, busy, total, own.user + own.system, float(process.num_ctx_switches().involuntary)


def _mhz() -> float | None:
    frequency = psutil.cpu_freq()
    return frequency.current if frequency is not None and frequency.current else None
