"""Broken links of Markdown are found without a network."""

import pytest

from infra.lint import links


@pytest.fixture
def root(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "guide.md").write_text(
        "# The `run` command: part 1\n\n## Twice\n\n## Twice\n\n<a id='by-hand'></a>\n"
    )
    (tmp_path / "docs" / "a picture.png").write_bytes(b"")
    return tmp_path


def check(root, text):
    (root / "docs" / "page.md").write_text(text)
    return [(violation.line, violation.message) for violation in links.check(root, ["docs/page.md", "docs/guide.md"])]


TARGETS = ["guide.md", "../docs/guide.md#the-run-command-part-1", "/docs/guide.md#twice", "guide.md#twice-1"]
TARGETS += ["guide.md#by-hand", "#here", "a%20picture.png", "https://example.org/a#b", "mailto:someone@example.org"]


@pytest.mark.parametrize("target", TARGETS)
def test_valid_link_passes(root, target):
    assert check(root, f"# Here\n\nSee [this]({target}) and ![that]({target}).\n") == []


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("missing.md", "no such file in the checkout"),
        ("../../outside.md", "no such file in the checkout"),
        ("guide.md#twice-2", "guide.md has no such heading"),
        ("#nowhere", "page.md has no such heading"),
        ("https://", "not a valid URL: write https://host/path"),
        ("htp://example.org", "not a valid URL: write https://host/path"),
        ("mailto:someone", "no mail address"),
    ],
)
def test_broken_link_is_reported_at_its_line(root, target, problem):
    assert check(root, f"# Here\n\nSee\n[this](<{target}>).\n") == [(4, f"{target}: {problem}")]


def test_links_of_references_and_html_are_checked(root):
    text = '[one]\n\n<img src="two.png">\n\nText <a href="three.md">x</a>\n\n`[code](four.md)`\n\n[one]: one.md\n'
    assert [line for line, _ in check(root, text)] == [1, 3, 5]
    assert check(root, '<a href="https://[::1">x</a>\n') == [(1, "https://[::1: not a valid URL: Invalid IPv6 URL")]
