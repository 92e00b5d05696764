"""Linear Road in the shape that BriskStream publishes: figure 18c, with the selectivities of table 8.

    source -> parse -> dispatcher
    dispatcher -+-> average_speed -> latest_velocity -+
                +-> vehicle_count --------------------+
                +-> accident_detection -+-------------+
                +-----------------------|-------------+-> toll_notification -+
                +-----------------------+-> accident_notification            |
                +-> account_balance <----------------------------------------+
                +-> daily_expenditure
    toll_notification, accident_notification, account_balance, daily_expenditure -> sink

Events, parameters and tolls are those of `lr`, and so are many operators. These are different:

- A Parser drops invalid reports. All other events pass, so its selectivity is 1.
- The dispatcher is four operators, because an operator has one output stream, of one record type.
- One operator detects accidents. In `lr`, a second one finds the vehicles that stand.
- The toll and the warning each find out whether a vehicle enters a segment. In `lr`, an operator before them does.
- All answers of the toll go to the accounts. In `lr`, an operator lets only payments through.

All of these operators get reports by segment, so they know a vehicle only while it is there. A vehicle reports every
30 s. It enters a segment if it sent no report from there 30 s before. It stands if it sent four equal reports, one
every 30 s. Without invalid reports, the results equal those of `lr`.

In each segment, the state grows with the number of vehicles that have been there.
"""

from streaming_core.api import App, Array, Map, i8, i16, i64, record, u32
from streaming_core.apps import lr
from streaming_core.apps.lr import (
    ACCIDENT,
    AHEAD,
    BALANCE,
    COUNT,
    CROWDED,
    EXIT,
    EXPENDITURE,
    PACE,
    POSITION,
    SEGMENTS,
    TOLL,
    VELOCITY,
    Account,
    Answer,
    Average,
    Event,
    Present,
    Report,
    Signal,
    Speeds,
    Velocities,
    ahead_of,
    average_speed,
    balance_requests,
    count_before,
    just_before,
    latest_velocity,
    minute_of,
    note_accident,
    note_accident_ahead,
    note_count,
    note_velocity,
    past_toll,
    position_reports,
    toll_of,
    vehicle_count,
    velocity_before,
    warn,
)

app = App(
    "brisk_lr",
    reads="BriskStream, figure 18c and table 8; Linear Road",
    params=lr.app.declared,
    profiles={"brisk-lr-50": lr.app.profiles["lr-brisk"]},
)
p = app.params
PERIOD = 30  # seconds between two reports of a vehicle
STANDS = 4  # equal reports
NEVER = -1_000_000  # a time before every event


@record
class Request:
    """A request for the expenditure of a day."""

    ts: i64
    qid: i64
    vid: u32
    xway: i16
    day: i8


@record
class Places:
    """The vehicles of a segment and where they stand."""

    # Of each vehicle: where its last report came from, when, and how many equal ones it ended.
    places: Map[u32, i64]
    times: Map[u32, i64]
    reports: Map[u32, i64]
    # Of each position: the vehicle that reported last that it stands there, and when; the last minute with an accident.
    vehicles: Map[u32, i64]
    standing: Map[u32, i64]
    minutes: Map[u32, i64]


@record
class Traffic:
    """The numbers of a segment in this minute and in the one before, and when vehicles reported last."""

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
    times: Map[u32, i64]


@record
class Warned:
    """The minutes with accidents ahead, by distance, and when vehicles reported last."""

    minutes: Array[i64, 5]
    former_minutes: Array[i64, 5]
    times: Map[u32, i64]


# --- the parser and the dispatcher -----------------------------------------------------------------------------------


def parse(event, out):
    """Drop reports with an invalid direction."""
    if event.type == 0 and (event.dir < 0 or event.dir > 1):
        out.drop()
        return
    out.emit(
        ts=event.ts, qid=event.qid, vid=event.vid, pos=event.pos, speed=event.speed, xway=event.xway, seg=event.seg,
        s_init=event.s_init, s_end=event.s_end, tod=event.tod, type=event.type, lane=event.lane, dir=event.dir,
        dow=event.dow, day=event.day,
    )  # fmt: skip


def position_signals(event, out):
    """Dispatch position reports to the operators that take signals."""
    if event.type == 0:
        out.emit(
            ts=event.ts, minute=minute_of(event.ts), value=0, vid=event.vid,
            segment=(event.xway * 2 + event.dir) * SEGMENTS + event.seg, kind=POSITION, enters=event.lane != EXIT,
            leaves=event.lane == EXIT,
        )  # fmt: skip


def expenditure_requests(event, out):
    """Dispatch requests for the expenditure of a day."""
    if event.type == 3:
        out.emit(ts=event.ts, qid=event.qid, vid=event.vid, xway=event.xway, day=event.day)


# --- accidents -------------------------------------------------------------------------------------------------------


def accident_detection(report, segment, out):
    """Signal an accident to the segments behind it, once a minute while it lasts."""
    place = report.pos * 8 + report.lane
    is_equal = segment.places.get(report.vid, -1) == place and segment.times.get(report.vid, 0) == report.ts - PERIOD
    reports = segment.reports.get(report.vid, 0) + 1 if is_equal else 1
    if report.lane == EXIT:
        reports = 0
    segment.places.put(report.vid, place)
    segment.times.put(report.vid, report.ts)
    segment.reports.put(report.vid, reports)
    if reports < STANDS:
        return
    pos = report.pos
    other = segment.vehicles.get(pos, -1)
    silence = report.ts - segment.standing.get(pos, 0)
    segment.vehicles.put(pos, report.vid)
    segment.standing.put(pos, report.ts)
    if other < 0 or other == report.vid:
        return
    # The other one is still there, unless it should have reported since. Of one second, vehicles report in their order.
    if silence > PERIOD or (silence == PERIOD and other < report.vid):
        return
    minute = minute_of(report.ts)
    if segment.minutes.get(pos, 0) == minute:
        return
    segment.minutes.put(pos, minute)
    for distance in range(AHEAD):
        behind = ahead_of(report.segment, -distance)
        if behind >= 0:
            out.emit(
                ts=report.ts, minute=minute, value=distance, vid=report.vid, segment=behind, kind=ACCIDENT,
                enters=False, leaves=False,
            )  # fmt: skip


# --- tolls and warnings ----------------------------------------------------------------------------------------------


def toll_notification(signal, segment, out):
    """Answer each signal but accidents; tells a vehicle that enters the segment its toll."""
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
        was_here = segment.times.get(signal.vid, NEVER) == signal.ts - PERIOD
        segment.times.put(signal.vid, NEVER if signal.leaves else signal.ts)
        if signal.enters and not was_here:
            count = count_before(segment, minute)
            velocity = velocity_before(segment, minute)
            blocked = just_before(minute, segment.accident_minute, segment.former_accident_minute)
            toll = toll_of(velocity, count, blocked, p.limit)
    out.emit(
        ts=signal.ts, qid=-1, value=toll, vid=signal.vid, minute=minute, segment=signal.segment, count=count,
        velocity=velocity, kind=kind, accident=blocked, leaves=signal.leaves,
    )  # fmt: skip


def accident_notification(signal, segment, out):
    """Warn a vehicle that enters the segment of the nearest accident ahead."""
    if signal.kind == ACCIDENT:
        note_accident_ahead(segment, signal.minute, signal.value)
        return
    was_here = segment.times.get(signal.vid, NEVER) == signal.ts - PERIOD
    segment.times.put(signal.vid, NEVER if signal.leaves else signal.ts)
    if signal.enters and not was_here:
        warn(signal, segment, out)


# --- accounts --------------------------------------------------------------------------------------------------------


def account_balance(answer, account, out):
    """Keep accounts: tolls are due until the next one, and requests get the balance."""
    if answer.kind == BALANCE:
        out.emit(
            ts=answer.ts, qid=answer.qid, value=account.balance, vid=answer.vid, minute=answer.minute, segment=-1,
            count=0, velocity=0, kind=BALANCE, accident=False, leaves=False,
        )  # fmt: skip
    elif answer.kind == TOLL and (answer.value >= 0 or answer.leaves):
        account.balance += account.due
        account.due = max(answer.value, 0)


def daily_expenditure(request, out):
    """Look up what the vehicle paid on a day of the past."""
    out.emit(
        ts=request.ts, qid=request.qid, value=past_toll(request.vid, request.day, request.xway), vid=request.vid,
        minute=minute_of(request.ts), segment=-1, count=0, velocity=0, kind=EXPENDITURE, accident=False, leaves=False,
    )  # fmt: skip


events = app.source(Event).flat_map(parse, Event)
reports = events.flat_map(position_reports, Report)
positions = events.flat_map(position_signals, Signal)
requests = events.flat_map(balance_requests, Answer)

speeds = reports.key_by("segment").process(average_speed, state=Speeds, output=Average)
velocities = speeds.key_by("segment").process(latest_velocity, state=Velocities, output=Signal)
counts = reports.key_by("segment").process(vehicle_count, state=Present, output=Signal)
accidents = reports.key_by("segment").process(accident_detection, state=Places, output=Signal)

traffic = accidents.union(counts, velocities, positions).key_by("segment")
tolls = traffic.process(toll_notification, state=Traffic, output=Answer)
warnings = accidents.union(positions).key_by("segment").process(accident_notification, state=Warned, output=Answer)
balances = tolls.union(requests).key_by("vid").process(account_balance, state=Account, output=Answer)
expenditures = events.flat_map(expenditure_requests, Request).flat_map(daily_expenditure, Answer)

tolls.union(warnings, balances, expenditures).sink()

app.generates(
    lr.events(
        "qid", "vid", "pos", "speed", "xway", "seg", "s_init", "s_end", "tod", "type", "lane", "dir", "dow", "day"
    )
)

# The invariants are those of `lr`, with the rules above for the vehicles that enter a segment and for those that stand.
TRIPS = f"""(SELECT *, lane <> 4 AND (last_lane IS NULL OR last_lane = 4 OR last_ts <> ts - 30) AS enters,
lane <> 4 AND min(same) OVER (PARTITION BY vid, segment ORDER BY seq ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) = 1
AND count(*) OVER (PARTITION BY vid, segment ORDER BY seq) > 3 AS stands
FROM (SELECT *, lag(lane) OVER vehicle AS last_lane, lag(ts) OVER vehicle AS last_ts,
CAST(lag(struct(ts + 30, pos, lane)) OVER vehicle = struct(ts, pos, lane) AS INT) AS same
FROM {lr.REPORTS} WINDOW vehicle AS (PARTITION BY vid, segment ORDER BY seq)))"""

for name, sql in lr.app.invariants.items():
    app.invariant(name, sql.replace(lr.TRIPS, TRIPS))
