"""Checkpoints: a run that was killed, at any moment, resumes from the last one.

While a run with checkpoints is at work, its folder holds

    .checkpoint/last           the checkpoint: one file, always whole, because each new one replaces it by a rename
    .checkpoint/outputs/       closed parts; a resumed run makes those beyond the checkpoint's number again
    .checkpoint/state/         final state, after the last event

At its end, the run moves outputs and state out, writes report.json, and removes .checkpoint, in this order. Between
any two of these steps, the disk has the outputs that `last` covers. `last` has the digest of the input so far. The next
process moves the published folders back, and repeats the work after `last`. A folder with a report is complete.

A checkpoint writes the tables, and takes four fsyncs. It never writes outputs or input again. Writing it while the
engine processes the next events gained nothing on two cores.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streaming_core.data.digest import add, digest_table
from streaming_core.data.parts import Parts, part_path
from streaming_core.errors import BadInput
from streaming_core.storage import replacing, sweep_files, sync, sync_tree

if TYPE_CHECKING:
    from streaming_core.kernels.program import Program

FOLDER = ".checkpoint"
PUBLISHED = ("outputs", "state", "rerun")  # the folders that a run may leave
MAGIC = "lockstep checkpoint 1"


@dataclass(frozen=True)
class Checkpoint:
    """The position of a run between two events.

    Attributes:
        read: Number of the events before, and the sum of their hashes (`workload`, `digest`).
        parts: Closed files of outputs.
        standing: The runtime's own figures (runtime/ABI.md).
        cpu_seconds: Processor time of the engine so far.
        resumed: Events from which the run has resumed.
        about: Facts that must be the same in the run that resumes: JSON values by name.
        images: The parts of the state, each with the name of its table or operator (runtime/ABI.md).
    """

    read: tuple[int, int]
    parts: int
    standing: dict[str, Any]
    cpu_seconds: float
    resumed: list[int]
    about: dict[str, Any]
    images: list[tuple[str, bytes]] = field(repr=False)

    @property
    def events(self) -> int:
        """Number of events before."""
        return self.read[0]


class Checkpoints:
    """The checkpoints of one run folder.

    Attributes:
        out: The run folder.
        folder: The folder of the unfinished results.
        interval: Events between two checkpoints.
        last: The checkpoint that the run resumes from; None at its beginning.
        about: As in `Checkpoint`.
    """

    def __init__(self, out: Path, about: dict[str, Any], interval: int):
        self.out, self.folder = out, out / FOLDER
        self.interval = interval
        self.last: Checkpoint | None = None
        self.about = about
        self._kept = 0  # parts whose content is on the disk

    @property
    def resumed(self) -> list[int]:
        """Events from which the run resumed, this time included."""
        return [*self.last.resumed, self.last.events] if self.last else []

    def part(self, number: int) -> Path:
        """The file of a part of the outputs."""
        return part_path(self.folder / "outputs", number)

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint. The parts of the new one are closed."""
        for number in range(self._kept, checkpoint.parts):
            sync(self.part(number))
        if checkpoint.parts > self._kept:
            sync(self.folder / "outputs")
        self._kept = checkpoint.parts
        head = asdict(checkpoint) | {"images": [(name, len(image)) for name, image in checkpoint.images]}
        body = [json.dumps(head, sort_keys=True).encode() + b"\n", *(image for _, image in checkpoint.images)]
        digest = hashlib.sha256()
        for piece in body:
            digest.update(piece)
        with replacing(self.folder / "last") as file:
            file.writelines([f"{MAGIC} {digest.hexdigest()}\n".encode(), *body])
        sync(self.folder)

    def publish(self) -> None:
        """Move outputs and final state out. They stay there once the caller has written the report."""
        for name in PUBLISHED[1:]:  # the outputs are synced part by part
            sync_tree(self.folder / name)
        for here, there in self._published():
            if here.exists():
                sync(here)
                os.replace(here, there)
        sync(self.out)

    def _published(self) -> Iterator[tuple[Path, Path]]:
        for name in PUBLISHED:
            yield self.folder / name, self.out / name

    def _recover(self, schema: pa.Schema | None) -> None:
        """Read the checkpoint, and remove everything else from the folder."""
        self.last = read(self.folder / "last")
        for name, value in self.last.about.items() if self.last else ():
            if self.about[name] != value:
                values = f"{_short(value)}, now {_short(self.about[name])}"
                raise BadInput(f"the checkpoint in {self.folder} has another {name} ({values}); choose a new folder")
        for here, there in self._published():
            if there.exists():
                os.replace(there, here)
        for name in PUBLISHED[1:]:  # made anew
            shutil.rmtree(self.folder / name, ignore_errors=True)
        sweep_files(self.folder)
        if schema is None:
            return
        (self.folder / "outputs").mkdir(exist_ok=True)
        self._kept = self.last.parts if self.last else 0
        known = {self.part(number).name for number in range(self._kept)}
        for path in (self.folder / "outputs").iterdir():
            if path.name not in known:
                path.unlink()
        if self.last:
            self._check_outputs(schema)

    def _check_outputs(self, schema: pa.Schema) -> None:
        digest, outputs = (0, 0), Parts([self.part(number) for number in range(self._kept)])
        try:
            alike = not outputs.paths or outputs.schema == schema
            for table in outputs.slices(1 << 16):
                digest = add(digest, digest_table(table, ("seq", "sub")))
        except BadInput as error:
            raise damaged(self.folder, str(error)) from None
        assert self.last is not None
        expected = self.last.standing["delivered"]["digest"]
        if not alike or digest != (expected["rows"], expected["sum"]):
            raise damaged(self.folder, "its outputs were changed")


@contextmanager
def opened(out: Path, about: dict[str, Any], interval: int, schema: pa.Schema | None) -> Iterator[Checkpoints]:
    """Open the checkpoints below a folder for a run. Remove them afterwards if the folder has a report by then.

    Args:
        out: The run folder, which this process holds.
        about: The facts that a checkpoint must share to resume from it, see `Checkpoint`.
        interval: Events between two checkpoints.
        schema: The columns of the outputs; None if the run keeps none.

    Raises:
        BadInput: The checkpoint is damaged, or belongs to another run.
    """
    (out / FOLDER).mkdir(exist_ok=True)
    sync(out)
    checkpoints = Checkpoints(out, about, interval)
    checkpoints._recover(schema)
    yield checkpoints
    if (out / "report.json").exists():
        shutil.rmtree(out / FOLDER, ignore_errors=True)


def table_layout(program: Program) -> list[dict[str, Any]]:
    """The layout of the tables in memory, which the images of a checkpoint depend on."""
    names = ("name", "rows", "stride", "growing", "index")
    return [{name: table.get(name) for name in names} for table in program.description["tables"]]


def read(path: Path) -> Checkpoint | None:
    """Read the checkpoint in a file; None if there is none.

    Raises:
        BadInput: The file is damaged.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"cannot read checkpoint {path}: {error.strerror}") from None
    first, _, body = data.partition(b"\n")
    if first != f"{MAGIC} {hashlib.sha256(body).hexdigest()}".encode():
        raise damaged(path.parent, "its digest is wrong")
    line, _, rest = body.partition(b"\n")
    head = json.loads(line)
    images, end = [], 0
    for name, size in head["images"]:
        images.append((name, rest[end : end + size]))
        end += size
    return Checkpoint(**head | {"read": tuple(head["read"]), "images": images})


def damaged(folder: Path, fault: str) -> BadInput:
    """Make the error for a damaged checkpoint."""
    return BadInput(f"the checkpoint in {folder} is damaged ({fault}); remove it to start over, or choose a new folder")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else hashlib.sha256(text.encode()).hexdigest()[:16]
