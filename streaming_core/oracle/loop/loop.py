"""A compiled loop: runs events, and holds their outputs and counts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numba.core.errors import NumbaError

from streaming_core import machine_code
from streaming_core.data.rows import nameable_text, typed
from streaming_core.errors import BadInput, RunFailed
from streaming_core.language.application import App
from streaming_core.language.record import Array, Text
from streaming_core.language.typed import Program
from streaming_core.machine_code import emission
from streaming_core.oracle.events import columns, seqs
from streaming_core.oracle.loop import checks, layout
from streaming_core.oracle.loop.columns import column_of, view, word_at
from streaming_core.oracle.loop.machine import Machine, programs
from streaming_core.oracle.loop.source import Source
from streaming_core.oracle.loop.workspace import Workspace
from streaming_core.storage import digest_of

_PADDING = 64  # readable bytes behind every text buffer


class Loop:
    """A bound application, compiled to run one event at a time on the calling thread.

    Attributes:
        seconds: Time of running, without compiling and decoding.
        code: Digest of the printed code, the functions that it calls, and the compiler: equal code takes equal time.
        running: Makes a context for each run of the loop; a caller that measures more sets its own.
        compile_seconds: Time of compiling.
        digest: (rows, sum of hashes) of all outputs so far (digest.py).

    Raises:
        BadInput: An operator breaks a rule of the language.
        CommandFailed: numba does not compile the loop of a valid application.
    """

    def __init__(self, app: App, params: dict[str, Any]):
        started = time.perf_counter()
        self.app, self.program = app, Program(app.check(), params)
        self.event, self.output = self.program.event, self.program.output
        self.output_schema = self.output.arrow(("seq", "sub"))
        self.event_dtype, self.output_dtype = self.event.dtype(True), self.output.dtype(True)
        self.events = 0
        self.seconds = 0.0
        self.running: Callable[[], AbstractContextManager] = nullcontext
        self.digest = (0, 0)
        self._scratch = nameable_text() if self.program.makes_texts else None
        self._open(None)
        # Outputs may refer to texts outside the batch, and events may build texts. This reserves address space for
        # all of them; only used pages become memory.
        self._texts = nameable_text() if self._work.names_texts else None
        self.compile_seconds = time.perf_counter() - started

    def _open(self, base: int | None) -> None:
        """Make the loop's memory, at an address or where it is free, and its code."""
        self._work = Workspace(self.app, self.program, base)
        self._compile()
        if self._scratch is not None:
            self._work.context[[layout.SCRATCH // 8, layout.SCRATCH_AT // 8]] = self._scratch.ctypes.data

    def reset(self) -> None:
        """Return to the initial state, without compiling again."""
        self._work.reset()
        self.events, self.seconds, self.digest = 0, 0.0, (0, 0)

    def save(self, file: BinaryIO) -> None:
        """Write the state between two chunks of events."""
        about = {"code": self._printed, "base": self._work.region.base, "events": self.events, "digest": self.digest}
        file.write(json.dumps(about).encode() + b"\n")
        self._work.region.save(file)

    def load(self, file: BinaryIO) -> None:
        """Take over the state that a loop of the same application and parameters saved.

        The state must have its old address. It is free, unless another loop of this process has it.

        Raises:
            BadInput: The state belongs to a loop of other code.
            CommandFailed: Its address is not free.
        """
        about = json.loads(file.readline())
        if about["code"] != self._printed:
            raise BadInput("the saved state belongs to a loop of other code")
        if about["base"] != self._work.region.base:
            self._open(about["base"])
        self._work.load(file)
        self.events, self.digest = about["events"], tuple(about["digest"])

    # --- running -----------------------------------------------------------------------------------------------------

    def process(self, events: pa.Table) -> pa.Table:
        """Run a chunk of events; returns its outputs, in order.

        Raises:
            BadInput: A column is missing, has another type or nulls.
            RunFailed: An operator raised; the line names operator, event, error, file and line.
        """
        rows, text = self.decode(events)
        self.run(rows, text, keep=True)
        return self.outputs(text)

    def decode(self, events: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Decode events to rows (structured) and the text beside them (bytes, padded)."""
        rows = np.zeros(events.num_rows, self.event_dtype)
        rows["seq"] = seqs(events)
        texts, at = [], 0
        for slot, column in columns(events, self.event):
            if isinstance(slot.type, Array):
                values = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, slot.count)
                rows[slot.name] = values
            elif isinstance(slot.type, Text):
                offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
                begin, end = (int(offsets[0]), int(offsets[-1])) if len(column) else (0, 0)
                data = column.buffers()[2]
                texts.append(np.frombuffer(data, np.uint8)[begin:end] if data else np.empty(0, np.uint8))
                if at + end - begin >= 1 << 32:
                    raise BadInput("events: a chunk holds 4 GiB of text or more; write smaller row groups")
                if len(column):
                    rows[slot.name]["offset"] = offsets[:-1].astype(np.int64) - begin + at
                    rows[slot.name]["length"] = np.diff(offsets)
                at += end - begin
            else:
                rows[slot.name] = column.to_numpy(zero_copy_only=False)
        return rows, np.concatenate([*texts, np.zeros(_PADDING, np.uint8)])

    def run(self, rows: np.ndarray, text: np.ndarray, keep: bool) -> float:
        """Run decoded events; returns the seconds. With `keep`, the output rows remain for `outputs`."""
        self._set_text(text)
        before = self.seconds
        self._timed(self._run, rows.ctypes.data, len(rows), keep)
        self.events += len(rows)
        self._count_outputs()
        return self.seconds - before

    def finish(self, seq: int) -> pa.Table:
        """End the stream: flush operators in topological order, keys ascending; returns the outputs.

        Each operator first takes the rows that earlier operators flushed.
        """
        # A flush sees states only; their texts lie outside of any batch.
        text = np.zeros(_PADDING, np.uint8)
        if self._flush is None:
            return self.output_schema.empty_table()
        self._set_text(text)
        self._work.context[layout.SEQ // 8] = seq
        maps = dict(self._work.maps)
        for i, operator in enumerate(self._work.operators):
            self._timed(self._flush, i, 0, 0)
            if operator.window is not None:
                self._timed(self._flush, i, 1, 0)  # everything expires
            elif "flush" in operator.functions:
                # Only now are all keys present. No more follow, so the addresses stay valid.
                states = self._work.ascending(operator, maps[operator])
                if len(states):
                    self._timed(self._flush, i, states.ctypes.data, len(states))
        self._timed(self._flush, len(self._work.operators), 0, 0)
        self._count_outputs()
        return self.outputs(text)

    def _set_text(self, text: np.ndarray) -> None:
        """Tell the loop the address of the batch's texts, and that of copies behind them."""
        if self._texts is not None:
            self._texts[: len(text)] = text
            text, size = self._texts, len(text)
            self._work.context[layout.NEXT_TEXT // 8] = text.ctypes.data + size
        self._work.context[layout.TEXT // 8] = text.ctypes.data

    def _timed(self, function: Machine, *arguments: int) -> None:
        self._work.context[layout.SITE // 8] = 0
        with self.running():
            started = time.perf_counter()
            done = function(self._work.ctx, *arguments)
            spent = time.perf_counter() - started
        if not done:
            site, error = divmod(int(self._work.context[layout.SITE // 8]), 16)
            if site == 0:
                raise RunFailed("out of memory")
            seq = self._work.context[layout.SEQ // 8]
            raise RunFailed(self._work.sites[site].format(seq=seq, error=checks.ERRORS[error]))
        self.seconds += spent

    def _count_outputs(self) -> None:
        """Take over the sink's count and hash."""
        self._count, digest = (int(self._work.context[word // 8]) for word in (layout.COUNT, layout.DIGEST))
        self.digest = (self.digest[0] + self._count, (self.digest[1] + digest) % (1 << 64))

    # --- results -----------------------------------------------------------------------------------------------------

    @property
    def dropped_invalid(self) -> int:
        """Inputs declared invalid so far."""
        return sum(int(word_at(self._work.emitter(i) + layout.DROPPED)) for i in range(len(self._work.operators)))

    @property
    def dropped_late(self) -> int:
        """Rows so far that came after all of their windows had expired."""
        return sum(int(words[layout.W_LATE // 8]) for _, words in self._work.windows)

    def state(self) -> dict[str, pa.Table]:
        """Return final tables by name, then keyed states by operator, ascending by key."""
        return self._work.state()

    @property
    def rejected(self) -> int:
        """Transactions rejected so far."""
        return int(self._work.context[layout.REJECTED // 8])

    def outputs(self, text: np.ndarray) -> pa.Table:
        """Return the output rows of the last `run(..., keep=True)`."""
        n, stride = self._count, self.output_dtype.itemsize
        begin = int(self._work.context[layout.ROWS // 8])
        rows = view(begin, n * stride).view(self.output_dtype) if n else np.empty(0, self.output_dtype)
        subs = view(int(self._work.context[layout.SUBS // 8]), 4 * n).view(np.uint32) if n else np.empty(0, np.uint32)
        columns = {"seq": pa.array(rows["seq"]), "sub": pa.array(subs.astype(np.int64))}
        for name, slot in self.output.event[0].items():
            columns[name] = column_of(rows[name], slot, text if self._texts is None else self._texts)
        return pa.Table.from_arrays(typed(columns, self.output_schema), schema=self.output_schema)

    # --- compiling ---------------------------------------------------------------------------------------------------

    def _compile(self) -> None:
        source = Source(self._work)
        calls, flushes = [], []
        for i, operator in enumerate(self._work.operators):
            call, flush = source.operator(i, operator)
            calls.append(call)
            flushes.append(flush)
        source.sink(self.output)
        for i, operator in enumerate(self._work.unions):
            source.union(i, operator)
        source.driver(calls, flushes)
        text = source.source()
        ends = any("flush" in o.functions or o.window is not None for o in self._work.operators)
        names = ["_run", "_flush"] if ends else ["_run"]

        self._printed = digest_of(text)  # fixes the layout of the state, whatever compiles it
        self.code = digest_of([text, machine_code.fingerprint(Path(__file__).parent)])

        def make() -> dict[str, Any]:
            exec(compile(text, "<compiled loop>", "exec"), source.namespace)
            return source.namespace

        try:
            machines = programs(text, dict.fromkeys(names, 4), make, self._work.places)
            self._run, self._flush = machines["_run"], machines.get("_flush")
        except NumbaError as error:
            raise emission.not_compiled(f"app {self.app.name}", error) from error
