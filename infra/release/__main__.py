"""`python -m infra.release`: run the release checklist."""

from __future__ import annotations

import argparse
from pathlib import Path

from infra.checkout import ROOT
from infra.release.checklist import Release, check
from streaming_core import ending


def main() -> int:
    """Prints one line for each item of the checklist, and returns 1 if an item fails."""
    parser = argparse.ArgumentParser(
        prog="make release",
        description="Check all that a release needs, and write the wheel and its checksum into dist.",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder for the wheel (default: dist)")
    parser.add_argument("--no-tests", action="store_true", help="leave out lint and tests, which take half an hour")
    options = parser.parse_args()
    return 0 if check(Release.of(ROOT, options.out), tests=not options.no_tests) else 1


if __name__ == "__main__":
    ending.end("release", main)
