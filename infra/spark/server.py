"""The Spark Connect server of a run, its lease, and the share in LOCKSTEP_HOME that comes with it.

A keeper process shares the lock on LOCKSTEP_HOME, starts the server, and writes its *lease*, which only its user can
read: `spark-scratch/OWNER.json`. Each server has a port and a scratch folder of its own, so several runs go on at once.
The lease holds the owner, the server's URL and token, and the keeper's host and process. Every process that shares
LOCKSTEP_HOME can read it, also on other machines. The server needs seconds until it listens, so a client waits for it
(`client_lease`), and others go on.

- The keeper renews the lease every HEARTBEAT_SECONDS: it sets the file's time. A lease whose time is older than
  EXPIRES_SECONDS has expired. So the clocks of all machines must agree within a minute.
- A reader on the keeper's machine also looks whether the keeper runs. A reader elsewhere trusts the time alone.
- To stop the server, any process removes the lease. A keeper that could not renew its lease in time ends as well,
  because another one may have the run by then.
- While the server starts, the keeper shares the lock on its host, so a measurement there is over.
- The keeper also ends after a signal, when the server dies, or when the process that needs the server is gone. The
  kernel then releases the lock, so a run that dies leaves no lock behind.

The keeper of a run that uses another server starts none. It only holds the lock and the lease.

A *shared* server outlives its run, and later runs save the start of a JVM. A keeper of its own holds no lock, so
commands that need LOCKSTEP_HOME alone do not wait for it. It ends when no lease has referred to it for `idle` seconds.
Python processes of a server keep the modules that they imported. So its lease has a digest over the code, beside the
master and all settings, and runs of other code do not use it. Its environment is that of the run that started it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import quote

from infra.checkout import ROOT, home
from jobs.driver import LOOPBACK, network_settings
from streaming_core.errors import BadInput, RunFailed
from streaming_core.process import Noted, alive, identity, signal_group, start
from streaming_core.regression.home import Home
from streaming_core.regression.lock import SharedLock, hold, of_home, of_host
from streaming_core.storage import below, digest_of, write_text

SERVER_SETTINGS = ROOT / "infra" / "spark" / "server.conf"
SESSION_SETTINGS = ROOT / "infra" / "spark" / "session.conf"
START_SECONDS = 120
STOP_SECONDS = 20
STOP_ELSEWHERE_SECONDS = 150  # a keeper on another machine may see only its next heartbeat fail
PATIENCE = 6 * 3600.0  # seconds, of a run that waits for LOCKSTEP_HOME or the host
HEARTBEAT_SECONDS = 5
EXPIRES_SECONDS = 90
POLL = 0.1
WAITING = "waiting: "
SHARED = "shared-"  # the beginning of the names of shared servers
HOST = r"[A-Za-z0-9][A-Za-z0-9.-]*"


class _NotNeeded(Exception):
    """Nothing needs the server any more."""


class ServerLost(ConnectionError):
    """The run's Spark server is gone. The caller may start another one and try again."""


@dataclass(frozen=True)
class Lease:
    """The right of `owner` to a server, as its keeper renews it.

    Attributes:
        owner: The run, or the other work, that the server is for.
        url: `sc://HOST:PORT`; empty if the keeper started no server.
        token: The token that the server asks for.
        host: The keeper's host name, for people.
        machine: The keeper's machine: `pid` means nothing on another one.
        pid: The keeper.
        started: When the keeper started; see `process.identity`.
        server: The owner of the shared server that the URL names. Empty if the server is the owner's own.
        digest: That of the order, on the lease of a shared server; else empty. Settings may be secret, so it is in no
            name of a file.
    """

    owner: str
    url: str
    token: str
    host: str
    machine: str
    pid: int
    started: int
    server: str = ""
    digest: str = ""

    @property
    def is_here(self) -> bool:
        """Whether the keeper runs on this machine."""
        return self.machine == _machine()

    @property
    def client_url(self) -> str:
        """The URL with the token, for a client. Never put it on a command line or into a log."""
        # Given a token, pyspark encrypts, except to localhost. The server cannot decrypt: Spark Connect has no TLS of
        # its own. So other hosts get the token as the header that it becomes in any case.
        secret = f"token={quote(self.token, safe='')}"
        if not self.url.startswith("sc://localhost:"):
            secret = f"authorization={quote(f'Bearer {self.token}', safe='')}"
        return f"{self.url}/;{secret}"


@dataclass(frozen=True)
class Order:
    """What a keeper does.

    Attributes:
        owner: The name that waiting processes see.
        master: The Spark master of the server. None starts no server.
        settings: All settings of the connection, with those of the network.
        watch: The keeper ends with the process of this id.
        starter: The process that starts the keeper.
        idle: Seconds that a shared server stays without a run; 0 for a server of the owner alone.
        digest: That of code, master and settings, if this keeper is that of a shared server; else empty.
    """

    owner: str
    master: str | None
    settings: dict[str, str]
    watch: int | None
    starter: int
    idle: float = 0.0
    digest: str = ""


class Server:
    """The servers of one LOCKSTEP_HOME, for the processes that start, use and stop them."""

    def __init__(self, home: Home):
        self.home = home

    def lease_path(self, owner: str) -> Path:
        """The file with the lease of `owner`."""
        return below(_scratch(self.home), owner).with_name(f"{owner}.json")

    def log_path(self, owner: str) -> Path:
        """The log of the keeper and the server of `owner`."""
        return self.home.log(f"spark-{owner}")

    def lease(self, owner: str) -> Lease | None:
        """The lease of `owner`; None if it has none, its lease has expired, or its shared server has no lease."""
        lease, age = self._stored(owner)
        if lease is None or age > EXPIRES_SECONDS or (lease.is_here and not alive(asdict(lease))):
            return None
        return lease if not lease.server or self.lease(lease.server) else None

    def _stored(self, owner: str) -> tuple[Lease | None, float]:
        """What the file of a lease holds, and the seconds since its keeper renewed it."""
        try:
            # Opening the file makes NFS ask the server for its time.
            with open(self.lease_path(owner)) as file:
                return Lease(**json.load(file)), time.time() - os.fstat(file.fileno()).st_mtime
        except (OSError, ValueError, TypeError):
            return None, 0.0

    def is_used(self, shared: str) -> bool:
        """Whether a run uses a shared server."""
        leases = (self.lease(path.stem) for path in _scratch(self.home).glob("*.json"))
        return any(lease is not None and lease.server == shared for lease in leases)

    def client_lease(self, owner: str) -> Lease:
        """The lease of `owner`, once its server listens.

        Raises:
            ServerLost: `owner` has no server, or it does not listen in time. The message contains the last line of its
                log.
        """
        deadline = time.monotonic() + START_SECONDS
        while True:
            stored, lease = self._stored(owner)[0], self.lease(owner)
            # The file of a lease stays when its shared server ends.
            log_path = self.log_path(stored.server if stored and stored.server else owner)
            if lease is None or not lease.url:
                raise ServerLost(f"the Spark server of {owner} has ended: {_last_line(log_path)} (log: {log_path})")
            host, _, port = lease.url.removeprefix("sc://").rpartition(":")
            if _listens(host, int(port)):
                return lease
            if time.monotonic() > deadline:
                raise ServerLost(
                    f"the Spark server of {owner} does not listen after {START_SECONDS} s (log: {log_path})"
                )
            time.sleep(POLL)

    def start(
        self,
        owner: str,
        master: str | None = "local[*]",
        settings: Mapping[str, str] | None = None,
        watch: int | None = None,
        say: Callable[[str], None] = lambda line: print(line, flush=True),
        patience: float = PATIENCE,
        idle: float = 0.0,
    ) -> str:
        """Share the lock and start the server, unless `owner` already has one. Returns before the server listens.

        Args:
            owner: The name that waiting processes see.
            master: Spark master of the server. None starts no server, and only shares the lock.
            settings: Spark settings beside those of infra/spark. The server listens on the address of
                `spark.driver.host`, by default the one that executors of the master reach (`jobs/driver.py`).
            watch: The server ends with the process of this id.
            say: Takes a line that names what the start has to wait for: LOCKSTEP_HOME or the host.
            patience: Seconds to wait for it.
            idle: Use a server that runs share, and that stays for so many seconds after its last run. 0 starts one for
                `owner` alone.

        Returns:
            The URL of the server; empty without a server.

        Raises:
            BadInput: `spark.driver.host` is not a host name, or nothing has the name of the master's host.
            ServerLost: The keeper ended, or wrote no lease within `patience`. The message names its log.
            RunFailed: LOCKSTEP_HOME or the host was not free within `patience`.
        """
        if lease := self.lease(owner):
            return lease.url
        settings = network_settings(master, settings or {}) if master else {}
        host = settings.get("spark.driver.host", LOOPBACK[0])
        if not re.fullmatch(HOST, host):
            raise BadInput(f"spark.driver.host {host!r} is not a host name, such as spark.example")
        return self._keep(Order(owner, master, settings, watch, os.getpid(), idle), say, patience)

    def _keep(self, order: Order, say: Callable[[str], None], patience: float) -> str:
        """Start a keeper; returns the URL of its server when its lease is written. Raises the errors of `start`."""
        log_path = self.log_path(order.owner)
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with open(log_path, "wb") as log:
            keeper = start(
                [sys.executable, "-m", "infra.spark.server"],
                dies_by=None,
                cwd=ROOT,
                env=dict(os.environ, LOCKSTEP_HOME=str(self.home.root)),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        try:
            # Settings may hold passwords, and other users can read a command line.
            assert keeper.stdin is not None
            with keeper.stdin as arguments_in, suppress(BrokenPipeError):
                arguments_in.write(json.dumps(asdict(order)).encode())
            return self._await(keeper, order.owner, say, patience)
        except BaseException:
            signal_group(keeper.pid, signal.SIGKILL)
            raise

    def share(self, order: Order, say: Callable[[str], None]) -> Lease:
        """The lease of the shared server for an order; starts the server if necessary. Raises the errors of `start`."""
        digest = digest_of([order.master, order.settings, order.idle, _code()])
        leases = [self.lease(path.stem) for path in _scratch(self.home).glob(f"{SHARED}*.json")]
        if lease := next((lease for lease in leases if lease and lease.digest == digest), None):
            return lease
        for idle in leases:  # of earlier code, for example
            if idle and not self.is_used(idle.owner):
                self.stop(idle.owner)
        name = f"{SHARED}{secrets.token_hex(4)}"
        self._keep(replace(order, owner=name, watch=None, starter=os.getpid(), digest=digest), say, PATIENCE)
        if lease := self.lease(name):
            return lease
        raise ServerLost(f"the shared Spark server has ended (log: {self.log_path(name)})")

    def _await(self, keeper: subprocess.Popen, owner: str, say: Callable[[str], None], patience: float) -> str:
        """Wait until the keeper has written the lease."""
        log_path = self.log_path(owner)
        deadline, waits = time.monotonic() + patience, ""
        while True:
            if lease := self.lease(owner):
                return lease.url
            if keeper.poll() is not None:
                raise ServerLost(f"the Spark server did not start: {_last_line(log_path)} (log: {log_path})")
            # The keeper says in its log what it waits for.
            lines = [line for line in log_path.read_text(errors="replace").splitlines() if line.startswith(WAITING)]
            if lines and lines[-1] != waits:
                say(waits := lines[-1])
            if time.monotonic() > deadline:
                if not waits:
                    raise ServerLost(f"the Spark server did not start within {patience:.0f} s (log: {log_path})")
                raise RunFailed(
                    f"{waits.removeprefix(WAITING)}, still after {patience:.0f} s: "
                    "wait until that ends, or stop it, then start the run again"
                )
            time.sleep(POLL)

    def owners(self) -> list[str]:
        """The runs and the commands that have LOCKSTEP_HOME now."""
        return [holder.get("owner", "") for holder in of_home(self.home).holders()]

    def stop(self, owner: str) -> bool:
        """Stop the server of `owner`, which releases its share of the lock; False if `owner` has none.

        Raises:
            RunFailed: The keeper is on another machine, and did not end in time.
        """
        lease = self.lease(owner)
        if lease is None:
            return False
        self.lease_path(owner).unlink(missing_ok=True)
        patience = STOP_SECONDS if lease.is_here else STOP_ELSEWHERE_SECONDS
        deadline = time.monotonic() + patience
        while alive(asdict(lease)) if lease.is_here else owner in self.owners():
            if time.monotonic() > deadline:
                if not lease.is_here:
                    raise RunFailed(
                        f"the Spark server of {owner} did not stop within {patience} s: end process {lease.pid} on "
                        f"{lease.host}"
                    )
                signal_group(lease.pid, signal.SIGKILL)
                break
            time.sleep(POLL)
        return True


def _machine() -> str:
    """Name the set of process ids that this process sees: the boot of a kernel, and a PID namespace in it."""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"


# --- the keeper, a process of its own -------------------------------------------------------------------------------


class Keeper:
    """Shares the lock on LOCKSTEP_HOME for an owner, with a server and its lease, until nothing needs them."""

    def __init__(self, home: Home, order: Order):
        """Prepare the keeper of an order."""
        self.server, self.order = Server(home), order
        self._noted = Noted(signal.SIGTERM, signal.SIGINT)
        self._watched = identity(order.watch) if order.watch else None
        self._process: subprocess.Popen | None = None
        self._lease: Lease | None = None
        self._scratch = below(_scratch(home), f"{order.owner}-{os.getpid()}")

    def run(self) -> int:
        """Share the lock, start the server, renew the lease, stop the server; returns the exit code."""
        order = self.order
        try:
            with nullcontext() if order.digest else self._hold(of_home(self.server.home)):
                try:
                    self._serve()
                finally:
                    self._stop()
        except (OSError, RunFailed) as error:
            print(f"the Spark server of {order.owner} cannot go on: {error}", flush=True)
        except _NotNeeded:
            return 1
        return 0 if self._noted.number else 1

    def _serve(self) -> None:
        _sweep(self.server.home)
        if self.order.master and self.order.idle and not self.order.digest:
            # Two runs that begin at once start one server.
            with self._hold(
                SharedLock(_scratch(self.server.home) / f"{SHARED}lock", "the shared Spark server"), is_shared=False
            ):
                shared = self.server.share(self.order, self._say)
                if not self._is_needed():
                    raise _NotNeeded
                self._grant(shared.url, shared.token, shared.owner)
        elif self.order.master:
            # A start takes all cores, so it waits for a measurement on this host, and later ones wait for it.
            with self._hold(of_host()):
                self._grant(*self._start())
                self._renew(is_over=self._listens)
        else:
            self._grant("", "")
        self._renew()

    def _hold(self, lock: SharedLock, is_shared: bool = True) -> AbstractContextManager[None]:
        def check() -> None:
            if not self._is_needed():
                raise _NotNeeded

        return hold(lock, self.order.owner, shared=is_shared, say=self._say, check=check)

    @staticmethod
    def _say(line: str) -> None:
        print(line, flush=True)

    def _listens(self) -> bool:
        assert self._lease is not None
        host, _, port = self._lease.url.removeprefix("sc://").rpartition(":")
        return _listens(host, int(port))

    @property
    def _lease_path(self) -> Path:
        return self.server.lease_path(self.order.owner)

    def _is_needed(self) -> bool:
        # Until the lease is written, only the process that started the keeper can need it.
        starting = self._lease is not None or os.getppid() == self.order.starter
        running = self._process is None or self._process.poll() is None
        shared = self._lease.server if self._lease else ""
        serving = running and (not shared or self.server.lease(shared) is not None)
        return not self._noted.number and starting and serving and (self._watched is None or alive(self._watched))

    def _start(self) -> tuple[str, str]:
        """Start the server; returns its URL and token."""
        settings = _all_settings(self.server.home, self._scratch, str(self.order.master), self.order.settings)
        host, port = settings["spark.driver.host"], int(settings["spark.connect.grpc.binding.port"])
        self._process = _launch(self._scratch, settings)
        url = f"sc://{LOOPBACK[0] if host in LOOPBACK else host}:{port}"
        return url, settings["spark.connect.authenticate.token"]

    def _grant(self, url: str, token: str, server: str = "") -> None:
        """Write the lease."""
        process: dict = identity(os.getpid())
        self._lease = Lease(
            self.order.owner,
            url,
            token,
            socket.gethostname(),
            _machine(),
            **process,
            server=server,
            digest=self.order.digest,
        )
        write_text(self._lease_path, json.dumps(asdict(self._lease)), mode=0o600)

    def _renew(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Renew the lease until nothing needs the server, `Server.stop` has removed the lease, or `is_over`."""
        renewed = used = time.monotonic()
        while self._is_needed() and self._lease_path.exists() and not is_over():
            age = time.monotonic() - renewed
            if age > EXPIRES_SECONDS:
                print("the lease expired before this process could renew it", flush=True)
                return
            if age > HEARTBEAT_SECONDS:
                os.utime(self._lease_path)  # fails if the lease was removed meanwhile
                renewed = time.monotonic()
                if not self.order.digest or self.server.is_used(self.order.owner):
                    used = renewed
                if renewed - used > self.order.idle:
                    print(f"no run has used this server for {self.order.idle:.0f} s", flush=True)
                    return
            time.sleep(POLL)

    def _stop(self) -> None:
        self._noted.ignore()
        if self._lease is not None and self.server.lease(self.order.owner) == self._lease:
            self._lease_path.unlink(missing_ok=True)
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS / 2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)


def settings_of(path: Path) -> dict[str, str]:
    """The Spark settings of a file with lines `NAME VALUE`, and comments."""
    lines = [line.split(None, 1) for line in path.read_text().splitlines() if line.strip() and line[0] != "#"]
    return {name: value.strip() for name, value in lines}


def _all_settings(home: Home, scratch: Path, master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a new server: those of infra/spark, of the connection, and of LOCKSTEP_HOME."""
    result = settings_of(SERVER_SETTINGS) | settings_of(SESSION_SETTINGS) | dict(settings)
    address = result["spark.driver.bindAddress"]
    options = [
        # A server lives for minutes. Compiling with C1 alone halves its CPU time.
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC "
        # The heap follows the objects that are in use, and does not grow to its limit.
        "-Xmn160m -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40",
        settings.get("spark.driver.extraJavaOptions", ""),
    ]
    return result | {
        "spark.app.name": "lockstep",
        "spark.master": master,
        "spark.connect.authenticate.token": secrets.token_urlsafe(24),
        "spark.connect.grpc.binding.address": address,
        "spark.connect.grpc.binding.port": str(_free_port(address)),
        "spark.sql.warehouse.dir": str(scratch / "managed"),
        # Executors import the functions of jobs by name, and keep machine code in LOCKSTEP_HOME.
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.executorEnv.LOCKSTEP_HOME": str(home.root),
        "spark.driver.extraJavaOptions": " ".join(filter(None, options)),
        "spark.local.dir": str(scratch),
    }


def _launch(scratch: Path, settings: Mapping[str, str]) -> subprocess.Popen:
    """Start the JVM. It reads all settings from a file, because some are secret."""
    import pyspark

    spark_home = Path(pyspark.__file__).parent
    scratch.mkdir(parents=True, exist_ok=True)
    scratch.chmod(0o700)
    lines = [f"{name} {value}\n".replace("\\", "\\\\") for name, value in settings.items()]
    write_text(scratch / "spark.conf", "".join(lines), mode=0o600)
    command = [str(spark_home / "bin" / "spark-submit"), "--properties-file", str(scratch / "spark.conf")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environment = dict(
        os.environ,
        SPARK_HOME=str(spark_home),
        SPARK_LOCAL_IP=settings["spark.driver.host"],  # the host's own name may not resolve
        PYSPARK_PYTHON=sys.executable,
        PYTHONPATH=str(ROOT),
    )
    # A task that restarts the server is itself a client.
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        environment.pop(name, None)
    # It must not outlive the keeper, which holds the lock on LOCKSTEP_HOME.
    return start(command, dies_by=signal.SIGKILL, cwd=ROOT, env=environment)


def _code() -> str:
    """The digest of what Python processes of a server have in memory: modules, the runtime, and packages."""
    from streaming_core.oracle.oracle import source_digest

    patterns = ("streaming_core/_runtime.*", "requirements/*.lock")
    files = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    return source_digest(ROOT / "streaming_core", *files) + source_digest(ROOT / "jobs")


def _scratch(home: Home) -> Path:
    return home.root / "spark-scratch"


def _sweep(home: Home) -> None:
    """Remove the leases and the scratch folders that killed keepers left."""
    for lease in _scratch(home).glob("*.json"):
        with suppress(OSError):
            if time.time() - lease.stat().st_mtime > 2 * EXPIRES_SECONDS:
                for folder in lease.parent.glob(f"{lease.stem}-*/"):
                    shutil.rmtree(folder, ignore_errors=True)
                lease.unlink()


def _last_line(path: Path) -> str:
    """The last ERROR line of a log, else the last line that is neither a Java stack frame nor an INFO line."""
    with suppress(OSError):
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if " ERROR " in line]
        others = [line for line in lines if not line[0].isspace() and " INFO " not in line]
        if chosen := errors or others:
            return chosen[-1][:300]
    return "its log is empty"


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def _listens(address: str, port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):  # such as a host name that nothing resolves
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0
    return False


if __name__ == "__main__":
    sys.exit(Keeper(home(), Order(**json.load(sys.stdin))).run())
