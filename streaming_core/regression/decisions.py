"""Which red cells people have acknowledged, and why: a chain of entries that only grows.

Each row of the raw table `decisions` is an entry. It holds its number, the digest of the entry before it, and its own
digest, which covers both. The latest entry on a cell counts. To withdraw or replace a decision, append another entry.

The file `_last.json` beside the entries names the last one, because a chain does not show that its end is missing. A
writer writes entries before this file. So entries beyond it are those of a killed writer: they are whole, and they
count. No entry is torn, because its file appears whole or not at all.

The chain shows accidents and edits by hand. It has no secret: a program that computes all digests anew can still lie.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import DECISIONS, check_version, parts
from streaming_core.storage import sha256_of

TABLE = "decisions"
ACKNOWLEDGED, WITHDRAWN = "acknowledged", "withdrawn"
FIRST = "0" * 64  # stands for the digest of the entry before the first one


@dataclass(frozen=True)
class Decision:
    """An entry: a red cell of a run is acknowledged, or an acknowledgement is withdrawn."""

    decision: str
    decided_by: str
    why: str
    decided_at: datetime
    of_run: str
    cell: str

    @property
    def text(self) -> str:
        """`ada, 2026-01-31 07:12 UTC: a hash table that grows`."""
        return f"{self.decided_by}, {self.decided_at:%Y-%m-%d %H:%M} UTC: {self.why}"


class Last(NamedTuple):
    """The number and the digest of the last entry."""

    entry: int
    digest: str


def decisions(home: Home) -> list[Decision]:
    """All decisions, oldest first.

    Raises:
        BadInput: an entry was changed, removed or moved, or a file cannot be read.
    """
    return [Decision(**{name: row[name] for name in Decision.__dataclass_fields__}) for row in chain(home)]


def acknowledgements(home: Home) -> dict[tuple[str, str], Decision]:
    """By run and cell, the last acknowledgement that is not withdrawn. Raises the errors of `decisions`."""
    latest = {(decision.of_run, decision.cell): decision for decision in decisions(home)}
    return {cell: decision for cell, decision in latest.items() if decision.decision == ACKNOWLEDGED}


def chain(home: Home) -> list[dict[str, Any]]:
    """The rows of all entries in order. Raises the errors of `entries`."""
    return [row for row, _ in entries(home)]


def entries(home: Home) -> list[tuple[dict[str, Any], Path]]:
    """The row and the file of each entry in order, after a check of every digest.

    Raises:
        BadInput: an entry was changed, removed or moved, or a file cannot be read or has another version.
    """
    # Read the last entry first: a writer may append more while this function reads.
    last = _read_last(home)
    ordered = sorted(_entries(home), key=lambda pair: pair[0]["entry"])
    before = Last(0, FIRST)
    for row, path in ordered:
        before = _follows(before, row, path)
        if before.entry == last.entry and before.digest != last.digest:
            raise _refusal(path, f"entry {before.entry} is not the one that {last_file(home).name} names")
    if before.entry < last.entry:
        raise _refusal(home.raw(TABLE), f"entry {before.entry + 1} of {last.entry} is missing")
    return ordered


def linked(before: Last, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows as the next entries of the chain: with their number, the digest before them, and their own digest."""
    for row in rows:
        whole = dict.fromkeys(DECISIONS.names) | row | {"entry": before.entry + 1, "previous": before.digest}
        before = Last(whole["entry"], entry_digest(whole))
        yield whole | {"digest": before.digest}


def last_of(rows: list[dict[str, Any]]) -> Last:
    """The last of some rows of the chain."""
    return Last(rows[-1]["entry"], rows[-1]["digest"]) if rows else Last(0, FIRST)


def last_file(home: Home) -> Path:
    """The file that names the last entry. Spark and dbt skip a name that begins with an underscore."""
    return home.raw(TABLE) / "_last.json"


def entry_digest(row: dict[str, Any]) -> str:
    """SHA-256 over the columns of an entry, apart from its digest."""
    columns = {name: value for name, value in row.items() if name != "digest"}
    decided_at = columns["decided_at"]
    if isinstance(decided_at, datetime):
        columns["decided_at"] = decided_at.astimezone(UTC).isoformat(timespec="microseconds")
    return sha256_of(columns)


def _follows(before: Last, row: dict[str, Any], path: Path) -> Last:
    number = row["entry"]
    if number <= before.entry:
        raise _refusal(path, f"entry {number} is there twice" if number > 0 else f"there is no entry {number}")
    if number > before.entry + 1:
        raise _refusal(path, f"entry {before.entry + 1}, which precedes entry {number}, is missing")
    if entry_digest(row) != row["digest"]:
        raise _refusal(path, f"entry {number} was changed: its content does not have its digest")
    if row["previous"] != before.digest:
        raise _refusal(path, f"entry {number} does not follow entry {number - 1}: it names another digest")
    return Last(number, row["digest"])


def _entries(home: Home) -> Iterator[tuple[dict[str, Any], Path]]:
    """Every row below the folder of the table, as Spark would find it, with its file."""
    for path in parts(home, TABLE):
        check_version(path, TABLE)
        try:
            rows = Parts([path]).read().to_pylist()
        except (ValueError, OverflowError, pa.ArrowException) as error:
            raise BadInput(f"cannot read {path}: {str(error).partition(chr(10))[0]}") from None
        for row in rows:
            if row["entry"] is None:
                raise _refusal(path, "an entry has no number")
            yield row, path


def _read_last(home: Home) -> Last:
    path = last_file(home)
    is_empty = next(parts(home, TABLE), None) is None  # before the file is read: a writer writes the file first
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        last = Last(value["entry"], value["digest"])
        if value != last._asdict() or type(last.entry) is not int or last.entry < 0:
            raise ValueError
    except FileNotFoundError:
        if not is_empty:
            raise _refusal(path, "the file is missing, so the last entry is unknown") from None
        return Last(0, FIRST)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _refusal(path, "the file does not name the last entry") from None
    if last.entry == 0 and last.digest != FIRST:
        raise _refusal(path, "the file does not name the last entry")
    return last


def _refusal(path: Path, fault: str) -> BadInput:
    folder = next(parent for parent in (path, *path.parents) if parent.name == TABLE)
    return BadInput(f"{path}: {fault}; restore {folder} from a backup, or move it away and acknowledge the cells again")
