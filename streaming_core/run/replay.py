"""Replays: one operator alone on its recorded input, on one thread, checked against the oracle.

The times cover the kernel and finding the state of a row. They exclude handing rows on (profile.py).
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streaming_core.data.parts import Parts
from streaming_core.data.rows import row_bytes, text_fields
from streaming_core.errors import BadInput, RunFailed, refusal
from streaming_core.kernels.program import Program, compile_app
from streaming_core.language.record import Resolved
from streaming_core.oracle import oracle
from streaming_core.run import comparison, one_pass, recording
from streaming_core.run.blocks import BLOCK, Blocks, block_size
from streaming_core.run.one_pass import PassRequest, Progress
from streaming_core.run.recording import Recording
from streaming_core.run.report import Sample
from streaming_core.run.way import RunSpec, executors_of
from streaming_core.storage import atomic_directory, write_json


@dataclass(frozen=True)
class Replayed:
    """The measurements of one operator on one thread.

    Attributes:
        app: The application.
        operator: The operator.
        kind: The kind of the operator.
        rows_in: Rows that entered, with those of the end of the stream.
        rows_out: Rows that left.
        ns_per_row: Nanoseconds per row that entered, without flushing; the median of the repetitions. None: no rows.
        bytes_in: Mean bytes of a row that entered, with its text. None: no rows.
        bytes_out: Mean bytes of a row that left. None: no rows.
        keys: Distinct keys of a partitioned operator, else None.
    """

    app: str
    operator: str
    kind: str
    rows_in: int
    rows_out: int
    ns_per_row: float | None
    bytes_in: float | None
    bytes_out: float | None
    keys: int | None

    @property
    def selectivity(self) -> float | None:
        """Rows that left per row that entered; None if there are no rows."""
        return self.rows_out / self.rows_in if self.rows_in else None

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self) | {"selectivity": self.selectivity}


def replay(
    source: Recording,
    repetitions: int = 5,
    out: Path | None = None,
    program: Program | None = None,
    progress: Progress | None = None,
) -> Replayed:
    """Run an operator alone on its recorded input, compare the result with the oracle's, and measure the operator.

    Args:
        source: The recording.
        repetitions: Measured passes, at least 1.
        out: Folder for outputs/ and state/ of the operator, and manifest.json. Outputs have the seq of the event that
            caused them, and `sub` counts the operator's outputs of that event.
        program: The program of the whole application, if it is compiled already.
        progress: Receives the progress of each pass.

    Raises:
        BadInput: The recording is damaged, there are no repetitions, or `out` is not empty.
        RunFailed: The operator failed, or the result differs from the oracle's; the line names the first difference.
            Then nothing is written.
    """
    if repetitions < 1:
        raise BadInput(f"--repetitions must be at least 1, got {repetitions}")
    if out is not None:
        recording.check_out(Path(out))
    app, params = source.app, source.manifest["params"]
    program = program.part(app) if program else compile_app(app, params)
    spec = RunSpec.parse({"app": app.name, "executor": executors_of(app.kind)[0], "threads": 1})
    blocks = Blocks(source, program, block_size(spec))
    try:
        with atomic_directory(Path(out)) if out else tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            first, state, _ = one_pass.run(
                spec, program, blocks, PassRequest("verified", sink="parquet", folder=folder, progress=progress)
            )
            _verify(source, first, folder)
            seconds = []
            for number in range(repetitions):
                sample, _, _ = one_pass.run(
                    spec,
                    program,
                    blocks,
                    PassRequest("peak", number + 1, "count", progress=progress, exports_state=False),
                )
                if sample.outputs != first.outputs:
                    raise RunFailed(
                        f"operator {source.operator}: two passes have different numbers of outputs: "
                        f"{first.outputs} and {sample.outputs}"
                    )
                seconds.append(sample.breakdown["useful"])
            operator = app.operators[-2]  # the operators in front of it make its streams
            replayed = Replayed(
                app=app.name,
                operator=source.operator,
                kind=operator.kind,
                rows_in=source.rows,
                rows_out=first.outputs,
                ns_per_row=statistics.median(seconds) * 1e9 / source.rows if source.rows else None,
                bytes_in=_bytes(source.directory / "rows", program.bound.event, source.rows),
                bytes_out=_bytes(folder / "outputs", program.bound.output, first.outputs),
                keys=state[operator.name].num_rows if operator.kind == "partitioned" else None,
            )
            about = {key: source.manifest[key] for key in ("workload", "code_digest", "content_digest")}
            about = {"profile": replayed.as_dict(), "output_digest": first.digest, "recording": about}
            write_json(folder / "manifest.json", about)
    except OSError as error:
        raise refusal(error, "cannot write the replay") from None
    return replayed


def _verify(source: Recording, sample: Sample, folder: Path) -> None:
    """Raise RunFailed unless the results in `folder` equal those of the oracle."""
    theirs = folder / ".oracle"
    theirs.mkdir()
    expected = oracle.compute(source, theirs)
    result = comparison.compare(folder, theirs)
    shutil.rmtree(theirs)
    where = f"operator {source.operator}: the replay differs from the oracle's"
    if result.differences:
        more = sum(result.counts.values()) - 1
        raise RunFailed(f"{where}: {result.differences[0].lines()[0]}{f', and {more} more' if more else ''}")
    for name in ("dropped_invalid", "dropped_late", "rejected"):
        if (ours := getattr(sample, name)) != expected[name]:
            raise RunFailed(f"{where}: {name} is {ours}, expected {expected[name]}")


def _bytes(folder: Path, record: Resolved, rows: int) -> float | None:
    """Mean bytes of the rows in a folder's parts."""
    return row_bytes(record, Parts.of(folder).slices(BLOCK, text_fields(record)), rows)
