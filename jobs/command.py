"""The command line of a stage that needs no Spark: `--run RUN_ID [--home DIR]`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from streaming_core.errors import BadInput
from streaming_core.regression.home import RUN_ID, Home


def run_stage(work: Callable[[Home, str], str], doc: str, argv: Sequence[str] | None = None) -> int:
    """Parse the command line, call `work(home, run_id)` and print the line that it returns.

    Args:
        work: The stage. Its line says what it did.
        doc: Docstring of the stage's module, for the help.
        argv: The command line; None means that of the process.

    Returns:
        The exit code 0.

    Raises:
        BadInput: The run does not exist.
    """
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    parser.add_argument("--run", required=True, metavar="RUN_ID", help="the run to work on")
    parser.add_argument(
        "--home", metavar="DIR", help="LOCKSTEP_HOME; default: the environment variable, else .lockstep"
    )
    options = parser.parse_args(argv)
    if not RUN_ID.fullmatch(options.run):
        raise BadInput(f"--run {options.run!r} is not a run id, such as 20260131T020000Z-0123abcd")
    home = Home(options.home)
    if not (home.run(options.run) / "plan.json").is_file():
        raise BadInput(f"run {options.run} does not exist: {home.run(options.run) / 'plan.json'} is missing")
    print(work(home, options.run), flush=True)
    return 0
