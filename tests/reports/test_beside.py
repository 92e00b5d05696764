"""The comparison of two runs: cells by name, changed verdicts, and ratios where both did the same work."""

import re
from dataclasses import replace

import pytest

from reports.history import History
from reports.pages import Pages
from reports.publish import publish
from reports.site import beside_name
from reports.views.beside import Beside, Pair, before
from streaming_core.regression.home import Home
from tests.reports import past_runs
from tests.reports.content import from_elsewhere


@pytest.fixture
def home(tmp_path):
    new_home = Home(tmp_path)
    past_runs.make(new_home, nights=3)  # the last one is red
    return new_home


def test_changed_verdicts_are_counted_and_marked(home):
    history = History(home)
    *_, earlier, last = history.run_ids()
    one, other = history.run(last), history.run(earlier)
    beside = Beside.of(one, other)
    changed = [pair.label for pair in beside.pairs if pair.changed]
    assert changed == [cell.label for cell in one.cells if cell.red]
    assert beside.sentence == f"{len(changed)} of the {len(one.cells)} shared cells changed their verdict"
    page = Pages(history).beside(one, other)
    assert re.findall(r"<b>(\S+/\S+)</b>", page) == changed
    assert Beside.of(other, other).sentence.startswith("None of the ")
    assert not any(pair.changed for pair in Beside.of(other, other).pairs)
    shared = [pair for pair in beside.pairs if pair.changed][:1]
    assert replace(beside, pairs=shared).sentence == "The one shared cell changed its verdict"
    assert replace(beside, pairs=[Pair(one.cells[0], one.cells[0])]).sentence == "The one shared cell kept its verdict"


def test_ratio_needs_the_same_work_on_the_same_machine(home):
    history = History(home)
    one, other = (history.run(run_id) for run_id in history.run_ids()[-2:])
    name = "gs.transactional.serial"
    (cell,) = [cell for cell in one.cells if cell.name.startswith(name) and cell.spec.threads == 1]
    twin = other.cell(cell.name)
    cell.speed, twin.speed = (type(twin.speed)("unchanged", to_loop=ratio) for ratio in (1.0, 0.8))

    def ratio() -> float | None:
        (pair,) = [pair for pair in Beside.of(one, other).pairs if pair.one is cell]
        return pair.faster

    assert ratio() == pytest.approx(1.25)
    for column in ("workload_address", "host", "yardstick"):
        kept, cell.facts[column] = cell.facts[column], "another"
        assert ratio() is None
        cell.facts[column] = kept
    twin.speed = None
    assert ratio() is None


def test_cells_of_only_one_run_are_listed_too(home):
    history = History(home)
    one, other = (history.run(run_id) for run_id in history.run_ids()[-2:])
    gone = other.cells.pop(0)
    beside = Beside.of(one, other)
    assert [pair.one.name for pair in beside.pairs if pair.other is None] == [gone.name]
    beside = Beside.of(other, one)
    assert [pair.other.name for pair in beside.pairs if pair.one is None] == [gone.name]
    assert beside.pairs[-1].label == gone.label
    assert Pages(history).beside(other, one).count("not planned") == 1
    other.cells.clear()
    assert Beside.of(one, other).sentence == "The two runs share no cell"


def test_run_links_to_its_comparison_with_the_previous_run(home):
    history = History(home)
    first, earlier, last = history.run_ids()
    assert before(history, history.run(last)) == earlier
    assert before(history, history.run(first)) is None
    publish(home, last)
    publish(home, first)
    page = home.report(last, beside_name(earlier))
    assert f'href="{page.name}"' in home.report(last, "index.html").read_text()
    assert from_elsewhere(page) == []
    assert "beside-" not in home.report(first, "index.html").read_text()
