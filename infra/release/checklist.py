"""The release checklist: what must hold before a version gets its tag.

Each item is a function that returns a line about what it saw, or raises `CommandFailed` with the reason. The items run
in order, cheap ones first. A failed item does not stop the others, so that one run shows all that is left to do.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.release import smoke, wheel
from infra.release.command import output
from streaming_core.errors import CommandFailed

# Python 3.N that the wheel runs on. numba and Airflow decide the newest one.
PYTHONS = ("3.11", "3.12", "3.13")


@dataclass(frozen=True)
class Release:
    """A version of this checkout.

    Attributes:
        root: The root of the checkout.
        version: The version in pyproject.toml, for example `0.1.0`.
        out: The folder that receives the wheel and the file SHA256SUMS.
    """

    root: Path
    version: str
    out: Path

    @classmethod
    def of(cls, root: Path, out: Path) -> Release:
        """Reads the version of a checkout."""
        return cls(root, tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"], out.resolve())


def check(release: Release, *, tests: bool) -> bool:
    """Runs the checklist and prints a line for each item.

    Args:
        release: The version to check.
        tests: Whether `make lint` and `make test` are items.

    Returns:
        Whether all items hold. If so, the last line is the command that makes the tag.
    """
    holds = [_holds(name, item, release) for name, item in items(tests=tests)]
    if all(holds):
        print(f"\nTag it: git tag --annotate v{release.version} --message 'Lockstep {release.version}'")
    else:
        print(f"\n{holds.count(False)} of {len(holds)} items do not hold")
    return all(holds)


def items(*, tests: bool) -> list[tuple[str, Callable[[Release], str]]]:
    """Lists the items of the checklist with their names."""
    long = [("lint", lint), ("tests", test)] if tests else []
    return [
        ("clean checkout", clean),
        ("versions", versions),
        ("changelog", changelog),
        ("lock file", lock),
        *long,
        ("documentation", documentation),
        ("wheel", smoke_test),
    ]


def clean(release: Release) -> str:
    """Checks that every file is committed."""
    changes = output(release.root, ["git", "status", "--porcelain"]).splitlines()
    if changes:
        raise CommandFailed(f"{len(changes)} files are not committed, among them {changes[0][3:]}: commit them")
    return output(release.root, ["git", "rev-parse", "--short", "HEAD"]).strip()


def versions(release: Release) -> str:
    """Checks that the Rust crate has the version of pyproject.toml, and that no other commit has its tag."""
    cargo = tomllib.loads((release.root / "streaming_core" / "runtime" / "Cargo.toml").read_text())["package"]
    packages = tomllib.loads((release.root / "Cargo.lock").read_text())["package"]
    locked = next(package["version"] for package in packages if package["name"] == cargo["name"])
    for file, version in (("streaming_core/runtime/Cargo.toml", cargo["version"]), ("Cargo.lock", locked)):
        if version != release.version:
            raise CommandFailed(
                f"{file} has version {version}, and pyproject.toml has {release.version}: make them equal"
            )
    tag = f"v{release.version}"
    tags = output(release.root, ["git", "tag", "--list", tag]).split()
    if tags and output(release.root, ["git", "rev-list", "-1", tag]) != output(
        release.root, ["git", "rev-list", "-1", "HEAD"]
    ):
        raise CommandFailed(f"the tag {tag} is at another commit: raise the version in pyproject.toml and Cargo.toml")
    return release.version


def changelog(release: Release) -> str:
    """Checks that the newest section of CHANGELOG.md is this version, with a date and with entries."""
    sections = re.split(r"^## ", (release.root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    heading, _, text = sections[0].partition("\n")
    match = re.fullmatch(r"(\S+) \((\d{4}-\d\d-\d\d)\)", heading)
    if not match or match[1] != release.version:
        raise CommandFailed(f"its newest section is {heading!r}: name it '{release.version} (YYYY-MM-DD)'")
    entries = len(re.findall(r"^- ", text, flags=re.MULTILINE))
    if not entries:
        raise CommandFailed(f"the section {heading!r} is empty: say what a user notices")
    return f"{match[2]}, {entries} entries"


def lock(release: Release) -> str:
    """Checks that requirements.lock satisfies requirements.in."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "requirements.lock")
        text = (release.root / "requirements.lock").read_text()
        copy.write_text(text)
        options = ["--output-file", str(copy), "--quiet", "--universal", "--python-version", PYTHONS[0]]
        options += ["--generate-hashes", "--no-emit-index-url", "--no-emit-find-links"]
        options += ["--custom-compile-command", "make lock"]
        output(release.root, [sys.executable, "-m", "uv", "pip", "compile", "requirements.in", *options])
        if copy.read_text() != text:
            raise CommandFailed("requirements.lock is not what requirements.in resolves to: run `make lock`")
    return f"{text.count(' --hash=')} hashes, no address of an index" if "://" not in text else _address(text)


def lint(release: Release) -> str:
    """Runs `make lint`."""
    output(release.root, ["make", "--no-print-directory", "lint"])
    return "no violations"


def test(release: Release) -> str:
    """Runs `make test`."""
    lines = output(release.root, ["make", "--no-print-directory", "test"]).splitlines()
    return next((line.strip("= ") for line in reversed(lines) if " passed" in line), "passed")


def documentation(release: Release) -> str:
    """Builds the documentation with the menu of versions; `mike deploy` builds the same."""
    with tempfile.TemporaryDirectory() as folder:
        config = ["--config-file", "infra/release/mkdocs.yml"]
        output(release.root, [sys.executable, "-m", "mkdocs", "build", "--quiet", *config, "--site-dir", folder])
        return f"{len(list(Path(folder).rglob('*.html')))} pages"


def smoke_test(release: Release) -> str:
    """Builds the wheel, and runs an application from it on each supported Python that this machine has."""
    file = wheel.build(release.root, release.out)
    pythons = smoke.interpreters(PYTHONS)
    if not pythons:
        raise CommandFailed(f"this machine has no Python {', '.join(PYTHONS)}: install one")
    for path in pythons.values():
        smoke.run(file, path)
    absent = [version for version in PYTHONS if version not in pythons]
    note = f"; not on this machine: {', '.join(absent)}" if absent else ""
    return f"{file.name} runs on Python {', '.join(sorted(pythons))}{note}"


def _holds(name: str, item: Callable[[Release], str], release: Release) -> bool:
    begin = time.monotonic()
    print(f"{name:15} ...", end="", flush=True)
    try:
        line, mark = item(release), "ok"
    except CommandFailed as error:
        line, mark = str(error), "NO"
    print(f"\r{name:15} {mark}   {line} ({time.monotonic() - begin:.0f} s)", flush=True)
    return mark == "ok"


def _address(text: str) -> str:
    line = next(line for line in text.splitlines() if "://" in line)
    raise CommandFailed(f"requirements.lock names an address: {line.strip()}")
