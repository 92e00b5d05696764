"""Writes random dataflow applications: operators of every kind with scalars and containers, in any acyclic graph.

All streams are of one record type, so that any of them may be united. An application is drawn from a number; the same
number gives the same one. Expressions and stores are those of `generated.py`: an operator's input is its `event`, its
state the `row`.
"""

import random
from pathlib import Path

from tests.differential.generated import INDENT, MASKS, Table, Writer, text_of_text

HEAD = """
from streaming_core.api import App, Array, Counter, Decimal, Map, Queue, Ring, Set, TopK, boolean, f64, i8, i16, i32
from streaming_core.api import agg, count_window, global_window, i64, record, rolling, session, sliding, text
from streaming_core.api import date_text, day, decimal_text, duration, hour, minute, month, second, time_text, u8, u16
from streaming_core.api import u32, weekday, year

app = App("dataflow")


@record
class Waiting:
    a: u8
    x: f64
    p: boolean
    whole: i64


@record
class Event:
    ts: i64
    stream: u8
    a: u8
    b: u8
    n: i16
    m: i32
    x: f64
    p: boolean
    few: Array[u8, 3]
"""
STREAMS = 3  # logical ones
MOST = 50  # rows that an operator makes of one


class Dataflow(Writer):
    """One application's source, of one of three sorts.

    It has operators of all kinds. Or outputs and states do not depend on the order of rows (`is_stateless`): operators
    have no state, or only tallies. Or most operators flush, each of them keys that no event has brought. Keys may be
    texts, unless operators flush.
    """

    def __init__(self, number: str, is_text: bool, is_stateless: bool = False, is_flushing: bool = False):
        super().__init__(number)
        self.r = random.Random(f"dataflow {number}")
        self.text = "event.word" if is_text else ""
        self.is_text, self.is_stateless, self.is_flushing = is_text, is_stateless, is_flushing
        self.has_gaps = self.r.random() < 0.4
        self.gap_type = random.Random(f"gap {number}").choice(("i16", "Decimal[2]"))
        self.records: list[str] = []
        self.fans = 0
        self.tallies: list[str] = []

    def texts(self) -> tuple[str, list[str]]:
        """Fields of a state that are texts or have some, and what an operator does with them."""
        if not self.is_text:
            return "", []
        r = self.r
        word, removed = (
            r.choice(("event.word", "event.word[0:2]", text_of_text(r, "event.word", "event.a"))) for _ in range(2)
        )
        uses = {
            "Set[text]": [f"if row.names.add({word}):", f"{INDENT}row.times += 1"],
            "Counter[text]": [f"row.times += row.names.add({word}, event.a % 3)"],
            "Map[text, u8]": ["row.times += row.names.get(row.name, 5)", f"row.names.put({word}, event.b)"],
            "Map[text, text]": ["row.name = row.names.get(event.word, row.name)", f"row.names.put({word}, row.name)"],
            "Map[u8, text]": [
                "row.name = row.names.get(event.b % 8, event.word)",
                f"row.names.put(event.a % 8, {word})",
            ],
        }
        names = r.choice(list(uses))
        body = [
            f"if event.a % {r.choice((1, 2, 5))} == 0:",
            f"{INDENT}row.name = event.word",
            f"if len(row.names) > {r.choice((2, 9, 40))}:",
            f"{INDENT}row.names.clear()",
            *uses[names],
            f"if event.b % 2 == 0 and row.names.remove({'event.n % 8' if names == 'Map[u8, text]' else removed}):",
            f"{INDENT}row.times += 1",
            "if len(row.waiting) > 0 and row.waiting[0].word == event.word:",
            f"{INDENT}row.times += 7",
        ]
        return f"{INDENT}name: text\n{INDENT}names: {names}\n", body

    def head(self) -> str:
        """Imports, and the records of events and of waiting rows."""
        word = f"{INDENT}word: text\n" * self.is_text
        gap = f"{INDENT}gap: {self.gap_type} | None\n" * self.has_gaps
        return HEAD.replace("    whole: i64\n", f"    whole: i64\n{word}{gap}") + word + gap

    def gap(self, value: str) -> str:
        """A keyword for the field that may be null, if there is one."""
        return f", gap={value}" * self.has_gaps

    def gaps(self) -> tuple[str, list[str]]:
        """A field of a state that may be null, and what an operator does with it."""
        if not self.has_gaps:
            return "", []
        forget = ["if event.b % 5 == 1:", f"{INDENT}row.gap = None"]
        body = [
            "if event.gap is not None and (row.gap is None or event.gap > row.gap):",
            f"{INDENT}row.gap = event.gap",
            f"if event.p and row.gap is not None and row.gap < {self.r.choice((0, 9000))}:",
            f"{INDENT}row.gap += 1",
            self.r.choice(("row.gap = event.gap if event.a % 3 == 0 else row.gap", "pass")),
            "if len(row.waiting) > 0 and row.waiting[0].gap is None:",
            f"{INDENT}row.times += 3",
        ]
        return f"{INDENT}gap: {self.gap_type} | None\n", self.r.choice((body, [*body, *forget]))

    def waits(self, rows: dict) -> str:
        """The statement that appends to the queue of a state."""
        more = ", word=event.word" * self.is_text + self.gap("event.gap")
        return f"row.waiting.append(whole={self.whole(rows, 1)}, x=event.x, p=event.p, a=event.a{more})"

    def emission(self, rows: dict, few: str = "event.few") -> str:
        """A row built from the event and maybe from a state."""
        r = self.r
        values = {
            "ts": "event.ts",
            "stream": r.choice(("event.stream", str(r.randrange(STREAMS)))),
            "a": r.choice(("event.a", f"({self.whole(rows, 1)}) & 255")),
            "b": f"({self.whole(rows, 1)}) & {r.choice((1, 7, 255))}",
            "n": f"({self.whole(rows, 1)}) % 500",
            "m": f"({self.whole(rows, 2)}) & {MASKS['i32']}",
            "x": self.real(rows),
            "p": self.test(rows, 1),
            "few": few,
        }
        if self.is_text:
            built = text_of_text(r, "event.word", "event.a")
            own = ("row.name", "row.name[1:]") if "row" in rows else ("event.word", "event.word")
            values["word"] = r.choice(("event.word", "event.word[0:2]", "event.word[1:]", *own, built))
        if self.has_gaps:
            some = ("event.gap", "None", "event.b", "event.gap if event.p else None", "None if event.a == 1 else 7")
            values["gap"] = r.choice((*some, *(("row.gap",) if "row" in rows else ())))
        row = ""
        if r.random() < 0.4:  # the other fields come from the event
            row, values = "event, ", {name: value for name, value in values.items() if r.random() < 0.5}
        return f"out.emit({row}{', '.join(f'{name}={value}' for name, value in values.items())})"

    def emissions(self, rows: dict, few: str = "event.few") -> list[str]:
        """No row, one, or many."""
        r = self.r
        emit = self.emission(rows, few)
        match r.randrange(5):
            case 0:
                return [f"if {self.test(rows, 1)}:", INDENT + emit]
            case 1 if not self.fans:  # a product of fan-outs would be all that is looked at
                self.fans += 1
                return [
                    f"for i in range(event.{r.choice('ab')} % {MOST + 1}):",
                    INDENT + emit.replace("n=(", "n=(i + "),
                ]
            case 2:
                return [f"for i in range(event.b % {r.choice((2, 3))}):", INDENT + emit]
            case 3:
                return [
                    f"if event.stream == {r.randrange(STREAMS)}:",
                    INDENT + emit,
                    "else:",
                    INDENT + self.emission(rows),
                ]
            case _:
                return [emit]

    def invalid(self) -> list[str]:
        if self.r.random() < 0.6:
            return []
        return [f"if event.b % 5 == {self.r.randrange(5)} and {self.test({}, 1)}:", INDENT + "out.drop()"]

    def stateless(self) -> tuple[str, str]:
        """The function's name, and the other arguments of `flat_map`."""
        if self.r.random() < 0.6:
            return self.function("maps", ["event", "out"], self.invalid() + self.emissions({})), ""
        name = f"Room{len(self.records)}"
        self.records.append(f"@record\nclass {name}:\n{INDENT}few: Array[u8, 3]\n{INDENT}last: Ring[i64, 2]\n")
        body = [
            "for j in range(event.b % 4):",
            f"{INDENT}row.last.append({self.whole({}, 1)})",
            f"{INDENT}row.few[j % 3] = (event.a + len(row.last) + row.last[0]) & 255",
        ]
        body += self.emissions({}, "row.few")
        return self.function("works", ["event", "row", "out"], self.invalid() + body), f", scratch={name}"

    def lookup(self) -> str:
        """A lookup of the row in a table, and a map that makes an event of both."""
        r, number, how = self.r, len(self.records), self.r.choice(("inner", "left"))
        size, is_by_text = r.randint(0, 60), self.is_text and r.random() < 0.4
        on, kind = ("word", "text") if is_by_text else (r.choice(("a", "n", "m")), "i64")
        label = f"{INDENT}label: text\n" * self.is_text
        self.records.append(f"@record\nclass Side{number}:\n{INDENT}key: {kind}\n{INDENT}value: i16\n{label}")
        keys = ["", "a", "b", "ab", "\u00fc"] if is_by_text else r.sample(range(-9, r.choice((size, 300)) + 1), size)
        columns = {"key": keys, "value": [r.randint(-400, 400) for _ in keys]}
        columns |= {"label": [r.choice(("", "x", "a" * 70)) for _ in keys]} if self.is_text else {}
        rows = self.function("rows", ["params"], [f"return {columns!r}"])
        changed = {"n": "value", "word": "label"} if self.is_text else {"n": "value"}
        values = (
            f"{field}=event.{new}" + f" if event.{new} is not None else event.{field}" * (how == "left")
            for field, new in changed.items()
        )
        event = self.function("sides", ["event", "out"], [f"out.emit(event, {', '.join(values)})"])
        table = f"app.lookup_table(Side{number}, key='key', rows={rows})"
        return f"lookup({table}, on={on!r}, how={how!r}).flat_map({event}, Event)"

    def stateful(self) -> tuple[str, str]:
        """The function's name, and the other arguments of `process`."""
        r, table = self.r, Table(self.r, len(self.records))
        record = f"State{len(self.records)}"
        lines = [f"@record\nclass {record}:\n", *(f"{INDENT}{f.name}: {f.declared()}\n" for f in table.fields)]
        lines.append(f"{INDENT}few: Array[u8, 3]\n{INDENT}times: i64\n{INDENT}waiting: Queue[Waiting]\n")
        texts, body = self.texts()
        gap, gaps = self.gaps()
        self.records.append("".join([*lines, texts, gap]))
        rows, body = {"row": table}, ["row.times += 1", "row.few[event.a % 3] = event.b", *body, *gaps]
        body += [
            self.waits(rows),
            f"while len(row.waiting) > {r.choice((1, 3, 20))}:",
            f"{INDENT}row.times += row.waiting[len(row.waiting) // 2].whole",
            f"{INDENT}row.waiting.popleft()",
        ]
        for f in r.sample(table.fields, r.randint(1, len(table.fields))):
            body += self.store(f, rows, False)
        if r.random() < 0.5:
            body += ["for one in row.waiting:", f"{INDENT}if one.x > event.x or one.p:"]
            body.append(f"{INDENT}{INDENT}row.times += one.whole ^ one.a")
        body += self.emissions(rows, r.choice(("event.few", "row.few")))
        name = self.function("keeps", ["event", "row", "out"], self.invalid() + body)
        more = f", state={record}"
        if not self.is_text and (r.random() < 0.6 or self.is_flushing):
            more += f", flush={self.function('flushes', ['row', 'out'], self.flush(table))}"
        return name, more

    def tally(self) -> tuple[str, str]:
        """As `stateful`, but neither the state nor the outputs depend on the order of rows."""
        record = f"Tally{len(self.records)}"
        self.records.append(f"@record\nclass {record}:\n{INDENT}times: i64\n{INDENT}total: i64\n{INDENT}most: i64\n")
        body = ["row.times += 1", f"row.total += {self.whole({}, 1)}", "row.most = max(row.most, event.b)"]
        name = self.function("tallies", ["event", "row", "out"], self.invalid() + body + self.emissions({}))
        self.tallies.append(name)
        return name, f", state={record}"

    def key(self) -> str:
        """The arguments of `key_by`: a field, several, or a function that returns one value or two."""
        r, fields = self.r, ["word", "word", "a"] if self.is_text else ["a", "a", "b", "n", "stream"]
        match r.randrange(5):
            case 0:
                several = r.sample([*dict.fromkeys(fields), "p", "m"], r.randint(2, 3))
                return ", ".join(f'"{field}"' for field in several)
            case 1:
                last = "event.word[0:1]" if self.is_text else f"({self.whole({}, 1)}) % 9"
                second = r.choice(("", f", {last}", f", {last}"))
                branch = ["if event.p:", f"{INDENT}return event.b % 4{second}"]
                return self.function("keys", ["event"], [*branch, "part = event.n // 50", f"return part{second}"])
            case _:
                return f'"{r.choice(fields)}"'

    def flush(self, table: Table) -> list[str]:
        """A row for the key, and one for each entry of a container; the final state shows the flushed keys."""

        def emit(whole: str) -> str:
            values = (
                f"ts=-1, stream=0, a=({whole}) & 255, b=row.few[0], n=({whole}) % 500, m=row.times & {MASKS['i32']}"
            )
            return f"out.emit({values}, x=0.5, p=row.times % 2 == 1, few=row.few{self.gap('row.gap')})"

        whole = "row.times"
        for f in table.fields:
            if f.kind in MASKS:
                whole = f"{whole} * 31 + row.{f.name}"
        body = [emit(whole)]
        if self.is_flushing:
            body += ["for i in range(3):", INDENT + emit(f"row.times * 7 + i * {self.r.randrange(20, 90)}")]
            body += ["row.times += 1000"]
        for f in table.fields:
            at = f"row.{f.name}"
            entry = {
                "Ring": f"{at}[i]",
                "Counter": f"{at}.key_at(i)",
                "Map": f"{at}.key_at(i)",
                "TopK": f"{at}.key_at(i) * 64 + {at}.score_at(i)",
            }.get(f.kind)
            if f.kind == "Set":
                body.append(emit(f"len({at})"))
            if entry and not (f.kind == "Ring" and f.item == "f64"):
                body += [f"for i in range(len({at})):", INDENT + emit(entry)]
        body += ["if len(row.waiting) > 0:", INDENT + emit("row.waiting[0].whole + row.waiting[0].a")]
        return body

    def source(self) -> str:
        r, lines, streams = self.r, ["stream0 = app.source(Event)"], ["stream0"]
        left = set(streams)
        for number in range(1, r.randint(3, 6)):
            taken = [streams[-1] if r.random() < 0.7 else r.choice(streams)]
            taken += [r.choice(streams) for _ in range(r.choice((0, 0, 1, 1, 2)))]
            left -= set(taken)
            united = taken[0] + (f".union({', '.join(taken[1:])})" if taken[1:] else "")
            kind = (
                r.choice((0, 2, 3, 3, 3))
                if self.is_flushing
                else r.choice((0, 1, 3))
                if self.is_stateless
                else r.randrange(4)
            )
            if self.is_flushing and number < 3:  # at least two flush
                kind = kind or 3
            match kind:
                case 0 if r.random() < 0.3:
                    call = f"filter(lambda event: {self.test({}, 1)})"
                case 1 if r.random() < 0.3:
                    call = self.lookup()
                case 0 | 1:
                    name, more = self.stateless()
                    call = f"flat_map({name}, Event{more})"
                case 3 if not self.is_stateless and not self.is_flushing and r.random() < 0.15:
                    call = f'key_by("{"word" if self.is_text else "n"}").distinct()'
                case 2:
                    name, more = self.stateful()
                    call = f"process({name}{more}, output=Event)"
                case _:
                    name, more = self.tally() if self.is_stateless else self.stateful()
                    call = f"key_by({self.key()}).process({name}{more}, output=Event)"
            lines.append(f"stream{number} = {united}.{call}")
            streams.append(f"stream{number}")
            left.add(streams[-1])
        ends = sorted(left | {streams[-1]} | ({r.choice(streams)} if r.random() < 0.4 else set()), reverse=True)
        lines.append(f"{ends[0]}{f'.union({chr(44).join(ends[1:])})' if ends[1:] else ''}.sink()")
        if self.is_stateless:
            columns = "ts stream a b n m x p few" + " word" * self.is_text + " gap" * self.has_gaps
            lines.append(f"app.agrees_unordered(*{columns.split()}, states={tuple(self.tallies)})")
        records = "".join(f"\n\n{record}" for record in self.records)
        rest = "\n".join(lines) + "\napp.generates(lambda params, seed, start, stop: {})\n"
        return self.head() + records + "\n\n" + "".join(self.functions) + rest


def write(folder: Path, number: str, is_text: bool, is_stateless: bool = False, is_flushing: bool = False) -> Path:
    """Writes application `number` below `folder`; the file's path."""
    sort = "stateless" if is_stateless else "flushing" if is_flushing else "any"
    path = Path(folder) / f"dataflow_{number}_{sort}.py"
    path.write_text(Dataflow(number, is_text, is_stateless, is_flushing).source())
    return path
