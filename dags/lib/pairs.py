"""Measures a cell on another host in pairs of two builds, for the speed gate.

    python -m dags.lib.pairs CONNECTION MACHINE REQUEST

The program looks at the host of the connection, brings both builds there, and starts infra/services/pairs.py there. It
prints what that program prints. MACHINE is the name of the machine that ran the cell. Exit code 2 means that the host
cannot measure the cell. The last line then says why, and what to do.

A task of Airflow puts the connection into the environment (dags/lib/gate.py), because a process that it starts has no
access to Airflow's database. On the command line, the connection may come from the database too.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial

from infra.airflow import connections
from infra.airflow import home as airflow_home
from infra.airflow.database import ADDRESSES, WITHHELD
from infra.checkout import home
from infra.services.pairs import Request
from streaming_core import ending
from streaming_core.errors import BadInput


def measure(conn_id: str, machine: str, request: Request) -> int:
    """Measure a cell, and print the lines of the program on the host.

    Returns:
        The exit code of that program.

    Raises:
        BadInput: The host cannot measure the cell.
    """
    from dags.lib.hosts import REACH, Host, HostLost, SshHost, preflight, type_of

    connections.check({"hosts": [conn_id]}, type_of, ["hosts"])
    seen = preflight(conn_id, home())
    if seen.reason:
        raise BadInput(seen.reason)
    host = Host.of(conn_id, home())
    if not isinstance(host, SshHost) or seen.machine != machine:
        raise BadInput(f"the cell ran on {machine}, but the connection leads to {seen.machine} now: run the cell again")
    try:
        return host.measure(request, partial(print, flush=True))
    except HostLost as error:
        raise BadInput(f"{error}; {REACH}") from None


def main() -> int:
    """Measure the cell that the command line names."""
    os.environ.update(airflow_home.environment())
    if os.environ.get(ADDRESSES[0], "").startswith(WITHHELD):
        # A task started this process. Airflow does not load with an address that leads nowhere.
        for name in ADDRESSES:
            os.environ.pop(name, None)
    else:
        # Outside its own processes, Airflow finds connections of its database only with this setting.
        os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
    conn_id, machine, request = sys.argv[1:]
    return measure(conn_id, machine, Request(**json.loads(request)))


if __name__ == "__main__":
    ending.end("pairs", main)
