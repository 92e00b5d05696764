"""`lockstep prune`: list or remove outputs and caches, which a run can make again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from infra import checkout
from streaming_core.errors import BadInput
from streaming_core.process.ending import say
from streaming_core.regression.lock import hold, of_home

if TYPE_CHECKING:
    from infra.history.disk_space import Item


def prune(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what the command would remove, and remove nothing.")
    ] = False,
    cache_gb: Annotated[
        float,
        typer.Option(
            metavar="GB", help="Largest total size of workloads, oracles and builds, in gigabytes (1e9 bytes)."
        ),
    ] = 20.0,
) -> int:
    """Remove old outputs and caches, which a run can make again.

    Figures, verdicts and pages of all runs stay. Outputs stay for the last
    seven green runs, and for a red run until you acknowledge its red cells.
    An acknowledged find of the search for faults goes once it no longer shows.

    Examples:
        lockstep prune --dry-run
        lockstep prune --cache-gb 5
    """
    if not 0 <= cache_gb < 1e9:
        raise BadInput(f"--cache-gb must be between 0 and 1e9, got {cache_gb:g}")
    from infra.history.disk_space import removable, remove

    home, cache_bytes = checkout.home(), int(cache_gb * 1e9)
    if dry_run:
        items = removable(home, cache_bytes)
        for item in items:
            print(_row(item))
        print(f"prune: would remove {_total(items)}; nothing was removed (--dry-run)")
        return 0
    if not home.root.is_dir():
        raise BadInput(f"LOCKSTEP_HOME={home.root} does not exist: there is nothing to prune")
    removed = []
    # A run in progress reads the caches, and its outputs have no verdicts yet.
    with hold(of_home(home), "prune"):
        items = removable(home, cache_bytes)
        for item in items:
            try:
                remove(item)
            except OSError as error:
                say("lockstep", f"cannot remove {item.path}: {error.strerror}")
            else:
                print(_row(item))
                removed.append(item)
    print(f"prune: removed {_total(removed)}")
    return 0 if len(removed) == len(items) else 1


def _row(item: Item) -> str:
    return f"{item.size / 1e6:10.1f} MB  {item.path}  ({item.why})"


def _total(items: list[Item]) -> str:
    return f"{len(items)} folders, {sum(item.size for item in items) / 1e6:.1f} MB"
