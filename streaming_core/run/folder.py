"""The folder of a run: one process uses it at a time, and it shows a run whole or not at all.

The process that runs holds a lock, which ends with it. It writes into `.run/` below the folder. When the run is done,
it moves outputs and state out, writes report.json, and removes `.run`, in this order. The next process returns the
report if there is one. Otherwise it removes the remains and starts again.

Runs with checkpoints keep their unfinished results in `.checkpoint/` instead (checkpoint.py).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from streaming_core import interruption, storage
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import BadInput, refusal
from streaming_core.language.application import App
from streaming_core.run import checkpoint
from streaming_core.run.checkpoint import PUBLISHED
from streaming_core.run.report import LOG, RunReport, read_report
from streaming_core.run.way import RunSpec

WORK = ".run"  # the unfinished results of a run without checkpoints


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Make this process the only one that uses the folder of a run during the block. Create the folder if necessary.

    Raises:
        BadInput: Another process uses the folder, or the folder cannot be written.
        CommandFailed: The disk is full, or fails.
    """
    storage.check_place(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = storage.Lock(out / ".lock")
        if not lock.take():
            raise BadInput(f"another run is using the folder {out}; wait for it, or choose a new folder")
        try:
            yield
        finally:
            lock.leave(remove=True)
    except OSError as error:
        raise refusal(error, f"cannot write run folder {out}") from None


@contextmanager
def held(spec: RunSpec, out: Path) -> Iterator[bool]:
    """Hold the folder of a run during the block; yield whether the run is already complete (`earlier_report`).

    Raises:
        BadInput: Another process uses the folder, or the folder cannot be written or belongs to another run.
        CommandFailed: The disk is full, or fails.
    """
    with locked(out):
        _claim(out, spec)
        yield (out / "report.json").exists()


def _claim(out: Path, spec: RunSpec) -> None:
    """Check that a folder belongs to this spec, and write spec.json into a new one.

    Raises:
        BadInput: The folder belongs to another spec, or holds other files.
    """
    names = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
    if (out / "spec.json").exists():
        other = RunSpec.parse((out / "spec.json").read_bytes())
        if other.spec_digest != spec.spec_digest:
            digests = f"{other.spec_digest}, requested {spec.spec_digest}"
            raise BadInput(f"{out} holds a run with other options ({digests}); choose a new folder")
    known = {"spec.json", LOG}
    if (out / "spec.json").exists():
        # A run moves its outputs out before it writes the report, so it may have ended between the two.
        if (out / "report.json").exists():
            known |= {*PUBLISHED, "report.json"}
        elif (out / (checkpoint.FOLDER if spec.checkpoint_interval else WORK)).exists():
            known |= {*PUBLISHED}
    if leftovers := [name for name in names if name not in known]:
        raise BadInput(f"{out} already holds {', '.join(leftovers)}; choose a new folder")
    storage.sweep_files(out)
    if not (out / "spec.json").exists():
        storage.write_json(out / "spec.json", spec.model_dump(mode="json"))


def earlier_report(out: Path, app: App, opened: workload.Workload, say: Callable[[str], None]) -> RunReport:
    """Read the report of an earlier run in this folder. Remove the remains of that run beside its results.

    Args:
        out: The folder, which `held` holds.
        app: The application.
        opened: The workload.
        say: Receives a line that says so.

    Raises:
        BadInput: The earlier run had another workload or another version of the code.
    """
    report = read_report(out)
    digests = report.code_digest, report.workload["content_digest"]
    if digests != (registry.code_digest(app), opened.manifest["content_digest"]):
        raise BadInput(f"{out} holds a run of another workload or another version of the code; choose a new folder")
    for name in (checkpoint.FOLDER, WORK):
        shutil.rmtree(out / name, ignore_errors=True)
    say(f"{out} already holds this run; nothing to do")
    return report


def run_anew(out: Path, passes: Callable[[Path], RunReport]) -> RunReport:
    """Run from the beginning, after removing the remains of a run that did not end; write the results into the folder.

    Args:
        out: The folder, which `held` holds.
        passes: Makes the passes. It writes PUBLISHED into the folder that it receives, which lasts as long as the run.
    """
    work = out / WORK
    if work.exists():  # removed last: while it exists, the published folders belong to no finished run
        for name in (*PUBLISHED, WORK):
            if (out / name).exists():
                shutil.rmtree(out / name)
    work.mkdir()
    storage.sync(out)
    try:
        report = passes(work)
        storage.sync_tree(work)
        interruption.check()
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    for name in PUBLISHED:
        if (work / name).exists():
            os.replace(work / name, out / name)
    storage.sync(out)
    storage.write_json(out / "report.json", report.model_dump(mode="json"))
    storage.sync(out)
    shutil.rmtree(work, ignore_errors=True)
    return report
