"""Writes random applications with windows: windowed operators of every kind in any acyclic graph, and maps.

Streams, expressions and stores are those of `dataflows.py`. The rows that operators make of one event are bounded, so
that an oracle interprets a few hundred events in a moment.
"""

import random
from pathlib import Path

from tests.differential.dataflows import Dataflow
from tests.differential.generated import INDENT, MASKS, Table, text_of_text

MOST_MEETINGS = 48  # of a row with windows of its keys, over all windowed operators one behind the other
OPERATORS = 5


class Windowing(Dataflow):
    """One application's source, whose keys are texts or integers."""

    def __init__(self, number: str, is_text: bool):
        super().__init__(number, is_text)
        self.r = random.Random(f"windowing {number}")
        self.fans, self.meetings = 1, 1  # maps make at most two rows of one
        self.is_lasting = False

    def keys(self) -> tuple[str, str, int]:
        """The arguments of `key_by` for the keys of one stream and of two, and the number of keys of a row."""
        r = self.r
        if self.is_text:
            return '"word"', '"word"', 1
        match r.randrange(3):
            case 0:
                key = f'"{r.choice(("a", "b", "n", "stream"))}"'
                return key, key, 1
            case 1:
                count = r.randint(1, 4)
                return f"every={count}", f"every={count}", count
        name, count = f"Key{len(self.records)}", r.randint(1, 3)
        self.records.append(f"@record\nclass {name}:\n{INDENT}a: i64\n{INDENT}b: u8\n")
        add = f"keys.add(a=({self.whole({}, 1)} + i) % {r.choice((2, 5, 200))}, b=i % 2)"
        body = [f"for i in range(event.b % {count + 1}):", INDENT + add]
        if r.random() < 0.3:
            body = [f"if {self.test({}, 1)}:", *(INDENT + line for line in body)]
        keys = self.function("finds", ["event", "keys"], body)
        return f"{name}, keys={keys}", f"{name}, keys=({keys}, {keys})", count

    def result(self, table: Table) -> str:
        """A function that puts out a few rows when a window has expired."""
        r, whole = self.r, "row.times + window.start"
        for f in table.fields:
            if f.kind in MASKS:
                whole = f"{whole} * 31 + row.{f.name}"
            elif f.is_hidden or f.kind == "Ring":
                whole = f"{whole} * 7 + len(row.{f.name})"
        built = r.choice(("window.key.word", "row.name", text_of_text(r, "window.key.word", "row.times")))
        more = f", word={built}" * self.is_text + self.gap("row.gap")
        values = f"ts=window.end, stream=row.times % 3, a=({whole}) & 255, b=row.few[0], n=({whole}) % 500"
        emit = f"out.emit({values}, m=row.times & {MASKS['i32']}, x=0.5, p=row.times % 2 == 1, few=row.few{more})"
        body = r.choice(([emit], [emit], [f"for i in range(row.times % {r.choice((2, 3))}):", INDENT + emit]))
        if r.random() < 0.1:  # sooner or later it fails
            body = [f"row.times += 0 // (row.times % {r.choice((7, 60))} - 6)", *body]
        return self.function("tells", ["window", "row", "out"], body)

    def update(self, table: Table, emits: bool, states: list[str], texts: list[str]) -> str:
        """A function that takes a row into the first of the states; `texts` are statements about its texts."""
        r, rows = self.r, {"row": table}
        body = ["row.times += 1", "row.few[event.a % 3] = event.b", *texts]
        body += [
            self.waits(rows),
            f"while len(row.waiting) > {r.choice((1, 3))}:",
            f"{INDENT}row.times += row.waiting[0].whole % 3",
            f"{INDENT}row.waiting.popleft()",
        ]
        for f in r.sample(table.fields, r.randint(1, len(table.fields))):
            body += self.store(f, rows, False)
        if emits:
            body += [f"if row.times % {r.choice((2, 5))} == 0:", INDENT + self.emission(rows)]
        return self.function("meets", ["event", "window", *states, "out"], body)

    def windowed(self, streams: list[str]) -> str:
        """A windowed operator over one or two streams."""
        r, table = self.r, Table(self.r, len(self.records))
        record = f"State{len(self.records)}"
        lines = [f"@record\nclass {record}:\n", *(f"{INDENT}{f.name}: {f.declared()}\n" for f in table.fields)]
        lines.append(f"{INDENT}few: Array[u8, 3]\n{INDENT}times: i64\n{INDENT}waiting: Queue[Waiting]\n")
        texts, statements = self.texts()
        gap, gaps = self.gaps()
        self.records.append("".join([*lines, texts, gap]))
        first, second, count = self.keys()
        kind = r.choices(("multi", "single", "session"), (5, 3, 3))[0]
        single = kind != "multi"  # a row meets one window of each of its keys
        advance = r.choice((1, 2, 3, 6))
        size = advance + r.choice((0, 0, 1, advance, 3 * advance))
        if self.meetings * count * (1 if single else -(-size // advance)) > MOST_MEETINGS:
            size = advance
        self.meetings *= count * (1 if single else -(-size // advance))
        emits = r.random() < 0.4
        # States are passed in the order of the streams: rows of the second stream are taken into the second state.
        states = ["row"] if len(streams) == 1 else ["row", "other"]
        update = self.update(table, emits, states, statements + gaps)
        if len(streams) > 1:
            update = f"({update}, {self.update(table, False, states[::-1], statements + gaps)})"
            record = f"({record}, {record})"
        keys = [first if len(streams) == 1 else second]
        extent = {"multi": "sliding", "single": "rolling"}.get(kind)
        most = f", most={size + r.choice((0, 1, 2 * size, 50))}" if r.random() < 0.5 else ""
        windows = [f"{extent}({size}, every={advance})" if extent else f"session({size}{most})"]
        functions = [f"state={record}", f"update={update}"]
        if kind == "multi":
            idle = r.choice((None, None, 0, 5, 100)) if len(streams) > 1 else None
            windows.append(f"delay={r.choice((0, 0, 2, 9, 300))}, idle={idle}")
        if kind == "single":
            windows.append(f"delay={r.choice((0, 0, 9))}")
        if kind != "single":
            keys.append(f"multiplicity={r.choice(('set', 'bag'))!r}")
        others = ["other"] * (len(streams) - 1)
        if r.random() < 0.85 or not emits:
            functions.append(f"result={self.with_others(self.result(table), others)}")
        if kind == "single" and r.random() < 0.5:
            slides = self.function("slides", ["window", "row", *others], ["row.times += 1", "row.few[0] = 7"])
            functions.append(f"slide={slides}")
        declared = f"app.connect({', '.join(streams)}).key_by({', '.join(keys)}).window({', '.join(windows)})"
        return f"{declared}.apply({', '.join(functions)}, output=Event)"

    def ready_made(self, stream: str) -> str:
        """Ready-made aggregates or the top rows of a stream, which has a key or none."""
        r, every = self.r, self.r.choice((2, 3, 6))
        size = every * r.choice((1, 1, 2))
        self.meetings *= size // every
        key = "word" if self.is_text else r.choice(("a", "stream", None))
        extents = (f"sliding({size}, every={every})", f"session({every})", f"count_window({r.randint(1, 4)})")
        extent = r.choice((*extents, "global_window()"))
        more = r.choice(("", f", early={r.randint(1, 3)}")) * (not extent.startswith("count"))
        if extent.startswith("sliding"):
            more += f", delay={r.choice((0, 0, 9))}" + ("" if more else r.choice(("", ", lateness=5")))
        window = f"{f'.key_by({key!r})' if key else ''}.window({extent}{more})"
        name = f"Few{len(self.records)}"
        if not self.is_text and r.random() < 0.3:
            self.records.append(f"@record\nclass {name}:\n{INDENT}few: Array[u8, 3]\n")
            result = self.function("ranks", ["event", "row", "out"], ["out.emit(event, few=row.few)"])
            fields = "'ts', 'stream', 'a', 'b', 'n', 'm', 'x', 'p'" + ", 'gap'" * self.has_gaps
            top = f"top({r.randint(1, 3)}, by={r.choice(('x', 'm', 'n'))!r}, ties={r.random() < 0.5})"
            return f"{stream}.select({fields}){window}.{top}.flat_map({result}, Event, scratch={name})"
        if extent.startswith("sliding") and not self.has_gaps and r.random() < 0.5:  # windows that merge slices
            self.records.append(f"@record\nclass {name}:\n{INDENT}few: Array[u8, 3]\n")
            fields = [field for field in ("stream", "a", "b", "n", "m") if field != key]
            columns = [f"{field}=agg.{r.choice(('min', 'max'))}({field!r})" for field in fields]
            columns += ["rows=agg.count()", "mean=agg.avg('n')", "total=agg.sum('m')"]
            r.shuffle(columns)
            emit = (
                "out.emit(event, n=(event.rows + event.total) % 500, x=event.mean, p=event.rows % 2 == 1, few=row.few)"
            )
            result = self.function("merges", ["event", "row", "out"], [emit])
            return f"{stream}{window}.aggregate({', '.join(columns)}).flat_map({result}, Event, scratch={name})"
        whole, real = ("first", "last", "min", "max"), ("sum", "avg", "first", "last", "min", "max")
        fields_by_name = {field: r.choice(whole) for field in ("stream", "a", "b", "n", "m") if field != key}
        fields_by_name |= {"x": r.choice(real), "p": r.choice(whole[:2]), "few": r.choice(whole[:2])}
        if self.has_gaps:
            fields_by_name["gap"] = r.choice(whole)
        columns = [f"{field}=agg.{aggregate}({field!r})" for field, aggregate in fields_by_name.items()]
        columns += ["rows=agg.count()", "kinds=agg.count_distinct('n')", "mean=agg.avg('m')"]
        where = r.choice(("", ", where=lambda event: event.a % 3 == event.n % 2"))
        columns += [f"total=agg.sum('m'{where})", f"some=agg.count({where.removeprefix(', ')})"]
        r.shuffle(columns)
        body = [
            "out.emit(event, n=(event.rows + event.kinds * 7 + event.total + event.some) % 500, x=event.x + event.mean)"
        ]
        result = self.function("tallies", ["event", "out"], body)
        return f"{stream}{window}.aggregate({', '.join(columns)}).flat_map({result}, Event)"

    def joined(self, streams: list[str]) -> str:
        """A join of two streams in any way, and a map that makes an event of few of the pairs."""
        r, number = self.r, len(self.records)
        key, word = ("word", f"{INDENT}word: text\n") if self.is_text else (r.choice(("a", "stream")), "")
        sides = []
        for stream, name, fields in zip(streams, ("Left", "Right"), ("bn", "mx"), strict=True):
            kinds = {"b": "u8", "n": "i16", "m": "i32", "x": "f64"}
            own = "".join(f"{INDENT}{field}: {kinds[field]}\n" for field in fields)
            integers = f"{INDENT}a: u8\n{INDENT}stream: u8\n" * (not self.is_text)
            self.records.append(f"@record\nclass {name}{number}:\n{INDENT}ts: i64\n{integers or word}{own}")
            taken = ("ts", *(("word",) if self.is_text else ("a", "stream")), *fields)
            emit = f"out.emit({', '.join(f'{field}=event.{field}' for field in taken)})"
            sides.append(f"{stream}.flat_map({self.function('sides', ['event', 'out'], [emit])}, {name}{number})")
        how = r.choice(("inner", "left", "full"))
        time = r.choice((f"within={r.choice((0, 1, 4, 30))}", f"ttl={r.choice((1, 3, 20))}", "ttl=None"))
        self.records.append(f"@record\nclass Few{number}:\n{INDENT}few: Array[u8, 3]\n")
        nullable = {"inner": "", "left": "mx", "full": "bnmx"}[how]
        body = [f"{field} = event.{field}" for field in "bnmx" if field not in nullable]
        body += [f"{field} = event.{field} if event.{field} is not None else -1" for field in nullable if field != "x"]
        body += [f"x = event.{field} if event.{field} is not None else 0.5" for field in nullable if field == "x"]
        values = "ts=event.ts, stream=1, a=b & 255, b=m & 255, n=n, m=m, x=x, p=x > 1"
        text = ", word=event.word" * self.is_text + self.gap("n if n % 3 else None")
        body += ["if (n + m) % 5 == 0:", f"{INDENT}out.emit({values}, few=row.few{text})"]
        event = self.function("pairs", ["event", "row", "out"], body)
        pairs = f"app.join({', '.join(sides)}, on={key!r}, how={how!r}, {time})"
        return f"{pairs}.flat_map({event}, Event, scratch=Few{number})"

    def invalid(self) -> list[str]:
        return [] if self.is_lasting else super().invalid()

    def lasting(self) -> tuple[str, str]:
        """As `stateful`, with a time to live, and maybe a timer, instead of a flush at the end."""
        r, self.is_lasting = self.r, True
        name, more = self.stateful()
        self.is_lasting = False
        if ", flush=" in more:
            more = more.partition(", flush=")[0]
            self.functions.pop()
        every = r.choice((1, 2, 5))
        more += f", ttl={every * r.choice((1, 3, 20))}"
        if r.random() < 0.7:
            self.records[-1] += f"{INDENT}timer: i64\n"
            head, body = self.functions[-1].split("\n", 1)
            self.functions[-1] = f"{head}\n{INDENT}row.timer = event.ts + event.b % 7 if event.a % 3 else 0\n{body}"
            word = ", word=key.word" * self.is_text + self.gap("row.gap")
            values = (
                "ts=ts, stream=row.times % 3, a=row.times & 255, b=row.few[0], n=1, m=2, x=1.5, p=True, few=row.few"
            )
            body = [f"out.emit({values}{word})", "if row.times % 3 == 0:", f"{INDENT}row.timer = ts + row.few[1] % 4"]
            more += f", timer={self.function('fires', ['ts', 'key', 'row', 'out'], body)}, every={every}"
        return name, more

    def with_others(self, name: str, others: list[str]) -> str:
        """The function of this name, which takes these states as well."""
        if others:
            self.functions[-1] = self.functions[-1].replace("(window, row, out)", f"(window, row, {others[0]}, out)")
        return name

    def source(self) -> str:
        r, lines, streams = self.r, ["stream0 = app.source(Event)"], ["stream0"]
        left, number_of = set(streams), r.randint(2, OPERATORS)
        windows_at = {r.randrange(1, number_of), *(n for n in range(1, number_of) if r.random() < 0.5)}
        for number in range(1, number_of):
            taken = [streams[-1] if r.random() < 0.7 else r.choice(streams)]
            taken += [r.choice(streams)] * (r.random() < 0.3)
            left -= set(taken)
            united = taken[0] + (f".union({taken[1]})" if taken[1:] else "")
            if number in windows_at and (r.random() < 0.25 or (len(taken) > 1 and r.random() < 0.5)):
                call = self.joined([taken[0], taken[-1]])
            elif number in windows_at and r.random() < 0.35:
                call = self.ready_made(united)
            elif number in windows_at:
                call = self.windowed(taken)
            elif r.random() < 0.7:
                name, more = self.stateless()
                call = f"{united}.flat_map({name}, Event{more})"
            else:
                name, more = self.lasting() if r.random() < 0.6 else self.stateful()
                key = '"word"' if self.is_text and "timer=" in more else self.key()
                call = f"{united}.key_by({key}).process({name}{more}, output=Event)"
            lines.append(f"stream{number} = {call}")
            streams.append(f"stream{number}")
            left.add(streams[-1])
        ends = sorted(left | {streams[-1]}, reverse=True)
        lines.append(f"{ends[0]}{f'.union({chr(44).join(ends[1:])})' if ends[1:] else ''}.sink()")
        records = "".join(f"\n\n{record}" for record in self.records)
        rest = "\n".join(lines) + "\napp.generates(lambda params, seed, start, stop: {})\n"
        return self.head() + records + "\n\n" + "".join(self.functions) + rest


def write(folder: Path, number: str, is_text: bool) -> Path:
    """Writes application `number` below `folder`; the file's path."""
    path = Path(folder) / f"windowing_{number}.py"
    path.write_text(Windowing(number, is_text).source())
    return path
