"""Finds the commit that made a cell slow or wrong, by halving the commits between a good one and a bad one.

Each step builds a commit, as the gate does (build.py), and judges it:

- `mismatch`: the commit is bad if its engine's result differs from the result of its own oracle, or if it fails.
- `slowdown`: the good and the bad commit are measured in pairs first (pairs.py). A commit is bad if its median ratio to
  the good commit lies nearer to that of the bad one.

Only commits that change the engine count. A commit that cannot be built tells nothing; then the answer is a list of
commits, as that of `git bisect` is.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from infra.services import build, pairs
from infra.services.build import Build
from jobs.run_folder import read_plan
from streaming_core.errors import BadInput, RunFailed, unknown
from streaming_core.exit_codes import ExitCode
from streaming_core.process import Process
from streaming_core.regression.home import Home
from streaming_core.run.way import RunSpec
from streaming_core.storage import write_json


class Fault(StrEnum):
    """The fault of a cell."""

    MISMATCH = "mismatch"
    SLOWDOWN = "slowdown"


LEAST = 0.01  # a change of speed that counts, as in dbt/macros/gate.sql


class Suspects(NamedTuple):
    """The answer: the commits that the first bad one is among, oldest first, and how many were judged."""

    commits: list[str]
    judged: int


def halve(commits: Sequence[str], is_bad: Callable[[str], bool | None]) -> Suspects:
    """The first bad commit.

    Args:
        commits: Oldest first. What comes before them is good, and the last one is bad.
        is_bad: Judges a commit; None if it cannot be judged.

    Returns:
        One commit, or several if those between could not be judged.
    """
    good, bad, judged = -1, len(commits) - 1, 0
    unclear: set[int] = set()
    while candidates := [place for place in range(good + 1, bad) if place not in unclear]:
        middle = candidates[len(candidates) // 2]
        verdict = is_bad(commits[middle])
        if verdict is None:
            unclear.add(middle)
            continue
        judged += 1
        good, bad = (good, middle) if verdict else (middle, bad)
    return Suspects(list(commits[good + 1 : bad + 1]), judged)


def bisect(
    home: Home, run_id: str, cell: str, good: str, bad: str, fault: Fault, say: Callable[[str], None]
) -> Suspects:
    """The first commit after `good` at which the cell has the fault.

    Args:
        home: LOCKSTEP_HOME, which caches the builds.
        run_id: The run that planned the cell.
        cell: The name of the cell.
        good: A commit without the fault.
        bad: A later commit with it.
        fault: What is wrong.
        say: Takes a line for each step.

    Raises:
        BadInput: There is no such commit or cell, the cell ran on Spark, or `good` is no ancestor of `bad`.
        RunFailed: `good` has the fault, or `bad` does not, or one of them cannot be built.
    """
    first, last = build.resolve(good), build.resolve(bad)
    commits = build.between(first, last)
    planned = {one["cell"]: one for one in read_plan(home, run_id)["cells"]}
    if cell not in planned:
        raise BadInput(f"run {run_id}: {unknown('cell', cell, list(planned))}")
    spec = RunSpec.parse(planned[cell]["spec"])
    if not spec.is_engine:
        raise BadInput(
            f"{cell} ran on {spec.executor}, but only Lockstep's engine can be bisected; name a cell of its executors"
        )
    source = home.workload(spec.app, planned[cell]["workload"])
    if not source.is_dir():
        raise BadInput(f"the workload of {cell} was removed: run its application again")

    def built(commit: str) -> Build:
        return build.at_commit(home, commit, build.described(commit), say)

    say(f"{len(commits)} commits after {build.described(first)} change the engine")
    if fault == Fault.MISMATCH:
        judge = Mismatch(spec, source)
        for commit, wanted in ((first, False), (last, True)):
            if judge(built(commit)) is not wanted:
                word = "differs from" if not wanted else "equals"
                raise RunFailed(f"{cell} {word} the oracle at {build.described(commit)}: there is nothing to find")
        is_bad: Callable[[Build], bool] = judge
    else:
        is_bad = Slowdown(spec, source, built(first), built(last), say)

    def verdict(commit: str) -> bool | None:
        try:
            answer = is_bad(built(commit))
        except RunFailed as error:
            say(f"{build.described(commit)}: cannot be judged: {error}")
            return None
        say(f"{build.described(commit)}: {'bad' if answer else 'good'}")
        return answer

    return halve(commits, verdict)


class Mismatch:
    """Judges builds: whether the result of a way of executing differs from the oracle of the same build."""

    def __init__(self, spec: RunSpec, source: Path):
        """Take a way of executing, and the workload."""
        self.spec, self.source = spec, source

    def __call__(self, candidate: Build) -> bool:
        """Whether the result differs, or the engine fails.

        Raises:
            RunFailed: The oracle of the build fails.
        """
        with tempfile.TemporaryDirectory(prefix="lockstep-bisect-") as folder:
            one_pass = {"repetitions": 1, "seconds": 0.0, "rate": 0.0}
            write_json(Path(folder, "spec.json"), self.spec.model_dump(mode="json") | one_pass)
            source = str(self.source)
            expected = self._run(candidate, folder, "oracle", self.spec.app, "--input", source, "--out", "expected")
            if expected[0]:
                raise RunFailed(f"its oracle fails: {expected[1]}")
            if self._run(candidate, folder, "run", "spec.json", "--input", source, "--out", "result")[0]:
                return True
            code, line = self._run(candidate, folder, "diff", "result", "expected")
        if code not in (ExitCode.SUCCESS, ExitCode.FAILED):
            raise RunFailed(line)
        return bool(code)

    @staticmethod
    def _run(candidate: Build, folder: str, *arguments: str) -> tuple[int, str]:
        lines = [""]
        command = candidate.command(*arguments)
        code = Process().run(command, lines.append, candidate.environment, folder, is_application=True)
        return code, lines[-1]


class Slowdown:
    """Judges builds by their speed beside a good build, and beside how slow a bad build is."""

    def __init__(self, spec: RunSpec, source: Path, good: Build, bad: Build, say: Callable[[str], None]):
        """Measure the bad build.

        Raises:
            RunFailed: The bad build is not slower than the good one by more than the gate believes.
        """
        self.spec, self.source, self.good, self.say = spec, source, good, say
        self.whole = self.ratio(bad)
        if self.whole > -math.log1p(LEAST):
            raise RunFailed(
                f"{build.described(bad.name)} is not slower than {build.described(good.name)}: the median of "
                f"{pairs.PAIRS} pairs is {math.expm1(self.whole):+.1%}"
            )

    def __call__(self, candidate: Build) -> bool:
        """Whether the build is nearer to the bad one.

        Raises:
            RunFailed: It cannot be measured.
        """
        return self.ratio(candidate) < self.whole / 2

    def ratio(self, candidate: Build) -> float:
        """The median logarithm of the speed of a build beside the good one; negative if it is slower."""
        lot = f"{self.good.name} {candidate.name}"
        builds = {"baseline": self.good, "build": candidate}
        with pairs.alone(f"bisect {lot}", self.say):
            rows = pairs.paired(builds, self.spec, self.source, lot)
        if error := rows[-1].get("error"):
            raise RunFailed(str(error))
        if len(rows) < pairs.PAIRS:
            raise RunFailed("its results differ from those of the good commit, or a pass takes less than a millisecond")
        return statistics.median(math.log(row["baseline_seconds"] / row["build_seconds"]) for row in rows)
