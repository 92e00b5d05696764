"""Recordings: the input rows of one operator of an application, in order, so that a replay can run it alone.

A recording holds the outputs of the application cut off in front of the operator (App.upto). Any way of executing that
keeps total order can make it, and so can the oracle. Each row has the `seq` of the event that caused it, and `sub`, its
number among the rows of that event. Rows that a flush sends to the operator come last, with the seq of the end of the
stream. They precede the operator's own flush.

A recording is a folder: rows/part-*.parquet with seq, sub and the record's fields, and manifest.json, written last.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from streaming_core import storage
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.arrow import to_arrow
from streaming_core.data.digest import add, digest_table, format_digest
from streaming_core.data.parts import Parts, Writer, ahead
from streaming_core.errors import BadInput, refusal
from streaming_core.kernels.program import Program, compile_app
from streaming_core.language.application import App
from streaming_core.oracle import oracle
from streaming_core.run import one_pass, provenance
from streaming_core.run.blocks import BLOCK, Blocks, block_size
from streaming_core.run.one_pass import PassRequest, Progress
from streaming_core.run.way import Pinned, RunSpec

_KEYS = {"app", "operator", "params", "workload", "code_digest", "content_digest", "rows", "end", "by", "parts"}


# --- writing ---------------------------------------------------------------------------------------------------------


def record(
    source: workload.Workload,
    operator: str,
    out: Path,
    spec: RunSpec,
    program: Program | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Record the input of an operator while the application runs over a workload.

    Only the operators in front of it run, on the threads of their plan, with the reconfigurations of their schedule.
    The input of the first operators and of transactions is the events, for every way of executing.

    Args:
        source: The workload.
        operator: The operator.
        out: The folder of the recording.
        spec: The way of executing.
        program: The program of the application, if it is compiled already.
        progress: Receives the progress of the pass.

    Returns:
        The manifest.

    Raises:
        BadInput: There is no such operator, or it has several streams that are not the sources. Or the application
            does not run this way, or without order. Or `out` is not empty.
        RunFailed: An operator in front failed.
        CommandFailed: The disk is full, or fails.
    """
    app, params = source.app, source.manifest["params"]
    part = app.upto(operator)
    spec.check(app)
    if spec.order != "total":
        raise BadInput(f"a recording needs total order, which {spec.option('channel') or spec.executor} does not keep")

    def write(folder: Path) -> str:
        compiled = program.part(part) if program else compile_app(part, params)
        way = within(spec, {"sink", *(o.name for o in part.operators)})
        blocks = Blocks(replace(source, app=part), compiled, block_size(way), keep=0)
        sample, _, _ = one_pass.run(
            way,
            compiled,
            blocks,
            PassRequest("verified", sink="parquet", folder=folder, progress=progress, exports_state=False),
        )
        return sample.digest

    by = {"spec": spec.model_dump(mode="json"), "build": provenance.build()}
    return _write(source, operator, part, Path(out), by, write)


def within(spec: RunSpec, names: set[str]) -> RunSpec:
    """The spec with only these operators in its plan and its schedule: the runtime does not know the others.

    Raises:
        BadInput: The plan is not known before the run.
    """
    if not isinstance(spec, Pinned):
        return spec
    if spec.needs_plan:
        raise BadInput("a recording does not support plan auto; set a plan file, or plan replicated")
    planned = {name: at for name, at in spec.threads_of_operators.items() if name in names}
    scheduled = []
    for at in spec.schedule:
        if owners := {name: pattern for name, pattern in at.owners.items() if name in names}:
            scheduled.append(at.model_copy(update={"owners": owners}))
    return spec.model_copy(update={"plan": planned, "schedule": scheduled})


def record_oracle(source: workload.Workload, operator: str, out: Path, mode: str = "auto") -> dict[str, Any]:
    """Record the input of an operator from the oracle; otherwise as `record`.

    Args:
        source: The workload.
        operator: The operator.
        out: The folder of the recording.
        mode: As for `oracle.run`.
    """
    part = source.app.upto(operator)
    oracle.check_mode(mode)

    def write(folder: Path) -> str:
        return oracle.compute(replace(source, app=part), folder, mode)["output_digest"]

    return _write(source, operator, part, Path(out), {"oracle": oracle.version(), "mode": mode}, write)


def _write(
    source: workload.Workload, operator: str, part: App, out: Path, by: dict, write: Callable[[Path], str]
) -> dict[str, Any]:
    """Make the folder and its manifest. `write` fills a folder with outputs/, and returns the digest of the outputs."""
    if len(part.operators) == 2:
        write = _events(source, len(part.operators[-1].inputs))
    try:
        with storage.held(out):
            check_out(out)
            with storage.appearing(out) as folder:
                digest = write(folder)
                os.rename(folder / "outputs", folder / "rows")
                shutil.rmtree(folder / "state", ignore_errors=True)
                rows = Parts.of(folder / "rows")
                keys = ("address", "content_digest", "events", "seed", "params")
                about = {
                    "app": source.app.name,
                    "operator": operator,
                    "params": source.manifest["params"],
                    "workload": {key: dict(source.manifest)[key] for key in keys},
                    "code_digest": registry.code_digest(source.app),
                    "content_digest": digest,
                    "rows": int(digest.partition(":")[0]),
                    "end": source.end,
                    "by": by,
                    "parts": [
                        {"file": f"rows/{path.name}", "rows": size}
                        for path, size in zip(rows.paths, rows.sizes, strict=True)
                    ],
                }
                manifest = storage.sealed(about)
                storage.write_json(folder / "manifest.json", manifest)
    except OSError as error:
        raise refusal(error, f"cannot write the recording to {out}") from None
    return manifest


def _events(source: workload.Workload, times: int) -> Callable[[Path], str]:
    """Make the writer for an operator whose input is the events, each so many times."""

    def write(folder: Path) -> str:
        schema = source.app.event.resolve(source.manifest["params"]).arrow(("seq", "sub"))
        digest = (0, 0)
        with Writer(folder / "outputs", schema) as files:
            for events in ahead(source.blocks(BLOCK)):
                rows = events.take(to_arrow(np.repeat(np.arange(events.num_rows), times)))
                rows = rows.add_column(1, schema.field("sub"), to_arrow(np.tile(np.arange(times), events.num_rows)))
                files.write(rows)
                digest = add(digest, digest_table(rows, ("seq", "sub")))
        return format_digest(*digest)

    return write


def check_out(out: Path) -> None:
    """Raise BadInput unless the folder is new or empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} already exists; choose a new or empty folder")


# --- reading ---------------------------------------------------------------------------------------------------------


def is_recording(directory: Path) -> bool:
    """Whether the folder has the manifest of a recording, and not that of a workload or an oracle."""
    try:
        return "operator" in json.loads((directory / "manifest.json").read_text())
    except (OSError, ValueError, TypeError):
        return False


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of the recording in `directory`.

    Raises:
        BadInput: It is missing or damaged.
    """
    return storage.read_manifest(directory, "recording", _KEYS, "record")


class Recording(workload.Source):
    """An open recording. It is the workload of `app`, the operator alone (App.only)."""

    kind, leading, consecutive = "recording", ("seq", "sub"), False

    @property
    def operator(self) -> str:
        """The operator's name."""
        return self.manifest["operator"]


def read(directory: Path, app: App | None = None) -> Recording:
    """Open a recording.

    Args:
        directory: Its folder.
        app: Its application, if the registry does not have it.

    Raises:
        BadInput: There is no recording, or one of other code. Or a part is missing or truncated, or has other columns
            than the operator's input.
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    app = app or registry.load(manifest["app"])
    if manifest["code_digest"] != (code := registry.code_digest(app)):
        raise BadInput(
            f"recording {directory} has another version of {app.name} (code {manifest['code_digest']}, now {code}); "
            "record it again"
        )
    manifest = {**manifest, "params": app.bind(manifest["params"])}
    recording = Recording(directory, manifest, app.only(manifest["operator"]))
    recording.check_parts()
    return recording
