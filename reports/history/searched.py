"""What the search for faults tried: inputs, ways of executing, and branches of the operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Searched:
    """What the search for faults tried.

    Attributes:
        rows: rows of the raw table `searches`, one for each application.
        note: why the search failed; empty if it did not.
    """

    rows: Sequence[dict[str, Any]] = field(default_factory=list)
    note: str = ""

    def total(self, column: str) -> int:
        """The sum of a column."""
        return sum(row[column] for row in self.rows)

    @property
    def share(self) -> str:
        """The share of the branches that an input reached: `91 %`; empty without branches."""
        branches = self.total("branches")
        return f"{100 * self.total('reached') // branches} %" if branches else ""

    @property
    def sentence(self) -> str:
        """All of it in one sentence without a full stop; empty if nothing was searched."""
        if not self.rows:
            return f"Search for faults: {self.note}" if self.note else ""
        inputs, ways, reached, branches = map(self.total, ("inputs", "ways", "reached", "branches"))
        apps = f"{len(self.rows)} application{'s' * (len(self.rows) != 1)}"
        share = f" ({self.share})" if self.share else ""
        text = f"Search for faults: {inputs:,} inputs of {apps} in {ways:,} ways, {reached:,} of {branches:,} branches"
        return f"{text} reached{share}{f'; {self.note}' if self.note else ''}"
