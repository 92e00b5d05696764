"""A trial: the planner's plan (the candidate) against the replicated plan, on the first events of the workload.

A prediction may be wrong. So a run measures both plans before it uses the candidate. The plans take turns, and the
median ratio decides. The results of a run do not depend on its plan; only its speed does.
"""

from __future__ import annotations

import contextlib
import statistics
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.kernels.program import compile_app
from streaming_core.planner.document import Amount, Document
from streaming_core.run import one_pass
from streaming_core.run import profile as profiles
from streaming_core.run.blocks import Blocks, block_size
from streaming_core.run.one_pass import PassRequest
from streaming_core.run.way import RunSpec
from streaming_core.storage import digest_of

ROUNDS = 5  # after one that warms up

Plan = dict[str, list[int]]


class Trial(Document):
    """The speed of both plans, round by round."""

    threads: Annotated[int, Field(ge=1)]
    candidate: Plan
    replicated: Plan
    candidate_per_s: list[Amount] = Field(min_length=1, description="Events per second of the candidate, by round.")
    replicated_per_s: list[Amount] = Field(min_length=1, description="Events per second of the replicated plan.")

    @property
    def ratio(self) -> float:
        """Median over rounds of the rate of the candidate, relative to the replicated plan."""
        return statistics.median(a / b for a, b in zip(self.candidate_per_s, self.replicated_per_s, strict=True))

    @property
    def chosen(self) -> Plan:
        """The faster plan; of equal ones, the candidate."""
        return self.candidate if self.ratio >= 1 else self.replicated


def of(spec: RunSpec, opened: workload.Workload, candidate: Plan, replicated: Plan, profile: Path | None) -> Trial:
    """The trial of two plans: an earlier one that lies beside the profile, else a new one.

    Args:
        spec: The run that needs a plan.
        opened: Its workload.
        candidate: The plan that a search found.
        replicated: The plan with a replica of every operator on each thread.
        profile: The file of the profile; None: nothing may be written there.
    """
    about: dict[str, Any] = {"threads": spec.threads, "candidate": candidate, "replicated": replicated}
    path = profile and profile.parent / "trials" / f"{profile.stem}-{digest_of(about)[:8]}.json"
    if path is not None and path.exists():
        return Trial.read(path)
    trial = Trial.model_validate(about | _measured(spec, opened, candidate, replicated))
    if path is not None:
        with contextlib.suppress(BadInput):
            trial.save(path)
    return trial


def _measured(spec: RunSpec, opened: workload.Workload, candidate: Plan, replicated: Plan) -> dict[str, list[float]]:
    program = compile_app(opened.app, opened.manifest["params"])
    blocks = Blocks(profiles.first_events(opened), program, block_size(spec))
    ways = {
        name: spec.model_copy(update={"plan": plan, "pin": True})
        for name, plan in (("candidate_per_s", candidate), ("replicated_per_s", replicated))
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        for name, way in ways.items():
            sample, _, _ = one_pass.run(way, program, blocks, PassRequest(exports_state=False))
            if number:
                rates[name].append(sample.events_per_s or 0.0)
    return rates
