"""The page of the commands, from the declarations of `streaming-core` and `lockstep`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from infra.cli import command as lockstep
from infra.reference.markdown import block, code, codes, next_pages, paragraph, table, text
from infra.reference.markdown import page as whole_page
from streaming_core.cli import command as streaming_core
from streaming_core.errors import range_text
from streaming_core.regression.project import named

PROGRAMS = (streaming_core.app, lockstep.app)
EXAMPLES = re.compile(r"^ *Examples?:\n((?: +.*\n?|\n)+)", re.MULTILINE)
METAVARS = {int: "N", float: "X", Path: "PATH"}
OPTIONAL = re.compile(r"\s*\[default: .*?\]|\s*\[required\]")


def page() -> str:
    """The text of the page."""
    sections = [part for program in PROGRAMS for part in _program(program)]
    return whole_page(
        "`streaming_core/cli` and `infra/cli`",
        "Command line",
        paragraph(
            "This page lists every command of `streaming-core` and `lockstep`, with its arguments and options. "
            "`streaming-core` works on one application and one run. `lockstep` works on regressions and their history."
        ),
        paragraph(
            "`make setup` installs both into `.venv/bin`. Every command also prints its options with `--help`, and "
            "exits with a code that scripts can use ([exit codes](exit-codes.md)). Settings come from the environment "
            "and `.env` ([configuration](configuration.md))."
        ),
        *sections,
        next_pages(
            "[Run one application](../how-to/run-one-application.md): the commands of `streaming-core` in order.",
            "[Requests](requests.md): the fields behind the options of `lockstep run`.",
            "[Executors and strategies](strategies.md): the options behind those of `streaming-core run`.",
        ),
    )


def commands(program: typer.Typer) -> Iterator[tuple[str, Any]]:
    """The commands of a program, those of its groups too: names as a user types them, and click's commands."""
    yield from _commands(program.info.name or "", typer.main.get_command(program))


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for key, inner in command.commands.items():
            yield from _commands(f"{name} {key}", inner)
    else:
        yield name, command


def _program(program: typer.Typer) -> list[str]:
    name = program.info.name or ""
    by_name = dict(commands(program))
    rows = [(f"[{full}](#{full.replace(' ', '-')})", text(_help(command)[0])) for full, command in by_name.items()]
    parts = [
        f"## {name}",
        paragraph(text(inspect.cleandoc(program.info.help or ""))),
        table(("command", "what it does"), rows),
    ]
    return parts + [part for full, command in by_name.items() for part in _section(full, command)]


def _section(name: str, command: Any) -> list[str]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [
        option for option in command.params if option.param_type_name == "option" and "--help" not in option.opts
    ]
    *paragraphs, examples = _help(command)
    words = [_metavar(argument) + ("..." if argument.nargs < 0 else "") for argument in arguments]
    words = [word if argument.required else f"[{word}]" for word, argument in zip(words, arguments, strict=True)]
    words += [f"{option.opts[0]} {_metavar(option)}" for option in options if option.required]
    words += ["[options]"] if any(not option.required for option in options) else []
    parts = [
        f"### {name}",
        *(paragraph(text(passage)) for passage in paragraphs),
        block([" ".join([name, *words])], "text"),
    ]
    parts.append(
        table(
            ("argument", "description"), [(code(_metavar(argument)), text(_text(argument))) for argument in arguments]
        )
        if arguments
        else ""
    )
    rows = [(*_option(option), text(_text(option))) for option in options]
    parts.append(table(("option", "value", "default", "description"), rows) if options else "")
    return [*parts, *([block(examples.splitlines())] if examples else [])]


def _help(command: Any) -> list[str]:
    """The paragraphs of a command's help, the examples as the last one; empty without examples."""
    help_text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    examples = EXAMPLES.search(help_text)
    prose = help_text.replace(examples[0], "") if examples else help_text
    # The commands of `streaming-core` have their examples in the epilog.
    epilog = [line for line in (command.epilog or "").splitlines() if line and line != "Examples:"]
    return [
        *filter(None, (part.strip() for part in prose.split("\n\n"))),
        inspect.cleandoc(examples[1]) if examples else "\n".join(epilog),
    ]


def _option(option: Any) -> tuple[str, str, str]:
    value = "" if option.is_flag else code(_metavar(option))
    if option.min is not None or option.max is not None:
        value += f" {range_text(option.min, option.max)}"
    if option.required:
        default = "required"
    elif option.default is None or option.is_flag:
        default = ""
    else:
        default = code(option.default)
    return codes(option.opts), value + (", repeatable" if option.multiple else ""), default


def _metavar(parameter: Any) -> str:
    if parameter.metavar:
        return parameter.metavar
    if parameter.param_type_name == "argument":
        return parameter.name.upper()
    return METAVARS.get(parameter.type_descriptor.annotation, "TEXT")


def _text(parameter: Any) -> str:
    # A project shows the prefix of its connections in its forms, and this page is the same in all projects.
    return OPTIONAL.sub("", parameter.help or "").replace(named("local"), "local")
