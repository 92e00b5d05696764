"""Suites hold on a right run, name each failure of a wrong run in one line, and their pages load nothing."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from expectations import validate
from expectations.files import FIXED
from expectations.history import ROW_COUNT
from expectations.suites import imports, invariants, outputs
from jobs import load_metrics, validate_outputs
from reports.site import MENU, QUALITY
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.warehouse import rows as raw_rows
from tests.jobs.world import RUN_ID, Tables, World, bank, set_value
from tests.support.accessibility import THEMES, violations_of_all

EVIL = "<script>alert(1)</script>{{ 7 * 191 }}{% raw %}$title"


class Loads(HTMLParser):
    """Collects the resources and scripts of a page, and the targets of its links."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads, self.links, self.text = [], [], ""
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "link", "img", "iframe", "object", "embed") or "src" in values:
            self.loads.append((tag, values))
        self.loads += [(tag, name) for name in values if name.startswith("on")]
        if "href" in values:
            self.links.append(values["href"])

    def handle_data(self, data: str) -> None:
        self.text += data


def null_balance(tables: Tables) -> Tables:
    return tables | {"outputs": set_value(tables["outputs"], "balance", 7, None)}


def without_mean(tables: Tables) -> Tables:
    return tables | {"outputs": tables["outputs"].drop_columns(["mean"])}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (validate_outputs, outputs, invariants, imports):
        monkeypatch.setattr(module, "load", lambda name: bank())


def judge(world: World, spark: SparkSession) -> int:
    """0 if all expectations hold, else 1, with the line on stdout."""
    try:
        line, code = validate.work(spark, world.home, RUN_ID), 0
    except RunFailed as error:
        line, code = str(error), 1
    print(line)
    return code


def judged(world: World, spark: SparkSession, capsys: pytest.CaptureFixture) -> tuple[int, str, list[str]]:
    """Exit code, line on stdout, lines on stderr."""
    validate_outputs.judge_cells(spark, world.home, RUN_ID)
    load_metrics.work(world.home, RUN_ID)
    capsys.readouterr()
    code = judge(world, spark)
    captured = capsys.readouterr()
    return code, captured.out, captured.err.splitlines()


def test_rows_that_break_a_rule_have_an_application_and_a_cell():
    queries = [rule["kwargs"].get("unexpected_rows_query") for suite in FIXED.values() for rule in suite]
    assert len(queries) > 10
    for query in filter(None, queries):
        assert re.match(r"SELECT app, (min\(cell\) AS )?cell\b", query), query


@pytest.mark.slow
def test_right_run_passes_again_and_its_pages_have_the_menu(tmp_path, spark, capsys):
    from expectations.context import context_folder

    world = World(tmp_path)
    right, bound, loose = world.plan(("owners", 2), ("no_lock", 2), ("shared_ring", 2))
    world.attempt(right)
    world.attempt(loose)  # its passes are not in order
    world.attempt(bound, null_balance)
    code, line, errors = judged(world, spark, capsys)
    assert (code, errors) == (0, [])
    assert re.search(r"^(\d+) of \1 expectations hold, in 7 data sets; ", line, re.M)
    before = sorted(tmp_path.rglob("data_docs/**/*.html"))
    assert judge(world, spark) == 0
    assert sorted(tmp_path.rglob("data_docs/**/*.html")) == before
    site = validate.Home(tmp_path).reports / "data_docs"
    for page in site.rglob("*.html"):
        parser = Loads(page)
        targets = {(page.parent / link.partition("#")[0]).resolve() for link in parser.links}
        missing = {entry.name for entry in MENU if (site.parent / entry.href).resolve() not in targets}
        assert missing <= {"Benchmarks", "Warehouse"} if page == site / "index.html" else not missing, page
        assert "Data asset" not in parser.text, page
        assert not re.search(r"e\+1\d", parser.text), page
    index = (site / "index.html").read_text()
    assert "1 of 1 data sets" not in index
    assert "7 of 7 data sets of the newest run meet their expectations" in index
    shown = json.loads((world.home.run(RUN_ID) / "expectations.json").read_text())
    stored = sorted((tmp_path / "expectations" / "results").rglob("*.json"))
    (checkpoint,) = context_folder(world.home).glob("checkpoints/*.json")
    results = [json.loads(path.read_text()) for path in stored]
    by_suite = {result["suite_name"]: result["meta"]["checkpoint_id"] for result in results}
    assert by_suite == dict.fromkeys(shown, json.loads(checkpoint.read_text())["id"])
    assert {result["meta"]["run_id"]["run_name"] for result in results} == {RUN_ID}
    rows = raw_rows(world.home, "expectations", RUN_ID)
    assert {row["data_set"]: row["success"] for row in rows} == dict.fromkeys(shown, True)
    assert (
        len({(row["data_set"], row["number"]) for row in rows})
        == len(rows)
        == sum(data_set["count"] for data_set in shown.values())
    )
    counts = {row["data_set"]: row["observed_value"] for row in rows if row["expectation"] == ROW_COUNT}
    assert counts.keys() == shown.keys()
    assert counts["cells"] == 3


@pytest.mark.slow
def test_wrong_run_names_each_failed_expectation_and_its_place(tmp_path, spark, capsys):
    world = World(tmp_path)
    wrong, crashed, shapeless, right = world.plan(("serial", 1), ("serial", 2), ("owners", 1), ("owners", 2))
    world.attempt(wrong, null_balance)
    world.attempt(crashed, exit_code=1, error=EVIL, report=None)
    world.attempt(shapeless, without_mean)
    world.attempt(right)
    code, line, errors = judged(world, spark, capsys)
    assert code == 1
    critical = [error for error in errors if ": info: " not in error]
    assert critical[0].removeprefix("expectations: ") in line
    by_set: dict[str, str] = {}
    for line in errors:
        name = line.replace("info: ", "").split(": ")[1]
        by_set[name] = by_set.get(name, "") + line + "\n"
    assert by_set.keys() == {"verdicts", "violations", "cells", "columns", "outputs_bank"}
    assert f"app bank, cell {wrong}" in by_set["violations"]
    assert "seq=7, sub=0" in by_set["violations"]
    assert f"app bank, cell {crashed}: status=failed, error={EVIL}" in by_set["cells"]
    assert f"cell {shapeless}: column=mean, declared=double, actual=none" in by_set["columns"]
    rule = "Only nullable values are null, each is in the range of its type, and seq is the number of an event"
    assert f"'{rule}': app bank, cell {wrong}: seq=7, sub=0, account=0, balance=null" in by_set["outputs_bank"]
    assert '{"column": "balance", "min_value": 1.0} fails: got 0.99' in by_set["outputs_bank"], "the column is named"
    assert f"'bank: money': app bank, cell {shapeless}" not in by_set["outputs_bank"]
    by_rule = {(row["data_set"], row["rule"]): row for row in raw_rows(world.home, "expectations", RUN_ID)}
    broken = by_rule["outputs_bank", rule]
    assert (broken["success"], broken["observed_value"], broken["severity"]) == (False, 1.0, "critical")
    assert broken["unexpected_share"] == pytest.approx(
        1 / by_rule["outputs_bank", "The cells have outputs"]["observed_value"]
    )
    site = validate.Home(tmp_path).reports / "data_docs"
    pages_need_nothing(site, {f"{cell}.html" for cell in (wrong, crashed, shapeless)})
    for theme in THEMES:
        assert violations_of_all(sorted(site.rglob("*.html")), theme) == {}


def pages_need_nothing(site: Path, cells: set[str]) -> None:
    """Every page is static, links only within the site and to these pages of cells, and shows rows as text."""
    pages, report = sorted(site.rglob("*.html")), site.parent / RUN_ID / "index.html"
    published = {
        report,
        site / "index.html",
        site.parent / QUALITY,
        *(site.parent / item.href for item in MENU),
    }  # later
    assert len(pages) == 15
    shown, linked = "", set()
    for page in pages:
        parser = Loads(page)
        assert parser.loads == [], page
        assert "url(" not in page.read_text(), page
        for link in parser.links:
            assert "://" not in link, (page, link)
            target = (page.parent / link).resolve()
            linked |= {target.name} if target.parent == report.parent else set()
            assert link.startswith("#") or target.is_file() or target in published or target.name in cells, (page, link)
        shown += parser.text
    assert cells < linked, "the rows of the cells lead to their pages"
    assert EVIL in shown
    assert "1337" not in shown
    assert {path.suffix for path in site.rglob("*") if path.is_file()} == {".html"}, "nothing that no page uses"
    index = Loads(site / "index.html")
    assert f"../{RUN_ID}/index.html" in index.links, "the way back"
    results = [link for link in index.links if link.startswith("validations/")]
    assert len(set(results)) == 7
    for page in (site / link for link in results):
        assert report in {(page.parent / link).resolve() for link in Loads(page).links}


@pytest.mark.slow
def test_invariants_show_their_rows_and_task_and_columns_are_separate(tmp_path, spark, capsys, monkeypatch):
    world = World(tmp_path)
    (cell,) = world.plan(("serial", 1))
    world.attempt(cell)
    app = bank()
    app.invariant("young", "SELECT seq, name FROM outputs WHERE seq = 4")
    for module in (validate_outputs, outputs, invariants):
        monkeypatch.setattr(module, "load", lambda name: app)
    site = validate.Home(tmp_path).reports / "data_docs"
    (site / "expectations").mkdir(parents=True)
    (site / "expectations" / "outputs_older.html").write_text("of an application that this run does not have")
    code, _, errors = judged(world, spark, capsys)
    assert code == 1
    (line,) = [line for line in errors if ": invariants: " in line]
    assert f"app bank, cell {cell}: invariant=bank: young, seq=4, sub=null, actual=" in line
    assert "<b>4</b>" in line
    text = ""
    for name in ("invariants", "outputs_bank"):
        (page,) = site.glob(f"validations/{name}/**/*.html")
        text += " ".join(Loads(page).text.split())
    for phrase in (
        "bank: money",
        "bank: young",
        '{"name":"<b>4</b>","seq":4}',
        "account",
        "4294967295",
        "as the task validate_outputs evaluated it, selected no row",
        "FROM {batch} WHERE verdict NOT IN ('equal', 'not_comparable')",  # what this expectation ran itself
        "SELECT seq, name FROM outputs WHERE seq = 4",  # what the task ran
    ):
        assert phrase in text, phrase
    assert (site / "expectations" / "outputs_older.html").exists()


def test_run_without_results_is_refused_in_one_line(tmp_path, spark):
    world = World(tmp_path)
    world.plan(("serial", 1))
    with pytest.raises(BadInput, match="validate_outputs writes it") as refused:
        validate.work(spark, world.home, RUN_ID)
    assert "\n" not in str(refused.value)
    with pytest.raises(BadInput, match="does not exist: "):
        validate.work(spark, world.home, "20260101T000000Z-00000000")
