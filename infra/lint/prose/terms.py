"""Terms of the glossary that a page uses before it says what they mean.

A page explains a term where it writes the term in italics, as in "a *cell* is ...", or links it, in the section of the
first use or before. The rule is about the first table of docs/glossary.md. The other entries are ordinary words, whose
meaning a program cannot see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

from markdown_it.token import Token

from infra.lint.links import MARKDOWN
from infra.lint.violation import Violation

GLOSSARY = "docs/glossary.md"
# Pages that are read from the top. Reference pages are looked up, and the index has only links.
PAGES = re.compile(r"docs/(how-to/[\w-]+|explanation/[\w-]+|tutorial|runbook)\.md$")
END = Token("end", "", 0)
ENTRY = re.compile(r'^\| <a id="([\w-]+)"></a>.*?([\w ]+?) \|')


class Text(NamedTuple):
    """A piece of prose: its line, its section, its words, and whether they are in italics or a link."""

    line: int
    section: int
    words: str
    is_explanation: bool


def check(root: Path, paths: Iterable[str]) -> list[Violation]:
    """Checks the pages among files; none without a glossary.

    Args:
        root: The root of the checkout.
        paths: Files, relative to it.
    """
    if not (root / GLOSSARY).is_file():
        return []
    terms = _terms(root / GLOSSARY)
    return [violation for path in paths if PAGES.match(path) for violation in _check_page(root, path, terms)]


def _terms(glossary: Path) -> dict[str, re.Pattern[str]]:
    """Returns the anchor of each term of the first table, and a pattern of the term, in one or several."""
    lines = iter(glossary.read_text(encoding="utf-8").splitlines())
    table = takewhile(lambda line: line.startswith("|"), (line for line in lines if line))
    next((line for line in lines if line.startswith("## ")), None)
    entries = [entry for line in table if (entry := ENTRY.match(line))]
    return {entry[1]: re.compile(rf"\b{_plural(entry[2])}\b", re.IGNORECASE) for entry in entries}


def _plural(term: str) -> str:
    words = re.escape(term).replace(r"\ ", r"\s+")
    if term.endswith("y"):
        return f"{words[:-1]}(y|ies)"
    return f"{words[:-1]}(x|ces)" if term.endswith("ix") else f"{words}s?"


def _check_page(root: Path, path: str, terms: dict[str, re.Pattern[str]]) -> Iterator[Violation]:
    texts = list(_texts(MARKDOWN.parse((root / path).read_text(encoding="utf-8"))))
    for anchor, term in terms.items():
        uses = [(text, word) for text in texts if (word := term.search(text.words))]
        if uses and not any(text.is_explanation and text.section <= uses[0][0].section for text, _ in uses):
            text, word = uses[0]
            line = text.line + text.words.count("\n", 0, word.start())
            message = f'"{" ".join(word[0].split())}" comes before its explanation: '
            message += f"link glossary.md#{anchor}, or define it here"
            yield Violation(path, line, "prose/term", message, is_warning=True)


def _texts(tokens: Iterable[Token]) -> Iterator[Text]:
    """Returns the prose of a page. Code, headings and bold labels of buttons use no term."""
    line = section = 0
    for before, token in pairwise(tokens):
        line = token.map[0] if token.map else line
        if before.type == "heading_open":
            section += 1
            continue
        offset, words, marks = 0, "", list[str]()
        for child in [*(token.children or ()), END]:
            if child.type == "text" and "strong" not in marks:
                words += child.content
            elif child.type in ("softbreak", "hardbreak"):
                words += "\n"
            else:
                yield Text(line + offset + 1, section, words, bool({"em", "a"} & set(marks)))
                offset, words = offset + words.count("\n"), ""
            if child.nesting > 0:
                marks.append(child.tag)
            elif child.nesting < 0:
                marks.pop()
