"""The wheel of a release: streaming_core with its runtime, for pip.

Hosts behind SSH get another wheel, which pins the versions of this machine (infra/services/wheel.py).
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from streaming_core.errors import CommandFailed


def build(root: Path, out: Path) -> Path:
    """Builds the wheel of a checkout.

    Args:
        root: The root of the checkout.
        out: The folder for the wheel and for SHA256SUMS, which `sha256sum --check` reads.

    Returns:
        The wheel's path in `out`.

    Raises:
        CommandFailed: maturin cannot build it.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        command = [sys.executable, "-m", "maturin", "build", "--release", "--quiet", "--out", folder]
        process = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        files = sorted(Path(folder).glob("*.whl"))
        if process.returncode or len(files) != 1:
            raise CommandFailed(f"maturin cannot build the wheel: {process.stderr.strip()[-500:]}")
        file = files[0].replace(out / files[0].name)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (out / "SHA256SUMS").write_text(f"{digest}  {file.name}\n")
    return file
