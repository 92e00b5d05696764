"""The network settings of a Spark driver: its address, and the secret that it shares with a cluster.

Executors call their driver back, so its address must be one that they reach. On a local master that is loopback. On
another one it is the address of the route to the master, which needs no name in any DNS.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping

from streaming_core.errors import BadInput

LOOPBACK = ("localhost", "127.0.0.1")
_MASTER = re.compile(r"(?:spark://|k8s://(?:https?://)?)([^:/,]+)(?::(\d+))?")
_ANY_PORT = 7077  # a route does not depend on the port
SECRET = "spark.authenticate.secret"
ENCRYPTION = {
    "spark.authenticate": "true",
    # Messages and shuffled rows between the driver and executors, then what executors write to their disks.
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}


def network_settings(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The network settings of a driver, under those that its connection has.

    Args:
        master: The Spark master, such as `local[2]` or `spark://HOST:7077`.
        settings: The Spark settings of the connection. With SECRET, the driver authenticates and encrypts.

    Raises:
        BadInput: No machine has the name of the master's host.
    """
    host = settings["spark.driver.host"] if "spark.driver.host" in settings else driver_host(master)
    result = {"spark.driver.host": host, "spark.driver.bindAddress": "127.0.0.1" if host in LOOPBACK else host}
    return result | (ENCRYPTION if SECRET in settings else {}) | dict(settings)


def driver_host(master: str) -> str:
    """The address under which the executors of a master reach a driver in this process.

    Raises:
        BadInput: No machine has the name of the master's host.
    """
    if match := _MASTER.match(master):
        address = _route(match[1], int(match[2] or _ANY_PORT))
    else:  # YARN names its machines in files of its own
        address = socket.getfqdn() if master.startswith("yarn") else LOOPBACK[0]
    return LOOPBACK[0] if address.startswith("127.") else address


def _route(host: str, port: int) -> str:
    """The address of this machine from which packets to a host leave. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))
        except OSError as error:
            raise BadInput(f"no route to the Spark master on {host}: {error.strerror}") from None
        return probe.getsockname()[0]
