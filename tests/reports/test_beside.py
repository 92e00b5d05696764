"""The comparison of two runs: cells by name, changed verdicts, and ratios where both did the same work."""

import math
import re
from dataclasses import replace

import pytest

from reports.history import History
from reports.history.text import NOTHING, short
from reports.pages import Pages
from reports.publish import publish
from reports.site import beside_name
from reports.views.beside import Beside, Pair, before
from streaming_core.regression import preflight
from streaming_core.regression.home import Home
from streaming_core.regression.preflight import Preflight
from streaming_core.storage import write_json
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
    run, other = history.run(last), history.run(earlier)
    beside = Beside.of(run, other)
    changed = [pair.label for pair in beside.pairs if pair.changed]
    assert changed == [cell.label for cell in run.cells if cell.red]
    assert beside.sentence == f"{len(changed)} of the {len(run.cells)} shared cells changed their verdict"
    page = Pages(history).beside(run, other)
    assert re.findall(r"<b>(\S+/\S+)</b> \(changed\)", page) == changed
    assert Beside.of(other, other).sentence.startswith("None of the ")
    assert not any(pair.changed for pair in Beside.of(other, other).pairs)
    shared = [pair for pair in beside.pairs if pair.changed][:1]
    assert replace(beside, pairs=shared).sentence == "The one shared cell changed its verdict"
    assert replace(beside, pairs=[Pair(run.cells[0], run.cells[0])]).sentence == "The one shared cell kept its verdict"


def test_ratio_needs_the_same_work_on_the_same_machine(home):
    history = History(home)
    run, other = (history.run(run_id) for run_id in history.run_ids()[-2:])
    name = "gs.transactional.serial"
    (cell,) = [cell for cell in run.cells if cell.name.startswith(name) and cell.spec.threads == 1]
    twin = other.cell(cell.name)
    cell.speed, twin.speed = (type(twin.speed)("unchanged", to_loop=ratio) for ratio in (1.0, 0.8))

    def ratio() -> float | None:
        (pair,) = [pair for pair in Beside.of(run, other).pairs if pair.cell is cell]
        return pair.faster

    assert ratio() == pytest.approx(1.25)
    for column in ("workload_address", "host", "yardstick"):
        kept, cell.facts[column] = cell.facts[column], "another"
        assert ratio() is None
        cell.facts[column] = kept
    twin.speed = None
    assert ratio() is None


def test_greatest_differences_come_first(home):
    history = History(home)
    other, run = (history.run(run_id) for run_id in history.run_ids()[-2:])
    *cells, last = [cell for cell in run.cells if not cell.red][:4]
    for cell, ratio in zip(cells, (0.9, 1.5, 0.5), strict=True):
        cell.speed = other.cell(cell.name).speed = type(cell.speed)("unchanged", to_loop=1.0)
        cell.speed = type(cell.speed)("unchanged", to_loop=ratio)
    gone = other.cells.pop(other.cells.index(other.cell(last.name)))
    pairs = Beside.of(run, other).pairs
    changed = [cell.name for cell in run.cells if cell.red]
    assert [pair.cell.name for pair in pairs if pair.changed] == changed == [p.cell.name for p in pairs[: len(changed)]]
    sizes = [abs(math.log(pair.faster)) for pair in pairs[len(changed) :] if pair.faster]
    assert sizes == sorted(sizes, reverse=True)
    assert {round(math.exp(size), 3) for size in sizes[:3]} >= {2.0, 1.5}
    assert pairs[-1].cell.name == gone.name


def test_range_of_a_ratio_spans_all_passes(home):
    history = History(home)
    run, other = (history.run(run_id) for run_id in history.run_ids()[-2:])
    name = next(cell.name for cell in run.cells if cell.is_speed_judged and other.cell(cell.name).is_speed_judged)
    cell, twin = run.cell(name), other.cell(name)
    for of_run, seconds in ((cell, (1.0, 1.25, 2.0)), (twin, (2.5, 4.0, 5.0))):
        passes = [{"kind": "peak", "loop_seconds": 10.0, "seconds": each} for each in seconds]
        of_run.samples = [{"kind": "verified", "loop_seconds": 10.0, "seconds": 100.0}, *passes]
    pair = Pair(cell, twin)
    assert pair.range == pytest.approx((5 / 4, 10 / 2))
    assert pair.is_apart
    assert Pair(twin, cell).range == pytest.approx((2 / 10, 4 / 5))
    assert not Pair(cell, cell).is_apart
    assert Pair(cell, cell).range == pytest.approx((0.5, 2.0))


def test_conditions_that_differ_are_listed_and_no_others(home):
    history = History(home)
    first, second = history.run_ids()[:2]
    names = [condition.name for condition in Beside.of(history.run(first), history.run(second)).conditions]
    assert names == ["build"], "every night has a build of its own"
    same = Beside.of(history.run(first), history.run(first))
    assert same.conditions == []
    assert "The conditions are equal" in Pages(history).beside(same.run, same.other)
    cell = history.run(second).cells[0]
    numa = {"cpu": "EPYC <b>", "sockets": [16, 16], "governor": "powersave", "numa_balancing": False}
    preflight.record(home, first, [Preflight("numa-a", **numa | {"governor": "performance", "numa_balancing": True})])
    preflight.record(home, second, [Preflight("numa-a", **numa)])
    report = {
        "host": {"cpu": "EPYC", "python": "3.11.9", "kernel": "6.1", "engine": {"system": "Polars", "polars": "2"}}
    }
    write_json(home.attempt(second, cell.name, 1) / "report.json", report)
    plan = history.plan(second)
    plan["regression"]["pin"], plan["workloads"][0]["seed"] = True, 7
    write_json(home.run(second) / "plan.json", plan)
    run, other = history.run(first), history.run(second)
    facts = {name: (a, b) for name, a, b in Beside.of(run, other).conditions}
    app = plan["workloads"][0]["app"]
    assert facts.pop("build") == (short(run.build), short(other.build))
    assert facts == {
        "governor": ("performance", "powersave"),
        "NUMA balancing": ("on", "off"),
        "Python": (NOTHING, "3.11.9"),
        "kernel": (NOTHING, "6.1"),
        "Polars": (NOTHING, "polars 2"),
        f"input of {app}": ("100,000 events, seed 1", "100,000 events, seed 7"),
        "request: pin": ("false", "true"),
    }
    assert "EPYC <b>" not in Pages(history).beside(history.run(history.run_ids()[2]), other)


def test_cells_of_only_one_run_are_listed_too(home):
    history = History(home)
    run, other = (history.run(run_id) for run_id in history.run_ids()[-2:])
    gone = other.cells.pop(0)
    beside = Beside.of(run, other)
    assert [pair.cell.name for pair in beside.pairs if pair.other is None] == [gone.name]
    beside = Beside.of(other, run)
    assert [pair.other.name for pair in beside.pairs if pair.cell is None] == [gone.name]
    assert beside.pairs[-1].label == gone.label
    assert Pages(history).beside(other, run).count("not planned") == 1
    other.cells.clear()
    assert Beside.of(run, other).sentence == "The two runs share no cell"


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
