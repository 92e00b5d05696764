"""Checkers of others that know no baseline: ruff, mypy and codespell, each of them run once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.lint.violation import Violation
from streaming_core.errors import CommandFailed

# Rules that old code breaks. An editor that reads pyproject.toml shows only the others.
BASELINED_RULES = "D,C901,PLR0913"
MISSPELLING = re.compile(r"(.*?):(\d+): (.*)")


def ruff(root: Path) -> list[Violation]:
    """Runs ruff with the rules of pyproject.toml and those of the baseline."""
    options = ["check", "--extend-select", BASELINED_RULES, "--output-format", "json"]
    return [
        Violation(
            Path(item["filename"]).relative_to(root).as_posix(),
            item["location"]["row"],
            item["code"] or "syntax",
            item["message"],
        )
        for item in json.loads(_output(root, "ruff", options))
    ]


def mypy(root: Path) -> list[Violation]:
    """Runs mypy, which also reports functions without types; the cache is not the one of a run by hand."""
    options = ["--disallow-untyped-defs", "--output", "json", "--cache-dir", ".mypy_cache/lint"]
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
