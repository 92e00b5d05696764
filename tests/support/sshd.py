"""A real SSH server, `sshd`, on loopback. One folder holds its keys, settings, log and host lock."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.e2e.scheduled import free_port
from tests.support.programs import require
from tests.support.waiting import wait_for

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
SetEnv {environment}
"""


class Sshd:
    """The server, as long as the block runs. `connection` is the Airflow connection to it."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None):
        """Write keys and settings into a new folder. Its commands have an environment beside that of a login."""
        self.folder, self.port, self._program = folder, free_port(), require("openssh-server")
        folder.mkdir()
        for name in ("host_key", "login_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        variables = {"XDG_CACHE_HOME": folder / "cache"} if environment is None else dict(environment)
        variables["LOCKSTEP_HOST_LOCK"] = folder / "host.lock"
        text = " ".join(f'"{name}={value}"' for name, value in variables.items())
        (folder / "sshd_config").write_text(SETTINGS.format(port=self.port, folder=folder, environment=text))

    def __enter__(self) -> Sshd:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where sshd gives up its privileges
        with open(self.folder / "log", "ab") as log:
            command = [self._program, "-D", "-e", "-f", str(self.folder / "sshd_config")]
            self.process = psutil.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        log = self.folder / "log"
        wait_for(lambda: "Server listening" in log.read_text() or self.process.poll() is not None, PATIENCE)
        assert self.process.poll() is None, log.read_text()
        return self

    def __exit__(self, *failure: object) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def connection(self, **extra: Any) -> dict[str, Any]:
        """An Airflow connection to the server, with these fields in its extra."""
        host_key = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        extra = {"key_file": str(self.folder / "login_key"), "host_key": host_key, **extra}
        address = {"conn_type": "ssh", "host": "127.0.0.1", "port": self.port, "login": getpass.getuser()}
        return address | {"extra": extra}
