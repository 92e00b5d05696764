"""Runs wc and wordcount on Bytewax: one dataflow per application, with as many workers as the task has threads.

Keys of Bytewax are strings, and Lockstep's texts are bytes. Each byte becomes one character (ISO 8859-1), so no two
words share a key.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

import bytewax.operators as op
import bytewax.operators.windowing as windowing
import pyarrow as pa
from bytewax.dataflow import Dataflow
from bytewax.operators import KeyedStream, Stream
from bytewax.testing import TestingSink, TestingSource, cluster_main
from lockstep_engine import OnePass, Task, main

ONE_BYTE = "latin-1"  # the encoding with one character per byte
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
WORD = re.compile(r"[^\t-\r ]+")

Event = tuple[int, str]  # `seq` or `ts`, and the text


def wc(task: Task) -> OnePass:
    """Count the occurrences of each word so far."""
    events = columns(task, "seq", "line")

    def split(event: Event) -> list[tuple[str, tuple[int, int]]]:
        seq, line = event
        return [(word, (seq, sub)) for sub, word in enumerate(word for word in line.split(" ") if word)]

    def count(n: int | None, place: tuple[int, int]) -> tuple[int, tuple[int, int, int]]:
        n = (n or 0) + 1
        return n, (*place, n)

    def build(lines: Stream[Event]) -> KeyedStream[tuple[int, int, int]]:
        return op.stateful_map("count", op.flat_map("split", lines, split), count)

    def one_pass() -> pa.Table:
        words, places = run(task, events, build)
        seq, sub, n = zip(*places, strict=True) if places else ((), (), ())
        return pa.table({"seq": seq, "sub": sub, "word": as_bytes(words), "n": n}, schema=task.schema)

    return one_pass


def wordcount(task: Task) -> OnePass:
    """Count the words of each window."""
    advance, size = task.params["advance"], task.params["size"]
    distinct = task.params["multiplicity"] == "set"
    events = columns(task, "ts", "text")
    clock = windowing.EventClock(
        ts_getter=lambda item: item[1],
        wait_for_system_duration=timedelta(0),
        # This clock stands still. So the watermark is the latest `ts` of a key, and no tweet is late.
        now_getter=lambda: EPOCH,
        to_system_utc=lambda end: None,
    )
    windower = windowing.SlidingWindower(length=size * MILLISECOND, offset=advance * MILLISECOND, align_to=EPOCH)

    def split(event: Event) -> list[tuple[str, datetime]]:
        ts = EPOCH + event[0] * MILLISECOND
        words = WORD.findall(event[1])
        return [(word, ts) for word in (set(words) if distinct else words)]

    def build(tweets: Stream[Event]) -> KeyedStream[tuple[int, int]]:
        words = op.flat_map("split", tweets, split)
        return windowing.count_window("count", words, clock, windower, key=lambda item: item[0]).down

    def one_pass() -> pa.Table:
        words, counts = run(task, events, build)
        windows, n = zip(*counts, strict=True) if counts else ((), ())
        ends = [window * advance + size for window in windows]
        return pa.table({"ts": ends, "word": as_bytes(words), "n": n}, schema=task.schema)

    try:
        for ts, _ in events[:1] + events[-1:]:
            split((ts - size, "")), split((ts + size, ""))
    except OverflowError:
        sys.exit(f"bytewax: the windows must lie in the years 1 to 9999, but a tweet has ts {ts}")
    return one_pass


def columns(task: Task, number: str, text: str) -> list[Event]:
    """Convert two columns of the events to Python objects. Texts have a character per byte."""
    lines = [line.decode(ONE_BYTE) for line in task.events[text].to_pylist()]
    events = list(zip(task.events[number].to_pylist(), lines, strict=True))
    gc.freeze()  # A source outside the process would not burden the garbage collector with its events either.
    return events


def as_bytes(words: tuple[str, ...]) -> list[bytes]:
    """Return the bytes of words that have a character per byte."""
    return [word.encode(ONE_BYTE) for word in words]


def run(task: Task, events: list[Event], build: Callable) -> tuple[tuple, tuple]:
    """Run a dataflow once.

    Args:
        task: The task.
        events: What the source emits, in order.
        build: Adds the steps of the application to the stream of events; returns the keyed stream of outputs.

    Returns:
        The keys of the outputs, and their values, in the order of delivery.
    """
    outputs: list[tuple] = []
    flow = Dataflow(task.app)
    # The source is one partition of one worker, so the events of each word stay in order.
    source = TestingSource(events, task.batch)
    op.output("outputs", build(op.input("events", flow, source)), TestingSink(outputs))
    cluster_main(flow, [], 0, worker_count_per_proc=task.threads)
    keys, values = zip(*outputs, strict=True) if outputs else ((), ())
    return keys, values


main({"wc": wc, "wordcount": wordcount}, versions={"bytewax": version("bytewax")})
