"""Searches and cases as text for a terminal, and as JSON.

`replay` is `lockstep find --case`: it runs a case again and prints expected beside actual.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming_core.data.comparison import Difference, plain, shown
from streaming_core.errors import ExitCode
from streaming_core.search.case import Case
from streaming_core.search.find import Find, way_of, way_text
from streaming_core.search.laboratory import Laboratory
from streaming_core.search.replay import Beside, Replay, trials
from streaming_core.search.replay import replay as try_again

if TYPE_CHECKING:
    from streaming_core.search.search import Report

_EVENTS = 30  # that a terminal shows


def replay(folder: Path, console: Console, as_json: bool, beside: Beside) -> ExitCode:
    """Run the case in a folder again, and print what it shows.

    Args:
        folder: The folder of a find, or of another case.
        console: Gets the text.
        as_json: Whether to print JSON instead.
        beside: Makes the function that checks invariants (jobs/invariants.py).

    Returns:
        Exit code 1 if the case goes wrong, else 0.

    Raises:
        BadInput: The folder holds no case of an application that is here, or the application has changed.
    """
    case = Case.load(folder)
    with ExitStack() as stack:
        is_invariant = case.symptom is not None and case.symptom.kind == "invariant"
        invariants = stack.enter_context(beside(case.app)) if is_invariant else None
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-find-")))
        outcome = try_again(case, stack.enter_context(Laboratory()), root / "trial", invariants=invariants)
    if as_json:
        print(json.dumps(_as_dict(case, outcome), indent=1))
    else:
        show_case(case, outcome, console)
    return ExitCode.FAILED if outcome.symptom is not None else ExitCode.SUCCESS


def _as_dict(case: Case, outcome: Replay) -> dict[str, Any]:
    return {
        "app": case.spec.app,
        "digest": case.digest,
        "shows": outcome.symptom is not None,
        "expected_symptom": case.symptom and asdict(case.symptom),
        "symptom": outcome.symptom and asdict(outcome.symptom),
        "reason": outcome.reason,
        "trials": outcome.trials,
        "counts": outcome.counts,
        "differences": [side for difference in outcome.differences for side in plain(difference.sides())],
    }


def show_case(case: Case, outcome: Replay, console: Console) -> None:
    """Print a case, its events, and its outcome with expected beside actual."""
    if outcome.symptom is None:
        console.print(Text.assemble(("sound", "green"), f": {case.spec.app} shows nothing in {_times(outcome.trials)}"))
    else:
        console.print(Text.assemble(("wrong", "bold red"), f": {outcome.symptom.sentence}"), soft_wrap=True)
    if case.symptom is not None and outcome.symptom not in (None, case.symptom):
        console.print(f"       when it was found, {case.symptom.sentence}", soft_wrap=True, markup=False)
    facts = {"application": case.spec.app}
    facts |= {"way": way_text(way_of(case.spec))} if case.symptom is None or case.symptom.needs_run else {}
    facts |= {"parameters": shown(case.spec.params)} if case.spec.params else {}
    facts |= {"rate": f"{case.rate:.0%} of trials; {_times(trials(case))} needed"} if case.rate < 1 else {}
    _show_facts(facts, console)
    console.print(_events(case, {difference.row.get("seq") for difference in outcome.differences}))
    if outcome.differences:
        console.print(_differences(outcome.differences))
        if (hidden := sum(outcome.counts.values()) - len(outcome.differences)) > 0:
            console.print(f"and {hidden} more rows")
    elif outcome.symptom is not None and outcome.reason != outcome.symptom.sentence:
        console.print(outcome.reason, soft_wrap=True, markup=False)


def _show_facts(facts: Mapping[str, str], console: Console, indent: str = "") -> None:
    """Print a line for each fact, without breaking it: people copy paths and commands."""
    width = max(map(len, facts))
    for name, value in facts.items():
        if value:
            console.print(Text.assemble(indent, (f"{name:{width}}  ", "dim"), value), soft_wrap=True)


def _times(number: int) -> str:
    return f"{number} trial{'s' * (number != 1)}"


def _columns(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(value if isinstance(value, Text) else Text(str(value)) for value in row))
    return table


def _events(case: Case, marked: set[int | None]) -> Table:
    """The events, those marked at which it goes wrong."""
    names = case.events.column_names
    rows = [
        [*map(shown, row.values()), Text("← at fault" if row["seq"] in marked else "", "bold red")]
        for row in case.events.slice(0, _EVENTS).to_pylist()
    ]
    if (hidden := case.events.num_rows - len(rows)) > 0:
        rows.append([Text(f"and {hidden} more", "dim")])
    return _columns(rows, ["event", *names[1:], ""])


def _differences(differences: Sequence[Difference]) -> Table:
    return _columns(
        [row for difference in differences for row in _sides(difference)],
        ["table", "row", "column", "expected", "actual"],
    )


def _sides(difference: Difference) -> Iterator[list[Any]]:
    """A line for each column of a row, those marked that differ."""
    where, expected, actual = shown(difference.row), difference.expected, difference.actual
    if difference.kind == "out_of_order":
        yield [difference.table, where, "order", f"before {shown(expected)}", "behind it"]
        return
    if not isinstance(expected, Mapping) and not isinstance(actual, Mapping):
        name = ", ".join(difference.columns)
        yield [difference.table, where, name, *(Text(shown(side), "bold") for side in (expected, actual))]
        return
    for number, name in enumerate(expected or actual):
        sides = [shown(side[name]) if side else "no row" for side in (expected, actual)]
        style = "bold red" if name in difference.columns or difference.kind != "different" else ""
        place = ["", ""] if number else [difference.table, where]
        yield [*place, name, Text(sides[0]), Text(sides[1], style)]


def report(searched: Report) -> dict[str, Any]:
    """The outcome of a search as JSON."""
    return asdict(searched) | {"sentence": searched.sentence, "finds": [_find(find) for find in searched.finds]}


def _find(find: Find) -> dict[str, Any]:
    fields = {"folder": str(find.folder), "test": str(find.test)}
    return asdict(find) | fields | {"sentence": find.sentence, "command": find.command}


def show(searched: Report, console: Console) -> None:
    """Print the outcome of a search."""
    for find in searched.finds:
        console.print(Text.assemble(("found", "bold red"), f": {find.sentence}"), soft_wrap=True)
        facts = {
            "way": way_text(find.way) if find.symptom.needs_run else "",
            "at fault": find.at,
            "shown by": find.how_often,
        }
        facts |= {"folder": str(find.folder), "again": find.command, "test": str(find.test)}
        _show_facts(facts, console, "  ")
        if find.folder.exists():
            console.print(_events(Case.load(find.folder), {find.event}))
        if not find.differences:
            console.print(find.reason, soft_wrap=True, markup=False)
        else:
            rows = [Difference(**entry | {"columns": tuple(entry["columns"])}) for entry in find.differences]
            console.print(_differences(rows))
    console.print(f"{searched.app}: {searched.sentence}, {searched.seconds:.0f} s", soft_wrap=True, markup=False)
