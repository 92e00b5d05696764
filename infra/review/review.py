"""A review: what a change concerns, the run that judged it, and whether it is red.

| file | for |
|---|---|
| `comment.md` (comment.py) | people, as a comment on the pull request |
| `junit.xml` (junit.py) | the list of tests of a forge |
| `findings.sarif` (sarif.py) | marks beside the lines of the change |
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.gate.evaluation import is_red
from infra.review.changes import Changes
from reports.history import Run


@dataclass(frozen=True)
class Review:
    """A review of a change. It has no run if the change concerns no application that can run."""

    changes: Changes
    run: Run | None

    @property
    def is_red(self) -> bool:
        """Whether an application cannot be loaded, a cell is red or slower, or the run failed."""
        return bool(self.changes.faults) or (self.run is not None and (not self.run.green or is_red(self.run)))

    @property
    def sentence(self) -> str:
        """The outcome in one sentence without a full stop."""
        faults = len(self.changes.faults)
        parts = [f"{faults} application{'s' * (faults > 1)} cannot be loaded"] if faults else []
        if self.run is not None:
            parts += [self.run.sentence, *filter(None, [self.run.gate_sentence, self.run.searched.sentence])]
        return "; ".join(parts) or "The change concerns no application"
