"""`lockstep backup` and `lockstep restore`: copy history and decisions into one file, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from infra.checkout import home
from streaming_core.process.ending import say


def backup(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write, such as NAME.tar.gz. It must be new.")
    ],
) -> None:
    """Back up the history and the decisions of LOCKSTEP_HOME into one file.

    The file holds raw results, acknowledgements, the plans and reports of
    runs, expectation results, benchmarks and imports. It leaves out what a
    command can make again: workloads, oracles, builds, compiled kernels,
    marts, pages, and the outputs of runs. The command waits while a run is
    in progress.

    Examples:
        lockstep backup history.tar.gz
    """
    from infra.history import archive

    with Console(stderr=True).status(f"writing {file}"):
        content = archive.backup(home(), file, lambda line: say("lockstep", line))
    print(f"backup: {content}")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `lockstep backup` wrote.")],
) -> None:
    """Restore a backup into LOCKSTEP_HOME, which must be missing or empty.

    The command checks each file, and restores everything or nothing. It
    makes no marts and no pages, but prints the commands that do.

    Examples:
        lockstep restore history.tar.gz
        LOCKSTEP_HOME=restored lockstep restore history.tar.gz
    """
    from infra.history import archive

    with Console(stderr=True).status(f"reading {file}"):
        content = archive.restore(home(), file)
    print(f"restore: {content}\nnext: lockstep warehouse build, then lockstep publish")
