"""Acknowledgements are recorded with name and reason, and shown on the pages; bad ones and damaged ones are refused."""

import pyarrow.parquet as pq
import pytest

from reports.history import History
from reports.publish import publish
from streaming_core.regression import decisions
from streaming_core.regression.home import Home
from tests.infra.cli.conftest import lockstep, refused
from tests.reports import past_runs
from tests.reports.test_pages import Outline
from tests.support.draws import some


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([past_runs.RUN_IDS[0], "--reason", "x"], "has no red cells: there is nothing to acknowledge"),
        ([past_runs.LAST, "--reason", "x", "--cells", "nosuch"], "has no red cell nosuch; its red cells: "),
        ([past_runs.LAST, "--reason", " "], "the reason is empty: say why"),
        (["20990101T000000Z-00000000", "--reason", "x"], "no run '20990101T000000Z-00000000'"),
    ],
)
def test_invalid_acknowledgement_is_one_line_and_not_stored(home, capsys, arguments, message):
    past_runs.make(home)
    assert message in refused(capsys, "acknowledge", *arguments)
    assert decisions.decisions(home) == []


def changed(home: Home) -> str:
    """Changes the reason of the first entry; returns the line that refuses it."""
    (part,) = decisions.parts(home, "decisions")
    rows = pq.ParquetFile(part).read()
    why = rows.schema.get_field_index("why")
    other = rows.set_column(why, rows.schema.field(why), [["it was green", *rows.column("why").to_pylist()[1:]]])
    pq.write_table(other, part)
    return (
        f"{part}: entry 1 was changed: its content does not have its digest; "
        f"restore {home.raw('decisions')} from a backup, or move it away and acknowledge the cells again"
    )


ACKNOWLEDGE = ["acknowledge", past_runs.LAST, "--reason", "x"]
READERS = [ACKNOWLEDGE, [*ACKNOWLEDGE, "--withdraw"], ["prune"], ["prune", "--dry-run"]]
READERS += [["report"], ["report", "--json"]]


@pytest.mark.parametrize("arguments", some(READERS, 2))
def test_changed_entry_is_refused_by_name_in_one_line(home, capsys, arguments):
    past_runs.make(home)
    assert lockstep("acknowledge", past_runs.LAST, "--reason", "the disk was full") == 0
    line = changed(home)
    capsys.readouterr()
    assert lockstep(*arguments) == 2
    assert capsys.readouterr().err == f"lockstep: {line}\n"


@pytest.mark.slow
def test_pages_name_a_changed_entry_and_show_no_acknowledgement(home, capsys):
    past_runs.make(home)
    assert lockstep("acknowledge", past_runs.LAST, "--reason", "the disk was full") == 0
    line = changed(home)
    publish(home, past_runs.LAST)
    pages = [home.reports / "index.html", *(home.reports / past_runs.LAST).glob("*.html")]
    texts = {page: Outline(page.read_text()).text for page in pages}
    assert not any("UTC: the disk was full" in text for text in texts.values())
    cells = {f"{cell.name}.html" for cell in History(home).run(past_runs.LAST).cells}
    named = {page.name for page, text in texts.items() if line in text}
    assert cells | {"index.html"} <= named


@pytest.mark.slow
def test_withdrawn_acknowledgement_is_hidden_and_both_entries_stay(home, capsys, monkeypatch):
    monkeypatch.setattr("infra.cli.acknowledge.user", lambda: "ada")
    past_runs.make(home)
    assert lockstep("acknowledge", past_runs.LAST, "--reason", "the disk was full") == 0
    red = [decision.cell for decision in decisions.decisions(home)]
    withdraw = ["acknowledge", past_runs.LAST, "--withdraw", "--reason", "it was not"]
    capsys.readouterr()
    assert lockstep(*withdraw, "--cells", red[0]) == 0
    assert "ada withdrew 1 acknowledgement: it was not" in capsys.readouterr().out
    assert Outline((home.reports / "index.html").read_text()).text.count("UTC: the disk was full") == 2
    assert list(decisions.acknowledgements(home)) == [(past_runs.LAST, cell) for cell in red[1:]]
    assert [decision.decision for decision in decisions.decisions(home)] == ["acknowledged"] * 3 + ["withdrawn"]
    assert lockstep(*withdraw, "--cells", red[0]) == 2
    assert f"has no acknowledged cell {red[0]}; its acknowledged cells: {red[1]}, " in capsys.readouterr().err
    assert lockstep(*withdraw) == 0
    assert lockstep(*withdraw) == 2
    assert "has no acknowledged cells: there is nothing to withdraw" in capsys.readouterr().err
    assert lockstep("acknowledge", past_runs.LAST, "--reason", "it was, after all") == 0
    assert {acknowledgement.why for acknowledgement in decisions.acknowledgements(home).values()} == {
        "it was, after all"
    }
