"""Measured figures in Markdown: only docs/benchmarks.md and its details may have any; committed results make them.

A figure is a number with the unit of a rate or of a cost per event. The numbers in a table of the benchmark are figures
too. Text and code blocks count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from infra.lint.violation import Violation

RESULTS = "docs/benchmarks.md"
NUMBER = r"\d[\d.,]*"
THINGS = r"(events?|lines?|rows?|words?|tuples?|comparisons?)"
FIGURE = re.compile(
    rf"{NUMBER}\s*(k|M|thousand|million)?\s*{THINGS}/s\b"
    rf"|{NUMBER}\s*(GB|MB|GiB|MiB)/s\b"
    rf"|{NUMBER}\s*(ns|nJ|nanoseconds?)\s*(/|an? |per )\s*{THINGS}"
    rf"|{NUMBER}\s*(times|x) the (compiled |sequential )*loop\b"
)
TABLE = re.compile(r"\bx loop\b.*\bresult\b")
RATIO = re.compile(r"\b\d+\.\d+\b")
UNIT = "1.00"  # the ratio of the loop to itself


def check(root: Path, paths: Iterable[str]) -> list[Violation]:
    """Checks the Markdown files among files.

    Args:
        root: The root of the checkout.
        paths: Files, relative to it.
    """
    return [
        Violation(path, line, "figure", f"{figure!r}: only {RESULTS} has measured figures; link to it instead")
        for path in paths
        if path.endswith(".md") and not path.startswith(RESULTS.removesuffix(".md"))
        for line, figure in figures((root / path).read_text(encoding="utf-8"))
    ]


def figures(text: str) -> Iterator[tuple[int, str]]:
    """Yields the line and text of each figure."""
    in_table = False
    for number, line in enumerate(text.splitlines(), 1):
        numbers = [match[0] for match in FIGURE.finditer(line)]
        if in_table:
            numbers += [ratio for ratio in RATIO.findall(line) if ratio != UNIT]
        yield from ((number, figure) for figure in numbers)
        in_table = bool(line.strip()) and (in_table or bool(TABLE.search(line)))
