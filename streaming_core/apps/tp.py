"""Toll Processing: what a road's segments charge, by their speed and by the vehicles seen on them (TStream, sections II
and VI-A; workloads A.4).

    road_speed + vehicle_count + toll_notification (one joint transaction of three) -> sink

Three transactional operators share two tables: road_speed averages a segment's speed (each report weighs a half),
vehicle_count adds the vehicle to the segment's set, toll_notification reads both, after the event's own contribution.
A report of a negative speed is rejected by road_speed's condition, and with it all three. A report of a segment outside
the tables is invalid.

Reports are drawn each by itself, skewed over segments (parameters vehicles, max_speed, theta, reports_per_s), or are
those of the vehicles on one of Linear Road's expressways (veh_per_s, seconds), of which only the segment's number
counts here. Event time is in seconds.
"""

from streaming_core.api import App, Param, Profile, Set, boolean, burn, f64, i16, i64, record, u8, u32
from streaming_core.generator.linear_road import PARAMS, position_reports

app = App(
    "tp",
    reads="TStream, sections II and VI-A; tolls as in Linear Road",
    params={
        "input": Param("zipf", "reports drawn each by itself, or Linear Road's", choices=("zipf", "linear_road")),
        "segments": Param(100, "segments of the road", minimum=1, maximum=256),
        "vehicles": Param(100_000, "vehicles there are", minimum=1, maximum=1 << 32),
        "max_speed": Param(100, "the highest speed reported", minimum=0, maximum=32_767),
        "work": Param(0, "rounds of dummy work per segment changed", minimum=0, maximum=1_000_000),
        "theta": Param(0.2, "Zipf exponent of the segments", minimum=0.0, maximum=4.0),
        "reports_per_s": Param(1_000, "reports per second of event time", minimum=1, maximum=1_000_000_000),
        "flagged": Param(False, "a flag, and not a speed of 0, tells that a segment's speed is still to be measured"),
        "window": Param(0, "seconds after which vehicles are counted anew; 0: never", minimum=0, maximum=1_000_000_000),
        "invalid_ratio": Param(
            0.0, "share of reports with a speed of -1, which are rejected", minimum=0.0, maximum=1.0
        ),
        "veh_per_s": PARAMS["veh_per_s"],
        "seconds": PARAMS["seconds"],
    },
    profiles={
        "tp-code": Profile(
            "a segment whose average is 0 counts as not yet measured, as in TStream's code", {"flagged": False}
        ),
        "tp-clean": Profile("whether a segment was measured is kept apart from its speed", {"flagged": True}),
        "tp-minutes": Profile("vehicles per minute, as Linear Road counts them", {"window": 60}),
    },
)
p = app.params
SLOW = 40  # a toll is due below this speed,
CROWD = 50  # above this number of vehicles


@record
class Report:
    ts: i64
    vid: u32
    pos: u32
    speed: i16
    xway: u8
    lane: u8
    dir: u8
    seg: u8


@record
class Speed:
    average: f64
    measured: boolean


@record
class Presence:
    begin: i64
    count: i64
    vehicles: Set[u32]


@record
class Toll:
    vid: u32
    seg: u8
    ok: boolean
    speed: f64
    count: i64
    toll: i64


speeds = app.table("speeds", Speed, "segments")
presence = app.table("presence", Presence, "segments")


def forward(report):
    return report.speed >= 0


def average(segment, report):
    if segment.measured or (segment.average != 0.0 and not p.flagged):
        segment.average = (segment.average + report.speed) / 2.0
    else:
        segment.average = report.speed
    segment.measured = p.flagged
    if p.work > 0:
        segment.average += burn(report.vid, p.work)


def enter(segment, report):
    if p.window > 0 and report.ts - report.ts % p.window != segment.begin:
        segment.begin = report.ts - report.ts % p.window
        segment.vehicles.clear()
        segment.count = 0
    if segment.vehicles.add(report.vid):
        segment.count += 1
    if p.work > 0:
        segment.count += burn(segment.count, p.work)


def road_speed(report, txn):
    txn.require(forward)
    txn.modify(txn.row(speeds, report.seg), average)


def vehicle_count(report, txn):
    txn.modify(txn.row(presence, report.seg), enter)


def toll_notification(report, txn):
    txn.read(txn.row(speeds, report.seg))
    txn.read(txn.row(presence, report.seg))


@app.transaction(input=Report, output=Toll)
def toll_processing(report, txn):
    if report.seg >= p.segments:
        txn.drop()
        return
    road_speed(report, txn)
    vehicle_count(report, txn)
    toll_notification(report, txn)


@toll_processing.post
def notify(report, txn, out):
    if not txn.accepted:
        out.emit(vid=report.vid, seg=report.seg, ok=False, speed=0.0, count=0, toll=0)
        return
    speed = txn.result(speeds, 0).average
    count = txn.result(presence, 1).count
    toll = 0
    if speed < SLOW and count > CROWD:
        toll = 2 * (count - CROWD) * (count - CROWD)
    out.emit(vid=report.vid, seg=report.seg, ok=True, speed=speed, count=count, toll=toll)


app.generates(position_reports)


app.invariant(
    "one output, of its vehicle and segment, for each valid report, none for others",
    """SELECT coalesce(e.seq, o.seq) AS seq, e.valid, e.vid, e.seg, o.outputs, o.of_vid, o.of_seg FROM
    (SELECT seq, vid, seg, seg < (SELECT count(*) FROM state_speeds) AS valid FROM events) e FULL OUTER JOIN
    (SELECT seq, count(*) AS outputs, max(vid) AS of_vid, max(seg) AS of_seg FROM outputs GROUP BY seq) o
    ON e.seq = o.seq WHERE e.seq IS NULL OR coalesce(o.outputs, 0) <> CAST(e.valid AS INT)
    OR o.of_vid <> e.vid OR o.of_seg <> e.seg""",
)
app.invariant(
    "a report is rejected just when its speed is negative, and then says nothing more",
    """SELECT o.*, e.speed AS reported FROM outputs o JOIN events e ON o.seq = e.seq
    WHERE o.ok <> (e.speed >= 0) OR (NOT o.ok AND (o.speed <> 0 OR o.count <> 0 OR o.toll <> 0))""",
)
app.invariant(
    "the toll follows from the speed and the number of vehicles beside it",
    f"""SELECT * FROM outputs
    WHERE toll <> IF(speed < {SLOW} AND count > {CROWD}, 2 * (count - {CROWD}) * (count - {CROWD}), 0)""",
)
app.invariant(
    # A segment whose average is 0 begins anew with the reported speed, or not, depending on the profile.
    "a report pulls its segment's average half the way to its speed, and sets the first",
    """SELECT * FROM (SELECT o.seq, o.seg, o.speed, e.speed AS reported,
    lag(o.speed) OVER (PARTITION BY o.seg ORDER BY o.seq) AS former
    FROM outputs o JOIN events e ON o.seq = e.seq WHERE o.ok)
    WHERE speed < 0 OR speed > (SELECT max(speed) FROM events) OR NOT (speed = (former + reported) / 2
    OR (coalesce(former, 0) = 0 AND speed = reported))""",
)
app.invariant(
    "a segment's count grows by one at most, and shrinks only where a new window begins",
    """SELECT * FROM (SELECT o.seq, o.seg, o.count, s.begin,
    lag(o.count, 1, 0) OVER (PARTITION BY o.seg ORDER BY o.seq) AS former
    FROM outputs o JOIN state_presence s ON s.key = o.seg WHERE o.ok)
    WHERE count NOT IN (former, former + 1) AND NOT (begin > 0 AND count = 1)""",
)
app.invariant(
    "a segment ends as its last accepted report has left it",
    """SELECT s.key, s.average, c.count, o.* FROM state_speeds s JOIN state_presence c ON c.key = s.key LEFT JOIN
    (SELECT seg, max_by(speed, seq) AS speed, max_by(count, seq) AS last FROM outputs WHERE ok GROUP BY seg) o
    ON o.seg = s.key WHERE s.average <> coalesce(o.speed, 0) OR c.count <> coalesce(o.last, 0)""",
)
app.invariant(
    "a segment's vehicles are those that have reported from it, each once, since its window began",
    """SELECT s.key, s.count, size(s.vehicles) AS vehicles, size(v.seen) AS seen FROM state_presence s LEFT JOIN
    (SELECT c.key, collect_set(e.vid) AS seen FROM events e JOIN outputs o ON o.seq = e.seq
    JOIN state_presence c ON c.key = e.seg WHERE o.ok AND e.ts >= c.begin GROUP BY c.key) v ON v.key = s.key
    WHERE s.count <> size(s.vehicles) OR array_sort(s.vehicles) <> coalesce(array_sort(v.seen), array())""",
)
