"""Records: fixed-width rows of scalars, text slices, fixed arrays and containers.

An application declares a record as a class with annotations. A record has one of three roles: event or output, row of a
table, or state. The row of an event or output starts with `seq`, the number of the input event that caused it.

Fields widen to 64 bits when an operator loads them. A store that would lose bits is an error of the event's operator.
There is no u64. A text in a state is a copy that the state owns.
"""

from __future__ import annotations

import decimal
import inspect
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args, get_origin

import numpy as np
import pyarrow as pa

from streaming_core.errors import BadInput, unknown
from streaming_core.language.declaration import shown


class _Item:
    """A type whose fields may be null: `i64 | None`."""

    def __or__(self: Any, other: Any) -> Any:
        if other is not None:
            raise BadInput(f"a field has one type; write {self.name}, or {self.name} | None")
        return self if isinstance(self, Nullable) else Nullable(self)

    __ror__ = __or__


@dataclass(frozen=True)
class Scalar(_Item):
    """A fixed-width scalar. `low`/`high` bound what a store accepts (None for floats). `scale` is that of a Decimal."""

    WORDS: ClassVar[str] = "a type such as u32"

    name: str
    dtype: np.dtype
    low: int | None
    high: int | None
    scale: int | None = None

    @property
    def declared(self) -> str:
        """The type as an application declares it."""
        return self.name if self.scale is None else f"Decimal[{self.scale}]"

    @property
    def width(self) -> int:
        """Bytes in a row."""
        return self.dtype.itemsize

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest integer that a field of no floats holds."""
        assert self.low is not None, self.name
        assert self.high is not None, self.name
        return self.low, self.high

    @property
    def is_float(self) -> bool:
        """Whether the field loads as an IEEE double."""
        return self.dtype.kind == "f"

    def arrow(self) -> pa.DataType:
        """Column type in events and outputs."""
        if self.scale is not None:
            return pa.decimal128(_DIGITS, self.scale)
        return pa.bool_() if self.name == "boolean" else pa.from_numpy_dtype(self.dtype)


def _integer(name: str, code: str, bits: int, signed: bool) -> Scalar:
    low = -(1 << (bits - 1)) if signed else 0
    high = (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1
    return Scalar(name, np.dtype(code), low, high)


i8 = _integer("i8", "<i1", 8, True)
i16 = _integer("i16", "<i2", 16, True)
i32 = _integer("i32", "<i4", 32, True)
i64 = _integer("i64", "<i8", 64, True)
u8 = _integer("u8", "u1", 8, False)
u16 = _integer("u16", "<u2", 16, False)
u32 = _integer("u32", "<u4", 32, False)
f64 = Scalar("f64", np.dtype("<f8"), None, None)
boolean = Scalar("boolean", np.dtype("u1"), 0, 1)

_DIGITS = 19  # of the largest i64
MOST_SCALE = 18


class Decimal:
    """A decimal number with `scale` digits after the point, from 0 to 18: `Decimal[2]`.

    Operator code reads and writes an i64, the number of units: 1234 is 12.34. Type checkers want `Decimal[Literal[2]]`.
    """

    def __class_getitem__(cls, scale: Any) -> Any:
        value = get_args(scale)[0] if get_origin(scale) is Literal else scale
        if type(value) is not int or not 0 <= value <= MOST_SCALE:
            raise BadInput(f"Decimal: the scale must be between 0 and {MOST_SCALE}, got {shown(value)}")
        return replace(i64, scale=value)


MOST_ITEMS = 1_000_000  # of an array, a ring or a top-k

# The only NaN. A compiler chooses which operand's NaN an operation returns, and with which sign. So every stored NaN
# gets these bits. This happens in events, initial values and constants, and when an operator stores or emits a NaN. In
# between, nothing in the language can tell two NaNs apart.
NAN_BITS = 0x7FF8000000000000
[NAN] = struct.unpack("<d", struct.pack("<Q", NAN_BITS))


def one_nan(values: np.ndarray) -> np.ndarray:
    """Return an array of doubles with NAN_BITS in every NaN; a copy if there is a NaN."""
    is_nan = np.isnan(values)
    return np.where(is_nan, NAN, values) if is_nan.any() else values


@dataclass(frozen=True)
class Text(_Item):
    """Bytes beside the row.

    In events and outputs, a text is (offset u32, length u32) into the batch's text. In a state it is a word: the
    address of a copy that the state owns, or 0 if the text is empty. The engine and the loop lay out the copy.
    """

    WORDS: ClassVar[str] = "text"

    name: str = "text"
    width: int = 8

    def arrow(self) -> pa.DataType:
        """Column type in events and outputs."""
        return pa.binary()


text = Text()


@dataclass(frozen=True)
class Nullable(_Item):
    """A scalar or text that may be null: `price: i64 | None`.

    A row has two fields for it. The first is the value, zero or empty if it is null. The second is a boolean: whether
    there is a value. Its name begins with VALID. A field of a state starts as null.
    """

    item: Scalar | Text

    @property
    def name(self) -> str:
        """The name of the type of its values."""
        return self.item.name


VALID = "_valid_"  # and the name of a nullable field


def visible(names: Iterable[str]) -> list[str]:
    """The names of fields without those of validities."""
    return [name for name in names if not name.startswith(VALID)]


class _Sized:
    """A field type with arguments: `Ring[i64, 1000]`, `Ring[u8, "window"]` (a parameter), `Array[u32, "d*d"]`.

    Type checkers want a size as `Literal[1000]` or `Literal["window"]`.
    """

    def __class_getitem__(cls: Any, arguments: Any) -> Any:
        values = arguments if isinstance(arguments, tuple) else (arguments,)
        if any(isinstance(value, Nullable) for value in values):
            raise BadInput(f"{cls.__name__}: its items cannot be null; remove `| None`")
        names = [field.name for field in dataclass_fields(cls)]
        if len(values) != len(names):
            takes = f"takes {len(names)} argument{'s' * (len(names) != 1)}"
            raise BadInput(f"{cls.__name__} {takes}, got {len(values)}; write {cls.__name__}[{', '.join(names)}]")
        return cls(*(get_args(value)[0] if get_origin(value) is Literal else value for value in values))

    def __or__(self, other: Any) -> Any:
        raise BadInput(f"{type(self).__name__}[...] | None: only scalars and texts can be null; remove `| None`")

    __ror__ = __or__


@dataclass(frozen=True)
class Array(_Sized):
    """A fixed number of scalars; `len(row.field)` is the declared length.

    In a table row or a state, the length may be 0. The array then takes no bytes, and it is no column of exported rows.

    An operator emits a whole array if the output has an array of the same item type and length:
    `out.emit(items=state.items)`.
    """

    item: Scalar
    length: int | str

    def arrow(self, length: int) -> pa.DataType:
        """Column type in events and outputs."""
        return pa.list_(self.item.arrow(), length)


@dataclass(frozen=True)
class Ring(_Sized):
    """The last `capacity` values appended, oldest first; appending to a full ring drops the oldest.

    Operators use: `append(x)` -> None, `len(ring)`, `ring[i]` (0 = oldest), `clear()`.
    """

    item: Scalar
    capacity: int | str


@dataclass(frozen=True)
class Set(_Sized):
    """Distinct integers or texts in insertion order.

    Operators use: `add(x)` -> bool (whether x is new), `remove(x)` -> bool (whether x was there), `x in s`, `len(s)`,
    `s.at(i)`, `clear()`.
    """

    item: Scalar | Text


@dataclass(frozen=True)
class Map(_Sized):
    """Integer or text keys with scalar or text values, in insertion order.

    Operators use: `get(k, default)`, `put(k, v)`, `remove(k)` -> bool (whether k was there), `k in m`, `len(m)`,
    `key_at(i)`, `value_at(i)`, `clear()`.
    """

    key: Scalar | Text
    value: Scalar | Text


@dataclass(frozen=True)
class Counter(_Sized):
    """Integer or text keys with counts, in insertion order.

    Operators use: `add(k, n)` -> new count, `get(k)` (0 if absent), `remove(k)` -> bool (whether k was there),
    `len(c)`, `key_at(i)`, `value_at(i)`, `clear()`.
    """

    key: Scalar | Text


@dataclass(frozen=True)
class TopK(_Sized):
    """The `capacity` best pairs of key and score: highest score first, then lowest key.

    Operators use: `offer(key, score)` (replaces the former score of the key), `len(t)`, `key_at(i)`, `score_at(i)`,
    `clear()`.
    """

    capacity: int | str


@dataclass(frozen=True)
class Queue(_Sized):
    """Rows of a record of scalars and texts, oldest first.

    Each field is a column, so a scan over a field reads adjacent values.

    Operators use:

    - `append(field=value, ...)` adds a row. It needs every field, and evaluates the values in the written order. A
      value that does not fit raises OverflowError, and no row is added.
    - `popleft()` removes the oldest row, or raises IndexError if there is none.
    - `queue[i].field` reads a field; 0 is the oldest row. Outside 0..len - 1 it raises IndexError.
    - `len(queue)`, `clear()`.

    States can have queues, tables cannot. The largest number of rows that a queue has held bounds its memory.
    """

    item: Record

    @property
    def fields(self) -> dict[str, Scalar | Text]:
        """The columns, in order; two for a field that may be null."""
        columns: dict[str, Scalar | Text] = {}
        for name, kind in self.item.fields.items():
            if isinstance(kind, Nullable):
                columns |= {name: kind.item, VALID + name: boolean}
            elif isinstance(kind, Scalar | Text):
                columns[name] = kind
        return columns


PAIRS = (Set, Map, Counter, TopK)  # whose entries are a key and a value
GROWING = (*PAIRS, Queue)
CONTAINERS = (Ring, *GROWING)


def texts_in(kind: Any) -> list[int]:
    """Return which parts of a container are texts: key (0) and value (1) of a pair, or columns of a queue by number."""
    match kind:
        case Set(item=key) | Counter(key=key):
            parts = [key]
        case Map(key=key, value=value):
            parts = [key, value]
        case Queue():
            parts = list(kind.fields.values())
        case _:
            parts = []
    return [number for number, part in enumerate(parts) if isinstance(part, Text)]


FieldType = Scalar | Text | Nullable | Array | Ring | Set | Map | Counter | TopK | Queue


class Record:
    """The declaration made by `@record`: a name and ordered fields."""

    WORDS = "a record; put @record (not @dataclass) above its class"

    def __init__(self, name: str, fields: dict[str, FieldType], doc: str | None):
        self.name = name
        self.fields = fields
        self.__doc__ = doc

    def __repr__(self) -> str:
        return f"record {self.name}({', '.join(self.fields)})"

    def resolve(self, params: dict[str, Any]) -> Resolved:
        """This record with sizes given by parameters filled in."""
        return Resolved(self, params)


def record(cls: type | None = None) -> Record:
    """Class decorator: annotations become fields, in order."""
    if not isinstance(cls, type):
        raise BadInput("write @record above a class, without parentheses")
    fields: dict[str, FieldType] = {}
    declared = inspect.get_annotations(cls)
    for name in cls.__dict__:
        if name in declared:
            raise BadInput(f"record {cls.__name__}.{name}: remove the default; a field starts as zero or empty")
        if not name.startswith("__"):
            raise BadInput(f"record {cls.__name__}.{name}: a record can declare only fields; write {name}: i64")
    for name, kind in declared.items():
        if isinstance(kind, str):
            raise BadInput(
                f"record {cls.__name__}.{name}: the type is a string; remove the quotes, and the line "
                "'from __future__ import annotations' if the file has it"
            )
        if not isinstance(kind, (Scalar, Text, Nullable, Array, *CONTAINERS)):
            raise BadInput(f"record {cls.__name__}.{name}: {_foreign(kind)}")
        if reason := unfit(kind):
            raise BadInput(f"record {cls.__name__}.{name}: {reason}")
        if name in ("seq", "sub") or name.startswith("_"):
            raise BadInput(f"record {cls.__name__}.{name}: the name is reserved; choose another one")
        fields[name] = kind
    if not fields:
        raise BadInput(f"record {cls.__name__} has no fields")
    return Record(cls.__name__, fields, cls.__doc__)


def _foreign(kind: Any) -> str:
    """Why something is not a field type, and what to write instead."""
    python = getattr(kind, "__origin__", kind)
    word = shown(python)
    alternatives = {
        int: "i64, or i8, i16, i32, u8, u16, u32",
        float: "f64",
        bool: "boolean",
        str: "text",
        bytes: "text",
        list: "Array[i64, 3] in rows, or Ring[i64, 3] or Queue[Record] in states",
        tuple: "one field for each value",
        dict: "Map[i64, f64] or Counter[i64] in states",
        set: "Set[i64] in states",
        Decimal: "Decimal[2], with the number of digits after the point",
        decimal.Decimal: "Decimal[2] of streaming_core.api, with the number of digits after the point",
    }
    usual = "a type such as i64, f64, boolean or text"
    alternative = next((text for known, text in alternatives.items() if python is known), usual)
    return f"{word} is not a field type; write {alternative}"


def unfit(kind: FieldType) -> str:
    """Why an array or container cannot hold its declared items; empty if it can."""
    if isinstance(kind, Nullable):
        return ""
    if isinstance(kind, Queue):
        if not isinstance(kind.item, Record):
            return "items of Queue must be records"
        for name, field in kind.item.fields.items():
            if not isinstance(field, Scalar | Text | Nullable):
                what = f"{kind.item.name}.{name} is a {type(field).__name__}"
                return f"items of Queue must be records of scalars and texts, but {what}"
        return ""
    parts = [getattr(kind, part) for part in ("item", "key", "value") if hasattr(kind, part)]
    if isinstance(kind, (Set, Map, Counter)):
        if not all(isinstance(part, Scalar | Text) for part in parts):
            return f"items of {type(kind).__name__} must be scalars or texts"
        if isinstance(parts[0], Scalar) and parts[0].is_float:
            return f"keys of {type(kind).__name__} must be integers or texts"
    elif not all(isinstance(part, Scalar) for part in parts):
        return f"items of {type(kind).__name__} must be scalars"
    return ""


def _align(offset: int, to: int) -> int:
    return (offset + to - 1) // to * to


@dataclass(frozen=True)
class Slot:
    """Where a field lies in a row. `count` is the resolved length of an array or capacity of a ring / top-k."""

    name: str
    type: FieldType
    offset: int
    count: int
    size: int
    is_nullable: bool = False  # then the slot VALID + name follows

    @property
    def nullable(self) -> str:
        """The field whose validity this slot holds; empty if it holds none."""
        return self.name.removeprefix(VALID) if self.name.startswith(VALID) else ""


class Resolved:
    """A record's layouts under fixed parameters.

    Row with header (events, outputs): `seq: i64` at offset 0, then the fields; without (table rows, states): fields
    from offset 0. Fields keep their natural alignment, rows are multiples of 8 bytes. A ring takes
    `{head: u32, length: u32, items...}`; growing containers take 32 bytes
    `{data: pointer, length: u32, capacity: u32, 16 bytes of their own}` with the items in an arena.
    """

    def __init__(self, declaration: Record, params: dict[str, Any]):
        self.record = declaration
        self.name = declaration.name
        self.params = params

    def _count(self, value: int | str, field: str, least: int = 1) -> int:
        names = value.split("*") if isinstance(value, str) else []
        if (missing := next((name for name in names if name not in self.params), None)) is not None:
            raise BadInput(f"record {self.name}.{field}: size {value!r}: {unknown('parameter', missing, self.params)}")
        count = math.prod(self.params[name] for name in names) if names else value
        if type(count) is not int or not least <= count <= MOST_ITEMS:
            limits = f"between {least} and {MOST_ITEMS}"
            raise BadInput(f"record {self.name}.{field}: the size must be {limits}, got {shown(count)}")
        return count

    def _layout(self, start: int) -> tuple[list[Slot], int]:
        slots, offset = [], start
        for name, declared in self.record.fields.items():
            count, is_nullable = 1, isinstance(declared, Nullable)
            kind = declared.item if isinstance(declared, Nullable) else declared
            match kind:
                case Scalar():
                    align, size = kind.width, kind.width
                case Text():
                    align, size = 4 if start else 8, 8
                case Array(item, length):
                    # Rows with a header leave the engine as columns, and a column has items.
                    count = self._count(length, name, least=1 if start else 0)
                    align, size = item.width, item.width * count
                case Ring(item, capacity):
                    count = self._count(capacity, name)
                    align, size = 8, _align(8 + item.width * count, 8)
                case TopK(capacity):
                    count = self._count(capacity, name)
                    align, size = 8, 32
                case _:
                    align, size = 8, 32
            offset = _align(offset, align)
            slots.append(Slot(name, kind, offset, count, size, is_nullable))
            offset += size
            if is_nullable:
                slots.append(Slot(VALID + name, boolean, offset, 1, 1))
                offset += 1
        return slots, _align(offset, 8)

    @cached_property
    def event(self) -> tuple[dict[str, Slot], int]:
        """Slots by name and row size, with the `seq` header."""
        slots, size = self._layout(8)
        return {s.name: s for s in slots}, size

    @cached_property
    def layout(self) -> list[dict[str, Any]]:
        """The columns of a row with header, as the runtime has them in a program."""
        columns = []
        for slot in self.event[0].values():
            assert isinstance(slot.type, Scalar | Text | Array)  # events and outputs hold no container
            kind = slot.type.item if isinstance(slot.type, Array) else slot.type
            name = "valid" if slot.nullable else kind.name
            columns.append({"kind": name, "offset": slot.offset, "count": slot.count})
        return columns

    @cached_property
    def state(self) -> tuple[dict[str, Slot], int]:
        """Slots by name and row size, without header."""
        slots, size = self._layout(0)
        if not size:
            raise BadInput(f"record {self.name}: all its arrays have length 0; a row needs a field with a value")
        return {s.name: s for s in slots}, size

    @cached_property
    def columns(self) -> list[Slot]:
        """The slots, without header, of the fields that are columns of exported rows: all but arrays of length 0."""
        return [slot for slot in self.state[0].values() if slot.count]

    @cached_property
    def growing(self) -> list[dict[str, Any]]:
        """The growing containers and the texts of a row without header.

        `offset` is the place of the head. Containers of pairs have `indexed`, which is false for a top-k. A queue has
        `columns`, the widths of its fields in bytes. `texts` says which parts are texts. A text itself is `plain`.
        """
        containers: list[dict[str, Any]] = []
        for slot in self.state[0].values():
            if isinstance(slot.type, PAIRS):
                containers.append({"offset": slot.offset, "indexed": not isinstance(slot.type, TopK)})
            elif isinstance(slot.type, Queue):
                columns = [scalar.width for scalar in slot.type.fields.values()]
                containers.append({"offset": slot.offset, "columns": columns})
            elif isinstance(slot.type, Text):
                containers.append({"offset": slot.offset, "plain": True})
            if texts := texts_in(slot.type):
                containers[-1]["texts"] = texts
        return containers

    @cached_property
    def keeps_texts(self) -> bool:
        """Whether a row without header has texts, in a field or in a container."""
        return any(isinstance(slot.type, Text) or texts_in(slot.type) for slot in self.state[0].values())

    @cached_property
    def has_containers(self) -> bool:
        """Whether any field is a container."""
        return any(isinstance(kind, CONTAINERS) for kind in self.record.fields.values())

    def dtype(self, header: bool) -> np.dtype:
        """NumPy view of a row; containers as raw bytes.

        A text is (offset, length) in a row with header, else the address of its copy.
        """
        slots, size = self.event if header else self.state
        names: list[str] = []
        formats: list[Any] = []
        offsets: list[int] = []
        if header:
            names, formats, offsets = ["seq"], ["<i8"], [0]
        for slot in slots.values():
            names.append(slot.name)
            offsets.append(slot.offset)
            match slot.type:
                case Scalar():
                    formats.append(slot.type.dtype)
                case Text():
                    formats.append(np.dtype([("offset", "<u4"), ("length", "<u4")]) if header else np.dtype("<u8"))
                case Array(item):
                    formats.append(np.dtype((item.dtype, (slot.count,))))
                case _:
                    formats.append(np.dtype(f"V{slot.size}"))
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})

    def arrow(self, leading: tuple[str, ...] = ()) -> pa.Schema:
        """Parquet schema: `leading` i64 columns, then the fields (containers as lists; no arrays of length 0)."""
        columns = [pa.field(name, pa.int64(), nullable=False) for name in leading]
        for slot in self.columns:
            if slot.nullable:
                continue
            match slot.type:
                case Array():
                    kind = slot.type.arrow(slot.count)
                case Ring(item) | Set(item):
                    kind = pa.list_(item.arrow())
                case Map(key, value):
                    kind = pa.list_(pa.struct([("key", key.arrow()), ("value", value.arrow())]))
                case Counter(key):
                    kind = pa.list_(pa.struct([("key", key.arrow()), ("value", pa.int64())]))
                case TopK():
                    kind = pa.list_(pa.struct([("key", pa.int64()), ("score", pa.int64())]))
                case Queue():
                    fields = slot.type.fields.items()
                    kind = pa.list_(pa.struct([(n, k.arrow()) for n, k in fields if not n.startswith(VALID)]))
                case _:
                    assert isinstance(slot.type, Scalar | Text)  # a slot of a nullable field has its item
                    kind = slot.type.arrow()
            columns.append(pa.field(slot.name, kind, nullable=slot.is_nullable))
        return pa.schema(columns)
