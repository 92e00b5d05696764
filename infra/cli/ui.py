"""`lockstep ui`: run Airflow with the Lockstep pages on localhost, until Ctrl-C, `lockstep stop` or a closed terminal.

Airflow's processes and their runs end with this process, even if it is killed: a watchdog process ends them.
AIRFLOW_HOME lists the processes as well, because the watchdog can be killed too. The next start ends the ones that are
left, because two schedulers on one database would take each other's tasks.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from infra.airflow import airflow_home, database, open_runs
from infra.airflow.api_server import PARTS, healthy, passwords, refusal
from infra.checkout import ROOT, user
from infra.cli.arguments import Port
from streaming_core.errors import BadInput, RunFailed
from streaming_core.process import POLL_SECONDS, Noted, alive, end_group, end_groups, identity, start
from streaming_core.regression.lock import holder, signature
from streaming_core.storage import Lock, left_json, write_json

# The log servers of scheduler and triggerer would listen on every interface; the API server reads the log files itself.
# It trusts the forwarding headers of a proxy on this machine (docs/how-to/open-lockstep-to-a-team.md).
COMPONENTS = {
    "api-server": [*airflow_home.AIRFLOW, "api-server", "--proxy-headers"],
    "scheduler": [*airflow_home.AIRFLOW, "scheduler", "--skip-serve-logs"],
    "dag-processor": [*airflow_home.AIRFLOW, "dag-processor"],
    "triggerer": [*airflow_home.AIRFLOW, "triggerer", "--skip-serve-logs"],
}
START_SECONDS = 180
STOP_SECONDS = 30


class Components:
    """Airflow's processes, each in a process group of its own, and their watchdog."""

    def __init__(self, logs: Path, environment: dict[str, str]):
        self._logs = logs
        self._environment = environment
        self._running: dict[str, subprocess.Popen] = {}
        self._watchdog: subprocess.Popen | None = None

    def start(self, commands: Mapping[str, Sequence[str]]) -> None:
        """Start the commands, and the watchdog before the first. Each writes its output to a file of its own.

        Args:
            commands: name of a component -> program and arguments.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        if self._watchdog is None:
            self._watchdog = self._start(
                "watchdog", [sys.executable, "-m", "infra.airflow.watchdog"], dies_by=None, stdin=subprocess.PIPE
            )
        assert self._watchdog.stdin is not None
        for name, command in commands.items():
            self._running[name] = self._start(name, command)
            self._watchdog.stdin.write(f"{json.dumps(identity(self._running[name].pid))}\n".encode())
            self._watchdog.stdin.flush()
        write_json(_noted(), {name: identity(process.pid) for name, process in self._running.items()})

    def _start(self, name: str, command: Sequence[str], **options: Any) -> subprocess.Popen:
        with open(self._logs / f"{name}.log", "ab") as out:
            return start(command, cwd=ROOT, env=self._environment, stdout=out, stderr=out, **options)

    def ended(self) -> str | None:
        """The first component that has ended, or None."""
        return next((name for name, process in self._running.items() if process.poll() is not None), None)

    def stop(self) -> None:
        """Send SIGTERM to each group, and SIGKILL after STOP_SECONDS.

        The scheduler ends first, because it stops its tasks, and they report to the API server.
        """
        order = [name for name in ("scheduler", "dag-processor", "triggerer", "api-server") if name in self._running]
        for name in order:
            end_group(self._running[name], STOP_SECONDS)
        _noted().unlink(missing_ok=True)

    def dismiss_watchdog(self) -> None:
        """End the watchdog, because nothing is left for it to end."""
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()

    def log(self, name: str) -> Path:
        """The log of a component."""
        return self._logs / f"{name}.log"


def _noted() -> Path:
    """The file that lists the processes of the components."""
    return airflow_home.location() / "components.json"


def end_left() -> list[str]:
    """End the components that an earlier UI left running; returns their names. The caller holds AIRFLOW_HOME."""
    left = {name: process for name, process in left_json(_noted()).items() if alive(process)}
    end_groups(list(left.values()), STOP_SECONDS)
    _noted().unlink(missing_ok=True)
    return list(left)


def stop() -> int:
    """Stop the Airflow that `lockstep ui` started, from any terminal.

    Runs that are in progress stop too. Their pages say that you stopped
    them.

    Examples:
        lockstep stop
    """
    occupancy, was_up = airflow_home.occupancy(), False
    deadline = time.monotonic() + (len(COMPONENTS) + 1) * STOP_SECONDS
    while not occupancy.take(signature("stop")):
        by = holder(occupancy)
        if by and by["owner"] not in ("ui", "stop"):
            raise BadInput(
                f"`lockstep run` is in progress without a UI (process {by['pid']}): press Ctrl-C in its terminal"
            )
        if by and by["host"] != socket.gethostname():
            raise BadInput(f"Airflow runs on another host, {by['host']}: type `lockstep stop` there")
        if by and by["owner"] == "ui" and not was_up:
            was_up = True
            os.kill(by["pid"], signal.SIGTERM)
        if time.monotonic() > deadline:
            raise RunFailed(
                f"the UI (process {by.get('pid', '?')}) has not ended after {STOP_SECONDS * (len(COMPONENTS) + 1)} s: "
                f"end it with `kill -9 {by.get('pid', 'PID')}`, then type `lockstep stop` again"
            )
        time.sleep(POLL_SECONDS)
    left = end_left()
    occupancy.leave()
    if was_up:
        print("stopped Airflow")
    elif left:
        print(f"stopped what an earlier UI had left running: {', '.join(left)}")
    else:
        print("Airflow is not running")
    return 0


def _check_port(port: int) -> None:
    """Raise BadInput if the port is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise BadInput(
                f"port {port} is in use: choose another one, for example lockstep ui --port {port + 1}"
            ) from None


def _take(occupancy: Lock, url: str, noted: Noted) -> None:
    """Take AIRFLOW_HOME for a UI at this address, unless a signal arrives first.

    Raises:
        BadInput: Another UI or a run holds AIRFLOW_HOME.
    """
    while not occupancy.take(signature("ui", url=url)):
        by = holder(occupancy)
        if by.get("owner") == "ui":
            raise BadInput(f"Airflow is already running: open {by['url']}, or stop it with `lockstep stop`")
        if by.get("owner") == "run":
            raise BadInput(f"`lockstep run` is in progress (process {by['pid']}): start the UI after it ends")
        # Another process is stopping Airflow, which takes seconds.
        if noted.number:
            return
        time.sleep(POLL_SECONDS)


def _start(components: Components, url: str, noted: Noted) -> None:
    """Start Airflow, and wait until it is healthy or a signal arrives.

    If an earlier Airflow left open runs, the API server closes them before the scheduler, which would resume them.

    Raises:
        RunFailed: A component ends, or Airflow is not healthy in time.
    """

    def wait_for(*parts: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not noted.number and not healthy(url, parts):
            name = components.ended()
            if name or time.monotonic() > deadline:
                fault = f"Airflow's {name} ended" if name else f"Airflow is not healthy after {START_SECONDS} s"
                raise RunFailed(f"{fault}; its log says why: {components.log(name or 'api-server')}")
            time.sleep(0.5)

    left = dict(COMPONENTS)
    if open_runs.files():
        components.start({"api-server": left.pop("api-server")})
        wait_for("metadatabase")
        if noted.number:
            return
        try:
            open_runs.close(url)
        except OSError as error:
            raise RunFailed(f"runs that an earlier Airflow left cannot be ended: {refusal(error)}") from None
    components.start(left)
    wait_for(*PARTS)


def ui(port: Port = airflow_home.DEFAULT_PORT) -> int:
    """Start Airflow and the Lockstep pages on this machine, until Ctrl-C.

    The command prints the address, the login, and the folder of the logs.
    Airflow listens on localhost only.

    Examples:
        lockstep ui
        lockstep ui --port 8081
    """
    # A script that starts this process with & makes it ignore SIGINT, so this process sets the handlers again.
    noted = Noted(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    console = Console(highlight=False)
    where = airflow_home.location()
    url = f"http://localhost:{port}"
    occupancy = airflow_home.occupancy()
    _take(occupancy, url, noted)
    if noted.number:
        return 0
    if left := end_left():
        console.print(f"stopped what an earlier UI had left running: {', '.join(left)}")
    _check_port(port)
    logs = where / "logs" / "components"
    airflow_home.prepare(logs / "prepare.log")
    logins = passwords()
    environment = airflow_home.environment(port)
    # The processes of a run end with this process, even if it is killed.
    environment["LOCKSTEP_WATCH"] = str(os.getpid())
    open_runs.end()
    components = Components(logs, environment)
    try:
        with console.status("starting Airflow (about 20 seconds)"):
            _start(components, url, noted)
        if noted.number:
            return 0
        console.print(f"Airflow   {url}", highlight=False)
        for account, secret in logins.items():
            # Output that is not a terminal may be a log, which other people can read.
            shown = secret if console.is_terminal else f"the password is in {where / 'passwords.json'}"
            console.print(f"login     {account} / {shown}", highlight=False, soft_wrap=True, markup=False)
        console.print(f"reports   {url}/lockstep/", highlight=False)
        console.print(f"logs      {logs}", highlight=False)
        console.print("Ctrl-C stops it.")
        sys.stdout.flush()
        while not noted.number:
            if name := components.ended():
                raise RunFailed(f"Airflow's {name} ended; its log says why: {components.log(name)}")
            database.clean_if_asked(environment, logs / "db-clean.log")
            time.sleep(0.5)
        return 0
    finally:
        noted.ignore()
        console.print("stopping Airflow")
        components.stop()
        open_runs.end(user() if noted.number else None)
        components.dismiss_watchdog()
        occupancy.leave()
