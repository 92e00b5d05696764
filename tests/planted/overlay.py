"""A copy of the checkout with one fault: in the runtime, built with its planted faults, or in an application."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNTIME = Path("streaming_core", "_runtime.abi3.so")
VARIABLE = "LOCKSTEP_PLANTED"
_BUILT = ROOT / "target" / "planted"
# A build without optimisation between crates takes half the time.
_SETTINGS = {"CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16", "MAKEFLAGS": ""}


@dataclass(frozen=True)
class Overlay:
    """A checkout.

    Attributes:
        root: Its folder.
        variables: What its commands need in their environment.
    """

    root: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
        """Run its Python with these arguments, in its folder."""
        # The first entry of `sys.path` is this folder, so the copy comes before the checkout that .venv names.
        command = ["infra/setup/environment", ".venv/bin/python", *arguments]
        variables = {**os.environ, **self.variables}
        return subprocess.run(
            command, cwd=self.root, env=variables, capture_output=True, text=True, timeout=seconds, check=False
        )


def build() -> Path:
    """The runtime with planted faults, built anew if its sources have changed."""
    sources = [*(ROOT / "streaming_core/runtime").rglob("*.rs"), *ROOT.glob("Cargo.*")]
    sources += [ROOT / "streaming_core/runtime/Cargo.toml"]
    digest = hashlib.sha256()
    for path in sorted(sources):
        digest.update(path.read_bytes())
    built = _BUILT / f"{digest.hexdigest()[:16]}.so"
    if not built.exists():
        command = ["infra/setup/environment", "cargo", "build", "--release", "--lib", "--quiet"]
        command += [
            "--features",
            "pyo3/extension-module,planted",
            "--manifest-path",
            "streaming_core/runtime/Cargo.toml",
        ]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **_SETTINGS}, check=True)
        _BUILT.mkdir(exist_ok=True)
        shutil.copy(ROOT / "target/release/lib_runtime.so", built)
    return built


@contextmanager
def of_checkout(
    runtime: Path = ROOT / RUNTIME,
    apply: Callable[[Path], object] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Overlay]:
    """A copy of the tracked and the new files, for the duration of the block.

    Args:
        runtime: Its runtime.
        apply: Changes the files below a folder.
        variables: What its commands need in their environment.
    """
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, stdout=-1, check=True)
    with tempfile.TemporaryDirectory(prefix="lockstep-planted-") as folder:
        root = Path(folder)
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        (root / ".venv").symlink_to(ROOT / ".venv")
        (root / RUNTIME).unlink(missing_ok=True)
        shutil.copy2(runtime, root / RUNTIME)
        if apply is not None:
            apply(root)
        yield Overlay(root, {"LOCKSTEP_HOME": str(root / "home"), **(variables or {})})
