"""Builds of the engine to measure: this checkout as it is, and any commit of its repository.

`at_commit` compiles a commit in a temporary git worktree, with the tools and packages of this checkout, and
caches the package in LOCKSTEP_HOME/builds/<commit>. It touches neither the checkout's `target` folder nor its installed
runtime. Compiling a commit takes about a minute, the first time only.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn
from zipfile import ZipFile

from infra.checkout import LOCK_FILE, ROOT
from streaming_core.errors import BadInput, RunFailed
from streaming_core.interruption import Interrupted
from streaming_core.process import Process, git
from streaming_core.regression.home import Home
from streaming_core.run import provenance
from streaming_core.storage import atomic_directory, digest_of

PACKAGE = "streaming_core"
COMMAND = f"from {PACKAGE}.cli import main; main()"
ENGINE = (PACKAGE, "Cargo.toml", "Cargo.lock", "pyproject.toml")  # what a build of the engine is made of
_ERROR = re.compile(r"error(\[E\d+\])?: ")  # of rustc and cargo; maturin's own errors look otherwise


class Build(NamedTuple):
    """A build of the engine: its name, and the folder that holds its package."""

    name: str
    tree: Path

    def command(self, *arguments: str) -> list[str]:
        """The command line of its `streaming-core`, for `environment`. It imports nothing from the working folder."""
        return [sys.executable, "-P", "-c", COMMAND, *arguments]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of `command`: modules below `tree` come before those of the installed checkout."""
        return {"PYTHONPATH": str(self.tree)}


def checkout() -> Build:
    """This checkout as it is now, with or without changes."""
    return Build(provenance.build(), ROOT)


def resolve(ref: str) -> str:
    """The full hash of the commit that a branch, a tag or another git revision names.

    Raises:
        BadInput: git is missing, this is no git repository, or it has no such commit.
    """
    reason = "no such commit"
    if ref and not ref.startswith("-"):
        try:
            done = _git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        except OSError:
            raise BadInput("git cannot run: install git, then try again") from None
        if done.returncode == 0:
            return done.stdout.strip()
        reason = _first_line(done.stderr) or reason
    raise BadInput(
        f"{ref!r} is not a commit of {ROOT} ({reason}): name a branch, a tag or a commit; `git fetch --tags` gets new "
        "ones"
    )


def is_engine_of(commit: str) -> bool:
    """Whether the engine and its applications, as they are in this checkout, are those of a commit."""
    untracked = _git("ls-files", "--others", "--exclude-standard", "--", *ENGINE)
    return not untracked.stdout and _git("diff", "--quiet", commit, "--", *ENGINE).returncode == 0


def environment(commit: str | None = None) -> str:
    """Digest of the packages that the checkout locks now, or that a commit locks."""
    if commit is None:
        return digest_of((ROOT / LOCK_FILE).read_text())
    return digest_of(_git("show", f"{commit}:{LOCK_FILE}").stdout)


def at_commit(home: Home, commit: str, label: str, say: Callable[[str], None]) -> Build:
    """The build of a commit. The function compiles it first unless LOCKSTEP_HOME/builds has it.

    Args:
        home: the folder that caches builds.
        commit: a full hash, as `resolve` returns it.
        label: the name of the commit in messages.
        say: takes a line when compiling starts, and one when it ends.

    Raises:
        RunFailed: the commit does not compile. The cache stays as it was, and the worktree is gone.
    """
    target = home.build(commit)
    if not target.is_dir():
        with sigterm_raises(), atomic_directory(target) as folder:
            if not target.is_dir():  # another process may have compiled it while this one waited
                _compile(commit, label, folder, target.with_name(f".{commit}.tree"), say)
    return Build(commit, target)


def _compile(commit: str, label: str, folder: Path, tree: Path, say: Callable[[str], None]) -> None:
    """Compile a commit in a worktree at `tree`, and unpack its package into `folder`."""
    started = time.monotonic()
    say(f"building {label} in a temporary worktree; this takes about a minute, the first time only")
    wheels = tree / "target" / "wheels"
    maturin = str(Path(sys.executable).with_name("maturin"))
    options = ["--release", "--interpreter", sys.executable, "--auditwheel", "skip", "--out", str(wheels)]
    try:
        _remove(tree)  # left by a process that was killed
        added = _git("-c", "core.hooksPath=/dev/null", "worktree", "add", "--quiet", "--detach", str(tree), commit)
        if added.returncode:
            raise RunFailed(f"building {label} failed: git worktree: {_first_line(added.stderr)}")
        _run(label, [maturin, "build", *options], {"CARGO_TARGET_DIR": str(tree / "target"), "NO_COLOR": "1"}, tree)
        (wheel,) = wheels.glob("*.whl")
        with ZipFile(wheel) as files:
            files.extractall(folder, [name for name in files.namelist() if name.startswith(f"{PACKAGE}/")])
        built = Build(commit, folder)
        _run(label, [sys.executable, "-P", "-c", f"import {PACKAGE}._runtime"], built.environment, folder)
    finally:
        _remove(tree)
    say(f"built {label} in {time.monotonic() - started:.0f} s")


def _run(label: str, command: Sequence[str], environment: dict[str, str], folder: Path) -> None:
    lines: list[str] = []
    if Process().run(command, lines.append, environment, folder):
        raise RunFailed(f"building {label} failed: {_first_error(lines)}")


def _first_error(lines: list[str]) -> str:
    """The first error of a compiler, with its place in the source, in one line."""
    for number, line in enumerate(lines):
        if _ERROR.match(line):
            place = lines[number + 1].strip() if number + 1 < len(lines) else ""
            return f"{line} ({place.removeprefix('--> ')})" if place.startswith("--> ") else line
    texts = [line.strip() for line in lines if line.strip()]
    causes = [line for line in texts if line.startswith("Caused by:")]
    return (causes or texts or ["the compiler ended without a message"])[-1]


def _remove(tree: Path) -> None:
    """Remove a worktree, and what git knows of it."""
    _git("worktree", "remove", "--force", "--force", str(tree))
    shutil.rmtree(tree, ignore_errors=True)


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return git(ROOT, *words)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].removeprefix("fatal: ")


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """SIGTERM raises within the block, as Ctrl-C does, so that what the block has begun is cleaned up."""

    def stop(number: int, frame: object) -> NoReturn:
        raise Interrupted(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
