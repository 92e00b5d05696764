"""Date parts and durations in operator code, against Python's datetime, in all ways."""

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from streaming_core.api import (
    App,
    date_text,
    day,
    duration,
    hour,
    i64,
    minute,
    month,
    record,
    second,
    text,
    time_text,
    weekday,
    year,
)
from streaming_core.language.extent import UNITS
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import RunSpec
from tests.differential.case import Case
from tests.support.draws import some

TWO_DAYS = duration("2d")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CYCLE = timedelta(days=146_097)  # after which the calendar repeats, 400 years later


@record
class Event:
    ts: i64


@record
class Parts:
    year: i64
    month: i64
    day: i64
    weekday: i64
    hour: i64
    minute: i64
    second: i64
    date: text
    time: text
    later: text


def split(row, out):
    later = date_text(row.ts + TWO_DAYS - duration("24h"))
    ts = row.ts
    out.emit(
        year=year(ts), month=month(ts), day=day(ts), weekday=weekday(ts), hour=hour(ts), minute=minute(ts),
        second=second(ts), date=date_text(ts), time=time_text(ts), later=later,
    )  # fmt: skip


def application(unit):
    app = App("dates", time=unit)
    app.source(Event).flat_map(split, Parts).sink()
    app.generates(lambda params, seed, start, stop: {})
    return app


def date_of(years, moment):
    """The date of a moment so many years later."""
    number = moment.year + years
    return f"{'-' * (number < 0)}{abs(number):04}-{moment.month:02}-{moment.day:02}".encode()


def parts(ts, unit):
    """What Python's datetime says; it shifts years outside 1 to 9999 by cycles."""
    seconds = ts * UNITS[unit] // 10**9
    cycles, rest = divmod(seconds, int(CYCLE.total_seconds()))
    moment, years = EPOCH + timedelta(seconds=rest), 400 * cycles
    clock = (moment.hour, moment.minute, moment.second)
    date = (moment.year + years, moment.month, moment.day, moment.weekday())
    texts = (date_of(years, moment), moment.strftime("%H:%M:%S").encode(), date_of(years, moment + timedelta(days=1)))
    return (*date, *clock, *texts)


def timestamps(unit):
    """Every boundary of some years, and random timestamps of many centuries as far as 64 bits allow."""
    r, day_units = random.Random(unit), 86_400 * 10**9 // UNITS[unit]
    most = min(2**63 - 1 - 3 * day_units, 15_000 * 366 * day_units)
    days = [(datetime(y, m, 1, tzinfo=UTC) - EPOCH).days for y in (1900, 1970, 1999, 2000, 2004) for m in range(1, 13)]
    edges = [d * day_units + e for d in days for e in (-1, 0, 1)]
    return [e for e in edges if abs(e) < most] + [r.randrange(-most, most) for _ in range(300)]


def table(values):
    return pa.table({"seq": range(len(values)), "ts": pa.array(values, pa.int64())})


@pytest.mark.parametrize("unit", UNITS)
def test_parts_are_those_of_datetime(unit):
    values = timestamps(unit)
    interpreter = Interpreter(application(unit), {})
    rows = interpreter.process(table(values)).select(Parts.fields).to_pylist()
    assert [tuple(row.values()) for row in rows] == [parts(ts, unit) for ts in values]


@pytest.mark.parametrize("in_loop", some([False, True]))
def test_loop_and_engine_equal_the_interpreter(in_loop):
    case = Case(application("ms"), {}, table(timestamps("ms")))
    if in_loop:
        compare("dates", case.outputs, Loop(case.app, {}).process(case.events.tables[0]), "outputs")
    for executor in ("pooled", "pinned", "morsel"):
        case.check(RunSpec.parse({"app": "dates", "executor": executor, "threads": 2, "batch": 64}))


def test_date_of_years_with_fewer_or_more_digits():
    values = [(datetime(2000, 1, 1, tzinfo=UTC) - EPOCH).days + 146_097 * n for n in (-30, -5, 0, 20)]
    rows = Interpreter(application("d"), {}).process(table(values)).to_pylist()
    assert [row["date"] for row in rows] == [b"-10000-01-01", b"0000-01-01", b"2000-01-01", b"10000-01-01"]
