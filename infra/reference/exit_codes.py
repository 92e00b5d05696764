"""The page of exit codes, from streaming_core/exit_codes.py."""

from __future__ import annotations

from infra.reference.markdown import block, code, next_pages, paragraph, table
from infra.reference.markdown import page as whole_page
from streaming_core.exit_codes import MEANINGS, OF_COMMANDS, ExitCode


def page() -> str:
    """The text of the page."""
    meanings = [(_shown(number), meaning) for number, meaning in MEANINGS.items()]
    of_commands = [
        (code(command), _shown(number), meaning)
        for command, codes in OF_COMMANDS.items()
        for number, meaning in codes.items()
    ]
    return whole_page(
        "`streaming_core/exit_codes.py`",
        "Exit codes",
        paragraph(
            "This page tells what the exit codes of `streaming-core` and `lockstep` mean, so that scripts can act on "
            "them. Code 1 always says something about a run or a result; code 3 never does."
        ),
        table(("code", "meaning"), meanings),
        paragraph(
            "With a code other than 0, a command prints one line on stderr that says what is wrong, where, and what "
            "to do. A failed command leaves nothing half-written: you can repeat it."
        ),
        "## Codes of single commands",
        paragraph("For these commands, a code has a more exact meaning. For all others, the table above is complete."),
        table(("command", "code", "meaning"), of_commands),
        "## Example",
        block(
            [
                "$ lockstep report; echo $?",
                "...",
                "1",
            ],
        ),
        next_pages(
            "[Runbook](../runbook.md): what to do when a run is red.",
            "[Command line](command-line.md): the commands and their options.",
            "[Configuration](configuration.md): `LOCKSTEP_TRACEBACK` and other settings.",
        ),
    )


def _shown(number: ExitCode) -> str:
    return "128 + n" if number is ExitCode.SIGNAL else str(int(number))
