"""Named matrices: what a regression is asked, kept under a name, so that it can be scheduled, changed and compared.

A matrix is fields of a RegressionSpec, those that are otherwise than by default. Lockstep brings some (BROUGHT), which
are version 0; each change is a new version, LOCKSTEP_HOME/matrices/<name>/<version>.json, and former ones stay.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from streaming_core.regression.matrix import cells, imported
from streaming_core.regression.request import FIELD_OPTIONS, NAMED_VALUES, RegressionSpec
from streaming_core.run.way import EXECUTORS
from streaming_core.storage import held, left_json, write_json

NAME = re.compile(r"([a-z][a-z0-9_-]{0,40})(?:@([0-9]{1,9}))?")
# Of which `full` takes every strategy: on several threads, as one thread alone executes whatever the strategy.
_WIDE = ("schemes", "heuristics", "queues", "reorders", "channels", "plans", "parallelisms")
BROUGHT: dict[str, dict[str, Any]] = {
    "smoke": {"threads": [2], "events": 5000, "repetitions": 1, "seconds": 0.0},
    "nightly": {"applications": [registry.ALL]},
    "full": {
        "applications": [registry.ALL],
        "executors": list(EXECUTORS),
        "threads": [2],
        **{asked: list(NAMED_VALUES[FIELD_OPTIONS[asked]]) for asked in _WIDE},
    },
}


@dataclass(frozen=True)
class Matrix:
    """A version of a matrix: `fields` as RegressionSpec takes them; when it was saved and by whom, empty for what
    Lockstep brings."""

    name: str
    version: int
    fields: dict[str, Any]
    saved_at: str = ""
    saved_by: str = ""


@dataclass(frozen=True)
class Request:
    """What a run is asked: the regression and, where it goes by a matrix, which one, and which fields are otherwise."""

    regression: RegressionSpec
    matrix: dict[str, Any] | None = None


def names(home: Home) -> list[str]:
    """Of all matrices there are: those that Lockstep brings, then the others."""
    own = {path.name for path in home.matrices.glob("*") if NAME.fullmatch(path.name) and _versions(home, path.name)}
    return [*BROUGHT, *sorted(own - BROUGHT.keys())]


def load(home: Home, asked: str) -> Matrix:
    """The matrix `NAME`, or a version of it, `NAME@VERSION`.

    Raises:
        BadInput: there is none of that name, or it has no such version.
    """
    name, version = _parts(asked)
    known = _versions(home, name)
    if name not in BROUGHT and not known:
        raise BadInput(f"unknown matrix {name!r}; known: {', '.join(names(home))}")
    first, last = 0 if name in BROUGHT else 1, known[-1] if known else 0
    if version is None:
        version = last
    if version == 0 and name in BROUGHT:
        return Matrix(name, 0, dict(BROUGHT[name]))
    if version not in known:
        raise BadInput(f"matrix {name} has no version {version}; it has {first} to {last}")
    kept = left_json(home.matrix(name, version))
    if not isinstance(kept.get("fields"), dict):
        raise BadInput(f"matrix {name}: {home.matrix(name, version)} cannot be read")
    return Matrix(name, version, kept["fields"], kept.get("saved_at", ""), kept.get("saved_by", ""))


def history(home: Home, name: str) -> list[Matrix]:
    """Every version of a matrix, the newest first; raises as `load` does."""
    newest = load(home, name)
    versions = [*([0] if newest.name in BROUGHT else []), *_versions(home, newest.name)]
    return [load(home, f"{newest.name}@{version}") for version in reversed(versions)]


def save(home: Home, name: str, fields: Mapping[str, Any], by: str = "") -> Matrix:
    """Keeps a matrix; what is there already becomes no new version.

    Args:
        fields: of a RegressionSpec; those that it would have anyway are not kept.
        by: who says so.

    Raises:
        BadInput: no name for a matrix, or a request that could not be run.
    """
    parts = NAME.fullmatch(name) if isinstance(name, str) else None
    if parts is None or parts[2]:
        raise BadInput(f"{name!r} is no name for a matrix: small letters, digits, - and _, a letter first")
    regression = _regression(home, name, fields)
    cells(regression, imported(regression, home))
    parsed = RegressionSpec.parse(dict(fields)).model_dump(mode="json")
    default = RegressionSpec().model_dump(mode="json")
    kept = {field: value for field, value in parsed.items() if value != default[field]}
    folder = home.matrix(name, 0).parent
    with held(folder):
        known = _versions(home, name)
        if (known or name in BROUGHT) and (newest := load(home, name)).fields == kept:
            return newest
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        saved = Matrix(name, known[-1] + 1 if known else 1, kept, now, by)
        write_json(home.matrix(name, saved.version), {"fields": kept, "saved_at": now, "saved_by": by})
    return saved


def request(home: Home, given: Mapping[str, Any], matrix: str | None = None) -> Request:
    """The regression that is asked for: what is given, else what the matrix says, else the defaults.

    An application that has an import of the matrix's name runs on it, unless `data` says otherwise.

    Raises:
        BadInput: an unknown matrix, or fields that make no regression.
    """
    if not matrix:
        return Request(_regression(home, None, given))
    found = load(home, matrix)
    about = {"name": found.name, "version": found.version, "changed": sorted(given)}
    try:
        RegressionSpec.parse(found.fields)
    except BadInput as error:
        raise BadInput(f"matrix {found.name}, version {found.version}: {error}") from None
    return Request(_regression(home, found.name, found.fields | dict(given)), about)


def _regression(home: Home, name: str | None, fields: Mapping[str, Any]) -> RegressionSpec:
    """The regression of these fields, with every application by name, on the imports that a matrix takes."""
    regression = RegressionSpec.parse(dict(fields))
    applications, there = regression.applications, registry.names()
    if registry.ALL in applications:
        applications = [*there, *(one for one in applications if one not in (registry.ALL, *there))]
    data = regression.data
    if name and "data" not in fields:
        data = {app: name for app in applications if app in there and home.imported(app, name).is_dir()}
    return regression.model_copy(update={"applications": applications, "data": data})


def _parts(asked: object) -> tuple[str, int | None]:
    parts = NAME.fullmatch(asked) if isinstance(asked, str) else None
    if parts is None:
        raise BadInput(f"{asked!r} is no name of a matrix: NAME, or NAME@VERSION")
    return parts[1], int(parts[2]) if parts[2] else None


def _versions(home: Home, name: str) -> list[int]:
    """Those that were saved."""
    files = home.matrix(name, 0).parent.glob("*.json")
    return sorted(int(path.stem) for path in files if path.stem.isdigit())
