"""Readings of sensors: the highest, the sum, the level at the latest time, the worst quality, and first readings."""

import numpy as np

from streaming_core.api import App, Set, boolean, f64, i64, record, u8
from streaming_core.generator import Draws

app = App("readings")


@record
class Reading:
    """A reading with its number, its value, and its quality if that is known."""

    ts: i64
    sensor: u8
    number: i64
    value: f64
    quality: i64 | None


@record
class First:
    """The numbers that a sensor has had."""

    numbers: Set[i64]


@record
class Extremes:
    """The highest value, the sum in thousandths, and the lowest known quality of a sensor."""

    any: boolean
    highest: f64
    total: f64
    rated: boolean
    worst: i64


@record
class Level:
    """The highest value of a sensor at the latest time."""

    known: boolean
    ts: i64
    value: i64


def first(row, state, out):
    """Pass on the first reading of each number."""
    if state.numbers.add(row.number):
        out.emit(ts=row.ts, sensor=row.sensor, number=row.number, value=row.value, quality=row.quality)


def extremes(row, state, out):
    """Take a reading into account; a value that is no number has no rank and no part in the sum."""
    if row.value == row.value and (not state.any or row.value > state.highest):
        state.highest = row.value
        state.any = True
    if row.value == row.value:
        state.total += float(int(min(max(row.value, -1e9), 1e9) * 1000.0))
    if row.quality is not None and (not state.rated or row.quality < state.worst):
        state.worst = row.quality
        state.rated = True


def level(row, state, out):
    """Keep the highest value at the latest time."""
    if not state.known or row.ts > state.ts:
        state.value = row.number
    elif row.ts == state.ts:
        state.value = max(state.value, row.number)
    state.ts = max(state.ts, row.ts) if state.known else row.ts
    state.known = True


readings = app.source(Reading).key_by("sensor")
readings.process(extremes, state=Extremes, output=Reading)
readings.process(level, state=Level, output=Reading)
readings.process(first, state=First, output=Reading).sink()


@app.generates
def draw(params, seed, start, stop):
    """Draw values; a number occurs twice now and then."""
    draws = Draws(seed, "readings", start, stop)
    number = np.arange(start, stop) - draws.below(0, 2)
    quality = [None if value == 0 else int(value) for value in draws.below(3, 9)]
    columns = {"sensor": draws.below(1, 4), "number": number, "value": draws.below(2, 1000) / 10.0}
    return {"ts": np.arange(start, stop) // 3, "quality": quality, **columns}


@app.property
def a_number_passes_once(stream):
    """Of readings with one number, the first passes."""
    passed = [(row["sensor"], row["number"]) for row in stream.rows]
    assert passed == list(dict.fromkeys((event["sensor"], event["number"]) for event in stream.events))


@app.property
def order_is_irrelevant_for_extremes(stream):
    """Readings may come in any order."""
    assert stream.permute().state("extremes") == stream.state("extremes")


@app.property
def highest_and_worst_are_those_of_the_readings(stream):
    """The state has the highest number and the lowest known quality."""
    for sensor, row in stream.state("extremes").items():
        mine = [event for event in stream.events if event["sensor"] == sensor]
        assert row["highest"] == max(
            (entry["value"] for entry in mine if entry["value"] == entry["value"]), default=0.0
        )
        assert row["worst"] == min((entry["quality"] for entry in mine if entry["quality"] is not None), default=0)


@app.property
def ties_may_change_places(stream):
    """Readings of one time may come in any order."""
    assert stream.permute_ties().state("level") == stream.state("level")
