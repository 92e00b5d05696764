"""Brings folders to a host that does not share LOCKSTEP_HOME, and results back, over SFTP.

Each file has its SHA-256. A transfer that was cut goes on where it ended, and a folder appears whole and checked, here
as there. The host's side is infra/hosts/folders.py.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from infra.hosts import folders
from infra.hosts.folders import Files, digest_of, files_of, incoming
from infra.hosts.shipment import ask
from streaming_core.errors import BadInput

if TYPE_CHECKING:
    from paramiko import SFTPClient, SSHClient

CHUNK = 1 << 20
TRIES = 3  # a file that arrives damaged is sent again
Say = Callable[[str], None]


class Remote:
    """Folders of a host, by an SSH connection and the program of a build there."""

    def __init__(self, client: SSHClient, python: str, build: PurePosixPath, say: Say):
        """Keep the arguments.

        Args:
            client: The connection.
            python: The host's interpreter.
            build: The build on the host.
            say: Takes a line about each transfer.
        """
        self._client, self._say = client, say
        self._command = [python, str(build / "infra" / "hosts" / "folders.py")]

    def send(self, folder: Path, to: PurePosixPath) -> None:
        """Send a folder with its hidden files, unless the host has it.

        Raises:
            BadInput: The host has no room for it, or cannot write it.
            OSError, EOFError, SSHException: The connection is lost.
        """
        # Each cell asks for its workload. Only one that the host lacks is read here, for its digests.
        if self._ask("want", to, {})["here"] is None:
            return
        files = files_of(folder, hidden=True)
        for _ in range(TRIES):
            here = self._ask("want", to, files)["here"]
            if here is None:
                return
            missing = sum(size - here[name] for name, (size, _) in files.items())
            self._say(f"sending {missing / 1e6:.1f} MB of {folder.name}")
            arriving = to.with_name(incoming(Path(to)).name)
            with self._client.open_sftp() as sftp:
                for name, (size, _) in files.items():
                    _append(sftp, folder / name, f"{arriving}/{name}", here[name], size)
            if not self._ask("take", to, files)["missing"]:
                return
        raise BadInput(f"{folder.name} arrives damaged there: check the disks and the network of both machines")

    def fetch(self, folder: PurePosixPath, into: Path) -> None:
        """Fetch a folder and its logs from the host, then remove them there.

        The files appear in `into` and beside it. Those directly in the folder come after all others, and `exit.json`
        last: a reader that sees it sees them all.

        Raises:
            BadInput: The host cannot read them, or there is no room here.
            OSError, EOFError, SSHException: The connection is lost.
        """
        files: Files = self._ask("list", folder)["files"]
        arriving = incoming(into)
        arriving.mkdir(parents=True, exist_ok=True)
        if files:
            self._say(f"fetching {sum(size for size, _ in files.values()) / 1e6:.1f} MB of {folder.name}")
        with self._client.open_sftp() as sftp:
            for name, (size, digest) in files.items():
                _receive(sftp, f"{folder.parent}/{name}", arriving / name, size, digest)
        for name in sorted(files, key=lambda name: (PurePosixPath(name).name == "exit.json", -name.count("/"), name)):
            target = into.parent / name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(arriving / name, target)
        shutil.rmtree(arriving)
        self._ask("drop", folder)

    def _ask(self, action: str, folder: PurePosixPath, files: Files | None = None) -> dict[str, Any]:
        source = "" if files is None else json.dumps(files)
        answer, reason = ask(self._client, [*self._command, action, str(folder)], source)
        if not answer and action != "drop":
            raise BadInput(f"`{folders.__name__}` fails on it: {reason}")
        if "error" in answer:
            raise BadInput(answer["error"])
        return answer


def _append(sftp: SFTPClient, path: Path, to: str, start: int, size: int) -> None:
    """Send the bytes of a file from `start` on."""
    with open(path, "rb") as source, sftp.open(to, "ab") as target:
        target.set_pipelined(True)
        source.seek(start)
        while start < size and (chunk := source.read(min(CHUNK, size - start))):
            target.write(chunk)
            start += len(chunk)


def _receive(sftp: SFTPClient, path: str, to: Path, size: int, digest: str) -> None:
    """Fetch the bytes of a file that are missing here, and check all of it."""
    to.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(TRIES):
        start = to.stat().st_size if to.exists() else 0
        if start > size:
            to.unlink()
            start = 0
        with sftp.open(path, "rb") as source, open(to, "ab") as target:
            source.seek(start)
            if start < size:
                source.prefetch(size)
            while start < size and (chunk := source.read(min(CHUNK, size - start))):
                target.write(chunk)
                start += len(chunk)
        if digest_of(to) == digest:
            return
        to.unlink()
    raise BadInput(f"{to.name} arrives damaged here: check the disks and the network of both machines")
