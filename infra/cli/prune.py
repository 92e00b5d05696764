"""`lockstep prune`: list or remove outputs and caches, which a run can make again."""

from __future__ import annotations

from infra.services.lock import hold
from infra.services.prune import Item, removable, remove
from streaming_core.ending import say
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home


def prune(home: Home, cache_bytes: int, dry_run: bool) -> int:
    """Remove everything removable, or only list it.

    Returns:
        The exit code: 1 if an item could not be removed.

    Raises:
        BadInput: `home` does not exist.
    """
    if dry_run:
        items = removable(home, cache_bytes)
        for item in items:
            print(_row(item))
        print(f"prune: would remove {_total(items)}; nothing was removed (--dry-run)")
        return 0
    if not home.root.is_dir():
        raise BadInput(f"LOCKSTEP_HOME={home.root} does not exist: there is nothing to prune")
    # A run in progress reads the caches, and its outputs have no verdicts yet.
    with hold(home, "prune"):
        items = removable(home, cache_bytes)
        removed = [item for item in items if _remove(item)]
    print(f"prune: removed {_total(removed)}")
    return 0 if len(removed) == len(items) else 1


def _remove(item: Item) -> bool:
    try:
        remove(item)
    except OSError as error:
        say("lockstep", f"cannot remove {item.path}: {error.strerror}")
        return False
    print(_row(item))
    return True


def _row(item: Item) -> str:
    return f"{item.size / 1e6:10.1f} MB  {item.path}  ({item.why})"


def _total(items: list[Item]) -> str:
    return f"{len(items)} folders, {sum(item.size for item in items) / 1e6:.1f} MB"
