"""`lockstep version`: the versions of the checkout, of Python and of the packages that decide a result."""

from __future__ import annotations

import json
import platform
import tomllib
from importlib.metadata import version as version_of
from typing import TypedDict

from infra.checkout import ROOT
from streaming_core.run.provenance import build

# The packages that make, run, compare, judge and keep a result.
PACKAGES = (
    "apache-airflow",
    "pyspark",
    "great-expectations",
    "dbt-core",
    "duckdb",
    "numba",
    "llvmlite",
    "numpy",
    "pyarrow",
)


class Versions(TypedDict):
    """What `lockstep version --json` prints."""

    version: str
    build: str
    python: str
    processor: str
    system: str
    packages: dict[str, str]


def versions() -> Versions:
    """Collects the versions of this checkout and its environment."""
    return Versions(
        version=tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"],
        build=build(),
        python=platform.python_version(),
        processor=platform.machine(),
        system=f"{platform.system()} {platform.release()}",
        packages={name: version_of(name) for name in PACKAGES},
    )


def version(as_json: bool) -> int:
    """Prints the versions, as JSON or as lines. Returns the exit code."""
    facts = versions()
    if as_json:
        print(json.dumps(facts, indent=2))
        return 0
    print(f"lockstep {facts['version']}, build {facts['build']}")
    print(f"python {facts['python']} on {facts['processor']}, {facts['system']}")
    for name, number in facts["packages"].items():
        print(f"{name} {number}")
    return 0
