"""The checkers of other projects: ruff, mypy and codespell. pyproject.toml configures each of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.lint.violation import Violation
from streaming_core.errors import CommandFailed

MISSPELLING = re.compile(r"(.*?):(\d+): (.*)")


def ruff(root: Path) -> list[Violation]:
    """Runs ruff."""
    return [
        Violation(
            Path(item["filename"]).relative_to(root).as_posix(),
            item["location"]["row"],
            item["code"] or "syntax",
            item["message"],
        )
        for item in json.loads(_output(root, "ruff", ["check", "--output-format", "json"]))
    ]


def mypy(root: Path) -> list[Violation]:
    """Runs mypy. The cache is not the one of a run by hand."""
    options = ["--output", "json", "--cache-dir", ".mypy_cache/lint"]
    items = (json.loads(line) for line in _output(root, "mypy", options).splitlines() if line.startswith("{"))
    return [
        Violation(item["file"], max(item["line"], 1), item["code"] or "syntax", item["message"])
        for item in items
        if item["severity"] == "error"
    ]


def codespell(root: Path, paths: Sequence[str]) -> list[Violation]:
    """Runs codespell on files, relative to the root."""
    lines = _output(root, "codespell_lib", ["--quiet-level", "35", "--", *paths], failures=(0, 65)).splitlines()
    return [
        Violation(match[1].removeprefix("./"), int(match[2]), "spelling", match[3])
        for match in map(MISSPELLING.fullmatch, lines)
        if match
    ]


def _output(root: Path, module: str, options: Sequence[str], failures: tuple[int, ...] = (0, 1)) -> str:
    process = subprocess.run(
        [sys.executable, "-m", module, *options], cwd=root, capture_output=True, text=True, check=False
    )
    if process.returncode not in failures:
        reason = process.stderr.strip() or process.stdout.strip()
        raise CommandFailed(f"{module} failed with exit code {process.returncode}: {reason[-500:]}")
    return process.stdout
