"""The report on a build against another commit, and acknowledgements with person and reason."""

import io
import json
from datetime import UTC, datetime

import pytest
from rich.console import Console

from infra.cli.summary import as_dict, print_run
from infra.history.ledger import append
from reports.history import History
from reports.history.gate import Gate, sentence
from reports.publish import publish
from streaming_core.regression.home import Home
from tests.reports import past_runs
from tests.reports.test_pages import Outline

PACKAGES = (
    "the speed gate detects a slowdown of 2.0 % in nine of ten cases; both builds ran with the packages of this build, "
    "not with those of the baseline's lock file"
)
SLOWER = Gate("slower", change=-0.042, change_low=-0.055, change_high=-0.031, smallest=0.031)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    home = Home(tmp_path_factory.mktemp("home"))
    past_runs.make(home, red=False)
    past_runs.gate(home)
    publish(home, past_runs.LAST)
    return home


@pytest.mark.parametrize(
    ("gate", "texts"),
    [
        (SLOWER, ("4.2 % slower", "3.1 to 5.5 %", "the speed gate detects a slowdown of 3.1 % in nine of ten cases")),
        (Gate("unchanged", smallest=0.02, environment_changed=True), ("unchanged", "", PACKAGES)),
        (Gate("too_short"), ("too short", "", "its passes are too short to compare: run more events")),
        (Gate("different", reason="they differ"), ("results differ", "", "they differ")),
        (Gate("failed", reason="build x: it broke"), ("failed", "", "build x: it broke")),
        (Gate("not_judged", reason="its turn did not come"), ("not judged", "", "its turn did not come")),
    ],
)
def test_gate_verdict_states_change_interval_and_detection_limit(gate, texts):
    assert (gate.text, gate.interval, gate.why) == texts


def test_sentence_names_slower_cells_first_and_counts_the_rest():
    cells = [(f"a{n}", SLOWER) for n in range(4)]
    cells += [("x", Gate("different", reason="y")), ("same", Gate("unchanged"))]
    text = sentence("v1 (b)", cells)
    assert text.startswith("Against v1 (b): a0 is 4.2 % slower (3.1 to 5.5 %); a1 is")
    assert text.endswith("; 1 more slower; x results differ; 1 unchanged")
    assert sentence("", []) == ""


def test_slower_cell_than_the_commit_is_on_every_page_and_turns_no_cell_red(home):
    run = History(home).run(past_runs.LAST)
    assert run.green
    phrase = (
        "Against v1.2 <script> (abc323def): gs/serial/t2 is 4.2 % slower (3.1 to 5.5 %); gs/owners/t1 results differ; "
    )
    for page in (home.reports / "index.html", home.report(past_runs.LAST, "index.html")):
        overview = Outline(page.read_text()).text
        assert phrase in overview
        assert "Against v1.2 <script> (abc323def) The speed gate measures both builds in turns on one host." in overview
    (slow,) = [cell for cell in run.cells if cell.gate and cell.gate.verdict == "slower"]
    cell = Outline(home.report(past_runs.LAST, f"{slow.name}.html").read_text()).text
    assert "Against v1.2 <script> (abc323def): ▼ 4.2 % slower (95 % interval 3.1 to 5.5 %), 32 pairs" in cell
    performance = Outline((home.reports / "performance.html").read_text()).text
    assert "v1.2 <script> (abc323def)" in performance
    assert "results differ" in performance
    summary = json.loads(home.report(past_runs.LAST, "summary.json").read_text())
    assert summary["gate"].startswith(phrase)
    assert summary["slower"] == [slow.name]


def test_table_and_json_have_the_gate_verdict(home):
    console = Console(record=True, width=300, file=io.StringIO())
    assert print_run(home, past_runs.LAST, console)
    assert "Against v1.2 <script> (abc323def): gs/serial/t2 is 4.2 % slower" in console.export_text()
    document = json.loads(json.dumps(as_dict(home, History(home).run(past_runs.LAST), {})))
    gated = {cell["cell"]: cell["gate"]["verdict"] for cell in document["cells"] if cell["gate"]}
    assert set(gated.values()) == {"slower", "different", "too_short", "unchanged"}


def test_run_without_a_gate_measurement_mentions_no_commit(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=1, red=False)
    publish(home, past_runs.RUN_IDS[0])
    assert "Against" not in Outline((home.reports / "index.html").read_text()).text


def test_acknowledged_cell_shows_its_person_and_stays_red(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home)
    red = [cell for cell in History(home).run(past_runs.LAST).cells if cell.red]
    about = {"decision": "acknowledged", "of_run": past_runs.LAST, "decided_by": "ada"}
    for minute, why in enumerate(("who knows", f"the disk was full {past_runs.HOSTILE}")):
        decided = about | {"cell": red[0].name, "why": why, "decided_at": datetime(2026, 1, 5, 7, minute, tzinfo=UTC)}
        append(home, [decided])
    publish(home, past_runs.LAST)
    run = History(home).run(past_runs.LAST)
    assert [cell.name for cell in run.cells if cell.red] == [cell.name for cell in red]
    assert [cell.name for cell in run.cells if cell.acknowledged] == [red[0].name]
    for page in ("index.html", f"{red[0].name}.html"):
        text = Outline(home.report(past_runs.LAST, page).read_text()).text
        assert "ada, 2026-01-05 07:01 UTC: the disk was full <script>" in text
        assert "who knows" not in text, "what was said last counts"
