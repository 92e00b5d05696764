"""New segments: the position reports of vehicles that have entered another segment of the road.

    source -> new_seg (partitioned by vehicle) -> sink

The application comes from Viper's section on Linear Road.

A position report (type 0) is forwarded if it is the vehicle's first, or if the vehicle's last one came from another
expressway or segment. About a third of them are. As in Viper's code, the direction does not count. Other events are
filtered out. A report with a direction other than 0 and 1 is invalid, and the operator does not remember it.

Viper's code intends to forget a vehicle after 31 s of silence, but never does. `purge` sets the silence after which a
vehicle is forgotten, in event time, at its next report. The default 0 means never. Vehicles stay known when the
simulation repeats.
"""

from streaming_core.api import App, Param, Profile, boolean, i8, i16, i32, i64, record, u32
from streaming_core.apps.pos_rep import Event
from streaming_core.generator.linear_road import PARAMS, events

app = App(
    "new_seg",
    reads="Viper, Linear Road's stateful operator",
    params={
        "purge": Param(
            0, "seconds of silence after which a vehicle is forgotten; 0: never", minimum=0, maximum=1 << 31
        ),
        **PARAMS,
    },
    profiles={
        "viper": Profile("as Viper's code does: no vehicle is ever forgotten", {"purge": 0}),
        "viper-31s": Profile("as Viper's code intends: a vehicle is forgotten after 31 s", {"purge": 31}),
        "lrstorm": Profile(
            "as the code that Viper started from intends: a vehicle is forgotten after 30 s", {"purge": 30}
        ),
        "short": Profile("twenty minutes with few vehicles", {"seconds": 1_200, "veh_per_s": 5.0}),
    },
)
p = app.params


@record
class Last:
    """Where and when a vehicle last reported, in seconds; `known` is false before its first report."""

    ts: i64
    xway: i16
    seg: i16
    known: boolean


@record
class Entry:
    """A position report of a vehicle that has entered another segment."""

    ts: i64
    vid: u32
    pos: i32
    speed: i16
    xway: i16
    seg: i16
    lane: i8
    dir: i8
    new_seg: boolean


def new_seg(event, last, out):
    """Pass on a report if its vehicle is new or has changed its segment, and drop invalid reports."""
    if event.type != 0:
        return
    if event.dir < 0 or event.dir > 1:
        out.drop()
        return
    known = last.known and (p.purge == 0 or event.ts - last.ts <= p.purge)
    if not known or event.xway != last.xway or event.seg != last.seg:
        out.emit(
            ts=event.ts,
            vid=event.vid,
            pos=event.pos,
            speed=event.speed,
            xway=event.xway,
            seg=event.seg,
            lane=event.lane,
            dir=event.dir,
            new_seg=True,
        )
    last.ts = event.ts
    last.xway = event.xway
    last.seg = event.seg
    last.known = True


app.source(Event).key_by("vid").process(new_seg, state=Last, output=Entry).sink()


app.generates(events("vid", "pos", "speed", "xway", "seg", "type", "lane", "dir"))


# Valid position reports with the vehicle's report before; null at its first.
REPORTS = """(SELECT seq, ts, vid, xway, seg, ts - lag(ts) OVER vehicle AS silent,
xway = lag(xway) OVER vehicle AND seg = lag(seg) OVER vehicle AS stayed
FROM events WHERE type = 0 AND dir IN (0, 1) WINDOW vehicle AS (PARTITION BY vid ORDER BY seq))"""

app.invariant(
    "a valid position report has at most one output, and other events have none",
    """SELECT o.* FROM (SELECT seq, count(*) AS outputs FROM outputs GROUP BY seq) o
    LEFT JOIN (SELECT seq FROM events WHERE type = 0 AND dir IN (0, 1)) e ON e.seq = o.seq
    WHERE e.seq IS NULL OR o.outputs > 1""",
)
app.invariant(
    "a report is forwarded unchanged, with `new_seg` set",
    """SELECT o.* FROM outputs o JOIN events e ON o.seq = e.seq
    WHERE NOT o.new_seg OR (o.ts, o.vid, o.pos, o.speed, o.xway, o.seg, o.lane, o.dir)
    <> (e.ts, e.vid, e.pos, e.speed, e.xway, e.seg, e.lane, e.dir)""",
)
app.invariant(
    "a vehicle's first report, and each report from another segment than the one before, is forwarded",
    f"SELECT r.* FROM {REPORTS} r LEFT ANTI JOIN outputs o ON o.seq = r.seq WHERE NOT coalesce(r.stayed, false)",
)
app.invariant(
    "of reports from the same segment, exactly those after the longest silences are forwarded",
    # All reports after more than `purge` seconds; none if `purge` is 0.
    f"""SELECT * FROM (SELECT max(CASE WHEN o.seq IS NULL THEN silent END) AS remembered,
    min(CASE WHEN o.seq IS NOT NULL THEN silent END) AS forgotten
    FROM {REPORTS} r LEFT JOIN outputs o ON o.seq = r.seq WHERE r.stayed) WHERE forgotten <= remembered""",
)
app.invariant(
    "a vehicle's final state is its last report",
    f"""SELECT s.*, r.* FROM (SELECT key, ts AS last_ts, xway AS last_xway, seg AS last_seg, known FROM state_new_seg) s
    FULL OUTER JOIN (SELECT vid, max(ts) AS ts, max_by(xway, seq) AS xway, max_by(seg, seq) AS seg
    FROM {REPORTS} GROUP BY vid) r ON r.vid = s.key
    WHERE coalesce(known, false) <> (vid IS NOT NULL)
    OR (known AND (last_ts, last_xway, last_seg) <> (ts, xway, seg))""",
)


@app.property
def a_report_passes_if_its_segment_is_new(stream):
    """A valid report passes unless its vehicle's last one came from the same segment, and is not too old."""
    last: dict = {}
    expected, purge = [], stream.params["purge"]
    for seq, event in enumerate(stream.events):
        if event["type"] == 0 and event["dir"] in (0, 1):
            ts, *place = last.get(event["vid"], (0, None, None))
            forgotten = purge > 0 and stream.wrap(event["ts"] - ts) > purge
            if forgotten or place != [event["xway"], event["seg"]]:
                expected.append(seq)
            last[event["vid"]] = event["ts"], event["xway"], event["seg"]
    assert [row["seq"] for row in stream.outputs] == expected
