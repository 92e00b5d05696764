"""The page of a live run says how far it is, and loads itself again only while the run is at work."""

import pytest

from reports.live_run import page
from streaming_core.run.live_folder import Status


def status(**fields: object) -> Status:
    return Status("wc", "/data/<incoming>", events=1200, verified=1000, lag=200, lag_seconds=1.5, **fields)


def test_page_of_a_run_at_work_loads_itself_again():
    html = page(status(checkpoint=1100, checkpoint_time=10.0, updated=14.0, first=500, bytes=1_500_000))
    assert '<meta http-equiv="refresh" content="5">' in html
    for text in ("1,200", "200 events behind, 1.5 s", "the last checkpoint, 4 s old", "1.5 MB", "events from 500 on"):
        assert text in html
    assert "/data/&lt;incoming&gt;" in html


@pytest.mark.parametrize("state", ["stopped", "failed", "complete"])
def test_page_of_a_run_that_ended_stays(state):
    html = page(status(state=state, reason="<b>" if state == "failed" else ""))
    assert "refresh" not in html
    assert f"Live run of wc: {state}" in html
    assert ("&lt;b&gt;" in html) == (state == "failed")


def test_run_without_verification_says_so():
    assert "started with --no-verify" in page(Status("wc", "in"))
