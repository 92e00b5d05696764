"""Writes random transactional applications: tables, records, containers, conditions, modifications and a plan.

It varies the number and sizes of tables, the types and order of fields, and the place of containers in a row. It also
varies the plan's branches and loops, its fused operators, and the outputs of the values read. A number determines the
application.

Integers wrap around. The code masks values to fit narrow fields and keeps floats small. Now and then a function divides
by a value of the event.
"""

import random
from collections.abc import Sequence
from pathlib import Path

HEAD = """
from streaming_core.api import App, Array, Counter, Decimal, Map, Ring, Set, TopK, boolean, f64, i8, i16, i32, i64
from streaming_core.api import date_text, day, duration, hour, minute, month, record, second, text, time_text, u8
from streaming_core.api import decimal_text, u16, u32, weekday, year

app = App("generated")


@record
class Event:
    a: u8
    b: u8
    n: i16
    m: i32
    x: f64
    p: boolean
    w: text


"""
EVENT = 12  # bytes of a drawn event (test_generated.py)
# What a field of each width may hold of a value that is not negative.
MASKS = {"i8": 127, "i16": 32767, "i32": 2**31 - 1, "i64": 2**62 - 1, "u8": 255, "u16": 65535, "u32": 2**32 - 1}
DATE_PARTS = ("year", "month", "day", "weekday", "hour", "minute", "second", 'duration("2h") - ')
SIZES = (1, 1, 2, 3, 5, 17, 64)
# The texts of events (test_generated.py): some begin others, and some are too long to be kept in two words.
WORDS = (b"", b"\0", b"a", b"ab", b"abcdefgh", b"abcdefgh" * 2, b"abcdefgh" * 2 + b"i", b"abcdefgh" * 20)
MOST_INSERTED = 20_000  # more rows than the events of a stream can name
INDENT = "    "


def number_of_text(r: random.Random, text: str) -> str:
    """An integer that depends on a text."""
    return r.choice((
        f"len({text}.strip())", f'{text}.find("{r.choice("abe")}", {r.randint(-3, 2)})', f"len({text}[-3:])",
        f'int({text} in ("a", "one", "ab"))', f'int({text} < "abc")', f'int("b" in {text})',
        f"int(str(event.n) < {text})", f'int({text}.lower().startswith("a"))', "int(str(event.m)[0:5]) % 100",
        f"count_words({text})",
    ))  # fmt: skip


def text_of_text(r: random.Random, text: str, number: str) -> str:
    """A text that depends on another one and a number."""
    return r.choice((
        f'({text}.lower() + "-" + str({number} % 3))[-9:]', f"({text} + b'b')[-8:]", f"{text}.upper()[:12]", '"WA"',
        f'("x" if {text}.endswith("e") else {text})', f"str({number} % 5)",
        f"date_text({number})[2:]", f"time_text({number})", f"first_word({text}).strip()",
        f"decimal_text({number}, {r.choice((0, 2, 18))})[:9]",
    ))  # fmt: skip


WORDS_OF_TEXT = """
def count_words(words):
    n = 0
    for part in words.split():
        n += len(part) % 4
    return n


def first_word(words):
    for part in words.split(" "):
        if len(part) > 0:
            return part
    return "none"
"""


class Field:
    """A field of a table's row, and the operations on it."""

    def __init__(self, r: random.Random, name: str):
        kind = r.choice([*MASKS] + 2 * ["f64", "boolean", "Array", "Ring", "Set", "Map", "Counter", "TopK"])
        self.name, self.kind = name, kind
        self.item = r.choice([*MASKS, "f64"] if kind in ("Array", "Ring", "Map") else list(MASKS))
        self.count = r.randint(1, 4)

    def declared(self) -> str:
        """The type; every second field has decimals instead of i64."""
        return self.type.replace("i64", "Decimal[2]") if int(self.name[1:]) % 2 else self.type

    @property
    def type(self) -> str:
        match self.kind:
            case "Array" | "Ring":
                return f"{self.kind}[{self.item}, {self.count}]"
            case "Set" | "Counter":
                return f"{self.kind}[{self.item}]"
            case "Map":
                return f"Map[u8, {self.item}]"
            case "TopK":
                return f"TopK[{self.count}]"
        return self.kind

    @property
    def is_hidden(self) -> bool:
        """Whether it is a container that conditions over several rows cannot see."""
        return self.kind in ("Set", "Map", "Counter", "TopK")

    def integers(self, r: random.Random, at: str) -> list[str]:
        """Expressions for the integers in the field; `at` is the expression of the field itself."""
        leaves: list[str] = []
        if self.kind in MASKS:
            leaves += 2 * [at]
        elif self.kind == "Array" and self.item != "f64":
            leaves += [f"{at}[event.a % {self.count}]", f"{at}[{r.randrange(self.count)}]"]
        elif self.kind == "Ring" and self.item != "f64":
            leaves += [f"({at}[len({at}) - 1] if len({at}) > 0 else {r.randint(0, 9)})"]
        elif self.kind == "Counter":
            leaves += [f"{at}.get(event.{r.choice('ab')} % 8)"]
        elif self.kind == "Map" and self.item != "f64":
            leaves += [f"{at}.get(event.{r.choice('ab')} % 8, {r.randint(0, 9)})"]
        elif self.kind == "TopK":
            leaves += [
                f"({at}.key_at(0) if len({at}) > 0 else 1)",
                f"({at}.score_at(len({at}) - 1) if len({at}) > 0 else 2)",
            ]
        if self.kind in ("Ring", "Set", "Map", "Counter", "TopK"):
            leaves += [f"len({at})"]
        return leaves


class Table:
    """A table, its record, and the functions on its rows."""

    def __init__(self, r: random.Random, number: int):
        self.name, self.size = f"table{number}", r.choice(SIZES)
        self.fields = [Field(r, f"f{i}") for i in range(r.randint(1, 5))]
        if not any(f.kind in MASKS for f in self.fields):
            self.fields[0].kind = "i64"
        self.lookup = r.choice(("dense", "dense", "hash", "insert"))
        self.kind = r.choice([*MASKS, "text", "text"]) if self.lookup != "dense" else ""
        if self.kind == "text" and self.lookup == "hash":
            self.size = len(WORDS)
        if self.kind in MASKS:  # the least key, and the distance to the next
            high, is_signed = MASKS[self.kind], self.kind[0] == "i"
            high = 2**63 - 1 if self.kind == "i64" else high
            self.low = -high - 1 if is_signed else 0
            self.apart = max(1, min((high - self.low) // max(1, self.size - 1), 2**63 - 1))

    def key(self, r: random.Random, index: str) -> str:
        """A key of the table, as an expression."""
        number = f"{r.choice(('event.a', 'event.b', 'event.m', 'event.a * 7 + event.b'))} + {index}"
        match self.lookup, self.kind:
            case "dense", _:
                return f"({number}) % {self.size}"
            case "hash", "text":
                return "event.w"
            case "hash", _:
                return f"({number}) % {self.size} * {self.apart} - {-self.low // 2} - {-self.low - -self.low // 2}"
            case _, "text":
                return r.choice(("event.w", "event.w[1:9]", f"event.w[0:({number}) % 30]"))
        part = r.choice(("& 127", "& 7", ">> 1 & 127"))
        return f"(({number}) {part}) * {r.choice((1, -1)) if self.low else 1}"

    def declaration(self, r: random.Random) -> str:
        lines = [f"@record\nclass Row{self.name}:\n"]
        lines += [f"{INDENT}{f.name}: {f.declared()}\n" for f in self.fields]
        columns = [
            f'"{f.name}": (key * {r.randint(0, 9)} + {r.randint(0, 9)}) % 100' for f in self.fields if f.kind in MASKS
        ]
        if self.lookup == "insert" or self.kind == "text":  # without a number to begin with
            columns = [column.replace("key * ", "") for column in columns]
        first = f"lambda key, params: {{{', '.join(columns)}}}" if r.random() < 0.7 else "None"
        size = MOST_INSERTED if self.lookup == "insert" else self.size
        extra = ""
        if self.lookup != "dense":
            extra = f', key={self.kind}, lookup="{self.lookup}"'
        if self.lookup == "hash":
            keys = list(WORDS) if self.kind == "text" else [self.low + i * self.apart for i in range(self.size)]
            r.shuffle(keys)
            extra += f", keys=lambda params: {keys}"
        return (
            "".join(lines) + f'\n\n{self.name} = app.table("{self.name}", Row{self.name}, {size}, {first}{extra})\n\n\n'
        )


class Writer:
    """One application's source.

    Attributes:
        text: A text of the event; empty if it has none.
    """

    text = "event.w"
    has_gaps = False  # whether events have a field `gap` that may be null

    def __init__(self, number: str):
        self.r = random.Random(f"generated {number}")
        self.tables = [Table(self.r, i) for i in range(self.r.choice((1, 2, 2, 3)))]
        self.functions: list[str] = [WORDS_OF_TEXT, "\n\n"]
        self.names = 0

    # --- expressions: over the event, and over rows called by these names

    def whole(self, rows: dict[str, Table], depth: int, joint: bool = False) -> str:
        """An integer."""
        r = self.r
        if depth == 0:
            leaves = ["event.a", "event.b", "event.n", "event.m", str(r.choice((0, 1, 2, 3, 7, 64, 1000003)))]
            for row, table in rows.items():
                for f in table.fields:
                    if not (f.is_hidden and joint):
                        leaves += f.integers(r, f"{row}.{f.name}")
            if self.text and r.random() < 0.1:
                return number_of_text(r, self.text)
            if self.has_gaps and r.random() < 0.1:
                return r.choice(("(event.gap if event.gap is not None else -1)", "int(event.gap is None)"))
            return r.choice(leaves)
        left, right = (self.whole(rows, r.randrange(depth), joint) for _ in range(2))
        match r.randrange(8):
            case 0 | 1 | 2:
                return f"({left} {r.choice('+-*')} {right})"
            case 3:
                return f"({left} {r.choice('&|^')} {right})"
            case 4:
                return f"({left} {r.choice(['//', '%'])} {r.choice((2, 3, 7, 31, -5))})"
            case 5:
                return f"{r.choice(['min', 'max'])}({left}, {right})"
            case 6:
                return f"({left} if {self.test(rows, 0, joint)} else {right})"
            case _:
                return r.choice(
                    [
                        f"(-{left})",
                        f"abs({left})",
                        f"({left} >> {r.randint(0, 9)})",
                        f"({left} << {r.randint(0, 9)})",
                        f"{r.choice(DATE_PARTS)}({left})",
                    ]
                )

    def real(self, rows: dict[str, Table], joint: bool = False) -> str:
        """A float, of moderate size whatever comes."""
        r, leaves = self.r, ["event.x", "event.n / 4", "0.1"]
        for row, table in rows.items():
            for f in table.fields:
                if f.kind == "f64":
                    leaves += 3 * [f"{row}.{f.name}"]
                elif f.kind == "Array" and f.item == "f64":
                    leaves += [f"{row}.{f.name}[event.b % {f.count}]"]
                elif f.kind == "Map" and f.item == "f64" and not joint:
                    leaves += [f"{row}.{f.name}.get(event.a % 8, 0.25)"]
        left, right = r.choice(leaves), r.choice([*leaves, self.whole(rows, 0, joint) + " % 100"])
        return f"min(max(({left}) * {r.choice(('0.5', '0.75', '1.5'))} {r.choice('+-')} ({right}), -1000.0), 1000.0)"

    def test(self, rows: dict[str, Table], depth: int, joint: bool = False) -> str:
        """A condition that holds more often than not."""
        r, k = self.r, self.r.randint(3, 7)
        parts = [f"({self.whole(rows, depth, joint)}) % {k} {r.choice(['!=', '!=', '<='])} {r.randint(1, k - 1)}"]
        for row, table in rows.items():
            for f in table.fields:
                if r.random() < 0.3:
                    if f.kind == "boolean":
                        parts.append(f"not ({row}.{f.name} and event.a % {k} == 0)")
                    elif f.kind == "f64":
                        parts.append(f"{row}.{f.name} {r.choice(['<', '<='])} {r.randint(5, 900)}.0")
                    elif f.kind in ("Set", "Map") and not joint:
                        parts.append(f"(event.a % 8 not in {row}.{f.name} or len({row}.{f.name}) % 2 == 0)")
        if r.random() < 0.15:
            parts.append(f"{self.whole(rows, 0, joint)} // (event.n - 500) < 1000000000")
        return f"({r.choice([' and ', ' and ', ' or ']).join(parts)})"

    # --- functions

    def function(self, prefix: str, parameters: list[str], body: list[str]) -> str:
        self.names += 1
        name = f"{prefix}{self.names}"
        lines = [f"def {name}({', '.join(parameters)}):\n", *(f"{INDENT}{line}\n" for line in body), "\n\n"]
        self.functions.append("".join(lines))
        return name

    def condition(self, tables: list[Table], argument: bool) -> str:
        rows = {f"row{i}": table for i, table in enumerate(tables)}
        value = self.test(rows, 2, len(rows) > 1)
        if argument:
            value = f"{value} and (event.b + i) % 5 != {self.r.randrange(5)}"
        return self.function("asks", [*rows, "event", *(["i"] if argument else [])], [f"return {value}"])

    def modification(self, table: Table, argument: bool, others: Sequence[Table] = ()) -> str:
        r, body = self.r, []
        rows = {"row": table, **{f"other{i}": other for i, other in enumerate(others)}}
        for f in r.sample(table.fields, r.randint(1, len(table.fields))):
            body += self.store(f, rows, argument)
        if r.random() < 0.3:
            body = [
                f"if {self.test(rows, 1, len(rows) > 1)}:",
                *(INDENT + line for line in body),
                "else:",
                INDENT + "pass",
            ]
            body = body[:-2] if r.random() < 0.5 else body
        if r.random() < 0.1:
            body.append(f"spare = {self.whole(rows, 0, len(rows) > 1)} % (event.n - 501)")
        return self.function("does", [*rows, "event", *(["i"] if argument else [])], body)

    def store(self, f: Field, rows: dict[str, Table], argument: bool) -> list[str]:
        r, at, joint = self.r, f"row.{f.name}", len(rows) > 1
        value = self.whole(rows, 2, joint) + (" + i" if argument else "")
        item = self.real(rows, joint) if f.item == "f64" else f"({value}) & {MASKS[f.item]}"
        removal = f"{at}.remove(({value}) & {r.choice((3, 7, 15))})"
        removals = r.choice(([], [removal], [f"if {removal}:", f"{INDENT}{at}.remove(1)"]))
        match f.kind:
            case "f64":
                return [f"{at} = {self.real(rows, joint)}"]
            case "boolean":
                return [f"{at} = {self.test(rows, 1, joint)}"]
            case "Array":
                return [f"{at}[{'i' if argument else 'event.a'} % {f.count}] = {item}"]
            case "Ring":
                return [f"{at}.append({item})"]
            case "Set":
                clear = [f"if len({at}) > {r.randint(2, 9)}:", f"{INDENT}{at}.clear()"] if r.random() < 0.5 else []
                return [*removals, *clear, f"{at}.add(({value}) & {r.choice((7, 31, 127))})"]
            case "Map":
                return [*removals, f"{at}.put(({self.whole(rows, 1, joint)}) & 15, {item})"]
            case "Counter":
                return [*removals, f"{at}.add(({value}) & 7, {r.choice(('1', 'event.a % 3'))})"]
            case "TopK":
                return [f"{at}.offer(({value}) & 7, {self.whole(rows, 1, joint)} & 63)"]
        return [f"{at} = ({at} * {r.choice((1, 3, 31))} + {value}) & {MASKS[f.kind]}"]

    # --- the plan: lines of it, and of what looks at its reads afterwards

    def row(self, index: str) -> tuple[Table, str]:
        table = self.r.choice(self.tables)
        return table, f"txn.row({table.name}, {table.key(self.r, index)})"

    def step(self, index: str, kinds: str) -> tuple[list[str], list[str]]:
        r = self.r
        argument = r.random() < 0.4
        extra = f", {r.choice([index, 'event.b', '3'])}" if argument else ""
        match r.choice(kinds):
            case "?":
                wanted = [self.row(index) for _ in range(r.choice((0, 1, 1, 1, 2, 2, 3)))]
                if not wanted:
                    return [f"txn.require({self.condition([], False)})"], []
                asks = self.condition([table for table, _ in wanted], argument)
                return [f"txn.require({asks}, {', '.join(row for _, row in wanted)}{extra})"], []
            case "!":
                table, row = self.row(index)
                if r.random() < 0.3:  # the same row twice, by a name
                    does = [self.modification(table, False) for _ in range(2)]
                    name = f"row{self.tables.index(table)}"
                    return [f"{name} = {row}", *(f"txn.modify({name}, {do})" for do in does)], []
                others = [self.row(index) for _ in range(r.choice((0, 0, 1, 2)))]
                does = self.modification(table, argument, [other for other, _ in others])
                return [f"txn.modify({', '.join([row, does, *(named for _, named in others)])}{extra})"], []
            case _:
                table, row = self.row(index)
                return [f"txn.read({row})"], self.look(table)

    def look(self, table: Table) -> list[str]:
        whole, real, seen = "0", "0.0", f"seen{self.tables.index(table)}"  # a name holds rows of one table
        for f in table.fields:
            if f.kind in MASKS and self.r.random() < 0.8:
                whole = f"{whole} * 31 + {seen}.{f.name}"
            elif f.kind == "boolean":
                whole = f"{whole} + {seen}.{f.name}"
            elif f.kind == "Array" and f.item != "f64":
                whole = f"{whole} * 7 + {seen}.{f.name}[{self.r.randrange(f.count)}]"
            elif f.kind == "f64":
                real = f"{real} / 2 + {seen}.{f.name}"
        emit = f"out.emit(ok=txn.accepted, step=reads, whole={whole}, real={real})"
        return [f"{seen} = txn.result({table.name}, reads)", "reads += 1", emit]

    def block(self, depth: int, index: str, kinds: str) -> tuple[list[str], list[str]]:
        """Statements, and the expressions over the rows that they read."""
        r, plan, post = self.r, [], []
        for _ in range(r.randint(1, 3)):
            roll = r.random() if depth else 1.0
            if roll < 0.2:
                head = f"if {self.test({}, 1)}:"
                for part in (head, "else:")[: r.randint(1, 2)]:
                    self.nest(part, self.block(depth - 1, index, kinds), plan, post)
                    head = part
            elif roll < 0.4:
                name = f"i{depth}"
                head = f"for {name} in range(event.{r.choice('ab')} % {r.randint(2, 4)}):"
                self.nest(head, self.block(depth - 1, name, kinds), plan, post)
            else:
                lines, looks = self.step(index, kinds)
                plan += lines
                post += looks
        return plan, post

    def nest(self, head: str, block: tuple, plan: list[str], post: list[str]) -> None:
        for lines, into in zip(block, (plan, post), strict=True):
            into += [head, *(INDENT + line for line in lines or ["pass"])]

    def source(self) -> str:
        r = self.r
        body, looks, drop = [], [], f"if {self.test({}, 1).replace('!=', '==').replace('<=', '==')}:"
        if r.random() < 0.7:
            body += [drop, INDENT + "txn.drop()", INDENT + "return"]
        if r.random() < 0.6:  # asks first
            plan, _ = self.block(1, "0", "?")
            body += plan
            plan, post = self.block(2, "1", "!!.")
            body, looks = body + plan, looks + post
        else:
            for _ in range(r.randint(1, 3)):
                plan, post = self.block(1, "1", "?!!.")
                if r.random() < 0.6:  # an operator of its own
                    plan = [f"{self.function('operator', ['event', 'txn'], plan)}(event, txn)"]
                body, looks = body + plan, looks + post
            if r.random() < 0.3:
                body += ["if event.n % 9 == 4:", INDENT + "txn.drop()"]
        table, row = self.row("0")
        body, looks = [*body, f"txn.read({row})"], [*looks, *self.look(table)]
        if r.random() < 0.3:
            looks += ["if event.m % 11 == 3:", INDENT + "out.drop()"]
        last = "out.emit(ok=txn.accepted, step=-1, whole=reads, real=event.x)"
        declared = [table.declaration(r) for table in self.tables]
        out = "@record\nclass Out:\n    ok: boolean\n    step: i64\n    whole: i64\n    real: f64\n\n\n"
        plan = ["@app.transaction(input=Event, output=Out)\ndef plan(event, txn):\n", *(f"{INDENT}{x}\n" for x in body)]
        post = ["@plan.post\ndef post(event, txn, out):\n", *(f"{INDENT}{x}\n" for x in ["reads = 0", *looks, last])]
        rest = ["\n\n", *post, "\n\napp.generates(lambda *arguments: {})\n"]
        return "".join(
            [
                f'"""Written by tests/differential/generated.py."""\n{HEAD}',
                out,
                *declared,
                *self.functions,
                *plan,
                *rest,
            ]
        )


def write(folder: Path, number: str) -> Path:
    """The file of the application of that number."""
    path = folder / f"generated_{number}.py"
    path.write_text(Writer(number).source())
    return path
