"""The profile of a cell: where the processor time of its passes goes, in this build and in an earlier one.

`infra.profile` measures it. It is one file in the folder of the cell, so it appears whole, and a newer one replaces it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streaming_core.storage import left_json, write_json

FILE = "profile.json"  # in the folder of a cell's attempts


@dataclass(frozen=True)
class Side:
    """The profile of one build.

    Attributes:
        build: the revision of the build.
        events: events of a pass.
        passes: profiled passes.
        seconds: active time of the median pass.
        samples: samples in the engine; None if the runtime itself measured its tasks.
        stacks: nanoseconds per event, all threads together, by stack: frames with `;` between them, outermost first.
        counters: by event of `perf stat`, its number per event of the workload; None if the host does not count it.
    """

    build: str
    events: int
    passes: int
    seconds: float
    samples: int | None
    stacks: dict[str, float]
    counters: dict[str, float | None]


@dataclass(frozen=True)
class Profile:
    """The profile of a cell.

    Attributes:
        run_id: the run of the cell.
        cell: its name.
        host: the machine that measured.
        time: the time of the measurement, in ISO format.
        build: the profile of this checkout.
        baseline: that of an earlier build; None without one.
        fallback: why the runtime measured its tasks instead of `perf`; empty if `perf` sampled.
        alone: why there is no baseline; empty if there is one.
    """

    run_id: str
    cell: str
    host: str
    time: str
    build: Side
    baseline: Side | None
    fallback: str
    alone: str

    @property
    def sides(self) -> dict[str, Side]:
        """The builds, by their part in the comparison."""
        return {"build": self.build, **({"baseline": self.baseline} if self.baseline else {})}

    @property
    def json(self) -> dict[str, Any]:
        """The content of the file."""
        return asdict(self)

    def save(self, folder: Path) -> None:
        """Write it to the folder of the cell, in place of an earlier one."""
        write_json(folder / FILE, self.json)

    @classmethod
    def read(cls, folder: Path) -> Profile | None:
        """The profile in the folder of a cell; None if there is none that this version can read."""
        fields = left_json(folder / FILE)
        try:
            baseline = fields["baseline"] and Side(**fields["baseline"])
            return cls(**fields | {"build": Side(**fields["build"]), "baseline": baseline})
        except (TypeError, KeyError):
            return None
