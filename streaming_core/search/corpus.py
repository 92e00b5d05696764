"""The corpus of an application: inputs that reached branches first, and a ledger of what was tried.

Inputs lie under the digests of their contents. Several searches may use one corpus at once, and each may be killed at
any moment. The ledger knows the rounds that searches have begun. A later search takes over those of dead searches.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_core import process, storage
from streaming_core.errors import refusal
from streaming_core.search.draws import Input

MOST = 500  # inputs; no application here reaches as many branches


@dataclass
class Ledger:
    """What was tried of an application, over all searches of one version of its code.

    Attributes:
        code: The digest of the application's code.
        inputs: The number of inputs.
        runs: The number of runs.
        branches: The branches that any of them reached.
        last: The time of the last round, in seconds since the epoch; 0.0 if there was none.
        seeds: For each seed, the number of its next round, and the processes that have rounds at work.
    """

    code: str = ""
    inputs: int = 0
    runs: int = 0
    branches: list[int] = field(default_factory=list)
    last: float = 0.0
    seeds: dict[str, dict[str, Any]] = field(default_factory=dict)


class Corpus:
    """The corpus in a folder."""

    def __init__(self, folder: Path, code: str):
        """Open a corpus, or begin one.

        Args:
            folder: Its folder.
            code: The digest of the application's code. After a change of the code, figures and rounds start anew.

        Raises:
            BadInput: The folder cannot be written.
            CommandFailed: The disk is full, or fails.
        """
        self._folder, self._code = folder, code
        with self._writing():
            (folder / "inputs").mkdir(parents=True, exist_ok=True)

    @property
    def ledger(self) -> Ledger:
        """The figures so far."""
        ledger = Ledger(**storage.left_json(self._folder / "ledger.json"))
        return ledger if ledger.code == self._code else Ledger(self._code, last=ledger.last)

    def inputs(self) -> list[Input]:
        """All inputs, in the order of their digests."""
        inputs = []
        for folder in sorted((self._folder / "inputs").iterdir()):
            about = storage.left_json(folder / "input.json")
            if about:
                table = pq.read_table(folder / "events.parquet")
                inputs.append(Input(about["params"], table, about["origin"], about["is_usual"]))
        return inputs

    def add(self, entry: Input) -> None:
        """Keep an input, unless the corpus is full."""
        about = {"params": entry.params, "origin": entry.origin, "is_usual": entry.is_usual}
        content = pa.BufferOutputStream()
        pq.write_table(entry.events, content)
        name = storage.digest_of(about | {"events": repr(entry.events.to_pydict())})
        folder = self._folder / "inputs" / name
        if folder.exists() or sum(1 for _ in folder.parent.iterdir()) >= MOST:
            return
        with self._writing(), storage.atomic_directory(folder) as temporary:
            (temporary / "events.parquet").write_bytes(content.getvalue())
            storage.write_json(temporary / "input.json", about)

    def begin(self, seed: int) -> int:
        """The number of the next round of a seed: one that a dead search left, or a new one."""
        with self._changing() as ledger:
            of_seed = ledger.seeds.setdefault(str(seed), {"next": 0, "open": {}})
            number = next((int(n) for n, owner in of_seed["open"].items() if not process.alive(owner)), of_seed["next"])
            of_seed["next"] = max(of_seed["next"], number + 1)
            of_seed["open"][str(number)] = process.identity(os.getpid())
        return number

    def end(self, seed: int, number: int, inputs: int, runs: int, branches: set[int]) -> None:
        """Note that a round was made, with so many inputs and runs, which reached these branches."""
        with self._changing() as ledger:
            ledger.seeds.get(str(seed), {"open": {}})["open"].pop(str(number), None)
            ledger.inputs += inputs
            ledger.runs += runs
            ledger.branches = sorted(branches.union(ledger.branches))
            ledger.last = time.time()

    @contextmanager
    def _changing(self) -> Iterator[Ledger]:
        with self._writing(), storage.held(self._folder / "ledger"):
            storage.sweep_files(self._folder)
            ledger = self.ledger
            yield ledger
            storage.save_json(self._folder / "ledger.json", vars(ledger))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise refusal(error, f"cannot write to {self._folder}") from None


def figures(folder: Path) -> Ledger:
    """The figures of a corpus, of whatever version of the code; zeros if there is none."""
    try:
        return Ledger(**json.loads((folder / "ledger.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return Ledger()
