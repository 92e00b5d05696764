"""Real SSH servers on loopback. Each one stands for a host that runs cells."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.support.sshd import Sshd


class Node(Sshd):
    """A host with a lock and an environment of its own, which can lose its connections and its power."""

    def __init__(self, folder: Path, environment: Mapping[str, str]):
        """Start it; the arguments are those of Sshd."""
        super().__init__(folder, environment)
        self.__enter__()

    def connection(self, wrapper: Sequence[str] = (), python: str = sys.executable, **extra: Any) -> dict[str, Any]:
        """The Airflow connection of the host."""
        folder = str(self.folder)
        return super().connection(python=python, wrapper=list(wrapper), folder=folder, patience=5.0, **extra)

    def sessions(self) -> list[psutil.Process]:
        """The processes of its connections, and their children."""
        return self.process.children(recursive=True) if self.process.is_running() else []

    def cut(self) -> None:
        """Break every connection. The processes on the host keep running."""
        for session in self.process.children():
            for process in [session, *session.children()]:
                if "sshd" in process.name():
                    process.kill()

    def engines(self) -> list[psutil.Process]:
        """The drivers of cells on this host, and their engines."""
        own = []
        for process in psutil.process_iter(["pid", "cmdline", "environ"]):
            lock = (process.info["environ"] or {}).get("LOCKSTEP_HOST_LOCK")
            if lock == str(self.folder / "host.lock") and "sshd" not in (process.info["cmdline"] or [""])[0]:
                own.append(process)
        return own

    def kill(self) -> None:
        """End the server, every connection and everything that runs on the host, as a power cut does. Twice is fine."""
        processes = [self.process, *self.sessions(), *self.engines()]
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait()
