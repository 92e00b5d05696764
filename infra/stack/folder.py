"""The folder of a stack, and the Debian packages that a stack needs.

Everything that a stack writes is below one folder, except `/run/sshd`, which an sshd of root demands. Passwords are
drawn once per folder, and lie in files that only their owner can read. Ports are free ones, drawn at each start.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import shutil
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from streaming_core.errors import BadInput
from streaming_core.storage import left_json, write_json, write_text

PORTS = ("api", "postgres", "redis", "spark", "spark_ui", "ssh")
SSHD = Path("/usr/sbin/sshd")  # sshd insists on being started by an absolute path
POSTGRES_VERSIONS = Path("/usr/lib/postgresql")
POSTGRES_USER = "postgres"
SOCKET_LIMIT = 100  # bytes in the path of a Unix socket (Linux allows 107), less the name of the socket's lock


@dataclass(frozen=True)
class Folder:
    """The files of one stack."""

    root: Path

    @classmethod
    def at(cls, root: Path) -> Folder:
        """The folder of a stack; it may be missing.

        Raises:
            BadInput: a stack cannot work at this path.
        """
        root = root.absolute()
        if bad := sorted(set(re.findall(r"[^A-Za-z0-9_./-]", str(root)))):
            raise BadInput(
                f"--folder: {root} contains {' '.join(map(repr, bad))}: use letters, digits, '.', '_', '-' and '/' only"
            )
        folder = cls(root)
        if len(str(folder.socket)) > SOCKET_LIMIT:
            raise BadInput(f"--folder: {root} is too long for a Unix socket: use a shorter path")
        if root.exists() and not root.is_dir():
            raise BadInput(f"--folder: {root} is not a folder")
        if root.exists() and any(root.iterdir()) and not folder.secret("passwords.json").exists():
            raise BadInput(f"--folder: {root} holds something else than a stack: name a new folder")
        return folder

    @property
    def socket(self) -> Path:
        """The socket of the supervisor."""
        return self.root / "supervisor.sock"

    @property
    def release(self) -> Path:
        """The copy of the checkout from which the programs run."""
        return self.root / "release"

    @property
    def environment(self) -> Path:
        """The programs of the release's Python environment."""
        return self.release / ".venv" / "bin"

    @property
    def airflow(self) -> Path:
        """AIRFLOW_HOME of the stack."""
        return self.root / "airflow"

    @property
    def lockstep(self) -> Path:
        """LOCKSTEP_HOME of the stack."""
        return self.root / "lockstep"

    @property
    def postgres(self) -> Path:
        """The folder of the database cluster, which belongs to the user that runs it."""
        return self.root / "postgres"

    @property
    def logs(self) -> Path:
        """One log per program."""
        return self.root / "logs"

    def log(self, program: str) -> Path:
        """The log of a program."""
        return self.logs / f"{program}.log"

    def secret(self, name: str) -> Path:
        """A file that only its owner can read."""
        return self.root / "secrets" / name

    @property
    def state(self) -> dict:
        """Ports and the supervisor of the last start; {} before it."""
        return left_json(self.root / "stack.json")

    def make(self) -> None:
        """Create the folder and its parts, with modes that let the database's user through, and others into nothing."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o711)
        for path in (self.airflow, self.logs, self.root / "secrets", self.root / "ssh", self.root / "spark"):
            path.mkdir(mode=0o700, exist_ok=True)
        self.lockstep.mkdir(exist_ok=True)
        kept = self.secret("passwords.json")
        if not kept.exists():
            write_text(kept, json.dumps({name: secrets.token_hex(24) for name in ("postgres", "redis")}), mode=0o600)

    def password(self, of: str) -> str:
        """The password of a program, `postgres` or `redis`."""
        return json.loads(self.secret("passwords.json").read_text())[of]

    def remember(self, state: dict) -> None:
        """Keep ports and supervisor for other commands."""
        write_json(self.root / "stack.json", state)


def free_ports(api: int | None) -> dict[str, int]:
    """Name -> port on loopback that nothing listens on. All of them are held at once, so they differ.

    Args:
        api: the port of Airflow's pages; None for a free one.

    Raises:
        BadInput: the port of Airflow's pages is in use.
    """
    with ExitStack() as held:
        ports = {}
        for name in PORTS:
            probe = held.enter_context(socket.socket())
            wanted = api if name == "api" and api else 0
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", wanted))
            except OSError:
                raise BadInput(f"port {wanted} is in use: choose another one with --port") from None
            ports[name] = probe.getsockname()[1]
        return ports


def postgres_bin() -> Path | None:
    """The folder of PostgreSQL's programs, of the newest version; None if no version is installed."""
    versions = [path for path in POSTGRES_VERSIONS.glob("*/bin/initdb") if path.parts[-3].isdigit()]
    return max(versions, key=lambda path: int(path.parts[-3])).parent if versions else None


def database_user() -> str | None:
    """The user that runs PostgreSQL, if it cannot be this one: PostgreSQL refuses to run as root."""
    return POSTGRES_USER if os.geteuid() == 0 else None


def check_machine() -> None:
    """Check that the Debian packages of a stack are installed.

    Raises:
        BadInput: one is missing. The line has the command that installs all missing ones.
    """
    present = {
        "openssh-server": SSHD.exists(),
        "postgresql": postgres_bin() is not None,
        "redis-server": shutil.which("redis-server") is not None,
        "supervisor": shutil.which("supervisord") is not None,
    }
    if missing := [package for package, is_present in present.items() if not is_present]:
        sudo = "" if os.geteuid() == 0 else "sudo "
        raise BadInput(
            f"a stack needs {', '.join(missing)}; to fix: "
            f"{sudo}apt-get update && {sudo}apt-get install -y {' '.join(missing)}"
        )
    if (user := database_user()) is not None:
        try:
            pwd.getpwnam(user)
        except KeyError:
            raise BadInput(f"PostgreSQL refuses to run as root, and there is no user {user}: create it") from None


def check_path(folder: Folder) -> None:
    """Check that the user of the database can enter the folder's parents.

    Raises:
        BadInput: a folder above does not let other users through.
    """
    if database_user() is None:
        return
    for parent in folder.root.parents:
        if parent.exists() and not parent.stat().st_mode & 0o001:
            raise BadInput(
                f"{parent} lets no other user through, and PostgreSQL runs as {POSTGRES_USER}: "
                "choose another place with --folder"
            )
