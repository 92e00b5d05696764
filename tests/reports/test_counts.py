"""Every number of cells is the same on all pages, in the one-file report, in `lockstep report` and in its JSON."""

import io
import re
from collections import Counter
from collections.abc import Callable

import pytest
from rich.console import Console

from infra.cli.summary import as_dict, print_run
from reports.attachment import attachment
from reports.history import History
from reports.history.run import Results
from reports.history.speed import JUDGED
from reports.history.state import state
from reports.pages import Pages
from streaming_core.regression.home import Home
from streaming_core.regression.status import end
from tests.reports import past_runs
from tests.reports.past_runs import RUN_IDS
from tests.reports.test_pages import Outline

FIRST, SECOND = RUN_IDS[:2]
SMALL = {"applications": ["gs", "wc"], "schemes": ["owners", "no_lock"]}


def speeds(*verdicts: str | None) -> Callable[[Home], None]:
    """A run whose cells have these verdicts on speed in turn; None: no row in the mart."""

    def make(home: Home) -> None:
        past_runs.add(home, FIRST, **SMALL)
        rows = History(home).mart("speed")
        turns = [(row, verdicts[number % len(verdicts)]) for number, row in enumerate(rows)]
        past_runs.mart(home, "speed", [row | {"verdict": verdict} for row, verdict in turns if verdict])

    return make


def without(*folders: str) -> Callable[[Home], None]:
    """A run without some files of the warehouse."""

    def make(home: Home) -> None:
        past_runs.add(home, FIRST, red=True, **SMALL)
        for path in (path for folder in folders for path in (home.root / "warehouse" / folder).rglob("*.parquet")):
            path.unlink()

    return make


def stopped(home: Home) -> None:
    past_runs.add(home, FIRST, red=True, **SMALL)
    end(home, FIRST, "stopped", by="ada")


def narrower(home: Home) -> None:
    past_runs.add(home, FIRST, red=True, **SMALL)
    past_runs.add(home, SECOND, **SMALL | {"applications": ["wc"], "threads": [1, 3]})


def gated(home: Home) -> None:
    past_runs.make(home, red=False)
    past_runs.gate(home)


HISTORIES: dict[str, Callable[[Home], None]] = {
    "green": lambda home: past_runs.add(home, FIRST, **SMALL),
    "red nightly": lambda home: past_runs.make(home, matrix="nightly"),
    "slower beside a commit": gated,
    "passes too short": speeds("too_short"),
    "some not measured": speeds("too_new", None, "too_noisy"),
    "some judged": speeds("unchanged", None, "too_short"),
    "without marts": without("marts"),
    "not loaded": without("marts", "raw"),
    "stopped": stopped,
    "narrower": narrower,
}


def counts_of(results: Results) -> dict[str, object]:
    """What a page, or a table, of these results has to count."""
    cells = results.cells
    equal = [cell for cell in cells if cell.verdict == "equal"]
    trend = Counter(cell.speed.verdict if cell.speed else "not_measured" for cell in equal)
    verdicts = Counter(cell.verdict for cell in cells)
    red = sum(cell.red for cell in cells) - verdicts["not_run"]
    of = (len(equal), sum(not cell.is_bound for cell in cells))
    tiles = [len(equal), red, verdicts["not_run"]]
    return {"verdicts": dict(verdicts), "tiles": tiles, "equal of": of, "speed": dict(trend)}


def shown_speed(text: str) -> dict[str, int]:
    """The counts of `Speed: 1 unchanged; 2 too short (run more events)`."""
    sentence = text.partition("Speed: ")[2].partition("\n")[0]
    slower = {"slower": sentence.count(" % slower since")} if " % slower since" in sentence else {}
    counted = re.findall(r"(?:^|; )(\d+) (unchanged|too noisy|too short|too new|not judged|not measured)", sentence)
    return slower | {word.replace(" ", "_"): int(count) for count, word in counted}


def shown_by_page(html: str) -> dict[str, object]:
    """What a page of results counts, and what it lists."""
    text = Outline(html).text
    tiles = re.findall(
        r'<span class="number"><span aria-hidden="true">.</span> (\S+)</span> <span class="word">(.*?)<', html
    )
    equal, of = re.search(r"(\d+) equal of (\d+) cell", text).groups()
    chips = re.findall(r'class="chip (\w+)" title="[^"]*:', html)
    unknown = re.search(r"\? (\d+) without a verdict", text)
    known = shown_speed(text)
    assert int(unknown[1] if unknown else 0) == sum(n for word, n in known.items() if word not in JUDGED)
    numbers = [int(number) for number, _ in tiles[:3]]
    return {"verdicts": dict(Counter(chips)), "tiles": numbers, "equal of": (int(equal), int(of)), "speed": known}


@pytest.mark.slow
@pytest.mark.parametrize("name", HISTORIES)
def test_every_page_table_and_document_has_the_same_counts(tmp_path, name):
    home = Home(tmp_path)
    HISTORIES[name](home)
    history = History(home)
    pages, run = Pages(history), history.latest()
    expected = counts_of(run)
    for html in (pages.overview(run), attachment(pages, run)):
        assert shown_by_page(html) == expected
    if current := state(history):
        assert shown_by_page(pages.index()) == counts_of(current)
    if pages.speed.has_measured(run):
        headline = Outline(pages.performance(run)[0]).first_heading
        measured = re.findall(r"(\d+) ([a-z ]+?)(?:,|$)", headline.partition(": ")[2])
        assert {word.replace(" ", "_"): int(count) for count, word in measured} == expected["speed"]
    console = Console(record=True, width=300, file=io.StringIO())
    print_run(home, run.run_id, console)
    printed = console.export_text()
    rows = [line.split() for line in printed.splitlines() if re.match("(gs|sl|wc) ", line)]
    words = Counter(word for line in rows for word in line if word in expected["verdicts"])
    assert dict(words) == expected["verdicts"]
    assert shown_speed(printed) == expected["speed"]
    document = as_dict(home, run, {})
    assert {verdict: count for verdict, count in document["counts"].items() if count} == expected["verdicts"]
    assert dict(Counter(cell["verdict"] for cell in document["cells"])) == expected["verdicts"]
    assert shown_speed(document["speed"]) == expected["speed"]
    for text in (document["sentence"], Outline(pages.runs()).text, Outline(pages.overview(run)).first_heading):
        assert run.sentence in text
    if run.status.state == "finished" and expected["equal of"][0] != expected["equal of"][1]:
        assert run.sentence.startswith("{} of {} cells equal".format(*expected["equal of"]))
