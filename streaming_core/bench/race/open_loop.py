"""Latencies from an open-loop source: at equal absolute rates, and at rates that change during a pass.

A latency starts at an event's intended arrival (end to end), or at the start of its batch's processing. Latencies at
equal rates leave out the first and the last fifth of the events.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from streaming_core.bench.race.statistics import summary
from streaming_core.bench.race.turns import Pass
from streaming_core.run.one_pass import Rates
from streaming_core.run.report import Sample

INSTANTS = 60  # of a pass: points of a chart
FEW = 12  # phases that are told one by one
BIN = 0.1  # seconds over which a latency is averaged to find spikes
SPIKE = 10  # a spike is an average above so many times the median average

Row = dict[str, Any]


def under_load(load: float, rate: float, passes: Sequence[Pass]) -> Row:
    """Return the columns of passes at one rate: latencies in microseconds, and costs per event."""
    row: Row = {"load": load, "offered_per_s": rate, "rounds": {}}
    for kind, figure in itertools.product(("end_to_end", "processing"), ("mean", "p99")):
        name = f"{kind}_{figure}_us"
        row["rounds"][name] = [getattr(pass_, kind)(figure) for pass_ in passes]
        row |= summary(name, row["rounds"][name])
    for name in ("cpu_ns", "energy_nj"):
        row["rounds"][f"loaded_{name}"] = [getattr(pass_, name) for pass_ in passes]
        row |= summary(f"loaded_{name}", row["rounds"][f"loaded_{name}"])
    return row


def rates_of_phases(phases: Sequence[tuple[float, float]], peak: float, events: int) -> Rates:
    """Return the rates, each with its first event, that spread all events over consecutive phases.

    Args:
        phases: The length of each phase, as a part of the whole, and its share of the peak rate.
        peak: The peak rate, in events per second.
        events: The number of events.
    """
    parts = [lasts * share for lasts, share in phases]
    rates: Rates = []
    for (_, share), before in zip(phases, itertools.accumulate([0.0, *parts]), strict=False):
        first = round(events * before / sum(parts))
        if not rates or first > rates[-1][0]:
            rates.append((first, share * peak))
    return rates


def own_rates(ts: np.ndarray, work: np.ndarray, share: float, peak: float) -> Rates:
    """Return the rates at which events arrive by their own times, at a speed that this machine sustains.

    Seconds of event time take the same time each. Within a second, events arrive evenly. At the speed chosen, the
    second with most work takes a share of the peak rate.

    Args:
        ts: The times of the events, in milliseconds, ascending.
        work: The work of each event, in any unit.
        share: The share of the peak rate.
        peak: The peak rate over all events, in events per second.
    """
    seconds, firsts, counts = np.unique(ts // 1000, return_index=True, return_counts=True)
    capacity = peak * work.sum() / len(ts)
    speed = float(share * capacity / max(np.add.reduceat(work, firsts).max(), 1))
    gaps = [*(np.diff(seconds) - 1).tolist(), 0]
    rates: Rates = []
    for first, count, gap in zip(firsts.tolist(), counts.tolist(), gaps, strict=True):
        rates.append((first, count * speed))
        if gap:  # seconds without events: the next event comes so much later
            last = (first + count - 1, speed / (gap + 1 / count))
            rates[-1 if count == 1 else len(rates) :] = [last]
    return rates


def over_time(number: int, rates: Rates, sample: Sample, deliveries: np.ndarray) -> list[Row]:
    """Return the rows of a pass whose rate changes: INSTANTS rows for the first pass, one for others.

    The row of a pass has its latencies in microseconds and its changes of owners. If there are few phases, it has the
    latency and the rates of each.

    With a controller, the row of an instant counts in `replicas` those that have keys. `work` is the share of their
    time that they work.

    Args:
        number: The number of the pass.
        rates: The rates, each with its first event.
        sample: The pass.
        deliveries: Its deliveries, as `reconfigurations.columns` returns them.
    """
    begins = _begins(rates, sample.events)
    deliveries = np.sort(deliveries, order="at")
    at, latency = deliveries["at"] / 1e9, deliveries["latency"] / 1e3
    end = max(begins[-1], float(at[-1]) if len(at) else 0.0)
    changes = [reconfiguration for reconfiguration in sample.reconfigurations if reconfiguration.posted is not None]
    counts = [len(change.replicas) for change in changes]
    assert sample.end_to_end is not None
    whole: Row = {
        "pass": number,
        "seconds": end,
        **{f"end_to_end_{name}_us": getattr(sample.end_to_end, name) for name in ("mean", "p50", "p99")},
        "reconfigurations": len(changes),
        "changes": [
            {"at_s": (change.posted or 0) / 1e9, "replicas": count, "us": change.microseconds, "by": change.by}
            for change, count in zip(changes, counts, strict=True)
        ],
        **_spikes(at, latency),
    }
    finished = np.maximum.accumulate(deliveries["event"]) + 1

    def spans(edges: np.ndarray) -> list[Row]:
        """Return offered and delivered events per second, and the mean latency, of each span."""
        wide = np.maximum(np.diff(edges), 1e-9)
        arrived = np.interp(edges, begins, [*(first for first, _ in rates), sample.events])
        done = np.concatenate([[0], finished])[np.searchsorted(at, edges, side="right")]
        bounds = np.searchsorted(at, edges)
        means = [float(latency[a:b].mean()) if b > a else None for a, b in itertools.pairwise(bounds)]
        names = ("offered_per_s", "delivered_per_s", "latency_us")
        offered, delivered = (np.diff(counts) / wide for counts in (arrived, done))
        values = zip(offered.tolist(), delivered.tolist(), means, strict=True)
        return [dict(zip(names, row, strict=True)) for row in values]

    if len(rates) <= FEW:
        whole["phases"] = spans(np.array(begins))
    if number > 0:
        return [whole]
    edges = np.linspace(0.0, end, INSTANTS + 1)
    loads = sorted((load for loads in sample.loads.values() for load in loads), key=lambda load: load.at)
    of_pass = {name: value for name, value in whole.items() if name not in ("changes", "phases")}
    instants = []
    for (start, stop), span in zip(itertools.pairwise(edges.tolist()), spans(edges), strict=True):
        some = [load for load in loads if start <= load.at / 1e9 < stop]
        if some:
            able = sum(load.period * load.replicas for load in some)
            span["replicas"] = statistics.mean(load.replicas for load in some)
            span["work"] = sum(load.worked for load in some) / able
        instants.append(of_pass | span | {"at_s": stop})
    return [whole, *instants]


def _begins(rates: Rates, events: int) -> list[float]:
    """Return when each phase begins, and when the last one ends, in seconds."""
    lasts = [(then - first) / rate for (first, rate), (then, _) in itertools.pairwise([*rates, (events, 0.0)])]
    return list(itertools.accumulate(lasts, initial=0.0))


def _spikes(at: np.ndarray, latency: np.ndarray) -> Row:
    """Return the number of spikes of the latency, the longest in seconds, and the largest average in microseconds."""
    places = (at / BIN).astype(np.int64)
    counts = np.bincount(places)
    means = np.bincount(places, latency)[counts > 0] / counts[counts > 0]
    if not len(means):
        return {"spikes": 0, "spike_s": 0.0, "spike_us": None}
    above = means > SPIKE * np.median(means)
    lengths = [sum(1 for _ in run) for is_above, run in itertools.groupby(above.tolist()) if is_above]
    return {"spikes": len(lengths), "spike_s": max(lengths, default=0) * BIN, "spike_us": float(means.max())}
