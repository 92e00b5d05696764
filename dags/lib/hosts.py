"""The hosts that run cells: this machine, or another one through SSH. An Airflow connection names each host.

The extra of the connection, which is JSON, may set paths on that host:

    checkout         the checkout                             default: the same path as here
    python           interpreter of infra/services/cell.py    default: this one, or <checkout>/.venv/bin/python
    command          the engine's command, a list             default: streaming-core in the interpreter's folder
    lockstep_home    LOCKSTEP_HOME                            default: the same path as here (a shared mount)
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from socket import gethostname
from typing import Any

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from infra.airflow import connections
from infra.checkout import ROOT
from infra.services.process import Process
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home

LOST = 75


class HostLost(ConnectionError):
    """The connection to a host, or the host itself, is lost. The attempt may still run there."""


class AttemptLost(ConnectionError):
    """An attempt ended without a result, for example because its host was preempted. The caller may make a new one."""


class Host(BaseHook):
    """Runs attempts at cells on the machine that an Airflow connection names."""

    def __init__(self, conn_id: str, home: Home):
        super().__init__()
        self.connection: Connection = self.get_connection(conn_id)
        self.home = home
        extra = self.connection.extra_dejson
        checkout = extra.get("checkout", str(ROOT))
        self.python = extra.get("python", self.default_python(checkout))
        self.driver = str(PurePosixPath(checkout) / "infra" / "services" / "cell.py")
        self.engine = extra.get("command", [str(PurePosixPath(self.python).parent / "streaming-core")])
        self.remote_home = extra.get("lockstep_home", str(home.root))

    @classmethod
    def of(cls, conn_id: str, home: Home) -> Host:
        """The host of a connection: another machine if its type is ssh, else this machine."""
        kind = BaseHook.get_connection(conn_id).conn_type
        return (SshHost if kind == "ssh" else LocalHost)(conn_id, home)

    def default_python(self, checkout: str) -> str:
        """The interpreter on this kind of host."""
        raise NotImplementedError

    def run(self, attempt: Path, workload: Path, timeout: float, say: Callable[[str], None]) -> int:
        """Run an attempt, or wait for it if it already runs.

        Args:
            attempt: Folder of the attempt.
            workload: Folder of the workload.
            timeout: Seconds after which the engine is killed.
            say: Takes the lines of the engine's output.

        Returns:
            The exit code of the engine.

        Raises:
            HostLost: The connection broke. A second call with the same attempt waits for the same engine.
            AttemptLost: The attempt ended without a result.
        """
        command = [self.python, self.driver, "run", self.path(attempt), "--input", self.path(workload)]
        command += ["--command", json.dumps(self.engine), "--timeout", str(timeout)]
        code = self._run(command, say)
        if code == LOST:
            raise AttemptLost(f"{attempt.parent.name} {attempt.name} ended without a result: its process is gone")
        return code

    def check(self) -> None:
        """Check that the host can run a cell.

        Raises:
            HostLost: The host cannot be reached.
            BadInput: The driver does not run on the host.
        """

    def path(self, path: Path) -> str:
        """A path below LOCKSTEP_HOME, on the host."""
        return str(PurePosixPath(self.remote_home) / path.relative_to(self.home.root))

    def stop(self, attempt: Path) -> None:
        """End the attempt's process group on the host."""
        raise NotImplementedError

    def _run(self, command: list[str], say: Callable[[str], None]) -> int:
        raise NotImplementedError


class LocalHost(Host):
    """This machine: the engine ends with the task."""

    def __init__(self, conn_id: str, home: Home):
        super().__init__(conn_id, home)
        self._process = Process()

    def default_python(self, checkout: str) -> str:
        return sys.executable

    def _run(self, command: list[str], say: Callable[[str], None]) -> int:
        # The tether ends the engine even if this process is killed.
        code = self._process.run([*command, "--tether"], say, folder=ROOT, tether=True)
        # A negative code means that the driver itself was killed, so the attempt has no result.
        return LOST if code < 0 else code

    def stop(self, attempt: Path) -> None:
        self._process.kill()


class SshHost(Host):
    """Another machine. The engine survives a lost connection, and a second call waits for it."""

    def default_python(self, checkout: str) -> str:
        return str(PurePosixPath(checkout) / ".venv" / "bin" / "python")

    def _run(self, command: list[str], say: Callable[[str], None]) -> int:
        # A remote shell reads the line, so every word is quoted. All values from forms are checked before.
        line = shlex.join(command)
        try:
            with self._connect() as client:
                channel = client.get_transport().open_session()
                channel.set_combine_stderr(True)
                channel.exec_command(line)
                with channel.makefile("r") as lines:
                    for text in lines:
                        say(text.rstrip())
                code = channel.recv_exit_status()
        except (OSError, EOFError, self._ssh_error()) as error:
            raise HostLost(f"lost the SSH connection to {self.connection.host}: {error}") from error
        if code < 0:
            raise HostLost(f"the SSH connection to {self.connection.host} ended before the cell did")
        return code

    def check(self) -> None:
        last: list[str] = []
        if self._run([self.python, self.driver, "--help"], lambda line: last.append(line)):
            reason = last[-1] if last else "it printed nothing"
            raise BadInput(
                f"`{self.python} {self.driver} --help` fails on it: {reason}. "
                "Set checkout and python in the extra of the connection"
            )

    def stop(self, attempt: Path) -> None:
        line = shlex.join([self.python, self.driver, "stop", self.path(attempt)])
        with self._connect() as client:
            _, output, _ = client.exec_command(line)
            output.channel.recv_exit_status()

    def _connect(self):
        from airflow.providers.ssh.hooks.ssh import SSHHook

        return SSHHook(ssh_conn_id=self.connection.conn_id, keepalive_interval=15).get_conn()

    @staticmethod
    def _ssh_error() -> type[Exception]:
        from paramiko import SSHException

        return SSHException


def check(params: Mapping[str, Any], home: Home) -> None:
    """Check that the connections of a run exist and fit, and that its host can run cells.

    Raises:
        BadInput: One line on the first fault.
    """
    connections.check(params, type_of)
    host = params["host"]
    try:
        Host.of(host, home).check()
    except (HostLost, BadInput) as error:
        raise BadInput(f"host {host} cannot run cells: {error}") from None


def type_of(conn_id: str) -> str | None:
    """The type of a connection; None if Airflow has none with this name."""
    try:
        return BaseHook.get_connection(conn_id).conn_type
    except AirflowNotFoundException:
        return None


def name(host: str, home: Home) -> str:
    """The host name of a connection's machine; empty if the connection has none."""
    machine = Host.of(host, home)
    return machine.connection.host or "" if isinstance(machine, SshHost) else gethostname()


def next_attempt(folder: Path) -> Path:
    """The folder of the attempt to run now: the last one if it has not ended, else a new one."""
    attempts = [path for path in folder.glob("attempt-[0-9]*") if path.is_dir()]
    numbers = sorted(int(path.name.removeprefix("attempt-")) for path in attempts)
    if numbers:
        last = folder / f"attempt-{numbers[-1]}"
        if not (last / "exit.json").exists() and not _lost(last).exists():
            return last
    return folder / f"attempt-{(numbers[-1] if numbers else 0) + 1}"


def abandon(attempt: Path) -> None:
    """Record that an attempt was lost, so that the next try makes a new one."""
    _lost(attempt).write_text(time.strftime("%Y-%m-%dT%H:%M:%SZ\n", time.gmtime()))


def _lost(attempt: Path) -> Path:
    return attempt.with_name(f"{attempt.name}.lost")
