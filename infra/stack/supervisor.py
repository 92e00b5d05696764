"""Debian's supervisord as the parent of a stack's programs: it restarts a program that ends, and ends all of them.

supervisord is a *subreaper*: the kernel makes it the parent of every process below it that loses its own parent. So
all processes of a stack are its descendants, even those that a task of Airflow leaves behind. `end` finds them there.
"""

from __future__ import annotations

import ctypes
import http.client
import os
import shutil
import socket
import time
import xmlrpc.client
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import psutil

from infra.stack.folder import Folder
from infra.stack.programs import Program, inherited
from streaming_core.errors import CommandFailed, RunFailed
from streaming_core.process import alive, identity, start
from streaming_core.storage import write_text

START_SECONDS = 20
SETTLED_SECONDS = 10  # a program that ends earlier did not start; it is tried twice more
STOP_SECONDS = 30  # of a program; then it is killed
POLL_SECONDS = 0.1
# Looked up here: a child must not import between fork and exec.
_PRCTL, _PR_SET_CHILD_SUBREAPER = ctypes.CDLL(None).prctl, 36


class State(NamedTuple):
    """The state of a program: supervisord's word for it, and the id of its process, 0 if it has none."""

    word: str
    pid: int


class Supervisor:
    """The supervisord of one stack."""

    def __init__(self, folder: Folder):
        """Prepare to start it, or to talk to it."""
        self._folder = folder
        self._calls = xmlrpc.client.ServerProxy("http://localhost", _UnixTransport(str(folder.socket)))

    @property
    def up(self) -> bool:
        """Whether it runs."""
        return alive(self._folder.state.get("supervisor", {"started": None}))

    def launch(self, programs: Sequence[Program], ports: Mapping[str, int]) -> None:
        """Start supervisord, which starts no program yet, and remember it.

        Raises:
            CommandFailed: it does not start.
        """
        path = self._folder.root / "supervisord.conf"
        write_text(path, configuration(self._folder, programs), mode=0o600)
        self._folder.socket.unlink(missing_ok=True)
        command = shutil.which("supervisord")
        assert command is not None
        log = self._folder.log("supervisord")
        with open(log, "ab") as out:
            process = start(
                [command, "--nodaemon", "--configuration", str(path)],
                dies_by=None,
                preexec_fn=_adopt_orphans,
                cwd=self._folder.root,
                env=inherited(),
                stdout=out,
                stderr=out,
            )
        self._folder.remember({"ports": dict(ports), "supervisor": identity(process.pid)})
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if process.poll() is not None or time.monotonic() > deadline:
                raise CommandFailed(f"supervisord did not start; its log says why: {log}")
            time.sleep(POLL_SECONDS)

    def start(self, name: str) -> None:
        """Start a program. It may fail later: `states` tells."""
        self._calls.supervisor.startProcess(name, False)

    def states(self) -> dict[str, State]:
        """Name -> state of each program; {} if supervisord does not run."""
        if not self.up:
            return {}
        try:
            infos: Any = self._calls.supervisor.getAllProcessInfo()
        except (OSError, http.client.HTTPException):  # it is starting, or ending
            return {}
        return {info["name"]: State(info["statename"], info["pid"]) for info in infos}

    def end(self, order: Iterable[Iterable[str]]) -> None:
        """End the programs group by group, then processes that they left behind, then supervisord.

        Raises:
            RunFailed: a process does not end, even by SIGKILL.
        """
        state = self._folder.state.get("supervisor")
        if not state:
            return
        if self._answers():
            for names in order:
                self._stop(names)
        _end_processes(_processes(state) - {state["pid"]})
        _end_processes(_processes(state))
        self._folder.socket.unlink(missing_ok=True)
        self._folder.remember({})

    def _stop(self, names: Iterable[str]) -> None:
        known = self.states()
        waiting = [name for name in names if known.get(name, State("", 0)).pid]
        for name in waiting:
            try:
                self._calls.supervisor.stopProcess(name, False)
            except xmlrpc.client.Fault:  # it has just ended
                continue
        deadline = time.monotonic() + STOP_SECONDS + 5
        while any(self.states()[name].pid for name in waiting) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _answers(self) -> bool:
        try:
            return self.up and bool(self._calls.supervisor.getState())
        except (OSError, http.client.HTTPException):
            return False


def configuration(folder: Folder, programs: Iterable[Program]) -> str:
    """The text of supervisord.conf. No program starts by itself, because some need others."""
    lines = [
        "[supervisord]",
        f"logfile = {folder.log('supervisord')}",
        f"pidfile = {folder.root / 'supervisord.pid'}",
        f"childlogdir = {folder.logs}",
        "[unix_http_server]",
        f"file = {folder.socket}",
        "chmod = 0700",
        "[rpcinterface:supervisor]",
        "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface",
        "[supervisorctl]",
        f"serverurl = unix://{folder.socket}",
    ]
    for program in programs:
        variables = ",".join(f"{name}={_quoted(value)}" for name, value in program.environment.items())
        lines += [
            f"[program:{program.name}]",
            f"command = {' '.join(map(_escaped, program.command))}",
            f"directory = {folder.release if program.user is None else folder.postgres}",
            *([f"environment = {variables}"] if variables else []),
            *([f"user = {program.user}"] if program.user else []),
            "autostart = false",
            "autorestart = true",
            f"startsecs = {SETTLED_SECONDS}",
            "startretries = 2",
            f"stopsignal = {program.stop}",
            f"stopwaitsecs = {STOP_SECONDS}",
            "killasgroup = true",
            "redirect_stderr = true",
            f"stdout_logfile = {folder.log(program.name)}",
            "stdout_logfile_maxbytes = 20MB",
            "stdout_logfile_backups = 1",
        ]
    return "\n".join([*lines, ""])


def _escaped(word: str) -> str:
    """Escape a word for supervisord, where % starts an expression."""
    return word.replace("%", "%%")


def _quoted(value: str) -> str:
    quote = "'" if '"' in value else '"'
    return f"{quote}{_escaped(value)}{quote}"


def _adopt_orphans() -> None:
    _PRCTL(_PR_SET_CHILD_SUBREAPER, 1)


def _processes(supervisor: Mapping[str, int]) -> set[int]:
    """The supervisor and its descendants. If it was killed, the processes of its session, and their descendants."""
    pid, roots = supervisor["pid"], []
    if alive(supervisor):
        roots = [psutil.Process(pid)]
    elif identity(pid)["started"] is None:  # else the id is another process's by now
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == pid:
                    roots.append(process)
            except ProcessLookupError:
                continue
    family: set[int] = set()
    for root in roots:
        try:
            family |= {root.pid, *(child.pid for child in root.children(recursive=True))}
        except psutil.NoSuchProcess:
            continue
    return family


def _end_processes(pids: Iterable[int]) -> None:
    """Send SIGTERM, then SIGKILL after a while."""
    processes = []
    for pid in pids:
        try:
            processes.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    for process in processes:
        _signal(process, "terminate")
    _, left = psutil.wait_procs(processes, STOP_SECONDS)
    for process in left:
        _signal(process, "kill")
    _, left = psutil.wait_procs(left, STOP_SECONDS)
    if left := [process for process in left if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]:
        raise RunFailed(f"these processes did not end: {', '.join(str(process.pid) for process in left)}")


def _signal(process: psutil.Process, action: str) -> None:
    try:
        getattr(process, action)()
    except psutil.NoSuchProcess:
        return


class _UnixConnection(http.client.HTTPConnection):
    """A connection through a Unix socket."""

    def __init__(self, path: str):
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _UnixTransport(xmlrpc.client.Transport):
    """XML-RPC through a Unix socket."""

    def __init__(self, path: str):
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        """A new connection: supervisord closes each one after its answer."""
        return _UnixConnection(self._path)
