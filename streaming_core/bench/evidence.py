"""Measurements for hosts that are larger than the author's: one file, made there and imported here.

`streaming-core bench --evidence FILE` runs the experiments of all suites that need more cores or NUMA nodes than a
small host has. `streaming-core bench --import FILE` checks such a file and adds it to the results in LOCKSTEP_HOME.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from streaming_core.bench import suite as suites
from streaming_core.bench.race import results
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from streaming_core.run.one_pass import Progress
from streaming_core.storage import digest_of


def run(
    events: int | None,
    threads: list[int] | None,
    repetitions: int,
    progress: Progress | None = None,
    keep: Callable[[dict[str, Any]], object] = lambda evidence: None,
    quick: bool = False,
) -> dict[str, Any]:
    """Run every experiment that needs a large host, and return the file as JSON values.

    Args:
        events: As for `suite.run`.
        threads: Thread counts; None: the powers of two up to all cores, and all cores.
        repetitions: Rounds.
        progress: As for `suite.run`.
        keep: Called with the file so far after every experiment.
        quick: As for `suite.run`.

    Raises:
        BadInput: There are no suites, or thread counts or repetitions are out of range.
    """
    if not suites.SUITES:
        raise BadInput(f"--evidence runs suites; {suites.known()}")
    finished: list[dict[str, Any]] = []

    def file(more: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        return {"version": results.VERSION, "evidence": True, "suites": [*finished, *more]}

    for suite in map(suites.load, suites.SUITES):
        if chosen := [experiment.name for experiment in suite.experiments if experiment.needs]:
            finished.append(
                suites.run(
                    suite,
                    chosen,
                    events,
                    threads,
                    repetitions,
                    progress,
                    lambda unfinished: keep(file([unfinished])),
                    quick,
                )
            )
    return file()


def with_command(evidence: dict[str, Any], command: str) -> dict[str, Any]:
    """Return a file whose suites name the command line that made them."""
    return evidence | {"suites": [suite | {"command": command} for suite in evidence["suites"]]}


def take(path: Path) -> tuple[list[dict[str, Any]], list[Path]]:
    """Check a file of `--evidence` or the results of one suite, and add them to the results in LOCKSTEP_HOME.

    Returns:
        The results of each suite, and where they are kept.

    Raises:
        BadInput: The file cannot be read, is no results file of this version, or has wrong results.
    """
    content = results.read(path)
    parts = content.get("suites") if isinstance(content, dict) and content.get("evidence") is True else [content]
    if not isinstance(parts, list) or not parts:
        raise BadInput(f"{path}: holds no results of a suite")
    for part in parts:
        results.check(part, str(path), suites.SUITES)
    folder = Home().reports / "bench"
    paths = [folder / f"imported-{part['suite']}-{digest_of(part)[:8]}.json" for part in parts]
    for kept, part in zip(paths, parts, strict=True):
        results.save(kept, part)
    return parts, paths
