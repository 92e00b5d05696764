"""The checkpoints of one folder: when to make one, which ones stay, and which one a run resumes from.

A checkpoint is made between two blocks, while the engine's threads are at rest. A process of its own writes it
(`writing`). The parent commits it later, between two other blocks, by renaming the file. So a checkpoint exists whole
or not at all, and a killed run commits nothing. Outputs are on the disk before the checkpoint that counts them.

A part of the state that has not changed since the last checkpoint is not written again. The head then names the older
file, which stays as long as a checkpoint needs it. If the files hold more than twice the state, or are many, the next
checkpoint writes all parts anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming_core.data.agreement import outputs_digest
from streaming_core.data.digest import add
from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput, CommandFailed
from streaming_core.language.bound import BoundApp
from streaming_core.run.checkpoint import file, states
from streaming_core.run.checkpoint.file import Checkpoint, Damage
from streaming_core.run.checkpoint.writing import Writing
from streaming_core.run.way import Interval
from streaming_core.storage import sweep_files, sync

if TYPE_CHECKING:
    from streaming_core import _runtime

OUTPUTS = 254  # the result of a write that failed at the outputs
KEPT = 2  # checkpoints that stay
MOST_FILES = 8
CODE = "application code"  # the fact that the declaration of states explains


class Checkpoints:
    """The checkpoints of one folder, which this process holds.

    Attributes:
        folder: The folder, which exists.
        interval: The interval between two checkpoints.
        about: Facts that a run must share with a checkpoint to resume from it, by name.
        states: The fields of each state (`states.declarations`).
        way: The run specification.
        cuts: Numbers of events at which a block ends, too.
        last: The checkpoint that the run resumes from; None at its beginning.
    """

    def __init__(
        self,
        folder: Path,
        interval: Interval,
        about: dict[str, Any],
        declared: states.Declarations,
        way: dict[str, Any],
        say: Callable[[str], None],
        cuts: Sequence[int] = (),
    ):
        """Prepare. `say` receives a line about what is damaged, and about what cannot be written."""
        self.cuts = cuts
        self.folder, self.interval, self.about, self.states, self.way = folder, interval, about, declared, way
        self._say, self._has_failed = say, False
        self.last: Checkpoint | None = None
        self._newest: list[Checkpoint] = []  # those that stay, the oldest first
        self._begin = time.monotonic()
        self._events = 0  # at the last checkpoint that was begun
        self._synced = 0  # files of outputs that are on the disk
        self._writing: tuple[Writing, Checkpoint, Path, int] | None = None

    # --- resume ------------------------------------------------------------------------------------------------------

    def recover(self, check: Callable[[Checkpoint], None] = lambda _: None) -> None:
        """Find the newest sound checkpoint, which becomes `last`.

        Args:
            check: Raises Damage if what belongs to a checkpoint outside of its files is not whole.

        Raises:
            BadInput: The checkpoint belongs to another run, or all checkpoints are damaged.
        """
        sweep_files(self.folder)
        faults: list[str] = []
        for path in file.paths(self.folder):
            try:
                checkpoint = file.read(path)
                if difference := self._difference(checkpoint):
                    faults.append(f"{path.name} in {self.folder} has another {difference}")
                    continue
                file.check(self.folder, checkpoint)
                check(checkpoint)
            except Damage as damage:
                faults.append(f"{path.name} in {self.folder} is damaged: {damage}")
                continue
            if faults:
                self._say(f"{'; '.join(faults)}; using {path.name}")
            self.last, self._newest = checkpoint, [checkpoint]
            self._events, self._synced = checkpoint.events, checkpoint.outputs
            return
        if faults:
            raise BadInput(f"{faults[0]}; choose a new folder, or remove {self.folder} to start over")

    def _difference(self, checkpoint: Checkpoint) -> str | None:
        """The first fact in which a checkpoint differs from this run, and how; None if there is none."""
        for name, value in self.about.items():
            if (other := checkpoint.about.get(name)) != value:
                change = states.difference(checkpoint.states, self.states) if name == CODE else None
                return f"{name} ({change or f'{_short(other)}, now {_short(value)}'})"
        return None

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints that stay, the oldest first."""
        return self._newest

    @property
    def resumed(self) -> list[int]:
        """Events from which the run resumed, this time included."""
        return [*self.last.resumed, self.last.events] if self.last else []

    def restore(self, runtime: _runtime.Engine) -> None:
        """Bring a new engine to where `last` stands."""
        assert self.last is not None
        try:
            for part, image in file.images(self.folder, self.last):
                runtime.restore(part.name, image)
        except Damage as damage:  # since `recover`
            raise BadInput(f"{self.last.name} in {self.folder} is damaged: {damage}") from None
        runtime.resume(self.last.standing)

    # --- make --------------------------------------------------------------------------------------------------------

    def room(self, events: int) -> int | None:
        """Most events of the block behind so many events; None: any number."""
        steps = [self.interval.events - events % self.interval.events] if self.interval.events else []
        steps += [cut - events for cut in self.cuts if cut > events]
        return min(steps, default=None)

    def is_due(self, events: int) -> bool:
        """Whether to make a checkpoint now, between two blocks. It commits the last one if its process has ended.

        Args:
            events: Number of events before.
        """
        if events <= self._events:
            return False
        if self.interval.events:
            self.settle()
            return events // self.interval.events > self._events // self.interval.events
        self.settle(wait=False)
        waited = time.monotonic() - self._begin
        return 0 < self.interval.seconds <= waited and self._writing is None

    def make(
        self, runtime: _runtime.Engine, read: tuple[int, int], cpu_seconds: float, outputs: Sequence[Path] = ()
    ) -> None:
        """Begin to write a checkpoint.

        Args:
            runtime: The engine, between two blocks.
            read: Number of the events before, and the sum of their hashes.
            cpu_seconds: Processor time of the engine.
            outputs: The closed files of outputs, all in one folder.
        """
        self.settle()
        checkpoint = Checkpoint(
            read, len(outputs), runtime.standing(), cpu_seconds, self.resumed, self.about, self.states, time.time(),
            self.way,
        )  # fmt: skip
        temporary = self.folder / f".{checkpoint.name}.{os.getpid()}"
        new, known = outputs[self._synced :], self._known()

        def write() -> None:
            try:
                for path in new:
                    sync(path)
                if new:
                    sync(new[0].parent)
            except OSError as error:
                raise OSError(OUTPUTS, error.strerror) from None
            file.write(temporary, checkpoint, runtime.images, known)

        self._begin, self._events = time.monotonic(), read[0]
        self._writing = Writing(write), checkpoint, temporary, len(outputs)

    def _known(self) -> dict[file.Key, file.Part]:
        """The parts that need not be written again if they are the same."""
        if not self._newest:
            return {}
        newest = self._newest[-1]
        with suppress(OSError):
            size = sum((self.folder / name).stat().st_size for name in newest.files)
            if len(newest.files) <= MOST_FILES and size <= 2 * newest.size + (1 << 20):
                return {part.key: part for part in newest.parts}
        return {}

    def settle(self, wait: bool = True) -> None:
        """Commit the checkpoint that is written, once its process has ended.

        If it could not be written, the run goes on, and says so once.

        Args:
            wait: Whether to wait for that process.

        Raises:
            CommandFailed: Outputs did not get to the disk.
        """
        if self._writing is None:
            return
        writing, checkpoint, temporary, outputs = self._writing
        code = writing.result(wait)
        if code is None:
            return
        self._writing = None
        if code == OUTPUTS:
            raise CommandFailed("the outputs before a checkpoint did not get to the disk")
        failure = "" if code == 0 else os.strerror(code) if 0 < code < OUTPUTS else _ending(code)
        try:
            if not failure:
                checkpoint = file.read(temporary)
                os.replace(temporary, self.folder / checkpoint.name)
                sync(self.folder)
        except (OSError, Damage) as error:
            failure = str(error)
        if failure:
            temporary.unlink(missing_ok=True)
            if not self._has_failed:
                self._say(f"no checkpoint at event {checkpoint.events}: {failure}; the run goes on")
            self._has_failed = True
            return
        self._synced = outputs
        self._newest = [*(earlier for earlier in self._newest if earlier.events < checkpoint.events), checkpoint][
            -KEPT:
        ]
        self._drop()

    def _drop(self) -> None:
        """Remove the files that no checkpoint needs."""
        needed = {name for checkpoint in self._newest for name in checkpoint.files}
        for path in file.paths(self.folder):
            if path.name not in needed:
                path.unlink()

    def close(self) -> None:
        """Commit the checkpoint that is written, after a failure of the run that has a line of its own."""
        self._has_failed = True
        with suppress(CommandFailed):
            self.settle()


def check_outputs(outputs: Parts, bound: BoundApp, checkpoint: Checkpoint) -> None:
    """Raise Damage unless these are the outputs that a checkpoint of an application counts.

    A run that writes no outputs has no files to check.
    """
    schema = bound.output.arrow(("seq", "sub"))
    if checkpoint.about.get("sink") != "parquet":
        return
    try:
        alike, digest = not outputs.paths or outputs.schema == schema, (0, 0)
        for table in outputs.slices(1 << 16):
            digest = add(digest, outputs_digest(bound.app, checkpoint.about["order"], table))
    except BadInput as error:
        raise Damage(str(error)) from None
    if not alike or digest != closed_digest(checkpoint):
        raise Damage("its outputs were changed")


def closed_digest(checkpoint: Checkpoint) -> tuple[int, int]:
    """The digest of the outputs that a checkpoint counts: rows, and the sum of their hashes."""
    digest = json.loads(checkpoint.standing)["delivered"]["digest"]
    return digest["rows"], digest["sum"]


def _ending(code: int) -> str:
    return f"its process was ended by signal {-code}" if code < 0 else "its process failed"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else hashlib.sha256(text.encode()).hexdigest()[:16]
