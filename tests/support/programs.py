"""Programs that only tests need. `infra/setup/doctor` knows the Debian package of each one."""

import runpy

import pytest

from infra.checkout import ROOT

DOCTOR = runpy.run_path(str(ROOT / "infra" / "setup" / "doctor"))


def require(package: str) -> str:
    """The path of the program of a Debian package. Without it, the test is skipped; pytest's last lines count those."""
    path = DOCTOR["program_of"](package)
    if path is None:
        target = next(target for target, packages in DOCTOR["PROGRAMS"].items() if package in packages)
        pytest.skip(f"needs {package}; `make {target} YES=1` installs it: {DOCTOR['apt_command']([package])}")
    return path
