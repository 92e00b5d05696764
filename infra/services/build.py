"""Builds of the engine that are kept, so that a later one can be measured beside them.

What is kept of a build is its commit's `streaming_core` and the runtime that was built of it: a tree that runs with the
packages of today's environment. A digest says which ones were locked when it was kept.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from infra.checkout import ROOT
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.home import Home
from streaming_core.run import engine
from streaming_core.storage import atomic_directory, digest_of

PACKAGE = "streaming_core"
COMMAND = f"from {PACKAGE}.cli import main; main()"


class Build(NamedTuple):
    """A build that can be run: its name, and the folder that its package lies in."""

    name: str
    tree: Path

    def command(self, *arguments: str) -> list[str]:
        """Its `streaming-core`, with `environment`; nothing of the folder that it is started in is imported."""
        return [sys.executable, "-P", "-c", COMMAND, *arguments]

    @property
    def environment(self) -> dict[str, str]:
        """What its command needs: modules found here come before those of the checkout that is installed."""
        return {"PYTHONPATH": str(self.tree)}


def checkout() -> Build:
    """This checkout as it is now, changed or not."""
    return Build(engine.build(), ROOT)


def kept(home: Home, name: str) -> Build:
    """A build that was kept.

    Raises:
        BadInput: it is not there any more.
    """
    tree = home.build(name)
    if not tree.is_dir():
        raise BadInput(f"build {name} is not kept: {tree} does not exist; accept another baseline")
    return Build(name, tree)


def environment() -> str:
    """Digest of the packages that are locked now."""
    return digest_of((ROOT / "requirements.lock").read_text())


def keep(home: Home) -> Build:
    """Keeps this checkout's build under LOCKSTEP_HOME/builds; one that is there already stays as it is.

    Raises:
        BadInput: the checkout is not what a commit says, or its runtime was not built of it.
    """
    name = engine.build()
    if name == "unknown":
        raise BadInput(f"{ROOT} is no checkout: there is no build to name")
    if name.endswith("-dirty"):
        raise BadInput(f"{ROOT} has changes that are in no commit: commit or remove them first (git status)")
    if not home.build(name).is_dir():
        runtime = _runtime()
        with atomic_directory(home.build(name)) as folder:
            with ZipFile(BytesIO(_git("archive", "--format=zip", "HEAD", PACKAGE))) as files:
                files.extractall(folder)
            shutil.copy2(runtime, folder / PACKAGE)
    return kept(home, name)


def _runtime() -> Path:
    """The runtime as it was built, of the sources that are there."""
    spec = find_spec(f"{PACKAGE}._runtime")
    if spec is None or spec.origin is None:
        raise BadInput("the runtime is not built: make setup")
    built = Path(spec.origin)
    sources = _git("ls-files", "-z", "--", "Cargo.toml", "Cargo.lock", f"{PACKAGE}/runtime/*.rs", "*/Cargo.toml")
    for name in filter(None, sources.decode().split("\0")):
        if (ROOT / name).stat().st_mtime_ns > built.stat().st_mtime_ns:
            raise BadInput(f"{name} is newer than the runtime: make setup")
    return built


def _git(*words: str) -> bytes:
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout
    except subprocess.CalledProcessError as error:
        raise RunFailed(f"git {words[0]}: {error.stderr.decode(errors='replace').strip()}") from None
