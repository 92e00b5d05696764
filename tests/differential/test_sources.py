"""Random applications of several sources with windows over them: by hand, interpreted, in the loop and by the engine.

A number determines the streams, the fields and types of their records, their density and their silences. Streams may
share columns, or need columns of their own. The number also determines the windows and their functions.
"""

import importlib.util
import random
import sys

import pyarrow as pa
import pytest

from streaming_core.data import workload
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from tests.differential.windows import check_executed
from tests.support import by_hand

EVENTS = 400
HEAD = '''"""Drawn."""
import numpy as np

from streaming_core.api import App, Array, Param, Queue, boolean, f64, i32, i64, record, rolling, sliding, text, u8
from streaming_core.generator import Draws

app = App("drawn", params={"every": Param(3)})
p = app.params


@record
class Kept:
    ts: i64


@record
class State:
    n: i64
    total: i64
    rows: Queue[Kept]


@record
class Key:
    k: i64
    word: text


@record
class Output:
    ts: i64
    stream: i64
    key: i64
    n: i64
    total: i64


def purge(rows, start):
    while len(rows) > 0 and rows[0].ts < start:
        rows.popleft()

'''
FIELDS = {
    "price": ("i64", "f64", "u8"),
    "line": ("text",),
    "parts": ("Array[u8, 3]", "Array[i32, 2]"),
    "is_on": ("boolean",),
    "amount": ("i32", "i64"),
}
# What an operator makes of a field, and a generator, by its type.
SEEN = {"f64": "int({})", "text": "len({})", "Array[u8, 3]": "{}[2]", "Array[i32, 2]": "{}[1]", "boolean": "int({})"}
DRAWS = {
    "i64": "draws.below({d}, 99) - 50",
    "i32": "draws.below({d}, 99) - 50",
    "u8": "draws.below({d}, 256)",
    "f64": "(draws.below({d}, 99) - 50) / 4",
    "text": "[b'abcdefgh'[:n] for n in draws.below({d}, 9).tolist()]",
    "boolean": "draws.chance({d}, 0.4)",
    "Array[u8, 3]": "np.stack([draws.below({d}, n) for n in (2, 3, 250)], 1)",
    "Array[i32, 2]": "np.stack([-draws.below({d}, n) for n in (2, 99)], 1)",
}
KEYS = {"field": '"k"', "every": 'every="every"', "record": "Key, keys=({keys})"}


def stream(r, name, states, number, keys, limit, emits):
    """A record, its generator and its functions."""
    chosen = r.sample(list(FIELDS), r.randint(0, len(FIELDS)))
    if emits and keys == "record" and "line" not in chosen:
        chosen.append("line")  # without it its rows have no keys
    fields = {field: r.choice(FIELDS[field]) for field in chosen}
    value = " + ".join(["row.k", *(SEEN.get(kind, "{}").format(f"row.{field}") for field, kind in fields.items())])
    key = {"field": "window.key.k", "every": "window.key.index", "record": "window.key.k + len(window.key.word)"}[keys]
    lines = ["", "@record", f"class {name}:", "    ts: i64", "    k: i64"]
    lines += [f"    {field}: {kind}" for field, kind in fields.items()]
    if keys == "record":
        word = "row.line[0:1]" if "line" in fields else None
        lines += ["", "", f"def keys_{number}(row, keys):"]
        lines += (
            [f"    keys.add(k=row.k, word={word})", f"    keys.add(k={number}, word=row.line)"]
            if word
            else ["    pass"]
        )
    mine = f"s{number}"
    lines += ["", "", f"def update_{number}(row, window, {states}, out):"]
    lines += [f"    purge({s}.rows, window.start)" for s in states.split(", ")]
    lines += [f"    {mine}.n += 1", f"    {mine}.total += {value}", f"    {mine}.rows.append(ts=row.ts)"]
    if emits or r.random() < 0.6:
        values = f"n=len({r.choice(states.split(', '))}.rows), total={value}"
        lines += [f"    if row.k != {r.randint(0, 3)}:"]
        lines += [f"        out.emit(ts=window.end, stream={number}, key={key}, {values})"]
    burst, gap, begins = r.choice([1, 1, 4]), r.choice([0, 1, 3, 40]), r.randint(-20, 20)
    lines += ["", "", f"def rows_{number}(params, seed, start, stop):"]
    lines += [f"    row = np.arange(min(start, {limit}), min(stop, {limit}))"]
    lines += [f"    draws = Draws(seed, 'drawn.{name}', units=row)"]
    lines += [
        f"    ts = {begins} + row // {burst} * {gap}" + (f" + draws.below(0, {gap})" if gap and burst == 1 else "")
    ]
    entries = [f'"{field}": {DRAWS[kind].format(d=2 + i)}' for i, (field, kind) in enumerate(fields.items())]
    lines += ["    return {" + ", ".join(['"ts": ts', '"k": draws.below(1, 4)', *entries]) + "}", ""]
    return "\n".join(lines)


def written(number):
    """The application of that number."""
    r = random.Random(number)
    count, keys, kind = r.randint(2, 4), r.choice(list(KEYS)), r.choice(["multi", "multi", "single"])
    names = r.sample(["Left", "Right", "Third", "Other"], count)
    states = ", ".join(f"s{i}" for i in range(count))
    endless = r.randrange(count)
    limits = [EVENTS if i == endless else r.choice([0, 5, 60, EVENTS]) for i in range(count)]
    parts = [stream(r, name, states, i, keys, limits[i], i == endless) for i, name in enumerate(names)]
    advance = r.randint(1, 9)
    size = advance + r.choice([0, 7, 33])
    windows = [f"{'rolling' if kind == 'single' else 'sliding'}({size}, every={advance})"]
    declared_keys = [KEYS[keys].format(keys=", ".join(f"keys_{i}" for i in range(count)))]
    updates = ", ".join(f"update_{i}" for i in range(count))
    functions = [f"state=({'State, ' * count}), update=({updates}), output=Output"]
    if kind == "multi":
        key = "window.key.index" if keys == "every" else "window.key.k"
        parts.append(
            f"\ndef told(window, {states}, out):\n"
            f"    out.emit(ts=window.end, stream=-1, key={key}, n=len(s0.rows), total=s{count - 1}.total)\n\n"
        )
        functions.append("result=told")
        windows.append(f"delay={r.choice([0, 0, 30])}")
        declared_keys.append(f"multiplicity={r.choice(['set', 'bag'])!r}")
    generators = ", ".join(f"rows_{i}" for i in range(count))
    keyed = f"\nkeyed = app.connect(*app.sources({', '.join(names)})).key_by({', '.join(declared_keys)})"
    applied = f"keyed.window({', '.join(windows)}).apply({', '.join(functions)}).sink()"
    return HEAD + "\n".join([*parts, keyed, applied, f"app.generates({generators})\n"])


def agree(app, seed):
    """Compare all machines over the first events; returns the outputs."""
    params = app.check().bind()
    table = workload.generate_chunk(app, params, EVENTS, seed, 0, EVENTS)
    interpreter, loop = Interpreter(app, params), Loop(app, params)
    output = pa.concat_tables([interpreter.process(table), interpreter.finish(EVENTS)])
    compare(app.name, output, by_hand.run(app, params, table).output_table(), "outputs by hand")
    parts = [loop.process(table[:77]), loop.process(table[77:]), loop.finish(EVENTS)]
    compare(app.name, output, pa.concat_tables(parts), "outputs")
    assert loop.dropped_late == interpreter.dropped_late
    check_executed(app, params, table, output, interpreter.dropped_late)
    return output


@pytest.mark.parametrize("number", [n if n == 6 else pytest.param(n, marks=pytest.mark.slow) for n in range(12)])
@pytest.mark.slow
def test_random_application_agrees_on_every_machine(number, tmp_path, monkeypatch):
    file = tmp_path / f"drawn_{number}.py"
    file.write_text(written(number))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    spec.loader.exec_module(module)
    assert agree(module.app, number).num_rows > 0
