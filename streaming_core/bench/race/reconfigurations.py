"""How long reconfigurations take, and their effect on outputs. All times are in microseconds; nothing is left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from streaming_core.run.report import Sample

NEAR = 100_000_000  # outputs within so many nanoseconds of a switch are near it
LONG = 1_000  # microseconds; longer switches are listed
LARGEST = 5  # number of longest switches to list, if fewer are long


def duration_columns(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return how long the reconfigurations of some passes took, over all passes.

    `switch` lasts from the request until the last affected replica has switched over. `heard` is the part until the
    source deals the first event of the new epoch. `waited` is how long each replica waits for the former owners of its
    new keys. `switch_largest` lists time and event of all long switches, or of the largest ones if few are long.
    `copied` counts bytes of state per reconfiguration.
    """
    passes = [[change for change in sample.reconfigurations if change.microseconds is not None] for sample in samples]
    ones = [change for of_pass in passes for change in of_pass]
    times = [change.microseconds for change in ones if change.microseconds is not None]
    largest = sorted(zip(times, (change.event for change in ones), strict=True), reverse=True)
    long = sum(time > LONG for time in times)
    of_passes = [
        percentile([change.microseconds for change in of_pass if change.microseconds is not None], 50)
        for of_pass in passes
    ]
    row: dict[str, Any] = {
        "switches": len(times),
        "switch_p50s_us": [p50 for p50 in of_passes if p50 is not None],
        "switch_over_1ms": long,
        "switch_largest": largest[: max(LARGEST, long)],
    }
    copied = [change.bytes for change in ones]
    row |= {"copied_p50_bytes": percentile(copied, 50), "copied_max_bytes": max(copied, default=None)}
    heard = [
        (change.posted - change.requested) / 1e3
        for change in ones
        if change.posted is not None and change.requested is not None
    ]
    waits = [over.waited / 1e3 for sample in samples for change in sample.reconfigurations for over in change.gone_over]
    for name, values in (("switch", times), ("heard", heard), ("waited", waits)):
        row |= {f"{name}_p{rank}_us": percentile(values, rank) for rank in (50, 99)}
        row[f"{name}_max_us"] = max(values, default=None)
    return row


def output_columns(passes: Iterable[tuple[np.ndarray, Sequence[int]]]) -> dict[str, Any]:
    """Return the gaps and latencies of outputs near some events, over all passes.

    `gap` is the longest time between two deliveries that finish events; `gaps_us` has that of each pass. `near` are
    latencies, if the source is open-loop. A delivery is near if it is within NEAR of one that finishes such an event.

    Args:
        passes: The deliveries of each pass, and the events.
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
    gap_columns = {"gap_max_us": max(gaps, default=None), "gaps_us": gaps}
    return gap_columns | ({"near_p99_us": percentile(late, 99)} if len(late) else {})


def columns(deliveries: Sequence[dict[str, Any]]) -> np.ndarray:
    """Return the deliveries of the runtime as columns, in nanoseconds; latencies are NaN without an open loop."""
    rows = [
        (delivery["at"], delivery["event"], np.nan if delivery["latency"] is None else delivery["latency"])
        for delivery in deliveries
    ]
    return np.array(rows, [("at", np.int64), ("event", np.int64), ("latency", np.float64)])


def percentile(times: Sequence[float] | np.ndarray, rank: int) -> float | None:
    """Return a percentile by nearest rank, so one of the measured values; None without values."""
    return float(np.percentile(times, rank, method="inverted_cdf")) if len(times) else None
