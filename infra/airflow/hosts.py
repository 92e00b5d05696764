"""The hosts that run cells: this machine, or another one through SSH. An Airflow connection names each host.

This machine runs cells from this checkout. Another machine runs them from a copy of this checkout, which Lockstep
ships there as a wheel (infra/hosts/shipment.py). Workloads go there, and results come back, over the same connection
(infra/hosts/transfer.py), unless the host mounts LOCKSTEP_HOME. The extra of the connection, which is JSON, may set

    folder           the folder for builds, packages and data        default: ~/.cache/lockstep
    python           the interpreter; `lockstep hosts --install`
                     makes the environment of cells with it          default: this one, or python3
    wrapper          words before the engine's command, a list       default: none
    lockstep_home    LOCKSTEP_HOME as that host mounts it            default: no mount
    patience         seconds without a connection after which
                     the host is lost                                default: 300

`python -m infra.airflow.hosts [--install] CONNECTION...` looks at hosts without a run, and first installs the packages
of the engine there. The last line of its output is a JSON list of preflights; the lines before it, on stderr, tell of
its progress. Exit code 2 means that a connection is missing or of another type.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from infra.airflow import connections
from infra.checkout import ROOT
from streaming_core.errors import BadInput, line_of
from streaming_core.process import Process, ending
from streaming_core.regression.home import Home
from streaming_core.regression.preflight import Preflight

if TYPE_CHECKING:
    from paramiko import SSHClient

    from infra.hosts.build import Build
    from infra.hosts.shipment import Delivery
    from infra.hosts.transfer import Remote

INSTALL = "--install"
LOST = 75
PATIENCE_SECONDS = 300
LEASE_SECONDS = 60  # beyond the patience
DRIVER = Path("infra", "hosts", "cell.py")  # in the checkout, and in a build
FOLDER = "~/.cache/lockstep"
DATA = "data"  # below the folder on a host that does not mount LOCKSTEP_HOME
LONGEST_PAUSE = 15.0  # seconds between two tries to connect
MOST_CUTS = 50  # of connections during one piece of work
REACH = "check that it is up, and the address, login and keys of the connection"


T = TypeVar("T")


class HostLost(ConnectionError):
    """The connection to a host, or the host itself, is lost."""


class HostCut(HostLost):
    """The connection to a host broke after it was there."""


class Host(BaseHook):
    """Runs attempts at cells on the machine that an Airflow connection names."""

    default_python = sys.executable
    interpreter: str  # the interpreter for cells on the host
    driver: str  # the path of cell.py on the host

    def __init__(self, conn_id: str, home: Home):
        super().__init__()
        self.connection: Connection = self.get_connection(conn_id)
        self.home = home
        extra = self.connection.extra_dejson
        self.python = extra.get("python") or self.default_python
        self.wrapper = extra.get("wrapper", [])
        self.folder = extra.get("folder", FOLDER)
        if not isinstance(self.wrapper, list) or not all(isinstance(word, str) for word in self.wrapper):
            raise BadInput(
                f"wrapper must be a list of words, got {self.wrapper!r}: set it in the extra of the connection"
            )

    @classmethod
    def of(cls, conn_id: str, home: Home) -> Host:
        """The host of a connection: another machine if its type is ssh, else this machine."""
        kind = BaseHook.get_connection(conn_id).conn_type
        return (SshHost if kind == "ssh" else LocalHost)(conn_id, home)

    def command(self, attempt: Path, workload: Path, timeout: float) -> list[str]:
        """The command on the host that runs an attempt, or waits for it if it already runs.

        Its exit code is the engine's, or LOST if the attempt ended without a result.

        Args:
            attempt: Folder of the attempt.
            workload: Folder of the workload.
            timeout: Seconds after which the engine is killed.
        """
        command = [self.interpreter, self.driver, "run", self.path(attempt), "--input", self.path(workload)]
        return [*command, "--wrapper", json.dumps(self.wrapper), "--timeout", str(timeout)]

    def stop_command(self, attempt: Path) -> list[str]:
        """The command on the host that ends the attempt's process group."""
        return [self.interpreter, self.driver, "stop", self.path(attempt)]

    def preflight(self) -> Preflight:
        """Look at the host, and bring it the build of its cells. A host that cannot be reached has a reason, too.

        Raises:
            BadInput: The connection is not valid, or the build does not fit the host.
        """
        raise NotImplementedError

    def path(self, path: Path) -> str:
        """A path below LOCKSTEP_HOME, on the host."""
        return str(path)


class LocalHost(Host):
    """This machine: the engine ends with the task."""

    driver = str(ROOT / DRIVER)

    def __init__(self, conn_id: str, home: Home):
        super().__init__(conn_id, home)
        self.interpreter = self.python
        self._process = Process()

    def preflight(self) -> Preflight:
        """Check the host, and say whether it can run cells."""
        from infra.hosts.judgement import this_machine

        return this_machine(self.home, self.connection.conn_id)

    def run(self, attempt: Path, workload: Path, timeout: float, say: Callable[[str], None]) -> int:
        """Run an attempt, and pass the lines of its output to `say`; returns the exit code of `command`."""
        command = self.command(attempt, workload, timeout)
        # The tether ends the engine even if this process is killed.
        code = self._process.run([*command, "--tether"], say, folder=ROOT, tether=True)
        # A negative code means that the driver itself was killed, so the attempt has no result.
        return LOST if code < 0 else code

    def stop(self) -> None:
        """End the process group of the attempt that runs."""
        self._process.kill()


class SshHost(Host):
    """Another machine. The engine survives a lost connection, and a second call of `command` waits for it."""

    default_python = "python3"

    @property
    def patience(self) -> float:
        """Seconds without a connection after which the host is lost."""
        return float(self.connection.extra_dejson.get("patience", PATIENCE_SECONDS))

    def command(self, attempt: Path, workload: Path, timeout: float) -> list[str]:
        """The command line on the host that runs an attempt, or waits for one that runs."""
        # A lane that has lost this host gives its cell to another one. The engine stops a little later.
        return [*super().command(attempt, workload, timeout), "--lease", str(self.patience + LEASE_SECONDS)]

    @property
    def mount(self) -> str | None:
        """LOCKSTEP_HOME as the host mounts it; None if it does not."""
        return self.connection.extra_dejson.get("lockstep_home")

    @cached_property
    def delivery(self) -> Delivery:
        """The build on the host. Brings it there if the host lacks it.

        Raises:
            HostLost: The host cannot be reached.
            BadInput: The build does not fit the host.
        """
        return self._over(self.deliver)

    @property
    def root(self) -> PurePosixPath:
        """The folder for builds, packages and data, on the host."""
        return self.delivery.folder.parent.parent

    @property
    def interpreter(self) -> str:  # type: ignore[override]
        """The interpreter for cells: that of the installed environment, else that of the connection."""
        return self.delivery.host["environment"] or self.python

    @property
    def driver(self) -> str:  # type: ignore[override]
        """The path of cell.py on the host, in the build."""
        return str(self.delivery.folder / DRIVER)

    def install(self, say: Callable[[str], None]) -> None:
        """Bring the packages of the engine to the host, and make an environment of them there.

        Args:
            say: Takes a line about each step.

        Raises:
            HostLost: The host was out of reach for `patience` seconds.
            BadInput: The host cannot have them. One line with the remedy.
        """
        from infra.hosts import packages
        from infra.hosts.shipment import ask

        wheels = packages.packages(self.home)
        packages.check(wheels, self.delivery.host)
        digest = wheels.folder.name
        self._patiently(lambda remote: remote.send(wheels.folder, self.root / "packages" / digest), say)
        program = str(self.delivery.folder / "infra" / "hosts" / "environment.py")
        command = [self.python, program, str(self.root), digest]
        answer, reason = self._over(lambda client: ask(client, command))
        if problem := answer.get("error") or (not answer and reason):
            raise BadInput(f"the environment cannot be made there: {problem}")
        self.delivery.host["environment"] = answer["python"]
        say(f"made the environment of {answer['python']}")

    def path(self, path: Path) -> str:
        """A path below LOCKSTEP_HOME, on the host: in its mount, or in its own folder of data."""
        root = PurePosixPath(self.mount) if self.mount else self.root / DATA
        return str(root / path.relative_to(self.home.root))

    def send(self, folders: Sequence[Path], say: Callable[[str], None]) -> None:
        """Send folders below LOCKSTEP_HOME that the host lacks, unless it mounts LOCKSTEP_HOME.

        Args:
            folders: The folders.
            say: Takes a line about each.

        Raises:
            HostLost: The host was out of reach for `patience` seconds.
            BadInput: The host cannot keep them.
        """

        def work(remote: Remote) -> None:
            for folder in folders:
                remote.send(folder, PurePosixPath(self.path(folder)))

        if not self.mount:
            self._patiently(work, say)

    def fetch(self, attempt: Path, say: Callable[[str], None]) -> None:
        """Fetch the folder of an attempt that has ended, unless the host mounts LOCKSTEP_HOME. Raises as `send`."""
        if not self.mount:
            self._patiently(lambda remote: remote.fetch(PurePosixPath(self.path(attempt)), attempt), say)

    def _patiently(self, work: Callable[[Remote], None], say: Callable[[str], None]) -> None:
        """Work with folders of the host, and go on after a cut. The host may be out of reach for `patience` seconds."""
        from infra.hosts.transfer import Remote

        build = self.delivery.folder
        self._over(lambda client: work(Remote(client, self.python, build, say)), self.patience, say)

    def _over(
        self, work: Callable[[SSHClient], T], patience: float = 0.0, say: Callable[[str], None] = lambda line: None
    ) -> T:
        """Do some work over a connection, and again if it breaks.

        Args:
            work: The work, which may begin anew at any time.
            patience: Seconds that the host may be out of reach.
            say: Takes a line about each loss.

        Raises:
            HostLost: The host was out of reach for so long, or the connection broke MOST_CUTS times.
        """
        cuts, lost_at, pause = 0, None, 1.0
        while True:
            try:
                with self.connect() as client:
                    return work(client)
            except HostCut as error:
                cuts, lost_at, pause = cuts + 1, None, 1.0
                if cuts == MOST_CUTS:
                    raise
                say(f"{error}; connecting again")
            except HostLost as error:
                now = time.monotonic()
                lost_at = now if lost_at is None else lost_at
                if now >= lost_at + patience:
                    raise
                say(f"{error}; connecting again for {patience:.0f} s")
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE, max(1.0, patience / 4))

    def preflight(self) -> Preflight:
        """Check the host, and say whether it can run cells."""
        from infra.hosts import machine
        from infra.hosts.judgement import is_token_here, judge, token
        from infra.hosts.shipment import ask

        host = self.connection.conn_id
        try:
            with token(self.home) as folder:
                self.delivery = delivery = self._over(self.deliver)
                program = delivery.folder / Path(machine.__file__).relative_to(ROOT)
                command = [self.interpreter, str(program), self.path(self.home.root)]
                command += [self.path(folder)] if self.mount else []
                answer, reason = self._over(lambda client: ask(client, command))
                if not answer:
                    raise BadInput(f"`{shlex.join(command[:2])}` fails on it: {reason}")
                is_shared = not self.mount or is_token_here(folder)
        except HostLost as error:
            return Preflight(host, f"{error}; {REACH}")
        return judge(host, answer, delivery.folder.name, delivery.skew_seconds, is_shared)

    def deliver(self, client: SSHClient, build: Build | None = None) -> Delivery:
        """Bring a build to the host, if it lacks it; by default that of this checkout."""
        from infra.hosts import shipment, wheel
        from infra.hosts.build import checkout

        builds = f"{self.folder}/builds"
        return shipment.deliver(client, self.python, builds, wheel.wheel_of(build or checkout(), self.home))

    @contextmanager
    def connect(self) -> Iterator[SSHClient]:
        """A connection to the host.

        Raises:
            HostLost: There is no connection.
            HostCut: It breaks within the block.
            BadInput: The fields of the connection are not valid.
        """
        from airflow.providers.ssh.hooks.ssh import SSHHook

        try:
            hook = SSHHook(ssh_conn_id=self.connection.conn_id, keepalive_interval=15)
        except (AirflowException, ValueError, self._ssh_error()) as error:
            raise BadInput(f"its connection is not valid: {line_of(error)}") from None
        lost = f"lost the SSH connection to {self.connection.host}"
        try:
            client = hook.get_conn()
        except (OSError, EOFError, self._ssh_error()) as error:
            if "not found in known_hosts" in str(error):
                login = f"ssh -p {hook.port} {hook.username}@{hook.remote_host}"
                raise BadInput(f"its key is unknown; connect once with `{login}` and accept the key") from None
            raise HostLost(f"{lost}: {line_of(error)}") from error
        try:
            with client:
                yield client
        except HostLost:
            raise
        except (OSError, EOFError, self._ssh_error()) as error:
            raise HostCut(f"{lost}: {line_of(error)}") from error

    @staticmethod
    def _ssh_error() -> type[Exception]:
        from paramiko import SSHException

        return SSHException


def preflight(conn_id: str, home: Home, installs: bool = False, say: Callable[[str], None] = print) -> Preflight:
    """Look at the host of a connection before a run, and bring it the build of its cells.

    Args:
        conn_id: The id of the connection, which exists.
        home: LOCKSTEP_HOME.
        installs: Whether another machine gets the packages of the engine first.
        say: Takes a line about each step of that.

    Returns:
        The facts of the host. `reason` is None if it can run cells.
    """
    try:
        host = Host.of(conn_id, home)
        if installs and isinstance(host, SshHost):
            host.install(say)
        return host.preflight()
    except HostLost as error:
        return Preflight(conn_id, f"{error}; {REACH}")
    except BadInput as error:
        return Preflight(conn_id, str(error))


def type_of(conn_id: str) -> str | None:
    """The type of a connection; None if Airflow has none with this name."""
    try:
        return BaseHook.get_connection(conn_id).conn_type
    except AirflowNotFoundException:
        return None


def is_lost(attempt: Path, code: int) -> bool:
    """Whether an attempt that ended with this exit code of `Host.command` has no result."""
    # A remote shell may report a signal that ended the command as 128 and the signal's number.
    return code == LOST or (code > 128 and not (attempt / "exit.json").exists())


def main() -> int:
    """Check the names on the command line, then look at each host."""
    from infra import checkout

    names = [name for name in sys.argv[1:] if name != INSTALL]
    for name in names:
        connections.check({"hosts": [name]}, type_of, ["hosts"])

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    preflights = [preflight(name, checkout.home(), INSTALL in sys.argv, say) for name in names]
    print(json.dumps([asdict(host) for host in preflights]))
    return 0


if __name__ == "__main__":
    ending.end("hosts", main)
