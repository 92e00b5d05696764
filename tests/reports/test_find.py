"""The pages of finds, and the smallest case on the page of a red cell."""

import pytest

from reports.history.load import History
from reports.pages import Pages
from reports.publish import finds, publish
from reports.views.timeline import Timeline
from streaming_core.apps import registry
from tests.reports import past_finds, past_runs
from tests.reports.past_runs import LAST
from tests.reports.test_pages import Outline


def test_page_of_a_find_shows_events_rows_command_and_test(home):
    wrong, crash = past_finds.of_home(home)
    assert {find.digest for find in finds(home)} == {wrong.digest, crash.digest}
    page = (home.reports / "finds" / "wc" / f"{wrong.digest}.html").read_text()
    assert "At fault: operator count (wc.py:79), event 3." in page
    assert "Shown by 25% of the trials, because it needs luck of timing." in page
    assert "n: <mark>3</mark>" in page
    assert "n: <mark>4</mark>" in page
    assert "blue &lt;b&gt;" in page
    assert "1 more row differs" in page
    assert wrong.command in page
    assert f"def test_found_{wrong.digest}():" in page
    plain = (home.reports / "finds" / "wc" / f"{crash.digest}.html").read_text()
    assert "the process ends by signal SIGSEGV" in plain
    assert "<mark>" not in plain


def test_list_of_finds_links_to_each(home):
    assert "No finds" in Pages(History(home)).finds([])
    past_finds.of_home(home)
    finds(home)
    page = (home.reports / "finds.html").read_text()
    shown = Outline(page)
    assert "2 finds" in page
    assert {link for link in shown.links if link.startswith("finds/")} == {
        f"finds/wc/{path.stem}.html" for path in (home.reports / "finds" / "wc").glob("*.html")
    }


def test_picture_has_a_lane_for_each_key(monkeypatch):
    monkeypatch.setitem(registry._ELSEWHERE, "tally", "tests.streaming_core.search.tally")
    events = [{"seq": seq, "ts": ts, "name": name} for seq, (ts, name) in enumerate([(4, b"a"), (6, b"b"), (6, b"b")])]
    line = Timeline.of("tally", events, {2})
    assert [name for _, name in line.lanes] == ["name 'a'", "name 'b'"]
    assert [(dot.events, dot.ts, dot.is_wrong) for dot in line.dots] == [("0", 4, False), ("1, 2", 6, True)]
    assert Timeline.of("tally", [event | {"name": b"a", "ts": event["seq"]} for event in events], set()) is None
    assert Timeline.of("tally", [], set()) is None


@pytest.mark.parametrize("damage", ["events.parquet", "find.json"])
def test_damaged_find_does_not_stop_the_pages(home, damage):
    wrong, crash = past_finds.of_home(home)
    (crash.folder / damage).write_bytes(b"{")
    assert [find.digest for find in finds(home) if find.digest == wrong.digest]
    assert (home.reports / "finds.html").exists()


def test_page_of_a_red_cell_shows_the_smallest_case(tmp_path):
    home = past_runs.Home(tmp_path)
    past_runs.make(home)
    cell, small = past_finds.of_cell(home, LAST)
    publish(home, LAST)
    page = home.report(LAST, f"{cell.name}.html").read_text()
    assert "The smallest case: 4 events on 2 threads" in page
    assert small.command in page
    link = f"../finds/wc/{small.digest}.html"
    assert link in Outline(page).links
    assert (home.reports / LAST / link).resolve().exists()
    assert small.digest not in (home.reports / "finds.html").read_text()
