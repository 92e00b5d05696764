"""The folder of a run: one process uses it at a time, and it shows a run whole or not at all.

The process that runs holds a lock, which ends with it. It writes into `.run/` below the folder:

    .run/outputs/         closed parts, and one that is being written
    .run/checkpoints/     the checkpoints (checkpoint/)
    .run/state/           final state, after the last event

When the run is done, it moves outputs and state out, writes report.json, and removes `.run`, in this order. The next
process returns the report if there is one. Otherwise it moves the published folders back, and resumes from the newest
sound checkpoint, or without one starts again. The run that resumes may execute the application in another way.
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
from streaming_core.run.checkpoint import file
from streaming_core.run.report import LOG, RunReport, read_report
from streaming_core.run.way import External, RunSpec

WORK = ".run"  # the unfinished results
CHECKPOINTS = "checkpoints"
PUBLISHED = ("outputs", "state", "rerun")  # the folders that a run may leave
# The fields of a spec that decide the results, so that a run which resumes has the same.
RESULT = ("app", "params", "order", "sink")


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
    """Check that a folder is new or belongs to a run with the same result, and write its spec.json.

    Raises:
        BadInput: The folder belongs to another run, or holds other files.
    """
    names = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
    other = RunSpec.parse((out / "spec.json").read_bytes()) if (out / "spec.json").exists() else spec
    if other.spec_digest != spec.spec_digest:
        _compare(out, spec, other)
    known = {"spec.json", LOG}
    if (out / "spec.json").exists():
        # A run moves its outputs out before it writes the report, so it may have ended between the two.
        if (out / "report.json").exists():
            known |= {*PUBLISHED, "report.json"}
        elif (out / WORK).exists():
            known |= {*PUBLISHED}
    if leftovers := [name for name in names if name not in known]:
        raise BadInput(f"{out} already holds {', '.join(leftovers)}; choose a new folder")
    storage.sweep_files(out)
    if other.spec_digest != spec.spec_digest or not (out / "spec.json").exists():
        storage.write_json(out / "spec.json", spec.model_dump(mode="json"))


def _compare(out: Path, spec: RunSpec, other: RunSpec) -> None:
    """Raise BadInput unless a run of this spec may resume one of another spec in this folder."""
    if (out / "report.json").exists() or isinstance(spec, External) or isinstance(other, External):
        digests = f"{other.spec_digest}, requested {spec.spec_digest}"
        raise BadInput(f"{out} holds a run with other options ({digests}); choose a new folder")
    for name in RESULT:
        if (before := getattr(other, name)) != (now := getattr(spec, name)):
            raise BadInput(f"{out} holds a run with {name} {before}, requested {now}; choose a new folder")
    if spec.is_bound or other.is_bound:
        scheme = other.option("scheme")
        raise BadInput(f"{out} holds a run with scheme {scheme}, whose results differ; choose a new folder")


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
    shutil.rmtree(out / WORK, ignore_errors=True)
    say(f"{out} already holds this run; nothing to do")
    return report


def run_in(out: Path, passes: Callable[[Path], RunReport], resumes: bool = False) -> RunReport:
    """Run in the folder of the unfinished results, and publish the results when the run is done.

    Args:
        out: The folder, which `held` holds.
        passes: Makes the passes. It writes PUBLISHED into the folder that it receives.
        resumes: Whether that folder still has what a killed run left. Otherwise it is empty.
    """
    work = out / WORK
    if work.exists():  # while it exists, the published folders belong to no finished run
        for name in PUBLISHED:
            if (out / name).exists():
                os.replace(out / name, work / name)
        if not resumes:
            shutil.rmtree(work)
    work.mkdir(exist_ok=True)
    storage.sync(out)
    try:
        report = passes(work)
        storage.sync_tree(work)
        interruption.check()
    except BaseException:
        if not file.paths(work / CHECKPOINTS):
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
