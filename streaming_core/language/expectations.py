"""Expectations that are declared beside an application, in NAME.expectations.yaml.

The file adds expectations of Great Expectations, with thresholds of your own, to those that Lockstep derives from the
output record. It is not part of the application's code: after a change of a threshold, workloads, oracles and series of
speed remain valid. The file is a list:

    - type: expect_column_mean_to_be_between
      description: A word is counted about ten times
      severity: warning
      kwargs: {column: n, min_value: 1, max_value: 100}

`type` and `kwargs` are those of Great Expectations. The rows are the outputs of all cells of the application, with the
columns `app`, `cell`, `seq` and `sub` before those of the output record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from streaming_core.errors import BadInput, unknown

CRITICAL, WARNING, INFO = "critical", "warning", "info"
SEVERITIES = (CRITICAL, WARNING, INFO)
KEYS = ("type", "description", "severity", "kwargs")
LEADING = ("app", "cell", "seq", "sub")
_TYPE = re.compile(r"[a-z][a-z0-9_]*")


def path_of(application_file: str) -> Path:
    """The file beside an application."""
    return Path(application_file).with_suffix(".expectations.yaml")


def read(path: Path, columns: Iterable[str]) -> list[dict[str, Any]]:
    """Read the expectations of a file; [] without the file.

    Args:
        path: The file.
        columns: The columns of the application's output record.

    Raises:
        BadInput: The file is no list of expectations. The message names the entry. Only Great Expectations knows its
            types and their arguments, so the stage `expectations` and `lockstep check` check these.
    """
    if not path.is_file():
        return []
    try:
        entries = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"{path.name}: {' '.join(str(error).split())}") from None
    if not isinstance(entries, list):
        raise BadInput(f"{path.name}: write a list of expectations, each with {', '.join(KEYS)}")
    known = [*LEADING, *columns]
    return [_entry(f"{path.name}: expectation {number}", entry, known) for number, entry in enumerate(entries, 1)]


def _entry(where: str, entry: Any, columns: list[str]) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise BadInput(f"{where}: write {', '.join(KEYS)}, got {entry!r}")
    for key in entry:
        if key not in KEYS:
            raise BadInput(f"{where}: {unknown('key', str(key), KEYS)}")
    kind, kwargs, severity = entry.get("type"), entry.get("kwargs", {}), entry.get("severity", CRITICAL)
    if not isinstance(kind, str) or not _TYPE.fullmatch(kind):
        raise BadInput(f"{where}: type must be a type of Great Expectations, such as expect_column_max_to_be_between")
    if not isinstance(entry.get("description"), str) or not entry["description"].strip():
        raise BadInput(f"{where}: description must say the rule in words; pages and messages show it")
    if severity not in SEVERITIES:
        raise BadInput(f"{where}: severity must be one of {', '.join(SEVERITIES)}, got {severity!r}")
    if not isinstance(kwargs, dict):
        raise BadInput(f"{where}: kwargs must be arguments by name, got {kwargs!r}")
    try:
        json.dumps(kwargs)
    except TypeError as error:
        raise BadInput(f"{where}: kwargs must be numbers, texts, booleans, lists and mappings: {error}") from None
    for name, value in kwargs.items():
        if str(name).startswith("column") and isinstance(value, str) and value not in columns:
            raise BadInput(f"{where}: {name}: {unknown('column', value, columns)}")
    return {"type": kind, "severity": severity, "description": entry["description"].strip(), "kwargs": kwargs}
