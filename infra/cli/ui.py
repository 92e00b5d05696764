"""Airflow with the Lockstep pages, on loopback, until Ctrl-C, `lockstep stop` or a terminal that is closed.

Airflow's processes and their runs end with this one, even if it is killed: a watchdog process ends them. AIRFLOW_HOME
lists the processes as well, because the watchdog can be killed too. The next start ends the ones that are left, because
two schedulers on one database would take each other's tasks.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from infra.airflow import home as airflow_home
from infra.checkout import ROOT, user
from infra.services.lock import holder, signed
from infra.services.process import POLL_SECONDS, Noted, alive, end_group, end_groups, identity, start
from streaming_core.errors import BadInput, RunFailed
from streaming_core.storage import Lock, left_json, write_json, write_text

# The log servers of scheduler and triggerer would listen on every interface; the API server reads the files itself. It
# believes what a server in front of it, on this machine, says of how it was asked: the proxy of
# docs/how-to/open-lockstep-to-a-team.md.
_AIRFLOW = [sys.executable, "-m", "airflow"]
COMPONENTS = {
    "api-server": [*_AIRFLOW, "api-server", "--proxy-headers"],
    "scheduler": [*_AIRFLOW, "scheduler", "--skip-serve-logs"],
    "dag-processor": [*_AIRFLOW, "dag-processor"],
    "triggerer": [*_AIRFLOW, "triggerer", "--skip-serve-logs"],
}
USER = "admin"
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
        """Start the watchdog and the commands. Each writes its output to a file of its own.

        Args:
            commands: name of a component -> program and arguments.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
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
        """The first component that is not running any more."""
        return next((name for name, process in self._running.items() if process.poll() is not None), None)

    def stop(self) -> None:
        """SIGTERM to every group, SIGKILL to what is left after a while. The scheduler goes first: it stops its tasks,
        which report to the API server."""
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
        """Where a component's words are."""
        return self._logs / f"{name}.log"


def _noted() -> Path:
    """Where it stands which processes the components are."""
    return airflow_home.location() / "components.json"


def end_left() -> list[str]:
    """Ends the components that an earlier UI has left running; their names. For who holds AIRFLOW_HOME."""
    left = {name: process for name, process in left_json(_noted()).items() if alive(process)}
    end_groups(list(left.values()), STOP_SECONDS)
    _noted().unlink(missing_ok=True)
    return list(left)


def stop() -> int:
    """Ends the Airflow that is up on AIRFLOW_HOME, whoever started it.

    Raises:
        BadInput: a run is going on there without a UI, or the UI is another machine's.
        RunFailed: it does not end.
    """
    occupancy, was_up = airflow_home.occupancy(), False
    deadline = time.monotonic() + (len(COMPONENTS) + 1) * STOP_SECONDS
    while not occupancy.take(signed("stop")):
        by = holder(occupancy)
        if by and by["owner"] not in ("ui", "stop"):
            raise BadInput(f"a run is going on (process {by['pid']}): Ctrl-C there stops it")
        if by and by["host"] != socket.gethostname():
            raise BadInput(f"Airflow is up on {by['host']}: stop it there")
        if by and by["owner"] == "ui" and not was_up:
            was_up = True
            os.kill(by["pid"], signal.SIGTERM)
        if time.monotonic() > deadline:
            raise RunFailed(f"process {by.get('pid', '?')} does not end")
        time.sleep(POLL_SECONDS)
    left = end_left()
    occupancy.leave()
    print("Airflow is stopped" if was_up else f"ended {', '.join(left)}" if left else "Airflow is not up")
    return 0


def passwords() -> dict[str, str]:
    """The logins' passwords: made once, kept where only their owner reads them. Of a user that has none when it starts,
    Airflow would make one and write it to its log."""
    path = airflow_home.location() / "passwords.json"
    known = left_json(path)
    users = os.environ.get("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", f"{USER}:admin").split(",")
    names = [user.partition(":")[0].strip() for user in users]
    if new := {name: secrets.token_urlsafe(12) for name in names if name not in known}:
        known |= new
        write_text(path, json.dumps(known), mode=0o600)
    return {name: known[name] for name in names}


def healthy(url: str) -> bool:
    """Whether API server, scheduler, DAG processor and triggerer all say that they are well."""
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{url}/api/v2/monitor/health", timeout=2) as answer:
            state = json.load(answer)
    except (OSError, ValueError):
        return False
    parts = ("metadatabase", "scheduler", "dag_processor", "triggerer")
    return all((state.get(part) or {}).get("status") == "healthy" for part in parts)


def _check_port(port: int) -> None:
    """Raise BadInput if the port is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise BadInput(f"port {port} is taken; choose another one: make ui ARGS='--port {port + 1}'") from None


def _take(occupancy: Lock, url: str, noted: Noted) -> None:
    """Take AIRFLOW_HOME for a UI at this address, unless a signal comes first.

    Raises:
        BadInput: a UI or a run has AIRFLOW_HOME.
    """
    while not occupancy.take(signed("ui", url=url)):
        by = holder(occupancy)
        if by.get("owner") == "ui":
            raise BadInput(f"Airflow is up already: {by['url']}")
        if by.get("owner") == "run":
            raise BadInput(f"a run is in progress (process {by['pid']}); start the UI when it has ended")
        # Another process is stopping Airflow, which takes seconds.
        if noted.number:
            return
        time.sleep(POLL_SECONDS)


def serve(port: int) -> int:
    """Starts everything, waits for the end, stops everything.

    Raises:
        BadInput: AIRFLOW_HOME or the port is in use.
        RunFailed: a component ended on its own, or did not come up.
    """
    # Started from a script with &, a process ignores SIGINT; this one is meant to end on it.
    noted = Noted(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    console = Console(highlight=False)
    where = airflow_home.location()
    url = f"http://localhost:{port}"
    occupancy = airflow_home.occupancy()
    _take(occupancy, url, noted)
    if noted.number:
        return 0
    if left := end_left():
        console.print(f"ended what an earlier UI had left running: {', '.join(left)}")
    _check_port(port)
    logs = where / "logs" / "components"
    airflow_home.prepare(logs / "prepare.log")
    logins = passwords()
    environment = airflow_home.environment(port)
    # What a run starts ends with this process, however that ends.
    environment["LOCKSTEP_WATCH"] = str(os.getpid())
    airflow_home.end_stale_runs()
    components = Components(logs, environment)
    try:
        components.start(COMPONENTS)
        with console.status("starting Airflow (about 20 seconds)"):
            deadline = time.monotonic() + START_SECONDS
            while not noted.number and not healthy(url):
                name = components.ended()
                if name or time.monotonic() > deadline:
                    what = f"{name} ended" if name else f"Airflow is not well after {START_SECONDS} s"
                    raise RunFailed(f"{what}; see {components.log(name or 'api-server')}")
                time.sleep(0.5)
        if noted.number:
            return 0
        console.print(f"Airflow   {url}", highlight=False)
        for name, secret in logins.items():
            # What is no terminal is a log.
            shown = secret if console.is_terminal else f"its password is in {where / 'passwords.json'}"
            console.print(f"login     {name} / {shown}", highlight=False, soft_wrap=True, markup=False)
        console.print(f"reports   {url}/lockstep/", highlight=False)
        console.print(f"logs      {logs}", highlight=False)
        console.print("Ctrl-C stops it.")
        sys.stdout.flush()
        while not noted.number:
            if name := components.ended():
                raise RunFailed(f"{name} ended; see {components.log(name)}")
            time.sleep(0.5)
        return 0
    finally:
        noted.ignore()
        console.print("stopping Airflow")
        components.stop()
        airflow_home.end_stale_runs(user() if noted.number else None)
        components.dismiss_watchdog()
        occupancy.leave()
