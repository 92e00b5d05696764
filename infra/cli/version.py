"""`lockstep version`: the versions of the checkout, of Python and of the packages that decide a result."""

from __future__ import annotations

import json
import platform
import tomllib
from importlib.metadata import version as version_of

from infra.checkout import ROOT
from streaming_core.cli.options import Json

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


def version(as_json: Json = False) -> None:
    """Print the versions of Lockstep, Python and the packages.

    Add the output to a report of a problem.

    Examples:
        lockstep version
        lockstep version --json
    """
    from streaming_core.run.provenance import build

    facts = {
        "version": tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"],
        "build": build(),
        "python": platform.python_version(),
        "processor": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
    }
    packages = {name: version_of(name) for name in PACKAGES}
    if as_json:
        print(json.dumps({**facts, "packages": packages}, indent=2))
        return
    print(f"lockstep {facts['version']}, build {facts['build']}")
    print(f"python {facts['python']} on {facts['processor']}, {facts['system']}")
    for name, number in packages.items():
        print(f"{name} {number}")
