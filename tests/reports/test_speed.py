"""The verdict on speed, as people read it: on the pages, in the table, and apart from right and wrong."""

import io
import json
import re
from datetime import UTC, datetime

import pytest
from rich.console import Console

from infra.cli.summary import as_dict, print_run
from reports.history import History
from reports.history.speed import Speed, counts, heading, sentence
from reports.publish import publish
from streaming_core.regression.home import Home
from tests.reports import past_runs
from tests.reports.test_pages import Outline

SINCE = {"since_at": datetime(2026, 1, 4, 2, tzinfo=UTC), "since_build": "abc", "detected_in": "r4"}
SLOWER = Speed("slower", nights=4, smallest=0.048, change=-0.051, change_low=-0.064, change_high=-0.038, **SINCE)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    home = Home(tmp_path_factory.mktemp("home"))
    past_runs.make(home, red=False)
    publish(home, past_runs.LAST)
    return home


FASTER = Speed("faster", since_at=SLOWER.since_at, change=0.12, change_low=0.1, change_high=0.14)
EDITED = (
    "its source, or the loop, changed in build b2, and the speed gate did not measure the change; run `lockstep gate "
    "--against b1`"
)
BRIDGED = "the speed gate compared its build with the one before the source changed, and detects a slowdown of 2.0 %"
NOISY = "not compared: other work used 30.0 % of the cores, and repetitions differ by 7.0 %"
LIMIT = "Lockstep detects a slowdown of {} % within three nights"
# A verdict, and its text, start, interval and reason.
TEXTS = [
    (SLOWER, "5.1 % slower", "2026-01-04", "3.8 to 6.4 %", LIMIT.format(4.8)),
    (FASTER, "12.0 % faster", "2026-01-04", "10.0 to 14.0 %", ""),
    (Speed("unchanged", nights=40, smallest=0.02), "unchanged", "", "", LIMIT.format("2.0")),
    (Speed("too_new", nights=9), "too new", "", "", "9 of the 15 nights that a verdict needs"),
    (Speed("too_noisy", steal=0.25, others=0.05, spread=0.07), "too noisy", "", "", NOISY),
    (Speed("not_judged", edited_build="b2", reference_build="b1-dirty"), "not judged", "", "", EDITED),
    (Speed("unchanged", smallest=0.02, bridge_run="r"), "unchanged", "", "", BRIDGED),
    (Speed("too_noisy", nights=20, smallest=0.4), "too noisy", "", "", LIMIT.format("40.0")),
]


@pytest.mark.parametrize(("speed", "text", "since", "interval", "why"), TEXTS)
def test_speed_verdict_states_change_start_interval_and_detection_limit(speed, text, since, interval, why):
    assert (speed.text, speed.since, speed.interval, speed.why) == (text, since, interval, why)


def test_sentence_names_slower_cells_first_and_counts_the_rest():
    older = Speed(**SLOWER.__dict__ | {"detected_in": "r1"})
    cells = [(f"a{n}", "b", older) for n in range(3)] + [("new", "b", SLOWER), ("same", "", Speed("unchanged"))]
    text = sentence(cells)
    assert text.startswith("Speed: new is 5.1 % slower since build b, 2026-01-04; a2 is 5.1 % slower")
    assert text.endswith("; 1 more slower; 1 unchanged")


def test_cells_without_a_verdict_on_speed_are_not_called_unchanged():
    young = [(f"a{n}", "", Speed("too_new")) for n in range(3)] + [("b", "", Speed("too_noisy"))]
    assert sentence(young) == (
        "Speed: no verdict on 4 cells; 1 too noisy (keep other work off the host); "
        "3 too new (a verdict takes 15 nights)"
    )
    assert sentence([("a", "", None), ("b", "", Speed("unchanged"))]) == (
        "Speed: 1 unchanged; 1 not measured (it takes repetitions, seconds above 0, and marts, which "
        "`lockstep warehouse build` makes)"
    )
    assert sentence([]) == ""
    assert heading(counts(speed for _, _, speed in young)) == "No verdict on speed yet"
    assert heading(counts([Speed("unchanged"), Speed("too_new")])) == "No speed changed in the 1 cell with a verdict"
    assert heading(counts([Speed("unchanged")])) == "No speed changed"
    assert heading(counts([])) == "No verdict on speed yet"


def test_slowdown_is_on_every_page_and_turns_no_cell_red(home):
    run = History(home).run(past_runs.LAST)
    assert run.green
    assert run.sentence == "All 10 cells equal the oracle (4 bounds beside them)"
    overview = Outline((home.reports / past_runs.LAST / "index.html").read_text()).text
    changed = "Speed: gs/serial/t2 is 5.1 % slower since build abc323def, 2026-01-04; 8 unchanged"
    assert f"{changed}; 1 too noisy (keep other work off the host)." in overview
    assert "3.8 to 6.4 %" in overview
    assert "this run" in overview
    (slow,) = run.speeds
    cell = Outline((home.reports / past_runs.LAST / f"{slow.name}.html").read_text()).text
    assert "Speed: ▼ 5.1 % slower since build abc323def (2026-01-04, found in run" in cell
    assert "0.8 times as fast as the compiled loop in this run" in cell
    assert (
        "other processes used 12% of the cores, the hypervisor took 3.1%, "
        "the process lost a core 41 times a second, 2,600 to 2,400 MHz"
    ) in cell
    summary = json.loads((home.reports / past_runs.LAST / "summary.json").read_text())
    assert (summary["green"], summary["slower"]) == (True, [slow.name])


def test_performance_page_compares_by_the_verdict_only(home):
    text = (home.reports / "performance.html").read_text()
    page = Outline(text).text
    assert "since last run" not in page
    for needed in ("5.1 % slower", "abc323def2026-01-04", "3.8 to 6.4 %", "3.9 %", "too noisy"):
        assert needed in page, needed
    charts = home.reports / past_runs.LAST / "charts"
    assert f"{past_runs.LAST}/charts/speed-t2-gs.svg" in text
    assert "stroke-dasharray" in (charts / "speed-t2-gs.svg").read_text(), "where it changed is marked"
    assert "stroke-dasharray" not in (charts / "speed-t2-wc.svg").read_text()


def test_table_has_speed_columns_if_a_verdict_exists(home, tmp_path):
    console = Console(record=True, width=200, file=io.StringIO())
    assert print_run(home, past_runs.LAST, console)
    text = console.export_text()
    (line,) = [line for line in text.splitlines() if "5.1 % slower" in line and "Speed" not in line]
    assert re.search(r"gs +transactional +serial +2 .* equal +5.1 % slower +2026-01-04 abc323def +3.9 %", line)
    run = History(home).run(past_runs.LAST)
    document = as_dict(home, run, {})
    json.dumps(document)
    assert [c["speed"]["since_at"] for c in document["cells"] if c["speed"] and c["speed"]["verdict"] == "slower"] == [
        "2026-01-04T02:00:00+00:00"
    ]
    (home.root / "warehouse" / "marts" / "speed" / "part-00000.parquet").rename(tmp_path / "speed.parquet")
    console = Console(record=True, width=200, file=io.StringIO())
    print_run(home, past_runs.LAST, console)
    assert "detection limit" not in console.export_text()
    (tmp_path / "speed.parquet").rename(home.root / "warehouse" / "marts" / "speed" / "part-00000.parquet")
