"""Builds the loops of runtime/benches/limits, and copies the program into ENGINE_HOME."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def main() -> None:
    """Build with cargo, which `make doctor` names if it is missing."""
    cargo = shutil.which("cargo") or shutil.which("cargo", path=Path.home() / ".cargo" / "bin")
    if cargo is None:
        sys.exit("the hand-written loops need cargo: `make doctor` says how to install it")
    command = [cargo, "build", "--quiet", "--release", "--bench", "limits", "--message-format", "json"]
    lines = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    program = next(path for path in (json.loads(line).get("executable") for line in lines) if path)
    shutil.copy(program, Path(os.environ["ENGINE_HOME"]) / "limits")


main()
