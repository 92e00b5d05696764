"""The names of this project, which differ from those of other projects: the table `[tool.lockstep]` in pyproject.toml.

`copier copy` fills in the table for a new project. `PREFIX` begins every id that Airflow shares between projects: of
DAGs, connections, pools and assets. The ids in the documentation lack it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from streaming_core.errors import BadInput

FILE = Path(__file__).resolve().parents[2] / "pyproject.toml"
PREFIXES = re.compile(r"([a-z][a-z0-9_]*_)?")


class Names(NamedTuple):
    """The title on pages, in menus and in alerts; and the prefix of ids in Airflow."""

    title: str = "Lockstep"
    prefix: str = ""


def read(file: Path) -> Names:
    """The names in a pyproject.toml. A wheel has no such file, and needs no other names than Lockstep's.

    Raises:
        BadInput: The table has an unknown key or an invalid value.
    """
    try:
        names = Names(**tomllib.loads(file.read_text("utf-8")).get("tool", {}).get("lockstep", {}))
    except FileNotFoundError:
        return Names()
    except TypeError as error:
        raise BadInput(f"{file}: [tool.lockstep] may have the keys {', '.join(Names._fields)}: {error}") from None
    # An emoji may have a zero-width joiner.
    if (
        not isinstance(names.title, str)
        or not names.title.strip()
        or not names.title.replace("\u200d", "").isprintable()
    ):
        raise BadInput(f"{file}: [tool.lockstep] title must be a line of text, got {names.title!r}")
    if not isinstance(names.prefix, str) or not PREFIXES.fullmatch(names.prefix):
        raise BadInput(
            f"{file}: [tool.lockstep] prefix must be empty, or lower-case letters, digits and '_' that begin with a "
            f"letter and end with '_', got {names.prefix!r}"
        )
    return names


TITLE, PREFIX = read(FILE)
TAG = PREFIX.rstrip("_") or "lockstep"  # of every DAG


def named(name: str) -> str:
    """The id in Airflow of a DAG, connection, pool or asset."""
    return PREFIX + name


def labelled(label: str) -> str:
    """The display name of a DAG. Those of Lockstep itself have no title in front."""
    return f"{TITLE}: {label}" if PREFIX else label
