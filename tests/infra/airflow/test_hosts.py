"""Hosts behind Airflow connections: this machine, and one behind a real SSH server that this test starts."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import asyncssh
import pytest

from dags.lib.triggers import CellTrigger
from infra.airflow import connections
from infra.airflow.hosts import LOST, Host, LocalHost, SshHost, is_lost, preflight, type_of
from jobs.run_folder import abandon, next_attempt
from streaming_core.errors import BadInput
from streaming_core.regression.fleet import claims
from streaming_core.regression.home import Home
from streaming_core.regression.project import PREFIX
from tests.support.draws import some
from tests.support.waiting import alive, wait_for

PATIENCE = 60
SPARK = connections.DEFAULTS["spark"]
LOGIN = ("tester", "a password of this test")


class SshServer:
    """An SSH server on loopback that runs each command in a shell, as sshd does, and can cut its connections."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._connections: list[asyncssh.SSHServerConnection] = []
        self.commands: list[str] = []
        self.passwords: list[str] = []
        self.shells: list[subprocess.Popen] = []
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.port = self._call(self._listen())

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    async def _listen(self) -> int:
        server = self

        class Login(asyncssh.SSHServer):
            def connection_made(self, connection):
                server._connections.append(connection)

            def password_auth_supported(self):
                return True

            def validate_password(self, username, password):
                server.passwords.append(password)
                return (username, password) == LOGIN

        keys = [asyncssh.generate_private_key("ssh-ed25519")]
        own = {"server_factory": Login, "process_factory": self._serve, "sftp_factory": True}
        self._acceptor = await asyncssh.listen("127.0.0.1", 0, server_host_keys=keys, **own)
        return self._acceptor.get_port()

    async def _serve(self, process: asyncssh.SSHServerProcess) -> None:
        self.commands.append(process.command)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        shell = subprocess.Popen(process.command, shell=True, **pipes)
        self.shells.append(shell)
        await process.redirect(shell.stdin, shell.stdout, shell.stderr)
        await process.stdout.drain()
        code = await self._loop.run_in_executor(None, shell.wait)
        if code < 0:
            process.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
        else:
            process.exit(code)

    def cut(self) -> None:
        """Breaks every connection, as a network does."""
        self._loop.call_soon_threadsafe(lambda: [connection.abort() for connection in self._connections])

    def refuse(self) -> None:
        """Breaks every connection, and accepts no other."""
        self._loop.call_soon_threadsafe(self._acceptor.close)
        self.cut()

    def stop(self) -> None:
        self.refuse()
        self._loop.call_soon_threadsafe(self._loop.stop)


@pytest.fixture
def ssh(monkeypatch, engine, tmp_path):
    server = SshServer()
    extra = {"wrapper": engine, "python": sys.executable, "folder": str(tmp_path)}
    extra |= {"lockstep_home": str(tmp_path / "home")}
    extra |= {"no_host_key_check": True, "allow_host_key_change": True}
    connection = {"conn_type": "ssh", "host": "127.0.0.1", "port": server.port, "extra": extra}
    connection |= {"login": LOGIN[0], "password": LOGIN[1]}
    monkeypatch.setenv("AIRFLOW_CONN_NODE", json.dumps(connection))
    monkeypatch.setenv(f"AIRFLOW_CONN_{PREFIX.upper()}SPARK_DEFAULT", json.dumps({"conn_type": "spark"}))
    yield server
    server.stop()


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """An engine that writes its process id, and ends with the code in OUT/go once that file exists."""
    monkeypatch.setenv("LOCKSTEP_HOST_LOCK", str(tmp_path / "host.lock"))
    path = tmp_path / "engine with 'quotes' and $HOME.py"
    path.write_text(
        "import os, sys, time\n"
        "out = sys.argv[sys.argv.index('--out') + 1]\n"
        "open(out + '/starts', 'a').write('x')\n"
        "open(out + '/pid', 'w').write(str(os.getpid()))\n"
        "while not os.path.exists(out + '/go'): time.sleep(0.01)\n"
        "print('the reason', file=sys.stderr)\n"
        "sys.exit(int(open(out + '/go').read()))\n"
    )
    return [sys.executable, str(path)]


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


@pytest.fixture
def attempt(home):
    folder = home.attempt("20260101T000000Z-00000000", "cell", 1)
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text("{}")
    return folder


def trigger(host: SshHost, attempt: Path, patience: float = 30.0, workload: Path | None = None) -> CellTrigger:
    lane = {"home": str(host.home.root), "run": attempt.parent.parent.name, "host": host.connection.conn_id}
    command = host.command(attempt, workload or host.home.workload("gs", "w"), 600)
    names = {"cell": attempt.parent.name, "attempt": attempt.name}
    return CellTrigger(lane=lane, command=command, stop=host.stop_command(attempt), patience=patience, **names)


class Running:
    """An attempt that runs on a host, in a thread: `outcome` is its exit code, or the reason why its host was lost."""

    def __init__(
        self, host: Host, attempt: Path, lines: list[str], patience: float = 30.0, workload: Path | None = None
    ):
        self.outcome: object = None
        self._thread = threading.Thread(target=self._run, args=(host, attempt, lines, patience, workload))
        self._thread.start()

    def _run(self, host: Host, attempt: Path, lines: list[str], patience: float, workload: Path | None) -> None:
        if isinstance(host, LocalHost):
            self.outcome = host.run(attempt, host.home.workload("gs", "w"), 600, lines.append)
        elif isinstance(host, SshHost):
            event = asyncio.run(anext(trigger(host, attempt, patience, workload).run())).payload
            lines.append(event.get("line", ""))
            self.outcome = event.get("code", event.get("lost"))

    def result(self):
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.outcome


def engine_of(attempt: Path) -> int:
    return int(wait_for(lambda: (attempt / "pid").exists() and (attempt / "pid").read_text(), PATIENCE))


@pytest.fixture
def local(monkeypatch, engine):
    monkeypatch.setenv("AIRFLOW_CONN_HERE", json.dumps({"conn_type": "generic", "extra": {"wrapper": engine}}))


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"hosts": ["nosuch"]}, "hosts: Airflow has no connection 'nosuch'; add it under Admin, Connections"),
        ({"hosts": ["node", "nosuch"]}, "hosts: Airflow has no connection 'nosuch'; add it under Admin, Connections"),
        ({"hosts": [SPARK]}, f"hosts: connection {SPARK!r} has the type 'spark', but a host needs "),
        ({"spark": "nosuch"}, "spark: Airflow has no connection 'nosuch'; add it under Admin, Connections"),
        ({"spark": "node"}, "spark: connection 'node' has the type 'ssh', but a Spark master needs "),
    ],
)
def test_unusable_connection_is_refused_before_anything_is_sent(ssh, params, sentence):
    with pytest.raises(BadInput) as refused:
        connections.check({"hosts": ["node"], "spark": SPARK} | params, type_of)
    assert str(refused.value).startswith(sentence)
    assert ssh.commands == ssh.passwords == []


@pytest.mark.usefixtures("hasty")
def test_host_with_an_unknown_key_gets_no_password(ssh, home, monkeypatch, caplog):
    monkeypatch.setenv("HOME", str(home.root))  # of known_hosts
    known = json.loads(os.environ["AIRFLOW_CONN_NODE"])
    del known["extra"]["no_host_key_check"], known["extra"]["allow_host_key_change"]
    monkeypatch.setenv("AIRFLOW_CONN_STRANGER", json.dumps(known))
    assert "its key is unknown" in preflight("stranger", home).reason
    assert ssh.passwords == ssh.commands == []


@pytest.mark.usefixtures("hasty")
def test_wrong_password_is_not_shown(ssh, home, monkeypatch, caplog):
    known = json.loads(os.environ["AIRFLOW_CONN_NODE"])
    monkeypatch.setenv("AIRFLOW_CONN_WRONG", json.dumps(known | {"password": "not the right one"}))
    reason = preflight("wrong", home).reason
    assert "not the right one" in ssh.passwords
    assert "not the right one" not in f"{reason}{caplog.text}"


HOSTILE = [
    "$(touch marker)",
    "`touch marker`",
    "; touch marker #",
    "'; touch marker; '",
    '" && touch marker "',
    "| touch",
]


@pytest.mark.parametrize("text", some([*HOSTILE, "a\nb", "-rf", "*", "~", "$HOME", "\\"], quick=2))
@pytest.mark.slow
def test_remote_shell_interprets_no_part_of_a_command(text, ssh, local, tmp_path, monkeypatch):
    """A person chooses LOCKSTEP_HOME and the paths of a connection."""
    monkeypatch.chdir(tmp_path)
    home = Home(tmp_path / text)
    known = json.loads(os.environ["AIRFLOW_CONN_NODE"])
    known["extra"]["lockstep_home"] = str(home.root)
    monkeypatch.setenv("AIRFLOW_CONN_NODE", json.dumps(known))
    attempt = home.attempt("20260101T000000Z-00000000", "cell", 1)
    attempt.mkdir(parents=True)
    (attempt / "spec.json").write_text("{}")
    (attempt / "go").write_text("0")
    assert Running(Host.of("node", home), attempt, []).result() == 0
    assert (attempt / "starts").read_text() == "x"
    asyncio.run(trigger(SshHost("node", home), attempt).on_kill())
    words = [shlex.split(command) for command in ssh.commands]
    assert [command[2:4] for command in words if command[1] != "-"] == [["run", str(attempt)], ["stop", str(attempt)]]
    assert not list(tmp_path.rglob("marker"))


@pytest.mark.parametrize("kind", ["here", "node"])
@pytest.mark.parametrize("code", some([2, 0, 1]))
def test_exit_code_and_error_line_of_the_engine_are_returned(kind, code, ssh, local, home, attempt):
    (attempt / "go").write_text(str(code))
    lines = []
    assert Running(Host.of(kind, home), attempt, lines).result() == code
    assert (lines[-1:] == ["the reason"]) == (code != 0)
    assert json.loads((attempt / "exit.json").read_text())["exit_code"] == code


@pytest.mark.parametrize("kind", ["here", "node"])
def test_stopping_ends_the_engine(kind, ssh, local, home, attempt):
    host = Host.of(kind, home)
    running = Running(host, attempt, [])
    pid = engine_of(attempt)
    wait_for(lambda: attempt.with_name("attempt-1.process.json").exists(), PATIENCE)
    if isinstance(host, LocalHost):
        host.stop()
    else:
        asyncio.run(trigger(host, attempt).on_kill())
        assert claims(home, "20260101T000000Z-00000000")["cell"].error == "stopped"
    assert running.result() != 0
    wait_for(lambda: not alive(pid), PATIENCE)


@pytest.mark.slow
def test_broken_connection_reconnects_and_joins_the_engine(ssh, home, attempt):
    running = Running(Host.of("node", home), attempt, [])
    pid = engine_of(attempt)
    wait_for(lambda: attempt.with_name("attempt-1.process.json").exists(), PATIENCE)
    ssh.cut()
    wait_for(lambda: sum("cell.py run" in command for command in ssh.commands) == 2, PATIENCE)
    assert alive(pid)
    (attempt / "go").write_text("0")
    assert running.result() == 0
    assert (attempt / "starts").read_text() == "x", "it ran once"


@pytest.mark.slow
def test_unreachable_host_is_lost_and_its_engine_runs_until_the_lease_ends(ssh, home, attempt):
    running = Running(Host.of("node", home), attempt, [], patience=1.0)
    pid = engine_of(attempt)
    wait_for(lambda: attempt.with_name("attempt-1.process.json").exists(), PATIENCE)
    ssh.refuse()
    assert "Connect call failed" in running.result()
    assert alive(pid)
    assert next_attempt(attempt.parent) == attempt, "the next try is about the same attempt"
    for shell in ssh.shells:
        shell.kill()


def test_vanished_run_is_lost_and_its_retry_is_a_new_attempt(ssh, home, attempt):
    running = Running(Host.of("node", home), attempt, [])
    engine_of(attempt)
    process = json.loads(wait_for(lambda: _text(attempt.with_name("attempt-1.process.json")), PATIENCE))
    os.kill(process["watcher"]["pid"], 9)
    assert is_lost(attempt, running.result())
    assert Running(Host.of("node", home), attempt, []).result() == LOST
    abandon(attempt)
    assert next_attempt(attempt.parent).name == "attempt-2"


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
