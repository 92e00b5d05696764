"""`python -m infra.release`: write the wheel into dist, run it on each supported Python, print how to tag."""

from __future__ import annotations

import tomllib

from infra.checkout import ROOT
from infra.release import smoke, wheel
from streaming_core import ending
from streaming_core.errors import CommandFailed

# Python 3.N that the wheel runs on. numba and Airflow decide the newest one.
PYTHONS = ("3.11", "3.12", "3.13")


def main() -> None:
    """Print a line for each Python. Raises CommandFailed if the wheel does not run on one of them."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    file = wheel.build(ROOT, ROOT / "dist")
    pythons = smoke.interpreters(PYTHONS)
    if not pythons:
        raise CommandFailed(f"this machine has no Python {', '.join(PYTHONS)}: install one")
    for name in PYTHONS:
        if name in pythons:
            smoke.run(file, pythons[name])
        print(f"{file.name} {'runs on' if name in pythons else 'was not tried, because there is no'} Python {name}")
    print(f"\nTag it: git tag --annotate v{version} --message 'Lockstep {version}'")


if __name__ == "__main__":
    ending.end("release", main)
