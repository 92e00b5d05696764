"""The wheel of a build: what a host needs to run cells, as one file.

A wheel holds the package `streaming_core` with its runtime, as this checkout runs them, and the programs for hosts. It
is a valid wheel, so pip can install it, but hosts only unpack it. Its metadata names the exact versions of the packages
here, because other ones could change results, and would change speeds.

The digest of a wheel is the SHA-256 of its RECORD, which lists the SHA-256 of each file (PEP 427). The same files have
the same digest. LOCKSTEP_HOME/builds keeps one wheel for each digest; packing takes about a second.
"""

from __future__ import annotations

import hashlib
import re
import sysconfig
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from infra.checkout import ROOT
from infra.hosts.build import PACKAGE, Build
from infra.hosts.unpack import hash_of
from streaming_core.regression.home import Home
from streaming_core.run.provenance import BUILD_FILE
from streaming_core.storage import atomic_directory

# The programs that run on a host, with what they import. `unpack` is not among them.
PROGRAMS = [Path("infra", f"{name}.py") for name in ("__init__", "checkout", "gate/__init__", "gate/pairs")]
ON_HOSTS = ("__init__", "build", "cell", "environment", "folders", "lock", "machine")
PROGRAMS += [Path("infra", "hosts", f"{name}.py") for name in ON_HOSTS]
COMPILER = "llvmlite"  # no direct dependency, but it makes the machine code
_SKIPPED = ("__pycache__", "runtime")  # the Rust sources
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every file, so that the same files make the same wheel


class Wheel(NamedTuple):
    """A wheel: its digest, its file, and the Python and the platform that it is for."""

    digest: str
    path: Path
    python: tuple[int, int]
    platform: str


def wheel_of(build: Build, home: Home) -> Wheel:
    """The wheel of a build; packed first unless LOCKSTEP_HOME has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    least = _least_python(project["requires-python"])
    system = sysconfig.get_platform()
    tag = f"cp{least[0]}{least[1]}-abi3-{re.sub(r'[^a-z0-9]', '_', system)}"
    name = f"{project['name'].replace('-', '_')}-{project['version']}"
    files = _files(build) | _metadata(f"{name}.dist-info", project, tag)
    record = f"{name}.dist-info/RECORD"
    lines = [f"{path},sha256={hash_of(content)},{len(content)}\n" for path, content in sorted(files.items())]
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    digest = hashlib.sha256(files[record]).hexdigest()
    folder = home.build(digest)
    if not folder.is_dir():
        with atomic_directory(folder) as new, ZipFile(new / f"{name}-{tag}.whl", "w") as wheel:
            for path, content in files.items():
                wheel.writestr(ZipInfo(path, EPOCH), content, ZIP_DEFLATED, 1)
    return Wheel(digest, folder / f"{name}-{tag}.whl", least, system)


def _files(build: Build) -> dict[str, bytes]:
    """The files of a build by their path in the wheel."""
    paths = [path.relative_to(build.tree) for path in sorted((build.tree / PACKAGE).rglob("*"))]
    paths = [path for path in paths if not any(part in _SKIPPED or part.startswith(".") for part in path.parts)]
    files = {path.as_posix(): build.tree / path for path in [*paths, *PROGRAMS]}
    contents = {name: path.read_bytes() for name, path in files.items() if path.is_file()}
    return contents | {f"{PACKAGE}/{BUILD_FILE}": f"{build.name}\n".encode()}


def needs() -> list[str]:
    """The names of the packages that the engine imports, and the compiler."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return sorted([*(re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0] for line in project["dependencies"]), COMPILER])


def _metadata(folder: str, project: dict, tag: str) -> dict[str, bytes]:
    required = "".join(f"Requires-Dist: {name}=={version(name)}\n" for name in needs())
    about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    about += f"Requires-Python: {project['requires-python']}\n{required}"
    wheel = f"Wheel-Version: 1.0\nGenerator: {project['name']}\nRoot-Is-Purelib: false\nTag: {tag}\n"
    return {f"{folder}/METADATA": about.encode(), f"{folder}/WHEEL": wheel.encode()}


def _least_python(requires: str) -> tuple[int, int]:
    major, minor = requires.removeprefix(">=").split(".")[:2]
    return int(major), int(minor)
