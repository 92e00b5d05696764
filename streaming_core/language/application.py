"""An application: parameters, tables, a pipeline of typed operators, a generator and invariants, in one object.

The type of an operator is what lets the engine parallelise it, so it is declared and checked:

| operator             | written as                                       | may run in parallel over |
|----------------------|--------------------------------------------------|--------------------------|
| stateless            | `stream.flat_map(fn, Output)`                    | events                   |
| partitioned stateful | `stream.key_by(field).process(fn, state=, ...)`  | keys                     |
| stateful             | `stream.process(fn, state=, ...)`                | nothing                  |
| windowed             | `stream.window(...)`, `app.window(a, b, ...)`    | keys                     |
| transaction          | `@app.transaction(input=, output=)`              | operations on rows       |

Operator functions are plain Python over scalars, records and containers (the language: language/typed):

    stateless:            fn(row, out), or fn(row, scratch, out)
    stateful:             fn(row, state, out)      flush: fn(state, out), at the end of the stream, keys ascending
    windowed:             keys(row, keys), update(row, window, state, out), result(window, state, out),
                          slide(window, state); of several streams all states in place of one (language/window.py)
    transaction:          fn(request, txn); post: fn(request, txn, out)

Rows come from `app.source(Event)`, or as streams with a record each from `app.sources(Left, Right)`.

A pipeline is a DAG: a stream may be taken by any number of operators, and `a.union(b, ...)` is one stream of several of
one record type. One event at a time, in the order in which operators are declared; who takes a union gets, of each
event, first what `a` put out, then `b`, and so on.

`out.emit(field=value, ...)` any number of times; `out.drop()` declares the input invalid: it is counted as dropped, and
the function ends there (what it has emitted stays).
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_core.errors import BadInput, unknown
from streaming_core.language import generated
from streaming_core.language.extent import check_unit, in_units
from streaming_core.language.invariants import quoted_value, with_values
from streaming_core.language.joining import joined
from streaming_core.language.operator import Operator
from streaming_core.language.parameters import Param, Params, Profile
from streaming_core.language.record import CONTAINERS, GROWING, Queue, Record, Scalar, Text
from streaming_core.language.sinks import gathered
from streaming_core.language.sources import Sources, united
from streaming_core.language.stream import Stream
from streaming_core.language.windowed import Windows

# What a name is that becomes a column, a file or a view of SQL.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A view of a final table in the SQL of an invariant.
_STATE_VIEW = re.compile(r"\bstate_\w")
# How a row of a table is found (App.table).
LOOKUPS = ("dense", "hash", "insert")


@dataclass(frozen=True, eq=False)
class Constant:
    """A read-only side table: `build(params)` -> 1-D int64 or float64 array; operators read `table[i]`."""

    name: str
    build: Callable[[dict], np.ndarray]


@dataclass(frozen=True)
class Unordered:
    """What agrees with the sequential meaning when nobody keeps order: `columns` of the outputs, as a multiset, and the
    final states of the operators `states`."""

    columns: tuple[str, ...]
    states: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Table:
    """A shared table: rows of `row`, which `init(key, params) -> dict | None` initialises (None: zero).

    `init` takes all keys at once, and gives columns (App.table, language/tables.py).

    Attributes:
        index: the number of the table.
        key: the type of the keys; None: they are the numbers 0..size-1.
        lookup: `dense`, `hash` or `insert`, or the name of the parameter that is it.
        keys: gives the keys of a table with lookup `hash`; None: the integers 0..size-1.
        where: file and line of the declaration.
    """

    name: str
    row: Record
    size: int | str
    init: Callable[[Any, dict], dict[str, Any]] | None
    index: int
    key: Scalar | Text | None = None
    lookup: str = "dense"
    keys: Callable[[dict], Any] | None = None
    where: tuple[str, int] = ("?", 0)


class Transaction:
    """Returned by `@app.transaction`; `@name.post` adds the post-processing function."""

    def __init__(self, app: App, operator: Operator):
        self._app, self.operator = app, operator

    def post(self, fn: Callable) -> Callable:
        """`fn(request, txn, out)`, after the state access: `txn.accepted`, `txn.result(table, i)` = i-th `txn.read`."""
        self.operator.functions["post"] = fn
        return fn


class App:
    """One streaming application.

    Args:
        name: lower case id, as on the command line.
        params: name -> Param.
        profiles: name -> Profile, sets of values with a meaning (`--profile`).
        reads: for documentation, the paper and section the application comes from.
        time: the unit of `ts`, in which durations such as "1m" are counted: ns, us, ms, s, m, h or d.
    """

    def __init__(
        self,
        name: str,
        params: dict[str, Param] | None = None,
        profiles: dict[str, Profile] | None = None,
        reads: str = "",
        time: str = "ms",
    ):
        self.name = name
        check_unit(time)
        self.time = time
        self.declared = params or {}
        for known, param in self.declared.items():
            if not isinstance(param, Param):
                raise BadInput(f"app {name}: parameter {known}: write Param({param!r}) instead of {param!r}")
            if type(param.default) not in (bool, int, float, str):
                raise BadInput(f"app {name}: parameter {known}: the default must be a number, a boolean or a text")
            param.check(known, param.default)
        self.profiles = profiles or {}
        self.reads = reads
        self.params = Params(self.declared)
        self.tables: list[Table] = []
        self.operators: list[Operator] = []
        self.constants: list[Constant] = []
        self.invariants: dict[str, str] = {}
        self._by_order: set[str] = set()  # invariants that hang on order
        self.unordered: Unordered | None = None
        self._event: Record | None = None
        self.streams: Sources | None = None  # of an application of several sources
        self.delay: int | str | None = None  # how far `ts` of a source may go back; None: it does not
        self._generators: tuple[Callable, ...] = ()
        self._outputs: Record | None = None
        self._sinks: dict[str, Stream] = {}
        self._converters: tuple[str, ...] = ()  # the operators in front of several sinks
        frame = inspect.currentframe()
        assert frame is not None
        assert frame.f_back is not None  # who declares the application
        caller = frame.f_back.f_globals
        self._module: str = caller.get("__name__", "")
        self.file = caller.get("__file__", "")
        self.doc = (caller.get("__doc__") or "").strip()

    # What every application has once it is declared: who asks has one that was checked.

    @property
    def event(self) -> Record:
        """The record type of the events."""
        assert self._event is not None, f"app {self.name} has no source yet"
        return self._event

    @event.setter
    def event(self, record: Record) -> None:
        self._event = record

    @property
    def outputs(self) -> Record:
        """The record type of what arrives at the sink."""
        assert self._outputs is not None, f"app {self.name} has no sink yet"
        return self._outputs

    @outputs.setter
    def outputs(self, record: Record) -> None:
        self._outputs = record

    @property
    def generators(self) -> tuple[Callable, ...]:
        """What makes the rows of each source (`generates`)."""
        assert self._generators, f"app {self.name} has no generator yet"
        return self._generators

    @property
    def generator(self) -> Callable:
        """What makes the events of an application of one source."""
        [generator] = self.generators
        return generator

    @generator.setter
    def generator(self, fn: Callable) -> None:
        self._generators = (fn,)

    # --- declaration -------------------------------------------------------------------------------------------

    def constant(self, build: Callable[[dict], np.ndarray]) -> Constant:
        """Decorator: a read-only side table for the operators."""
        constant = Constant(build.__name__, build)
        self.constants.append(constant)
        return constant

    def table(
        self,
        name: str,
        row: Record,
        size: int | str,
        init: Callable | None = None,
        *,
        key: Scalar | Text | None = None,
        lookup: str | None = None,
        keys: Callable[[dict], Any] | None = None,
    ) -> Table:
        """A shared table. Without `key` it is dense: its keys are 0..size-1, and the key of a row is its number.

        Args:
            row: what a row holds; every field begins as zero, or empty.
            size: number of rows, or the name of the parameter that is it; at most 2^32-1.
            init: what rows begin with. It is called once, with NumPy, and not row by row: `init(key, params)` takes the
                keys of all rows as an int64 array, and gives a dict of columns by field, or None. The column of a
                scalar is an array with a value for each row, or one value for all; that of an array a 2-D array, or one
                row of items for all. So an `if` on `key` is an error: write `np.where(key < 10, ...)`. What a field
                cannot hold is refused as a store of it would be. Text keys come as an object array of bytes.
            key: the type of the keys, any integer type or `text`. The table then has a hash index.
            lookup: how `txn.row(table, key)` finds a row, or the name of the parameter that says so. Default: `hash` if
                there is a `key`, else `dense`.

                - `dense`: the key is the number of the row, and `key` only says what type it has.
                - `hash`: by an index. The table has the keys that `keys` gives, and no others.
                - `insert`: by an index. The table starts empty. A row exists as soon as an event names its key, even if
                  the event is rejected or dropped. `size` is the largest number of rows, and `init(None, params)` gives
                  one value for all of them.
            keys: `keys(params)` gives the `size` keys of a table with lookup `hash`, in any order: an array of
                integers, or a list of texts. Default: the integers 0..size-1.

        Raises:
            BadInput: `key` is neither an integer type nor `text`, or `lookup` and `keys` do not go with it.
        """
        self._refuse("table", row, Text, Queue)
        frame = inspect.currentframe()
        assert frame is not None
        assert frame.f_back is not None  # who declares the table
        where = frame.f_back.f_code.co_filename, frame.f_back.f_lineno

        def refusal(why: str) -> BadInput:
            return BadInput(f"app {self.name}: table {name}: {why}")

        is_integer = isinstance(key, Scalar) and not key.is_float and key.name != "boolean"
        if key is not None and not is_integer and not isinstance(key, Text):
            raise refusal(f"a key is an integer or a text, not {getattr(key, 'name', None) or repr(key)}")
        lookup = lookup or ("dense" if key is None else "hash")
        if lookup not in LOOKUPS and lookup not in self.declared:
            raise refusal(f"lookup must be one of {', '.join(LOOKUPS)}, or the name of a parameter, got {lookup!r}")
        if lookup != "dense" and key is None:
            raise refusal(f"lookup {lookup} needs the type of the keys; write key=u32, for example")
        if keys is not None and (lookup in ("dense", "insert") or not inspect.isfunction(keys)):
            raise refusal("keys must be a function, and goes only with lookup hash")
        if isinstance(key, Text) and (lookup == "dense" or (lookup == "hash" and keys is None)):
            raise refusal("texts are no numbers of rows; add keys=function, or use lookup insert")
        table = Table(name, row, size, init, len(self.tables), key, lookup, keys, where)
        self.tables.append(table)
        return table

    def source(self, event: Record, delay: int | str | None = None) -> Stream:
        """The application's only input stream.

        Args:
            event: the record of its rows.
            delay: declares that `ts` goes back, mostly by no more than this. A duration, a number of units of `ts`, or
                the name of a parameter. It is the default `delay` of windows of kind `multi`, and an import keeps the
                order of the files. Windows decide whether a row is late.

        Raises:
            BadInput: The application has a source already, or the record cannot be an event.
        """
        if self._event is not None:
            reason = "the events are declared already; call only one of app.source, app.sources and app.transaction"
            raise BadInput(f"app {self.name}: {reason}")
        self._refuse("event", event, *CONTAINERS)
        self.event = event
        self.delay = None if delay is None else in_units(delay, self.time)
        operator = Operator("source", "source", [], event)
        self.operators.append(operator)
        return Stream(self, [operator])

    def sources(self, *records: Record, delay: int | str | None = None) -> tuple[Stream, ...]:
        """The application's input streams, one for each record, by whose names they go (language/sources.py).

        Every record has an integer field `ts`, of one type. Rows are taken in the order of (`ts`, stream, place in the
        stream), and numbered in it: `row.seq`. A silent stream delays no other. With a `delay` (see `source`), `ts`
        of a stream may go back. Such a row is taken as if it had the highest `ts` of its stream before it.

        Raises:
            BadInput: fewer than two records, one of them twice or without order, or fields whose names clash.
        """
        streams = united(self.name, records)
        source = self.source(streams.event, delay)
        self.streams = streams
        return tuple(source.flat_map(streams.stream(i, self._module), one) for i, one in enumerate(records))

    def window(
        self,
        *streams: Stream,
        size: int | str,
        advance: int | str | None = None,
        kind: str = "multi",
        delay: int | str | None = None,
        idle: int | str | None = None,
    ) -> Windows:
        """Begin the declaration of a windowed operator over streams (STRETCH, section 4.2: O+).

        Continue with the keys of a row, `key_by`, and with the functions, `apply` (language/windowed.py).

        Windows are [l*advance, l*advance + size), in units of `ts`; 0 < advance <= size. All durations may be text such
        as "1m", or names of parameters.

        Args:
            *streams: One or several streams, whose records have an integer field `ts`.
            size: The length of a window. A session ends `size` after the latest row of its key.
            advance: The time from the start of one window to that of the next; None for sessions.
            kind: `multi`: a state for each window of a key. `single`: one for each key, whose window slides. `session`:
                one for each burst of rows of a key.
            delay: How far the `ts` of a row may lie behind that of the latest row. With several streams, the latest row
                is that of the stream that is furthest behind. Default: the `delay` of the sources for kind `multi`,
                else 0.
            idle: A stream that is further behind the others than this, or that has had no row, delays no window.
                None: windows of kind `multi` wait for every stream. Other kinds go by the latest row of any stream.
        """
        return Windows(self, streams, size, advance, kind, delay, idle)

    def join(
        self,
        left: Stream,
        right: Stream,
        on: str | None = None,
        *,
        within: int | str,
        band: dict[str, tuple[str, float]] | None = None,
        name: str = "join",
    ) -> Stream:
        """The pairs of rows with the same key whose `ts` differ by at most `within` (language/joining.py).

        A pair has the later `ts`, the key, and the other fields of both rows. Fields of the same name get the name of
        their record in front: `order_price`, `payment_price`.

        Args:
            left: the left stream.
            right: the right stream.
            on: the key, a field of both. With a band, there may be none.
            within: a number of units of `ts`, or a duration such as "10m".
            band: fields that must be close to each other: of the left row, the field of the right row, and the largest
                difference. The first of them is an index, so a row meets few rows that are not close.
            name: of the operator.

        Raises:
            BadInput: A field is missing, or no number, or has the name of another one.
        """
        return joined(self, left, right, on, within, band or {}, name)

    def _default_delay(self, kind: str) -> int | str:
        """The `delay` of windows of this kind that declare none, in units of `ts`, or a parameter."""
        return self.delay if self.delay is not None and kind == "multi" else 0

    def transaction(self, input: Record, output: Record) -> Callable[[Callable], Transaction]:
        """Decorator: `fn(request, txn)` declares the state transaction of one event (TStream, section IV-B).

        `txn.row(table, key)` names a row; `txn.require(condition, row, ...)` reads the state before the transaction,
        any false rejects all of it: `condition(row, ..., request)` over any rows of any tables, or over none;
        `txn.modify(row, fn)` with `fn(row, request)`; `txn.read(row)` takes the row's scalars at this point of the
        program, or unchanged ones if the transaction is rejected; `txn.drop()`. An integer 0 <= i < 2^32 behind the
        rows of `require` or the function of `modify` becomes one more argument, after the request: which position of
        the event this is about. A condition over several rows sees no set, map, counter or top-k of theirs.

        `txn.modify(row, fn, other, ...)` with `fn(row, other, ..., request)` also reads other rows, as they were before
        the transaction, whatever it does to them: READ_MODIFY(d, f(t)) of Table II. Of these it sees no set, map,
        counter or top-k. A WRITE with a condition of its own is a function that leaves its row alone where that does
        not hold; what `require` asks for is asked for all operations of the transaction.

        Several transactional operators become one joint operator (TStream, section V) by being called, one after the
        other, by the function that is decorated: each is a function `fn(request, txn)` like it. Their operations are
        at sub-timestamps (seq, 0), (seq, 1), ... in the order of the calls: a later one sees what an earlier one did,
        and a condition of any that fails rejects all of them. Only the decorated function itself may drop the event.
        """

        def declare(fn: Callable) -> Transaction:
            source = self.source(input)
            name = getattr(fn, "__name__", "")
            stream = self._add(Operator("transaction", name, source._operators, output, {"plan": fn}))
            stream.sink()
            return Transaction(self, stream._operators[0])

        return declare

    def generates(self, *fns: Callable) -> Callable:
        """Decorator: `fn(params, seed, start, stop) -> dict[column, array]`: events start..stop-1 with `ts` and every
        field of the event record; event i depends on (seed, params, i) alone. Text columns are lists of bytes.

        Of several sources there is one for each, in their order: `app.generates(lefts, rights)`. It makes the rows
        start..stop-1 of its stream, whose `ts` never decreases, and knows nothing of the others. Fewer rows than were
        asked for are the last ones: the stream is silent from there on.
        """
        if not fns or not all(map(inspect.isfunction, fns)):
            raise BadInput(f"app {self.name}: write @app.generates above the generator, without parentheses")
        self._generators = fns
        return fns[0]

    def agrees_unordered(self, *columns: str, states: tuple[str, ...] = ()) -> None:
        """Says what a run without order must still have in common with the oracle: these columns of the outputs, as a
        multiset, and the final states of these operators. An application that does not say so runs in total order only.

        Raises:
            BadInput: no column, one the outputs have not, or an operator without state.
        """
        if not columns:
            raise BadInput(f"app {self.name}: agrees_unordered: name at least one output column")
        fields = self._outputs.fields if self._outputs else {}
        stateful = [operator.name for operator in self.operators if operator.state is not None]
        for name, known in [(c, [*fields]) for c in columns] + [(s, stateful) for s in states]:
            if name not in known:
                raise BadInput(f"app {self.name}: agrees_unordered: {unknown('name', name, known)}")
        self.unordered = Unordered(columns, states)

    def invariant(self, name: str, sql: str, by_order: bool = False) -> None:
        """SQL over the views `events`, `outputs` and `state_<table>` that selects violating rows: none = it holds.
        `:name` stands for the value of the parameter of that name.

        A run without order is as if its events had come in another one: outputs keep the `seq` of their event, but
        the n-th event by `seq` need not be the n-th that took effect, and `sub` says nothing. An invariant that would
        not hold then is `by_order`, and is asked of runs in total order only.
        """
        self.invariants[name] = sql
        if by_order:
            self._by_order.add(name)

    def inherit_invariants(self, other: App, *names: str) -> None:
        """Add invariants of another application.

        Args:
            other: The application that declares them. It has the same events and outputs.
            *names: The invariants to add. Default: all of them; then both applications also have the same states.
        """
        for name in names or other.invariants:
            self.invariant(name, other.invariants[name], by_order=name in other._by_order)

    def _add(self, operator: Operator) -> Stream:
        """Add an operator in front of the sinks, and return its stream.

        Raises:
            BadInput: A function is no plain `def`, a record does not fit its role, or the name is taken.
        """
        for role, function in operator.functions.items():
            if not inspect.isfunction(function):
                raise BadInput(
                    f"app {self.name}: the {role} function of a {operator.kind} operator must be a plain def"
                )
        self._refuse("output", operator.output, *CONTAINERS)
        self._refuse("state", operator.state, Text)
        self._refuse("scratch", operator.scratch, Text, *GROWING)
        if operator.kind == "partitioned" and "key" in operator.kept.fields:
            raise BadInput(
                f"app {self.name}: {operator.state!r}: the field name 'key' is reserved for the key; rename the field"
            )
        if any(other.name == operator.name for other in self.operators):
            raise BadInput(f"app {self.name}: two operators have the function name {operator.name}; rename one")
        sinks = [one for one in self.operators if one.kind == "sink"]
        self.operators = [one for one in self.operators if one.kind != "sink"] + [operator, *sinks]
        return Stream(self, [operator])

    def _refuse(self, what: str, record: Record | None, *kinds: type) -> None:
        if record is not None and not isinstance(record, Record):
            word = getattr(record, "__name__", repr(record))
            remedy = "put @record (not @dataclass) above its class"
            raise BadInput(f"app {self.name}: the {what} {word} is not a record; {remedy}")
        if record is None:
            return
        for name, kind in record.fields.items():
            if isinstance(kind, kinds):
                reason = f"record {record.name}: {name} is a {type(kind).__name__}, which no {what} can hold"
                if isinstance(kind, Text):
                    reason += "; use the text as a key (key_by), or let the generator replace it by a number"
                raise BadInput(f"app {self.name}: {reason}")

    def _sink(self, stream: Stream, name: str) -> None:
        if name in self._sinks:
            raise BadInput(f"app {self.name}: two sinks are called {name}; name one of them: stream.sink('late')")
        self._sinks[name] = stream
        # The sink comes last. With one sink more, the output has other columns.
        self.operators = [one for one in self.operators if one.kind != "sink" and one.name not in self._converters]
        if len(self._sinks) > 1:
            outputs, converters = gathered(self.name, {name: one._record for name, one in self._sinks.items()})
            self._converters = tuple(converters)
            first, *others = (
                one.flat_map(generated.function(self._module, text), outputs)
                for one, text in zip(self._sinks.values(), converters.values(), strict=True)
            )
            stream, name = first.union(*others), "outputs"
        self.outputs = stream._record
        self.operators.append(Operator("sink", name, stream._operators, None))

    # --- what others ask ---------------------------------------------------------------------------------------

    def holds(self, order: str, params: dict[str, Any] | None = None, gives_state: bool = True) -> dict[str, str]:
        """The invariants that must hold of a run, by name. A parameter is one value in them, whatever it is.

        Args:
            order: The order of the run, `total` or `none`.
            params: The parameters of the run.
            gives_state: Whether the run leaves its final state. If not, invariants that read the state are left out.
                Without order, all of them are: outputs then lack columns.
        """
        values = self.bind(params)
        if not gives_state and order == "none":
            return {}
        return {
            name: with_values(sql, values)
            for name, sql in self.invariants.items()
            if (order == "total" or name not in self._by_order) and (gives_state or not _STATE_VIEW.search(sql))
        }

    def results(self, params: dict[str, Any] | None = None) -> dict[str, pa.Schema]:
        """Columns of what a run of it leaves, by the names that invariants read: `outputs`, `state_<table>`."""
        values = self.bind(params)
        found = {"outputs": self.outputs.resolve(values).arrow(("seq", "sub"))}
        for table in self.tables:
            state = table.row.resolve(values).arrow()
            key = pa.binary() if isinstance(table.key, Text) else pa.int64()
            found[f"state_{table.name}"] = state.insert(0, pa.field("key", key, nullable=False))
        for operator in self.operators:
            if operator.state is not None:
                state = operator.state.resolve(values).arrow()
                if operator.key is not None:
                    key = pa.binary() if isinstance(operator.input.fields[operator.key], Text) else pa.int64()
                    state = state.insert(0, pa.field("key", key, nullable=False))
                found[f"state_{operator.name}"] = state
        return found

    @property
    def kind(self) -> str:
        """`transaction`, `windowed` or `dataflow`: decides which executors run it."""
        kinds = {operator.kind for operator in self.operators}
        return "transaction" if "transaction" in kinds else "windowed" if "windowed" in kinds else "dataflow"

    def operator(self, name: str) -> Operator:
        """The operator of that name. Raises BadInput, with those there are, if there is none."""
        for operator in self.operators[1:-1]:
            if operator.name == name:
                return operator
        known = [operator.name for operator in self.operators[1:-1]]
        raise BadInput(f"app {self.name}: {unknown('operator', name, known)}")

    def upto(self, name: str) -> App:
        """What lies in front of an operator, as an application: its outputs are what the operator takes.

        In front of a transaction, and of an operator that takes the events or the streams that they are made of, lies
        nothing: the outputs are the events.
        """
        operator, streams = self._alone(name)
        return self._cut(self.operators[:1] if streams else operator.inputs)

    def through(self, name: str) -> App:
        """An operator and what lies in front of it, as an application: its outputs are what the operator puts out."""
        return self._cut([self.operator(name)])

    def _cut(self, taken: list[Operator]) -> App:
        needed = [*taken]
        for before in needed:
            needed += [o for o in before.inputs if o not in needed]
        kept = [o for o in self.operators if o in needed]
        return self._derived(kept, taken, taken[0].emitted)

    def only(self, name: str) -> App:
        """An operator as an application: its events are what the operator takes, its outputs what it puts out."""
        operator, streams = self._alone(name)
        source = Operator("source", "source", [], self.event if streams else operator.input)
        if streams:
            anew = {stream.name: replace(stream, inputs=[source]) for stream in streams}
            inputs = [anew[stream.name] for stream in operator.inputs]
            return self._derived([source, *anew.values(), replace(operator, inputs=inputs)], None, operator.emitted)
        window = operator.window and replace(operator.window, streams=(0,))
        return self._derived([source, replace(operator, inputs=[source], window=window)], None, operator.emitted)

    def _alone(self, name: str) -> tuple[Operator, list[Operator]]:
        """The operator of that name, if its input is one sequence of rows of one record; that is the events too if it
        takes all streams that they are made of: then these belong to it."""
        operator = self.operator(name)
        if operator.window is None or len(operator.window.states) == 1:
            return operator, []
        streams = self.operators[1 : 1 + len(self.streams.records)] if self.streams else []
        if {id(one) for one in streams} != {id(one) for one in operator.inputs}:
            raise BadInput(f"app {self.name}: cannot record or run {name} alone, because it takes several streams")
        return operator, streams

    def _derived(self, kept: list[Operator], sunk: list[Operator] | None, outputs: Record) -> App:
        """This application with these operators and no others; its sink takes `sunk`, or what the last one puts out."""
        derived = copy.copy(self)
        derived.event, derived.outputs = kept[0].emitted, outputs
        derived.operators = [*kept, Operator("sink", "outputs", kept[-1:] if sunk is None else sunk, None)]
        derived.tables = self.tables if derived.kind == "transaction" else []
        derived.invariants, derived.unordered = {}, None
        return derived

    def bind(self, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """All parameters: defaults overlaid with `params`, checked.

        Raises:
            BadInput: unknown name, wrong type, out of bounds.
        """
        values = {name: p.default for name, p in self.declared.items()}
        for name, value in (params or {}).items():
            if name not in self.declared:
                raise BadInput(f"app {self.name}: {unknown('parameter', name, self.declared)}")
            values[name] = self.declared[name].check(name, value)
        return values

    def check(self) -> App:
        """Raises BadInput unless the declaration is complete."""
        if self._event is None or self._outputs is None or not self._generators:
            missing = [
                what
                for what, there in (
                    ("a source: app.source(Event), app.sources or app.transaction", self._event),
                    ("a sink: end the pipeline with .sink()", self._outputs),
                    ("a generator: @app.generates above a function of (params, seed, start, stop)", self._generators),
                )
                if not there
            ]
            raise BadInput(f"app {self.name} needs {'; '.join(missing)}")
        streams = len(self.streams.records) if self.streams else 1
        if len(self._generators) != streams:
            raise BadInput(
                f"app {self.name}: each source needs one generator; got {len(self._generators)} for {streams} sources"
            )
        if self.kind == "transaction" and "post" not in self.operators[1].functions:
            name = self.operators[1].name
            raise BadInput(f"app {self.name}: transaction {name} needs a post function; declare it with @{name}.post")
        names = [("a table", table.name) for table in self.tables]
        names += [("an operator", operator.name) for operator in self.operators]
        for what, name in names + [("a parameter", name) for name in self.declared]:
            if not _NAME.fullmatch(name):
                rule = "use letters, digits and _, with a letter or _ first"
                raise BadInput(f"app {self.name}: invalid name {name!r} of {what}; {rule}")
        for name, sql in self.invariants.items():
            if value := quoted_value(sql, self.declared):
                raise BadInput(
                    f"app {self.name}: invariant {name!r}: remove the quotes around :{value}; "
                    "Lockstep quotes a text itself"
                )
        inputs = {id(operator) for reader in self.operators for operator in reader.inputs}
        for operator in self.operators[1:-1]:
            # The state of an operator may be its only result.
            if operator.state is None and id(operator) not in inputs:
                raise BadInput(
                    f"app {self.name}: the pipeline drops the output of operator {operator.name}; "
                    "continue from the stream that its declaration returns, up to .sink()"
                )
        return self
