"""Spike detection: compares each temperature reading with the moving average of its sensor.

    source -> parse (stateless) -> moving_average (partitioned by device) -> detect (stateless) -> sink

The application comes from BriskStream, section 6.1.

A line reads `date time epoch mote temperature humidity light voltage`, as in the data of the Intel lab's sensors.
Temperatures are fixed-point numbers in 1/10000 degree. Every valid reading has one output, which tells whether it is a
spike. A line with fewer than eight fields, or without a number for mote or temperature, is invalid.
"""

import re
from collections import defaultdict, deque
from functools import lru_cache
from typing import Literal

import numpy as np

from streaming_core.api import App, Param, Profile, Ring, boolean, i32, i64, record, text
from streaming_core.generator import Draws, Tokens

app = App(
    "sd",
    reads="BriskStream, section 6.1; the threshold of its code",
    params={
        "window": Param(1000, "number of readings in the moving average of a device", minimum=1, maximum=10_000),
        "threshold_e4": Param(
            300,
            "relative deviation from the average above which a reading is a spike, in 1/10000",
            minimum=0,
            maximum=100_000,
        ),
        "devices": Param(54, "number of sensors", minimum=1, maximum=1_000_000),
        "spike_ratio": Param(0.001, "share of readings that are multiplied by 1.1 to 5", minimum=0.0, maximum=1.0),
        "invalid_ratio": Param(0.0, "share of lines that are invalid", minimum=0.0, maximum=1.0),
    },
    profiles={"sd-wide": Profile("the threshold of ParaGroup's benchmark", {"threshold_e4": 2500})},
)
p = app.params
BLANK, DOT, MINUS, ZERO, NINE = (ord(c) for c in " .-09")
INVALID = -(1 << 62)


@record
class Line:
    """A sensor's reading as text, with its time in milliseconds."""

    ts: i64
    line: text


@record
class Reading:
    """A temperature of a device, in 1/10000 degree."""

    device: i32
    value: i64


@record
class Window:
    """The last temperatures of a device and their sum, in 1/10000 degree."""

    recent: Ring[i64, Literal["window"]]
    total: i64


@record
class Averaged:
    """A temperature with the sum and the number of its device's last temperatures, itself included."""

    device: i32
    value: i64
    total: i64
    size: i64


@record
class Signal:
    """A temperature and its device's moving average, in 1/10000 degree, and whether it is a spike."""

    device: i32
    average: i64
    value: i64
    spike: boolean


def natural(line, start, stop):
    """Return the number of one to nine digits in line[start:stop], or INVALID."""
    if stop <= start or stop > start + 9:
        return INVALID
    number = 0
    for at in range(start, stop):
        digit = line[at] - ZERO
        if digit < 0 or digit > 9:
            return INVALID
        number = number * 10 + digit
    return number


def decimal(line, start, stop):
    """Return line[start:stop] in 1/10000, rounded towards 0; INVALID unless [-]digits[.digits], below 10^5."""
    negative = start < stop and line[start] == MINUS
    if negative:
        start += 1
    number = 0
    at = start
    while at < stop and line[at] != DOT:
        digit = line[at] - ZERO
        if digit < 0 or digit > 9:
            return INVALID
        number = number * 10 + digit
        at += 1
    if at == start or at > start + 5:
        return INVALID
    scale = 1000
    number *= 10_000
    if at < stop:
        at += 1
        if at == stop:
            return INVALID
    while at < stop:
        digit = line[at] - ZERO
        if digit < 0 or digit > 9:
            return INVALID
        number += digit * scale
        scale = scale // 10
        at += 1
    return -number if negative else number


def parse(row, out):
    """Read device and temperature from a line, and drop invalid lines."""
    line = row.line
    device = INVALID
    value = INVALID
    start = 0
    for field in range(7):
        stop = line.find(BLANK, start)
        if stop <= start:
            out.drop()
            return
        if field == 3:
            device = natural(line, start, stop)
        if field == 4:
            value = decimal(line, start, stop)
        start = stop + 1
    if device == INVALID or value == INVALID or start >= len(line):
        out.drop()
        return
    out.emit(device=device, value=value)


def moving_average(row, window, out):
    """Add a temperature to its device's window, and emit it with the sum of the window."""
    recent = window.recent
    total = window.total + row.value
    if len(recent) == p.window:
        total -= recent[0]
    recent.append(row.value)
    window.total = total
    out.emit(device=row.device, value=row.value, total=total, size=len(recent))


def detect(row, out):
    """Tell whether a temperature is further from the moving average than the threshold allows."""
    # This is |value - average| > threshold * average, without rounding the average.
    distance = abs(row.value * row.size - row.total) * 10_000
    spike = distance > p.threshold_e4 * row.total
    out.emit(device=row.device, average=row.total // row.size, value=row.value, spike=spike)


readings = app.source(Line).flat_map(parse, Reading).key_by("device")
readings.process(moving_average, state=Window, output=Averaged).flat_map(detect, Signal).sink()
# An average depends on the order of the readings.
app.agrees_unordered("device", "value")


# --- the generator ----------------------------------------------------------------------------------------------------

DAY = 86_400
PERIOD = 31_000  # milliseconds between two readings of one device, on average


@app.generates
def lines(params, seed, start, stop):
    """Make a reading of a random device every 31 s / devices; ts is in milliseconds.

    The temperature is 20 degrees, plus a daily wave of 5 degrees with a phase of each device, plus noise. The noise of
    0.2 degrees is the sum of twelve uniform draws.
    """
    draws = Draws(seed, "sd.readings", start, stop)
    ts = np.arange(start, stop) * PERIOD // params["devices"]
    device = draws.below(0, params["devices"])
    phase = Draws(seed, "sd.phase", units=device).below(0, DAY)
    noise = np.full(len(draws), -6 * 65_535)
    for d in (1, 2, 3):
        bits = draws.bits(d)
        for shift in (0, 16, 32, 48):
            noise += (bits >> np.uint64(shift) & np.uint64(0xFFFF)).view(np.int64)
    value = 200_000 + _wave()[(ts // 1000 + phase) % DAY] + (noise * 2000 >> 16)
    spike = draws.chance(4, params["spike_ratio"])
    value = np.where(spike, value * (11_000 + draws.below(5, 39_001)) // 10_000, value)

    first_day, epoch = int(ts[0] // (DAY * 1000)) if len(ts) else 0, ts // PERIOD
    last_day = int(ts[-1] // (DAY * 1000)) if len(ts) else 0
    date = np.datetime64("2004-02-28")
    epochs = range(int(epoch[0]), int(epoch[-1]) + 1) if len(ts) else ()
    tokens = _tokens(params["devices"]).plus(
        date=[str(date + day).encode() + b" " for day in range(first_day, last_day + 1)],
        epoch=[b"%d " % e for e in epochs],
    )
    clock = ts // 1000 % DAY
    bits = draws.bits(6)
    other = [((bits >> np.uint64(16 * k) & np.uint64(0xFFFF)).view(np.int64) * 1000) >> 16 for k in range(4)]
    parts = {
        "date": ts // (DAY * 1000) - first_day,
        "minute": clock // 60,
        "second": clock % 60,
        "milli": ts % 1000,
        "micro": other[0],
        "epoch": epoch - epoch[0] if len(ts) else epoch,
        "mote": device,
        "whole": value // 10_000,
        "part": value % 10_000,
        "humidity": other[1],
        "light": other[2],
        "voltage": other[3],
    }
    columns = {name: column + tokens.first[name] for name, column in parts.items()}
    if params["invalid_ratio"] > 0:
        invalid, how = Draws(seed, "sd.invalid", start, stop).chance(0, params["invalid_ratio"]), draws.below(7, 4)
        for kind, (name, token) in enumerate(BROKEN):
            broken = invalid & (how == kind)
            columns[name] = np.where(broken, tokens.first["broken"] + TOKENS.index(token), columns[name])
    return {"ts": ts, "line": tokens.lines(list(columns.values()))}


# Invalid replacements for a part of the line: no number, no mote, missing fields.
BROKEN = [("whole", b"?."), ("mote", b"m7 "), ("light", b""), ("voltage", b"")]
TOKENS = sorted({token for _, token in BROKEN})


@lru_cache(maxsize=1)
def _wave():
    """Return 5 sin(2 pi t / day) at every second, in 1/10000 degree; rounding hides the last bits of the sine."""
    return np.rint(50_000 * np.sin(2 * np.pi * np.arange(DAY) / DAY)).astype(np.int64)


@lru_cache(maxsize=4)
def _tokens(devices):
    thousand = range(1000)
    return Tokens(
        minute=[b"%02d:%02d:" % divmod(m, 60) for m in range(1440)],
        second=[b"%02d." % s for s in range(60)],
        milli=[b"%03d" % k for k in thousand],
        micro=[b"%03d " % k for k in thousand],
        mote=[b"%d " % (k + 1) for k in range(devices)],
        whole=[b"%d." % k for k in range(256)],
        part=[b"%04d " % k for k in range(10_000)],
        humidity=[b"%d.%03d " % (30 + k // 50, k) for k in thousand],
        light=[b"%d.%02d " % (k, k % 97) for k in thousand],
        voltage=[b"2.%05d" % (k * 83) for k in thousand],
        broken=TOKENS,
    )


VALID = r"""CAST(line AS STRING) RLIKE '^([^ ]+ ){3}[0-9]{1,9} -?[0-9]{1,5}([.][0-9]+)? ([^ ]+ ){2}.+$'"""

app.invariant(
    "each valid reading has one output with its device, and other lines have none",
    f"""SELECT coalesce(e.seq, o.seq) AS seq, e.valid, o.outputs, e.device, o.of_device FROM
    (SELECT seq, {VALID} AS valid, try_cast(split_part(CAST(line AS STRING), ' ', 4) AS INT) AS device FROM events) e
    FULL OUTER JOIN (SELECT seq, count(*) AS outputs, max(device) AS of_device FROM outputs GROUP BY seq) o
    ON e.seq = o.seq
    WHERE e.seq IS NULL OR coalesce(o.outputs, 0) <> CAST(e.valid AS INT) OR o.of_device <> e.device""",
)
app.invariant(
    "an average lies between the smallest and the largest reading of its device so far",
    """SELECT * FROM (SELECT *, min(value) OVER so_far AS least, max(value) OVER so_far AS greatest FROM outputs
    WINDOW so_far AS (PARTITION BY device ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
    WHERE average < least OR average > greatest""",
    by_order=True,
)
app.invariant(
    "no spike has a smaller relative deviation than a reading that is not a spike",
    # The output's average is rounded down by less than 1, so the comparison allows one unit on each side.
    """SELECT * FROM (SELECT
    max(CASE WHEN NOT spike THEN (abs(value - average) - 1) / (average + 1) END) AS calm,
    min(CASE WHEN spike THEN (abs(value - average) + 1) / average END) AS alarmed
    FROM outputs WHERE average > 0) WHERE calm > alarmed""",
)
app.invariant(
    "a device's final sum is that of its window",
    """SELECT key, total, recent FROM state_moving_average
    WHERE total <> aggregate(recent, CAST(0 AS BIGINT), (a, x) -> a + x)""",
)


READING = re.compile(rb"(?s)(?:[^ ]+ ){3}([0-9]{1,9}) (-?)([0-9]{1,5})(?:[.]([0-9]+))? (?:[^ ]+ ){2}.+")


@app.property
def averages_are_those_of_the_last_readings(stream):
    """A reading leaves with the average of the last readings of its device."""
    recent: dict = defaultdict(lambda: deque(maxlen=stream.params["window"]))
    expected = []
    for match in filter(None, (READING.fullmatch(event["line"]) for event in stream.events)):
        device, value = int(match[1]), int(match[3]) * 10_000 + int(((match[4] or b"") + b"0000")[:4])
        value = -value if match[2] else value
        recent[device].append(value)
        size, total = len(recent[device]), sum(recent[device])
        spike = abs(value * size - total) * 10_000 > stream.params["threshold_e4"] * total
        expected.append({"device": device, "average": total // size, "value": value, "spike": spike})
    assert stream.rows == expected
