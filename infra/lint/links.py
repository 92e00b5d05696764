"""Links of Markdown files: a relative one leads to a file and a heading of the checkout, any other is a valid URL.

No link is opened over the network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from infra.lint.violation import Violation

MARKDOWN = MarkdownIt("commonmark").enable("table")
HTML_LINK = re.compile(r"""\b(?:href|src|srcset)\s*=\s*["']([^"']*)["']""")
HTML_ANCHOR = re.compile(r"""\b(?:id|name)\s*=\s*["']([^"']*)["']""")


def check(root: Path, paths: Iterable[str]) -> list[Violation]:
    """Checks the links of the Markdown files among files.

    Args:
        root: The root of the checkout.
        paths: Files, relative to it.
    """
    known = cache(anchors)
    broken = []
    for path in paths:
        if path.endswith(".md"):
            for line, target in _links(_parse(root / path)):
                if problem := _problem(root, root / path, target, known):
                    broken.append(Violation(path, line, "link", f"{target}: {problem}"))
    return broken


def anchors(path: Path) -> frozenset[str]:
    """Returns the anchors of a Markdown file: those of its headings, as GitHub makes them, and those in its HTML."""
    known: set[str] = set()
    tokens = _parse(path)
    for heading, token in pairwise(tokens):
        if heading.type == "heading_open":
            text = "".join(child.content for child in token.children or () if child.type in ("text", "code_inline"))
            slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
            number = 0
            while (anchor := f"{slug}-{number}" if number else slug) in known:
                number += 1
            known.add(anchor)
    for token in tokens:
        for part in (token, *(token.children or ())):
            if part.type in ("html_block", "html_inline"):
                known |= set(HTML_ANCHOR.findall(part.content))
    return frozenset(known)


def _parse(path: Path) -> list[Token]:
    return MARKDOWN.parse(path.read_text(encoding="utf-8"))


def _links(tokens: Iterable[Token]) -> Iterator[tuple[int, str]]:
    line = 0
    for token in tokens:
        line = token.map[0] if token.map else line
        if token.type == "html_block":
            yield from ((line + 1, target) for target in HTML_LINK.findall(token.content))
        offset = 0
        for child in token.children or ():
            offset += child.type in ("softbreak", "hardbreak")
            if child.type == "html_inline":
                yield from ((line + offset + 1, target) for target in HTML_LINK.findall(child.content))
            elif target := child.attrGet("href") or child.attrGet("src"):
                yield line + offset + 1, str(target)


def _problem(root: Path, source: Path, target: str, known: Callable[[Path], frozenset[str]]) -> str | None:
    try:
        url = urlsplit(target)
    except ValueError as error:
        return f"not a valid URL: {error}"
    if url.scheme or url.netloc:
        if url.scheme == "mailto":
            return None if "@" in url.path else "no mail address"
        valid = url.scheme in ("http", "https") and re.fullmatch(r"(localhost|[\w-]+(\.[\w-]+)+)", url.hostname or "")
        return None if valid else "not a valid URL: write https://host/path"
    file = source
    if url.path:
        folder = root if url.path.startswith("/") else source.parent
        file = (folder / unquote(url.path).lstrip("/")).resolve()
        if not file.is_relative_to(root.resolve()) or not file.exists():
            return "no such file in the checkout"
    if url.fragment and file.suffix == ".md" and unquote(url.fragment) not in known(file):
        return f"{file.name} has no such heading"
    return None
