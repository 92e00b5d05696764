"""A bound application, compiled: its kernels, and the description from which the runtime works."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import pickle
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streaming_core import errors, machine_code
from streaming_core.kernels import abi
from streaming_core.kernels.emits import emits
from streaming_core.language.acceptance import accept
from streaming_core.language.application import App
from streaming_core.language.bound import BoundApp
from streaming_core.language.code import code_digest
from streaming_core.language.operator import Operator
from streaming_core.language.record import VALID, Resolved, Scalar, Text
from streaming_core.language.tables import BoundTable
from streaming_core.language.window import Window
from streaming_core.storage import digest_of

PARTITIONS = 40  # of keys and of `pat`, unless the application has a parameter `gen_parts`
# The source of the compiler.
_PACKAGE = Path(__file__).parent.parent
_SOURCES = (_PACKAGE / "kernels", _PACKAGE / "language")
_ADDRESSES = ("kernel", "flush", "keys", "update", "result", "slide", "plan", "apply", "post", "execute", "place")
# Numbers of a window are data of a program: changing them recompiles nothing.
_NUMBERS = ("advance", "size", "delay", "idle", "every")
# The functions that build texts: the runtime writes their addresses here.
TEXT_FUNCTIONS = np.zeros(abi.TEXT_RELEASE + 1, np.int64)


class _Noted(dict):
    """Parameters that record the names that code reads."""

    def __init__(self, params: dict[str, Any]):
        super().__init__(params)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)


class Program:
    """What the runtime needs to run an application. Keeps the kernels' addresses alive.

    Args:
        bound: The bound application.
        kept: The folder of machine code.
        whole: The program of the application that contains this one; this program uses its kernels.

    Attributes:
        description: The program of runtime/ABI.md, as a dict.
        compile_seconds: Time until the kernels were ready; runs report it apart.
        initial: The initial rows, by table.
        keys: The initial keys of each table, or None.
    """

    def __init__(self, bound: BoundApp, kept: machine_code.Kept, whole: Program | None = None):
        started = time.perf_counter()
        self.bound, self.app, self.params = bound, bound.app, bound.params
        self.initial = [table.initial_rows() for table in bound.tables]
        self.keys = [table.keys() for table in bound.tables]
        self.description = self._transaction() if self.app.kind == "transaction" else self._dataflow()
        self.description["columns"] = bound.output.layout
        if self.app.unordered is not None:
            names = [*bound.output.event[0]]
            columns = [
                column for name in self.app.unordered.columns for column in (name, VALID + name) if column in names
            ]
            self.description["unordered"] = [names.index(name) for name in columns]
        self._loaded: dict[str, machine_code.Loaded]
        self._spans: list
        self._builds_texts: bool
        if whole is not None:
            self._loaded, self._spans, self._builds_texts = whole._loaded, whole._spans, whole._builds_texts
        else:
            kernels, self._spans = self._kernels(kept)
            places = {abi.TEXT_FUNCTIONS: TEXT_FUNCTIONS.ctypes.data}
            self._loaded = {name: machine_code.Loaded(code, places, name) for name, code in kernels.items()}
            self._builds_texts = any(abi.NO_ROOM.encode() in code for code in kernels.values())
        for entry, span in zip(self.description.get("tables", []), self._spans, strict=True):
            entry["read"] = span
        if self._spans:
            self.description["transaction"]["result_stride"] = max(end - begin for begin, end in self._spans)
        for entry in self._with_kernels():
            for role in _ADDRESSES:
                if role in entry:
                    entry[role] = self._loaded[entry[role]].address if entry[role] else 0
        self.compile_seconds = time.perf_counter() - started

    def part(self, app: App) -> Program:
        """Return the program of a part of the application (App.upto, App.only), with the kernels of this one."""
        return Program(BoundApp(app.check(), self.params), machine_code.Kept(None), self)

    @property
    def makes_texts(self) -> bool:
        """Whether outputs may refer to texts outside their block: in windows, literals, or what an operator built."""
        return self._builds_texts or self.app.kind == "windowed"

    def json(self) -> str:
        """Return the description as the runtime takes it."""
        return with_functions(self.description)

    def _with_kernels(self) -> Iterator[dict]:
        """Yield the parts of the description that name kernels."""
        for entry in [*self.description.get("operators", []), self.description.get("transaction", {})]:
            yield entry
            if "window" in entry:
                yield entry["window"]
                yield from entry["window"]["streams"]

    def _kernels(self, kept: machine_code.Kept) -> tuple[dict[str, bytes], list]:
        """Load what `compiler.compile_kernels` returned earlier, or compile and store it.

        The address covers only the parameters that operators and records read. The first compilation of a source
        records their names. Parameters of the generator do not change machine code.
        """
        described = copy.deepcopy({name: value for name, value in self.description.items() if name != "partitions"})
        for entry in described.get("operators", []):
            for name in _NUMBERS:
                entry.get("window", {}).pop(name, None)
        compiler = machine_code.fingerprint(*_SOURCES, Path(errors.__file__))
        keys = [table.index and table.index.key.name for table in self.bound.tables]
        source = [compiler, code_digest(self.app), described, keys]
        constants = [hashlib.sha256(values).hexdigest() for values in self.bound.constants.values()]

        def address(read: Iterable[str]) -> str:
            return digest_of([*source, {name: self.params[name] for name in read}, constants])

        index_address = digest_of(source)
        index = kept.read(index_address)
        stored = kept.read(address(json.loads(index["read"]))) if index else None
        if stored:
            spans = json.loads(stored.pop("spans"))
            return stored, spans
        params = _Noted(self.params)
        # Only here, because a run with stored kernels must not load the compiler.
        from streaming_core.kernels.compiler import compile_kernels

        kernels, spans = compile_kernels(BoundApp(self.app, params))
        kept.write(address(params.read), {**kernels, "spans": json.dumps(spans).encode()})
        kept.write(index_address, {"read": json.dumps(sorted(params.read)).encode()})
        return kernels, spans

    def _dataflow(self) -> dict:
        operators, records = [], self.bound.records
        _, *between, sink = self.app.operators
        number = {id(operator): index - 1 for index, operator in enumerate(self.app.operators)}
        for operator in between:
            entry: dict[str, Any] = {
                "kind": operator.kind,
                "name": operator.name,
                "inputs": [number[id(o)] for o in operator.inputs],
                "stride": records[operator.emitted].event[1],
            }
            if operator.window is not None:
                entry |= self._windowed(operator, operator.window)
            else:
                role = "map" if operator.kind == "stateless" else "process"
                entry["kernel"] = f"{operator.name}.{role}"
                bounds = emits(operator.functions[role])
                entry["emits"] = [bounds.least, bounds.most]
            if operator.state is not None:
                state = records[operator.state]
                entry |= {"state_size": state.state[1], "growing": state.growing}
                entry["flush"] = f"{operator.name}.flush" if "flush" in operator.functions else 0
            if operator.kind == "partitioned":
                entry["key"] = [_column(records[operator.input], field) for field in operator.key]
            operators.append(entry)
        return {
            "kind": "dataflow",
            "event": {"stride": self.bound.event.event[1]},
            "operators": operators,
            "outputs": [number[id(o)] for o in sink.inputs],
        }

    def _windowed(self, operator: Operator, window: Window) -> dict:
        bounds, records = self.bound.windows[operator], self.bound.records
        key, states = records[window.key], [records[state] for state in window.states]
        begins = list(itertools.accumulate((state.state[1] for state in states), initial=0))

        streams = []
        for number, rows in enumerate(operator.streams):
            kernels = {role: f"{operator.name}.{role}_{number}" for role in ("keys", "update")}
            streams.append({"ts": _column(records[rows], "ts"), **kernels})
        return {
            "state_size": begins[-1],
            "growing": [
                container | {"offset": begin + container["offset"]}
                for begin, state in zip(begins, states, strict=False)
                for container in state.growing
            ],
            "window": {
                "single": window.kind != "multi",
                "session": window.kind == "session",
                "advance": bounds.advance,
                "size": bounds.size,
                "delay": bounds.delay,
                "idle": bounds.idle,
                "most": bounds.most,
                "every": bounds.every,
                "bag": not bounds.is_set,
                "merge": list(window.merge) if window.kind == "multi" and bounds.every is None else [],
                "of": list(window.streams),
                "streams": streams,
                "key": {"stride": key.event[1], "fields": [_column(key, name) for name in key.event[0]]},
                **{r: f"{operator.name}.{r}" if r in operator.functions else 0 for r in ("result", "slide")},
            },
        }

    def _transaction(self) -> dict:
        name = self.app.operators[1].name
        return {
            "kind": "transaction",
            "event": {"stride": self.bound.event.event[1]},
            "tables": [_described(table) for table in self.bound.tables],
            "transaction": {
                "name": name,
                "plan": f"{name}.plan",
                "apply": f"{name}.apply",
                "post": f"{name}.post",
                "execute": f"{name}.execute",
                "place": f"{name}.place",
                "stride": self.bound.output.event[1],
            },
            "partitions": self.params.get("gen_parts", PARTITIONS),
        }


def with_functions(description: dict) -> str:
    """Return a description as the runtime takes it, with the address of this process's table of functions."""
    return json.dumps(description | {"text_functions": TEXT_FUNCTIONS.ctypes.data})


def _column(record: Resolved, name: str) -> dict:
    """Describe a field of a key, or the `ts` of rows, for the runtime."""
    slot = record.event[0][name]
    assert isinstance(slot.type, Scalar | Text)  # Stream.key_by
    return {"kind": slot.type.name, "offset": slot.offset}


def _described(table: BoundTable) -> dict:
    """Describe a table for the runtime."""
    index, row = table.index, table.row
    return {
        "name": table.name,
        "rows": table.size,
        "stride": row.state[1],
        "containers": row.has_containers,
        "growing": row.growing,
        **({"index": {"key": "text" if index.is_text else "integer", "inserts": index.inserts}} if index else {}),
    }


def compile_app(app: App, params: dict[str, Any], kept: machine_code.Kept | None = None) -> Program:
    """Compile a bound application, or load the machine code of an earlier run.

    Args:
        app: The application.
        params: Its bound parameters.
        kept: The folder of machine code; None: that of this process.

    Raises:
        BadInput: An operator breaks a rule of the language; the line says where and why.
        CommandFailed: numba does not compile an operator that the language accepts.
    """
    accept(app.check(), params)
    return Program(BoundApp(app, params), kept or machine_code.kept())


def describe_error(payload: bytes) -> str:
    """Describe the pickled exception of a kernel, as in `ZeroDivisionError: division by zero`."""
    if not payload:
        return "unknown error"
    error, args, _ = pickle.loads(payload)  # the location is in the word, not in the application
    return f"{error.__name__}: {args[0]}" if args else error.__name__
