"""The Airflow connections that a run names: a check before it starts, and their fields for a program without Airflow.

The first task of a run checks them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from infra.airflow import airflow_home
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.fleet import LOCAL, SPARK
from streaming_core.regression.request import ALL, resolve_hosts

NAME = r"[A-Za-z0-9_.-]{1,250}"  # of a connection in Airflow
DEFAULTS: dict[str, Any] = {"hosts": [LOCAL], "spark": SPARK}
# Param of a run -> the connection types it can use, and the sentence about them.
_TYPES = {
    "hosts": ({"generic", "ssh"}, "a host needs the type 'ssh', or 'generic' for this machine"),
    "spark": ({"spark", "spark_connect"}, "a Spark master needs the type 'spark' or 'spark_connect'"),
}


def check(
    params: Mapping[str, Any], type_of: Callable[[str], str | None], names: Iterable[str] = DEFAULTS.keys()
) -> None:
    """Check that the connections of a run exist and have a type that fits.

    Args:
        params: the params of the run; a missing one has its default.
        type_of: returns the type of a connection, or None if Airflow has no such connection.
        names: the params to check.

    Raises:
        BadInput: one line on the first connection that a run cannot use.
    """
    for param, name in _named(params, names):
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            raise BadInput(f"{param}: {name!r} is not a valid connection name: use letters, digits, '_', '.' and '-'")
        types, sentence = _TYPES[param]
        if (kind := type_of(name)) is None:
            raise BadInput(f"{param}: Airflow has no connection {name!r}; add it under Admin, Connections")
        if kind not in types:
            raise BadInput(f"{param}: connection {name!r} has the type {kind!r}, but {sentence}")


def _named(params: Mapping[str, Any], names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """The connections of these params. RegressionSpec checks the list of hosts; here, each of its items counts."""
    for param in names:
        value = params.get(param, DEFAULTS[param])
        values = value if param == "hosts" and isinstance(value, list) else [value]
        if ALL in values:
            values = resolve_hosts(values)
        yield from ((param, value) for value in values)


def stored(names: Iterable[str]) -> dict[str, str]:
    """Connections in Airflow's database, as the variables that any program reads connections from.

    Outside its own processes, Airflow looks for connections in the environment, and not in its database.

    Args:
        names: the connections.

    Returns:
        Variables of those that are not in the environment. One that does not exist has none.

    Raises:
        RunFailed: Airflow cannot read its database. The message has Airflow's last line.
    """
    missing = {variable(name) for name in names} - os.environ.keys()
    if not missing:
        return {}
    command = [*airflow_home.AIRFLOW, "connections", "export", "-", "--file-format", "json"]
    done = subprocess.run(
        command, env=airflow_home.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        raise RunFailed(f"Airflow's connections cannot be read: {(done.stderr.strip() or '?').splitlines()[-1]}")
    known = {variable(name): fields for name, fields in json.loads(done.stdout).items() if variable(name) in missing}
    return {
        name: json.dumps({field: value for field, value in fields.items() if value is not None})
        for name, fields in known.items()
    }


def variable(name: str) -> str:
    """The variable that Airflow reads a connection from."""
    return f"AIRFLOW_CONN_{name.upper()}"
