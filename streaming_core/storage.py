"""What is on the disk: folders and files that appear whole or not at all, manifests, and the digest of a JSON value."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streaming_core.errors import BadInput


def canonical_json(value: object) -> str:
    """One spelling per value: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest_of(value: object) -> str:
    """First 16 hex digits of SHA-256 over the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]


def write_json(path: Path, value: object) -> None:
    """Writes JSON so that `path` is either absent or whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def read_manifest(directory: Path, what: str, keys: set[str], command: str) -> dict[str, Any]:
    """The manifest of a folder that is whole.

    Args:
        what: kind of folder, such as workload.
        keys: those that every manifest of this kind has.
        command: the `streaming-core` command that makes such a folder.

    Raises:
        BadInput: there is none, it cannot be read, or it is of a folder of another kind.
    """
    path = Path(directory) / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(
            f"no {what} at {directory}: {path.name} is missing; make it with `streaming-core {command}`"
        ) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{what} {directory}: {path.name} cannot be read: {error}") from None
    if lacking := sorted(keys - manifest.keys() if isinstance(manifest, dict) else keys):
        raise BadInput(f"{directory} is no {what}: {path.name} lacks {', '.join(lacking)}")
    return manifest


@contextmanager
def atomic_directory(target: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `target`; renames it to `target` when the block succeeds, else removes it.

    Two writers of one address: the first rename wins, the second's work is dropped.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    os.chmod(temporary, 0o755)
    try:
        yield temporary
        for folder, _, names in os.walk(temporary):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    os.fsync(file.fileno())
        try:
            os.rename(temporary, target)
        except OSError:
            if not target.exists():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
