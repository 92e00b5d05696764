"""The history of past runs, including unfinished ones."""

import pytest

from jobs.raw import write_raw
from reports.history import History, human_micros, human_rate, short
from reports.history.cell import OUTCOMES
from reports.history.text import short_json, words
from reports.views.cell import _remote, _topology
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from tests.dbt.raw_runs import GREEN, RED, expected_verdict, specs, write_runs
from tests.reports import past_runs
from tests.reports.past_runs import load


def test_since_names_the_first_different_build(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home)
    # The night before the last one differs too: the series began there.
    night = past_runs.RUN_IDS[-2]
    rows = History(home).rows("verdicts", night)
    for row in rows:
        if row["cell"].startswith("sl.transactional.owners.t2") and row["check"] == "outputs":
            row["verdict"] = "different"
    write_raw(home, "verdicts", night, rows)
    load(home, night)
    assert "sl/owners/t2 differs since build abc323def" in History(home).run(past_runs.LAST).sentence


def test_build_with_an_earlier_equal_run_is_no_start_of_a_difference(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home)
    before = History(home).run(past_runs.RUN_IDS[-2])
    build = next(cell.facts["build"] for cell in before.cells if cell.facts.get("build"))
    rows = [row | {"build": build} for row in History(home).rows("cells", past_runs.LAST)]
    write_raw(home, "cells", past_runs.LAST, rows)
    sentence = History(home).run(past_runs.LAST).sentence
    assert f"sl/owners/t2 differs in build {short(build)}" in sentence
    assert "since" not in sentence


def test_loaded_run_without_a_plan_has_its_verdicts(tmp_path):
    home = Home(tmp_path)
    write_runs(home)
    for run_id, green in ((GREEN, True), (RED, False)):
        run = History(home).run(run_id)
        wanted = {spec.cell: expected_verdict(run_id, spec) for spec in specs()}
        assert ({cell.name: cell.verdict for cell in run.cells}, run.green) == (wanted, green)
        assert all(bool(cell.reason) == (cell.verdict != "equal") for cell in run.cells)


def test_run_shows_its_checks_before_it_is_loaded(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=1)
    for table in ("cells", "samples"):
        (home.raw(table) / f"run_id={past_runs.RUN_IDS[0]}" / "part-0.parquet").unlink()
    run = History(home).latest()
    assert run.counts["different"] == 1
    assert run.counts["equal"] > 0
    assert run.counts["failed"] == 1


def test_damaged_mart_is_named_with_the_command_that_makes_it_again(tmp_path):
    folder = tmp_path / "warehouse" / "marts" / "cells"
    folder.mkdir(parents=True)
    (folder / "part-00000.parquet").write_text("not parquet")
    with pytest.raises(BadInput, match=rf"^{folder}: .*; `lockstep warehouse rebuild` makes it again$"):
        History(Home(tmp_path)).mart("cells")


def test_rates_and_durations_are_readable():
    assert [human_rate(v) for v in (None, 312.4, 84_123, 999_700, 1_240_000, 2.5e9)] == [
        "\N{EN DASH}", "312", "84.1 k", "1 M", "1.24 M", "2.5 G",
    ]  # fmt: skip
    assert [human_micros(v) for v in (None, 40.0, 999.7, 1234.0, 3.4e6)] == [
        "\N{EN DASH}", "40 µs", "1 ms", "1.23 ms", "3.4 s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OUTCOMES["not_compared"].of(1), "1 was not compared"),
        (OUTCOMES["not_compared"].of(7), "7 were not compared"),
        (OUTCOMES["different"].of(2), "2 differ"),
        (short_json(0), "0"),
        (short_json(False), "false"),
        (short_json([]), ""),
        (words({"nodes": [0, 1], "why": None, "extra_ns": 0}), "nodes 0, 1; extra ns 0"),
        (_topology({"cores": [{}, {}], "sockets": 1, "nodes": [0]}), "2 cores, 1 socket, 1 memory node"),
    ],
)
def test_values_and_counts_are_in_words(text, expected):
    assert text == expected


ESTIMATE = {"breakdown": {"remote": 0.0125}, "node_loads": None}
REASON = "this machine does not count loads from memory nodes: No such file or directory"


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        (
            {"breakdown": {"remote": 0.0}},
            f"estimated: 0 ms of all threads in the last pass; not counted: {REASON}",
        ),
        (ESTIMATE, f"estimated: 12.5 ms of all threads in the last pass; not counted: {REASON}"),
        (
            ESTIMATE | {"node_loads": 40_000, "node_load_misses": 1_500},
            "estimated: 12.5 ms of all threads in the last pass; counted: 1,500 of 40,000 loads from memory went to "
            "another node",
        ),
        (
            {"breakdown": {"remote": 0.0}, "node_loads": 0, "node_load_misses": 0},
            "estimated: 0 ms of all threads in the last pass; counted: 0 of 0 loads from memory went to another node",
        ),
    ],
)
def test_remote_memory_is_estimated_and_counted_where_the_processor_counts_it(sample, text):
    assert _remote({"samples": [sample], "host": {"node_loads": REASON}}) == text
