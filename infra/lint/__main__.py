"""`python -m infra.lint`: run the checks, compare them with the baseline, print what is new."""

from __future__ import annotations

import argparse
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from infra.checkout import ROOT
from infra.lint import baseline, checkers, figures, links, prose
from infra.lint.violation import Violation
from streaming_core import ending
from streaming_core.errors import CommandFailed


def main(root: Path = ROOT) -> int:
    """Prints what is new and returns 1 if anything is, or shrinks the baseline."""
    parser = argparse.ArgumentParser(prog="python -m infra.lint", description="Check style, types, prose and links.")
    parser.add_argument("--shrink", action="store_true", help="lower the baseline to the present counts")
    shrink = parser.parse_args().shrink
    file = root / baseline.FILE
    current = violations(root)
    counts, allowed = baseline.count(current), baseline.read(file)
    if shrink and not baseline.grown_rules(counts, allowed):
        baseline.write(file, counts)
        return 0
    lines = baseline.problems(current, allowed)
    for line in lines:
        print(line)
    return 1 if lines else 0


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
        ours = [*prose.check(root, paths), *links.check(root, paths), *figures.check(root, paths)]
        return ours + [violation for check in checks for violation in check.result()]


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
