"""A review of a change that has every kind of result."""

import pytest

from infra.review.changes import Changes
from infra.review.review import Review
from jobs.raw import write_raw
from reports.history import History
from streaming_core.regression.home import Home
from streaming_core.storage import canonical_json
from tests.reports import past_finds, past_runs

FAULT = "application mine: operator count (wc.py:12): operators do not support f-strings; write a + `b` | c"


def changes(**fields) -> Changes:
    usual = {"ref": "main", "base": "abc323def0123456789", "is_of_engine": False, "applications": [], "faults": {}}
    return Changes(**usual | fields)


@pytest.fixture(scope="session")
def review(tmp_path_factory) -> Review:
    """An application cannot be loaded, cells differ, failed and did not run, others are slower, and one is a find."""
    home = Home(tmp_path_factory.mktemp("review"))
    past_runs.make(home)
    past_runs.gate(home)
    find = past_finds.add(home.finds("wc"))
    row = {"cell": f"wc.find.{find.digest}", "app": "wc", "kind": find.symptom.kind, "name": "", "rate": 1.0}
    row |= {"reason": "one | more <script>", "spec": canonical_json({"app": "wc", "executor": "pooled"}), "events": 1}
    write_raw(home, "finds", past_runs.LAST, [row | {"folder": f"finds/wc/{find.folder.name}", "build": ""}])
    run = History(home).run(past_runs.LAST)
    return Review(changes(applications=["gs", "sl", "wc"], faults={"mine": FAULT}), run)
