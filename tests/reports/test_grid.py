"""The grid of a page, its tiles and its sparklines: every cell once, and everything also in words."""

import re

import pytest

from infra.checkout import ROOT
from reports.history import History
from reports.site import HERE
from reports.views.grid import panels
from reports.views.sparkline import Point, Sparkline
from reports.views.tiles import tiles
from streaming_core.regression.home import Home
from tests.reports import past_runs
from tests.reports.past_runs import LAST


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("home"))
    past_runs.make(home)
    return History(home).run(LAST)


def test_each_cell_is_once_in_the_row_of_its_application_and_the_column_of_its_way(run):
    shown = []
    for panel in panels(run.cells):
        for row in panel.rows:
            for way, cells in zip(panel.ways, row.fields, strict=True):
                assert all((cell.spec.app, cell.spec.executor, cell.strategy) == (row.app, *way[:2]) for cell in cells)
                assert [cell.spec.threads for cell in cells] == sorted(cell.spec.threads for cell in cells)
                shown += [cell.name for cell in cells]
    assert sorted(shown) == sorted(cell.name for cell in run.cells)


def test_applications_on_the_same_executors_share_a_panel(run):
    assert [[row.app for row in panel.rows] for panel in panels(run.cells)] == [["gs", "sl"], ["wc"]]
    assert panels(run.cells)[0].caption == "2 applications on transactional"


def test_tiles_and_sentence_have_the_same_counts(run):
    assert [(tile.mark, tile.number, tile.word) for tile in tiles(run)] == [
        ("✓", "7", "equal"),
        ("✗", "2", "not equal"),
        ("○", "1", "not judged"),
        ("▼", "1", "slower"),
    ]
    assert tiles(run)[0].detail == "of 10 cells, 4 bounds beside them"


def point(build: str, rate: float, to_loop: float | None) -> Point:
    return Point({"build": build, "median_events_per_s": rate}, to_loop)


def test_sparkline_has_a_point_and_a_description_per_build():
    line = Sparkline.of([point("a", 1e6, 2.0), point("a", 1e6, 4.0), point("b", 9e6, 1.5), point("c", 1e6, 3.5)])
    assert len(line.points.split()) == 3
    assert line.text == "Speed over 3 builds: first 3, lowest 1.5, highest 3.5, now 3.5 times the compiled loop"
    heights = [float(corner.partition(",")[2]) for corner in line.points.split()]
    assert heights[1] > heights[0] > heights[2], "faster is higher"
    assert Sparkline.of([point("a", 1e6, None), point("b", 2e6, 1.0)]) is None, "one of them is not judged"
    assert Sparkline.of([point("a", 1e6, 1.0)] * 3) is None


def test_every_term_of_the_pages_is_in_the_glossary():
    files = [*(HERE / "templates").glob("*.html"), *ROOT.glob("infra/*/*.html")]
    templates = "".join(path.read_text() for path in files)
    anchors = set(re.findall(r'term\("[^"]+", "([^"]+)"\)', templates))
    assert len(anchors) > 8
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    assert [anchor for anchor in anchors if f'id="{anchor}"' not in glossary] == []
