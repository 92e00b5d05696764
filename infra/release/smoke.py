"""The smoke test of a wheel: an empty environment, far from the checkout, runs applications and compares the results.

It needs the network, because pip installs what the wheel depends on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from streaming_core.errors import CommandFailed

# One application for each kind of state, and the executors that run it.
CASES = {"wc": ("pooled", "pinned", "morsel"), "gs": ("transactional",), "scalejoin": ("pinned",)}
EVENTS = 2000
# Only what a user's shell has: no Python path, and no home of the engine.
VARIABLES = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX")
LIMIT = 600  # seconds for one command; compiling an application takes a few


def interpreters(versions: Sequence[str]) -> dict[str, Path]:
    """Looks for Pythons of this machine, also among those that pyenv keeps. Nothing is downloaded.

    Args:
        versions: For example `["3.11", "3.12"]`.

    Returns:
        The newest interpreter of each version; a version that the machine lacks is absent.
    """
    command = [sys.executable, "-m", "uv", "python", "list", "--only-installed", "--output-format", "json"]
    # The programs that pyenv puts on PATH start one version only, so its folders go before them.
    pyenv = sorted(Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv").glob("versions/*/bin"))
    path = os.pathsep.join([*map(str, pyenv), os.environ["PATH"]])
    process = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
    if process.returncode:
        raise CommandFailed(f"uv cannot list the Pythons of this machine: {process.stderr.strip()[-200:]}")
    paths: dict[str, Path] = {}
    for python in json.loads(process.stdout):  # newest first
        version = "{major}.{minor}".format(**python["version_parts"])
        if version in versions and python["implementation"] == "cpython" and python["variant"] == "default":
            paths.setdefault(version, Path(python["path"]))
    return paths


def run(wheel: Path, python: Path) -> None:
    """Installs a wheel and runs its command.

    Args:
        wheel: The file.
        python: The interpreter of the new environment.

    Raises:
        CommandFailed: A command fails, or a result differs from the oracle's.
    """
    with tempfile.TemporaryDirectory(prefix="lockstep-smoke-") as name:
        folder = Path(name)
        uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
        _run(folder, [uv, "venv", "--quiet", "--python", str(python), "venv"])
        _run(folder, [uv, "pip", "install", "--quiet", "--python", "venv/bin/python", str(wheel)])
        _run(folder, [uv, "pip", "check", "--quiet", "--python", "venv/bin/python"])
        for application, executors in CASES.items():
            _compare(folder, application, executors)


def _compare(folder: Path, application: str, executors: Sequence[str]) -> None:
    command = "venv/bin/streaming-core"
    events, oracle = f"{application}-events", f"{application}-oracle"
    _run(folder, [command, "generate", application, "--events", str(EVENTS), "--out", events])
    _run(folder, [command, "oracle", application, "--input", events, "--out", oracle])
    for executor in executors:
        out = f"{application}-{executor}"
        options = ["--input", events, "--out", out, "--executor", executor, "--threads", "2"]
        _run(folder, [command, "run", application, *options])
        _run(folder, [command, "diff", out, oracle])


def _run(folder: Path, command: Sequence[str]) -> None:
    environment = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    process = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment, timeout=LIMIT
    )
    if process.returncode:
        reason = " / ".join((process.stdout + process.stderr).strip().splitlines()[-3:])
        raise CommandFailed(f"`{' '.join(command)}` ended with exit code {process.returncode}: {reason}")
