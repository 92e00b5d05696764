"""Publishes the documentation of a release on the branch of pages, beside those of earlier releases.

| path on the branch | contents |
|---|---|
| `VERSION/` | the site of that version |
| `latest/` | the site of the newest release |
| `versions.json` | the versions, newest first; the menu of the site's theme reads it |

    python -m infra.release.documentation VERSION
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from infra import checkout
from infra.history.branch import PAGES, Branch
from streaming_core.errors import BadInput, CommandFailed
from streaming_core.process import ending

NAME = "documentation"
LATEST, VERSIONS = "latest", "versions.json"
VERSION = re.compile(r"\d+\.\d+\.\d+([a-z]+\d+)?")
SOURCES = ("mkdocs.yml", "docs", "infra/site")
PROGRAM = checkout.ROOT / ".lockstep-build" / "docs" / "bin" / "zensical"
BUILT = ".lockstep-build/site.new"  # site_dir in mkdocs.yml
CONFIGURATION = "INHERIT: mkdocs.yml\nextra: {version: {provider: mike, default: latest}}\n"


def build(folder: Path, program: Path = PROGRAM) -> Path:
    """Build the site with a menu of versions, from copies of its sources in an empty folder.

    Returns:
        The folder of the site.

    Raises:
        CommandFailed: The program is missing, or it finds a fault in the documentation.
    """
    for name in SOURCES:
        source, target = checkout.ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    (folder / "release.yml").write_text(CONFIGURATION)
    command = [str(program), "build", "--strict", "--config-file", "release.yml"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError:
        raise CommandFailed(f"{program} is missing: type `make docs`") from None
    if done.returncode:
        raise CommandFailed(f"the site has faults: {(done.stdout + done.stderr).strip()}")
    return folder / BUILT


def publish(site: Path, version: str, repository: Path = checkout.ROOT) -> str:
    """Add a site to the branch of pages, as its version and as the latest; returns a line about it.

    Raises:
        BadInput: The version is not written as 1.2.3 or 1.2.3rc1.
        CommandFailed: Git fails, or other jobs push all the time.
    """
    if not VERSION.fullmatch(version):
        raise BadInput(f"{version!r} is not a version: write it as 1.2.3 or 1.2.3rc1")
    branch = Branch(repository, PAGES)
    others = [entry for entry in _versions(branch) if entry["version"] != version]
    entries = [{"version": version, "title": version, "aliases": [LATEST]}]
    entries += [{**entry, "aliases": [name for name in entry["aliases"] if name != LATEST]} for entry in others]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in (version, LATEST):
            shutil.copytree(site, folder / name)
        (folder / VERSIONS).write_text(json.dumps(entries, indent=2))
        paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())

        def stale(old: Sequence[str]) -> list[str]:
            return [path for path in old if path.partition("/")[0] in (version, LATEST) and path not in paths]

        branch.add(folder, paths, f"Publish the documentation of {version}", stale=stale)
    return f"the documentation of {version} is on branch {PAGES}, also as {LATEST}"


def _versions(branch: Branch) -> list[dict]:
    """The versions that the branch lists."""
    archive = branch.files()
    if archive is None or VERSIONS not in archive.getnames():
        return []
    file = archive.extractfile(VERSIONS)
    return json.load(file) if file else []


def main(argv: Sequence[str] | None = None) -> int:
    """Build the documentation of a version, and publish it."""
    parser = argparse.ArgumentParser(prog=NAME, description=main.__doc__)
    parser.add_argument("version", metavar="VERSION")
    request = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        print(publish(build(Path(folder)), request.version))
    return 0


if __name__ == "__main__":
    ending.end(NAME, main)
