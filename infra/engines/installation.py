"""The engines beside Lockstep's on this machine: installs them, locks their packages, and begins a new one."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from infra.checkout import LOCK_FILE, ROOT
from streaming_core.apps.registry import ALL
from streaming_core.cli.new import check_name, write_files
from streaming_core.engines import environment, registry
from streaming_core.engines.environment import FOLDER, INSTALLED, LOCK, source_digest, variables
from streaming_core.engines.registry import MANIFEST, Engine
from streaming_core.errors import BadInput, CommandFailed, RunFailed, refusal
from streaming_core.process import Process
from streaming_core.run.way import EXECUTORS
from streaming_core.storage import Lock, write_json

REQUIREMENTS = "requirements.in"
TEMPLATES = Path(__file__).parent / "template"
TESTS = ROOT / "tests" / "infra" / "engines"
PYTHON = "3.11"  # locks hold for this version and later ones
LINES = 5  # of a failed step, in its error

Say = Callable[[str], None]


def install(name: str, say: Say) -> Path:
    """Make the environment of an engine: its packages, then its build. An environment that is up to date stays.

    Returns:
        The folder of the environment.

    Raises:
        BadInput: There is no such engine, or it has no lock.
        RunFailed: A step failed. Nothing is left of the environment.
        CommandFailed: A program is missing, or the folder cannot be written.
    """
    engine = registry.load(name)
    if not (engine.folder / LOCK).is_file():
        raise BadInput(f"engine {name} has no {LOCK}: type `lockstep engines lock {name}`")
    home = environment.home(engine)
    lock = Lock(engine.folder / f"{FOLDER}.lock")
    try:
        lock.wait()
        if not environment.complaint(engine):
            say(f"engine {name} is installed already")
            return home
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        try:
            _make(engine, home, say)
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise
    except OSError as error:
        raise refusal(error, f"cannot write {home}") from None
    finally:
        lock.leave(remove=True)
    return home


def _make(engine: Engine, home: Path, say: Say) -> None:
    """Fill the folder of an environment. Its marker comes last."""
    source = source_digest(engine)
    say(f"installing the packages of {engine.folder.name}/{LOCK}")
    uv = [_uv(), "--quiet"]
    python = home / "venv" / "bin" / "python"
    _step(engine, "packages", [*uv, "venv", "--python", sys.executable, str(home / "venv")], {})
    if re.search(r"^[A-Za-z0-9]", (engine.folder / LOCK).read_text(), re.MULTILINE):
        packages = ["pip", "install", "--no-deps", "--require-hashes", "--python", str(python), "-r", LOCK]
        _step(engine, "packages", [*uv, *packages], {})
    if engine.manifest.build:
        say(f"building {engine.name}: {' '.join(engine.manifest.build)}")
        own = variables(engine, os.environ)
        program = shutil.which(engine.manifest.build[0], path=own["PATH"]) or engine.manifest.build[0]
        _step(engine, "build", [program, *engine.manifest.build[1:]], own)
    write_json(home / INSTALLED, {"source": source, "python": sys.version.split()[0]})


def lock(name: str) -> Path:
    """Resolve the packages that an engine's requirements.in names into its lock, with their hashes.

    Raises:
        BadInput: There is no such engine, or it has no requirements.in.
        RunFailed: The packages cannot be resolved. The old lock stays.
        CommandFailed: A program is missing.
    """
    engine = registry.load(name)
    if not (engine.folder / REQUIREMENTS).is_file():
        raise BadInput(f"engine {name} has no {REQUIREMENTS}: name its packages there, one a line")
    command = [_uv(), "--quiet", "pip", "compile", REQUIREMENTS, "-o", LOCK, "--universal", "--python-version", PYTHON]
    command += ["--generate-hashes", "--no-emit-index-url", "--no-emit-find-links"]
    _step(engine, "lock", [*command, "--custom-compile-command", f"lockstep engines lock {name}"], {})
    return engine.folder / LOCK


def new(name: str) -> list[Path]:
    """Write a new engine, which runs application `wc`, and its test.

    Returns:
        The paths of the files.

    Raises:
        BadInput: The name is invalid, reserved, or in use.
        CommandFailed: The disk is full, or fails.
    """
    check_name("engine", name, {*EXECUTORS, "external", ALL})
    folder = registry.folder() / name
    texts = {folder / path.stem: path.read_text() for path in sorted(TEMPLATES.glob("*.template"))}
    test = TESTS / f"test_{name}.py"
    texts[test] = texts.pop(folder / "test.py")
    texts[folder / LOCK] = _common_lock(texts[folder / REQUIREMENTS].split())
    if folder.exists():
        raise BadInput(f"{folder} already exists; choose another name")
    paths = write_files(texts, name)
    return [folder / MANIFEST, *sorted(path for path in paths if path.name != MANIFEST)]


def _common_lock(packages: Sequence[str]) -> str:
    """The lines of this checkout's runtime.lock for packages that need no others."""
    blocks = re.split(r"\n(?=[a-z0-9])", (ROOT / LOCK_FILE).read_text())
    chosen = [block for block in blocks if block.partition("==")[0] in packages]
    return "\n".join(re.sub(r"\n +#.*", "", block).rstrip() for block in chosen) + "\n"


def _uv() -> str:
    """The program uv, which is among this checkout's packages."""
    beside = Path(sys.executable).with_name("uv")
    path = str(beside) if beside.exists() else shutil.which("uv")
    if path is None:
        raise CommandFailed("uv is missing: type `make setup`")
    return path


def _step(engine: Engine, what: str, command: list[str], variables: dict[str, str]) -> None:
    """Run one step of an installation in the engine's folder.

    Raises:
        RunFailed: The command failed. The message has the last lines that it printed.
        CommandFailed: It cannot be started.
    """
    lines: list[str] = []
    try:
        code = Process().run(command, lines.append, variables or None, engine.folder)
    except OSError as error:
        raise CommandFailed(f"engine {engine.name}: cannot start {command[0]}: {error.strerror}") from None
    if code:
        last = " | ".join([line.strip() for line in lines if line.strip()][-LINES:])
        raise RunFailed(f"engine {engine.name}: step {what} failed with exit code {code}: {last}")
