"""`lockstep acknowledge`: record that a person has seen the red cells of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from infra.checkout import home, user
from infra.cli.arguments import CELLS, named_cells


def acknowledge(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="The id of a run, as `lockstep report` prints it.")],
    why: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Your reason. Pages show it with your name.")],
    cells: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help=f"{CELLS} Default: every red cell; with --withdraw, every acknowledged one."
        ),
    ] = None,
    withdrawn: Annotated[
        bool, typer.Option("--withdraw", help="Withdraw earlier acknowledgements instead. Their entries stay.")
    ] = False,
) -> None:
    """Record that you have seen the red cells of a run, with a reason.

    The cells stay red. Once all red cells of a run are acknowledged,
    `lockstep prune` may remove the outputs of the run. The record only
    grows: the last entry on a cell counts. Every command that reads the
    record refuses it if an entry was changed, removed or moved.

    Examples:
        lockstep acknowledge RUN_ID --reason "the disk was full"
        lockstep acknowledge RUN_ID --withdraw --reason "it was a lost update"
    """
    from infra.history import ledger
    from reports.publish import publish

    record = ledger.withdraw if withdrawn else ledger.acknowledge
    print(record(home(), run_id, named_cells(cells), user(), why))
    publish(home(), run_id)
