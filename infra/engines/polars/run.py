"""Runs wc, sd and wordcount on Polars: one lazy query per application, over a DataFrame in memory.

Polars keeps texts as UTF-8, and Lockstep's texts are bytes. Texts that are not UTF-8 become one character per byte
(ISO 8859-1). ASCII bytes stay what they are, so the queries split and match the same.
"""

from __future__ import annotations

import os

import pyarrow as pa
from lockstep_engine import OnePass, Task, main, read_task

os.environ["POLARS_MAX_THREADS"] = str(read_task().threads)  # Polars reads it once, when Python imports it

import polars as pl

ONE_BYTE = "latin-1"  # the encoding with one character per byte
# date, time, epoch, mote, temperature, humidity, light, and at least one more byte
READING = (
    r"(?s)^(?:[^ ]+ ){3}(?<device>[0-9]{1,9}) (?<sign>-?)(?<whole>[0-9]{1,5})(?:[.](?<part>[0-9]+))? (?:[^ ]+ ){2}."
)


def wc(task: Task) -> OnePass:
    """Count the occurrences of each word so far."""
    lines, is_utf8 = frame(task, "line")
    query = (
        lines.lazy()
        .select("seq", word=pl.col("line").str.split(" ").list.filter(pl.element() != ""))
        .with_columns(sub=pl.int_ranges(pl.col("word").list.len()))
        .explode("word", "sub", empty_as_null=False)
        .with_columns(n=pl.col("word").cum_count().over("word"))
    )
    return lambda: outputs(task, query, is_utf8)


def sd(task: Task) -> OnePass:
    """Compare each reading with the moving average of its device."""
    window, threshold = task.params["window"], task.params["threshold_e4"]
    lines, is_utf8 = frame(task, "line")
    magnitude = pl.col("whole").cast(pl.Int64) * 10_000 + (
        pl.col("part").fill_null("").str.head(4).str.pad_end(4, "0").cast(pl.Int64)
    )
    value, total, count = pl.col("value"), pl.col("total"), pl.col("count")
    query = (
        lines.lazy()
        .select("seq", pl.col("line").str.extract_groups(READING))
        .unnest("line")
        .filter(pl.col("device").is_not_null())
        .select(
            "seq",
            pl.col("device").cast(pl.Int32),
            sub=0,
            value=pl.when(pl.col("sign") == "-").then(-magnitude).otherwise(magnitude),
        )
        .with_columns(
            total=value.rolling_sum(window, min_samples=1).over("device"),
            count=value.cum_count().over("device").cast(pl.Int64).clip(upper_bound=window),
        )
        .with_columns(
            average=total // count,
            spike=(value * count - total).abs() * 10_000 > threshold * total,
        )
    )
    return lambda: outputs(task, query, is_utf8)


def wordcount(task: Task) -> OnePass:
    """Count the words of each window."""
    advance, size = task.params["advance"], task.params["size"]
    tweets, is_utf8 = frame(task, "text")
    words = pl.col("text").str.split(r"[\t-\r ]+", literal=False).list.filter(pl.element() != "")
    if task.params["multiplicity"] == "set":
        words = words.list.unique()
    first_end = ((pl.col("ts") - size) // advance + 1) * advance + size
    last_end = pl.col("ts") // advance * advance + size
    query = (
        tweets.lazy()
        .select(ts=pl.int_ranges(first_end, last_end + 1, advance), word=words)
        .explode("ts")
        .explode("word", empty_as_null=False)
        .group_by("ts", "word")
        .agg(n=pl.len())
    )
    return lambda: outputs(task, query, is_utf8)


def frame(task: Task, text: str) -> tuple[pl.DataFrame, bool]:
    """The events in memory.

    Args:
        task: The task.
        text: The name of the text field.

    Returns:
        The events with `text` as strings, and whether the strings are UTF-8. Otherwise they have a character per byte.
    """
    events = task.events
    try:
        strings, is_utf8 = events[text].cast(pa.string()), True
    except pa.ArrowInvalid:
        strings, is_utf8 = pa.array([line.decode(ONE_BYTE) for line in events[text].to_pylist()], pa.string()), False
    return pl.DataFrame(events.set_column(events.column_names.index(text), text, strings)), is_utf8


def outputs(task: Task, query: pl.LazyFrame, is_utf8: bool) -> pa.Table:
    """Run a query. Texts become bytes again."""
    table = query.select(task.schema.names).collect().to_arrow(compat_level=pl.CompatLevel.oldest())
    if is_utf8 or "word" not in table.column_names:
        return table
    words = table["word"].combine_chunks().dictionary_encode()
    encoded = pa.array([word.encode(ONE_BYTE) for word in words.dictionary.to_pylist()], pa.binary())
    return table.set_column(table.column_names.index("word"), "word", encoded.take(words.indices))


main({"wc": wc, "sd": sd, "wordcount": wordcount}, versions={"polars": pl.__version__})
