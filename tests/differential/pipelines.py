"""Writes random pipelines: DAGs of operators with and without state, by integers and by text, that flush or do not.

A stream is taken by any number of operators, an operator takes the union of any of one record type, and whatever nobody
takes reaches the sink. An application is drawn from a number; the same number gives the same one.
"""

import random
from pathlib import Path

HEAD = """
import numpy as np

from streaming_core.api import App, Ring, i64, record, text, u8

app = App("pipeline")


@record
class Line:
    key: u8
    value: i64
    word: text


@record
class Total:
    key: u8
    value: i64


@record
class State:
    n: i64
    sum: i64
    last: Ring[i64, 2]


@app.generates
def draw(params, seed, start, stop):
    mixed = (np.arange(start, stop) + seed).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return {
        "key": (mixed >> np.uint64(40)) % np.uint64(11),
        "value": ((mixed >> np.uint64(20)) % np.uint64(1009)).astype(np.int64),
        "word": [b"abcabcab"[n % 3 : n % 3 + n % 5] for n in (mixed >> np.uint64(50)).tolist()],
    }


events = app.source(Line)
"""
FLUSH = """
def {name}_flush(state, out):
    for i in range(state.n % {most}):
        out.emit(key=(state.n + i) % 256, value=state.sum - i)


"""
# By the record type taken: what an operator may be, what it puts out, and its function.
KINDS = {
    "Line": [
        ("flat_map", "Line", "for i in range(row.value % {most}):", "word=row.word[i : i + {size}]"),
        ("flat_map", "Total", "if row.value % {most} == 0:\n        out.drop()\n    if row.value % {size} != 1:", ""),
        ("word", "Total", "for i in range(state.n % {most}):", ""),
        ("word", "Line", "if state.sum % {size} != 1:", "word=row.word"),
    ],
    "Total": [
        ("flat_map", "Total", "for i in range(row.value % {most}):", ""),
        ("key", "Total", "for i in range(state.n % {most}):", ""),
        ("", "Total", "if state.sum % {size} != 1:", ""),
    ],
}


def operator(r: random.Random, name: str, taken: str) -> tuple[str, str, str]:
    """Source of a random operator on rows of type `taken`; how it is attached to a stream; its output's type."""
    key, made, when, more = r.choice(KINDS[taken])
    given = {"most": r.choice((2, 3, 5)), "size": r.randint(2, 4), "name": name}
    state, steps = "", []
    if key != "flat_map":
        state = "state, "
        steps = ["state.n += 1", f"state.sum = state.sum * {r.choice((3, 5, 31))} + row.value + len(state.last)"]
        steps += ["state.last.append(state.sum)"]
    index = "i" if when.startswith("for") else "0"
    value = "state.last[0]" if state else "row.value"
    body = [*steps, when.format(**given), f"    out.emit(key=(row.key + {index}) % 256, value={value} * 3 + {index}"]
    body[-1] += f", {more.format(**given)})" if more else ")"
    source = f"def {name}(row, {state}out):\n" + "".join(f"    {line}\n" for line in body) + "\n\n"
    if not state:
        return source, f".flat_map({name}, {made})", made
    flush = ""
    if made == "Total" and r.random() < 0.7:  # a state holds no text that could be flushed
        source, flush = source + FLUSH.format(**given), f", flush={name}_flush"
    by = f'.key_by("{key}")' if key else ""
    return source, f"{by}.process({name}, state=State, output={made}{flush})", made


def united(others: list[str]) -> str:
    """What makes a stream one with others."""
    return f".union({', '.join(others)})" if others else ""


def write(folder: Path, number: str) -> Path:
    """The application of this number, as a file."""
    r = random.Random(f"pipeline {number}")
    lines = [HEAD]
    streams = {"events": "Line"}  # by name, the type of its rows
    untaken: dict[str, str] = {}

    def attach(kind: str, taken: list[str]) -> None:
        name = f"operator{len(streams)}"
        source, attached, made = operator(r, name, kind)
        lines.append(f"\n\n{source}stream_{name} = {taken[0]}{united(taken[1:])}{attached}\n")
        for stream in taken:
            untaken.pop(stream, None)
        streams[f"stream_{name}"] = untaken[f"stream_{name}"] = made

    for _ in range(r.randint(3, 7)):
        kind = r.choice(sorted(set(streams.values())))
        known = [name for name, made in streams.items() if made == kind]
        attach(kind, r.sample(known, r.randint(1, min(3, len(known)))))
    while any(made == "Line" for made in untaken.values()) or not untaken:
        attach("Line", [name for name, made in untaken.items() if made == "Line"] or ["events"])
    ends = r.sample(sorted(untaken), len(untaken))
    lines.append(f"\n\n{ends[0]}{united(ends[1:])}.sink()\n")
    path = folder / f"pipeline_{number}.py"
    path.write_text("".join(lines))
    return path
