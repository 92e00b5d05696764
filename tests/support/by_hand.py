"""Calls an application's operator functions as plain Python, one event at a time.

It is small and uses neither the oracle nor the runtime, so that tests of applications are independent of both.
"""

import copy
import sys
from collections import Counter as Numbers
from contextlib import contextmanager
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from streaming_core.api import App, Array, Counter, Map, Queue, Ring, Set, TopK
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.language.record import Resolved, Scalar
from streaming_core.oracle.interpreter.windows import group_of_index, key_group


class Dropped(Exception):
    """The operator rejects an invalid input."""


class Window(list):
    """A ring."""

    def __init__(self, capacity):
        super().__init__()
        self.capacity = capacity

    def append(self, value):
        super().append(value)
        if len(self) > self.capacity:
            del self[0]

    def __getitem__(self, i):
        if isinstance(i, int) and i < 0:
            raise IndexError(i)
        return super().__getitem__(i)


class Members(dict):
    """A set: its members in insertion order."""

    def add(self, x):
        new = x not in self
        self[x] = None
        return new

    def at(self, i):
        return list(self)[i]


class Entries(dict):
    """A map or a counter: its keys in insertion order."""

    def put(self, key, value):
        self[key] = value

    def add(self, key, n):
        self[key] = self.get(key, 0) + n
        return self[key]


class Rows(list):
    """A queue."""

    def append(self, **fields):
        super().append(SimpleNamespace(**fields))

    def popleft(self):
        del self[0]


class Best:
    """A top-k that sorts its scores at each access."""

    def __init__(self, capacity):
        self.capacity, self.scores = capacity, {}

    def offer(self, key, score):
        self.scores[key] = score
        self.scores = dict(self.pairs()[: self.capacity])

    def pairs(self):
        return sorted(self.scores.items(), key=lambda pair: (-pair[1], pair[0]))

    def clear(self):
        self.scores.clear()

    def __len__(self):
        return len(self.scores)

    def key_at(self, i):
        return self.pairs()[i][0]

    def score_at(self, i):
        return self.pairs()[i][1]


class Out:
    def __init__(self):
        self.rows = []

    def emit(self, **fields):
        self.rows.append({name: list(v) if isinstance(v, list) else v for name, v in fields.items()})

    def drop(self):
        raise Dropped


class Txn:
    """Collects the requests of an event, then applies them: conditions on the old state, operations in order."""

    def __init__(self, tables):
        self.tables, self.conditions, self.operations, self.reads = tables, [], [], []

    def drop(self):
        raise Dropped

    def row(self, table, key):
        assert 0 <= key < len(self.tables[table.name]), key
        return self.tables[table.name][key]

    def require(self, condition, *rows_and_argument):
        argument = [g for g in rows_and_argument if isinstance(g, int)]
        self.conditions.append((condition, rows_and_argument[: len(rows_and_argument) - len(argument)], argument))

    def modify(self, row, fn, *rows_and_argument):
        # Other rows are read before any operation.
        others = [copy.deepcopy(g) for g in rows_and_argument if not isinstance(g, int)]
        self.operations.append((fn, row, others, *rows_and_argument[len(others) :]))

    def read(self, row):
        self.operations.append((None, row, []))

    def apply(self, request):
        self.accepted = all(condition(*rows, request, *argument) for condition, rows, argument in self.conditions)
        for fn, row, others, *argument in self.operations:
            if fn is None:
                self.reads.append(SimpleNamespace(**{n: v[:] if type(v) is list else v for n, v in vars(row).items()}))
            elif self.accepted:
                fn(row, *others, request, *argument)

    def result(self, table, i):
        return self.reads[i]


class Windows:
    """A windowed operator by the definition of windows: it visits every window that can contain a row.

    A `single` window observes no expiry here, so its state is invisible while no row of its key is in the window.
    """

    def __init__(self, operator, params):
        declared = operator.window
        self.advance, self.size, self.delay, self.idle, self.every, self.multiplicity = (
            params.get(value, value)
            for value in (
                getattr(declared, name) for name in ("advance", "size", "delay", "idle", "every", "multiplicity")
            )
        )
        self.declared, self.functions, self.params = declared, operator.functions, params
        self.is_single = declared.kind == "single"
        assert not self.is_single or not {"result", "slide"} & set(operator.functions)
        # Every window stays open until each stream has had a row or can lag behind another.
        self.marks, self.watermark, self.touched, self.late = {}, float("-inf"), 0, 0
        self.entries = {}  # (window, key) -> entry; of a single window: (None, key)

    def keys(self, stream, row):
        if self.every is not None:
            return [(i,) for i in range(self.every)]
        if self.declared.field is not None:
            return [(getattr(row, self.declared.field),)]
        keys = []
        add = lambda **fields: keys.append(tuple(fields[name] for name in self.declared.key.fields))  # noqa: E731
        self.functions[f"keys_{stream}"](row, SimpleNamespace(add=add))
        return list(dict.fromkeys(keys)) if self.multiplicity == "set" else keys

    def take(self, stream, row, out):
        self.marks[stream] = max(row.ts, self.marks.get(stream, row.ts))
        ahead = max(self.marks.values())
        if self.is_single:
            self.watermark = ahead
        elif self.idle is not None:
            low = min(mark for mark in self.marks.values() if mark >= ahead - self.idle)
            self.watermark = max(self.watermark, low - self.delay)
        elif len(self.marks) == len(self.declared.states):
            self.watermark = min(self.marks.values()) - self.delay
        self.expire(self.watermark, out)
        about = range((row.ts - self.size) // self.advance - 1, row.ts // self.advance + 2)
        into = (n for n in about if n * self.advance <= row.ts < n * self.advance + self.size)
        into = (n for n in into if n * self.advance + self.size > self.watermark)
        # As many windows can hold a row as one has milliseconds; a `single` one needs only the first.
        into = list(islice(into, 1)) if self.is_single else list(into)
        self.late += not into
        for number in into:
            for key in self.keys(stream, row):
                self.update(stream, row, number, key, out)

    def update(self, stream, row, number, key, out):
        at = (None if self.is_single else number, key)
        start = number * self.advance
        if at not in self.entries or (self.is_single and self.entries[at].last < start):
            states = [fresh(state.resolve(self.params)) for state in self.declared.states]
            named = SimpleNamespace(**dict(zip(self.declared.key.fields, key, strict=True)))
            group = key_group(key) if self.declared.every is None else group_of_index(*key)
            self.entries[at] = SimpleNamespace(states=states, key=named, order=(group, self.touched))
            self.touched += 1
        entry = self.entries[at]
        entry.start, entry.end, entry.last = start, start + self.size, row.ts
        self.functions[f"update_{stream}"](row, entry, *entry.states, out)

    def expire(self, watermark, out):
        """Expires the windows that end by the watermark, or all of them without one."""
        if self.is_single:
            return
        over = {at: e for at, e in self.entries.items() if watermark is None or e.end <= watermark}
        for at, entry in sorted(over.items(), key=lambda item: (item[0][0], item[1].order)):
            del self.entries[at]
            if "result" in self.functions:
                self.functions["result"](entry, *entry.states, out)


@contextmanager
def bound(app: App, params):
    """The modules of the application's functions with its parameters and constants in place."""
    values = {"p": SimpleNamespace(**params)} | {c.name: c.build(params).tolist() for c in app.constants}
    modules = [sys.modules[name] for name in {f.__module__ for o in app.operators for f in o.functions.values()}]
    saved = [(module, name, getattr(module, name, None)) for module in modules for name in values]
    for module in modules:
        vars(module).update(values)
    try:
        yield
    finally:
        for module, name, value in saved:
            setattr(module, name, value)


def fresh(resolved: Resolved):
    """A zero state or row."""
    values = {}
    for slot in resolved.state[0].values():
        match slot.type:
            case Ring():
                values[slot.name] = Window(slot.count)
            case Array():
                values[slot.name] = [0] * slot.count
            case Set():
                values[slot.name] = Members()
            case Queue():
                values[slot.name] = Rows()
            case Map() | Counter():
                values[slot.name] = Entries()
            case TopK():
                values[slot.name] = Best(slot.count)
            case Scalar():
                values[slot.name] = 0.0 if slot.type.is_float else False if slot.type.name == "boolean" else 0
            case other:
                raise NotImplementedError(other)
    return SimpleNamespace(**values)


class Result:
    """Outputs and final state of a run, as rows and as Arrow tables."""

    def __init__(self, app, params, outputs, state, dropped):
        self.app, self.params, self.outputs, self.state, self.dropped = app, params, outputs, state, dropped

    def columns(self, *names):
        """The outputs as tuples of these columns."""
        return [tuple(row[name] for name in names) for row in self.outputs]

    def output_table(self):
        schema = self.app.outputs.resolve(self.params).arrow(("seq", "sub"))
        return pa.Table.from_pylist(self.outputs, schema)

    def state_tables(self):
        tables = {}
        for name, (record, rows) in self.state.items():
            keys = [] if None in rows else [key if isinstance(key, tuple) else (key,) for key in sorted(rows)]
            columns = list(zip(*keys, strict=True)) if rows else [()]  # a key of no row counts as one integer
            names = ["key"] if len(columns) == 1 else [f"key_{i}" for i in range(len(columns))]
            kinds = [pa.binary() if any(isinstance(x, bytes) for x in column) else pa.int64() for column in columns]
            fields = [pa.field(*pair, nullable=False) for pair in zip(names, kinds, strict=True)]
            values = [dict(zip(names, key, strict=True)) for key in ([()] if None in rows else keys)]
            for value, key in zip(values, rows if None in rows else sorted(rows), strict=True):
                value |= {n: exported(v) for n, v in vars(rows[key]).items()}
            tables[name] = pa.Table.from_pylist(values, pa.schema([*fields, *record.resolve(self.params).arrow()]))
        return tables


def exported(value):
    """The value of a field in a table of state."""
    match value:
        case Members():
            return list(value)
        case Entries():
            return [{"key": key, "value": entry} for key, entry in value.items()]
        case Best():
            return [{"key": key, "score": score} for key, score in value.pairs()]
    return value


def initial_tables(app: App, params) -> dict[str, dict]:
    """The rows of every table before the first event."""
    tables = {}
    for table in app.tables:
        size = params[table.size] if isinstance(table.size, str) else table.size
        tables[table.name] = {key: fresh(table.row.resolve(params)) for key in range(size)}
        for name, values in (table.init(np.arange(size), params) if table.init else {}).items():
            field = table.row.resolve(params).state[0][name]
            shape = (size, field.count) if isinstance(field.type, Array) else (size,)
            for key, value in enumerate(np.broadcast_to(values, shape).tolist()):
                setattr(tables[table.name][key], name, value)
    return tables


class Pipeline:
    """The operators of an application that is not transactional, with their states and windows."""

    def __init__(self, app: App, params):
        self.app, self.params = app, params
        self.states = {o.name: (o.state, {}) for o in app.operators if o.kind in ("partitioned", "stateful")}
        self.windows = {o.name: Windows(o, params) for o in app.operators if o.kind == "windowed"}
        for operator in app.operators:
            if operator.kind == "stateful":  # one state for all events, without a key
                self.states[operator.name][1][None] = fresh(operator.state.resolve(params))

    def rows(self, events, seq, ends=False):
        """The rows that leave the pipeline for events or at its end, and how many rows operators rejected."""
        rows_by_operator, invalid = {id(self.app.operators[0]): events}, 0
        for operator in self.app.operators[1:]:
            rows = [(i, row) for i, source in enumerate(operator.inputs) for row in rows_by_operator[id(source)]]
            if operator.kind == "sink":
                return [row for _, row in rows], invalid
            emitted = []
            for i, row in rows:
                out = Out()
                try:
                    self._take(operator, i, row, out)
                except Dropped:
                    invalid += 1
                emitted += out.rows
            if ends:
                emitted += self._end(operator)
            rows_by_operator[id(operator)] = [SimpleNamespace(**{**fields, "seq": seq}) for fields in emitted]

    def _take(self, operator, stream, row, out):
        if operator.name in self.windows:
            self.windows[operator.name].take(operator.window.streams[stream], row, out)
        elif operator.kind == "stateless":
            scratch = [fresh(operator.scratch.resolve(self.params))] if operator.scratch else []
            operator.functions["map"](row, *scratch, out)
        else:
            record, state_of_key = self.states[operator.name]
            fields = tuple(getattr(row, field) for field in operator.key)
            key = fields if len(fields) > 1 else fields[0] if fields else None
            if key not in state_of_key:
                state_of_key[key] = fresh(record.resolve(self.params))
            operator.functions["process"](row, state_of_key[key], out)

    def _end(self, operator):
        """The rows that an operator emits after its last input."""
        out = Out()
        if operator.name in self.windows:
            self.windows[operator.name].expire(None, out)
        if "flush" in operator.functions:
            state_of_key = self.states[operator.name][1]
            for key in sorted(state_of_key):
                operator.functions["flush"](state_of_key[key], out)
        return out.rows


def run(app: App, params, events: pa.Table) -> Result:
    """Runs all events through the application in order."""
    params = app.bind(params)
    outputs, dropped, subs = [], 0, Numbers()
    tables, pipeline = initial_tables(app, params), Pipeline(app, params)

    def put_out(rows, seq):
        for row in rows:
            values = {name: value for name, value in vars(row).items() if name != "seq"}
            outputs.append({"seq": seq, "sub": subs[seq], **values})
            subs[seq] += 1

    with bound(app, params):
        for event in events.to_pylist():
            row, out, emitted = SimpleNamespace(**event), Out(), []
            try:
                if app.kind == "transaction":
                    functions, txn = app.operators[1].functions, Txn(tables)
                    functions["plan"](row, txn)
                    txn.apply(row)
                    functions["post"](row, txn, out)
                else:
                    emitted, invalid = pipeline.rows([row], row.seq)
                    dropped += invalid
            except Dropped:
                dropped += 1
            put_out([*emitted, *(SimpleNamespace(**fields) for fields in out.rows)], row.seq)
        if app.kind != "transaction":
            put_out(pipeline.rows([], len(events), ends=True)[0], len(events))
    state = {f"state_{t.name}": (t.row, tables[t.name]) for t in app.tables}
    state |= {f"state_{name}": pair for name, pair in pipeline.states.items()}
    return Result(app, params, outputs, state, dropped)


def run_generated(name: str, params=None, events=1500, seed=3) -> tuple[list[dict], Result]:
    """Generated events of an application, and their result."""
    app = registry.load(name)
    table = workload.generate_chunk(app, params or {}, events, seed, 0, events)
    return table.to_pylist(), run(app, params or {}, table)


def run_rows(name: str, params, rows: list[dict]) -> Result:
    """The result of rows that omit zero columns."""
    app = registry.load(name)
    schema = workload.schema(app, params)
    empty = dict.fromkeys(schema.names, 0)
    return run(app, params, pa.Table.from_pylist([{**empty, **row, "seq": i} for i, row in enumerate(rows)], schema))


def run_lines(name: str, lines: list[bytes], params=None) -> Result:
    """The result of lines of text."""
    return run_rows(name, params or {}, [{"ts": i, "line": line} for i, line in enumerate(lines)])
