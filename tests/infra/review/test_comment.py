"""The comment of a review: what it says, and that no text of a user leaves its cell."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from infra.review.comment import LONGEST, MARKER, code, comment, table
from infra.review.review import Review
from tests.infra.review.conftest import FAULT, changes
from tests.reports import past_runs


class Cells(HTMLParser):
    """The text of each cell of the tables of a page, and the tags of the page."""

    def __init__(self, markdown: str):
        super().__init__()
        self.cells, self.tags, self._is_inside = [], set(), False
        self.feed(MarkdownIt("commonmark").enable("table").render(markdown))

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "td":
            self.cells.append("")
            self._is_inside = True

    def handle_endtag(self, tag):
        self._is_inside &= tag != "td"

    def handle_data(self, data):
        if self._is_inside:
            self.cells[-1] += data


def test_comment_has_the_outcome_the_differences_and_the_speeds(review):
    text = comment(review, "https://example.org/pages/")
    assert text.startswith(f"{MARKER}\n## \N{CROSS MARK} Lockstep: red\n")
    cells = Cells(text).cells
    assert cells[:2] == ["mine", FAULT]
    assert cells[cells.index("sl/owners/t2") + 1] == "differs from the oracle"
    assert cells[cells.index("one | more <script>") - 2].startswith("find wc/")
    assert "4.2 % slower" in cells
    assert f"(https://example.org/pages/{past_runs.LAST}/index.html)" in text
    assert "https" not in comment(review)


def test_change_of_no_application_is_green():
    text = comment(Review(changes(), None))
    assert "Lockstep: green" in text
    assert "none" in text


@given(st.text(max_size=LONGEST + 20))
def test_any_text_stays_one_cell(text):
    line = " ".join(text.split()).replace("\0", "\ufffd")
    line = line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"
    page = Cells("\n".join(table(["one", "two"], [[code(text), "x"]])))
    assert page.cells == [line.replace("\\|", "\\ |"), "x"]
    assert page.tags <= {"table", "thead", "tbody", "tr", "th", "td", "code"}
