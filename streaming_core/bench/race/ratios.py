"""Comparisons of rows: ratios with intervals, and sentences that say no more than the intervals allow.

Rows of one heat ran in turns, so their ratio is the median of the ratios of the same rounds. A round counts only if the
threads of both rows ran at the same core distance (`distances`). The host of a virtual machine moves its cores, which
changes the cost of each cache line that threads share. With few such rounds, the ratio is that of the medians over all
rounds at one distance. Rows of different heats did not run in turns; their
ratio is that of the medians. Either way, a sentence says that two ways differ only if the 95 % interval of the ratio
leaves 1 out.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streaming_core.bench.race.statistics import interval, interval_of_ratio

Row = dict[str, Any]

FEWEST = 3  # rounds at the same distance that are enough for ratios by round
MOVED = 1.5  # round trips between cores that differ by this factor are those of different cores
AT_RATE = ("loaded_", "end_to_end_", "processing_")  # how the columns of passes at a set rate begin
# The units of columns by their endings: divisor, unit.
UNITS = (("_per_s", 1e6, "M/s"), ("_us", 1e3, "ms"), ("_ns", 1, "ns"), ("_nj", 1, "nJ"))
NOUNS = {
    "events_per_s": "throughput",
    "cpu_ns": "processor time per event",
    "energy_nj": "energy per event",
    "p99_us": "p99 latency of a batch",
    "end_to_end_mean_us": "mean latency",
    "end_to_end_p99_us": "p99 latency",
    "processing_mean_us": "mean processing latency",
    "processing_p99_us": "p99 processing latency",
    "loaded_cpu_ns": "processor time per event at this rate",
    "loaded_energy_nj": "energy per event at this rate",
    "cores": "cores in use",
    "comparisons_per_s": "comparisons",
    "latency_to_cost": "mean processing latency over the cost",
    "loaded_switch_p50_us": "median time of a switch",
    "loaded_switch_p99_us": "p99 time of a switch",
    "loaded_switch_max_us": "longest switch",
    "change_us": "longest change of owners",
    "sustained": "delivered over offered rows",
    "spike_s": "longest spike in seconds",
    "to_loop": "throughput over the loop",
    "kept": "least throughput over fewer threads",
    "error": "error of the prediction",
    "predicted_rows_per_s": "predicted rows of the sinks per second",
}


@dataclass(frozen=True)
class Ratio:
    """A ratio of two rows: its median over rounds and the 95 % interval.

    Attributes:
        median: The median.
        low: The lower end of the interval.
        high: The upper end.
        rounds: The number of rounds. One round has no interval. 0: no round has both rows at the same core distance.
    """

    median: float
    low: float
    high: float
    rounds: int

    @property
    def differs(self) -> bool:
        """Whether the interval leaves 1 out."""
        return self.rounds > 1 and not self.low <= 1 <= self.high

    @property
    def text(self) -> str:
        """Return `1.9 (1.8 to 2.0) times`, or that no difference was seen."""
        if not self.rounds:
            return "no round at the same core distance"
        if self.rounds == 1:
            return f"{three_digits(self.median)} times in one round"
        span = f"({three_digits(self.low)} to {three_digits(self.high)})"
        return f"{three_digits(self.median)} {span} times" if self.differs else f"no difference seen {span}"


def compare(row: Row, other: Row, column: str = "events_per_s", over_threads: bool = False) -> Ratio:
    """Return a column of `row` relative to that of `other`.

    Args:
        row: A row.
        other: The row to compare with.
        column: A column that was measured in rounds.
        over_threads: Whether the rows may have different numbers of threads, for a speed-up over threads.

    Raises:
        ValueError: The rows have different numbers of threads.
    """
    if row["threads"] != other["threads"] and not over_threads:
        pair = f"{row['way']} on {threads_of(row)} and {other['way']} on {threads_of(other)}"
        raise ValueError(f"rows of different numbers of threads are not compared: {pair}")
    over, under = rounds_of(row, column), rounds_of(other, column)
    if row.get("heat") != other.get("heat") or len(over) != len(under):
        low, high = interval_of_ratio(over, under)
        return Ratio(statistics.median(over) / statistics.median(under), low, high, min(len(over), len(under)))
    trip = "loaded_round_trip_ns" if column.startswith(AT_RATE) else "round_trip_ns"
    trips = [rounds_of(side, trip) for side in (row, other)]
    pairs = [*zip(over, under, strict=True)]
    if (
        len(trips[0]) == len(trips[1]) == len(over)
    ):  # else one of the rows has one thread, which waits for no other core
        first, second = (distances(every, trips[0] + trips[1]) for every in trips)
        pairs = [pair for pair, a, b in zip(pairs, first, second, strict=True) if a == b]
        if len(pairs) < min(FEWEST, len(over)):
            return _at_one_distance(row, other, column, first, second)
    ratios = [a / b for a, b in pairs]
    low, high = interval(ratios)
    return Ratio(statistics.median(ratios), low, high, len(ratios))


def _at_one_distance(row: Row, other: Row, column: str, first: list[int], second: list[int]) -> Ratio:
    """Return the ratio of two rows over their rounds at the distance that both have most often, not paired by round."""
    by_loop = column == "events_per_s" and all(rounds_of(side, "to_loop") for side in (row, other))
    name = "to_loop" if by_loop else column  # relative to the loop, the machine's speed in a round does not count
    best_distance = max(
        first + second, key=lambda distance: (min(first.count(distance), second.count(distance)), -distance)
    )
    over, under = (
        [figure for figure, distance in zip(rounds_of(side, name), of, strict=True) if distance == best_distance]
        for side, of in ((row, first), (other, second))
    )
    if not over or not under:
        return Ratio(math.nan, math.nan, math.nan, 0)
    low, high = interval_of_ratio(over, under)
    return Ratio(statistics.median(over) / statistics.median(under), low, high, min(len(over), len(under)))


def distances(trips: list[float], every: list[float]) -> list[int]:
    """Return the distance of cores in each round: 0 for the nearest.

    Args:
        trips: The round trip in each round.
        every: All round trips of the comparison. Sorted, a new distance begins where the next is not the same distance.
    """
    known = sorted(every)
    starts = [b for a, b in itertools.pairwise(known) if not is_same_distance(a, b)]
    return [sum(start <= trip for start in starts) for trip in trips]


def is_same_distance(trip: float, other: float) -> bool:
    """Return whether two round trips between cores are those of cores that are equally far apart."""
    return max(trip, other) <= MOVED * min(trip, other)


def versus(row: Row | None, other: Row | None, column: str = "events_per_s", over_threads: bool = False) -> str:
    """Return `A has 1.9 (1.8 to 2.0) times the throughput of B`, or that no difference was seen; without a row, "".

    With `over_threads`, the sentence names the threads.
    """
    if row is None or other is None:
        return ""
    ratio, noun = compare(row, other, column, over_threads), NOUNS.get(column, column)
    names = [f"{side['way']} on {threads_of(side)}" if over_threads else side["way"] for side in (row, other)]
    if ratio.rounds > 1 and not ratio.differs:
        span = f"({three_digits(ratio.low)} to {three_digits(ratio.high)})"
        return f"no difference seen between the {noun} of {names[0]} and of {names[1]} {span}"
    if not ratio.rounds:
        return f"{names[0]} and {names[1]} have {ratio.text}"
    times = f"{three_digits(ratio.median)} times" if ratio.rounds == 1 else ratio.text
    return f"{names[0]} has {times} the {noun} of {names[1]}" + " in one round" * (ratio.rounds == 1)


def quantity(row: Row | None, column: str = "events_per_s") -> str:
    """Return a column with its unit and interval, such as `3.4 M/s (3.2 to 3.5)`; "" without the row or a value."""
    if row is None or row.get(column) is None:
        return ""
    divisor, unit = unit_of(column)
    return f"{three_digits(row[column] / divisor)}{unit}{range_text(row, column, divisor)}"


def unit_of(column: str) -> tuple[float, str]:
    """Return the divisor and the unit of a column, with a space before the unit."""
    return next(((divisor, f" {unit}") for ending, divisor, unit in UNITS if column.endswith(ending)), (1, ""))


def range_text(row: Row, column: str, divisor: float = 1) -> str:
    """Return ` (LOW to HIGH)`, or "" if the column was not measured in several rounds."""
    ends = row.get(f"{column}_range")
    if not ends or len(rounds_of(row, column)) == 1:
        return ""
    return f" ({three_digits(ends[0] / divisor)} to {three_digits(ends[1] / divisor)})"


def pick(rows: Iterable[Row], result: str = "equal", **having: Any) -> Row | None:
    """Return the first row with a result and with these values of columns or parameters, or None."""
    chosen = (row for row in rows if row["result"] == result)
    return next((row for row in chosen if all(value(row, name) == wanted for name, wanted in having.items())), None)


def best(rows: Iterable[Row], column: str = "events_per_s") -> Row | None:
    """Return the row with the highest median of a column, or None without rows."""
    return max((row for row in rows if row.get(column) is not None), key=lambda row: row[column], default=None)


def equal_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the rows whose results equal the loop's."""
    return [row for row in rows if row["result"] == "equal"]


def most(rows: Iterable[Row]) -> int:
    """Return the largest number of threads."""
    return max(row["threads"] for row in rows)


def add_multiple(row: Row, name: str, column: str, factor: float) -> None:
    """Add column `name` to a row: another column times a factor, with the interval and the rounds."""
    row[name] = None if row[column] is None else row[column] * factor
    if row.get(f"{column}_range"):
        row[f"{name}_range"] = [end * factor for end in row[f"{column}_range"]]
        row["rounds"][name] = [measured * factor for measured in rounds_of(row, column)]


def rounds_of(row: Row, column: str) -> list[float]:
    """Return the values of a column, by round."""
    return row["rates"] if column == "events_per_s" else row.get("rounds", {}).get(column, [])


def threads_of(row: Row) -> str:
    """Return `1 thread`, `2 threads` and so on."""
    return f"{row['threads']} thread{'s' * (row['threads'] != 1)}"


def value(row: Row, name: str) -> Any:
    """Return a column of a row, else its parameter of that name, else None."""
    return row[name] if name in row else row["params"].get(name)


def three_digits(number: float) -> str:
    """Return a number with three digits, or with all digits before the point."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
