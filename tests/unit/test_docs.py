"""The how-to pages have steps, and tests that follow them find what a page promises."""

from __future__ import annotations

import pytest

from tests import pages


@pytest.mark.parametrize("page", pages.HOW_TO, ids=lambda page: page.stem)
def test_how_to_page_has_commands(page):
    assert pages.blocks(page, "sh") or pages.blocks(page, "console")


@pytest.mark.parametrize("page", pages.HOW_TO, ids=lambda page: page.stem)
def test_how_to_page_ends_with_what_to_do_next(page):
    *_, last = [line for line in page.read_text().splitlines() if line.startswith("## ")]
    assert last == "## Next"


def test_expected_lines_occur_in_their_order():
    output = "one  1\ntwo 22 of 3\nthree\n"
    assert pages.missing(["one 1", "...", "three"], output) is None
    assert pages.missing(["two ... of 3"], output) is None
    assert pages.missing(["three", "one 1"], output) == "one 1"
    assert pages.missing(["two of 3"], output) == "two of 3"
