"""Rules of plain English: a named actor, active voice. Those that only a reader can decide are warnings.

The rules `prose/...` are about the texts that a user reads. The same rules for docstrings and comments are
`comment/...`. Files of tests have comments only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from infra.lint.definitions import TESTS
from infra.lint.prose.figures import RESULTS
from infra.lint.prose.passages import Passage, passages
from infra.lint.violation import Violation

# The share of a file's sentences that may be passive. Fewer sentences than this say nothing about a file.
MOST_PASSIVE = 0.25
FEWEST_SENTENCES = 10

# Airflow shows the docstring of a DAG's module; `streaming-core apps` shows that of an application.
SHOWN_MODULES = re.compile(r"dags/\w+\.py$|streaming_core/apps/\w+\.py$")

BOUNDARY = re.compile(r"""(?<!e\.g)(?<!i\.e)(?<!\bvs)(?<!\bcf)(?<!\bal)[.!?]["')\]]*\s+(?=["'(\[`]*[A-Z`])""")
WHO = re.compile(
    r"\b(whoever|somebody|nobody)\b"
    r"|\bwho\s+(has|is|was|takes|gives|asks|wants|puts|reads|writes|comes|gains|loses|needs|makes|holds)\b",
    re.IGNORECASE,
)
THERE = re.compile(r"\bthere (is|are)\b", re.IGNORECASE)
CHAIN = re.compile(r"\b(of\s+(which|whom)|such\s+(that|as)\s+(do|does|has|have|is|are)|such\s+that)\b", re.IGNORECASE)
IRREGULAR = (
    "begun|bound|bought|broken|brought|built|caught|chosen|cut|dealt|done|drawn|driven|fed|felt|found|given|gone|held|"
    "hidden|kept|known|laid|led|left|lent|lost|made|meant|met|paid|put|read|run|said|seen|sent|set|shown|shut|spent|"
    "split|spread|stolen|taken|taught|thought|thrown|told|torn|understood|undone|unread|won|woken|worn|written"
)
PASSIVE = re.compile(
    r"\b(am|is|are|was|were|be|been|being)\s+((not|never|always|also|only|then|once|still|all|both|again|\w+ly)\s+)*"
    rf"((?!need|seed|speed|indeed|feed|exceed|proceed|red\b)\w+ed|{IRREGULAR})\b",
    re.IGNORECASE,
)


class Sentence(NamedTuple):
    """A text and the line of the file that it starts at."""

    line: int
    text: str


def check(root: Path, paths: Iterable[str]) -> list[Violation]:
    """Checks the prose of files, except the pages of measured results: programs compose their sentences of numbers.

    Args:
        root: The root of the checkout.
        paths: Files, relative to it.
    """
    ours = [path for path in paths if not path.startswith(RESULTS.removesuffix(".md"))]
    return [violation for path in ours for violation in _check_file(path, passages(root / path))]


def sentences(passage: Passage) -> Iterator[Sentence]:
    """Splits a passage after a full stop, a question mark or an exclamation mark that a capital follows."""
    start = 0
    for end in [*(match.end() for match in BOUNDARY.finditer(passage.text)), len(passage.text)]:
        text = passage.text[start:end].strip()
        if text:
            yield Sentence(passage.line + passage.text.count("\n", 0, start), text)
        start = end


def _check_file(path: str, texts: Iterable[Passage]) -> Iterator[Violation]:
    for audience, group in groupby(sorted(texts, key=partial(_audience, path)), partial(_audience, path)):
        if audience:
            yield from _check_texts(path, audience, sorted(group))


def _audience(path: str, passage: Passage) -> str:
    """Names the rules for a passage; there are none for the strings of tests."""
    if passage.kind == "page":
        return "prose"
    if passage.kind == "message":
        return "" if TESTS.search(path) else "prose"
    return "prose" if passage.kind == "module" and SHOWN_MODULES.match(path) else "comment"


def _check_texts(path: str, audience: str, texts: Iterable[Passage]) -> Iterator[Violation]:
    count = passive = 0
    for sentence in (sentence for passage in texts for sentence in sentences(passage)):
        count += 1
        passive += PASSIVE.search(sentence.text) is not None
        for match in WHO.finditer(sentence.text):
            yield Violation(path, sentence.line, f"{audience}/who-noun", f'"{_one_line(match)}": name the actor')
        for match in CHAIN.finditer(sentence.text):
            message = f'"{_one_line(match)}": start a new sentence with the noun it stands for'
            yield Violation(path, sentence.line, f"{audience}/chain", message)
        if audience == "prose" and (there := THERE.search(sentence.text)):
            message = f'"{_one_line(there)}": name the thing first'
            yield Violation(path, sentence.line, f"{audience}/there-is", message, is_warning=True)
    if count >= FEWEST_SENTENCES and passive > MOST_PASSIVE * count:
        message = f"{passive} of {count} sentences are passive, more than {MOST_PASSIVE:.0%}: name the actor"
        yield Violation(path, 1, f"{audience}/passive", message, is_warning=True)


def _one_line(match: re.Match[str]) -> str:
    return " ".join(match[0].split())
