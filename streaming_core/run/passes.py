"""All passes of a run, each from fresh state: the first pass, the repetitions, and the open-loop pass.

- The first pass delivers to the spec's sink. If the spec has a rate and no repetitions, it is the open-loop pass.
- `repetitions` run at peak rate into the digest sink. A repetition lasts `seconds`, in turns with the compiled loop
  (yardstick.py), and its sample is the pass of median time.
- With a rate and repetitions, an open-loop pass follows.
- If the result of a later pass differs from the first, the run makes that pass again, RERUNS times at most, until it
  differs again. The rows of that pass are kept, because a digest cannot show what differs.

One pass is described in one_pass.py.
"""

from __future__ import annotations

import os
import resource
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

from streaming_core.data.agreement import states_digest
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks, block_size
from streaming_core.run.checkpoint.store import Checkpoints
from streaming_core.run.energy import Meter
from streaming_core.run.node_loads import Counters
from streaming_core.run.one_pass import PassRequest
from streaming_core.run.provenance import Outcome, PreparedRun, report_of
from streaming_core.run.report import Rerun, RunReport, Sample
from streaming_core.run.supervision import Life
from streaming_core.run.way import RunSpec
from streaming_core.run.yardstick import Turns, keep_memory, yardstick_of

RERUNS = 5  # a race shows rarely, and each pass takes as long as the first one


def run_passes(
    run: PreparedRun, folder: Path | None, durable: Checkpoints | None, meter: Meter, life: Life
) -> RunReport:
    """Make all passes of a run.

    Args:
        run: The run.
        folder: Receives outputs and state of the first pass; None keeps neither.
        durable: The checkpoints of the first pass; None for a run without checkpoints.
        meter: Measures energy.
        life: Receives the progress of each pass, and injects faults into the first one.
    """
    blocks = Blocks(run.workload, run.program, block_size(run.spec))
    keep_memory()  # a block takes the memory of an earlier one
    turns = Turns(run.spec.seconds if run.workload.rows else 0.0, lambda: yardstick_of(run.program, run.workload))
    counters = Counters()  # before the engine's threads, which they count
    known = PassRequest(meter=meter, counters=counters, progress=life.processed, exports_state=False)
    first, *others = _requests(run.spec, known)
    first = replace(first, folder=folder, exports_state=True, durable=durable, beside=life.beside)
    result = one_pass.run(run.spec, run.program, blocks, first)
    samples = [result.sample]
    state_digest = states_digest(run.program.app, run.spec.order, result.state)
    peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # before the loop adds its own

    def repeat(request: PassRequest) -> Sample:
        return one_pass.run(run.spec, run.program, blocks, request).sample

    for request in others:
        if request.kind == "peak":
            samples.append(turns.repetition(partial(repeat, request), samples[0]))
        else:
            result = one_pass.run(run.spec, run.program, blocks, request)
            samples.append(result.sample)
    rerun = None
    if folder is not None and run.spec.sink == "parquet" and not run.spec.is_bound:
        rerun = _rerun(run, blocks, samples, replace(first, folder=folder / "rerun", exports_state=False, durable=None))
    load_after = os.getloadavg()[0]
    energies = [sample.energy_joules for sample in samples]
    outcome = Outcome(
        samples=samples,
        rerun=rerun,
        state_digest=state_digest,
        peak_memory_bytes=peak_memory,
        binding=result.metrics["binding"],
        memory=result.metrics["memory"],
        energy_joules=sum(joules for joules in energies if joules is not None) if None not in energies else None,
        resumed=durable.resumed if durable else [],
        yardstick=turns.yardstick,
        host={
            "load_after": load_after,
            **({"energy": meter.why} if meter.why else {}),
            **({"node_loads": counters.why} if counters.why else {}),
            **turns.host,
        },
    )
    counters.close()
    return report_of(run, outcome)


def _rerun(run: PreparedRun, blocks: Blocks, samples: list[Sample], first: PassRequest) -> Rerun | None:
    """Make the first pass whose result differs again, until it differs again, and keep its rows then.

    Args:
        run: The run.
        blocks: The events.
        samples: The samples of all passes.
        first: The first pass, into a folder of its own.
    """

    def result(sample: Sample) -> tuple[str, bool]:
        return sample.digest, sample.in_order or run.spec.order == "none"

    wrong = next((sample for sample in samples if result(sample) != result(samples[0])), None)
    if wrong is None:
        return None
    assert first.folder is not None
    request = replace(first, kind=wrong.kind, rate=run.spec.rate if wrong.kind == "open_loop" else 0.0)
    rerun = Rerun(kind=wrong.kind, repetition=wrong.repetition, passes=0, differs=False)
    while rerun.passes < RERUNS and not rerun.differs:
        if rerun.passes:
            shutil.rmtree(first.folder)
        rerun.passes += 1
        rerun.differs = result(one_pass.run(run.spec, run.program, blocks, request).sample) != result(samples[0])
    if not rerun.differs:
        shutil.rmtree(first.folder)
    return rerun


def _requests(spec: RunSpec, known: PassRequest) -> list[PassRequest]:
    """The passes of a run, in order; `known` is what they have in common."""
    if spec.rate > 0 and not spec.repetitions:
        return [replace(known, kind="open_loop", sink=spec.sink, rate=spec.rate)]
    requests = [replace(known, kind="verified", sink=spec.sink)]
    requests += [replace(known, number=number) for number in range(1, 1 + spec.repetitions)]
    if spec.rate > 0:
        requests.append(replace(known, kind="open_loop", number=len(requests), rate=spec.rate))
    return requests
