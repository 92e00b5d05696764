"""Other engines in a run: their ratios in the table and on pages, and pages with a wrong or failed engine."""

import io
import json
import re

import pytest
from rich.console import Console

from infra.cli.summary import as_dict, print_run
from reports.history import History
from reports.publish import publish
from reports.views import engines
from streaming_core.engines import registry
from streaming_core.regression import warehouse
from streaming_core.regression.home import Home
from streaming_core.run.report import LOG
from streaming_core.storage import write_json
from tests.reports import past_runs
from tests.reports.past_runs import HOSTILE, RUN_IDS
from tests.reports.test_pages import Outline
from tests.streaming_core.engines.planted import plant

RUN = RUN_IDS[0]
REQUEST = {"kinds": {"wc": "dataflow"}, "executors": ["pooled", "flink", engines.LIMIT], "threads": [1, 2]}
SPEEDS = {("pooled", 1): 2e6, ("pooled", 2): 4e6, ("flink", 1): 0.16e6, ("flink", 2): 0.32e6, (engines.LIMIT, 1): 5e6}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A run of wc on pooled, on engine flink, and on the hand-written loop."""
    monkeypatch.setenv(registry.SETTING, str(tmp_path / "engines"))
    for name in ("flink", engines.LIMIT):
        plant(tmp_path / "engines", name, "")
    home = Home(tmp_path / "home")
    past_runs.make(home, nights=1, red=False, **REQUEST)
    change(home)
    for cell in History(home).run(RUN).cells:
        if cell.spec.executor == "flink":
            report = {"host": {"engine": {"system": "Flink <2.3>", "flink": "2.3.0"}}}
            write_json(home.attempt(RUN, cell.name, 1) / "report.json", report)
    return home


def change(home: Home, verdict: str = "equal") -> None:
    """Give the cells the speeds of SPEEDS, and those of flink on two threads a verdict."""
    cells = warehouse.rows(home, "cells", RUN)
    ways = {cell["cell"]: (cell["executor"], cell["threads"]) for cell in cells}
    samples = [
        row | {"events_per_s": speed, "seconds": row["events"] / speed}
        for row in warehouse.rows(home, "samples", RUN)
        for speed in [SPEEDS.get(ways[row["cell"]], 1e6)]
    ]
    samples = [row | {"loop_seconds": row["loop_seconds"] and row["events"] / 1.6e6} for row in samples]
    past_runs.write_raw(home, "samples", RUN, samples)
    wrong = [cell["cell"] for cell in cells if ways[cell["cell"]] == ("flink", 2)]
    if verdict == "different":
        checks = warehouse.rows(home, "verdicts", RUN)
        marked = [
            row | ({"verdict": verdict} if row["cell"] in wrong and row["check"] == "outputs" else {}) for row in checks
        ]
        past_runs.write_raw(home, "verdicts", RUN, marked)
    if verdict == "failed":
        failure = {"status": "failed", "error": "engine flink: it ended with exit code 1"}
        past_runs.write_raw(home, "cells", RUN, [row | (failure if row["cell"] in wrong else {}) for row in cells])
    past_runs.load(home, RUN)


def ratios_of(home: Home) -> dict:
    run = History(home).run(RUN)
    known = engines.ratios(run.cells)
    return {(cell.spec.executor, cell.spec.threads): known[cell.name] for cell in run.cells}


def printed(home: Home) -> str:
    console = Console(record=True, width=300, file=io.StringIO())
    print_run(home, RUN, console)
    return console.export_text()


def test_cell_has_ratios_to_the_loop_to_our_best_and_to_the_limit(home):
    known = ratios_of(home)
    assert known["flink", 2] == engines.Ratios(pytest.approx(0.2), pytest.approx(0.08), pytest.approx(0.064))
    assert known["pooled", 2] == engines.Ratios(pytest.approx(2.5), 1.0, pytest.approx(0.8))
    assert known[engines.LIMIT, 1].to_best == pytest.approx(1.25)


@pytest.mark.parametrize("verdict", ["different", "failed"])
def test_wrong_cell_has_no_ratio_and_is_no_reference(home, verdict):
    before = ratios_of(home)
    change(home, verdict)
    after = ratios_of(home)
    assert after.pop(("flink", 2)) == engines.Ratios()
    assert after == {key: value for key, value in before.items() if key in after}


def test_table_and_its_json_have_the_ratios(home):
    text = printed(home)
    head, *rows = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    (flink,) = [dict(zip(head, row, strict=False)) for row in rows if row[1:2] == ["flink"] and row[3] == "2"]
    assert [flink[title] for title in ("x loop", "x best", "of limit")] == ["0.20", "0.08", "0.064"]
    assert f"Lockstep checks only the outputs of other engines (flink, {engines.LIMIT})" in text
    run = History(home).run(RUN)
    cells = json.loads(json.dumps(as_dict(home, run, {})))["cells"]
    (cell,) = [cell for cell in cells if (cell["executor"], cell["threads"]) == ("flink", 2)]
    assert [round(cell[name], 3) for name in ("to_loop", "to_best", "to_limit")] == [0.2, 0.08, 0.064]


def test_run_without_other_engines_has_no_ratio_columns(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=1, red=False)
    text = printed(home)
    assert "x best" not in text
    assert "other engines" not in text
    publish(home, RUN)
    page = Outline((home.reports / "performance.html").read_text()).text
    assert "No run has cells of other engines yet" in page
    assert "Beside other engines" not in Outline(home.report(RUN, "index.html").read_text()).text


def test_pages_show_our_and_other_engines_and_the_limit_with_conditions(home):
    publish(home, RUN)
    for page in (home.reports / "performance.html", home.report(RUN, "index.html")):
        text = " ".join(Outline(page.read_text()).text.split())
        section = text[text.index("Beside other engines") :]
        for words in (
            "Flink <2.3> (flink 2.3.0)",
            "100,000 events, node1",
            "pooled/affinity",
            "0.08",
            "0.064",
            "equal",
        ):
            assert words in section, (page, words)
        assert "It did not compare their final state, which they do not publish." in section
    pictures = list(home.report(RUN, "charts").glob("engines-wc-*.svg"))
    assert len(pictures) == 1
    assert "our best" in pictures[0].read_text()


@pytest.mark.parametrize("verdict", ["different", "failed"])
def test_wrong_engine_is_red_on_every_page(home, verdict):
    change(home, verdict)
    cell = next(c for c in History(home).run(RUN).cells if (c.spec.executor, c.spec.threads) == ("flink", 2))
    (home.attempt(RUN, cell.name, 1) / LOG).write_text(f"fatal: {HOSTILE}\n")
    publish(home, RUN)
    assert not History(home).run(RUN).green
    for page in (home.reports / "performance.html", home.report(RUN, "index.html")):
        assert (
            "1 cell of other engines does not equal the oracle, and has no ratio: wc/flink/t2"
            in Outline(page.read_text()).text
        )
    page = home.report(RUN, f"{cell.name}.html").read_text()
    outline = Outline(page)
    assert 'class="red"' in page
    assert "Executor flink is another engine: Flink <2.3> (flink 2.3.0)." in outline.text
    assert "which this engine does not publish" in outline.text
    assert (f"fatal: {HOSTILE}" in outline.text) == (verdict == "failed")
    assert ".venv/bin/lockstep engines install flink" in outline.text


def test_newest_finished_run_with_other_engines_is_compared(home):
    past_runs.add(home, RUN_IDS[1], 1)
    history = History(home)
    assert engines.Comparison.last(history).run.run_id == RUN
    assert engines.Comparison.of(history.run(RUN_IDS[1])) is None


def test_ratios_are_written_short():
    shown = [engines.human_ratio(value) for value in (None, 12.5, 1.0, 0.099, 0.08, 0.00413)]
    assert shown == ["\N{EN DASH}", "12.50", "1.00", "0.10", "0.08", "0.0041"]
