"""`lockstep conformance`: whether an engine answers as the oracle on adversarial workloads.

The command prints a line for each workload on stderr while it runs. Then it explains each difference, and ends with a
table.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming_core.cli.options import Columns, Json, numbers
from streaming_core.data.comparison import shown
from streaming_core.errors import BadInput
from streaming_core.run.way import MAX_THREADS

if TYPE_CHECKING:
    from streaming_core.conformance.suite import Cell, Report

VERDICTS = {"equal": "green", "different": "bold red", "failed": "bold red"}
LABEL = 12  # characters of the first column


def conformance(
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="An engine, as `lockstep engines list` shows it, or an executor of Lockstep."
        ),
    ],
    applications: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Applications. Default: all that the engine runs.")
    ] = None,
    workloads: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Workloads, as the table shows them. Default: all.")
    ] = None,
    threads: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Numbers of worker threads. Default: 1,3.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="[STREAM=]FILE",
            help="Make the workloads from events of your own instead of generated ones. Needs --applications with one.",
        ),
    ] = None,
    mapping: Columns = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep workloads, outputs and oracles of what differs in this new folder."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Check an engine on workloads that are easy to get wrong.

    The workloads are small: ties, gaps, skew, empty streams, unusual texts
    and numbers, and others. For each answer that differs from the oracle's,
    the command prints the first differing row and the event that caused it.
    It exits with 1 unless all answers are equal.

    Examples:
        lockstep conformance --engine pooled --applications wc
        lockstep conformance --engine polars --threads 2 --keep wrong
    """
    from streaming_core.conformance import suite
    from streaming_core.importing import form

    chosen, kinds = ([*dict.fromkeys(text.split(",") if text else [])] for text in (applications, workloads))
    counts = [*dict.fromkeys(numbers("--threads", threads, (1, MAX_THREADS)))] if threads else []
    progress = Console(stderr=True, highlight=False)

    def say(line: str) -> None:
        progress.print(line, style="dim", soft_wrap=True, markup=False)

    if (data or mapping) and len(chosen) != 1:
        raise BadInput("--data belongs to one application: name it with --applications")
    with tempfile.TemporaryDirectory(prefix="lockstep-conformance-") as temporary, ExitStack() as stack:
        folder = keep or Path(temporary)
        sources = {
            name: stack.enter_context(form.workload_of(name, {}, None, data or (), mapping or ()))
            for name in chosen
            if data or mapping
        }
        report = suite.run(engine, folder, sources or chosen, kinds, counts, keep is not None, say=say)
        for option, values in (("--data", data), ("--map", mapping)):
            report.options += [word for value in values or () for word in (option, value)]
    if as_json:
        print(json.dumps(report.as_dict(), indent=1))
    else:
        console = Console(highlight=False)
        for line in _lines(report, keep):
            console.print(line, soft_wrap=True)
    return report.exit_code


def _lines(report: Report, keep: Path | None) -> Iterator[Text | Table]:
    """The text of the report, for people."""
    for cell in report.cells:
        if cell.outcome.verdict != "equal":
            yield from explained(report, cell, keep)
            yield Text("")
    yield table_of(report)
    for app in dict.fromkeys(app for app, _, _ in report.left_out):
        reasons = [f"{workload} ({reason})" for of, workload, reason in report.left_out if of == app]
        yield Text(f"left out from {app}: {', '.join(reasons)}", "dim")
    counts: Counter[str] = Counter(cell.outcome.verdict for cell in report.cells)
    if report.exit_code:
        words = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name])
        yield Text(f"\n{report.engine} does not conform: {words}", "bold red")
    else:
        yield Text(f"\n{report.engine} conforms: all {len(report.cells)} cells equal the oracle", "bold green")


def explained(report: Report, cell: Cell, keep: Path | None) -> Iterator[Text]:
    """The fault of a cell, and the command that shows it again."""
    outcome = cell.outcome
    title = f"{cell.application} {cell.workload}, {_count(cell.threads, 'thread')}: {outcome.verdict}: {outcome.reason}"
    yield Text(title, VERDICTS[outcome.verdict])
    refused = f", without {_count(cell.refused, 'event')} that the oracle refuses" if cell.refused else ""
    yield _fact("workload", f"{_count(cell.events, 'event')}: {cell.about}{refused}")
    if cell.params:
        yield _fact("parameters", ", ".join(f"{name}={value}" for name, value in cell.params.items()))
    for row in outcome.rows:
        if row.seq is not None:
            yield _fact("expected", shown(row.expected) if row.expected else "no such row")
            yield _fact("actual", shown(row.actual) if row.actual else "no such row")
            yield _fact("event", shown(cell.event) if cell.event else "the end of the stream")
        else:
            times = f"{row.times} times " if row.times > 1 else ""
            side = "missing" if row.expected else "extra"
            yield _fact(side, times + shown(row.expected or row.actual))
    if cell.cause:
        yield _fact("cause", _cause(cell))
    yield _fact("repeat", report.command(cell))
    if keep:
        folder = keep / cell.application / cell.workload
        yield _fact("files", str(folder))
        if outcome.verdict == "different":
            yield _fact("compare", f"streaming-core diff {folder}/threads-{cell.threads} {folder}/oracle")


def _cause(cell: Cell) -> str:
    """The event that causes a difference."""
    assert cell.cause is not None
    if not cell.cause.is_steady:
        return "unknown: another run of the same events gave the right answer"
    count = cell.cause.events
    if not count:
        return "no event: a stream without events is wrong already"
    if not cell.cause.is_smallest:
        return f"the first {_count(count, 'event')} are wrong, perhaps fewer: the time to search was over"
    if count == 1:
        return f"the first event is wrong already, a stream without events is right; it is {shown(cell.last)}"
    wrong = f"the first {count} events are wrong already, the first {count - 1} right"
    return f"{wrong}; the last is {shown(cell.last)}"


def table_of(report: Report) -> Table:
    """A row for each workload, with its cells by verdict."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("application", "workload", "events", "outputs", *VERDICTS):
        table.add_column(title, no_wrap=True, justify="left" if title in ("application", "workload") else "right")
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in report.cells:
        groups.setdefault((cell.application, cell.workload), []).append(cell)
    for names, cells in groups.items():
        counts: Counter[str] = Counter(cell.outcome.verdict for cell in cells)
        marks = [Text(str(counts[name] or ""), style) for name, style in VERDICTS.items()]
        table.add_row(*names, str(cells[0].events), str(cells[0].outcome.outputs), *marks)
    return table


def _fact(label: str, value: str) -> Text:
    return Text(f"  {label:<{LABEL}}{value}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
