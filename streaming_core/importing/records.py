"""Reads the records of CSV and JSON lines files: each value unchanged, or the record's bytes with a reason.

Python's `csv` splits CSV, because no other reader in the lock does all of this:

- It keeps values unchanged, including line breaks in quotes. Spark's reader changes those.
- It reports an open quote. Spark's reader takes the rest of the file into the quote; pyarrow fails the whole file.
- It reads lines, so that it can read the lines after an open quote again.

Python's `json` reads JSON, because its hooks give numbers as the file has them. Spark's parser rounds them.

Text is UTF-8. Other bytes become half surrogates (`surrogateescape`), so that a record keeps its bytes. A line break is
LF, CR or CR LF. An empty line is not a record.

If a quote stays open, or text follows a closing quote, the record ends with its first line. Reading continues with the
next line, because the following lines may be records. A record with too few or too many columns stays whole.
"""

from __future__ import annotations

import csv
import io
import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TextIO

LONGEST = 16 << 20  # characters of a value, and so the reach of an open quote
BYTE_ORDER_MARK = "\ufeff"
_QUOTES = {
    "unexpected end of data": "a closing quote is missing",
    "expected after": "text follows a closing quote, or a closing quote before it is missing",
    "field larger than field limit": f"a value has more than {LONGEST} characters, or a closing quote is missing",
}
NOT_UTF8 = "the line is not UTF-8"
NO_OBJECT = "the line is not a JSON object"

Value = str | list[str | None] | None


@dataclass(slots=True)
class Record:
    """One record of a file.

    Attributes:
        line: Number of its first line, from 1.
        text: The record without its line break; `raw` gives its bytes.
        values: The value of each column; None if the record could not be split.
        reason: Why the record could not be split, else None.
    """

    line: int
    text: str
    values: Sequence[Value] | None
    reason: str | None = None

    @property
    def raw(self) -> bytes:
        """The bytes of the file."""
        return self.text.encode("utf-8", "surrogateescape")


def decoded(file: BinaryIO) -> TextIO:
    """Decode a file: line breaks stay, and bytes that are not UTF-8 become half surrogates."""
    return io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")


def is_utf8(text: str) -> bool:
    """Whether decoded text was UTF-8."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


class _Lines:
    """Lines of a text. Remembers those of the current record, and can put them back."""

    def __init__(self, text: TextIO):
        self._text = text
        self._back: deque[str] = deque()
        self.taken: list[str] = []
        self.number = 0  # of the last line taken

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._back.popleft() if self._back else next(self._text)
        self.number += 1
        if self.number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        self.taken.append(line)
        return line

    def put_back_all_but_first(self) -> None:
        """Put back the lines after the record's first one."""
        rest = self.taken[1:]
        self._back.extendleft(reversed(rest))
        self.number -= len(rest)
        del self.taken[1:]


def csv_header(text: TextIO, separator: str) -> list[str]:
    """The values of the first record.

    Raises:
        csv.Error: It is not well-formed.
    """
    csv.field_size_limit(LONGEST)
    return next(csv.reader(_Lines(text), delimiter=separator, strict=True), [])


def csv_records(text: TextIO, separator: str, columns: int) -> Iterator[Record]:
    """The records after the header, in order.

    Args:
        text: A whole file, as `decoded` gives it.
        separator: The character between two values.
        columns: How many values each record has.
    """
    csv.field_size_limit(LONGEST)
    lines = _Lines(text)
    reader = csv.reader(lines, delimiter=separator, strict=True)
    next(reader, None)
    while True:
        lines.taken.clear()
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            lines.put_back_all_but_first()
            yield _torn(lines, _quote_fault(str(error)))
            continue
        if not values:
            continue
        if len(values) != columns:
            yield _torn(lines, f"the row has {len(values)} columns instead of {columns}")
        else:
            record = Record(lines.number - len(lines.taken) + 1, _without_break(lines.taken), values)
            yield record if is_utf8(record.text) else _torn(lines, NOT_UTF8)


def _torn(lines: _Lines, reason: str) -> Record:
    text = _without_break(lines.taken)
    return Record(lines.number - len(lines.taken) + 1, text, None, reason if is_utf8(text) else NOT_UTF8)


def _without_break(lines: list[str]) -> str:
    text = lines[0] if len(lines) == 1 else "".join(lines)
    return text.removesuffix("\n").removesuffix("\r")


def _quote_fault(error: str) -> str:
    return next((reason for part, reason in _QUOTES.items() if part in error), f"the row is not CSV: {error}")


class _Number(str):
    """A number of JSON, as the file has it."""


class _Pairs(list):
    """An object of JSON, with repeated keys."""


_NUMBERS: dict[str, Any] = {"parse_int": _Number, "parse_float": _Number, "parse_constant": _Number}
_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs, **_NUMBERS)


def json_records(text: TextIO, columns: list[str], lists: frozenset[str]) -> Iterator[Record]:
    """The records of JSON lines, in order.

    Args:
        text: A whole file, as `decoded` gives it.
        columns: Keys of each object; another key has no meaning.
        lists: Those of the columns whose value is a list.
    """
    for number, line in enumerate(text, 1):
        kept = line.removesuffix("\n").removesuffix("\r")
        content = kept.removeprefix(BYTE_ORDER_MARK) if number == 1 else kept
        if not content.strip():
            continue
        values, reason = (None, NOT_UTF8) if not is_utf8(content) else _object(content, columns, lists)
        yield Record(number, kept, values, reason)


def _object(content: str, columns: list[str], lists: frozenset[str]) -> tuple[list[Value] | None, str | None]:
    """The values of a JSON object and None, or None and a reason."""
    try:
        pairs = _DECODER.decode(content)
    except (ValueError, RecursionError):
        return None, NO_OBJECT
    if not isinstance(pairs, _Pairs):
        return None, NO_OBJECT
    by_key = dict(pairs)
    if len(by_key) < len(pairs):
        keys = [key for key, _ in pairs]
        if twice := next((key for key in columns if keys.count(key) > 1), None):
            return None, f"the object has the key {twice} twice"
    values: list[Value] = []
    for column in columns:
        value = by_key.get(column)
        if column in lists:
            values.append(_items(value))
        elif isinstance(value, list):
            return None, f"{column} is a list or an object instead of a value"
        else:
            values.append(_text(value))
    if not all(is_utf8(value) for value in values if isinstance(value, str)):
        return None, "a text contains half a surrogate pair (\\ud800 to \\udfff), which is not a character"
    return values, None


def items(text: str) -> list[str | None] | None:
    """The items of a list in a CSV value, which has the form of JSON; None if it is not a list of values."""
    try:
        return _items(_DECODER.decode(text))
    except (ValueError, RecursionError):
        return None


def _items(value: object) -> list[str | None] | None:
    if not isinstance(value, list) or isinstance(value, _Pairs) or any(isinstance(item, list) for item in value):
        return None
    texts = [_text(item) for item in value]
    return texts if all(item is None or is_utf8(item) for item in texts) else None


def _text(value: object) -> str | None:
    """A value of JSON as text: a string's characters, a number as the file has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str.__str__(value)
