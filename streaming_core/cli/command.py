"""The `streaming-core` command: its families of commands, and how it runs a command line.

Each family has a file. A command parses its options, calls one function of the engine, and prints the result.
`options.py` has the options that several commands share.
"""

from __future__ import annotations

import typer

from streaming_core import interruption
from streaming_core.cli import applications, benchmark, checking, planning, running
from streaming_core.cli.invocation import invoke
from streaming_core.cli.options import examples
from streaming_core.cli.output import NAME

app = typer.Typer(
    name=NAME,
    help="Run a streaming application on all cores, and check its result against a sequential oracle.\n\n"
    "Four commands make a complete check: generate a workload, run the application, compute the oracle's result, and "
    "compare the two.",
    epilog=examples(
        "streaming-core generate wc --events 10000 --out wc-events",
        "streaming-core run wc --input wc-events --threads 2 --out wc-run",
        "streaming-core oracle wc --input wc-events --out wc-oracle",
        "streaming-core diff wc-run wc-oracle",
    )
    + "\n\nExit codes:\n\n"
    "0: done.\n\n"
    "1: the run failed, or its result differs.\n\n"
    "2: the input is wrong, or the two results are not comparable.\n\n"
    "3: the command itself failed, for example on a full disk. Set LOCKSTEP_TRACEBACK=1 to see the traceback.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for family in (applications, running, checking, benchmark, planning):  # in the order of `--help`
    app.add_typer(family.app)


def main() -> int:
    """Run the command line and return the exit code."""
    with interruption.heeded():
        return invoke(app)
