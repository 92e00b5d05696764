"""Real SSH servers on loopback. Each one stands for a host that runs cells."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from infra.stack.folder import SSHD
from tests.waiting import wait_for

PATIENCE = 30


class Node:
    """An sshd with a key, a lock and an environment of its own."""

    def __init__(self, folder: Path, port: int, environment: dict[str, str]):
        """Start it.

        Args:
            folder: of its keys, its configuration and its lock.
            port: where it listens on loopback.
            environment: what its commands have beside the environment of a login.
        """
        self.folder, self.port = folder, port
        folder.mkdir(parents=True)
        for name in ("host_key", "client_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
            subprocess.run(command, check=True)
        environment = {**environment, "LOCKSTEP_HOST_LOCK": str(folder / "host.lock")}
        lines = [
            "ListenAddress 127.0.0.1",
            f"Port {port}",
            f"HostKey {folder / 'host_key'}",
            f"AuthorizedKeysFile {folder / 'client_key.pub'}",
            "AuthenticationMethods publickey",
            "PermitRootLogin prohibit-password",
            "StrictModes no",
            "UsePAM no",
            "PidFile none",
            "Subsystem sftp internal-sftp",
            "SetEnv " + " ".join(f'"{name}={value}"' for name, value in environment.items()),
        ]
        (folder / "sshd_config").write_text("\n".join([*lines, ""]))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self._log = folder / "sshd.log"
        self.start()

    def start(self) -> None:
        with open(self._log, "ab") as log:
            command = [str(SSHD), "-D", "-e", "-f", str(self.folder / "sshd_config")]
            self.process = psutil.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(lambda: "Server listening" in self._log.read_text() or self.process.poll() is not None, PATIENCE)
        assert self.process.poll() is None, self._log.read_text()

    def connection(self, wrapper: Sequence[str], patience: float, python: str = sys.executable) -> str:
        """The Airflow connection of the host, as JSON."""
        key = (self.folder / "host_key.pub").read_text().split()
        extra = {"key_file": str(self.folder / "client_key"), "host_key": " ".join(key[:2]), "python": python}
        extra |= {"wrapper": list(wrapper), "builds": str(self.folder / "builds"), "patience": patience}
        login = pwd.getpwuid(os.geteuid()).pw_name
        connection = {"conn_type": "ssh", "host": "127.0.0.1", "port": self.port, "login": login, "extra": extra}
        return json.dumps(connection)

    def sessions(self) -> list[psutil.Process]:
        """The processes of its connections, and what they run."""
        return self.process.children(recursive=True) if self.process.is_running() else []

    def cut(self) -> None:
        """Break every connection. What runs on the host goes on."""
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
