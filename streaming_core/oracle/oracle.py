"""The sequential oracle: what one thread, taking one event at a time, makes of a workload.

Two ways to run the same typed functions (language/typed, from whose trees no kernel is made), and neither shares code
with the runtime or its kernels: the interpreter (interpreter.py) is the meaning, the compiled loop (loop.py) is for
large workloads, where it is checked against the interpreter on a prefix, and for measuring: what many cores are worth
is told by how they compare with it.

A result is a folder: outputs/part-*.parquet sorted by (seq, sub), state/<table>.parquet sorted by key, and
manifest.json, written last.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming_core import generator, storage
from streaming_core.apps import registry
from streaming_core.data import comparison, workload
from streaming_core.data.agreement import outputs_digest, states_digest
from streaming_core.data.digest import add, digest_table, format_digest
from streaming_core.data.parts import Writer, ahead, write_states
from streaming_core.errors import BadInput, RunFailed, refusal, unknown
from streaming_core.language.application import App
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.storage import digest_of

MODES = ("auto", "interpreted", "compiled")
INTERPRETED = 100_000  # events up to which `auto` interprets all of them
CHECKED = 10_000  # events on which the compiled loop is compared with the interpreter
_BLOCK = 1 << 16  # events in memory at a time
# Events that an operator drops or rejects, and those that come too late for any window.
DROPPED = ("dropped_invalid", "dropped_late", "rejected")
_KEYS = {"address", "workload", "outputs", "output_digest", "state_digest", *DROPPED}
_LANGUAGE = Path(__file__).parent.parent / "language"
# What the oracle does not decide by itself: layouts and the one NaN, what names stand for, how streams lie in events,
# initial values, how integers wrap around, types.
DECLARATIONS = (
    *(_LANGUAGE / name for name in ("record.py", "source.py", "sources.py", "tables.py", "window.py", "wrapping.py")),
    *sorted((_LANGUAGE / "typed").glob("*.py")),
)


@cache
def version() -> str:
    """Digest of what gives operators their meaning here: another meaning, another address."""
    return source_digest(Path(__file__).parent, *DECLARATIONS)


def source_digest(package: Path, *files: Path) -> str:
    """16 hex digits over every Python file of a package, in subpackages too: its place and what is in it; and over what
    is in some files beside it."""
    content = hashlib.sha256(b"\0".join(path.read_bytes() for path in files))
    for path in sorted(package.rglob("*.py")):
        content.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return content.hexdigest()[:16]


def address(workload_manifest: dict[str, Any]) -> str:
    """16 hex digits: the workload's content and parameters, the application's code, the oracle's version.

    The generator's version too: what the workload holds is said by its content, but constants are made like workloads.
    """
    app = registry.load(workload_manifest["app"])
    return digest_of(
        {
            "app": app.name,
            "content": workload_manifest["content_digest"],
            "params": app.bind(workload_manifest["params"]),
            "code": [registry.code_digest(app), generator.version()],
            "oracle": version(),
        }
    )


def run(workload_dir: Path | str, out_dir: Path | str, mode: str = "auto") -> dict[str, Any]:
    """Computes the result of the workload in `workload_dir` into `out_dir`; returns its manifest.

    An `out_dir` that holds this result already is left as it is.

    Args:
        mode: interpreted; compiled; auto = interpreted up to 100,000 events, compiled beyond.

    Raises:
        BadInput: no such mode, a workload that is missing or damaged, an application that keeps not to the language,
            or an `out_dir` that holds something else.
        RunFailed: an operator raised (operator, event, error, file and line), or the compiled loop disagrees with the
            interpreter.
        CommandFailed: the disk is full, or fails.
    """
    check_mode(mode)
    source, out_dir = workload.read(Path(workload_dir)), Path(out_dir)
    requested = address(source.manifest)
    try:
        with storage.held(out_dir):
            if out_dir.exists() and (not out_dir.is_dir() or any(out_dir.iterdir())):
                manifest = read_manifest(out_dir)
                if manifest["address"] != requested:
                    raise BadInput(
                        f"{out_dir} holds another result ({manifest['address']}, requested {requested}); "
                        "choose a new folder"
                    )
                return manifest
            with storage.appearing(out_dir) as folder:
                keys = ("address", "content_digest", "events", "seed", "params")
                about = {
                    "address": requested,
                    "app": source.app.name,
                    "workload": {key: source.manifest[key] for key in keys},
                    "code_digest": registry.code_digest(source.app),
                }
                storage.write_json(folder / "manifest.json", about | compute(source, folder, mode))
    except OSError as error:
        raise refusal(error, f"cannot write the result to {out_dir}") from None
    return read_manifest(out_dir)


def check_mode(mode: str) -> None:
    """Raise BadInput unless the oracle has this mode."""
    if mode not in MODES:
        raise BadInput(unknown("mode", mode, MODES))


def read_manifest(directory: Path | str) -> dict[str, Any]:
    """The manifest of the result in `directory`.

    Raises:
        BadInput: there is none, or it is damaged.
    """
    return storage.read_manifest(Path(directory), "oracle result", _KEYS, "oracle")


def compute(source: workload.Source, folder: Path, mode: str = "auto") -> dict[str, Any]:
    """What `source.app` makes of the events, into outputs/ and state/ of `folder`; returns what is to be said of it.

    Args:
        source: a workload, or a recording.
        mode: as for `run`; raises as it does.
    """
    started = time.perf_counter()
    app, params = source.app, source.manifest["params"]
    machine: Any = Interpreter(app, params)
    checked = 0
    blocks = ahead(source.blocks(_BLOCK))
    outputs = _Outputs(folder / "outputs", machine.output_schema, app)
    if mode == "compiled" or (mode == "auto" and source.rows > INTERPRETED):
        machine, checked, blocks = _compiled(source, machine, blocks)
    with outputs.writer:
        for events in blocks:
            outputs.write(machine.process(events))
        outputs.write(machine.finish(source.end))
    state = machine.state()
    write_states(folder, state)
    if machine.events != source.rows:
        raise RunFailed(f"the oracle must read {source.rows} events, but read {machine.events}")
    seconds = time.perf_counter() - started
    return {
        "oracle": version(),
        "mode": "interpreted" if isinstance(machine, Interpreter) else "compiled",
        "checked_events": checked,
        "outputs": {"rows": outputs.digest[0], "digest": format_digest(*outputs.digest)},
        "state": {
            name: format_digest(*digest_table(table, ("key",) if "key" in table.column_names else ()))
            for name, table in state.items()
        },
        "output_digest": format_digest(*outputs.digest),
        "state_digest": states_digest(app, "total", state),
        "unordered": app.unordered
        and {
            "columns": app.unordered.columns,
            "states": app.unordered.states,
            "output_digest": format_digest(*outputs.unordered),
            "state_digest": states_digest(app, "none", state),
        },
        **{count: getattr(machine, count) for count in DROPPED},
        "seconds": seconds,
    }


def expected_counts(manifest: dict[str, Any]) -> dict[str, int]:
    """What every pass of a run must count, by the name of the count in its report: outputs, dropped events, others.

    Args:
        manifest: The oracle's.
    """
    return {"outputs": manifest["outputs"]["rows"], **{count: manifest[count] for count in DROPPED}}


def _compiled(source: workload.Source, interpreter: Interpreter, blocks: Iterator[pa.Table]) -> tuple:
    """The compiled loop, in its initial state, after it agreed with the interpreter on what the first events come to,
    to the end of a stream that ends behind them; how many events these were; all blocks."""
    from streaming_core.oracle.loop import Loop

    loop, checked = Loop(source.app, source.manifest["params"]), 0
    name, end = source.app.name, 0
    pending: list[pa.Table] = []
    for block in blocks:
        pending.append(block)
        first = block.slice(0, CHECKED - checked)
        checked += first.num_rows
        # The interpreter first: of an error, it says what it means.
        compare(name, interpreter.process(first), loop.process(first), "outputs")
        if first.num_rows:
            end = min(first["seq"][-1].as_py() + 1, source.end)
        if checked == CHECKED:
            break
    compare(name, interpreter.finish(end), loop.finish(end), "flushed outputs")
    expected, actual = interpreter.state(), loop.state()
    for table in expected:
        compare(name, expected[table], actual[table], f"state {table}")
    for count in DROPPED:
        if getattr(interpreter, count) != getattr(loop, count):
            raise RunFailed(
                f"app {name}: the compiled loop and the interpreter disagree on {count} after {checked} events; "
                "this is a fault of Lockstep"
            )
    loop.reset()
    return loop, checked, _chain(pending, blocks)


def _chain(first: list[pa.Table], rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield from first
    yield from rest


def compare(app: str, interpreted: pa.Table, compiled: pa.Table, what: str) -> None:
    """Raises RunFailed, which names the first row and column, unless the two tables have the same rows, bit by bit."""
    wrong = comparison.columns(what, interpreted.schema, compiled.schema)
    if wrong := wrong or comparison.in_memory(what, interpreted, compiled).differences:
        line = wrong[0].lines()[0]
        raise RunFailed(
            f"app {app}: the compiled loop and the interpreter disagree; this is a fault of Lockstep: {line}"
        )


class _Outputs:
    """Output rows into part files, and their digests: all there is to them, and what agrees without order."""

    def __init__(self, folder: Path, schema: pa.Schema, app: App):
        self.app, self.writer = app, Writer(folder, schema)
        self.digest = self.unordered = (0, 0)

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self.digest = add(self.digest, outputs_digest(self.app, "total", table))
            if self.app.unordered is not None:
                self.unordered = add(self.unordered, outputs_digest(self.app, "none", table))
            self.writer.write(table)
