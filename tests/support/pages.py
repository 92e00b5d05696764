"""Documentation pages that tests follow: their blocks of commands and the output that they promise."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[2] / "docs"
TUTORIAL = DOCS / "tutorial.md"
WINDOWS = DOCS / "how-to" / "write-windows.md"
RESULTS = DOCS / "how-to" / "read-results-as-data.md"
HOW_TO = sorted((DOCS / "how-to").glob("*.md"))

COMMANDS = ("sh", "console")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Step(NamedTuple):
    """A block of commands, and the lines of the ```text blocks between it and the next block of commands."""

    language: str
    command: str
    expected: list[str]


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of a language, in the order of the page."""
    return [text for name, text in BLOCK.findall(page.read_text()) if name == language]


def steps(page: Path, languages: Iterable[str] = ("sh",)) -> list[Step]:
    """The commands of a page in blocks of these languages, in its order, each with the output that the page promises.

    The `$ ` before the commands of a ```console block is left out.
    """
    steps_of_page: list[Step] = []
    for language, text in BLOCK.findall(page.read_text()):
        if language in COMMANDS:
            steps_of_page.append(Step(language, re.sub(r"^\$ ", "", text, flags=re.MULTILINE), []))
        elif language == "text" and steps_of_page:
            steps_of_page[-1].expected.extend(text.splitlines())
    return [step for step in steps_of_page if step.language in languages]


def application(page: Path, name: str) -> str:
    """The source of the application that the commands of a page write into a checkout."""
    (source,) = re.findall(
        rf"^cat > streaming_core/apps/{name}\.py <<'END'\n(.*?)^END$", page.read_text(), re.MULTILINE | re.DOTALL
    )
    return source


def missing(expected: list[str], output: str) -> str | None:
    """The first expected line that the output lacks after the last match.

    A `...` in a line stands for any text. A line `...` stands for any lines. The number of spaces does not count.
    """
    lines = iter(" ".join(line.split()) for line in output.splitlines())
    for wanted in (" ".join(line.split()) for line in expected):
        if wanted and wanted != "...":
            pattern = re.compile(".*".join(re.escape(part.strip()) for part in wanted.split("...")))
            if not any(pattern.fullmatch(line) for line in lines):
                return wanted
    return None
