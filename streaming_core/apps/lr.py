"""Linear Road: tolls by the recent traffic, warnings of accidents, and accounts of vehicles.

    source -> position_reports -+-> average_speed -> latest_velocity -+
                                +-> vehicle_count --------------------+
                                +-> stopped_vehicle -> accident ------+-> toll_notification
                                +-> segment_crossing -----------------+-> accident_notification
    source -> balance_requests -> account_balance <- charges <- toll_notification
    source -> daily_expenditure
    toll_notification, accident_notification, account_balance, daily_expenditure -> sink

The pipeline comes from BriskStream, section 6.1. It keeps traffic by segment (of an expressway, in one direction) and
by minute, numbered from 1.

A vehicle is told a toll when it enters a segment other than to leave the road. The toll is 2 (n - 50)^2 if all of
these hold, and 0 otherwise:

- n > 50 vehicles were in the segment in the minute before.
- The latest average velocity is below `limit`.
- There was no accident in the minute before in this segment or the next four.

The vehicle pays when it leaves the segment. All other reports get a toll of -1. Every report also gets the new number
of vehicles and the new velocity of its segment, because all these operators have selectivity 1 in BriskStream.

Linear Road's description and BriskStream's code differ. These rules apply here:

- The latest average velocity for minute m covers minutes m-5 to m-1. It is the mean, rounded down, of the mean speeds
  of all vehicles, as it stood after the last report of minute m-1. It is 0 if minute m-1 has no report.
- All data meet by segment. An accident is sent to every segment behind it that it affects. So no operator needs a
  broadcast, which BriskStream uses.
- What a vehicle paid in the past is a function of vehicle, day and expressway. It needs no state.
- The application ignores travel time requests (type 4). A report with a direction other than 0 and 1 is invalid.
"""

from typing import Literal

from streaming_core.api import (
    App,
    Array,
    Counter,
    Map,
    Param,
    Profile,
    Set,
    boolean,
    i8,
    i16,
    i32,
    i64,
    record,
    u8,
    u32,
)
from streaming_core.generator.linear_road import PARAMS, events

app = App(
    "lr",
    reads="BriskStream, section 6.1; Linear Road",
    params={
        "limit": Param(40, "velocity below which a toll is due, in mph", minimum=1, maximum=100),
        **PARAMS,
    },
    profiles={
        "lr-standard": Profile("the velocity limit of Linear Road", {"limit": 40}),
        "lr-brisk": Profile("the velocity limit of BriskStream's code", {"limit": 50}),
        "short": Profile("twenty minutes with few vehicles", {"seconds": 1_200, "veh_per_s": 5.0}),
    },
)
p = app.params
CROWD = 50  # a toll is due above this number of vehicles
AHEAD = 5  # an accident affects so many segments, its own included
SEGMENTS = 100
ROAD = 528_000  # feet
EXIT = 4  # lane
# Kinds of signals to a segment, and kinds of answers.
ACCIDENT, COUNT, VELOCITY, POSITION = 0, 1, 2, 3
TOLL, CROWDED, PACE, WARNING, BALANCE, EXPENDITURE = 0, 1, 2, 3, 4, 5


@record
class Event:
    """A tuple of Linear Road: a position report (type 0) or a request (types 2 to 4); time is in seconds."""

    ts: i64
    qid: i64
    vid: u32
    pos: i32
    speed: i16
    xway: i16
    seg: i16
    s_init: i16
    s_end: i16
    tod: i16
    type: i8
    lane: i8
    dir: i8
    dow: i8
    day: i8


@record
class Report:
    """A valid position report: position in feet, speed in mph, and segment of an expressway in one direction."""

    ts: i64
    vid: u32
    pos: i32
    segment: i32
    speed: i16
    lane: i8


@record
class Average:
    """The mean speed of a vehicle in its segment so far in this minute, in mph."""

    ts: i64
    vid: u32
    segment: i32
    speed: i64


@record
class Signal:
    """News for a segment: `kind` says which, `value` holds it, and `minute` is the minute that it is about."""

    ts: i64
    minute: i64
    value: i64
    vid: u32
    segment: i32
    kind: u8
    enters: boolean
    leaves: boolean


@record
class Stop:
    """A place where a vehicle stands (`stands`), or which it has left; a place is a position in feet of one road."""

    ts: i64
    place: i64
    vid: u32
    segment: i32
    stands: boolean


@record
class Answer:
    """A row of the sink: `kind` says which answer it is, and `value` holds the toll, distance, balance or sum."""

    ts: i64
    qid: i64
    value: i64
    vid: u32
    minute: i32
    segment: i32
    count: i32
    velocity: i16
    kind: u8
    accident: boolean
    leaves: boolean


@record
class Speeds:
    """The reports of a segment in this minute: by vehicle, the sum of speeds in mph and their number."""

    minute: i64
    sums: Map[u32, i64]
    reports: Counter[u32]


@record
class Velocities:
    """The mean speeds of a segment's vehicles in each of the last five minutes: sums in mph, and counts."""

    minute: i64
    sums: Array[i64, Literal[5]]
    vehicles: Array[i64, Literal[5]]
    latest: Map[u32, i64]


@record
class Present:
    """The vehicles that have reported from a segment in this minute."""

    minute: i64
    vehicles: Set[u32]


@record
class Standing:
    """Where a vehicle last reported, and how many equal reports in a row it has sent."""

    place: i64
    reports: i64
    segment: i32
    lane: i8


@record
class Place:
    """The vehicles that stand in a place (value 1), their number, and the last minute with a signal."""

    minute: i64
    standing: i64
    vehicles: Map[u32, i64]


@record
class Vehicle:
    """The segment of a vehicle's last report; `known` is false once it has left the road."""

    segment: i32
    known: boolean


@record
class Traffic:
    """The numbers of a segment in the latest two minutes for which they are known."""

    count_minute: i64
    count: i64
    former_count_minute: i64
    former_count: i64
    velocity_minute: i64
    velocity: i64
    former_velocity_minute: i64
    former_velocity: i64
    accident_minute: i64
    former_accident_minute: i64


@record
class Ahead:
    """The latest two minutes with an accident, by its distance in segments."""

    minutes: Array[i64, Literal[5]]
    former_minutes: Array[i64, Literal[5]]


@record
class Account:
    """The balance of a vehicle, and the toll that it pays when it leaves its segment."""

    balance: i64
    due: i64


def minute_of(ts):
    """Return the minute of a time in seconds, from 1 on."""
    return ts // 60 + 1


def ahead_of(segment, distance):
    """Return the segment so far ahead in a vehicle's direction; -1 beyond the end of the road."""
    seg = segment % SEGMENTS + (distance if segment // SEGMENTS % 2 == 0 else -distance)
    if seg < 0 or seg >= SEGMENTS:
        return -1
    return segment - segment % SEGMENTS + seg


def just_before(minute, latest, former):
    """Tell whether one of two minutes (0: none) is the minute before."""
    return minute > 1 and (latest == minute - 1 or former == minute - 1)


def past_toll(vid, day, xway):
    """Return 10 to 99 for each of the 69 days of history, and 0 for other days."""
    if day < 1 or day > 69:
        return 0
    return 10 + ((vid * 128 + day) * 256 + xway) % 1_000_003 * 48_271 % 2_147_483_647 % 90


# --- the dispatcher --------------------------------------------------------------------------------------------------


def position_reports(event, out):
    """Keep position reports with their segment, and drop those with an invalid direction."""
    if event.type != 0:
        return
    if event.dir < 0 or event.dir > 1:
        out.drop()
        return
    segment = (event.xway * 2 + event.dir) * SEGMENTS + event.seg
    out.emit(ts=event.ts, vid=event.vid, pos=event.pos, segment=segment, speed=event.speed, lane=event.lane)


def balance_requests(event, out):
    """Keep balance requests (type 2), as answers without a balance yet."""
    if event.type == 2:
        out.emit(
            ts=event.ts, qid=event.qid, value=0, vid=event.vid, minute=minute_of(event.ts), segment=-1, count=0,
            velocity=0, kind=BALANCE, accident=False, leaves=False,
        )  # fmt: skip


def daily_expenditure(event, out):
    """Answer requests for the expenditure of a past day (type 3)."""
    if event.type == 3:
        out.emit(
            ts=event.ts, qid=event.qid, value=past_toll(event.vid, event.day, event.xway), vid=event.vid,
            minute=minute_of(event.ts), segment=-1, count=0, velocity=0, kind=EXPENDITURE, accident=False, leaves=False,
        )  # fmt: skip


# --- by segment: speeds, velocity, vehicles --------------------------------------------------------------------------


def average_speed(report, segment, out):
    """Add a report to its vehicle's mean speed in this minute, and emit the mean."""
    if segment.minute != minute_of(report.ts):
        segment.minute = minute_of(report.ts)
        segment.sums.clear()
        segment.reports.clear()
    total = segment.sums.get(report.vid, 0) + report.speed
    segment.sums.put(report.vid, total)
    reports = segment.reports.add(report.vid, 1)
    out.emit(ts=report.ts, vid=report.vid, segment=report.segment, speed=total // reports)


def latest_velocity(average, segment, out):
    """Update a segment's average velocity over five minutes, and signal it for the next minute."""
    minute = minute_of(average.ts)
    if segment.minute != minute:
        for past in range(min(minute - segment.minute, 5)):
            segment.sums[(minute - past) % 5] = 0
            segment.vehicles[(minute - past) % 5] = 0
        segment.minute = minute
        segment.latest.clear()
    former = segment.latest.get(average.vid, -1)
    segment.latest.put(average.vid, average.speed)
    if former < 0:
        segment.vehicles[minute % 5] += 1
        former = 0
    segment.sums[minute % 5] += average.speed - former
    total = 0
    vehicles = 0
    for i in range(5):
        total += segment.sums[i]
        vehicles += segment.vehicles[i]
    out.emit(
        ts=average.ts, minute=minute + 1, value=total // vehicles, vid=average.vid, segment=average.segment,
        kind=VELOCITY, enters=False, leaves=False,
    )  # fmt: skip


def vehicle_count(report, segment, out):
    """Add a vehicle to those of this minute, and signal their number."""
    if segment.minute != minute_of(report.ts):
        segment.minute = minute_of(report.ts)
        segment.vehicles.clear()
    segment.vehicles.add(report.vid)
    out.emit(
        ts=report.ts, minute=segment.minute, value=len(segment.vehicles), vid=report.vid, segment=report.segment,
        kind=COUNT, enters=False, leaves=False,
    )  # fmt: skip


# --- accidents: two vehicles that stand in the same place; a vehicle stands after four equal reports ------------------


def stopped_vehicle(report, last, out):
    """Signal at every report that a vehicle stands in a place, and once that it left."""
    place = report.segment // SEGMENTS * ROAD + report.pos
    if last.reports > 0 and place == last.place and report.lane == last.lane and report.lane != EXIT:
        last.reports += 1
    else:
        if last.reports >= 4:
            out.emit(ts=report.ts, place=last.place, vid=report.vid, segment=last.segment, stands=False)
        last.reports = 0 if report.lane == EXIT else 1
    last.place = place
    last.segment = report.segment
    last.lane = report.lane
    if last.reports >= 4:
        out.emit(ts=report.ts, place=place, vid=report.vid, segment=report.segment, stands=True)


def accident(stop, place, out):
    """Signal an accident to the segments behind it, once a minute while it lasts."""
    minute = minute_of(stop.ts)
    stood = place.vehicles.get(stop.vid, 0)
    if not stop.stands:
        place.standing -= stood
        place.vehicles.put(stop.vid, 0)
        return
    place.standing += 1 - stood
    place.vehicles.put(stop.vid, 1)
    if place.standing >= 2 and place.minute != minute:
        place.minute = minute
        for distance in range(AHEAD):
            behind = ahead_of(stop.segment, -distance)
            if behind >= 0:
                out.emit(
                    ts=stop.ts, minute=minute, value=distance, vid=stop.vid, segment=behind, kind=ACCIDENT,
                    enters=False, leaves=False,
                )  # fmt: skip


# --- tolls and warnings ----------------------------------------------------------------------------------------------


def segment_crossing(report, vehicle, out):
    """Signal each position, and whether the vehicle enters the segment or leaves the road."""
    leaves = report.lane == EXIT
    enters = not leaves and (not vehicle.known or vehicle.segment != report.segment)
    vehicle.known = not leaves
    vehicle.segment = report.segment
    out.emit(
        ts=report.ts, minute=minute_of(report.ts), value=0, vid=report.vid, segment=report.segment, kind=POSITION,
        enters=enters, leaves=leaves,
    )  # fmt: skip


# The state of a segment keeps two minutes of each number: the current minute, and the one before, which sets the toll.


def note_accident(segment, minute):
    """Note an accident that blocks the segment in this minute."""
    if segment.accident_minute != minute:
        segment.former_accident_minute = segment.accident_minute
        segment.accident_minute = minute


def note_count(segment, minute, count):
    """Note the number of vehicles in this minute."""
    if segment.count_minute != minute:
        segment.former_count_minute = segment.count_minute
        segment.former_count = segment.count
        segment.count_minute = minute
    segment.count = count


def note_velocity(segment, minute, velocity):
    """Note the average velocity in this minute."""
    if segment.velocity_minute != minute:
        segment.former_velocity_minute = segment.velocity_minute
        segment.former_velocity = segment.velocity
        segment.velocity_minute = minute
    segment.velocity = velocity


def count_before(segment, minute):
    """Return the vehicles of the minute before; 0 if none is known."""
    return segment.former_count if segment.former_count_minute == minute - 1 else 0


def velocity_before(segment, minute):
    """Return the velocity that sets tolls in this minute; 0 if none is known."""
    return segment.former_velocity if segment.former_velocity_minute == minute else 0


def toll_of(velocity, count, blocked, limit):
    """Return the toll of a segment."""
    return 2 * (count - CROWD) * (count - CROWD) if velocity < limit and count > CROWD and not blocked else 0


def toll_notification(signal, segment, out):
    """Answer each signal but accidents; tell a vehicle that enters the segment its toll."""
    minute = signal.minute
    toll = signal.value
    count = 0
    velocity = 0
    blocked = False
    kind = TOLL
    if signal.kind == ACCIDENT:
        note_accident(segment, minute)
        return
    if signal.kind == COUNT:
        kind = CROWDED
        note_count(segment, minute, signal.value)
    if signal.kind == VELOCITY:
        kind = PACE
        note_velocity(segment, minute, signal.value)
    if signal.kind == POSITION:
        toll = -1
        if signal.enters:
            count = count_before(segment, minute)
            velocity = velocity_before(segment, minute)
            blocked = just_before(minute, segment.accident_minute, segment.former_accident_minute)
            toll = toll_of(velocity, count, blocked, p.limit)
    out.emit(
        ts=signal.ts, qid=-1, value=toll, vid=signal.vid, minute=minute, segment=signal.segment, count=count,
        velocity=velocity, kind=kind, accident=blocked, leaves=signal.leaves,
    )  # fmt: skip


def note_accident_ahead(segment, minute, distance):
    """Note an accident so many segments ahead."""
    if segment.minutes[distance] != minute:
        segment.former_minutes[distance] = segment.minutes[distance]
        segment.minutes[distance] = minute


def nearest_accident(segment, minute):
    """Return the distance to the nearest accident ahead; -1 without one."""
    for distance in range(AHEAD):
        if just_before(minute, segment.minutes[distance], segment.former_minutes[distance]):
            return distance
    return -1


def warn(signal, segment, out):
    """Warn a vehicle of the nearest accident ahead, if there is one."""
    distance = nearest_accident(segment, signal.minute)
    if distance >= 0:
        out.emit(
            ts=signal.ts, qid=-1, value=distance, vid=signal.vid, minute=signal.minute,
            segment=ahead_of(signal.segment, distance), count=0, velocity=0, kind=WARNING, accident=True, leaves=False,
        )  # fmt: skip


def accident_notification(signal, segment, out):
    """Note accidents ahead, and warn each vehicle that enters the segment of the nearest one."""
    if signal.kind == ACCIDENT:
        note_accident_ahead(segment, signal.minute, signal.value)
    elif signal.enters:
        warn(signal, segment, out)


# --- accounts --------------------------------------------------------------------------------------------------------


def charges(answer, out):
    """Keep the answers that change an account: tolls, and reports of vehicles that leave the road."""
    if answer.kind == TOLL and (answer.value >= 0 or answer.leaves):
        out.emit(
            ts=answer.ts, qid=answer.qid, value=answer.value, vid=answer.vid, minute=answer.minute,
            segment=answer.segment, count=answer.count, velocity=answer.velocity, kind=answer.kind,
            accident=answer.accident, leaves=answer.leaves,
        )  # fmt: skip


def account_balance(answer, account, out):
    """Charge the toll of the segment that a vehicle has left, or answer a balance request."""
    if answer.kind == TOLL:
        account.balance += account.due
        account.due = max(answer.value, 0)
    else:
        out.emit(
            ts=answer.ts, qid=answer.qid, value=account.balance, vid=answer.vid, minute=answer.minute, segment=-1,
            count=0, velocity=0, kind=BALANCE, accident=False, leaves=False,
        )  # fmt: skip


source = app.source(Event)
reports = source.flat_map(position_reports, Report)
requests = source.flat_map(balance_requests, Answer)
expenditures = source.flat_map(daily_expenditure, Answer)

speeds = reports.key_by("segment").process(average_speed, state=Speeds, output=Average)
velocities = speeds.key_by("segment").process(latest_velocity, state=Velocities, output=Signal)
counts = reports.key_by("segment").process(vehicle_count, state=Present, output=Signal)
stops = reports.key_by("vid").process(stopped_vehicle, state=Standing, output=Stop)
accidents = stops.key_by("place").process(accident, state=Place, output=Signal)
positions = reports.key_by("vid").process(segment_crossing, state=Vehicle, output=Signal)

traffic = accidents.union(counts, velocities, positions).key_by("segment")
tolls = traffic.process(toll_notification, state=Traffic, output=Answer)
warnings = accidents.union(positions).key_by("segment").process(accident_notification, state=Ahead, output=Answer)
charged = tolls.flat_map(charges, Answer)
balances = charged.union(requests).key_by("vid").process(account_balance, state=Account, output=Answer)

tolls.union(warnings, balances, expenditures).sink()


app.generates(
    events("qid", "vid", "pos", "speed", "xway", "seg", "s_init", "s_end", "tod", "type", "lane", "dir", "dow", "day")
)


REPORTS = """(SELECT seq, ts, vid, speed, lane, pos, (xway * 2 + dir) * 100 + seg AS segment, ts div 60 + 1 AS minute
FROM events WHERE type = 0 AND dir IN (0, 1))"""
# Each report: whether its vehicle entered a segment with it, and whether the vehicle has stood for four reports.
TRIPS = f"""(SELECT *, lane <> 4 AND (last_lane IS NULL OR last_lane = 4 OR segment <> last_segment) AS enters,
lane <> 4 AND min(same) OVER (PARTITION BY vid ORDER BY seq ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) = 1
AND count(*) OVER (PARTITION BY vid ORDER BY seq) > 3 AS stands
FROM (SELECT *, lag(lane) OVER vehicle AS last_lane, lag(segment) OVER vehicle AS last_segment,
CAST(lag(struct(segment div 100, pos, lane)) OVER vehicle = struct(segment div 100, pos, lane) AS INT) AS same
FROM {REPORTS} WINDOW vehicle AS (PARTITION BY vid ORDER BY seq)))"""
# A vehicle pays a toll when it gets the next one, or when it leaves.
PAID = """(SELECT vid, seq, greatest(lag(value) OVER (PARTITION BY vid ORDER BY seq), 0) AS paid
FROM outputs WHERE kind = 0 AND (value >= 0 OR leaves))"""

app.invariant(
    "a report has three answers and at most one warning, a balance or expenditure request one answer",
    """SELECT coalesce(e.seq, o.seq) AS seq, e.asked, o.kinds FROM
    (SELECT seq, CASE WHEN type = 0 AND dir NOT IN (0, 1) THEN 1 ELSE type END AS asked FROM events) e FULL OUTER JOIN
    (SELECT seq, concat_ws(' ', sort_array(collect_list(CAST(kind AS STRING)))) AS kinds FROM outputs GROUP BY seq) o
    ON e.seq = o.seq WHERE e.seq IS NULL OR NOT CASE e.asked
    WHEN 0 THEN coalesce(o.kinds IN ('0 1 2', '0 1 2 3'), false) WHEN 2 THEN coalesce(o.kinds = '4', false)
    WHEN 3 THEN coalesce(o.kinds = '5', false) ELSE o.kinds IS NULL END""",
)
app.invariant(
    "a vehicle is told a toll exactly when it enters a segment other than to leave the road",
    f"""SELECT o.* FROM outputs o JOIN {TRIPS} t ON t.seq = o.seq WHERE o.kind = 0 AND ((o.value >= 0) <> t.enters
    OR o.leaves <> (t.lane = 4) OR o.vid <> t.vid OR o.segment <> t.segment)""",
)
app.invariant(
    "a toll follows from the velocity, the number of vehicles and the accident in the same output",
    # The velocity limit is a parameter: no toll is due at or above a velocity that was free.
    """SELECT o.* FROM outputs o CROSS JOIN
    (SELECT coalesce(min(velocity), 1000) AS free FROM outputs
    WHERE kind = 0 AND value = 0 AND count > 50 AND NOT accident) WHERE o.kind = 0 AND o.value >= 0
    AND o.value <> IF(o.count > 50 AND NOT o.accident AND o.velocity < free, 2 * (o.count - 50) * (o.count - 50), 0)""",
)
app.invariant(
    "a segment's number of vehicles is the number that reported from it in the minute",
    f"""SELECT o.*, r.vehicles FROM outputs o JOIN (SELECT seq,
    size(collect_set(vid) OVER (PARTITION BY segment, minute ORDER BY seq)) AS vehicles FROM {REPORTS}) r
    ON r.seq = o.seq WHERE o.kind = 1 AND o.value <> r.vehicles""",
)
app.invariant(
    "a toll uses the number of vehicles in the minute before",
    f"""SELECT o.*, r.vehicles FROM outputs o LEFT JOIN
    (SELECT segment, minute, count(DISTINCT vid) AS vehicles FROM {REPORTS} GROUP BY segment, minute) r
    ON r.segment = o.segment AND r.minute = o.minute - 1
    WHERE o.kind = 0 AND o.value >= 0 AND o.count <> coalesce(r.vehicles, 0)""",
)
app.invariant(
    "a segment's velocity after its last report of a minute is the mean of all vehicles over five minutes",
    f"""SELECT * FROM (SELECT l.segment, l.minute, any_value(l.value) AS value, sum(v.mean) div count(*) AS mean FROM
    (SELECT segment, minute, max_by(value, seq) AS value FROM outputs WHERE kind = 2 GROUP BY segment, minute) l JOIN
    (SELECT segment, minute, vid, sum(speed) div count(*) AS mean FROM {REPORTS} GROUP BY segment, minute, vid) v
    ON v.segment = l.segment AND v.minute BETWEEN l.minute - 5 AND l.minute - 1 GROUP BY l.segment, l.minute)
    WHERE value <> mean""",
)
app.invariant(
    "a toll uses the velocity at the end of the minute before",
    """SELECT o.*, l.value AS last FROM outputs o LEFT JOIN
    (SELECT segment, minute, max_by(value, seq) AS value FROM outputs WHERE kind = 2 GROUP BY segment, minute) l
    ON l.segment = o.segment AND l.minute = o.minute
    WHERE o.kind = 0 AND o.value >= 0 AND o.velocity <> coalesce(l.value, 0)""",
)
app.invariant(
    "a vehicle that enters a segment is warned exactly when an accident is ahead",
    """SELECT o.seq, o.accident, w.segment FROM (SELECT * FROM outputs WHERE kind = 0) o FULL OUTER JOIN
    (SELECT * FROM outputs WHERE kind = 3) w ON w.seq = o.seq WHERE o.seq IS NULL OR o.accident <> (w.seq IS NOT NULL)
    OR (w.segment - o.segment) * IF(o.segment div 100 % 2 = 0, 1, -1) <> w.value OR w.value NOT BETWEEN 0 AND 4""",
)
app.invariant(
    "an accident is where, in the minute before, two vehicles stood in the same place",
    f"""SELECT w.* FROM outputs w LEFT JOIN
    (SELECT DISTINCT s.segment, s.minute FROM {TRIPS} s JOIN {TRIPS} o ON o.segment = s.segment AND o.pos = s.pos
    AND o.vid <> s.vid AND o.seq < s.seq WHERE s.stands AND o.stands) a
    ON a.segment = w.segment AND a.minute = w.minute - 1 WHERE w.kind = 3 AND a.minute IS NULL""",
)
app.invariant(
    "a balance is the sum of all payments before the request",
    f"""SELECT o.seq, o.value, sum(p.paid) AS paid FROM outputs o LEFT JOIN {PAID} p ON p.vid = o.vid AND p.seq < o.seq
    WHERE o.kind = 4 GROUP BY o.seq, o.value HAVING o.value <> coalesce(sum(p.paid), 0)""",
)
app.invariant(
    "an account's final state is the sum that its vehicle paid and the toll that it still owes",
    f"""SELECT s.*, p.* FROM state_account_balance s FULL OUTER JOIN (SELECT p.vid, coalesce(sum(p.paid), 0) AS paid,
    max(l.due) AS owed FROM {PAID} p JOIN (SELECT vid, greatest(max_by(value, seq), 0) AS due FROM outputs
    WHERE kind = 0 AND (value >= 0 OR leaves) GROUP BY vid) l ON l.vid = p.vid GROUP BY p.vid) p ON p.vid = s.key
    WHERE s.key IS NULL OR s.balance <> coalesce(p.paid, 0) OR s.due <> coalesce(p.owed, 0)""",
)
app.invariant(
    "an expenditure equals that in the history of tolls",
    """SELECT o.*, e.day FROM outputs o JOIN events e ON e.seq = o.seq
    WHERE o.kind = 5 AND (o.qid <> e.qid OR o.value <> IF(e.day BETWEEN 1 AND 69,
    10 + ((CAST(e.vid AS BIGINT) * 128 + e.day) * 256 + e.xway) % 1000003 * 48271 % 2147483647 % 90, 0))""",
)
