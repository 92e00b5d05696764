"""Toll processing with keyed state: the tolls of `tp`, from operators that each own their state.

    source -> parse (stateless) -> road_speed (by segment) -> vehicle_count (by segment) -> toll_notification -> sink

The application comes from TStream, section II, figure 2(a), which shows the conventional way.

In `tp`, operators share tables. Here each operator keeps its own state, partitioned by segment. The report carries the
speed and the count to the notification, so each step waits for the step before. This works because all state of an
event has one key. A transaction over several segments is not possible in this way.

Reports and tolls are those of `tp` with its default profile. A segment's average is 0 until its first report. A report
with a negative speed changes nothing, and its answer says that it is rejected.
"""

from streaming_core.api import App, Set, boolean, f64, i16, i64, record, u8, u32
from streaming_core.apps import tp
from streaming_core.apps.tp import CROWD, SLOW, Toll
from streaming_core.generator.linear_road import position_reports

app = App(
    "tpk",
    reads="TStream, section II, Figure 2(a); tolls as in Linear Road",
    params={
        name: tp.app.declared[name]
        for name in (
            "input",
            "segments",
            "vehicles",
            "max_speed",
            "theta",
            "reports_per_s",
            "invalid_ratio",
            "veh_per_s",
            "seconds",
        )
    },
)
p = app.params


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


@record
class Position:
    """A valid report: vehicle, speed in mph, and segment."""

    vid: u32
    speed: i16
    seg: u8


@record
class Speed:
    """The average speed of a segment in mph; 0 before its first report."""

    average: f64


@record
class Passage:
    """A report with its segment's average speed; `ok` is false if the report is rejected."""

    vid: u32
    seg: u8
    ok: boolean
    speed: f64


@record
class Presence:
    """The vehicles that have reported from a segment, and their number."""

    count: i64
    vehicles: Set[u32]


@record
class Congestion:
    """A report with its segment's average speed and number of vehicles."""

    vid: u32
    seg: u8
    ok: boolean
    speed: f64
    count: i64


def parse(report, out):
    """Drop reports of segments that do not exist."""
    if report.seg >= p.segments:
        out.drop()
        return
    out.emit(vid=report.vid, speed=report.speed, seg=report.seg)


def road_speed(report, segment, out):
    """Move the segment's average halfway to the reported speed; the first report sets it."""
    if report.speed < 0:
        out.emit(vid=report.vid, seg=report.seg, ok=False, speed=0.0)
        return
    if segment.average != 0.0:
        segment.average = (segment.average + report.speed) / 2.0
    else:
        segment.average = report.speed
    out.emit(vid=report.vid, seg=report.seg, ok=True, speed=segment.average)


def vehicle_count(passage, segment, out):
    """Add the vehicle to its segment, unless the report is rejected."""
    count = 0
    if passage.ok:
        if segment.vehicles.add(passage.vid):
            segment.count += 1
        count = segment.count
    out.emit(vid=passage.vid, seg=passage.seg, ok=passage.ok, speed=passage.speed, count=count)


def toll_notification(segment, out):
    """Answer a report with its segment's speed, number of vehicles and toll."""
    toll = 0
    if segment.speed < SLOW and segment.count > CROWD:
        toll = 2 * (segment.count - CROWD) * (segment.count - CROWD)
    out.emit(vid=segment.vid, seg=segment.seg, ok=segment.ok, speed=segment.speed, count=segment.count, toll=toll)


positions = app.source(Report).flat_map(parse, Position)
passages = positions.key_by("seg").process(road_speed, state=Speed, output=Passage)
counts = passages.key_by("seg").process(vehicle_count, state=Presence, output=Congestion)
counts.flat_map(toll_notification, Toll).sink()


app.generates(position_reports)  # the same events as in `tp`
