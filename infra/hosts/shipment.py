"""Brings a build to a host over an SSH connection, and asks the host's Python.

`deliver` sends infra/hosts/unpack.py to the host's Python. It uploads the wheel by SFTP only if the host lacks the
build. The host unpacks an upload to a temporary folder, checks every file, and renames the folder. So an upload that
was interrupted or damaged is never used. A build that the host has is checked again before each use.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from infra.hosts import unpack
from infra.hosts.wheel import Wheel
from streaming_core.errors import BadInput

if TYPE_CHECKING:
    from paramiko import SSHClient

SECONDS = 60.0  # that a host may stay silent; a slow disk unpacks a build in a few
PYTHON = "set python in the extra of the connection"


class Delivery(NamedTuple):
    """A build on a host.

    Attributes:
        folder: the build, as the host names it.
        skew_seconds: how far the host's clock is ahead, beyond what the time of its answer explains.
        host: What unpack.py says of the host.
    """

    folder: PurePosixPath
    skew_seconds: float
    host: dict[str, Any]


def deliver(client: SSHClient, python: str, builds: str, wheel: Wheel) -> Delivery:
    """Bring a wheel to a host, unless the host has it.

    Args:
        client: A connection to the host.
        python: The host's interpreter.
        builds: The host's folder of builds; `~` is the home of the login.
        wheel: The wheel.

    Raises:
        BadInput: The wheel does not fit the host, or its folder cannot be written. One line with the remedy.
        OSError, EOFError, SSHException: The connection is lost.
    """
    host, skew = _receive(client, python, [builds, wheel.digest])
    _check(host, python, wheel)
    if host["build"] is None:
        upload = f".{wheel.digest[:16]}.{uuid4().hex}.whl"
        with client.open_sftp() as sftp:
            sftp.put(str(wheel.path), f"{host['builds']}/{upload}")
        host, _ = _receive(client, python, [builds, wheel.digest, upload])
        if host["build"] is None:
            raise BadInput(f"the build arrived damaged: remove {wheel.path.parent}, and try again")
    return Delivery(PurePosixPath(host["builds"]) / wheel.digest, skew, host)


def ask(client: SSHClient, command: Sequence[str], source: str = "") -> tuple[dict[str, Any], str]:
    """Run a program on a host, and read the JSON in the last line of its output.

    Args:
        client: A connection to the host.
        command: Program and arguments.
        source: The program's input.

    Returns:
        The answer, {} if there is none; and the last line on stderr, or what there is to say of an empty one.

    Raises:
        OSError, EOFError: The connection is lost, or the host stays silent.
    """
    # A remote shell reads the line, so every word is quoted.
    stdin, stdout, stderr = client.exec_command(shlex.join(command), timeout=SECONDS)
    with suppress(OSError):  # the program ended before it read its input; its output says why
        stdin.write(source)
        stdin.channel.shutdown_write()
    lines = stdout.read().decode(errors="replace").strip().splitlines()
    errors = stderr.read().decode(errors="replace").strip().splitlines()
    code = stdout.channel.recv_exit_status()
    if code < 0:
        raise EOFError("the connection ended before the answer")
    with suppress(ValueError, IndexError):
        answer = json.loads(lines[-1])
        if isinstance(answer, dict):
            return answer, ""
    return {}, errors[-1] if errors else f"exit code {code} without a message"


def follow(client: SSHClient, command: Sequence[str], say: Callable[[str], None]) -> int:
    """Run a program on a host, and pass on the lines of its output and errors. Its input ends with the connection.

    Args:
        client: A connection to the host.
        command: Program and arguments.
        say: Takes each line.

    Returns:
        The exit code of the program.

    Raises:
        OSError, EOFError, SSHException: The connection is lost, or the host stays silent.
    """
    transport = client.get_transport()
    assert transport is not None
    with transport.open_session() as channel:
        channel.set_combine_stderr(True)
        channel.settimeout(SECONDS)
        channel.exec_command(shlex.join(command))
        for line in channel.makefile("rb"):
            say(line.decode(errors="replace").rstrip())
        code = channel.recv_exit_status()
    if code < 0:
        raise EOFError("the connection ended before the program did")
    return code


def _receive(client: SSHClient, python: str, arguments: list[str]) -> tuple[dict[str, Any], float]:
    """Run unpack.py on the host: its answer, and how far the host's clock is ahead for certain, in seconds."""
    began = time.time()
    host, reason = ask(client, [python, "-", *arguments], Path(unpack.__file__).read_text())
    ended = time.time()
    if "error" in host:
        raise BadInput(f"the build cannot be kept there: {host['error']}: set folder in the extra of the connection")
    if not host:
        raise BadInput(f"`{python}` does not run there ({reason}): {PYTHON} to a Python interpreter of that host")
    if began <= host["time"] <= ended:
        return host, 0.0
    return host, host["time"] - (ended if host["time"] > ended else began)


def _check(host: dict[str, Any], python: str, wheel: Wheel) -> None:
    """Check that a wheel fits a host.

    Raises:
        BadInput: It does not.
    """
    least = ".".join(map(str, wheel.python))
    fits = host["implementation"] == "CPython" and not host["free_threaded"]
    if not fits or tuple(host["version"]) < wheel.python:
        kind = f"{'free-threaded ' * host['free_threaded']}{host['implementation']} {host['python']}"
        raise BadInput(
            f"`{python}` there is {kind}, but the build needs CPython {least} or newer: {PYTHON} to such an interpreter"
        )
    if host["platform"] != wheel.platform:
        raise BadInput(
            f"the build is for {wheel.platform}, but that host is {host['platform']}: "
            f"run its cells from a Lockstep on a {host['platform']} machine"
        )
