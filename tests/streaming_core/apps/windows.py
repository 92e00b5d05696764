"""Runs windowed applications in ways that must agree, and derives windows from their definition."""

import pyarrow as pa

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.interpreter.windows import key_group
from streaming_core.oracle.loop import Loop
from tests.support import by_hand


def run(name, params, rows=None, events=600, seed=3):
    """Runs rows (dicts without seq) by hand and in the interpreter, and generated events also in the loop."""
    app = registry.load(name)
    params = app.bind(params)
    oracles = (Interpreter, Loop) if rows is None else (Interpreter,)  # each loop takes seconds to compile
    if rows is None:
        table = workload.generate_chunk(app, params, events, seed, 0, events)
    else:
        schema = workload.schema(app, params)
        numbered = [{**dict.fromkeys(schema.names, 7), **row, "seq": i} for i, row in enumerate(rows)]
        table = pa.Table.from_pylist(numbered, schema)
    result = by_hand.run(app, params, table)
    wanted = result.output_table()
    for oracle in (make(app, params) for make in oracles):
        cut = table.num_rows // 3
        parts = [oracle.process(table[:cut]), oracle.process(table[cut:]), oracle.finish(table.num_rows)]
        assert pa.concat_tables(parts).equals(wanted)
        assert oracle.dropped_late == 0
        assert oracle.state() == {}
    return table.to_pylist(), result


def windows_of(events, params, keys_of):
    """(seq, end, key, its events in the window) of each window of a key, in the order in which they expire.

    Args:
        keys_of: the keys of an event as tuples; the event counts twice for a repeated key.
    """
    advance, size = params["advance"], params["size"]
    windows = {}  # (start, key) -> events, as they were first touched
    for event in events:
        latest = event["ts"] // advance * advance
        for start in range(latest - size // advance * advance, latest + 1, advance):
            if start <= event["ts"] < start + size:
                for key in keys_of(event):
                    windows.setdefault((start, key), []).append(event)
    place = {key: n for n, key in enumerate(windows)}
    ordered = sorted(windows, key=lambda at: (at[0], key_group(at[1]), place[at]))
    after = {s: next((e["seq"] for e in events if e["ts"] >= s + size), len(events)) for s in {s for s, _ in windows}}
    return [(after[start], start + size, key, windows[start, key]) for start, key in ordered]
