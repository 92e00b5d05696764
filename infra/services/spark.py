"""The Spark Connect server of one run, and the lock on LOCKSTEP_HOME that comes with it.

A keeper process takes the lock, starts the server, and writes `spark-server.json` (URL, token and process id, readable
by its owner only). It ends after a signal, when the server dies, or when the process that needs the server is gone. The
kernel then releases the lock, so a run that dies leaves no lock behind. If the server runs elsewhere (a `sc://` URL),
the keeper only holds the lock.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from infra.checkout import ROOT, home
from infra.services.lock import holder, of_home, signed
from infra.services.process import Noted, alive, identity, signal_group, start
from streaming_core.errors import RunFailed
from streaming_core.regression.home import Home
from streaming_core.storage import write_text

DEFAULTS = ROOT / "infra" / "spark" / "spark-defaults.conf"
START_SECONDS = 120
STOP_SECONDS = 20
POLL = 0.1


class ServerLost(ConnectionError):
    """The run's Spark server is gone. The caller may start another one and try again."""


class Server:
    """The server of one LOCKSTEP_HOME, for the processes that start, use and stop it."""

    def __init__(self, home: Home):
        self.home = home
        self.state_path = home.root / "spark-server.json"

    def log_path(self, owner: str) -> Path:
        """The log of the keeper and the server of `owner`."""
        return self.home.log(f"spark-{owner}")

    def state(self, owner: str) -> dict | None:
        """The content of `spark-server.json`; None unless a living keeper serves `owner`."""
        try:
            state = json.loads(self.state_path.read_text())
        except (OSError, ValueError):
            return None
        return state if state["owner"] == owner and alive(state) else None

    def environment(self, owner: str) -> dict[str, str]:
        """SPARK_REMOTE and the token, for a client process. Never put the token on a command line or into a log.

        Raises:
            ServerLost: `owner` has no server.
        """
        state = self.state(owner)
        if state is None:
            raise ServerLost(f"the Spark server of {owner} has ended; its log says why: {self.log_path(owner)}")
        values = {"SPARK_REMOTE": state["url"]}
        if state["token"]:
            values["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = state["token"]
        return values

    def start(
        self,
        owner: str,
        master: str = "local[*]",
        remote: tuple[str, str | None] | None = None,
        watch: int | None = None,
        say: Callable[[str], None] = lambda line: print(line, flush=True),
        patience: float = 6 * 3600,
    ) -> str:
        """Take the lock and start the server, unless `owner` already has one.

        Args:
            owner: The name that waiting processes see.
            master: Spark master of the server.
            remote: URL and token of an existing server to use instead.
            watch: The server ends with the process of this id.
            say: Takes a line when the start has to wait for the lock.
            patience: Seconds to wait for the lock.

        Returns:
            The URL of the server.

        Raises:
            ServerLost: The server did not start. The message contains the last line of its log.
            RunFailed: The lock was not free within `patience`.
        """
        if state := self.state(owner):
            return state["url"]
        log_path = self.log_path(owner)
        log_path.parent.mkdir(parents=True, exist_ok=True)
        environment = dict(os.environ, LOCKSTEP_HOME=str(self.home.root))
        url, token = remote or (None, None)
        environment["LOCKSTEP_SPARK_TOKEN"] = token or ""
        arguments = {"owner": owner, "master": master, "remote": url, "watch": watch, "starter": os.getpid()}
        command = [sys.executable, "-m", "infra.services.spark", json.dumps(arguments)]
        with open(log_path, "wb") as log:
            keeper = start(command, dies_by=None, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            return self._await(keeper, owner, say, patience)
        except BaseException:
            signal_group(keeper.pid, signal.SIGKILL)
            raise

    def _await(self, keeper: subprocess.Popen, owner: str, say: Callable[[str], None], patience: float) -> str:
        log_path = self.log_path(owner)
        waiting_since, holding_since, waiting_for = time.monotonic(), None, None
        while True:
            if state := self.state(owner):
                return state["url"]
            if keeper.poll() is not None:
                raise ServerLost(f"the Spark server did not start: {_last_line(log_path)} (log: {log_path})")
            now, holder = time.monotonic(), self.holder()
            if holder and holder["pid"] == keeper.pid:
                holding_since = holding_since or now
                if now - holding_since > START_SECONDS:
                    raise ServerLost(f"the Spark server did not start within {START_SECONDS} s (log: {log_path})")
            elif holder and holder["owner"] != waiting_for:
                waiting_for = holder["owner"]
                say(f"waiting: {self.home.root} is in use by {waiting_for} on {holder['host']} since {holder['since']}")
            if holding_since is None and now - waiting_since > patience:
                raise RunFailed(
                    f"{self.home.root} is still in use by {waiting_for} after {patience:.0f} s: "
                    "wait until that ends, or stop it, then start the run again"
                )
            time.sleep(POLL)

    def holder(self) -> dict | None:
        """The holder of the lock: owner, pid, host and since; None if the lock is free."""
        return holder(of_home(self.home)) or None

    def stop(self, owner: str) -> bool:
        """Stop the server of `owner`, which releases the lock; False if `owner` has none."""
        state = self.state(owner)
        if state is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(state["pid"], signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while alive(state):
            if time.monotonic() > deadline:
                signal_group(state["pid"], signal.SIGKILL)
                break
            time.sleep(POLL)
        return True


def keep(home: Home, owner: str, master: str, remote: str | None, watch: int | None, starter: int) -> int:
    """Run as the keeper: take the lock, start the server, wait, stop it. Both are in one process group."""
    server = Server(home)
    noted = Noted(signal.SIGTERM, signal.SIGINT)
    watched = identity(watch) if watch else None
    if watched and not alive(watched):
        return 1

    served = False

    def needed() -> bool:
        # Until the state is written, only the process that started the keeper can need it.
        starting = served or os.getppid() == starter
        return not noted.number and starting and (watched is None or alive(watched))

    lock = of_home(home)
    while not lock.take(signed(owner)):
        if not needed():
            return 1
        time.sleep(POLL)
    process = None
    try:
        if remote:
            url, token = remote, os.environ.pop("LOCKSTEP_SPARK_TOKEN", "")
        else:
            port, token = _free_port(), secrets.token_urlsafe(24)
            process = _launch(home, master, port, token)
            url = f"sc://localhost:{port}"
            while not _listens(port):
                if process.poll() is not None or not needed():
                    return 1
                time.sleep(POLL)
        state = {"owner": owner, "url": url, "token": token, **identity(os.getpid())}
        write_text(server.state_path, json.dumps(state), mode=0o600)
        served = True
        while needed() and (process is None or process.poll() is None):
            time.sleep(POLL)
        return 0 if noted.number else 1
    finally:
        noted.ignore()
        server.state_path.unlink(missing_ok=True)
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS / 2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(_scratch(home), ignore_errors=True)
        lock.leave()


def _launch(home: Home, master: str, port: int, token: str) -> subprocess.Popen:
    """Start the JVM in the keeper's process group. The token is in its environment, not on its command line."""
    import pyspark

    spark_home = Path(pyspark.__file__).parent
    metastore = home.root / "warehouse" / "metastore"
    scratch = _scratch(home)
    for folder in (metastore, scratch):
        folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "spark.app.name": "lockstep",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(metastore / "managed"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={metastore}/derby;create=true",
        # Executors import the functions of jobs by name.
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        # A server lives for minutes. Compiling with C1 alone halves its CPU time.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
        f" -Dderby.system.home={scratch} -Dderby.stream.error.file={scratch}/derby.log",
        "spark.local.dir": str(scratch),
    }
    command = [str(spark_home / "bin" / "spark-submit"), "--master", master, "--properties-file", str(DEFAULTS)]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    bin_folder = str(Path(sys.executable).parent)
    environment = dict(
        os.environ,
        SPARK_HOME=str(spark_home),
        SPARK_CONNECT_AUTHENTICATE_TOKEN=token,
        PYSPARK_PYTHON=sys.executable,
        PYTHONPATH=str(ROOT),
        PATH=os.pathsep.join([bin_folder, os.environ.get("PATH", os.defpath)]),
    )
    environment.pop("SPARK_REMOTE", None)
    return subprocess.Popen([*command, "spark-internal"], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL)


def _scratch(home: Home) -> Path:
    return home.root / "spark-scratch"


def _last_line(path: Path) -> str:
    """The last line of a log that is neither a Java stack frame nor an INFO line."""
    with suppress(OSError):
        for line in reversed(path.read_text(errors="replace").splitlines()):
            if line.strip() and not line[0].isspace() and " INFO " not in line:
                return line[:300]
    return "its log is empty"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    sys.exit(keep(home(), **json.loads(sys.argv[1])))
