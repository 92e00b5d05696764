"""The last seven days: which nights and which red cells belong to them."""

from datetime import UTC, datetime, timedelta

import pytest

from reports.history import History
from reports.views.week import Week
from streaming_core.regression.home import Home
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import record_begin
from tests.reports import past_runs
from tests.reports.past_runs import RUN_IDS

END = datetime(2026, 1, 6, 8, tzinfo=UTC)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    """Five nights, the last one red, and a later run that is no night."""
    home = Home(tmp_path_factory.mktemp("home"))
    past_runs.make(home, matrix="nightly")
    past_runs.add(home, "20260105T120000Z-000000aa", 5, matrix="smoke", kinds={"wc": "dataflow"}, heuristics=["ct"])
    return home


def names(cells) -> set[str]:
    return {cell.label for cell in cells}


def test_week_has_its_nights_and_its_new_red_cells(home):
    week = Week.of(History(home), END)
    assert [night.run_id for night in week.nights] == RUN_IDS
    assert (week.before, week.still) == ([], [])
    assert names(week.new) == {"gs/owners/t2", "sl/owners/t2", "wc/affinity/t2"}
    assert names(week.slower) == {"gs/serial/t2"}
    assert week.sentence == "4 of 5 nights were green; 3 cells are red"


def test_red_cell_of_an_earlier_week_is_still_red(home):
    week = Week.of(History(home), END + timedelta(days=3))
    assert [night.run_id for night in week.nights] == RUN_IDS[2:]
    assert [night.run_id for night in week.before] == RUN_IDS[:2]
    assert week.sentence == "2 of 3 nights were green, and 2 of 2 nights were green the week before; 3 cells are red"
    week = Week.of(History(home), END + timedelta(days=7))
    assert (week.nights, week.new, len(week.still)) == ([], [], 3)
    assert week.sentence == "No nightly run ended; 3 cells are red"


def test_week_before_the_first_run_is_empty(tmp_path):
    week = Week.of(History(Home(tmp_path)), END)
    assert (week.state, week.nights, week.red, week.slower) == (None, [], [], [])
    assert week.sentence == "No nightly run ended; no cell is red"


def test_night_in_progress_is_not_counted(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=2, red=False, matrix="nightly")
    record_begin(home, RUN_IDS[1], Stage.RUN_CORE, "a")
    assert Week.of(History(home), END).sentence == "1 of 1 night was green; no cell is red"
