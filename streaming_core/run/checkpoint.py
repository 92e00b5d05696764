"""Checkpoints: what a run that was killed, at any moment, goes on from.

While a run with checkpoints is at work, its folder holds

    .checkpoint/last           the checkpoint: one file, always whole, because a new one is renamed over it
    .checkpoint/outputs/       parts that are closed; those beyond the checkpoint's number are made again
    .checkpoint/state/         final state, once the last event is through

and when everything is there, outputs and state are moved out, report.json is written, and .checkpoint goes, in this
order. What must hold between any two of these steps: `last` speaks of outputs that are on the disk, and of input
that it knows the digest of; whoever comes next takes back what was moved out and does again what `last` does not
tell of. A folder with a report needs nothing any more.

A checkpoint costs what the tables weigh, and four fsyncs; outputs and input are never written again. (Writing it while
the engine is at its next events was tried: on two cores it gained nothing.)
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
from streaming_core.storage import replacing, sweep_files, sync

if TYPE_CHECKING:
    from streaming_core.kernels.program import Program

FOLDER = ".checkpoint"
MAGIC = "lockstep checkpoint 1"


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands between two events.

    Attributes:
        read: number of the events before, and the sum of their hashes (`workload`, `digest`).
        parts: closed files of outputs.
        standing: the runtime's own figures, as it gave them (runtime/ABI.md).
        cpu_seconds: spent by the engine so far.
        resumed: events from which the run has been resumed.
        about: what has to be the same for whoever goes on: JSON values by name.
        images: of every table, its bytes, as the runtime gave them.
    """

    read: tuple[int, int]
    parts: int
    standing: dict[str, Any]
    cpu_seconds: float
    resumed: list[int]
    about: dict[str, Any]
    images: list[bytes] = field(repr=False)

    @property
    def events(self) -> int:
        """Number of events before."""
        return self.read[0]


class Checkpoints:
    """The checkpoints of one run folder. `last` is what the run goes on from, None at its beginning."""

    def __init__(self, out: Path, about: dict[str, Any], interval: int):
        self.out, self.folder = out, out / FOLDER
        self.interval = interval
        self.last: Checkpoint | None = None
        self.about = about
        self._kept = 0  # parts that are on the disk

    @property
    def resumed(self) -> list[int]:
        """Events from which the run was resumed, this time included."""
        return [*self.last.resumed, self.last.events] if self.last else []

    def part(self, number: int) -> Path:
        """A file of outputs."""
        return part_path(self.folder / "outputs", number)

    def save(self, checkpoint: Checkpoint) -> None:
        """Replaces the checkpoint, whose parts are closed."""
        for number in range(self._kept, checkpoint.parts):
            sync(self.part(number))
        if checkpoint.parts > self._kept:
            sync(self.folder / "outputs")
        self._kept = checkpoint.parts
        head = asdict(checkpoint) | {"images": [len(image) for image in checkpoint.images]}
        body = [json.dumps(head, sort_keys=True).encode() + b"\n", *checkpoint.images]
        digest = hashlib.sha256()
        for piece in body:
            digest.update(piece)
        with replacing(self.folder / "last") as file:
            file.writelines([f"{MAGIC} {digest.hexdigest()}\n".encode(), *body])
        sync(self.folder)

    def publish(self) -> None:
        """Moves outputs and final state out, for good once the caller has written the report."""
        for folder, _, names in os.walk(self.folder / "state"):
            for name in names:
                sync(Path(folder) / name)
        for here, there in self._published():
            if here.exists():
                sync(here)
                os.replace(here, there)
        sync(self.out)

    def _published(self) -> Iterator[tuple[Path, Path]]:
        yield self.folder / "outputs", self.out / "outputs"
        yield self.folder / "state", self.out / "state"

    def _recover(self, schema: pa.Schema | None) -> None:
        """Reads the checkpoint, and leaves in the folder what belongs to it and nothing else."""
        self.last = read(self.folder / "last")
        for name, value in self.last.about.items() if self.last else ():
            if self.about[name] != value:
                values = f"{_short(value)}, now {_short(self.about[name])}"
                raise BadInput(f"the checkpoint in {self.folder} has another {name} ({values}); choose a new folder")
        for here, there in self._published():
            if there.exists():
                os.replace(there, here)
        shutil.rmtree(self.folder / "state", ignore_errors=True)
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
    """The checkpoints below `out`, which this process holds, ready to go on from. They are gone afterwards if `out` has
    a report by then.

    Args:
        about: what a checkpoint has to be about to be gone on from, see `Checkpoint`.
        interval: events between two checkpoints.
        schema: of the outputs; None when the run keeps none.

    Raises:
        BadInput: the checkpoint is damaged, or of something else.
    """
    (out / FOLDER).mkdir(exist_ok=True)
    sync(out)
    found = Checkpoints(out, about, interval)
    found._recover(schema)
    yield found
    if (out / "report.json").exists():
        shutil.rmtree(out / FOLDER, ignore_errors=True)


def table_layout(program: Program) -> list[dict[str, Any]]:
    """The layout of the tables in memory, which the images of a checkpoint depend on."""
    names = ("name", "rows", "stride", "growing", "index")
    return [{name: table.get(name) for name in names} for table in program.description["tables"]]


def read(path: Path) -> Checkpoint | None:
    """The checkpoint in a file; None if there is none. Raises BadInput when it is damaged."""
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
    ends = [sum(head["images"][: i + 1]) for i in range(len(head["images"]))]
    images = [rest[end - size : end] for size, end in zip(head["images"], ends, strict=True)]
    return Checkpoint(**head | {"read": tuple(head["read"]), "images": images})


def damaged(folder: Path, what: str) -> BadInput:
    """Make the error for a damaged checkpoint."""
    return BadInput(f"the checkpoint in {folder} is damaged ({what}); remove it to start over, or choose a new folder")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else hashlib.sha256(text.encode()).hexdigest()[:16]
