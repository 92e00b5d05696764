"""Makes a Python environment of packages on a host. The program is part of the build there.

    environment.py FOLDER DIGEST

FOLDER/packages/DIGEST has the wheels (infra/hosts/packages.py). The environment appears as FOLDER/environments/DIGEST,
whole, and the link FOLDER/environment leads to it. The program also writes a file for systemd-tmpfiles. With it, the
system removes data that nothing has used for a week. It prints one line of JSON.

The program uses the standard library, and needs no pip: Debian's Python has none.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

UNIT = """# Lockstep's folder on this host, and its data that nothing has used for a week.
d {folder} 0700 - - -
e {folder}/data 0700 - - 7d
"""


def make(folder: Path, digest: str) -> Path:
    """Make the environment unless it exists, and lead the link to it; returns its interpreter."""
    target = folder / "environments" / digest
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=".", dir=target.parent))
        try:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", str(new)], check=True)
            (modules,) = new.glob("lib/python*/site-packages")
            for wheel in sorted((folder / "packages" / digest).glob("*.whl")):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(modules)
            with contextlib.suppress(OSError):  # another program was quicker
                os.rename(new, target)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    link = folder / f".environment-{os.getpid()}"
    link.symlink_to(target)
    os.replace(link, folder / "environment")
    return folder / "environment" / "bin" / "python"


def write_unit(folder: Path) -> Path:
    """Write the file for systemd-tmpfiles."""
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = settings / "user-tmpfiles.d" / "lockstep.conf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(UNIT.format(folder=folder))
    return path


def main(folder: str, digest: str) -> int:
    """Make the environment and the unit, and print the interpreter, or why it cannot be made."""
    try:
        root = Path(folder)
        answer = {"python": str(make(root, digest)), "unit": str(write_unit(root))}
    except (OSError, subprocess.CalledProcessError, zipfile.BadZipFile) as error:
        answer = {"error": " ".join(str(error).split())}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
