"""Measures a cell on another host in pairs of two builds, for the speed gate.

    python -m infra.gate.remote_pairs CONNECTION MACHINE REQUEST

The program looks at the host of the connection, brings both builds there, and starts infra/gate/pairs.py there. It
prints what that program prints. MACHINE is the name of the machine that ran the cell. Exit code 2 means that the host
cannot measure the cell. The last line then says why, and what to do.

The connection is in the environment: a task of Airflow (dags/lib/operators.py) or `lockstep gate` puts it there,
because this program has no access to Airflow's database.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

from infra.airflow import airflow_home, connections
from infra.checkout import home
from infra.gate import pairs
from infra.gate.pairs import Request
from infra.hosts import shipment
from infra.hosts.build import Build
from streaming_core.errors import BadInput
from streaming_core.process import ending


def measure(conn_id: str, machine: str, request: Request) -> int:
    """Measure a cell, and print the lines of the program on the host.

    Args:
        conn_id: The connection to the host.
        machine: The name of the machine that ran the cell.
        request: The request, with paths of this machine.

    Returns:
        The exit code of that program.

    Raises:
        BadInput: The host cannot measure the cell.
    """
    from infra.airflow.hosts import REACH, Host, HostLost, SshHost, preflight, type_of

    connections.check({"hosts": [conn_id]}, type_of, ["hosts"])
    seen = preflight(conn_id, home())
    if seen.reason:
        raise BadInput(seen.reason)
    host = Host.of(conn_id, home())
    if not isinstance(host, SshHost) or seen.machine != machine:
        raise BadInput(f"the cell ran on {machine}, but the connection leads to {seen.machine} now: run the cell again")
    try:
        with host.connect() as client:
            builds = {
                side: (name, str(host.deliver(client, Build(name, Path(tree))).folder))
                for side, (name, tree) in request.builds.items()
            }
            host.send([Path(request.workload)], partial(print, flush=True))
            workload = host.path(Path(request.workload))
            there = request._replace(workload=workload, wrapper=host.wrapper, builds=builds)
            # The program comes with the current build. An older build may have another one, or none.
            program = [f"PYTHONPATH={builds['build'][1]}", host.python, "-P", "-m", pairs.__name__]
            return shipment.follow(client, ["env", *program, json.dumps(there._asdict())], partial(print, flush=True))
    except HostLost as error:
        raise BadInput(f"{error}; {REACH}") from None


def main() -> int:
    """Measure the cell that the command line names."""
    os.environ.update(airflow_home.environment())
    # Airflow does not load with the address that it gives its tasks, which leads nowhere. This one has no tables.
    os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = "sqlite://"
    conn_id, machine, request = sys.argv[1:]
    return measure(conn_id, machine, Request(**json.loads(request)))


if __name__ == "__main__":
    ending.end("pairs", main)
