"""Takes the newest sound checkpoint of a run to another folder or host.

An export is one file: a tar archive, and a last line with its digest. The archive has the checkpoint with all of its
parts, and the outputs before it. The folder that an import makes is that of a killed run, so the usual command resumes
it.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from streaming_core import interruption, storage
from streaming_core.data.parts import part_path
from streaming_core.errors import BadInput, refusal
from streaming_core.run.checkpoint import file
from streaming_core.run.checkpoint.file import Checkpoint, Damage
from streaming_core.run.folder import CHECKPOINTS, WORK
from streaming_core.run.way import RunSpec

TRIES = 3  # a run that is at work removes old checkpoints meanwhile
LAST = re.compile(rb"lockstep checkpoint export ([0-9a-f]{64})\n")
LAST_SIZE = 92
OUTPUT = re.compile(r"outputs/part-[0-9]{5,}\.parquet")


def export(out: Path, target: Path) -> Checkpoint:
    """Write the newest sound checkpoint of a run folder into a file. The run may be at work.

    Args:
        out: The run folder.
        target: The file.

    Returns:
        The checkpoint.

    Raises:
        BadInput: The folder has no sound checkpoint, or the file cannot be written.
        CommandFailed: The disk is full, or fails.
    """
    folder = out / WORK / CHECKPOINTS
    damage = f"{out} has no checkpoint of a bounded run"
    storage.check_place(target)
    try:
        for _ in range(TRIES):
            for path in file.paths(folder):
                try:
                    return _export(out, file.read(path), target)
                except Damage as error:
                    damage = f"{path.name} in {folder} is damaged: {error}"
    except OSError as error:
        raise refusal(error, f"cannot write {target}") from None
    raise BadInput(damage)


def _export(out: Path, checkpoint: Checkpoint, target: Path) -> Checkpoint:
    work = out / WORK

    def images(take: file.Take) -> None:
        for part, image in file.images(work / CHECKPOINTS, checkpoint):
            take(part.name, part.number, image)

    with TemporaryDirectory(dir=target.resolve().parent, prefix=".checkpoint-") as temporary:
        whole = Path(temporary) / checkpoint.name
        file.write(whole, checkpoint, images)
        with storage.replacing(target) as stream:
            hashing: Any = _Hashing(stream)  # tarfile only writes to it
            with tarfile.open(fileobj=hashing, mode="w|") as archive:
                archive.add(whole, checkpoint.name)
                for number in range(checkpoint.outputs):
                    path = part_path(work / "outputs", number)
                    try:
                        archive.add(path, f"outputs/{path.name}")
                    except FileNotFoundError:
                        raise Damage(f"{path.name} is missing") from None
            stream.write(f"lockstep checkpoint export {hashing.digest.hexdigest()}\n".encode())
    return checkpoint


class _Hashing:
    """A stream whose content is hashed on its way."""

    def __init__(self, stream: BinaryIO):
        self._stream, self.digest = stream, hashlib.sha256()

    def write(self, data: bytes) -> int:
        interruption.check()
        self.digest.update(data)
        return self._stream.write(data)


def _digest(path: Path, length: int) -> str:
    """SHA-256 of the first bytes of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as content:
        while piece := content.read(min(file.PIECE, length)):
            interruption.check()
            digest.update(piece)
            length -= len(piece)
    return digest.hexdigest()


def import_(source: Path, out: Path) -> Checkpoint:
    """Make a run folder of an exported checkpoint.

    Args:
        source: The file that `export` wrote.
        out: The folder: new or empty.

    Returns:
        The checkpoint.

    Raises:
        BadInput: The file is not an exported checkpoint or is damaged, or the folder has files.
        CommandFailed: The disk is full, or fails.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} already holds files; choose a new folder")
    _check(source)
    try:
        with storage.held(out), storage.appearing(out) as folder:
            return _unpack(source, folder)
    except OSError as error:
        raise refusal(error, f"cannot write {out}") from None


def _check(source: Path) -> None:
    """Raise BadInput unless a file is a whole export."""
    try:
        with open(source, "rb") as content:
            length = max(0, os.fstat(content.fileno()).st_size - LAST_SIZE)
            content.seek(length)
            last = LAST.fullmatch(content.read())
        if last is None or last[1].decode() != _digest(source, length):
            raise BadInput(f"{source} is not an exported checkpoint, or is damaged")
    except OSError as error:
        raise BadInput(f"cannot read {source}: {error.strerror}") from None


def _unpack(source: Path, folder: Path) -> Checkpoint:
    """Write the content of an export into the folder of a run."""
    work, checkpoints = folder / WORK, []
    for path in (work / CHECKPOINTS, work / "outputs"):
        path.mkdir(parents=True)
    try:
        with tarfile.open(source, "r:") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                if content is None or not (file.NAME.fullmatch(member.name) or OUTPUT.fullmatch(member.name)):
                    raise Damage(f"it has {member.name!r}")
                is_output = member.name.startswith("outputs/")
                place = work / member.name if is_output else work / CHECKPOINTS / member.name
                with open(place, "xb") as target:
                    while piece := content.read(file.PIECE):
                        interruption.check()
                        target.write(piece)
                if not is_output:
                    checkpoints.append(file.read(place))
                    file.check(place.parent, checkpoints[-1])
        [checkpoint] = checkpoints
        spec = RunSpec.parse(checkpoint.way)
    except (Damage, ValueError, FileExistsError, BadInput, tarfile.TarError) as error:
        raise BadInput(f"{source} is not an exported checkpoint: {error}") from None
    storage.write_json(folder / "spec.json", spec.model_dump(mode="json"))
    return checkpoint
