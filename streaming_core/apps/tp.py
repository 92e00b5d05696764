"""Toll processing: the toll of a road's segments, from their average speed and their number of vehicles.

    road_speed + vehicle_count + toll_notification (one joint transaction, or three with `separate`) -> sink

The application comes from TStream, sections II and VI-A. Three transactional operators share two tables:

- `road_speed` updates a segment's average speed: a report moves it halfway to the reported speed.
- `vehicle_count` adds the vehicle to the segment's set.
- `toll_notification` reads both, after the event's own updates.

By default, a report is one event with a joint transaction of all three operators. With `separate`, as in the paper, a
report is three consecutive events, one per operator. Their `kind` is 0, 1 and 2. Each is a transaction of its own, of
length 1, 1 and 2. The joint operator switches on the kind (section V). Every event has an output, but only that of the
notification holds results. These equal the results of the joint transaction.

All three operators reject a report with a negative speed. A report of a segment outside the tables is invalid. So is an
unknown kind with `separate`.

A row of `speeds` takes 16 bytes, and 8 more for each of its `payload` words, which equal the average. An update stores
all words, and a notification reads them all. With 8 words, a row takes 80 bytes, as in the paper.

`input` selects the reports. With `zipf`, each report is an independent draw, skewed over segments (`vehicles`,
`max_speed`, `theta`, `reports_per_s`). With `linear_road`, the vehicles on one of Linear Road's expressways report
(`veh_per_s`, `seconds`); only the number of the segment counts here. Event time is in seconds.
"""

from typing import Literal

import numpy as np

from streaming_core.api import App, Array, Param, Profile, Set, boolean, burn, f64, i16, i64, record, u8, u32
from streaming_core.generator.linear_road import PARAMS, position_reports

app = App(
    "tp",
    reads="TStream, sections II and VI-A; tolls as in Linear Road",
    params={
        "input": Param(
            "zipf", "zipf: independent draws; linear_road: the vehicles of Linear Road", choices=("zipf", "linear_road")
        ),
        "separate": Param(False, "a report is three events, a transaction per operator; false: one joint transaction"),
        "payload": Param(0, "words of 8 bytes in a row of the speeds, besides its fields", minimum=0, maximum=1_000),
        "segments": Param(100, "number of segments", minimum=1, maximum=256),
        "vehicles": Param(100_000, "number of vehicles", minimum=1, maximum=1 << 32),
        "max_speed": Param(100, "highest reported speed", minimum=0, maximum=32_767),
        "index": Param(
            "dense",
            "dense: the key of a row is its number; hash: a hash index finds it; insert: reports also insert the rows",
            choices=("dense", "hash", "insert"),
        ),
        "work": Param(0, "rounds of extra work per changed segment", minimum=0, maximum=1_000_000),
        "theta": Param(0.2, "Zipf exponent of the segments", minimum=0.0, maximum=4.0),
        "reports_per_s": Param(1_000, "reports per second of event time", minimum=1, maximum=1_000_000_000),
        "flagged": Param(False, "mark segments without a measured speed by a flag; false: by a speed of 0"),
        "window": Param(
            0, "seconds after which a segment's count starts again; 0: never", minimum=0, maximum=1_000_000_000
        ),
        "invalid_ratio": Param(0.0, "share of reports with speed -1, which are rejected", minimum=0.0, maximum=1.0),
        "veh_per_s": PARAMS["veh_per_s"],
        "seconds": PARAMS["seconds"],
    },
    profiles={
        "tp-code": Profile(
            "a segment whose average is 0 counts as not yet measured, as in TStream's code", {"flagged": False}
        ),
        "tp-clean": Profile(
            "a flag, separate from the speed, marks segments without a measured speed", {"flagged": True}
        ),
        "tp-separate": Profile("three transactions per report, as in TStream's paper", {"separate": True}),
        "tp-minutes": Profile("count vehicles per minute, as in Linear Road", {"window": 60}),
    },
)
p = app.params
SLOW = 40  # a toll is due below this speed
CROWD = 50  # and above this number of vehicles
ROAD_SPEED = 0
VEHICLE_COUNT = 1
TOLL_NOTIFICATION = 2


@record
class Report:
    """A position report: time in seconds, vehicle, position in feet, speed in mph, and place on the road."""

    ts: i64
    vid: u32
    pos: u32
    speed: i16
    xway: u8
    lane: u8
    dir: u8
    seg: u8
    kind: u8


@record
class Speed:
    """The average speed of a segment in mph, with words that all equal it."""

    average: f64
    measured: boolean
    payload: Array[f64, Literal["payload"]]


@record
class Presence:
    """The vehicles of a segment, their number, and the second in which the count last started again."""

    begin: i64
    count: i64
    vehicles: Set[u32]


@record
class Toll:
    """The answer to a report: whether it was accepted, the segment's speed and number of vehicles, and the toll."""

    vid: u32
    seg: u8
    ok: boolean
    speed: f64
    count: i64
    toll: i64


speeds = app.table("speeds", Speed, "segments", key=u8, lookup="index")
presence = app.table("presence", Presence, "segments", key=u8, lookup="index")


def forward(report):
    """Tell whether the reported speed is not negative."""
    return report.speed >= 0


def average(segment, report):
    """Move a segment's average halfway to the reported speed; the first report sets it."""
    if segment.measured or (segment.average != 0.0 and not p.flagged):
        segment.average = (segment.average + report.speed) / 2.0
    else:
        segment.average = report.speed
    segment.measured = p.flagged
    for word in range(len(segment.payload)):
        segment.payload[word] = segment.average
    if p.work > 0:
        segment.average += burn(report.vid, p.work)


def speed_of(segment):
    """The average speed. A word of the payload that differs changes it, so that a torn row shows."""
    speed = segment.average
    for word in range(len(segment.payload)):
        speed += segment.payload[word] - segment.average
    return speed


def enter(segment, report):
    """Add the vehicle to its segment; the first report of a later window starts the count again."""
    if p.window > 0 and report.ts - report.ts % p.window != segment.begin:
        segment.begin = report.ts - report.ts % p.window
        segment.vehicles.clear()
        segment.count = 0
    if segment.vehicles.add(report.vid):
        segment.count += 1
    if p.work > 0:
        segment.count += burn(segment.count, p.work)


def road_speed(report, txn):
    """Update the average speed of the report's segment."""
    txn.modify(txn.row(speeds, report.seg), average)


def vehicle_count(report, txn):
    """Add the vehicle to the set of the report's segment."""
    txn.modify(txn.row(presence, report.seg), enter)


def toll_notification(report, txn):
    """Read the average speed and the vehicles of the report's segment."""
    txn.read(txn.row(speeds, report.seg))
    txn.read(txn.row(presence, report.seg))


@app.transaction(input=Report, output=Toll)
def toll_processing(report, txn):
    """Run the operators that the report asks for as one transaction, and drop invalid reports."""
    if report.seg >= p.segments or (p.separate and report.kind > TOLL_NOTIFICATION):
        txn.drop()
        return
    txn.require(forward)
    if not p.separate or report.kind == ROAD_SPEED:
        road_speed(report, txn)
    if not p.separate or report.kind == VEHICLE_COUNT:
        vehicle_count(report, txn)
    if not p.separate or report.kind == TOLL_NOTIFICATION:
        toll_notification(report, txn)


@toll_processing.post
def notify(report, txn, out):
    """Answer a report with its segment's speed, number of vehicles and toll."""
    speed = 0.0
    count = 0
    toll = 0
    if txn.accepted and (not p.separate or report.kind == TOLL_NOTIFICATION):
        speed = speed_of(txn.result(speeds, 0))
        count = txn.result(presence, 1).count
        if speed < SLOW and count > CROWD:
            toll = 2 * (count - CROWD) * (count - CROWD)
    out.emit(vid=report.vid, seg=report.seg, ok=txn.accepted, speed=speed, count=count, toll=toll)


@app.generates
def reports(params, seed, start, stop):
    """The reports of `input`. With `separate`, each makes three events, one for each operator."""
    if not params["separate"]:
        return position_reports(params, seed, start, stop) | {"kind": np.zeros(stop - start, np.int64)}
    events = np.arange(start, stop)
    first = start // 3
    columns = position_reports(params, seed, first, -(-stop // 3))
    return {name: column[events // 3 - first] for name, column in columns.items()} | {"kind": events % 3}


# The events that move an average, that enter a vehicle, and whose outputs hold results.
MOVES = f"(NOT :separate OR e.kind = {ROAD_SPEED})"
ENTERS = f"(NOT :separate OR e.kind = {VEHICLE_COUNT})"
SHOWS = f"(NOT :separate OR e.kind = {TOLL_NOTIFICATION})"

app.invariant(
    "each valid report has one output with its vehicle and segment, and other reports have none",
    """SELECT coalesce(e.seq, o.seq) AS seq, e.valid, e.vid, e.seg, o.outputs, o.of_vid, o.of_seg FROM
    (SELECT seq, vid, seg, seg < :segments AND (NOT :separate OR kind <= 2) AS valid
    FROM events) e FULL OUTER JOIN
    (SELECT seq, count(*) AS outputs, max(vid) AS of_vid, max(seg) AS of_seg FROM outputs GROUP BY seq) o
    ON e.seq = o.seq WHERE e.seq IS NULL OR coalesce(o.outputs, 0) <> CAST(e.valid AS INT)
    OR o.of_vid <> e.vid OR o.of_seg <> e.seg""",
)
app.invariant(
    "a report is rejected exactly when its speed is negative, and its results are then 0",
    """SELECT o.*, e.speed AS reported FROM outputs o JOIN events e ON o.seq = e.seq
    WHERE o.ok <> (e.speed >= 0) OR (NOT o.ok AND (o.speed <> 0 OR o.count <> 0 OR o.toll <> 0))""",
)
app.invariant(
    "the toll follows from the speed and the number of vehicles in the same output",
    f"""SELECT * FROM outputs
    WHERE toll <> IF(speed < {SLOW} AND count > {CROWD}, 2 * (count - {CROWD}) * (count - {CROWD}), 0)""",
)
app.invariant(
    # Depending on `flagged`, a segment with an average of 0 takes the reported speed, or moves halfway to it. Between
    # two results of a segment, its average moves once. Imported events with `separate` may move it more often.
    "a report moves its segment's average halfway to its speed, and the first report sets it",
    f"""SELECT * FROM (SELECT seq, seg, speed, reported, coalesce(lag(speed) OVER shown, 0) AS former,
    moves - lag(moves, 1, 0) OVER shown AS moves FROM
    (SELECT o.seq, o.seg, o.speed, {SHOWS} AS shows,
    last_value(IF({MOVES}, e.speed, NULL), true) OVER sofar AS reported, count_if({MOVES}) OVER sofar AS moves
    FROM outputs o JOIN events e ON o.seq = e.seq WHERE o.ok
    WINDOW sofar AS (PARTITION BY o.seg ORDER BY o.seq)) WHERE shows WINDOW shown AS (PARTITION BY seg ORDER BY seq))
    WHERE speed < 0 OR speed > (SELECT max(speed) FROM events) OR moves = 0 AND speed <> former OR moves = 1 AND NOT
    (speed = (former + reported) / 2 OR (former = 0 AND speed = reported))""",
)
app.invariant(
    "a segment's count grows by at most one, and shrinks only when a new window starts",
    f"""SELECT * FROM (SELECT seq, seg, count, begin, lag(count, 1, 0) OVER shown AS former,
    entered - lag(entered, 1, 0) OVER shown AS entered FROM
    (SELECT o.seq, o.seg, o.count, s.begin, {SHOWS} AS shows,
    count_if({ENTERS}) OVER (PARTITION BY o.seg ORDER BY o.seq) AS entered
    FROM outputs o JOIN events e ON o.seq = e.seq JOIN state_presence s ON s.key = o.seg WHERE o.ok)
    WHERE shows WINDOW shown AS (PARTITION BY seg ORDER BY seq))
    WHERE count NOT BETWEEN former AND former + entered AND NOT (begin > 0 AND count BETWEEN 1 AND entered)""",
)
app.invariant(
    # With `separate`, the events may end between a change and the output that shows it.
    "a segment's final state is that after its last accepted report",
    f"""SELECT s.key, s.average, c.count, o.* FROM state_speeds s JOIN state_presence c ON c.key = s.key LEFT JOIN
    (SELECT o.seg, max_by(o.speed, IF({SHOWS}, o.seq, NULL)) AS speed,
    max_by(o.count, IF({SHOWS}, o.seq, NULL)) AS last,
    coalesce(max(IF({SHOWS}, o.seq, NULL)), -1) AS shown, coalesce(max(IF({MOVES}, o.seq, NULL)), -1) AS moved,
    coalesce(max(IF({ENTERS}, o.seq, NULL)), -1) AS entered
    FROM outputs o JOIN events e ON o.seq = e.seq WHERE o.ok GROUP BY o.seg) o ON o.seg = s.key
    WHERE s.average <> coalesce(o.speed, 0) AND coalesce(o.moved <= o.shown, true)
    OR c.count <> coalesce(o.last, 0) AND coalesce(o.entered <= o.shown, true)""",
)
app.invariant(
    "a segment's set holds the vehicles that reported from it since its window started, each once",
    f"""SELECT s.key, s.count, size(s.vehicles) AS vehicles, size(v.seen) AS seen FROM state_presence s LEFT JOIN
    (SELECT c.key, collect_set(e.vid) AS seen FROM events e JOIN outputs o ON o.seq = e.seq
    JOIN state_presence c ON c.key = e.seg WHERE o.ok AND {ENTERS} AND e.ts >= c.begin
    GROUP BY c.key) v ON v.key = s.key
    WHERE s.count <> size(s.vehicles) OR array_sort(s.vehicles) <> coalesce(array_sort(v.seen), array())""",
)
