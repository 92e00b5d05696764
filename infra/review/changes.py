"""The applications that a change concerns: those whose code differs from the merge base with another branch.

The code of an application is everything that its functions can see (language/code.py). Its properties and the
expectations beside it count too, because they judge its results. Both sides load their own applications, each with its
own reader, in a process of its own. A change of the engine concerns every application.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from infra.checkout import LOCK_FILE, ROOT
from infra.hosts import build
from streaming_core.apps import registry
from streaming_core.errors import BadInput, CommandFailed
from streaming_core.process import Process, git

# The engine, without what the digests of applications cover and what runs no application.
ENGINE = (build.PACKAGE, "Cargo.toml", "Cargo.lock", LOCK_FILE)
OTHERS = tuple(f":(exclude){build.PACKAGE}/{name}" for name in ("api.pyi", "apps", "bench", "generator"))
# Prints what counts of each application, or its fault, {NAME: [text, fault]}, as JSON.
PROGRAM = """
import inspect
import json
from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.language.code import code_digest
from streaming_core.language.expectations import path_of
def one(name):
    try:
        app = registry.load(name)
    except BadInput as error:
        return ["", " ".join(str(error).split())]
    beside = path_of(app.file)
    judges = [*map(inspect.getsource, app.properties.values()), beside.read_text() if beside.exists() else ""]
    return ["".join([code_digest(app), *judges]), ""]
names = [*registry.names(), *(name for suite in registry.SUITES for name in registry.names(suite))]
print("\\n" + json.dumps({name: one(name) for name in names}))
"""


class Changes(NamedTuple):
    """What a change concerns.

    Attributes:
        ref: the branch that it is compared with, as named.
        base: the hash of the merge base.
        is_of_engine: whether the engine differs, which concerns every application.
        applications: the applications to run.
        faults: the applications that cannot be loaded, with the reasons: file, line, and what to write instead.
    """

    ref: str
    base: str
    is_of_engine: bool
    applications: list[str]
    faults: dict[str, str]


def since(ref: str) -> Changes:
    """Find what differs between this checkout and its merge base with a branch.

    Raises:
        BadInput: There is no such commit, or it has no common history with this checkout.
        CommandFailed: The applications of one side cannot be listed.
    """
    done = git(ROOT, "merge-base", build.resolve(ref), "HEAD")
    if done.returncode:
        raise BadInput(
            f"{ref} and this checkout have no common commit: fetch the whole history, `git fetch --unshallow`"
        )
    base = done.stdout.strip()
    with tempfile.TemporaryDirectory(prefix="lockstep-base-") as folder:
        _unpack(base, Path(folder))
        before = _codes(Path(folder))
    now = _codes(ROOT)
    is_of_engine = git(ROOT, "diff", "--quiet", base, "--", *ENGINE, *OTHERS).returncode != 0
    everywhere = registry.names() if is_of_engine else []
    faults = {name: fault for name, (_, fault) in now.items() if fault and (now[name] != before.get(name))}
    changed = [name for name, code in now.items() if not code[1] and (name in everywhere or code != before.get(name))]
    return Changes(ref, base, is_of_engine, changed, faults)


def _unpack(commit: str, folder: Path) -> None:
    """Write the engine of a commit, without its runtime, into a folder."""
    command = ["git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}", "archive", "--format=zip", commit, build.PACKAGE]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise CommandFailed(f"git archive {commit}: {' '.join(done.stderr.decode(errors='replace').split())}")
    with ZipFile(io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder)


def _codes(tree: Path) -> dict[str, list[str]]:
    """What counts of each application in a tree, and its fault; one of them is empty."""
    lines: list[str] = []
    command, environment = [sys.executable, "-P", "-c", PROGRAM], build.Build("", tree).environment
    if Process().run(command, lines.append, environment, tree, is_application=True):
        raise CommandFailed(f"the applications in {tree} cannot be listed: {lines[-1] if lines else 'no reason'}")
    return json.loads(lines[-1])
