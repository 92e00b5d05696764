"""The page of a run's inputs: imports with the rows set aside, checks that were made, and those that were not."""

from dataclasses import replace

import pytest

from infra.cli.report import report
from reports.publish import publish
from streaming_core.errors import RunFailed
from streaming_core.regression.home import Home
from streaming_core.regression.provenance import Check, Provenance, provenance_of, record
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import recorded
from tests.reports.past_runs import HOSTILE, LAST
from tests.reports.test_pages import Outline

BYTES = b"7,\xff\xfe\x00\x1b,\xe2\x80\xae".decode("utf-8", "surrogateescape")


def aside(reason: str, rows: int, file: str, row: int, text: str, is_cut: bool) -> dict:
    sample = {"file": file, "row": row, "line": row + 1, "text": text, "is_cut": is_cut}
    return {"reason": reason, "rows": rows, "file": file, "row": row, "samples": [sample]}


IMPORTED = {"files": ["orders.csv", "more.csv"], "map": {"ts": "when", "amount": "amount"}}
IMPORTED |= {"rows": 100_012}
IMPORTED["aside"] = [
    aside("the line is not UTF-8", 9, "orders.csv", 17, BYTES, False),
    aside("amount is no integer", 3, "more.csv", 4, HOSTILE, True),
]


def pages(home: Home) -> dict[str, Outline]:
    """The run's page of inputs, that of the latest run, the run's page and the run as one file."""
    publish(home, LAST)
    names = {"inputs": f"{LAST}/inputs.html", "latest": "inputs.html", "run": f"{LAST}/index.html"}
    names["file"] = f"{LAST}/lockstep-{LAST}.html"
    return {name: Outline((home.reports / path).read_text()) for name, path in names.items()}


def test_run_without_imports_reports_all_workloads_checked(home):
    read = pages(home)
    sentence = "No import; 3 generated workloads; all checks passed"
    assert read["inputs"].first_heading == read["latest"].first_heading == sentence
    assert "not checked" not in read["inputs"].text
    assert f"Inputs: {sentence}." in read["run"].text
    assert f"Inputs: {sentence}" in read["file"].text
    assert f"../{LAST}/inputs.html" in read["run"].links
    assert "../inputs.html" in read["run"].links, "the menu"
    assert "#inputs" in read["file"].links
    assert f"{LAST}/index.html" in read["latest"].links
    assert f"../{LAST}/index.html" in read["inputs"].links


def with_import(home: Home, imported: dict) -> None:
    """Give the application gs of the last run an import."""
    inputs = provenance_of(home, LAST)
    address = next(provenance.address for provenance in inputs.values() if provenance.app == "gs")
    own = Provenance("gs", address, "import", 100_000, None, [Check("a", "passed")], "orders", imported)
    record(home, LAST, [own, *(provenance for address, provenance in inputs.items() if address != own.address)])


@pytest.mark.parametrize(("tolerance", "color"), [(0.0, "amber"), (0.00011, "amber"), (0.00012, "green")])
def test_rows_set_aside_beyond_the_tolerance_make_pages_amber(home, capsys, monkeypatch, tolerance, color):
    with_import(home, IMPORTED | {"tolerance": tolerance})
    pages(home)
    warning = f"the import gs/orders set aside 12 of 100,012 rows (0.012 %; tolerated {100 * tolerance:.3g} %)"
    for page in ("index.html", f"{LAST}/index.html", f"{LAST}/lockstep-{LAST}.html"):
        text = (home.reports / page).read_text()
        assert f'<h1 class="{color}">All 10 cells equal the oracle' in text
        assert (warning in text) == (color == "amber")
    sign = f'<span class="{color}"><span aria-hidden="true">{"!" if color == "amber" else "✓"}</span> All 10 cells'
    assert sign in (home.reports / "index.html").read_text()
    assert sign in (home.reports / "runs.html").read_text()
    assert f'<h1 class="{color}">' in (home.reports / "inputs.html").read_text()
    monkeypatch.setenv("LOCKSTEP_HOME", str(home.root))
    assert report(LAST) == 0, "nothing is wrong"
    assert (warning in capsys.readouterr().out) == (color == "amber")


def test_import_page_shows_rows_and_escaped_samples_set_aside(home):
    with_import(home, IMPORTED)
    read = pages(home)
    assert read["inputs"].first_heading == (
        "1 import of 100,012 rows, 12 set aside; 2 generated workloads; gs set aside too many rows"
    )
    for page in (read["inputs"], read["file"]):
        for phrase in (
            "gs: import orders",
            "orders.csv, more.csv",
            "amount, when as ts",
            "9the line is not UTF-8orders.csv, row 17",
            r"7,\xff\xfe\x00\x1b,\u202e",
            HOSTILE,
            "(cut)",
            "imported/orders/aside",
        ):
            assert phrase in page.text, phrase
        assert "script" not in page.tags
        assert "img" not in page.tags or page is read["file"], "the file has charts"
        assert "1337" not in page.text


def test_unchecked_and_failed_workloads_are_named(home):
    known = list(provenance_of(home, LAST).values())
    failed = replace(known[0], checks=[Check("the workload can be prepared", "failed", "it rolls dice")])
    unchecked = replace(known[1], checks=[*known[1].checks, Check("ts never decreases", "not checked", "no record")])
    record(home, LAST, [failed, unchecked, *known[2:]])
    page = pages(home)["inputs"]
    assert page.first_heading == "No import; 3 generated workloads; gs failed a check; sl missed a check"
    assert "the workload can be prepared✗ failedit rolls dice" in page.text
    assert "ts never decreases○ not checkedno record" in page.text


def test_workload_without_a_reader_is_not_checked(home):
    for cell in home.part("cells", LAST), home.part("verdicts", LAST), home.part("samples", LAST):
        cell.unlink()
    page = pages(home)["inputs"]
    assert page.first_heading == "No import; 3 generated workloads; gs, sl, wc missed a check"
    assert page.text.count("○ not checkedno cell read all rows") == 3


def test_missing_preparation_record_has_a_reason(home):
    (home.run(LAST) / "provenance.json").unlink()
    assert pages(home)["inputs"].text.count("○ not checkedprepare workloads recorded no checks") == 3
    with pytest.raises(RunFailed), recorded(home, LAST, Stage.PREPARE_WORKLOADS):
        raise RunFailed("the disk is full")
    assert pages(home)["inputs"].text.count("○ not checkedprepare workloads failed: the disk is full") == 3
