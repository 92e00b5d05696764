"""The command `bench`: measure executors, run the suites of papers, and exchange evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from streaming_core.cli.options import Json, examples, grouped, numbers
from streaming_core.cli.output import Bar, show
from streaming_core.errors import BadInput, RunFailed

app = typer.Typer()


@dataclass(frozen=True)
class Subject:
    """The options of `bench` that say what it measures."""

    names: Annotated[list[str] | None, typer.Argument(metavar="APP", help="Applications to measure. Default: all.")] = (
        None
    )
    suite: Annotated[
        str | None, typer.Option(help="Run the experiments of a suite, such as tstream. A wrong name lists all suites.")
    ] = None
    files: Annotated[
        bool,
        typer.Option(
            "--files",
            help="Include reading and writing Parquet, and compare with pyarrow. Default applications: gs, wc.",
        ),
    ] = False
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="EXPERIMENT", help="Run only this experiment of the suite; repeat it for several."),
    ] = None

    @property
    def as_arguments(self) -> list[str]:
        """The subject as a user types it, without --only."""
        suite = ["--suite", self.suite] if self.suite else []
        return [*(self.names or []), *suite, *(["--files"] if self.files else [])]

    @property
    def as_options(self) -> dict[str, Any]:
        """The values, by the name of their option."""
        return {"APP": self.names, "--suite": self.suite, "--files": self.files, "--only": self.only}


@dataclass(frozen=True)
class Effort:
    """The options of `bench` that say how long it measures."""

    events: Annotated[
        int | None,
        typer.Option(help="Events per workload, at least 0. Default: as many as a run of the slowest way can process."),
    ] = None
    threads: Annotated[
        str | None,
        typer.Option(help="Thread counts, separated by commas: 1,2. Default: powers of two up to the cores."),
    ] = None
    repetitions: Annotated[
        int | None,
        typer.Option(help="Rounds of measurement. Figures are medians over the rounds. Default: 5; with --quick, 3."),
    ] = None
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Try a benchmark: single runs of few events. The figures say nothing about speed."
        ),
    ] = False

    @property
    def thread_counts(self) -> list[int] | None:
        """The thread counts of --threads, or None. Raises BadInput if the text holds no numbers."""
        return numbers("--threads", self.threads) if self.threads else None

    @property
    def rounds(self) -> int:
        """The rounds of measurement."""
        return (3 if self.quick else 5) if self.repetitions is None else self.repetitions

    @property
    def as_options(self) -> dict[str, Any]:
        """The values, by the name of their option."""
        return {
            "--threads": self.threads,
            "--events": self.events,
            "--repetitions": self.repetitions,
            "--quick": self.quick,
        }


@app.command(
    epilog=examples(
        "streaming-core bench wc --events 10000 --threads 1 --repetitions 1",
        "streaming-core bench --suite tstream",
        "streaming-core bench --evidence evidence.json",
        "streaming-core bench --import evidence.json",
    )
)
@grouped
def bench(
    subject: Subject,
    effort: Effort,
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Run the experiments of all suites that need many cores or several NUMA nodes, and write one file to "
            "send back.",
        ),
    ] = None,
    evidence_to_import: Annotated[
        Path | None,
        typer.Option(
            "--import", metavar="FILE", help="Check a file of --evidence, add its results to LOCKSTEP_HOME, show them."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSON file to write. Default: a file in LOCKSTEP_HOME/reports/bench.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure executors against the compiled sequential loop.

    Every executor takes turns with the loop on the same events. The command checks each result against the loop's. It
    ends with exit code 1 if a result differs, or if a plan's prediction is wrong by more than a factor of two.
    """
    from streaming_core.bench import report

    counts = effort.thread_counts
    if evidence_to_import is not None:
        others = subject.as_options | {"--out": out} | effort.as_options | {"--evidence": evidence}
        _check_alone("--import", others)
        _import(evidence_to_import, as_json)
        return
    if evidence is not None:
        _check_alone("--evidence", subject.as_options | {"--out": out})
    _check_subject(subject, effort.events)
    arguments = subject.as_arguments if evidence is None else ["--evidence", "FILE"]
    command = report.command(arguments, subject.only, effort.events, counts, effort.rounds, effort.quick)
    if evidence is not None:
        results = _measure_evidence(effort, command, evidence, as_json)
    else:
        results = _measure(subject, effort, lambda part: report.save(part | {"command": command}, out), as_json)
        results |= {"command": command}
    path = report.save(results, evidence or out)
    if as_json:
        show(results)
    else:
        report.render(results, Console())
        print(f"written to {path}{'; `lockstep publish` draws it' if subject.suite else ''}")
    _check_results(results)


def _check_subject(subject: Subject, events: int | None) -> None:
    """Raise BadInput if options of `bench` contradict each other."""
    if events is not None and events < 0:
        raise BadInput(f"--events must be at least 0, got {events}")
    if subject.suite is not None and events == 0:
        raise BadInput("--events must be at least 1 with --suite, got 0")
    if subject.suite is not None and subject.names:
        raise BadInput(f"--suite chooses the applications itself; remove {', '.join(subject.names)}")
    if subject.files and subject.suite is not None:
        raise BadInput("--files and --suite exclude each other; remove one of them")
    if subject.files and events == 0:
        raise BadInput("--events must be at least 1 with --files, got 0")
    if subject.only and subject.suite is None:
        raise BadInput("--only chooses experiments of a suite; add --suite")


def _check_alone(option: str, others: dict[str, Any]) -> None:
    """Raise BadInput if one of the other options is set, although `option` excludes it."""
    if both := [name for name, value in others.items() if value not in (None, False, [])]:
        raise BadInput(f"{option} and {both[0]} exclude each other; remove one of them")


def _measure(subject: Subject, effort: Effort, keep: Callable[[dict[str, Any]], object], quiet: bool) -> dict[str, Any]:
    """The results of a suite, of files or of applications.

    Args:
        subject: What to measure.
        effort: How long to measure.
        keep: Called with the results so far after every experiment of a suite.
        quiet: Whether to show no progress.
    """
    from streaming_core.bench import applications, suite, whole_runs

    events, counts, rounds, quick = effort.events, effort.thread_counts, effort.rounds, effort.quick
    with Bar(quiet) as bar:
        if subject.files:
            return whole_runs.run(subject.names, events, counts, rounds, bar, quick)
        if subject.suite is None:
            return applications.run(subject.names, events, counts, rounds, bar, quick)
        return suite.run(suite.load(subject.suite), subject.only, events, counts, rounds, bar, keep, quick)


def _measure_evidence(effort: Effort, command: str, out: Path, quiet: bool) -> dict[str, Any]:
    """The results of the experiments for large hosts; the file `out` holds them after every experiment."""
    from streaming_core.bench import evidence, report

    def keep(unfinished: dict[str, Any]) -> None:
        report.save(evidence.with_command(unfinished, command), out)

    with Bar(quiet) as bar:
        results = evidence.run(effort.events, effort.thread_counts, effort.rounds, bar, keep, effort.quick)
    return evidence.with_command(results, command)


def _check_results(results: dict[str, Any]) -> None:
    """Raise RunFailed if a result differs."""
    from streaming_core.bench import report

    if wrong := report.wrong_rows(results):
        first = f"{wrong[0]['app']} {wrong[0]['way']}"
        raise RunFailed(f"{len(wrong)} results differ from the result of the compiled loop; the first is {first}")


def _import(path: Path, as_json: bool) -> None:
    """Check the results in a file, keep them, and print them."""
    from streaming_core.bench import evidence, report

    parts, kept = evidence.take(path)
    if as_json:
        show({"version": report.VERSION, "evidence": True, "suites": parts})
        return
    console = Console()
    for part in parts:
        report.render(part, console)
    for place in kept:
        print(f"written to {place}; `lockstep publish` draws it")
