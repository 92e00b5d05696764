"""What the search for faults tried and found, on the pages of its run and on the overview."""

import pytest

from jobs.raw import write_raw
from reports.history.searched import Searched
from reports.publish import publish
from reports.site import file_name
from streaming_core.regression.home import Home
from streaming_core.regression.verdict import find_cell
from streaming_core.search.case import Case
from streaming_core.storage import canonical_json
from tests.reports import past_finds, past_runs
from tests.reports.past_runs import LAST

ROW = {"inputs": 1200, "ways": 6000, "reached": 9, "branches": 10, "seconds": 31.0}


@pytest.mark.parametrize(
    ("searched", "sentence"),
    [
        (Searched(), ""),
        (Searched([], "the task find failed: x"), "Search for faults: the task find failed: x"),
        (
            Searched([ROW, ROW], "it was ended"),
            "Search for faults: 2,400 inputs of 2 applications in 12,000 ways, 18 of 20 branches reached (90 %); "
            "it was ended",
        ),
        (
            Searched([ROW | {"reached": 0, "branches": 0}]),
            "Search for faults: 1,200 inputs of 1 application in 6,000 ways, 0 of 0 branches reached",
        ),
    ],
)
def test_sentence_counts_inputs_ways_and_branches(searched, sentence):
    assert searched.sentence == sentence


def test_pages_link_each_find_and_count_what_was_tried(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=5, red=False)
    example = past_finds.add(home.finds("wc"))
    spec = canonical_json(Case.load(example.folder).spec.model_dump(mode="json"))
    row = {"cell": find_cell("wc", example.digest), "app": "wc", "kind": "result", "reason": "4 events: it differs"}
    write_raw(home, "finds", LAST, [row | {"spec": spec, "build": "abc323def"}])
    write_raw(home, "searches", LAST, [ROW | {"app": "wc"}])
    run = publish(home, LAST)
    assert run.sentence == f"All 10 cells equal the oracle; find wc/{example.digest[:8]} differs in build abc323def"
    tried = "1,200 inputs in 6,000 ways, 90 % of branches reached"
    for page, root in ((home.report(LAST, "index.html"), "../"), (home.reports / "index.html", "")):
        text = page.read_text()
        assert text.count(f'href="{root}finds/wc/{example.digest}.html"') >= 2, "what broke, and what the search found"
        assert tried in text
        assert "4 events: it differs" in text
        assert run.sentence in text
    assert (home.reports / "finds" / "wc" / f"{example.digest}.html").exists()
    file = home.report(LAST, file_name(LAST)).read_text()
    assert "4 events: it differs" in file
    assert f"finds/wc/{example.digest}" not in file, "no page is beside a mailed file"
