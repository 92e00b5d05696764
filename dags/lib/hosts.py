"""Hosts that core runs go to: this machine, or one that is reached through SSH. Named by an Airflow connection.

The connection's extra may hold, as JSON, where things lie on that host:
    checkout         the checkout there                       default: this one
    python           interpreter of infra/services/cell.py       default: this one, or <checkout>/.venv/bin/python
    command          the engine's command, a list             default: streaming-core beside that interpreter
    lockstep_home    LOCKSTEP_HOME as that host sees it       default: the same path (a shared mount)
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
    """The connection to a host, or the host itself, is gone; the attempt may still be running there."""


class AttemptLost(ConnectionError):
    """An attempt ended without a trace (its host was preempted, say); a new one may be made."""


class Host(BaseHook):
    """Runs one attempt at a cell on the machine that an Airflow connection names."""

    def __init__(self, conn_id: str, home: Home):
        super().__init__()
        self.connection: Connection = self.get_connection(conn_id)
        self.home = home
        extra = self.connection.extra_dejson
        checkout = extra.get("checkout", str(ROOT))
        self.python = extra.get("python", self.default_python(checkout))
        self.driver = str(PurePosixPath(checkout) / "infra" / "services" / "cell.py")
        self.engine = extra.get("command", [str(PurePosixPath(self.python).parent / "streaming-core")])
        self.there = extra.get("lockstep_home", str(home.root))

    @classmethod
    def of(cls, conn_id: str, home: Home) -> Host:
        """The host behind a connection: SSH when the connection is of that type, else this machine."""
        kind = BaseHook.get_connection(conn_id).conn_type
        return (SshHost if kind == "ssh" else LocalHost)(conn_id, home)

    def default_python(self, checkout: str) -> str:
        """The interpreter on this kind of host."""
        raise NotImplementedError

    def run(self, attempt: Path, workload: Path, timeout: float, say: Callable[[str], None]) -> int:
        """Runs an attempt, or joins it where it goes on already; returns the engine's exit code.

        Raises:
            HostLost: the connection broke. Calling again with the same attempt finds it.
            AttemptLost: the attempt ended without a trace.
        """
        command = [self.python, self.driver, "run", self.path(attempt), "--input", self.path(workload)]
        command += ["--command", json.dumps(self.engine), "--timeout", str(timeout)]
        code = self._run(command, say)
        if code == LOST:
            raise AttemptLost(f"{attempt.parent.name} {attempt.name} ended without a trace")
        return code

    def check(self) -> None:
        """Sees to it that an attempt could be made there.

        Raises:
            HostLost: there is no way there.
            BadInput: nothing to run it with is there.
        """

    def path(self, path: Path) -> str:
        """A path below LOCKSTEP_HOME as the host sees it."""
        return str(PurePosixPath(self.there) / path.relative_to(self.home.root))

    def stop(self, attempt: Path) -> None:
        """Ends the attempt's process group on the host."""
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
        # The tether ends the engine even when this process is killed outright.
        code = self._process.run([*command, "--tether"], say, folder=ROOT, tether=True)
        # Its driver says how a run ended, unless it was killed itself.
        return LOST if code < 0 else code

    def stop(self, attempt: Path) -> None:
        self._process.kill()


class SshHost(Host):
    """Another machine. The engine outlives a lost connection, and a second call joins it."""

    def default_python(self, checkout: str) -> str:
        return str(PurePosixPath(checkout) / ".venv" / "bin" / "python")

    def _run(self, command: list[str], say: Callable[[str], None]) -> int:
        # A remote shell reads the line, so every word is quoted; none of them comes from a form unchecked anyway.
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
            raise HostLost(f"lost the connection to {self.connection.host}: {error}") from error
        if code < 0:
            raise HostLost(f"the connection to {self.connection.host} ended before the run did")
        return code

    def check(self) -> None:
        last: list[str] = []
        if self._run([self.python, self.driver, "--help"], lambda line: last.append(line)):
            raise BadInput(f"{self.python} {self.driver} does not run there: {last[-1] if last else 'no word'}")

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
    """Check the connections that a run names, and that its host can run cells.

    Raises:
        BadInput: one line on what is wrong.
    """
    connections.check(params, _type_of)
    host = params["host"]
    try:
        Host.of(host, home).check()
    except (HostLost, BadInput) as error:
        raise BadInput(f"no cell can be run on host {host}: {error}") from None


def _type_of(conn_id: str) -> str | None:
    try:
        return BaseHook.get_connection(conn_id).conn_type
    except AirflowNotFoundException:
        return None


def name(host: str, home: Home) -> str:
    """What the machine behind a connection calls itself, as far as that is known from here."""
    behind = Host.of(host, home)
    return behind.connection.host or "" if isinstance(behind, SshHost) else gethostname()


def next_attempt(folder: Path) -> Path:
    """The attempt to run now: the last one while nothing says that it is over, else a new one."""
    found = [path for path in folder.glob("attempt-[0-9]*") if path.is_dir()]
    numbers = sorted(int(path.name.removeprefix("attempt-")) for path in found)
    if numbers:
        last = folder / f"attempt-{numbers[-1]}"
        if not (last / "exit.json").exists() and not _lost(last).exists():
            return last
    return folder / f"attempt-{(numbers[-1] if numbers else 0) + 1}"


def abandon(attempt: Path) -> None:
    """Notes that an attempt was lost, so that the next try makes a new one."""
    _lost(attempt).write_text(time.strftime("%Y-%m-%dT%H:%M:%SZ\n", time.gmtime()))


def _lost(attempt: Path) -> Path:
    return attempt.with_name(f"{attempt.name}.lost")
