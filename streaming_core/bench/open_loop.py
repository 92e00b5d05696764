"""Latencies from an open-loop source: at equal absolute rates, and at rates that change during a pass.

A latency starts at an event's intended arrival (end to end), or at the start of its batch's processing. Latencies at
equal rates leave out the first and the last fifth of the events.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

from streaming_core.bench.passes import Pass
from streaming_core.bench.statistics import summary
from streaming_core.run import engine

INSTANTS = 40

Row = dict[str, Any]


def under_load(load: float, rate: float, passes: Sequence[Pass]) -> Row:
    """Returns the columns of passes at one rate: latencies in microseconds, and costs per event."""
    row: Row = {"load": load, "offered_per_s": rate, "rounds": {}}
    for kind, figure in itertools.product(("end_to_end", "processing"), ("mean", "p99")):
        name = f"{kind}_{figure}_us"
        row["rounds"][name] = [getattr(one, kind)(figure) for one in passes]
        row |= summary(name, row["rounds"][name])
    for name in ("cpu_ns", "energy_nj"):
        row["rounds"][f"loaded_{name}"] = [getattr(one, name) for one in passes]
        row |= summary(f"loaded_{name}", row["rounds"][f"loaded_{name}"])
    return row


def phased(phases: Sequence[tuple[float, float]], peak: float, events: int) -> engine.Rates:
    """Returns the rates, each with its first event, that spread all events over consecutive phases."""
    parts = [lasts * share for lasts, share in phases]
    rates: engine.Rates = []
    for (_, share), before in zip(phases, itertools.accumulate([0.0, *parts]), strict=False):
        first = round(events * before / sum(parts))
        if not rates or first > rates[-1][0]:
            rates.append((first, share * peak))
    return rates


def over_time(number: int, rates: engine.Rates, sample: engine.Sample) -> list[Row]:
    """Returns the rows of a pass whose rate changes: about INSTANTS rows for the first pass, one for others.

    Latencies cover the whole pass, in microseconds. `replicas` counts the replicas that have keys, and `work` is the
    share of their time that they work. `pending` is the backlog in seconds, at the present rate.
    """
    begins, at = [], 0.0
    for (first, rate), (then, _) in itertools.pairwise([*rates, (sample.events, 0.0)]):
        begins.append((at, rate))
        at += (then - first) / rate
    assert sample.end_to_end is not None
    whole: Row = {
        "pass": number,
        "end_to_end_p50_us": sample.end_to_end.p50,
        "end_to_end_p99_us": sample.end_to_end.p99,
        "cpu_s": sample.cpu_seconds,
        "reconfigurations": len(sample.reconfigurations),
        "turns": turns([len(one.replicas) for one in sample.reconfigurations]),
    }
    periods = [load for loads in sample.loads.values() for load in loads]
    instants = []
    every = max(1, len(periods) // INSTANTS)
    for some in (periods[i : i + every] for i in range(0, len(periods), every)):
        seconds = some[-1].at / 1e9
        offered = next(rate for begin, rate in reversed(begins) if begin <= seconds)
        worked = sum(load.worked for load in some)
        able = sum(load.period * load.replicas for load in some)
        instants.append(
            whole
            | {
                "at_s": seconds,
                "offered_per_s": offered,
                "replicas": statistics.mean(load.replicas for load in some),
                "work": worked / able,
                "pending": some[-1].pending / offered,
            }
        )
    return [whole, *(instants if number == 0 else [])]


def turns(counts: Sequence[int]) -> int:
    """Counts how often a rising sequence of numbers starts to fall, or the other way round."""
    steps = [b - a for a, b in itertools.pairwise(counts) if a != b]
    return sum((a > 0) != (b > 0) for a, b in itertools.pairwise(steps))
