"""Where nothing was judged, no sentence, page, alert or table says that no speed changed."""

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from infra.cli.summary import as_dict, print_run
from reports.history import Cell, History, Run, gate, speed
from reports.history.gate import Gate
from reports.history.speed import Speed
from reports.publish import publish
from reports.views.tiles import tiles
from streaming_core.regression.home import Home
from streaming_core.run.way import RunSpec
from streaming_core.storage import write_json
from tests.reports import past_runs
from tests.reports.test_pages import Outline

CLAIM = re.compile(
    r"unchanged|no (cell |build )?(change|slow|fast)|no speed changed|nothing (?!broke)|as fast as before|"
    r"\b0 (slower|faster)|none (is|are|became)",
    re.IGNORECASE,
)
RATIO = re.compile(r"fastest \d|\d\u00d7|times as fast|times the compiled loop")
UNJUDGED = ("too_new", "too_noisy", "too_short", "not_judged")
speeds = st.lists(st.builds(Speed, st.sampled_from(UNJUDGED), nights=st.none() | st.integers(1, 14)), max_size=6)
gates = st.lists(
    st.builds(
        Gate, st.sampled_from(("too_noisy", "too_short", "not_judged", "failed", "different")), reason=st.just("it")
    ),
    max_size=6,
)


def run_of(trends: list[Speed], gated: list[Gate], note: str) -> Run:
    spec = RunSpec.parse({"app": "sl", "executor": "transactional"})
    cells = []
    for number in range(max(len(trends), len(gated))):
        facts = {"status": "ok", "verdict": "equal", "reason": None, "build": "b"}
        cell = Cell(f"cell{number}", spec, "w", False, facts=facts)
        cell.speed = trends[number] if number < len(trends) else None
        cell.gate = gated[number] if number < len(gated) else None
        cells.append(cell)
    return Run(home=Home(), run_id=past_runs.LAST, plan={}, cells=cells, note=note)


@given(speeds, gates, st.sampled_from(("", "no earlier night is green")))
def test_run_without_a_speed_verdict_claims_no_unchanged_speed(trends, gated, note):
    run = run_of(trends, gated, note)
    texts = [run.speed_sentence, run.speed_heading, run.gate_sentence]
    texts += [f"{tile.number} {tile.word} {tile.detail}" for tile in tiles(run) if tile.href == "#speed"]
    texts += [
        text
        for cell in run.cells
        for verdict in (cell.speed, cell.gate)
        if verdict
        for text in (verdict.text, verdict.why)
    ]
    assert not [text for text in texts if CLAIM.search(text)]


@given(speeds.filter(bool), st.integers(1, 3))
def test_speed_heading_excludes_cells_without_a_verdict(trends, unchanged):
    heading = speed.heading(speed.counts([*trends, *[Speed("unchanged")] * unchanged]))
    assert re.fullmatch(rf"No speed changed in the {unchanged} cells? with a verdict", heading)


@pytest.fixture(scope="module", params=[True, False])
def home(request, tmp_path_factory) -> Home:
    """Five nights without a verdict on speed: the gate had no reference, or measured no cell."""
    home = Home(tmp_path_factory.mktemp("home"))
    past_runs.make(home, red=False)
    nothing = {"nights": 1, "since_at": None, "since_build": None, "found_run": None, "change": None}
    nothing |= {"change_low": None, "change_high": None, "since_run": None}
    for number, row in enumerate(rows := History(home).mart("speed")):
        row |= nothing | {"verdict": UNJUDGED[number % len(UNJUDGED)]}
    past_runs.mart(home, "speed", rows)
    if request.param:
        write_json(gate.note_path(home, past_runs.LAST), {"note": "no earlier night is green"})
    else:
        past_runs.gate(home)
        for row in (gated := History(home).mart("gate")):
            row |= {"verdict": "not_judged", "change": None, "change_low": None, "change_high": None, "reason": "late"}
        past_runs.mart(home, "gate", gated)
    publish(home, past_runs.LAST)
    return home


def test_pages_of_a_night_without_a_verdict_claim_no_unchanged_speed(home):
    pages = [*(home.reports / past_runs.LAST).glob("*.html"), home.reports / "index.html"]
    pages.append(home.reports / "performance.html")
    assert len(pages) > 15
    for page in pages:
        text = Outline(page.read_text()).text
        for wrong in (CLAIM, RATIO):
            assert not [text[max(0, match.start() - 40) : match.end() + 40] for match in wrong.finditer(text)], (
                page.name
            )
    grey = re.findall(r'<td class="n soft">[\d.]+ [kM]</td>', (home.reports / "performance.html").read_text())
    assert len(grey) == 10
    overview = Outline((home.reports / past_runs.LAST / "index.html").read_text()).text
    assert "not judged" in overview
    assert "the source changed, and the speed gate did not measure the change" in overview


def test_command_and_summary_without_a_verdict_claim_no_unchanged_speed(home):
    console = Console(record=True, width=300, file=io.StringIO())
    assert print_run(home, past_runs.LAST, console)
    summary = home.report(past_runs.LAST, "summary.json").read_text()
    program = json.dumps(as_dict(home, History(home).run(past_runs.LAST), {}))
    for text in (console.export_text(), summary, program):
        assert not CLAIM.findall(text)
