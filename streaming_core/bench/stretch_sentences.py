"""Sentences beside STRETCH's claims, made from the rows of an experiment.

Each function returns a `Text` or a sentence. A text leaves out what the rows lack.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

from streaming_core.bench.ratios import NOUNS, Row, compare, equal_rows, pick, quantity, threads_of
from streaming_core.run.way import AXES

OURS, PUBLISHED, SHARE_NOTHING = "vsn", "vsn_esg", "sn"
# The ways of sharing that this build has. PUBLISHED, on the elastic ScaleGate, joins them once the runtime has it.
PARALLELISMS = tuple(one for one in (OURS, PUBLISHED, SHARE_NOTHING) if one in AXES["parallelism"])
SHARED = PARALLELISMS[:-1]
HANDWRITTEN = "hand-written"

THROUGHPUT, COMPARISONS = "events_per_s", "comparisons_per_s"
MEAN, P99 = "end_to_end_mean_us", "end_to_end_p99_us"
LATENCY = (MEAN, P99)

Text = Callable[[list[Row]], str]


def name_charts(rows: list[Row]) -> None:
    """Add `chart`: the application, and its level if it has one."""
    for row in rows:
        row["chart"] = " ".join(filter(None, [row["app"], row["params"].get("level")]))


def ways(rows: Iterable[Row], parallelism: str, **having: object) -> list[Row]:
    """Return the rows of a parallelism with right results and these values, by threads."""
    chosen = [row for row in equal_rows(rows) if row.get("parallelism") == parallelism]
    chosen = [row for row in chosen if all(row.get(name) == wanted for name, wanted in having.items())]
    return sorted(chosen, key=lambda row: row["threads"])


def figures(parallelism: str, *columns: str) -> Text:
    """Return columns of a parallelism, by chart and threads."""

    def one(row: Row) -> str:
        parts = [f"{NOUNS.get(column, column)} {text}" for column in columns if (text := quantity(row, column))]
        return f"{threads_of(row)} {', '.join(parts)}" if parts else ""

    def text(rows: list[Row]) -> str:
        chosen = ways(rows, parallelism)
        lines = []
        for chart in dict.fromkeys(row["chart"] for row in chosen):
            if parts := [part for row in chosen if row["chart"] == chart and (part := one(row))]:
                lines.append(f"{chart}: {'; '.join(parts)}")
        return ". ".join(lines)

    return text


def over_nothing_shared(parallelism: str, *columns: str, apps: tuple[str, ...] = ()) -> Text:
    """Return columns of a parallelism relative to SN on as many threads, for charts of some applications."""

    def text(rows: list[Row]) -> str:
        lines = []
        for row in ways(rows, parallelism):
            other = pick(rows, chart=row["chart"], parallelism=SHARE_NOTHING, threads=row["threads"])
            if other is None or (apps and row["app"] not in apps):
                continue
            known = [column for column in columns if row.get(column) is not None and other.get(column) is not None]
            parts = [f"{NOUNS.get(column, column)} {compare(row, other, column).text}" for column in known]
            lines.append(f"{row['chart']}, {threads_of(row)}: {', '.join(parts)}")
        return "; ".join(lines) and f"relative to SN: {'; '.join(lines)}"

    return text


def speed_up(parallelism: str, column: str = THROUGHPUT) -> Text:
    """Return a column on more threads relative to one thread."""

    def text(rows: list[Row]) -> str:
        chosen = ways(rows, parallelism)
        if not chosen or chosen[0]["threads"] > 1:
            return ""
        first, *others = chosen
        parts = [f"{threads_of(row)} {compare(row, first, column, over_threads=True).text}" for row in others]
        return "; ".join(parts) and f"relative to one thread: {'; '.join(parts)}"

    return text


def over_joins(parallelism: str, is_sequential: bool) -> Text:
    """Return comparisons per second relative to the sequential joins, or to the ad-hoc join on as many threads."""

    def text(rows: list[Row]) -> str:
        parts = []
        for row in ways(rows, parallelism):
            other = pick(rows, way=HANDWRITTEN, threads=row["threads"])
            loop = pick(rows, "yardstick")
            if is_sequential and row["threads"] > 1:
                continue
            if is_sequential and loop is not None:
                parts.append(f"over the compiled loop {compare(row, loop).text}")
            if other is not None:
                name = "the hand-written loop" if is_sequential else "the ad-hoc join"
                parts.append(f"{threads_of(row)} over {name} {compare(row, other).text}")
        return "; ".join(parts)

    return text


def row_times(rows: list[Row]) -> str:
    """Return the time of a row in the sequential joins, which have no open loop."""
    parts = []
    for row in rows:
        if row["way"] in ("loop", HANDWRITTEN) and row["threads"] == 1 and row["events_per_s"]:
            parts.append(f"{row['way']} {1e6 / row['events_per_s']:.3g} us")
    return "; ".join(parts) and f"The sequential joins have no open loop. Their time per row is: {'; '.join(parts)}."


def selectivity(rows: list[Row]) -> str:
    """Return the comparisons per output."""
    row = next((row for row in equal_rows(rows) if row.get("outputs_per_s") and row.get(COMPARISONS)), None)
    return f"one output in {row[COMPARISONS] / row['outputs_per_s']:,.0f} comparisons" if row else ""


# --- reconfigurations -------------------------------------------------------------------------------------------------


def milliseconds(microseconds: float | None) -> str:
    """Return a time in milliseconds, with three digits after the point."""
    return "-" if microseconds is None else f"{microseconds / 1000:.3f}"


def switches(parallelism: str, is_loaded: bool = True) -> Text:
    """Return p50, p99 and maximum of the switches of a parallelism, by kind, at equal rates or at the peak rate."""
    name = "loaded_switch" if is_loaded else "switch"

    def text(rows: list[Row]) -> str:
        parts = []
        for row in ways(rows, parallelism):
            if not row.get(f"{name}es"):
                continue
            at = f" at {row['load']:.0%} of the peak".replace("%", " %") if is_loaded else ""
            times = ", ".join(f"{of} {milliseconds(row[f'{name}_{of}_us'])}" for of in ("p50", "p99", "max"))
            parts.append(f"{switch_label(row)}{at}: {times} ms of {row[f'{name}es']:,}")
        return "; ".join(dict.fromkeys(parts))  # rows of one way at several rates have the same peak

    return text


def switch_label(row: Row) -> str:
    """Return what distinguishes a row with switches: states, replicas, batch size and kind."""
    states = f"{row['states']:,} states, " if "states" in row else ""
    return f"{states}{row['replicas']} replicas on {threads_of(row)}, batches of {row['batch']}, {row['switched']}"


GOAL_P50, GOAL_P99 = 100, 1_000  # microseconds, without the time of one row


def goal(parallelism: str) -> Text:
    """Return which rows meet the goals: p50 below 100 us, p99 below 1 ms plus the time of one row."""

    def text(rows: list[Row]) -> str:
        parts = []
        for row in ways(rows, parallelism):
            if not row.get("loaded_switches"):
                continue
            of_row = 1e6 / row["events_per_s"]
            is_met = row["loaded_switch_p50_us"] < GOAL_P50 and row["loaded_switch_p99_us"] < GOAL_P99 + of_row
            at = f"{row['load']:.0%}".replace("%", " %")
            parts.append(f"{switch_label(row)} at {at}: {'met' if is_met else 'missed'} (a row takes {of_row:.3g} us)")
        return "; ".join(parts)

    return text


def imbalance(rows: list[Row]) -> str:
    """Return the coefficients of variation by replicas."""
    parts = [
        f"{row['replicas']} replicas {row['variation']:.2f} %, comparisons {row['compared_variation']:.2f} %"
        for row in equal_rows(rows)
        if "variation" in row
    ]
    return "; ".join(parts)


# --- changing rates ---------------------------------------------------------------------------------------------------


def passes(rows: Iterable[Row], **having: object) -> list[Row]:
    """Return the rows of passes with a changing rate that have right results and these values."""
    chosen = [row for row in equal_rows(rows) if "pass" in row and "at_s" not in row]
    return [row for row in chosen if all(row.get(name) == wanted for name, wanted in having.items())]


def middle(some: list[Row], column: str) -> float:
    """Return the median of a column over passes; 0 without values."""
    known = [row[column] for row in some if row.get(column) is not None]
    return statistics.median(known) if known else 0.0


def following(parallelism: str, controllers: Iterable[str]) -> Text:
    """Return latency, spikes and changes of owners of passes whose rate changes, by controller."""

    def one(name: str, some: list[Row]) -> str:
        mean, p99 = (milliseconds(middle(some, column)) for column in LATENCY)
        return (
            f"{name}: mean latency {mean}, p99 {p99} ms; {middle(some, 'spikes'):g} spikes, the longest "
            f"{middle(some, 'spike_s'):.1f} s; {middle(some, 'reconfigurations'):g} reconfigurations with "
            f"{middle(some, 'turns'):g} changes of direction, where the rate has {middle(some, 'rate_turns'):g}"
        )

    def text(rows: list[Row]) -> str:
        by_name = ((name, passes(rows, parallelism=parallelism, controller=name)) for name in controllers)
        return ". ".join(one(name, some) for name, some in by_name if some)

    return text


def owner_changes(row: Row) -> str:
    """Return the changes of owners of a pass that a controller made: replicas and milliseconds of each."""
    changes = [one for one in row["changes"] if one["by"] != "schedule"]
    return ", ".join(f"to {one['replicas']} in {milliseconds(one['us'])} ms" for one in changes)
