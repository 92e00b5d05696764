"""`python -m infra.lint`: run every check and print the violations."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from infra.checkout import ROOT
from infra.lint import checkers, definitions, links
from infra.lint.violation import Violation
from streaming_core.errors import CommandFailed
from streaming_core.process import ending

CHECKS: list[Callable[[Path, Iterable[str]], list[Violation]]] = [links.check, definitions.check]
if Path(__file__).with_name("prose").joinpath("rules.py").is_file():  # a project has none (copier.yml)
    from infra.lint.prose import figures, rules, terms

    CHECKS += [rules.check, figures.check, terms.check]


def main(root: Path = ROOT) -> int:
    """Prints every violation, and returns 1 if one is no warning."""
    broken = sorted(violations(root))
    for violation in broken:
        print(violation)
    return 0 if all(violation.is_warning for violation in broken) else 1


def violations(root: Path) -> list[Violation]:
    """Runs every check over the files of a checkout."""
    paths = files(root)
    # The checkers are processes: they work beside the checks below.
    with ThreadPoolExecutor() as pool:
        checks = [
            pool.submit(checkers.mypy, root),
            pool.submit(checkers.ruff, root),
            pool.submit(checkers.codespell, root, paths),
        ]
        ours = [check(root, paths) for check in CHECKS]
        return [violation for part in ours for violation in part] + [
            violation for check in checks for violation in check.result()
        ]


def files(root: Path) -> list[str]:
    """Lists the files that git tracks, and new ones that it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    git = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if git.returncode:
        raise CommandFailed(f"git cannot list the files of {root}: {git.stderr.strip()}")
    paths = {path for path in git.stdout.split("\0") if path}
    return sorted(path for path in paths if (root / path).is_file() and not (root / path).is_symlink())


if __name__ == "__main__":
    ending.end("lint", main)
