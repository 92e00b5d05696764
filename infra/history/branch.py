"""Keeps the history of runs, and publishes pages, on branches of the repository's remote. So CI has both on any forge.

| branch | contents |
|---|---|
| `lockstep-history/N` | a backup (archive.py) without attempts at cells; N is the version of the raw tables |
| `gh-pages` | pages, in a folder for each publication, with those of its newest runs; other folders stay |

The history only grows: a run has files of its own, so what two jobs save at once needs no merge. A push that another
one overtook is made again on top of it.

    python -m infra.history.branch restore | save | site FOLDER
"""

from __future__ import annotations

import argparse
import io
import os
import random
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from infra import checkout
from infra.history.archive import VERSIONS, history, is_history, write_member
from streaming_core.errors import BadInput, CommandFailed
from streaming_core.process import ending
from streaming_core.regression.home import RUN_ID, Home

NAME = "branch"
REMOTE = "origin"
HISTORY, PAGES = f"lockstep-history/{VERSIONS['raw_schema']}", "gh-pages"
MOST_RUNS = 30  # whose pages a folder keeps
ATTEMPTS = 8  # at a push, each on top of what another job pushed meanwhile
Stale = Callable[[Sequence[str]], list[str]]
_IDENTITY = ("-c", "user.name=lockstep", "-c", "user.email=lockstep@localhost", "-c", "core.hooksPath=/dev/null")


class Branch:
    """A branch of the remote of a repository."""

    def __init__(self, repository: Path, name: str):
        self.name, self._repository = name, repository

    def fetch(self) -> str | None:
        """The hash of its newest commit, which is here then; None if the remote has no such branch.

        Raises:
            CommandFailed: Git fails.
        """
        ref = f"refs/heads/{self.name}"
        if not self._git("ls-remote", REMOTE, ref):
            return None
        self._git("fetch", "--quiet", "--no-tags", "--depth=1", REMOTE, ref)
        return self._git("rev-parse", "FETCH_HEAD")

    def files(self) -> tarfile.TarFile | None:
        """Its files as an archive; None if the remote has no such branch."""
        tip = self.fetch()
        if tip is None:
            return None
        return tarfile.open(fileobj=io.BytesIO(self._run("archive", "--format=tar", tip)))

    def add(
        self, folder: Path, paths: Sequence[str], message: str, under: str = "", stale: Stale | None = None
    ) -> bool:
        """Commit files to the branch, and push it.

        Args:
            folder: The folder of the files.
            paths: Their paths below it.
            message: The subject of the commit.
            under: The folder of the branch that gets them; empty: its root.
            stale: Chooses the files of that folder that go. None: all stay.

        Returns:
            Whether they changed the branch.

        Raises:
            CommandFailed: Git fails, or other jobs push all the time.
        """
        prefix = f"{under}/" if under else ""
        names = "".join(f"{folder / path}\n" for path in paths).encode()
        hashes = self._git("hash-object", "-w", "--no-filters", "--stdin-paths", data=names).split()
        for attempt in range(ATTEMPTS):
            time.sleep(attempt * random.random())  # jobs that push at once take turns
            tip = self.fetch()
            tree = self._tree(tip, prefix, dict(zip(paths, hashes, strict=True)), stale)
            if tip and tree == self._git("rev-parse", f"{tip}^{{tree}}"):
                return False
            commit = self._git(*_IDENTITY, "commit-tree", tree, *(["-p", tip] if tip else []), "-m", message)
            try:
                self._git("push", "--quiet", REMOTE, f"{commit}:refs/heads/{self.name}")
                return True
            except CommandFailed as error:  # perhaps another job pushed meanwhile
                fault = error
        raise fault

    def _tree(self, tip: str | None, prefix: str, files: Mapping[str, str], stale: Stale | None) -> str:
        """The hash of a tree: that of a commit, with the hashes of files by path below a prefix, without stale ones."""
        with tempfile.TemporaryDirectory() as scratch:
            index = {"GIT_INDEX_FILE": f"{scratch}/index"}
            self._git("read-tree", *([tip] if tip else ["--empty"]), variables=index)
            listed = self._git("ls-files", "-z", variables=index).split("\0") if stale else []
            old = [path.removeprefix(prefix) for path in listed if path and path.startswith(prefix)]
            entries = [f"0 {'0' * 40}\t{prefix}{path}" for path in (stale(old) if stale else ())]
            entries += [f"100644 {blob}\t{prefix}{path}" for path, blob in files.items()]
            lines = "".join(f"{entry}\0" for entry in entries).encode()
            self._git("update-index", "-z", "--index-info", variables=index, data=lines)
            return self._git("write-tree", variables=index)

    def _git(self, *words: str, data: bytes = b"", variables: Mapping[str, str] | None = None) -> str:
        return self._run(*words, data=data, variables=variables).decode().strip()

    def _run(self, *words: str, data: bytes = b"", variables: Mapping[str, str] | None = None) -> bytes:
        command = ["git", "-C", str(self._repository), "-c", f"safe.directory={self._repository}", *words]
        # No command asks for a password.
        environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", **(variables or {})}
        done = subprocess.run(command, input=data, env=environment, capture_output=True, check=False)
        if done.returncode:
            reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise CommandFailed(f"branch {self.name}: git {words[0]}: {reason or f'exit code {done.returncode}'}")
        return done.stdout


def restore(home: Home, repository: Path = checkout.ROOT) -> str:
    """Add the files of the history branch that `home` lacks; returns a line about them.

    Raises:
        BadInput: The branch holds something else.
        CommandFailed: Git fails.
    """
    archive = Branch(repository, HISTORY).files()
    if archive is None:
        return f"{REMOTE} has no branch {HISTORY} yet"
    with archive:
        members = [member for member in archive if not member.isdir()]
        if foreign := [member.name for member in members if not (member.isreg() and is_history(member.name))]:
            raise BadInput(f"branch {HISTORY}: {foreign[0]!r} is not a path of the history; remove it there")
        missing = [member for member in members if not (home.root / member.name).exists()]
        for member in missing:
            write_member(archive, member, home.root)
    return f"{len(missing)} of {len(members)} files of {HISTORY} added to LOCKSTEP_HOME"


def save(home: Home, repository: Path = checkout.ROOT) -> str:
    """Add the history of `home` to the history branch; returns a line about it.

    Raises:
        CommandFailed: Git fails, or other jobs push all the time.
    """
    paths = [path for path in history(home) if not _is_of_attempt(path)]
    if not paths:
        return "LOCKSTEP_HOME has no history: nothing is saved"
    changed = Branch(repository, HISTORY).add(home.root, paths, "Add runs")
    return f"{len(paths)} files are on branch {HISTORY}" + ("" if changed else ", as before")


def site(home: Home, folder: str, repository: Path = checkout.ROOT) -> str:
    """Publish the pages of `home` in a folder of the branch of pages; returns a line about it.

    Raises:
        BadInput: The folder is no path below the branch.
        CommandFailed: Git fails, or other jobs push all the time.
    """
    parts = PurePosixPath(folder).parts
    if "/".join(parts) != folder or not parts or {"..", ".", ".git"} & {*parts} or folder.startswith("/"):
        raise BadInput(f"{folder!r} is not a folder of branch {PAGES}: write NAME or NAME/NAME")
    files = (path.relative_to(home.reports) for path in home.reports.rglob("*") if path.is_file())
    paths = sorted(path.as_posix() for path in files if not path.name.startswith("."))
    if not paths:
        return "LOCKSTEP_HOME has no pages: nothing is published"

    def stale(old: Sequence[str]) -> list[str]:
        runs = sorted({run for path in (*old, *paths) if RUN_ID.fullmatch(run := path.partition("/")[0])})
        return [path for path in old if path.partition("/")[0] not in runs[-MOST_RUNS:]]

    Branch(repository, PAGES).add(home.reports, paths, f"Publish {folder}", folder, stale)
    return f"{len(paths)} files are on branch {PAGES}, in folder {folder}"


def _is_of_attempt(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return parts[0] == "runs" and len(parts) > 3 and parts[3].startswith("attempt-")


def main(argv: Sequence[str] | None = None) -> int:
    """Restore or save the history, or publish the pages, and print what was done."""
    parser = argparse.ArgumentParser(prog=NAME, description=main.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("restore", help="add the history on the remote to LOCKSTEP_HOME")
    commands.add_parser("save", help="add the history in LOCKSTEP_HOME to the remote")
    commands.add_parser("site", help="publish the pages").add_argument("folder", metavar="FOLDER")
    request = parser.parse_args(argv)
    home = checkout.home()
    if request.command == "site":
        print(site(home, request.folder))
    else:
        print(restore(home) if request.command == "restore" else save(home))
    return 0


if __name__ == "__main__":
    ending.end(NAME, main)
