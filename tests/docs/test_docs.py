"""The how-to pages have commands, and their tests check the output that a page promises."""

from __future__ import annotations

import re

import pytest

from infra.checkout import ROOT
from streaming_core.engines import environment
from tests.support import pages

RUNBOOK = (pages.DOCS / "runbook.md").read_text()
# The sections of the runbook with tables that start with an exact message.
MESSAGES = ("The night is late", "Airflow does not start")
# It says what works elsewhere and what does not, and which page to follow.
WITHOUT_COMMANDS = {"deploy-on-managed-airflow"}
SOURCES = [
    path
    for folder in ("dags", "infra")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in ("", ".py") and environment.FOLDER not in path.parts
]


@pytest.mark.parametrize(
    "page", [page for page in pages.HOW_TO if page.stem not in WITHOUT_COMMANDS], ids=lambda page: page.stem
)
def test_how_to_page_has_commands(page):
    assert pages.blocks(page, "sh") or pages.blocks(page, "console")


@pytest.mark.parametrize("page", pages.HOW_TO, ids=lambda page: page.stem)
def test_how_to_page_ends_with_the_next_step(page):
    *_, last = [line for line in page.read_text().splitlines() if line.startswith("## ")]
    assert last == "## Next"


def test_clicks_per_user_and_minute_take_at_most_fifteen_lines_and_the_readme_shows_them():
    application = pages.application(pages.WINDOWS, "clicks")
    assert len([line for line in application.splitlines() if line]) <= 15
    shown = pages.blocks(ROOT / "README.md", "python")[1]
    assert shown in application


def test_expected_lines_occur_in_their_order():
    output = "one  1\ntwo 22 of 3\nthree\n"
    assert pages.missing(["one 1", "...", "three"], output) is None
    assert pages.missing(["two ... of 3"], output) is None
    assert pages.missing(["three", "one 1"], output) == "one 1"
    assert pages.missing(["two of 3"], output) == "two of 3"


@pytest.mark.parametrize("title", MESSAGES)
def test_messages_of_the_runbook_occur_in_the_code(title):
    program = "\n".join(path.read_text() for path in SOURCES if path.is_file())
    (section,) = re.findall(rf"^## {title}$(.*?)(?=^## )", RUNBOOK, re.MULTILINE | re.DOTALL)
    messages = re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)
    assert messages
    parts = [part.strip(" ,:") for message in messages for part in re.split(r"\.\.\.|;", message)]
    assert [part for part in parts if part not in program] == []
