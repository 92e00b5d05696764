"""The time of a run's stages comes from the records of its tasks."""

import pytest

from reports.history import History
from reports.pages import Pages
from reports.views.stages import WIDTH, Stages
from streaming_core.regression.home import Home
from streaming_core.storage import write_json
from tests.reports import past_runs


def note(home: Home, run_id: str, stage: str, began: float, ended: float, part: str | None = None) -> None:
    times = {"stage": stage, "began": began, "ended": ended}
    write_json(home.run(run_id) / "stages" / f"{part or stage}.json", times)


def test_time_is_split_into_cells_and_other_stages(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=1)
    run_id = History(home).run_ids()[-1]
    assert Stages.of(History(home).run(run_id)) is None
    assert "Where the time went" not in Pages(History(home)).overview(History(home).run(run_id))
    note(home, run_id, "run_core", 110, 118, "a.pooled.t2.1")
    note(home, run_id, "plan_matrix", 100, 102)
    note(home, run_id, "run_core", 120, 124, "a.pooled.t1.1")
    note(home, run_id, "dbt_build", 124, 140)
    record = Stages.of(History(home).run(run_id))
    assert [(stage.name, stage.seconds) for stage in record.stages] == [
        ("plan_matrix", 2),
        ("run_core", 12),
        ("dbt_build", 16),
    ]
    assert (record.seconds, record.cells, record.around) == (40, 12, pytest.approx(0.7))
    cells = record.stages[1].spans
    assert {span.name: (span.x, span.width) for span in cells} == {
        "a.pooled.t2.1": (WIDTH / 4, WIDTH / 5),
        "a.pooled.t1.1": (WIDTH / 2, WIDTH / 10),
    }
    page = Pages(History(home)).overview(History(home).run(run_id))
    assert "40 s until these pages were written: 12 s in cells, 70 % outside them" in page
    assert "<title>a.pooled.t1.1</title>" in page
