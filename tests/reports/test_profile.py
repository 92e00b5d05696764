"""The page of a profile: flame graphs, the noise of samples, and what the host cannot count."""

import re

import pytest

from reports.charts import flame
from reports.history import History
from reports.history.profile import Profile, Side
from reports.publish import publish
from reports.site import profile_name
from reports.views.profile import ProfileView
from tests.reports.past_runs import LAST

BEFORE = {"operators;split;split.map": 100.0, "operators;count;count.process": 50.0, "runtime;work;gate": 50.0}
AFTER = BEFORE | {"operators;count;count.process": 250.0, "runtime;work;gate": 20.0, "runtime;<script>": 1.0}
COUNTS = {"page-faults": 0.25, "instructions": None}
TITLE = re.compile(r'h([\d.]+)[^"]*" fill="(#\w+)"><title>(.*?): [\d.]+ ns')


def side(build: str, stacks: dict[str, float], samples: int | None = 10_000) -> Side:
    return Side(build, 1000, 5, 0.5, samples, stacks, COUNTS)


def profile(before: dict[str, float] | None = None, **fields) -> Profile:
    about = {"run_id": LAST, "cell": "cell", "host": "node1", "time": "2026-01-05T03:00:00+00:00"}
    about |= {"fallback": "", "alone": "" if before else "no earlier night is green", "build": side("b" * 40, AFTER)}
    return Profile(**about | {"baseline": before and side("a" * 40, before)} | fields)


def drawn(svg: str) -> dict[str, tuple[float, str]]:
    """The width and the colour of each frame."""
    return {name: (float(width), colour) for width, colour, name in TITLE.findall(svg)}


def test_frames_are_as_wide_as_their_time():
    frames = drawn(flame.graph(AFTER))
    whole = sum(AFTER.values())
    for name, ns in (("all", whole), ("operators", 350), ("split", 100), ("count.process", 250), ("gate", 20)):
        assert frames[name][0] == pytest.approx(flame.WIDTH * ns / whole, abs=1)
    assert frames["split.map"][1] == flame.COLOURS["operators"]
    assert frames["gate"][1] == flame.COLOURS["runtime"]


def test_difference_is_red_for_more_and_blue_for_less():
    colours = {name: colour for name, (_, colour) in drawn(flame.difference(AFTER, BEFORE)).items()}
    assert colours["split.map"] == flame.SAME
    assert colours["count.process"] == flame.MORE
    red, _, blue = (int(colours["gate"][at : at + 2], 16) for at in (1, 3, 5))
    assert blue > red


def test_empty_profile_is_drawn_and_has_a_headline():
    view = ProfileView.of(profile(build=side("b", {}), before=None))
    assert view.headline == "The profile of cell has no samples"
    assert view.graph.startswith("<svg")


def test_headline_names_the_widest_part_and_the_change():
    assert ProfileView.of(profile()).headline == "Operator count takes 67% of the time: 250 ns of 371 ns per event"
    change = ProfileView.of(profile(BEFORE)).headline.partition("; ")[2]
    assert change == "it takes 200 ns more than in build aaaaaaaaa"
    small = AFTER | {"operators;count;count.process": 240.0, "runtime;work;gate": 20.0}
    assert "by more than the noise" in ProfileView.of(profile(small)).headline


def test_counters_that_the_host_lacks_are_named_and_never_zero():
    lines = ProfileView.of(profile()).lines
    assert "page-faults: 0.25 per event" in lines
    assert lines[-1].startswith("not available on this host: instructions; ")


def test_page_of_a_cell_links_to_its_profile(home):
    run = History(home).run(LAST)
    first, second = run.cells[:2]
    profile(BEFORE, cell=first.name).save(run.attempts(first))
    publish(home, LAST)
    page = home.report(LAST, profile_name(first.name)).read_text()
    assert "<h1>Operator count takes 67% of the time" in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert f'href="{profile_name(first.name)}"' in home.report(LAST, f"{first.name}.html").read_text()
    assert profile_name(second.name) not in home.report(LAST, f"{second.name}.html").read_text()
    assert not home.report(LAST, profile_name(second.name)).exists()
