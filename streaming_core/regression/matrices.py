"""Named matrices: YAML files, each a mapping of RegressionSpec fields to values that differ from the defaults.

A matrix is named after its file: `nightly` is `nightly.yaml`. The folder is an argument of every function, because the
files belong to the layer that schedules the runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from streaming_core.apps import registry
from streaming_core.errors import BadInput, unknown
from streaming_core.regression.home import Home
from streaming_core.regression.request import ALL, RegressionSpec, resolve_hosts


@dataclass(frozen=True)
class Matrix:
    """A named matrix: the fields of its file, and the SHA-256 of the file in hexadecimal."""

    name: str
    digest: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class Request:
    """A regression, and the matrix it started from: {name, digest, overrides: names of the fields that replaced it}."""

    regression: RegressionSpec
    matrix: dict[str, Any] | None = None


class _Loader(yaml.SafeLoader):
    """Refuses a key that occurs twice in one mapping. PyYAML would silently use the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key.value for key, _ in node.value]
        for place, key in enumerate(keys):
            if key in keys[:place]:
                raise yaml.constructor.ConstructorError(
                    problem=f"the field {key!r} occurs twice; remove one", problem_mark=node.value[place][0].start_mark
                )
        return super().construct_mapping(node, deep)


def names(folder: Path) -> list[str]:
    """The names of all matrices in the folder, sorted. Reads no file, so that an invalid one does no harm here."""
    return sorted(path.stem for path in folder.glob("[!.]*.yaml"))


def load(folder: Path, name: str) -> Matrix:
    """The matrix of that name.

    Raises:
        BadInput: The folder has no such matrix, or its file is not YAML, or a field is unknown or has an invalid value.
    """
    if name not in (known := names(folder)):
        raise BadInput(unknown("matrix", name, known))
    path = folder / f"{name}.yaml"
    try:
        content = path.read_bytes()
        fields = yaml.load(content, _Loader)
        if not isinstance(fields, dict):
            raise BadInput("the file must map fields to values, such as `threads: [1, 2]`")
        _check_applications(RegressionSpec.parse(fields))
    except (BadInput, OSError, ValueError, yaml.YAMLError) as error:
        raise BadInput(f"{folder.name}/{path.name}: {_reason(error)}") from None
    return Matrix(name, hashlib.sha256(content).hexdigest(), fields)


def request(folder: Path, home: Home, fields: Mapping[str, Any], name: str | None = None) -> Request:
    """The regression of these fields. The matrix of that name fills in the others, and the defaults fill in the rest.

    An application APP with an import named NAME-APP runs on that import, unless `data` says otherwise.

    Raises:
        BadInput: As `load`, or the fields do not form a regression, or `resolve_hosts` refuses its hosts.
    """
    if not name:
        return Request(_resolved(RegressionSpec.parse(dict(fields))))
    matrix = load(folder, name)
    regression = _resolved(RegressionSpec.parse(matrix.fields | dict(fields)))
    if "data" not in matrix.fields and "data" not in fields:
        known = registry.names()
        own = {app: f"{name}-{app}" for app in regression.applications if app in known}
        data = {app: called for app, called in own.items() if home.imported(called).is_dir()}
        regression = regression.model_copy(update={"data": data})
    return Request(regression, {"name": name, "digest": matrix.digest, "overrides": sorted(fields)})


def _resolved(regression: RegressionSpec) -> RegressionSpec:
    """The regression with `all` replaced by the names of all applications, or of all hosts."""
    applications = regression.applications
    if ALL in applications:
        known = registry.names()
        applications = [*known, *(name for name in applications if name not in (ALL, *known))]
    return regression.model_copy(update={"applications": applications, "hosts": resolve_hosts(regression.hosts)})


def _check_applications(regression: RegressionSpec) -> None:
    known = registry.names()
    for name in regression.applications:
        if name not in (ALL, *known):
            raise BadInput(f"applications: {unknown('application', name, known)}")


def _reason(error: Exception) -> str:
    """The error in one line, with the line number of the file if YAML names one."""
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, yaml.MarkedYAMLError) and mark is not None:
        return f"line {mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())
