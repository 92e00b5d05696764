"""The packages that the engine needs on a host, as they are installed here: a folder with a wheel of each.

A wheel is packed from the installed files, so a host gets what runs here, without an index. It is named after the
SHA-256 of its contents, so the same files make the same folder. infra/hosts/environment.py unpacks them on the host.
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from packaging.requirements import Requirement

from infra.checkout import ROOT
from infra.hosts.build import PACKAGE
from infra.hosts.folders import digest_of
from infra.hosts.wheel import EPOCH, needs
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from streaming_core.storage import atomic_directory

GLIBC = re.compile(rb"GLIBC_(\d+)\.(\d+)\0")  # the versions of symbols that a library names
LIBRARY = re.compile(r"\.so(\.\d+)*$")


class Packages(NamedTuple):
    """The packages for a host.

    Attributes:
        folder: Here, the folder of their wheels, named after the digest of all of them.
        python: The version of Python that they are for.
        glibc: The oldest version of the C library that they run with.
    """

    folder: Path
    python: tuple[int, int]
    glibc: tuple[int, int]


def packages(home: Home) -> Packages:
    """The packages of the engine; packed first unless LOCKSTEP_HOME has them. Packing takes about half a minute."""
    own = {name: _files(package) for name, package in _distributions(needs()).items()}
    digests = {name: _digest(files) for name, files in own.items()}
    whole = hashlib.sha256("".join(f"{name} {digests[name]}\n" for name in sorted(own)).encode()).hexdigest()
    folder = home.build(whole)
    if not folder.is_dir():
        with atomic_directory(folder) as new:
            for name, files in own.items():
                with ZipFile(new / f"{name}-{digests[name][:16]}.whl", "w") as wheel:
                    for path, source in files.items():
                        wheel.writestr(ZipInfo(path, EPOCH), source.read_bytes(), ZIP_DEFLATED, 1)
    return Packages(folder, sys.version_info[:2], _glibc(own))


def check(needed: Packages, host: dict) -> None:
    """Check that packages fit a host.

    Args:
        needed: The packages.
        host: What infra/hosts/unpack.py says of the host.

    Raises:
        BadInput: They do not.
    """
    python, glibc = (".".join(map(str, version)) for version in (needed.python, needed.glibc))
    missing = []
    if tuple(host["version"]) != needed.python:
        missing.append(
            f"it has Python {host['python']}, and the packages here are for {python}: install python{python} there, "
            "and set python in the extra of the connection"
        )
    if host["glibc"] is None or tuple(host["glibc"]) < needed.glibc:
        version = f"glibc {'.'.join(map(str, host['glibc']))}" if host["glibc"] else "no glibc"
        missing.append(f"it has {version}, and the packages need {glibc} or newer: give it a newer system")
    if missing:
        raise BadInput("; ".join(missing))


def _distributions(names: list[str]) -> dict[str, Distribution]:
    """Installed distributions, and all that they require, by name."""
    own: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        package = distribution(waiting.pop())
        if package.name not in own:
            own[package.name] = package
            for need in map(Requirement, package.requires or []):
                if need.marker is None or need.marker.evaluate({"extra": ""}):
                    waiting.append(need.name)
    return dict(sorted(own.items()))


def _files(package: Distribution) -> dict[str, Path]:
    """The files of a distribution that are modules or data, by their path among the modules."""
    paths = {path.as_posix(): Path(str(path.locate())) for path in package.files or []}
    return {name: path for name, path in sorted(paths.items()) if not name.startswith("..") and path.suffix != ".pyc"}


def _digest(files: dict[str, Path]) -> str:
    listed = (f"{name} {digest_of(path)}\n" for name, path in files.items())
    return hashlib.sha256("".join(listed).encode()).hexdigest()


def _glibc(own: dict[str, dict[str, Path]]) -> tuple[int, int]:
    """The newest version of glibc whose symbols a library of the packages, or the runtime, uses."""
    paths = [path for files in own.values() for path in files.values() if LIBRARY.search(path.name)]
    versions = {(0, 0)}
    for path in [*paths, *(ROOT / PACKAGE).glob("_runtime*.so")]:
        versions |= {(int(major), int(minor)) for major, minor in GLIBC.findall(path.read_bytes())}
    return min(max(versions), _here())


def _here() -> tuple[int, int]:
    """The version of glibc of this machine."""
    major, minor = platform.libc_ver()[1].split(".")[:2]
    return int(major), int(minor)
