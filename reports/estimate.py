"""Estimates the time of a run from the times of the last runs on the same hosts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from socket import gethostname

from streaming_core.regression.fleet import LOCAL, is_of_engine
from streaming_core.regression.home import Home
from streaming_core.regression.plan import Plan, left_plan
from streaming_core.regression.preflight import latest
from streaming_core.storage import left_json, write_json

RUNS = 10  # the newest ones, whose times count


@dataclass(frozen=True)
class Estimate:
    """The time that a plan will take.

    Attributes:
        cells: the number of planned cells.
        known: the number of them with a time from an earlier run.
        seconds: the sum of these times; hosts share the cells that do not run on Spark.
        hosts: the number of hosts.
        around: the time of a run outside its cells; None if no run has finished.
    """

    cells: int
    known: int = 0
    seconds: float = 0.0
    hosts: int = 1
    around: float | None = None

    @property
    def sentence(self) -> str:
        """`12 cells, about 3 minutes, from the times of the last runs on this host`, or what is unknown."""
        text = f"{self.cells} cell{'s' * (self.cells != 1)}"
        unknown = self.cells - self.known
        here = "on this host" if self.hosts == 1 else f"on these {self.hosts} hosts"
        if not self.known:
            return f"{text}; duration unknown: none of them has run {here} with this many events"
        whole = self.seconds + (self.around or 0)
        took = duration(whole)
        beside = "" if self.around is not None else ", without the time before and after the cells"
        if unknown:
            have = "has" if unknown == 1 else "have"
            return f"{text}, more than {took}{beside}: {unknown} of them {have} not run {here} with this many events"
        return f"{text}, about {took}{beside}, from the times of the last runs {here}"


def estimate(home: Home, planned: Plan, hosts: Sequence[str]) -> str:
    """Estimate a plan from the runs before it, and keep the sentence in the run's folder.

    Args:
        home: the LOCKSTEP_HOME of the run.
        planned: plan.json of a run.
        hosts: the machines that its cells go to, as they name themselves.
    """
    sentence = of_plan(home, planned, hosts).sentence
    write_json(home.run(planned["run_id"]) / "estimate.json", {"sentence": sentence})
    return sentence


def machines(home: Home, hosts: Sequence[str]) -> list[str]:
    """The machines behind connections, as the newest run that looked at them names them; unknown ones are left out."""
    known = {LOCAL: gethostname()} | {name: preflight.machine for name, preflight in latest(home, hosts).items()}
    return [known[host] for host in hosts if host in known]


def of_matrix(home: Home, name: str, cells: int) -> str:
    """`nightly: 179 cells, 35 minutes the last time`: a matrix in a list of them."""
    text = f"{name}: {cells} cell{'s' * (cells != 1)}"
    for path in sorted(home.root.glob("runs/*/plan.json"), reverse=True)[:RUNS]:
        plan, end = left_json(path), home.report(path.parent.name, "summary.json")
        if (plan.get("matrix") or {}).get("name") == name and plan.get("cells") and end.exists():
            took = end.stat().st_mtime - datetime.fromisoformat(plan["created_at"]).timestamp()
            return f"{text}, {duration(took)} the last time"
    return text


def duration(seconds: float) -> str:
    """`40 seconds`, `3 minutes`."""
    return f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def of_plan(home: Home, planned: Plan, hosts: Sequence[str]) -> Estimate:
    """The time that a plan will take, from the runs before it; the arguments are those of `estimate`."""
    size = _size(planned)
    shares = {cell["cell"]: max(1, len(hosts)) if is_of_engine(cell) else 1 for cell in planned["cells"]}
    took: dict[str, float] = {}
    around: list[float] = []
    earlier = sorted(path.parent.name for path in home.root.glob("runs/*/plan.json"))
    for run_id in [run_id for run_id in reversed(earlier) if run_id < planned["run_id"]][:RUNS]:
        plan = left_plan(home, run_id)
        cells = {
            cell["cell"]: _times(home.cell(run_id, cell["cell"]), hosts if is_of_engine(cell) else None)
            for cell in plan.get("cells", [])
        }
        known = {name: times for name, times in cells.items() if times is not None}
        if _size(plan) == size:
            took = {name: end - begin for name, (begin, end) in known.items() if name in shares} | took
        end = home.report(run_id, "summary.json")
        if known and len(known) == len(cells) and end.exists():
            began = datetime.fromisoformat(plan["created_at"]).timestamp()
            # Lanes run cells at the same time, so what counts is the time from the first cell to the last.
            cells_took = max(end for _, end in known.values()) - min(begin for begin, _ in known.values())
            around.append(max(0.0, end.stat().st_mtime - began - cells_took))
    seconds = sum(time / shares[name] for name, time in took.items())
    return Estimate(len(shares), len(took), seconds, len(hosts), statistics.median(around) if around else None)


def _size(plan: Plan) -> list[object]:
    """The fields of a request that change the time of a cell."""
    return [plan.get("regression", {}).get(name) for name in ("events", "repetitions", "seconds", "rate")]


def _times(cell: Path, hosts: Sequence[str] | None) -> tuple[float, float] | None:
    """Begin and end of the last successful attempt of a cell on one of the hosts, or on any; None without one."""
    for attempt in sorted(cell.glob("attempt-[0-9]*/exit.json"), key=lambda path: path.stat().st_mtime, reverse=True):
        left = left_json(attempt)
        if left.get("exit_code") == 0 and (hosts is None or left.get("host") in hosts):
            times = [datetime.fromisoformat(left[name]) for name in ("started_at", "ended_at") if left.get(name)]
            return (times[0].timestamp(), times[1].timestamp()) if len(times) == 2 else None
    return None
