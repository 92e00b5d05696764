"""The prose of a file: Markdown, page templates, descriptions in YAML, messages to users, docstrings and comments.

A message is any string of five words or more in Python or Rust: a help text, an error, a line of a log. A passage is
one paragraph, heading, list item or table cell. Code is not prose: a code block is left out, and a code span or a
placeholder counts as the single word `code`.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import yaml
from markdown_it.token import Token

from infra.lint.links import MARKDOWN

CODE = "`code`"

# Comments that a tool reads.
DIRECTIVE = re.compile(r"!|noqa|type:|ruff:|fmt:|mypy:|pragma:")
SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields|Example|Examples|Note):\s*$")
SECTION_ITEM = re.compile(r"[`*\w.]+( \(.*?\))?: ")
# Keyword arguments that a command, a form or a schema shows to its user, however short they are.
HELP = {"description", "epilog", "help", "short_help"}
# A string of fewer words is a name, a format or a fragment. Of several lines, it is another language: SQL, HTML, CSS.
FEWEST_WORDS = 5
OTHER_LANGUAGE = re.compile(r"^\s*<|^\s*(WITH|INSERT|CREATE)\b|\b(SELECT|FROM)\b")
RUST_COMMENT = re.compile(r"\s*(//[/!]?) ?(.*)")
RUST_STRING = re.compile(r'(?<![\'\\])"((?:[^"\\]|\\.)*)"', re.DOTALL)
RUST_TESTS = re.compile(r"^#\[cfg\((?:all\()?test\b", re.MULTILINE)
# dbt takes the descriptions of columns from blocks of Markdown between two such tags.
DBT_TAG = re.compile(r"^\{% (?:end)?docs\b.*%\}$", re.MULTILINE)
JINJA_BRANCH = re.compile(r"\{%-?\s*(?:else|elif)\b.*?%\}", re.DOTALL)
JINJA_VALUE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
JINJA_OTHER = re.compile(r"\{[%#].*?[%#]\}", re.DOTALL)
INLINE_TAGS = {"a", "abbr", "b", "br", "code", "em", "i", "kbd", "small", "span", "strong", "sub", "sup", "time", "wbr"}
UNREAD_TAGS = {"script", "style", "pre", "svg"}


class Passage(NamedTuple):
    """A text, the line of the file that it starts at, and its kind; its line breaks are those of the file.

    A kind is "page" (Markdown, templates, descriptions), "message" (strings of a program), "module" (the docstring of
    a module) or "comment" (other docstrings, and comments).
    """

    line: int
    text: str
    kind: str = "page"


def passages(path: Path) -> list[Passage]:
    """Returns the passages of a file in the order of their lines; none for a kind of file that holds no prose."""
    read = READERS.get(path.suffix)
    return sorted(read(path.read_text(encoding="utf-8"))) if read else []


def _page(text: str) -> Iterator[Passage]:
    return _markdown(DBT_TAG.sub("", text))


def _markdown(text: str, first_line: int = 1, kind: str = "page") -> Iterator[Passage]:
    line = 0
    for token in MARKDOWN.parse(text):
        line = token.map[0] if token.map else line
        if token.type == "inline":
            yield Passage(first_line + line, "".join(_inline(child) for child in token.children or ()), kind)


def _inline(token: Token) -> str:
    match token.type:
        case "text":
            return token.content
        case "softbreak" | "hardbreak":
            return "\n"
        case "code_inline":
            # A code span that is broken over lines keeps the count of lines right.
            return CODE + "\n" * token.content.count("\n")
    return ""


def _python(text: str) -> Iterator[Passage]:
    tree = ast.parse(text)
    # Messages of a help text or an error, however short they are.
    short: set[ast.expr] = set()
    # Docstrings are no messages; the parts of an f-string are not messages by themselves.
    seen: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstring(node)
        elif isinstance(node, ast.keyword) and node.arg in HELP:
            short.add(node.value)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            short.update(node.exc.args)
        elif isinstance(node, ast.Expr):
            seen.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            seen.update(ast.walk(node))
            seen.discard(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node not in seen:
            yield from _message(node, 1 if node in short else FEWEST_WORDS)
    yield from _python_comments(text)


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Passage]:
    raw = ast.get_docstring(node, clean=False)
    if raw is not None:
        blank_lines = raw[: len(raw) - len(raw.lstrip())].count("\n")
        kind = "module" if isinstance(node, ast.Module) else "comment"
        yield from _markdown(_without_sections(inspect.cleandoc(raw)), node.body[0].lineno + blank_lines, kind)


def _without_sections(docstring: str) -> str:
    """Turns the entries of Google sections into list items, and blanks examples of a Python prompt."""
    lines = []
    in_section = in_example = False
    for line in docstring.splitlines():
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if in_example:
            lines.append("")
        elif SECTION.match(line):
            in_section = True
            lines.append("")
        elif in_section and line.startswith("    "):
            lines.append(("- " if SECTION_ITEM.match(line[4:]) else "  ") + line[4:].strip())
        else:
            in_section = in_section and not line.strip()
            lines.append(line)
    return "\n".join(lines)


def _message(node: ast.Constant | ast.JoinedStr, fewest_words: int) -> Iterator[Passage]:
    if isinstance(node, ast.Constant):
        text = node.value if isinstance(node.value, str) else ""
    else:
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else CODE for part in node.values)
    if len(text.split()) >= fewest_words and "\n" not in text.strip() and not OTHER_LANGUAGE.search(text):
        yield Passage(node.lineno, text, "message")


def _python_comments(text: str) -> Iterator[Passage]:
    lines = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        comment = token.string.lstrip("#").removeprefix(" ")
        if token.type == tokenize.COMMENT and not DIRECTIVE.match(comment.lstrip()):
            # A comment behind code stands alone.
            column = token.start[1] if not token.line[: token.start[1]].strip() else -token.start[0]
            lines.append((token.start[0], column, comment))
    return _comments(lines)


def _rust(text: str) -> Iterator[Passage]:
    lines = []
    code = []
    for number, line in enumerate(text.splitlines(), 1):
        if comment := RUST_COMMENT.match(line):
            lines.append((number, comment[1], comment[2]))
        code.append("" if comment else line)
    program = "\n".join(code)
    if tests := RUST_TESTS.search(program):
        program = program[: tests.start()]
    for string in RUST_STRING.finditer(program):
        message = re.sub(r"\{.*?\}", CODE, re.sub(r"\\\n\s*", "", string[1]))
        if len(message.split()) >= FEWEST_WORDS and "\n" not in message:
            yield Passage(program.count("\n", 0, string.start()) + 1, message, "message")
    yield from _comments(lines)


def _comments(lines: Iterable[tuple[int, object, str]]) -> Iterator[Passage]:
    """Joins comment lines, each a number, a kind and a text, where they follow each other and are of one kind."""
    block: list[str] = []
    last: tuple[int, object] | None = None
    for number, kind, text in lines:
        if last != (number - 1, kind) and last is not None:
            yield from _markdown("\n".join(block), last[0] - len(block) + 1, "comment")
            block = []
        block.append(text)
        last = number, kind
    if last is not None:
        yield from _markdown("\n".join(block), last[0] - len(block) + 1, "comment")


def _template(text: str) -> Iterator[Passage]:
    def blank(match: re.Match[str], word: str = "") -> str:
        return word + "\n" * match[0].count("\n")

    # Of two branches only one is shown, so they are two passages.
    text = JINJA_BRANCH.sub(lambda match: blank(match, "<hr>"), text)
    text = JINJA_VALUE.sub(lambda match: blank(match, CODE), text)
    reader = _TemplateReader()
    reader.feed(JINJA_OTHER.sub(blank, text))
    reader.close()
    reader.end_passage()
    return iter(reader.passages)


class _TemplateReader(HTMLParser):
    """Collects the text between the tags of blocks."""

    def __init__(self) -> None:
        """Starts without text."""
        super().__init__()
        self.passages: list[Passage] = []
        self._text = ""
        self._line = 1
        self._unread = 0
        self._in_code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Ends the passage at the start of a block."""
        if tag not in INLINE_TAGS:
            self.end_passage()
        self._unread += tag in UNREAD_TAGS
        self._in_code += tag == "code"

    def handle_endtag(self, tag: str) -> None:
        """Ends the passage at the end of a block."""
        if tag not in INLINE_TAGS:
            self.end_passage()
        self._unread -= tag in UNREAD_TAGS
        self._in_code -= tag == "code"

    def handle_data(self, data: str) -> None:
        """Adds to the passage."""
        if self._unread:
            return
        if not self._text.strip():
            self._text = ""
            self._line = self.getpos()[0] + data[: len(data) - len(data.lstrip())].count("\n")
            data = data.lstrip()
        self._text += CODE if self._in_code else data

    def end_passage(self) -> None:
        """Keeps the passage if it has any text."""
        if self._text.strip():
            self.passages.append(Passage(self._line, self._text.rstrip()))
        self._text = ""


def _yaml(text: str) -> Iterator[Passage]:
    nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                nodes.append(value)
                if key.value == "description" and isinstance(value, yaml.ScalarNode):
                    yield from _markdown(JINJA_VALUE.sub(CODE, value.value), value.start_mark.line + 1)


READERS: dict[str, Callable[[str], Iterator[Passage]]] = {
    ".md": _page,
    ".py": _python,
    ".pyi": _python,
    ".rs": _rust,
    ".html": _template,
    ".j2": _template,
    ".yml": _yaml,
    ".yaml": _yaml,
}
