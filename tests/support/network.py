"""Machines of a network: namespaces of this machine's kernel on one switch. They share its file system."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest

from tests.support.programs import require


@dataclass(frozen=True)
class Machine:
    """A network namespace with an address; without a namespace, this machine on loopback."""

    address: str = "127.0.0.1"
    namespace: str = ""

    def command(self, *words: str) -> list[str]:
        """The command that runs a command there."""
        return ["ip", "netns", "exec", self.namespace, *words] if self.namespace else [*words]


@contextmanager
def network(size: int) -> Iterator[list[Machine]]:
    """Make a network of so many machines; skip the test without root. What still runs in one is killed at the end."""
    require("iproute2")
    if os.geteuid():
        pytest.skip("needs root")
    machines = [Machine(f"198.18.0.{number}", f"lockstep-{os.getpid()}-{number}") for number in range(1, size + 1)]
    switch = machines[0].namespace
    try:
        for machine in machines:
            _ip("netns", "add", machine.namespace)
            _ip("-n", machine.namespace, "link", "set", "lo", "up")
        _ip("-n", switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", switch, "address", "add", f"{machines[0].address}/24", "dev", "switch")
        _ip("-n", switch, "link", "set", "switch", "up")
        for machine in machines[1:]:
            port = machine.namespace[-15:]
            _ip(
                "link", "add", port, "netns", switch, "type", "veth", "peer", "name", "eth0", "netns", machine.namespace
            )
            _ip("-n", switch, "link", "set", port, "master", "switch", "up")
            _ip("-n", machine.namespace, "address", "add", f"{machine.address}/24", "dev", "eth0")
            _ip("-n", machine.namespace, "link", "set", "eth0", "up")
        yield machines
    finally:
        for machine in machines:
            with suppress(subprocess.CalledProcessError):  # it was not made
                for pid in _ip("netns", "pids", machine.namespace).split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                _ip("netns", "delete", machine.namespace)


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
