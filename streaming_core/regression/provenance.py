"""The inputs of a run: the origin of the events of each workload, and the checks of them.

`prepare_workloads` writes them before the first cell runs, because a person may later replace an import or prune a
workload:

    runs/<run id>/provenance.json   the inputs, by the address of the workload
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from streaming_core.regression.home import Home
from streaming_core.storage import left_json, write_json

Result = Literal["passed", "failed", "not checked"]
Origin = Literal["generated", "reused", "import", "unknown"]


class Check(NamedTuple):
    """A check of a workload: `what` holds if it passes; `detail` says when it was made, or why not."""

    what: str
    result: Result
    detail: str = ""


@dataclass(frozen=True)
class Provenance:
    """The events of one workload.

    Attributes:
        app: the application that takes them.
        address: the address of the workload.
        origin: `generated` by this run; `reused` if an earlier preparation generated them; an `import`; or `unknown`.
        events: the number of events.
        seed: the seed of the generator; None for an import.
        checks: the checks before the first cell ran.
        name: the name of the import.
        imported: `imported` of the import's manifest: its files, rows, and rows set aside by reason, with samples.
    """

    app: str
    address: str
    origin: Origin = "unknown"
    events: int | None = None
    seed: int | None = None
    checks: list[Check] = field(default_factory=list)
    name: str = ""
    imported: dict[str, Any] | None = None

    @property
    def excess(self) -> str:
        """`3 of 6 rows (50 %; tolerated 0 %)`, the rows that its import set aside; empty within the tolerance."""
        return excess(self.imported) if self.imported else ""


def set_aside(imported: dict[str, Any]) -> int:
    """The number of rows that an import set aside."""
    return sum(reason["rows"] for reason in imported["aside"])


def excess(imported: dict[str, Any]) -> str:
    """`3 of 6 rows (50 %; tolerated 0 %)`, the rows that an import set aside; empty if it tolerates as many."""
    aside, rows, tolerance = set_aside(imported), imported["rows"], imported.get("tolerance", 0.0)
    if aside <= tolerance * rows:
        return ""
    return f"{aside:,} of {rows:,} rows ({_percent(aside / rows)}; tolerated {_percent(tolerance)})"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def record(home: Home, run_id: str, inputs: list[Provenance]) -> None:
    """Write the inputs of a run, in place of an earlier record."""
    write_json(home.run(run_id) / "provenance.json", {provenance.address: asdict(provenance) for provenance in inputs})


def provenance_of(home: Home, run_id: str) -> dict[str, Provenance]:
    """The inputs of a run by address; none if the run was not prepared."""
    written = left_json(home.run(run_id) / "provenance.json")
    return {
        address: Provenance(**provenance | {"checks": [Check(*check) for check in provenance["checks"]]})
        for address, provenance in written.items()
    }
