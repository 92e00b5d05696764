"""Looks at hosts without a run, for `lockstep hosts`.

    python -m dags.lib.preflight CONNECTION...

The last line of the output is a JSON list of preflights. Exit code 2 means that a connection is missing or of another
type.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from dags.lib.hosts import preflight, type_of
from infra.airflow import connections
from infra.checkout import home
from streaming_core import ending


def main() -> int:
    """Check the names on the command line, then look at each host."""
    names = sys.argv[1:]
    for name in names:
        connections.check({"hosts": [name]}, type_of, ["hosts"])
    print(json.dumps([asdict(preflight(name, home())) for name in names]))
    return 0


if __name__ == "__main__":
    ending.end("hosts", main)
