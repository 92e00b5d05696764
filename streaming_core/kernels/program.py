"""A bound application, compiled: kernels and the description the runtime works from."""

from __future__ import annotations

import ast
import hashlib
import json
import pickle
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from streaming_core import errors, interruption, machine
from streaming_core.errors import BadInput
from streaming_core.language import tables
from streaming_core.language.application import App, Operator
from streaming_core.language.record import Array, Resolved, Scalar, Text
from streaming_core.storage import digest_of

PARTITIONS = 40  # what keys are drawn by and `pat` counts by, unless the application has a parameter `gen_parts`
# What all applications are compiled from.
_PACKAGE = Path(__file__).parent.parent
_SOURCES = (_PACKAGE / "kernels", _PACKAGE / "language")
_ADDRESSES = ("kernel", "flush", "plan", "apply", "post", "execute", "place")


class _Noted(dict):
    """Parameters that note which of them were read."""

    def __init__(self, params: dict[str, Any]):
        super().__init__(params)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)


class Program:
    """What the runtime needs to run an application. Keeps the kernels' addresses alive.

    Args:
        kept: where kernels are kept.
        whole: the program of the application that `app` is a part of, whose kernels it takes.

    Attributes:
        description: the program of runtime/README.md, as a dict.
        compile_seconds: time until the kernels were ready, reported apart from running.
        event, output: resolved records; tables: (table, resolved row, number of rows), and `initial` the rows that each
            starts with; states: (operator, resolved).
    """

    def __init__(self, app: App, params: dict[str, Any], kept: machine.Kept, whole: Program | None = None):
        started = time.perf_counter()
        self.app, self.params = app, params
        self.event = app.event.resolve(params)
        self.output = app.outputs.resolve(params)
        self.tables = [(t, t.row.resolve(params), tables.size(app, t, params)) for t in app.tables]
        self.initial = [tables.initial_rows(app, table, row, params) for table, row, _ in self.tables]
        self.states = [(o, o.state.resolve(params)) for o in app.operators if o.state is not None]
        self.description = self._transaction() if app.kind == "transaction" else self._dataflow()
        self.description["columns"] = columns(self.output)
        if app.unordered is not None:
            names = [*self.output.event[0]]
            self.description["unordered"] = [names.index(name) for name in app.unordered.columns]
        self._loaded: dict[str, machine.Loaded]
        self._spans: list
        if whole is not None:
            self._loaded, self._spans = whole._loaded, whole._spans
        else:
            kernels, self._spans = self._kernels(kept)
            self._loaded = {name: machine.Loaded(code) for name, code in kernels.items()}
        for entry, span in zip(self.description.get("tables", []), self._spans, strict=True):
            entry["read"] = span
        if self._spans:
            self.description["transaction"]["result_stride"] = max(end - begin for begin, end in self._spans)
        for entry in [*self.description.get("operators", []), self.description.get("transaction", {})]:
            for role in _ADDRESSES:
                if role in entry:
                    entry[role] = self._loaded[entry[role]].address if entry[role] else 0
        self.compile_seconds = time.perf_counter() - started

    def part(self, app: App) -> Program:
        """The program of a part of the application (App.upto, App.only), by the kernels that are compiled already."""
        return Program(app.check(), self.params, machine.Kept(None), self)

    def json(self) -> str:
        """The description as the runtime takes it."""
        return json.dumps(self.description)

    def _kernels(self, kept: machine.Kept) -> tuple[dict[str, bytes], list]:
        """What `compile_kernels` returns, as it is kept; compiled and kept if it is not.

        Of the parameters those count that operators and records read, which the first to compile a source notes down:
        how events are drawn is none of the machine code's business.
        """
        described = {name: value for name, value in self.description.items() if name != "partitions"}
        compiler = machine.fingerprint(*_SOURCES, Path(errors.__file__))
        written = [path.read_text() for path in sources(Path(self.app.file))]
        source = [compiler, written, self.app.name, described]
        constants = [
            hashlib.sha256(tables.constant(self.app, c, self.params).tobytes()).hexdigest() for c in self.app.constants
        ]

        def address(read: Iterable[str]) -> str:
            return digest_of([*source, {name: self.params[name] for name in read}, constants])

        noted = digest_of(source)
        known = kept.read(noted)
        found = kept.read(address(json.loads(known["read"]))) if known else None
        if found:
            spans = json.loads(found.pop("spans"))
            return found, spans
        params = _Noted(self.params)
        kernels, spans = compile_kernels(self.app, params)
        kept.write(address(params.read), {**kernels, "spans": json.dumps(spans).encode()})
        kept.write(noted, {"read": json.dumps(sorted(params.read)).encode()})
        return kernels, spans

    def _dataflow(self) -> dict:
        operators = []
        _, *between, sink = self.app.operators
        number = {id(operator): index - 1 for index, operator in enumerate(self.app.operators)}
        for operator in runnable(between):
            entry: dict[str, Any] = {
                "kind": operator.kind,
                "name": operator.name,
                "inputs": [number[id(o)] for o in operator.inputs],
                "stride": operator.emitted.resolve(self.params).event[1],
                "kernel": f"{operator.name}.{'map' if operator.kind == 'stateless' else 'process'}",
            }
            if operator.state is not None:
                entry["state_size"] = operator.state.resolve(self.params).state[1]
                entry["flush"] = f"{operator.name}.flush" if "flush" in operator.functions else 0
            if operator.kind == "partitioned":
                slot = operator.input.resolve(self.params).event[0][operator.keyed_by]
                assert isinstance(slot.type, Scalar | Text)  # App.key_by
                entry["key"] = {"kind": slot.type.name, "offset": slot.offset}
            operators.append(entry)
        return {
            "kind": "dataflow",
            "event": {"stride": self.event.event[1]},
            "operators": operators,
            "outputs": [number[id(o)] for o in sink.inputs],
        }

    def _transaction(self) -> dict:
        name = self.app.operators[1].name
        return {
            "kind": "transaction",
            "event": {"stride": self.event.event[1]},
            "tables": [
                {
                    "name": t.name,
                    "rows": size,
                    "stride": row.state[1],
                    "containers": row.has_containers,
                    "growing": [{"offset": offset, "indexed": indexed} for offset, indexed in row.growing],
                }
                for t, row, size in self.tables
            ],
            "transaction": {
                "name": name,
                "plan": f"{name}.plan",
                "apply": f"{name}.apply",
                "post": f"{name}.post",
                "execute": f"{name}.execute",
                "place": f"{name}.place",
                "stride": self.output.event[1],
            },
            "partitions": self.params.get("gen_parts", PARTITIONS),
        }


def runnable(operators: list[Operator]) -> list[Operator]:
    """The operators, none of which is windowed.

    Raises:
        BadInput: one is.
    """
    for operator in operators:
        if operator.kind == "windowed":
            raise BadInput(f"operator {operator.name}: windowed operators run on no executor yet")
    return operators


def compile_kernels(app: App, params: dict[str, Any]) -> tuple[dict[str, bytes], list[tuple[int, int]]]:
    """Object files by kernel name, and of a transaction by table which bytes of a row its READs take along.

    Raises:
        BadInput: an operator does not keep to the language or does not compile; the line names it.
    """
    # The compiler is imported only here: a run whose kernels are cached never loads it.
    from numba.core.errors import NumbaError

    from streaming_core.kernels import shapes
    from streaming_core.kernels.dialect import Translator, passes
    from streaming_core.kernels.direct import execute_kernel
    from streaming_core.kernels.place import place_kernel
    from streaming_core.kernels.transaction import Bound
    from streaming_core.kernels.words import WORDS

    translator = Translator(app, params, WORDS, shapes.compiled)
    event = app.event.resolve(params)
    kernels: dict[str, bytes] = {}

    def add(operator: Operator, role: str, shape: Callable, *args: Any) -> None:
        try:
            kernels[f"{operator.name}.{role}"] = shape(*args)
        except NumbaError as error:
            raise BadInput(f"operator {operator.name} does not compile: {compile_error(error, app.file)}") from None
        interruption.check()

    if app.kind == "transaction":
        operator = app.operators[1]
        rows = [t.row.resolve(params) for t in app.tables]
        sizes = [tables.size(app, t, params) for t in app.tables]
        output = operator.emitted.resolve(params)
        post = translator.translate(operator.functions["post"], operator.output)
        # Compiled once only to see what it looks at, for reads need not bring along more.
        scout = Bound(rows, sizes, event, seen=[set() for _ in rows])
        add(operator, "post", shapes.post_kernel, post, event, scout, output)
        bound = Bound(rows, sizes, event, spans=scout.spans_seen())
        plan = translator.translate(operator.functions["plan"], operator.output)
        add(operator, "plan", shapes.plan_kernel, plan, event, bound)
        modifications = [translator.translate(f) for f in translator.modifications]
        conditions = [translator.translate(f) for f in translator.conditions]
        add(operator, "apply", shapes.apply_kernel, bound, event, modifications, conditions)
        add(operator, "post", shapes.post_kernel, post, event, bound, output)
        steps = passes(operator.functions["plan"])
        add(operator, "execute", execute_kernel, plan, steps, event, bound, modifications, conditions, post, output)
        add(operator, "place", place_kernel, plan, event, bound)
        return kernels, bound.spans
    for operator in runnable(app.operators[1:-1]):
        event, output = operator.input.resolve(params), operator.emitted.resolve(params)
        functions = {role: translator.translate(f, operator.output) for role, f in operator.functions.items()}
        if operator.kind == "stateless":
            scratch = operator.scratch and operator.scratch.resolve(params)
            add(operator, "map", shapes.map_kernel, functions["map"], event, output, scratch)
            continue
        state = operator.kept.resolve(params)
        add(operator, "process", shapes.process_kernel, functions["process"], event, state, output)
        if "flush" in functions:
            add(operator, "flush", shapes.flush_kernel, functions["flush"], state, output)
    return kernels, []


def columns(record: Resolved) -> list[dict]:
    """The columns of an output row as the runtime's digest reads them."""
    found = []
    for slot in record.event[0].values():
        assert isinstance(slot.type, Scalar | Text | Array)  # an output holds no container
        kind = slot.type.item if isinstance(slot.type, Array) else slot.type
        found.append({"kind": kind.name, "offset": slot.offset, "count": slot.count})
    return found


def compile_error(error: Exception, file: str) -> str:
    """What is wrong and on which line of the application's file, out of numba's long message."""
    message = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    message = re.sub(r"(?:Row|Emitter)\((\w+)@[^)]*\)", r"\1", message)
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    # What our own words say comes first; else what numba says before it starts to explain itself.
    ours = [line.partition("TypingError: ")[2] for line in lines if line.startswith("TypingError: ")]
    ours = [line for line in ours if not line.startswith(("Failed in", "only fields of rows"))]
    explains = ("Failed in", "During:", "File ", "There are", "- Of which", ">>>", "raised from")
    theirs = [line for line in lines if not line.startswith(explains)]
    name = re.escape(Path(file).name)
    where = re.search(rf'File "[^"]*{name}", line (\d+)', message)
    what = next(iter([*ours, *theirs]), "unknown error")
    return f"{what} ({Path(file).name}:{where.group(1)})" if where else what


def sources(file: Path) -> list[Path]:
    """The file of an application, then what it imports of ours, itself or through others, but for the language."""
    package = _PACKAGE
    known = {*_SOURCES, package / "api.py", package / "__init__.py"}
    found, pending = {file}, [file]
    while pending:
        names: set[str] = set()
        for node in ast.walk(ast.parse(pending.pop().read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        for name in names:
            root, *inner = name.split(".")
            place = package.joinpath(*inner)
            for path in (place.with_suffix(".py"), place / "__init__.py"):
                if root == package.name and path.is_file() and path not in found and not known & {path, *path.parents}:
                    found.add(path)
                    pending.append(path)
    return [file, *sorted(found - {file})]


def compile_app(app: App, params: dict[str, Any], kept: machine.Kept | None = None) -> Program:
    """Compiles a bound application, or loads what an earlier run compiled.

    Args:
        kept: where kernels are kept; None: where this process keeps machine code.

    Raises:
        BadInput: an operator does not keep to the language or does not compile; the line names it.
    """
    app.check()
    return Program(app, params, kept or machine.kept())


def describe_error(payload: bytes) -> str:
    """`ZeroDivisionError: integer division by zero` from the pickled exception a kernel left behind."""
    if not payload:
        return "unknown error"
    error, args, _ = pickle.loads(payload)  # the location is the word's own, which tells a user nothing
    return f"{error.__name__}: {args[0]}" if args else error.__name__
