"""Drives one compiled operator through the kernel ABI, without the runtime: rows in, output columns or an error out."""

import ctypes

import numpy as np
import pyarrow as pa

from streaming_core import _runtime
from streaming_core.api import App
from streaming_core.data.rows import decode, encode
from streaming_core.errors import RunFailed
from streaming_core.kernels.program import Program, compile_app, describe_error

ROOM = 1 << 16


class Kernel:
    """The first operator of an application, stateless or stateful without a key."""

    def __init__(self, app: App, params: dict, program: Program | None = None):
        self.program = program or compile_app(app, params)
        [operator] = self.program.description["operators"]
        self.call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(operator["kernel"])
        self.out = np.zeros(ROOM, self.program.bound.output.dtype(True))
        self.blocks: list = []
        self.text = np.zeros(1 << 20, np.uint8)
        # The engine fills the table of the functions that kernels call.
        self.engine = _runtime.Engine(self.program.json(), '{"executor": "morsel"}', self.text)
        self.grow = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda emitter: 1)
        self.alloc = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(self._allocate)
        self.home = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(self._home)
        self.arena = (ctypes.c_int64 * 2)(ctypes.cast(self.alloc, ctypes.c_void_p).value, 0)
        self.states = [self.program.bound.records[o.state] for o in app.operators if o.state is not None]
        self.memory = np.zeros(self.states[0].state[1] if self.states else 8, np.uint8)

    def _allocate(self, arena: int, size: int) -> int:
        self.blocks.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self.blocks[-1])

    def _home(self, emitter: int, text: int, size: int) -> int:
        at, self.texts = self.texts, self.texts + size
        ctypes.memmove(self.text.ctypes.data + at, text, size)
        return at

    def process(self, events: pa.Table) -> pa.Table:
        """Outputs of these events; RunFailed("event <seq>: <error>") when the operator raises."""
        rows, text, _ = encode(events, self.program.bound.event)
        self.text[: len(text)] = text
        self.texts = len(text)
        emitter = (ctypes.c_int64 * 8)(
            self.out.ctypes.data, 0, ROOM, ctypes.cast(self.grow, ctypes.c_void_p).value, 0, 0, 0,
            ctypes.cast(self.home, ctypes.c_void_p).value,
        )  # fmt: skip
        states = np.full(max(1, len(rows)), self.memory.ctypes.data, np.int64)
        context = (ctypes.c_int64 * 12)(
            rows.ctypes.data, len(rows), 0, states.ctypes.data if self.states else 0, self.text.ctypes.data,
            ctypes.addressof(emitter), ctypes.addressof(self.arena), 0, 0, 0, 0, 0,
        )  # fmt: skip
        if self.call(ctypes.addressof(context)):
            error = describe_error(ctypes.string_at(context[9], context[10]))
            raise RunFailed(f"event {int(rows[context[8]]['seq'])}: {error}")
        emitted = self.out[: emitter[1]].copy()
        subs = np.zeros(len(emitted), np.uint32)
        for i in range(1, len(emitted)):
            subs[i] = subs[i - 1] + 1 if emitted["seq"][i] == emitted["seq"][i - 1] else 0
        return decode(emitted, self.text, self.program.bound.output, subs)
