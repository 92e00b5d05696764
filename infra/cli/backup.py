"""`lockstep backup` and `lockstep restore`: copy history and decisions into one file, and back."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from infra.services import backup as service
from infra.services.backup import Manifest
from reports.history import History
from streaming_core.ending import say
from streaming_core.regression.decisions import entries
from streaming_core.regression.home import Home


def backup(home: Home, file: Path, as_json: bool) -> None:
    """Back up `home` into a new file, and print what the file holds. Raises the errors of `service.backup`."""
    with Console(stderr=True).status(f"writing {file}"):
        manifest = service.backup(home, file, lambda line: say("lockstep", line))
    _print("backup", home, file, manifest, as_json)


def restore(home: Home, file: Path, as_json: bool) -> None:
    """Restore a backup into `home`, and print its content. Raises the errors of `service.restore`."""
    with Console(stderr=True).status(f"reading {file}"):
        manifest = service.restore(home, file)
    _print("restore", home, file, manifest, as_json)
    if not as_json:
        print("next: lockstep warehouse build, then lockstep publish")


def _print(command: str, home: Home, file: Path, manifest: Manifest, as_json: bool) -> None:
    runs, acknowledgements = len(History(home).run_ids()), len(entries(home))
    size = sum(one.size for one in manifest.files)
    if as_json:
        result = {
            "file": str(file),
            "home": str(home.root),
            "format": manifest.format,
            "raw_schema": manifest.raw_schema,
            "created_at": manifest.created_at,
            "runs": runs,
            "acknowledgements": acknowledgements,
            "files": len(manifest.files),
            "bytes": size,
        }
        print(json.dumps(result, indent=1))
        return
    print(
        f"{command}: {file} holds {_count(runs, 'run')}, {_count(acknowledgements, 'acknowledgement')}, "
        f"{_count(len(manifest.files), 'file')} ({size / 1e6:.1f} MB)"
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
