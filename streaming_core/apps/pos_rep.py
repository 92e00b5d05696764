"""Position reports: where vehicles are, out of all events that they send.

    source -> pos_rep (stateless) -> sink

The application comes from Viper's section on Linear Road.

A position report (type 0) is forwarded unchanged; about 99 of 100 events are position reports. Other events are
filtered out. A report with a direction other than 0 and 1 is invalid.

Outputs are in the order of time and `seq`, for any number of injectors. The output of Viper's published code depends on
their number.
"""

from streaming_core.api import App, Profile, i8, i16, i32, i64, record, u32
from streaming_core.generator.linear_road import PARAMS, events

app = App(
    "pos_rep",
    reads="Viper, Linear Road's stateless operator",
    params=PARAMS,
    profiles={
        "viper": Profile("three hours of one expressway, repeated", {"xways": 1, "seconds": 10_800}),
        "short": Profile("twenty minutes with few vehicles", {"seconds": 1_200, "veh_per_s": 5.0}),
        "rush-hour": Profile("slower vehicles in the middle third of the time", {"congestion": True}),
    },
)


@record
class Event:
    """A tuple of Linear Road: a position report (type 0) or a request; time is in seconds, position in feet."""

    ts: i64
    vid: u32
    pos: i32
    speed: i16
    xway: i16
    seg: i16
    type: i8
    lane: i8
    dir: i8


@record
class Report:
    """A valid position report: position in feet, speed in mph, and place on the road."""

    ts: i64
    vid: u32
    pos: i32
    speed: i16
    xway: i16
    seg: i16
    lane: i8
    dir: i8


def pos_rep(event, out):
    """Pass on position reports, filter out other events, and drop reports with an invalid direction."""
    if event.type != 0:
        return
    if event.dir < 0 or event.dir > 1:
        out.drop()
        return
    out.emit(
        ts=event.ts,
        vid=event.vid,
        pos=event.pos,
        speed=event.speed,
        xway=event.xway,
        seg=event.seg,
        lane=event.lane,
        dir=event.dir,
    )


app.source(Event).flat_map(pos_rep, Report).sink()
app.agrees_unordered("ts", "vid", "pos", "speed", "xway", "seg", "lane", "dir")


app.generates(events("vid", "pos", "speed", "xway", "seg", "type", "lane", "dir"))


app.invariant(
    "each valid position report has one output, and other events have none",
    """SELECT coalesce(e.seq, o.seq) AS seq, e.valid, o.outputs FROM
    (SELECT seq, type = 0 AND dir IN (0, 1) AS valid FROM events) e
    FULL OUTER JOIN (SELECT seq, count(*) AS outputs FROM outputs GROUP BY seq) o ON e.seq = o.seq
    WHERE e.seq IS NULL OR coalesce(o.outputs, 0) <> CAST(e.valid AS INT)""",
)
app.invariant(
    "a report is forwarded unchanged",
    """SELECT o.* FROM outputs o JOIN events e ON o.seq = e.seq
    WHERE (o.ts, o.vid, o.pos, o.speed, o.xway, o.seg, o.lane, o.dir)
    <> (e.ts, e.vid, e.pos, e.speed, e.xway, e.seg, e.lane, e.dir)""",
)


@app.property
def valid_reports_pass_unchanged(stream):
    """The outputs are the valid position reports, without their type."""
    valid = [event for event in stream.events if event["type"] == 0 and event["dir"] in (0, 1)]
    assert [row | {"type": 0} for row in stream.rows] == valid
