"""The oracle of a live run: it computes one segment of events after the other, and compares the run's outputs with it.

Between segments, the oracle writes snapshots of its own state. It never reads the state of an engine, so a comparison
says as much as that of a whole run. The first events are interpreted. The compiled loop computes those behind them, and
is compared with the interpreter on the first ones (oracle.py).

The folder of a `Verifier` has a folder for each snapshot, named by its number of events. It holds the state, the first
events if the loop has not taken over yet, and manifest.json with their digests. A snapshot appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_core import storage
from streaming_core.apps import registry
from streaming_core.data import comparison
from streaming_core.data.agreement import outputs_digest
from streaming_core.data.comparison import Difference, Differences
from streaming_core.data.digest import add
from streaming_core.data.parts import Parts, write_file
from streaming_core.errors import BadInput, refusal
from streaming_core.language.application import App
from streaming_core.oracle import oracle
from streaming_core.oracle.interpreter import Interpreter

KEPT = 2  # snapshots that stay
_LAST = np.iinfo(np.int64).max


class Verifier:
    """The oracle beside a live run, which begins at its newest sound snapshot, or at event 0.

    Args:
        app: The application.
        params: Its bound parameters.
        folder: The folder of the snapshots; no other process uses it.
        mode: interpreted; auto = compiled behind the first 10,000 events.

    Attributes:
        events: Number of events so far.
        next_seq: The least seq that the next event may have.
        digest: (rows, sum of hashes) of all outputs so far (digest.py).
        notes: A line for each damaged snapshot; it is removed.

    Raises:
        BadInput: The snapshots are of another application, other parameters or another version of the oracle.
        CommandFailed: Another object of this process has the addresses of the loop's state.
    """

    def __init__(self, app: App, params: dict[str, Any], folder: Path, mode: str = "auto"):
        self.app, self.params, self.folder = app, params, folder
        self.address = storage.digest_of([app.name, params, registry.code_digest(app), oracle.version(), mode])
        self.events, self.next_seq, self.digest = 0, 0, (0, 0)
        self.notes: list[str] = []
        self._machine: Any = Interpreter(app, params)
        self.schema = self._machine.output_schema
        # The events so far, until the loop takes over.
        self._first: list[pa.Table] | None = [] if mode == "auto" else None
        for path in folder.glob(".*.new"):  # of a process that was killed
            shutil.rmtree(path)
        for path in _snapshots(folder):
            try:
                manifest = _checked(path)
            except BadInput as error:
                self.notes.append(f"removed a damaged snapshot of the oracle: {error}")
                shutil.rmtree(path)
                continue
            self._load(path, manifest)
            break

    @property
    def counts(self) -> dict[str, int]:
        """The counts so far that every run must report, by name."""
        return {"outputs": self.digest[0], **{name: getattr(self._machine, name) for name in oracle.DROPPED}}

    @property
    def needs(self) -> int:
        """The first event that a verifier may need which begins at one of the snapshots."""
        snapshots = _snapshots(self.folder)
        return int(snapshots[-1].name) if len(snapshots) == KEPT else 0

    # --- segments ----------------------------------------------------------------------------------------------------

    def outputs(self, blocks: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Compute the outputs of a segment; yields those of each block, with columns `seq` and `sub` first.

        Args:
            blocks: Events, seq ascending from `next_seq` on.

        Raises:
            BadInput: A column is missing, has another type or nulls, or the events do not follow those so far.
            RunFailed: An operator raised, or the compiled loop disagrees with the interpreter.
        """
        for block in blocks:
            if block.num_rows:
                yield self._process(block)

    def compare(self, blocks: Iterable[pa.Table], actual: Parts) -> Differences:
        """Compute a segment, and compare the outputs of its events with those of a run, row by row.

        Args:
            blocks: As for `outputs`.
            actual: Output files of the run. Rows of other events may be in them.
        """
        differences = _of_columns("outputs", self.schema, actual.schema if actual.paths else self.schema)
        for block in blocks:
            low = self.next_seq
            for expected in self.outputs([block]):
                self._compare(differences, expected, actual, low, self.next_seq - 1)
        return differences

    def finish(self, end: int, actual: Parts, states: dict[str, Parts]) -> list[Differences]:
        """End the stream, and compare the outputs of its end and the final state, by table. Nothing follows it.

        Args:
            end: The seq of the end.
            actual: As for `compare`.
            states: The final tables of the run.
        """
        outputs = self._machine.finish(end)
        self.digest = add(self.digest, outputs_digest(self.app, "total", outputs))
        differences = [_of_columns("outputs", self.schema, actual.schema if actual.paths else self.schema)]
        self._compare(differences[0], outputs, actual, self.next_seq, _LAST)
        expected = self._machine.state()
        for name in sorted(expected.keys() | states.keys()):
            table = f"state {name}"
            if name in expected and name in states:
                rows = states[name].read()
                differences.append(_of_columns(table, expected[name].schema, rows.schema))
                if not differences[-1].counts:
                    _add(differences[-1], comparison.in_memory(table, expected[name], rows))
                continue
            sides = ("no such table", "a table") if name not in expected else ("a table", "no file")
            missing = [Difference(table, "table", {}, *sides)]
            differences.append(Differences(table, counts=Counter(table=1), differences=missing))
        return differences

    def _process(self, block: pa.Table) -> pa.Table:
        first, last = block["seq"][0].as_py(), block["seq"][-1].as_py()
        if first < self.next_seq:
            raise BadInput(f"the segment must begin at event {self.next_seq} or later, but begins at {first}")
        outputs = self._machine.process(block)
        self.events, self.next_seq = self.events + block.num_rows, last + 1
        self.digest = add(self.digest, outputs_digest(self.app, "total", outputs))
        if self._first is not None:
            self._first.append(block)
            if self.events >= oracle.CHECKED:
                self._compile(self._first)
        return outputs

    def _compile(self, first: list[pa.Table]) -> None:
        """Let the compiled loop take over: it computes the first events again, and must come to the same state."""
        interpreter, name = self._machine, self.app.name
        fresh = Interpreter(self.app, self.params)
        loop, _, blocks = oracle.compiled(fresh, self.params, self.next_seq, iter(first))
        for block in blocks:
            loop.process(block)
        for table, expected in interpreter.state().items():
            oracle.compare(name, expected, loop.state()[table], f"state {table}")
        oracle.compare_counts(interpreter, loop)
        self._machine, self._first = loop, None

    # --- comparison --------------------------------------------------------------------------------------------------

    def _compare(self, differences: Differences, expected: pa.Table, actual: Parts, low: int, high: int) -> None:
        """Compare the outputs of the events from `low` to `high`; without files there are no rows."""
        if not differences.counts["column"]:
            rows = actual.between(low, high, self.schema.names) if actual.paths else self.schema.empty_table()
            _add(differences, comparison.in_memory("outputs", expected, rows))

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write a snapshot; the newest two stay.

        Raises:
            CommandFailed: The disk is full, or fails.
        """
        path = self.folder / f"{self.events:020d}"
        if not self.events or path.exists():
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with storage.appearing(path) as folder:
                with open(folder / "state", "wb") as file:
                    self._machine.save(file)
                if self._first is not None:
                    write_file(folder / "first.parquet", pa.concat_tables(self._first))
                manifest = {
                    "address": self.address,
                    "compiled": not isinstance(self._machine, Interpreter),
                    "events": self.events,
                    "next_seq": self.next_seq,
                    "digest_of_outputs": self.digest,
                    "files": {file.name: _digest(file) for file in folder.iterdir()},
                }
                storage.write_json(folder / "manifest.json", storage.sealed(manifest))
            for old in _snapshots(self.folder)[KEPT:]:
                shutil.rmtree(old)
        except OSError as error:
            raise refusal(error, f"cannot write a snapshot of the oracle to {self.folder}") from None

    def _load(self, path: Path, manifest: dict[str, Any]) -> None:
        if manifest["address"] != self.address:
            raise BadInput(
                f"{self.folder} has snapshots of other code, parameters or mode of the oracle; "
                "remove it to verify from the first event"
            )
        if manifest["compiled"]:
            from streaming_core.oracle.loop import Loop

            self._machine, self._first = Loop(self.app, self.params), None
        elif self._first is not None:
            self._first = [Parts([path / "first.parquet"]).read()]
        with open(path / "state", "rb") as file:
            self._machine.load(file)
        self.events, self.next_seq = manifest["events"], manifest["next_seq"]
        self.digest = tuple(manifest["digest_of_outputs"])


def _snapshots(folder: Path) -> list[Path]:
    """Return the folders of snapshots, the newest first."""
    return sorted(folder.glob("[0-9]*"), reverse=True)


def _checked(path: Path) -> dict[str, Any]:
    """Return the manifest of a snapshot.

    Raises:
        BadInput: A file is missing or damaged.
    """
    manifest = storage.left_json(path / "manifest.json")
    if storage.change(manifest):
        raise BadInput(f"{path}: manifest.json is missing or was changed")
    for name, digest in manifest["files"].items():
        if not (path / name).is_file() or _digest(path / name) != digest:
            raise BadInput(f"{path}: {name} is missing or was changed")
    return manifest


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _of_columns(table: str, expected: pa.Schema, actual: pa.Schema) -> Differences:
    """Return the differences of the columns of two tables."""
    differences = Differences(table)
    if faults := comparison.columns(table, expected, actual):
        differences.counts["column"] = len(faults)
        differences.differences += faults
    return differences


def _add(differences: Differences, more: Differences) -> None:
    """Add the differences of other rows of the table."""
    differences.counts.update(more.counts)
    differences.differences += more.differences[: differences.keep - len(differences.differences)]
