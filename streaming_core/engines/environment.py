"""The environment of an engine: a folder `.environment` in the engine's own folder, on this machine.

    .environment/venv/            the packages of requirements.lock
    .environment/...              the files of the engine's `build`
    .environment/installed.json   written last: the digest of the environment's sources

`lockstep engines install` makes it (infra/engines/installation.py). The engine's commands see it as ENGINE_HOME.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from streaming_core.engines.registry import Engine
from streaming_core.errors import BadInput
from streaming_core.storage import left_json

FOLDER = ".environment"
LOCK = "requirements.lock"
INSTALLED = "installed.json"
HOME_VARIABLE = "ENGINE_HOME"
CLIENT = Path(__file__).parent / "client"


def home(engine: Engine) -> Path:
    """The folder of an engine's environment."""
    return engine.folder / FOLDER


def source_digest(engine: Engine) -> str:
    """SHA-256 of the sources of an environment.

    The source is requirements.lock. With a `build`, it is every file of the engine's folder but its Markdown.
    """
    digest = hashlib.sha256(repr(engine.manifest.build).encode())
    paths = [engine.folder / LOCK]
    if engine.manifest.build:
        paths = [path for path in engine.folder.rglob("*") if path.suffix != ".md"]
    for path in sorted(paths):
        inside = path.relative_to(engine.folder)
        if path.is_file() and inside.parts[0] != "__pycache__" and not inside.parts[0].startswith(FOLDER):
            digest.update(f"{inside} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def complaint(engine: Engine) -> str:
    """Why an engine cannot run on this machine; empty if it can."""
    command = f"type `lockstep engines install {engine.name}`"
    installed = left_json(home(engine) / INSTALLED)
    if not installed:
        return f"engine {engine.name} is not installed on this machine; {command}"
    if installed.get("source") != source_digest(engine):
        return f"engine {engine.name} changed since it was installed; {command}"
    return ""


def check(engine: Engine) -> None:
    """Raise BadInput unless the engine is installed on this machine, as it is now."""
    if line := complaint(engine):
        raise BadInput(line)


def variables(engine: Engine, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of an engine's process.

    Args:
        engine: The engine.
        environment: The variables of the process that starts it.
    """
    binaries = home(engine) / "venv" / "bin"
    inherited = {name: value for name, value in environment.items() if not name.startswith(("PYTHON", "LOCKSTEP_"))}
    return inherited | {
        "PATH": f"{binaries}{os.pathsep}{environment.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": str(binaries.parent),
        "PYTHONPATH": str(CLIENT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        HOME_VARIABLE: str(home(engine)),
    }
