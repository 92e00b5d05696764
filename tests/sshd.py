"""A real SSH server, `sshd`, on loopback. Its host key, its login key and its settings lie in one folder."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

from tests.waiting import wait_for

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
PATIENCE = 30
SETTINGS = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/login_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
Subsystem sftp internal-sftp
SetEnv XDG_CACHE_HOME={folder}/cache LOCKSTEP_HOST_LOCK={folder}/host.lock
"""


class Sshd:
    """The server, as long as the block runs. `connection` is the Airflow connection to it."""

    def __init__(self, folder: Path, most_bytes: int | None = None):
        """Write keys and settings.

        Args:
            folder: A new folder.
            most_bytes: The kernel kills each of the server's processes that writes a longer file.
        """
        self.folder = folder
        self._prefix = [] if most_bytes is None else ["prlimit", f"--fsize={most_bytes}"]
        folder.mkdir()
        for name in ("host_key", "login_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (folder / "sshd_config").write_text(SETTINGS.format(port=self.port, folder=folder))
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> Sshd:
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # where sshd gives up its privileges
        assert SSHD is not None
        self._process = subprocess.Popen(
            [*self._prefix, SSHD, "-D", "-e", "-f", self.folder / "sshd_config"],
            stdin=subprocess.DEVNULL,
            stderr=open(self.folder / "log", "wb"),
            start_new_session=True,
        )
        wait_for(self._answers, PATIENCE)
        return self

    def __exit__(self, *failure: object) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def connection(self, **extra: Any) -> dict[str, Any]:
        """An Airflow connection to the server, with these fields in its extra."""
        host_key = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        return {
            "conn_type": "ssh",
            "host": "127.0.0.1",
            "port": self.port,
            "login": getpass.getuser(),
            "extra": {"key_file": str(self.folder / "login_key"), "host_key": host_key, **extra},
        }
