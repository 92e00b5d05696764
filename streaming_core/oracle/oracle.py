"""The sequential oracle: the result of a workload on one thread, one event at a time.

It runs the typed functions of an application (language/typed) in two ways, and neither shares code with the runtime or
its kernels. The interpreter (interpreter/) defines the meaning. The compiled loop (loop/) is for large workloads, where
the oracle checks it against the interpreter on a prefix. It is also the yardstick of speed: benchmarks compare many
cores with it.

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

from streaming_core import storage
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
# Counts of events that an operator drops or rejects, and of those too late for any window.
DROPPED = ("dropped_invalid", "dropped_late", "rejected")
_KEYS = {"address", "workload", "outputs", "output_digest", "state_digest", *DROPPED}
_PACKAGE = Path(__file__).parent.parent
# What the oracle shares with the kernels: declarations, and the form of results.
DECLARATIONS = tuple(path for name in ("language", "data") for path in sorted((_PACKAGE / name).rglob("*.py")))


@cache
def version() -> str:
    """Return the digest of the code that gives operators their meaning; it is part of a result's address."""
    return source_digest(Path(__file__).parent, *DECLARATIONS)


def source_digest(package: Path, *files: Path) -> str:
    """Return 16 hex digits over the paths and contents of a package's Python files, and the contents of other files."""
    content = hashlib.sha256(b"\0".join(path.read_bytes() for path in files))
    for path in sorted(package.rglob("*.py")):
        content.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return content.hexdigest()[:16]


def address(workload_manifest: workload.Manifest) -> str:
    """Return 16 hex digits over the workload's content and parameters, the application's code, the oracle's version."""
    assert workload_manifest["app"] is not None  # `workload.bound` binds an import to an application
    app = registry.load(workload_manifest["app"])
    return digest_of(
        {
            "app": app.name,
            "content": workload_manifest["content_digest"],
            "params": app.bind(workload_manifest["params"]),
            "code": registry.code_digest(app),
            "oracle": version(),
        }
    )


def run(
    workload_dir: Path | str,
    out_dir: Path | str,
    mode: str = "auto",
    app: App | None = None,
    params: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Compute the result of a workload; returns its manifest.

    Args:
        workload_dir: The folder of the workload.
        out_dir: The folder of the result. If it already holds this result, `run` does nothing.
        mode: interpreted; compiled; auto = interpreted up to 100,000 events, compiled beyond.
        app: The application. An import belongs to none; for a workload, None means its own.
        params: The parameters that differ from those of the workload, or from the defaults on an import.

    Raises:
        BadInput: No such mode, a missing or damaged workload, an invalid application, or an `out_dir` with other
            content.
        RunFailed: An operator raised (operator, event, error, file and line), or the compiled loop disagrees with the
            interpreter.
        CommandFailed: The disk is full, or fails.
    """
    check_mode(mode)
    source, out_dir = workload.read(Path(workload_dir), app, params), Path(out_dir)
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
                    "workload": {key: dict(source.manifest)[key] for key in keys},
                    "code_digest": registry.code_digest(source.app),
                }
                storage.write_json(folder / "manifest.json", storage.sealed(about | compute(source, folder, mode)))
    except OSError as error:
        raise refusal(error, f"cannot write the result to {out_dir}") from None
    return read_manifest(out_dir)


def check_mode(mode: str) -> None:
    """Raise BadInput unless the oracle has this mode."""
    if mode not in MODES:
        raise BadInput(unknown("mode", mode, MODES))


def read_manifest(directory: Path | str) -> dict[str, Any]:
    """Read the manifest of the result in `directory`.

    Raises:
        BadInput: The manifest is missing or damaged.
    """
    return storage.read_manifest(Path(directory), "oracle result", _KEYS, "oracle")


def compute(source: workload.Source, folder: Path, mode: str = "auto") -> dict[str, Any]:
    """Compute the outputs and final state of an application; returns their part of the manifest.

    Args:
        source: A workload, or a recording.
        folder: Gets outputs/ and state/.
        mode: As for `run`, which lists the errors, too.
    """
    started = time.perf_counter()
    app, params = source.app, source.manifest["params"]
    machine: Any = Interpreter(app, params)
    checked = 0
    blocks = ahead(source.blocks(_BLOCK))
    outputs = _Outputs(folder / "outputs", machine.output_schema, app)
    if mode == "compiled" or (mode == "auto" and source.rows > INTERPRETED):
        machine, checked, blocks = compiled(machine, params, source.end, blocks)
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
    """Return the counts that every pass of a run must report, by name.

    Args:
        manifest: The manifest of the oracle's result.
    """
    return {"outputs": manifest["outputs"]["rows"], **{count: manifest[count] for count in DROPPED}}


def compiled(interpreter: Interpreter, params: dict[str, Any], end: int, blocks: Iterator[pa.Table]) -> tuple:
    """Compile the loop, and compare it with the interpreter on the first events and the end of a stream behind them.

    Args:
        interpreter: A new interpreter.
        params: Its parameters.
        end: The seq behind the last event.
        blocks: All events; only the first ones are read.

    Returns:
        The loop in its initial state, the number of these events, and all blocks.
    """
    from streaming_core.oracle.loop import Loop

    name = interpreter.app.name
    loop, checked, behind = Loop(interpreter.app, params), 0, 0
    pending: list[pa.Table] = []
    for block in blocks:
        pending.append(block)
        first = block.slice(0, CHECKED - checked)
        checked += first.num_rows
        # The interpreter first, because its errors say more.
        compare(name, interpreter.process(first), loop.process(first), "outputs")
        if first.num_rows:
            behind = min(first["seq"][-1].as_py() + 1, end)
        if checked == CHECKED:
            break
    compare(name, interpreter.finish(behind), loop.finish(behind), "flushed outputs")
    expected, actual = interpreter.state(), loop.state()
    for table in expected:
        compare(name, expected[table], actual[table], f"state {table}")
    compare_counts(interpreter, loop)
    loop.reset()
    return loop, checked, _chain(pending, blocks)


def _chain(first: list[pa.Table], rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield from first
    yield from rest


def compare_counts(interpreter: Interpreter, loop: Any) -> None:
    """Raise RunFailed unless both have dropped and rejected as much."""
    for count in DROPPED:
        if getattr(interpreter, count) != getattr(loop, count):
            raise RunFailed(
                f"app {interpreter.app.name}: the compiled loop and the interpreter disagree on {count} after "
                f"{interpreter.events} events; this is a fault of Lockstep"
            )


def compare(app: str, interpreted: pa.Table, compiled: pa.Table, what: str) -> None:
    """Raise RunFailed, with the first row and column that differ, unless two tables are equal bit by bit."""
    wrong = comparison.columns(what, interpreted.schema, compiled.schema)
    if wrong := wrong or comparison.in_memory(what, interpreted, compiled).differences:
        line = wrong[0].lines()[0]
        raise RunFailed(
            f"app {app}: the compiled loop and the interpreter disagree; this is a fault of Lockstep: {line}"
        )


class _Outputs:
    """Writes output rows into part files, and adds up their digests: the complete one, and the one without order."""

    def __init__(self, folder: Path, schema: pa.Schema, app: App):
        self.app, self.writer = app, Writer(folder, schema)
        self.digest = self.unordered = (0, 0)

    def write(self, table: pa.Table) -> None:
        """Write rows, and add them to the digests."""
        if table.num_rows:
            self.digest = add(self.digest, outputs_digest(self.app, "total", table))
            if self.app.unordered is not None:
                self.unordered = add(self.unordered, outputs_digest(self.app, "none", table))
            self.writer.write(table)
