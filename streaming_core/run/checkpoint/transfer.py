"""Takes the newest sound checkpoint of a run to another folder or host.

The file of an export is a tar archive: the checkpoint with all of its parts, and the outputs before it. The folder that
an import makes is that of a killed run, so the usual command resumes it.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from streaming_core import interruption, storage
from streaming_core.data.parts import Parts, part_path
from streaming_core.errors import BadInput, refusal
from streaming_core.run.checkpoint import file, store
from streaming_core.run.checkpoint.file import Checkpoint, Damage
from streaming_core.run.folder import CHECKPOINTS, WORK
from streaming_core.run.way import RunSpec

TRIES = 3  # a run that is at work removes old checkpoints meanwhile


def export(out: Path, target: Path) -> Checkpoint:
    """Write the newest sound checkpoint of a run folder into a file. The run may be at work.

    Returns:
        The checkpoint.

    Raises:
        BadInput: The folder has no sound checkpoint, or the file cannot be written.
        CommandFailed: The disk is full, or fails.
    """
    folder = out / WORK / CHECKPOINTS
    damage = f"{out} has no checkpoint of a run that was interrupted"
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
    folder = out / WORK / CHECKPOINTS
    with TemporaryDirectory(dir=target.resolve().parent, prefix=".checkpoint-") as temporary:
        whole = Path(temporary) / checkpoint.name

        def images(take: file.Take) -> None:
            for part, image in file.images(folder, checkpoint):
                take(part.name, part.number, image)

        file.write(whole, checkpoint, images)
        with storage.replacing(target) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
            archive.add(whole, checkpoint.name)
            for number in range(checkpoint.outputs):
                interruption.check()
                path = part_path(out / WORK / "outputs", number)
                try:
                    archive.add(path, f"outputs/{path.name}")
                except FileNotFoundError:
                    raise Damage(f"{path} is missing") from None
    return checkpoint


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
    try:
        with storage.held(out), storage.appearing(out) as folder:
            _unpack(source, folder)
            return _check(source, folder)
    except OSError as error:
        raise refusal(error, f"cannot write {out}") from None


def _unpack(source: Path, folder: Path) -> None:
    work = folder / WORK
    for path in (work / CHECKPOINTS, work / "outputs"):
        path.mkdir(parents=True)
    try:
        with tarfile.open(source, "r:") as archive:
            for member in archive:
                interruption.check()
                content = archive.extractfile(member) if member.isreg() else None
                if (place := _place(member.name, folder)) is None or content is None:
                    raise BadInput(f"{source} is not an exported checkpoint: it has {member.name!r}")
                with open(place, "xb") as target:
                    while piece := content.read(file.PIECE):
                        target.write(piece)
    except (tarfile.TarError, EOFError, FileExistsError) as error:
        raise BadInput(f"{source} is not an exported checkpoint, or is damaged: {error}") from None
    except OSError as error:
        if error.filename == str(source):
            raise BadInput(f"cannot read {source}: {error.strerror}") from None
        raise


def _place(name: str, folder: Path) -> Path | None:
    """The path of a member below a run folder; None if an export has no such member."""
    if file.NAME.fullmatch(name):
        return folder / WORK / CHECKPOINTS / name
    for number in [name.removeprefix("outputs/part-").removesuffix(".parquet")]:
        if number.isdecimal() and name == f"outputs/part-{int(number):05d}.parquet":
            return folder / WORK / name
    return None


def _check(source: Path, folder: Path) -> Checkpoint:
    """The checkpoint of a folder that was unpacked, whose spec.json it writes.

    Raises:
        BadInput: Something is missing or damaged.
    """
    try:
        checkpoints = file.paths(folder / WORK / CHECKPOINTS)
        if len(checkpoints) != 1:
            raise Damage(f"it has {len(checkpoints)} checkpoints")
        checkpoint = file.read(checkpoints[0])
        file.check(checkpoints[0].parent, checkpoint)
        outputs = folder / WORK / "outputs"
        if len(list(outputs.iterdir())) != checkpoint.outputs:
            raise Damage("it has other outputs than its checkpoint")
        store.check_outputs(Parts([part_path(outputs, n) for n in range(checkpoint.outputs)]), None, checkpoint)
        spec = RunSpec.parse(checkpoint.way)
    except (Damage, BadInput) as error:
        raise BadInput(f"{source} is damaged: {str(error).replace(f'{folder}/', '')}") from None
    storage.write_json(folder / "spec.json", spec.model_dump(mode="json"))
    return checkpoint
