"""Check the Airflow connections that a run names, before it starts.

The API server checks them when a run is triggered (plugins/lockstep.py). The first task of a run checks them again,
because there are other ways to trigger a run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from streaming_core.errors import BadInput
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
        yield from ((param, one) for one in values)
