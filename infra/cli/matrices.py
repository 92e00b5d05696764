"""The named matrices: which there are, what their versions say, and new ones."""

from __future__ import annotations

import getpass
import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.cli.request import options
from streaming_core.regression import matrices
from streaming_core.regression.home import Home
from streaming_core.regression.matrices import Matrix


def names(home: Home, as_json: bool) -> None:
    """Prints every matrix, as it is now."""
    _print([matrices.load(home, name) for name in matrices.names(home)], as_json)


def versions(home: Home, name: str, as_json: bool) -> None:
    """Prints every version of a matrix, the newest first."""
    _print(matrices.history(home, name), as_json)


def save(home: Home, name: str, base: str | None, fields: dict[str, Any]) -> None:
    """Keeps what a matrix, by default that of this name, says otherwise, and prints what came of it.

    Raises:
        BadInput: as `matrices.save`, or the base is unknown.
    """
    there = name in matrices.names(home)
    before = matrices.load(home, name) if there else None
    rest = matrices.load(home, base) if base else before
    saved = matrices.save(home, name, (rest.fields if rest else {}) | fields, getpass.getuser())
    said = "is as it was" if saved == before else "is saved"
    print(f"matrix {saved.name}, version {saved.version}, {said}: {options(saved.fields)}")


def _print(found: list[Matrix], as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
        return
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("matrix", "version", "saved", "by", "says, beside the defaults"):
        table.add_column(title, no_wrap=title == "saved", overflow="fold")
    for one in found:
        when = one.saved_at.replace("T", " ")[:16] or "as it comes"
        table.add_row(*map(Text, (one.name, str(one.version), when, one.saved_by, options(one.fields))))
    Console().print(table)
