"""Every command that a page shows exists, and takes the words behind it. No command runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from infra.checkout import ROOT
from infra.cli.command import app as lockstep
from streaming_core.cli.command import app as streaming_core
from streaming_core.errors import BadInput
from tests.support import pages

NAMES = {"lockstep": lockstep, "streaming-core": streaming_core}
PAGES = [*sorted(pages.DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]
END = re.compile(r"^(\||\|\||&&|;|&|[0-9]?>.*|<.*|\))$")  # of a command's words in a line of shell
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
TARGETS |= set(re.findall(r"^([\w-]+):", (ROOT / "infra/release/targets.mk").read_text(), re.MULTILINE))


def inert(command: Any) -> Any:
    """The command, which parses its words and does nothing."""
    for below in getattr(command, "commands", {}).values():
        inert(below)
    if not hasattr(command, "commands"):
        command.callback = lambda **_: None
    return command


COMMANDS = {name: inert(typer.main.get_command(app)) for name, app in NAMES.items()}


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each command of Lockstep and of make in the blocks of a page."""
    for step in pages.steps(page, pages.COMMANDS):
        lines = re.sub(r"<<'(\w+)'.*?^\1$", "", step.command, flags=re.MULTILINE | re.DOTALL)
        for line in re.sub(r"\\\n", " ", lines).splitlines():
            if re.search(r"\b(lockstep|streaming-core|make) ", line) and not line.startswith("#"):
                try:
                    yield from of_line(line)
                except ValueError:  # a quoted text that spans lines: no command of ours
                    continue


def of_line(line: str) -> Iterator[list[str]]:
    """The words of each command of Lockstep and of make in a line of shell. `...` stands for other words."""
    words: list[str] = []
    for word in [*shlex.split(line.replace(";", " ; "), comments=True), ";"]:
        if not END.match(word):
            words += [word] if words or not re.match(r"\w+=", word) else []
            continue
        if words and words[0].rpartition("/")[2] in ("make", *NAMES):
            yield [words[0].rpartition("/")[2], *(word for word in words[1:] if word != "...")]
        words = []


def options_of(words: list[str]) -> set[str]:
    """The options of the command that these words begin with."""
    command = COMMANDS[words[0]]
    for word in words[1:]:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
    return {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_command_line_accepts_every_command_of_the_page(page):
    wrong = []
    for name, *words in commands(page):
        if name == "make":
            targets = [word for word in words if re.fullmatch(r"[a-z][\w-]*", word)]
            wrong += [f"make {target}: no such target" for target in targets if target not in TARGETS]
            continue
        try:
            COMMANDS[name](words, standalone_mode=False)
        except (BadInput, typer.BadParameter.__base__) as error:
            wrong.append(f"{name} {shlex.join(words)}: {error}")
    for text in re.findall(r"`(?:\.venv/bin/)?((?:lockstep|streaming-core) [^`]*)`", page.read_text()):
        if not text.startswith("lockstep airflow "):  # options of Airflow
            known = options_of(text.split())
            wrong += [f"{text}: no {option}" for option in re.findall(r"--[a-z][a-z-]*", text) if option not in known]
    assert wrong == []


def test_an_option_that_a_command_lacks_is_found():
    assert "--plans" in options_of(["lockstep", "run"])
    assert "--plan" not in options_of(["lockstep", "run"])
    assert list(of_line("X=1 .venv/bin/lockstep run --plan auto > out")) == [["lockstep", "run", "--plan", "auto"]]
    with pytest.raises(typer.BadParameter.__base__, match="--plan"):
        COMMANDS["lockstep"](["run", "--plan", "auto"], standalone_mode=False)
