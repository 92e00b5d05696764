"""An application: parameters, tables, a pipeline of typed operators, a generator and invariants, in one object.

The type of an operator is what lets the engine parallelise it, so it is declared and checked:

| operator             | written as                                       | may run in parallel over |
|----------------------|--------------------------------------------------|--------------------------|
| stateless            | `stream.flat_map(fn, Output)`                    | events                   |
| partitioned stateful | `stream.key_by(field).process(fn, state=, ...)`  | keys                     |
| stateful             | `stream.process(fn, state=, ...)`                | nothing                  |
| windowed             | `stream.key_by(...).window(...).apply(...)`      | keys                     |
| transaction          | `@app.transaction(input=, output=)`              | operations on rows       |

Operator functions are plain Python over scalars, records and containers (the language: language/typed):

    stateless:            fn(row, out), or fn(row, scratch, out)
    stateful:             fn(row, state, out)      flush: fn(state, out), at the end of the stream, keys ascending
    windowed:             keys(row, keys), update(row, window, state, out), result(window, state, out),
                          slide(window, state); with several streams, all their states (language/window.py)
    transaction:          fn(request, txn); post: fn(request, txn, out)

Rows come from `app.source(Event)`, or as streams with a record each from `app.sources(Left, Right)`.

A pipeline is a DAG. Any number of operators can take a stream. `a.union(b, ...)` unites several streams of one record.

The meaning is sequential: one event at a time passes the operators in the order of their declaration. For each event, a
union delivers first the rows of `a`, then those of `b`, and so on.

A function calls `out.emit(field=value, ...)` any number of times. `out.drop()` declares the input invalid: it counts as
dropped, and the function ends there. Rows that it has already emitted stay.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_core.errors import BadInput, NoSuchName, did_you_mean, unknown
from streaming_core.language import generated
from streaming_core.language.declaration import NAME_RULE, caller, declares, is_name, shown
from streaming_core.language.extent import check_unit, in_units
from streaming_core.language.invariants import quoted_value, with_values
from streaming_core.language.joining import Pairs, joined
from streaming_core.language.lookup import Constant, LookupTable
from streaming_core.language.operator import KEY_COLUMN, Operator
from streaming_core.language.parameters import Param, Params, Profile
from streaming_core.language.record import CONTAINERS, GROWING, Nullable, Queue, Record, Scalar, Text, texts_in
from streaming_core.language.sinks import gathered
from streaming_core.language.sources import Sources, united
from streaming_core.language.stream import Connected, Stream

# A view of a final table in the SQL of an invariant.
_STATE_VIEW = re.compile(r"\bstate_\w")
# The ways to look up a row of a table (App.table).
LOOKUPS = ("dense", "hash", "insert")
# What an application's file calls.
DECLARATIONS = (
    "source", "sources", "table", "lookup_table", "constant", "transaction", "connect", "join", "generates",
    "invariant", "agrees_unordered", "property",
)  # fmt: skip


@dataclass(frozen=True)
class Unordered:
    """The parts of a result that a run without order shares with the oracle."""

    columns: tuple[str, ...]
    states: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Table:
    """A shared table of rows (App.table, language/tables.py)."""

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
    """The result of `@app.transaction`; `@name.post` adds the post-processing function."""

    def __init__(self, app: App, operator: Operator):
        self._app, self.operator = app, operator

    @declares
    def post(self, fn: Callable) -> Callable:
        """Declare `fn(request, txn, out)`, which runs after the state access.

        `txn.accepted` tells whether the transaction was accepted. `txn.result(table, i)` is the row of the i-th
        `txn.read`.
        """
        if "post" in self.operator.functions:
            raise BadInput(f"app {self._app.name}: transaction {self.operator.name} has a post function already")
        self.operator.functions["post"] = fn
        return fn


class App:
    """One streaming application.

    Args:
        name: The name, in lower case, as on the command line.
        params: The parameters by name.
        profiles: Named sets of parameters (`--profile`).
        reads: The paper and section that the application comes from, for documentation.
        time: The unit of `ts`, which durations such as "1m" use: ns, us, ms, s, m, h or d.
    """

    @declares
    def __init__(
        self,
        name: str,
        params: dict[str, Any] | None = None,
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
                raise BadInput(f"app {name}: parameter {known}: write Param({shown(param)}) instead of {shown(param)}")
            if isinstance(param.default, str) and (param.minimum, param.maximum) != (None, None):
                raise BadInput(f"app {name}: parameter {known}: a text has no minimum or maximum; write choices")
            if wrong := [choice for choice in param.choices or () if type(choice) is not type(param.default)]:
                raise BadInput(
                    f"app {name}: parameter {known}: {shown(wrong[0])} is no choice beside {param.default!r}"
                )
            param.check(known, param.default)
        self.profiles = profiles or {}
        self.reads = reads
        self.params = Params(self.declared)
        self.tables: list[Table] = []
        self.operators: list[Operator] = []
        self.constants: list[Constant] = []
        self.lookup_tables: list[LookupTable] = []
        self.invariants: dict[str, str] = {}
        self._by_order: set[str] = set()  # invariants that hold in total order only
        self.properties: dict[str, Callable] = {}
        self.unordered: Unordered | None = None
        self._event: Record | None = None
        self.streams: Sources | None = None  # only if there are several sources
        self.delay: int | str | None = None  # how far `ts` of a source may go back; None: it never does
        self._generators: tuple[Callable, ...] = ()
        self._outputs: Record | None = None
        self._sinks: dict[str, Stream] = {}
        self._converters: tuple[str, ...] = ()  # the operators in front of several sinks
        module = caller().f_globals
        self._module: str = module.get("__name__", "")
        self.file = module.get("__file__", "")
        self.doc = (module.get("__doc__") or "").strip()

    def __getattr__(self, name: str) -> Any:
        """Raise NoSuchName, with the method that was probably meant."""
        near = did_you_mean(name, DECLARATIONS)
        raise NoSuchName(f"an application has no method {name!r}{near}; it has {', '.join(DECLARATIONS)}")

    # Parts that every declared application has. Only callers that hold a checked application read them.

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
        """The generator of each source (`generates`)."""
        self.check_generator()
        return self._generators

    @property
    def has_generator(self) -> bool:
        """Whether the application has a generator. Without one, it runs only on events of a user."""
        return bool(self._generators)

    def check_generator(self) -> None:
        """Raise BadInput if the application has no generator."""
        if not self.has_generator:
            raise BadInput(
                f"app {self.name} has no generator: give it events of your own with --data, or declare @app.generates"
            )

    @property
    def generator(self) -> Callable:
        """The generator of an application with one source."""
        [generator] = self.generators
        return generator

    @generator.setter
    def generator(self, fn: Callable) -> None:
        self._generators = (fn,)

    # --- declaration -------------------------------------------------------------------------------------------

    @declares
    def constant(self, build: Callable[[dict], np.ndarray]) -> Constant:
        """Declare a read-only side table for the operators; usable as a decorator."""
        constant = Constant(build.__name__, build)
        self.constants.append(constant)
        return constant

    @declares
    def lookup_table(self, record: Record, key: str, rows: Callable[[dict], Any]) -> LookupTable:
        """Declare a read-only table for `stream.lookup` (language/lookup.py).

        Args:
            record: The record of a row: numbers and texts.
            key: Its field with the key, an integer or a text. Every row has another one.
            rows: `rows(params)` returns the columns by field: an array with a number for each row, or a list of texts.
        """
        table = LookupTable.of(self.name, record, key, rows)
        self.constants += table.columns
        self.lookup_tables.append(table)
        return table

    @declares
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
        """Declare a shared table. Without `key` it is dense: a key is the number of its row, 0..size-1.

        Args:
            name: The name of the table.
            row: The record of a row; every field begins as zero, or empty.
            size: The number of rows, or the name of the parameter that holds it; at most 2^32-1.
            init: The values that rows begin with. `init(key, params)` is called once for all rows. It takes their keys
                as an int64 array, and returns columns by field, or None. Text keys come as an object array of bytes.
                The column of a scalar is an array with a value for each row, or one value. The column of an array field
                is a 2-D array, or one row of items. An `if` on `key` is an error: write `np.where(key < 10, ...)`. A
                value that does not fit into its field is an error too.
            key: The type of the keys, any integer type or `text`. The table then has a hash index.
            lookup: How `txn.row(table, key)` finds a row, or the name of the parameter that says so. Default: `hash` if
                there is a `key`, else `dense`.

                - `dense`: the key is the number of the row, and `key` only declares its type.
                - `hash`: by an index. The table has the keys that `keys` returns, and no others.
                - `insert`: by an index. The table starts empty. A row exists as soon as an event names its key, even if
                  the event is rejected or dropped. `size` is the largest number of rows, and `init(None, params)`
                  returns one value for all of them.
            keys: `keys(params)` returns the `size` keys of a table with lookup `hash`, in any order: an array of
                integers, or a list of texts. Default: the integers 0..size-1.
        """
        self._refuse("table", row, Text, Nullable, Queue)
        frame = caller()
        where = frame.f_code.co_filename, frame.f_lineno

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

    @declares
    def source(self, event: Record, delay: int | str | None = None) -> Stream:
        """Declare the application's only input stream.

        Args:
            event: the record of its rows.
            delay: declares that `ts` goes back, mostly by no more than this. A duration, a number of units of `ts`, or
                the name of a parameter. It is the default `delay` of windows, and an import keeps the order of the
                files. Windows decide whether a row is late.
        """
        if self._event is not None:
            reason = "the events are declared already; call only one of app.source, app.sources and app.transaction"
            raise BadInput(f"app {self.name}: {reason}")
        self._refuse("event", event, *CONTAINERS)
        self.event = event
        self.delay = None if delay is None else in_units(delay, self)
        operator = Operator("source", "source", [], event)
        self.operators.append(operator)
        return Stream(self, [operator])

    @declares
    def sources(self, *records: Record, delay: int | str | None = None) -> tuple[Stream, ...]:
        """Declare several input streams, one for each record, with the names of the records (language/sources.py).

        Every record has an integer field `ts`, of one type. Rows are taken in the order of (`ts`, stream, place in the
        stream), and numbered in it: `row.seq`. A silent stream delays no other. With a `delay` (see `source`), `ts`
        of a stream may go back. Such a row is taken as if it had the highest `ts` of its stream before it. The rows of
        a stream that no operator takes are events, and nothing else.
        """
        streams = united(self.name, records)
        source = self.source(streams.event, delay)
        self.streams = streams
        return tuple(source.flat_map(streams.stream(i, self._module), record) for i, record in enumerate(records))

    @declares
    def connect(self, *streams: Stream) -> Connected:
        """Several streams for one windowed operator (STRETCH, section 4.2: O+): `app.connect(a, b).key_by(...)`."""
        if not streams:
            raise BadInput(f"app {self.name}: connect: name the streams")
        for stream in streams:
            if stream._app is not self:
                raise BadInput(f"app {self.name}: connect: cannot use a stream of app {stream._app.name}")
        return Connected(streams)

    @declares
    def join(
        self,
        left: Stream,
        right: Stream,
        on: str | tuple[str, ...] | dict[str, str] | None = None,
        *,
        within: int | str | None = None,
        ttl: int | str | None = 0,
        how: str = "inner",
        band: dict[str, tuple[str, float]] | None = None,
    ) -> Pairs:
        """Join rows with the same key (language/joining.py): those close in time, or all until the key is silent.

        A pair has the later `ts`, the key, and the other fields of both rows. Fields of the same name get the name of
        their record in front: `order_price`, `payment_price`. Method `late` gives the late rows of both streams. The
        operator is called `join`; the next one of the application `join_2`, and so on.

        Args:
            left: the left stream.
            right: the right stream.
            on: the key: a field of both, or several. A dict has the field of the right stream by that of the left one,
                whose name the pair has. With a band, there may be no key.
            within: the largest difference of `ts`: a number of units of `ts`, or a duration such as "10m".
            ttl: instead of `within`: a key forgets its rows once it has had no row for so long. None: it forgets none,
                so the memory grows with the number of rows.
            how: `inner`: pairs only. `left`: also left rows that meet none; the fields of the right row can be null.
                `full`: also such right rows. They leave, with this time as `ts`, when they can meet none any more.
            band: fields that must be close to each other: of the left row, the field of the right row, and the largest
                difference. The first of them is an index, so a row meets few rows that are not close.
        """
        return joined(self, left, right, on, (within, ttl), how, band or {})

    def _delay(self, declared: int | str | None) -> int | str:
        """The `delay` of windows, in units of `ts`, or a parameter: as declared, else that of the sources."""
        return in_units((self.delay or 0) if declared is None else declared, self)

    @declares
    def transaction(self, input: Record, output: Record) -> Callable[[Callable], Transaction]:
        """Return a decorator: `fn(request, txn)` declares the transaction of one event (TStream, section IV-B).

        - `txn.row(table, key)` names a row.
        - `txn.require(condition, row, ...)` reads the state before the transaction. `condition(row, ..., request)`
          takes any rows of any tables, or none. If one condition is false, the whole transaction is rejected.
        - `txn.modify(row, fn)` changes a row by `fn(row, request)`.
        - `txn.read(row)` takes the scalars of a row at this point of the program. If the transaction is rejected, they
          are unchanged.
        - `txn.drop()` drops the event.

        An integer 0 <= i < 2^32 can follow the rows of `require`, or the function of `modify` and its rows. It becomes
        one more argument, after the request, and tells the function which position of the event it handles.

        `txn.modify(row, fn, other, ...)` with `fn(row, other, ..., request)` also reads other rows, as they were before
        the transaction: READ_MODIFY(d, f(t)) of Table II. A function that reads several rows sees none of their sets,
        maps, counters and top-ks. A WRITE with a condition of its own is a function that leaves its row alone if the
        condition is false. A condition of `require` covers all operations of the transaction.

        To join several transactional operators (TStream, section V), call them one after the other in the decorated
        function; each is a function `fn(request, txn)`. Their operations have the sub-timestamps (seq, 0), (seq, 1),
        and so on, in the order of the calls. A later operation sees the effect of an earlier one. A condition that
        fails rejects all of them. Only the decorated function itself may drop the event.
        """

        def declare(fn: Callable) -> Transaction:
            source = self.source(input)
            name = getattr(fn, "__name__", "")
            stream = self._add(Operator("transaction", name, source._operators, output, {"plan": fn}))
            stream.sink()
            return Transaction(self, stream._operators[0])

        return declare

    def generates(self, *fns: Callable) -> Callable:
        """Declare the generator; usable as a decorator.

        `fn(params, seed, start, stop)` returns the events start..stop-1 as columns: `ts` and every field of the record.
        Event i depends on (seed, params, i) alone. Text columns are lists of bytes.

        With several sources, declare one generator for each, in their order: `app.generates(lefts, rights)`. A
        generator makes the rows start..stop-1 of its stream, whose `ts` never decreases. If it returns fewer rows than
        requested, its stream ends there.

        Args:
            *fns: The generators.
        """
        if not fns or not all(map(inspect.isfunction, fns)):
            raise BadInput(f"app {self.name}: write @app.generates above the generator, without parentheses")
        if self._generators:
            raise BadInput(f"app {self.name}: the generator is declared already; name all in one call of generates")
        self._generators = fns
        return fns[0]

    @declares
    def agrees_unordered(self, *columns: str, states: tuple[str, ...] = ()) -> None:
        """Declare the parts of a result that do not depend on the order of events.

        Without this declaration, the application runs in total order only.

        Args:
            *columns: Columns of the outputs; a run without order must emit the same multiset as the oracle.
            states: Operators whose final states must be equal.
        """
        if not columns:
            raise BadInput(f"app {self.name}: agrees_unordered: name at least one output column")
        if self.unordered is not None:
            raise BadInput(f"app {self.name}: agrees_unordered: name all columns in one call")
        fields = self._outputs.fields if self._outputs else {}
        stateful = [operator.name for operator in self.operators if operator.state is not None]
        for name, known in [(c, [*fields]) for c in columns] + [(s, stateful) for s in states]:
            if name not in known:
                raise BadInput(f"app {self.name}: agrees_unordered: {unknown('name', name, known)}")
        self.unordered = Unordered(columns, states)

    @declares
    def invariant(self, name: str, sql: str, by_order: bool = False) -> None:
        """Declare an invariant: SQL that selects the rows that violate it.

        Args:
            name: What holds, as a sentence.
            sql: A query over the views `events`, `outputs` and `state_<table>`. `:name` stands for the value of a
                parameter.
            by_order: The invariant holds only in total order, so runs without order are not checked. In such a run,
                outputs keep the `seq` of their event, but events take effect in any order, and `sub` has no meaning.
        """
        if name in self.invariants:
            raise BadInput(f"app {self.name}: two invariants are called {name!r}; rename one")
        self.invariants[name] = sql
        if by_order:
            self._by_order.add(name)

    def _add(self, operator: Operator) -> Stream:
        """Add an operator in front of the sinks, and return its stream.

        Raises:
            BadInput: A function is no plain `def`, a record does not fit its role, or the name is taken.
        """
        for role, function in operator.functions.items():
            if not inspect.isfunction(function) or function.__name__ == "<lambda>":
                raise BadInput(
                    f"app {self.name}: the {role} function of a {operator.kind} operator must be a plain def"
                )
        self._refuse("output", operator.output, *CONTAINERS)
        self._refuse("scratch", operator.scratch, Text, Nullable, *GROWING)
        taken = operator.kept.fields if operator.kind == "partitioned" else ()
        if clash := next((name for name in taken if KEY_COLUMN.fullmatch(name)), None):
            raise BadInput(
                f"app {self.name}: {operator.state!r}: the field name {clash!r} is reserved for the key; "
                "rename the field"
            )
        if any(other.name == operator.name for other in self.operators):
            raise BadInput(f"app {self.name}: two operators have the function name {operator.name}; rename one")
        sinks = [operator for operator in self.operators if operator.kind == "sink"]
        self.operators = [operator for operator in self.operators if operator.kind != "sink"] + [operator, *sinks]
        return Stream(self, [operator])

    def _free(self, base: str) -> str:
        """A name for an operator: this one, or this one with the first free number from 2."""
        taken = {operator.name for operator in self.operators}
        return next(name for n in itertools.count(1) if (name := base if n == 1 else f"{base}_{n}") not in taken)

    def _refuse(self, what: str, record: Record | None, *kinds: type) -> None:
        if record is None:
            return
        for name, kind in record.fields.items():
            texts = " of texts" if Text in kinds and texts_in(kind) else ""
            if texts or isinstance(kind, kinds):
                which = "can be null" if isinstance(kind, Nullable) else f"is a {type(kind).__name__}{texts}"
                reason = f"record {record.name}: {name} {which}, which no {what} can hold"
                if texts or isinstance(kind, Text):
                    instead = "keep it in a state" if what == "scratch" else f"use it as the key of the {what}"
                    reason += f"; {instead}, or let the generator replace it by a number"
                raise BadInput(f"app {self.name}: {reason}")

    def _sink(self, stream: Stream, name: str) -> None:
        if name in self._sinks:
            raise BadInput(f"app {self.name}: two sinks are called {name}; name one of them: stream.sink('late')")
        self._sinks[name] = stream
        # The sink comes last. With one sink more, the output has other columns.
        self.operators = [
            operator for operator in self.operators if operator.kind != "sink" and operator.name not in self._converters
        ]
        if len(self._sinks) > 1:
            outputs, converters = gathered(self.name, {name: stream._record for name, stream in self._sinks.items()})
            self._converters = tuple(converters)
            first, *others = (
                stream.flat_map(generated.function(self._module, text), outputs)
                for stream, text in zip(self._sinks.values(), converters.values(), strict=True)
            )
            stream, name = first.union(*others), "outputs"
        self.outputs = stream._record
        self.operators.append(Operator("sink", name, stream._operators, None))

    # --- the declared application ------------------------------------------------------------------------------

    def required_invariants(
        self, order: str, params: dict[str, Any] | None = None, gives_state: bool = True
    ) -> dict[str, str]:
        """Return the invariants that must hold for a run, by name, with the values of the parameters.

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
        """Return the columns of a run's results, by the names that invariants read: `outputs`, `state_<table>`."""
        values = self.bind(params)
        schemas = {"outputs": self.outputs.resolve(values).arrow(("seq", "sub"))}
        for table in self.tables:
            state = table.row.resolve(values).arrow()
            key = pa.binary() if isinstance(table.key, Text) else pa.int64()
            schemas[f"state_{table.name}"] = state.insert(0, pa.field("key", key, nullable=False))
        for operator in self.operators:
            if operator.state is not None:
                state = operator.state.resolve(values).arrow()
                for number, (column, field) in enumerate(zip(operator.key_columns, operator.key, strict=True)):
                    key = pa.binary() if isinstance(operator.input.fields[field], Text) else pa.int64()
                    state = state.insert(number, pa.field(column, key, nullable=False))
                schemas[f"state_{operator.name}"] = state
        return schemas

    @property
    def kind(self) -> str:
        """`transaction`, `windowed` or `dataflow`: decides which executors run it."""
        kinds = {operator.kind for operator in self.operators}
        return "transaction" if "transaction" in kinds else "windowed" if "windowed" in kinds else "dataflow"

    def operator(self, name: str) -> Operator:
        """Return the operator of that name; raise BadInput, with the known names, if there is none."""
        for operator in self.operators[1:-1]:
            if operator.name == name:
                return operator
        known = [operator.name for operator in self.operators[1:-1]]
        raise BadInput(f"app {self.name}: {unknown('operator', name, known)}")

    def upto(self, name: str) -> App:
        """Return the pipeline in front of an operator as an application, whose outputs are the operator's input.

        If the operator takes the events or all streams of the sources, or is a transaction, the outputs are the
        events.
        """
        operator, streams = self._alone(name)
        return self._cut(self.operators[:1] if streams else operator.inputs)

    def through(self, name: str) -> App:
        """Return the pipeline up to an operator as an application, whose outputs are those of the operator."""
        return self._cut([self.operator(name)])

    def _cut(self, taken: list[Operator]) -> App:
        needed = [*taken]
        for before in needed:
            needed += [o for o in before.inputs if o not in needed]
        kept = [o for o in self.operators if o in needed]
        return self._derived(kept, taken, taken[0].emitted)

    def only(self, name: str) -> App:
        """Return an operator as an application, whose events are its input, and whose outputs are its own."""
        operator, streams = self._alone(name)
        source = Operator("source", "source", [], self.event if streams else operator.input)
        if streams:
            anew = {stream.name: replace(stream, inputs=[source]) for stream in streams}
            inputs = [anew[stream.name] for stream in operator.inputs]
            return self._derived([source, *anew.values(), replace(operator, inputs=inputs)], None, operator.emitted)
        window = operator.window and replace(operator.window, streams=(0,))
        return self._derived([source, replace(operator, inputs=[source], window=window)], None, operator.emitted)

    def _alone(self, name: str) -> tuple[Operator, list[Operator]]:
        """Return an operator whose input is one sequence of rows, and the stream operators that belong to it.

        An operator that takes all streams of the sources also has one sequence as its input: the events. The operators
        that make the streams then belong to it.

        Raises:
            BadInput: The operator takes several other streams.
        """
        operator = self.operator(name)
        if operator.window is None or len(operator.window.states) == 1:
            return operator, []
        streams = self._stream_operators
        if {id(stream) for stream in streams} != {id(stream) for stream in operator.inputs}:
            raise BadInput(f"app {self.name}: cannot record or run {name} alone, because it takes several streams")
        return operator, streams

    @property
    def _stream_operators(self) -> list[Operator]:
        """The operators that make the streams of several sources; a checked application has those that it reads."""
        names = self.streams.names if self.streams else ()
        return [operator for operator in self.operators[1:] if operator.name in names]

    def _derived(self, kept: list[Operator], sunk: list[Operator] | None, outputs: Record) -> App:
        """Return this application with only these operators; its sink takes `sunk`, or the output of the last one."""
        derived = copy.copy(self)
        derived.event, derived.outputs = kept[0].emitted, outputs
        derived.operators = [*kept, Operator("sink", "outputs", kept[-1:] if sunk is None else sunk, None)]
        derived.tables = self.tables if derived.kind == "transaction" else []
        derived.invariants, derived.properties, derived.unordered = {}, {}, None
        return derived

    def bind(self, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the value of each parameter: that of `params`, or the default."""
        values = {name: p.default for name, p in self.declared.items()}
        for name, value in (params or {}).items():
            if name not in self.declared:
                raise BadInput(f"app {self.name}: {unknown('parameter', name, self.declared)}")
            values[name] = self.declared[name].check(name, value)
        return values

    def check(self) -> App:
        """Return this application, or raise BadInput if its declaration is incomplete."""
        if self._event is None or self._outputs is None:
            missing = [
                what
                for what, there in (
                    ("a source: app.source(Event), app.sources or app.transaction", self._event),
                    ("a sink: end the pipeline with .sink()", self._outputs),
                )
                if not there
            ]
            raise BadInput(f"app {self.name} needs {'; '.join(missing)}")
        streams = len(self.streams.records) if self.streams else 1
        if self._generators and len(self._generators) != streams:
            raise BadInput(
                f"app {self.name}: each source needs one generator; got {len(self._generators)} for {streams} sources"
            )
        if self.kind == "transaction" and "post" not in self.operators[1].functions:
            name = self.operators[1].name
            raise BadInput(f"app {self.name}: transaction {name} needs a post function; declare it with @{name}.post")
        self._check_names()
        for name, sql in self.invariants.items():
            if value := quoted_value(sql, self.declared):
                raise BadInput(
                    f"app {self.name}: invariant {name!r}: remove the quotes around :{value}; "
                    "Lockstep quotes a text itself"
                )
        inputs = {id(operator) for reader in self.operators for operator in reader.inputs}
        unread = [operator for operator in self._stream_operators if id(operator) not in inputs]
        self.operators = [operator for operator in self.operators if operator not in unread]
        if len(self.operators) == 2:
            raise BadInput(f"app {self.name}: no operator is between source and sink; add for example flat_map")
        for operator in self.operators[1:-1]:
            # The state of an operator may be its only result.
            if operator.state is None and id(operator) not in inputs:
                raise BadInput(
                    f"app {self.name}: the pipeline drops the output of operator {operator.name}; "
                    "continue from the stream that its declaration returns, up to .sink()"
                )
        return self

    def _check_names(self) -> None:
        """Raise BadInput if a name is invalid or occurs twice, or a profile sets what no parameter takes."""
        names = [("a table", table.name) for table in self.tables]
        names += [("an operator", operator.name) for operator in self.operators]
        for i, (what, name) in enumerate(names + [("a parameter", name) for name in self.declared]):
            if not is_name(name):
                raise BadInput(f"app {self.name}: invalid name {name!r} of {what}; {NAME_RULE}")
            if other := next((role for role, taken in names[:i] if taken == name and what != "a parameter"), None):
                raise BadInput(f"app {self.name}: {other} and {what} are called {name}; rename one")
        for name, profile in self.profiles.items():
            try:
                self.bind(profile.params)
            except BadInput as error:
                raise BadInput(f"app {self.name}: {error}, in profile {name}") from None

    # The last method, because the name hides Python's own `property` from what follows.
    @declares
    def property(self, fn: Callable) -> Callable:
        """Declare a property: `fn(stream)` asserts what holds for the result of any events.

        `stream` is a scenario: the events, the oracle's result, and ready changes of the events
        (streaming_core/search/scenario.py). The name of the function names the property, its docstring says what
        holds. The search for faults tries it on its inputs.
        """
        name = fn.__name__
        if len(inspect.signature(fn).parameters) != 1:
            raise BadInput(f"app {self.name}: property {name} must take one parameter: def {name}(stream)")
        if name in self.properties:
            raise BadInput(f"app {self.name}: two properties are called {name}; rename one")
        self.properties[name] = fn
        return fn
