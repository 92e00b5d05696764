"""The comparisons of the joins `scalejoin` and `hedge`, computed from the workload.

A row meets the rows of the other stream that came before it and are less than a window older. A key compares it with
those that it stores, and each key stores the next row in its turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streaming_core.bench.race.subject import Subject


def compared(ts: np.ndarray, is_right: np.ndarray, size: int) -> np.ndarray:
    """Return the number of rows with which each row of two streams is compared.

    Args:
        ts: The times of the rows, in the order of the rows.
        is_right: Whether a row belongs to the right stream.
        size: The size of the window, in the unit of `ts`.
    """
    counts = np.zeros(len(ts), np.int64)
    for side in (False, True):
        own, other = is_right == side, is_right != side
        counts[own] = np.cumsum(other)[own] - np.searchsorted(ts[other], ts[own] - size, side="right")
    return counts


def work(race: Subject) -> tuple[np.ndarray, np.ndarray]:
    """Return the time of each event in milliseconds, and its comparisons.

    A trade of `hedge` is a row of both streams, first of the left one.
    """
    events = pa.concat_tables(race.source.blocks(1 << 20))
    size = race.app.bind(race.params)["size"]
    ts = events["ts"].to_numpy()
    if race.app.name != "hedge":
        return ts, compared(ts, events["stream"].to_numpy() == 1, size)
    counts = np.zeros(len(ts), np.int64)
    is_valid = events["average"].to_numpy() > 0
    twice = np.repeat(ts[is_valid], 2)
    counts[is_valid] = compared(twice, np.arange(len(twice)) % 2 == 1, size).reshape(-1, 2).sum(axis=1)
    return ts, counts


CALL = 16  # comparisons that take about as long as the call of a key


def cost(race: Subject) -> tuple[np.ndarray, np.ndarray]:
    """Return the time of each event in milliseconds, and its cost: comparisons, and calls in units of them."""
    ts, comparisons = work(race)
    streams = 2 if race.app.name == "hedge" else 1  # an event is a row of so many
    return ts, comparisons + CALL * streams * race.app.bind(race.params)["keys"]


def count(race: Subject) -> dict[str, Any]:
    """Return the comparisons of a pass, as a column."""
    return {"comparisons": int(work(race)[1].sum())}
