"""Times on pages have a date, a zone and a form that a browser reads; ages need the time of the request."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from reports import times

RUN_ID = "20260131T020059Z-00000001"
MOMENT = datetime(2026, 1, 31, 2, 0, 59, tzinfo=UTC)


def test_time_has_date_and_zone():
    assert times.of_run(RUN_ID) == MOMENT
    assert times.text(MOMENT.astimezone(timezone(timedelta(hours=5)))) == "2026-01-31 02:00 UTC"
    assert times.html(RUN_ID) == '<time datetime="2026-01-31T02:00:59Z">2026-01-31 02:00 UTC</time>'
    day = '<time datetime="2026-01-31T02:00:59Z" title="2026-01-31 02:00 UTC">2026-01-31</time>'
    assert times.html(MOMENT, only_day=True) == day
    assert times.html(None) == ""


AGES = [(-5, "just now"), (59, "just now"), (60, "1 minute ago"), (7199, "1 hour ago"), (7200, "2 hours ago")]
AGES += [(3 * 86400, "3 days ago")]


@pytest.mark.parametrize(("seconds", "age"), AGES)
def test_age_has_one_unit(seconds, age):
    assert times.age(MOMENT, MOMENT + timedelta(seconds=seconds)) == age
    assert times.age(RUN_ID, None) == "", "a file does not know when it is read"
