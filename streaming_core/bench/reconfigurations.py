"""What reconfigurations took, and what whoever waits for outputs saw of them. In microseconds; nothing is left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from streaming_core.run.report import Sample

NEAR = 100_000_000  # nanoseconds around a switch in which an output is near it
LARGEST = 5  # of those that took longest


def switched(samples: Sequence[Sample]) -> dict[str, Any]:
    """What the reconfigurations of some passes took, all passes together.

    `switch`: from the request to the last replica concerned having gone over; `heard`: of that, until its event was
    dealt; `waited`: of each replica, for those who lost keys to it. `switch_largest`: time and event, largest first.
    `copied`: bytes of state, of each reconfiguration.
    """
    passes = [[one for one in sample.reconfigurations if one.microseconds is not None] for sample in samples]
    ones = [one for found in passes for one in found]
    times = [one.microseconds for one in ones if one.microseconds is not None]
    largest = sorted(zip(times, (one.event for one in ones), strict=True), reverse=True)
    of_passes = [ranked([one.microseconds for one in found if one.microseconds is not None], 50) for found in passes]
    row: dict[str, Any] = {
        "switches": len(times),
        "switch_p50s_us": [p50 for p50 in of_passes if p50 is not None],
        "switch_over_1ms": sum(time > 1000 for time in times),
        "switch_largest": largest[:LARGEST],
    }
    copied = [one.bytes for one in ones]
    row |= {"copied_p50_bytes": ranked(copied, 50), "copied_max_bytes": max(copied, default=None)}
    heard = [(one.posted - one.asked) / 1e3 for one in ones if one.posted is not None and one.asked is not None]
    waits = [over.waited / 1e3 for sample in samples for one in sample.reconfigurations for over in one.gone_over]
    for name, found in (("switch", times), ("heard", heard), ("waited", waits)):
        row |= {f"{name}_p{rank}_us": ranked(found, rank) for rank in (50, 99)}
        row[f"{name}_max_us"] = max(found, default=None)
    return row


def seen(passes: Iterable[tuple[np.ndarray, Sequence[int]]]) -> dict[str, Any]:
    """What was seen near some events of some passes, each the deliveries and these events, all passes together.

    `gap`: the longest time from a delivery that finished events to the next one; `near`: latencies, in an open loop.
    `gaps_us`: of each pass. A delivery is near if it is so within NEAR of the one that finished one of the events.
    """
    gaps, latencies = [], []
    for deliveries, events in passes:
        at, near = deliveries["at"], np.zeros(len(deliveries), bool)
        places = np.searchsorted(deliveries["event"], np.asarray(events, np.int64))
        for moment in at[places[places < len(at)]]:
            near[np.searchsorted(at, moment - NEAR) : np.searchsorted(at, moment + NEAR, side="right")] = True
        between = np.diff(at)[near[1:] | near[:-1]]
        if len(between):
            gaps.append(float(between.max()) / 1e3)
        latencies.append(deliveries["latency"][near])
    late = np.concatenate([np.empty(0), *latencies]) / 1e3
    late = late[~np.isnan(late)]
    found = {"gap_max_us": max(gaps, default=None), "gaps_us": gaps}
    return found | ({"near_p99_us": ranked(late, 99)} if len(late) else {})


def columns(deliveries: Sequence[dict[str, Any]]) -> np.ndarray:
    """What the runtime has noted, as columns: nanoseconds; latencies are NaN where the loop was not open."""
    rows = [(one["at"], one["event"], np.nan if one["latency"] is None else one["latency"]) for one in deliveries]
    return np.array(rows, [("at", np.int64), ("event", np.int64), ("latency", np.float64)])


def ranked(times: Sequence[float] | np.ndarray, rank: int) -> float | None:
    """A percentile by nearest rank, which is one of the figures that were measured."""
    return float(np.percentile(times, rank, method="inverted_cdf")) if len(times) else None
