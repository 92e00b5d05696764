"""`lockstep debug` opens a cell of the run that is named; bad input gets one line."""

import pytest

from tests.infra.cli.conftest import refused
from tests.reports import past_runs

CELL = "sl.transactional.owners.t2.704d814a"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([CELL, "--run", past_runs.RUN_IDS[0]], f"run {past_runs.RUN_IDS[0]} has no output of {CELL} that differs"),
        ([CELL, "--run", past_runs.LAST], f"the workload of {CELL} was removed"),
        ([CELL], f"the workload of {CELL} was removed"),
        ([CELL, "--run", "nosuch"], "has no run 'nosuch'"),
        (["sl.nosuch"], f"run {past_runs.LAST}: "),
    ],
)
def test_cell_that_cannot_be_debugged_is_refused_in_one_line(home, capsys, arguments, message):
    past_runs.make(home)
    assert message in refused(capsys, "debug", *arguments)
