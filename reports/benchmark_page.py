"""docs/benchmarks.md, made from the committed results in docs/benchmarks.

`make docs` writes the page. `streaming-core bench --out` writes a result: `engine.json` for applications, `files.json`
with `--files`, else the suite's name.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streaming_core.bench import report
from streaming_core.bench.suite import SUITES
from streaming_core.errors import BadInput

# By name, in the order of the page: the options that make a result, and its key in the JSON.
COMMANDS = {
    "engine": ("--threads 1,2", "results"),
    "files": ("--files --threads 1,2", "files"),
    **{suite: (f"--suite {suite} --threads 1,2", "experiments") for suite in SUITES},
}
TITLES = {"engine": "Every application in every way of executing", "files": "From file to file"}
INTRO = """\
# Benchmarks

`make docs` writes this page from the JSON files in `docs/benchmarks`. Do not edit it.

Figures are medians over rounds; an interval spans the lowest and the highest round. In a round, the ways of executing
take turns with the compiled sequential loop on the same events. `x loop` is the ratio to the loop of the same round.
Compare this ratio, not events per second: the speed of a shared machine changes. The benchmark checks every result
against the loop's. [How we measure](explanation/measuring.md) explains the comparisons and what these machines cannot
show.
"""
HOW_TO = """\
## How to make a result

Run the benchmark at a commit without local changes, on a machine with no other work. Write it to a folder that git
ignores, because a new file in the checkout counts as a local change:

    make setup
    .venv/bin/streaming-core bench {options} --repetitions 5 --out .lockstep/bench/{name}.json
    mkdir -p docs/benchmarks && cp .lockstep/bench/{name}.json docs/benchmarks/
    make docs

Commit the JSON file together with this page.

| file | options |
|---|---|
{rows}
"""


def page(folder: Path) -> str:
    """The page for the results in a folder.

    Raises:
        BadInput: a file is no result, has a wrong result, or was measured on uncommitted changes.
    """
    results = {path.stem: _read(path) for path in sorted(folder.glob("*.json"))}
    lines = [INTRO]
    if not results:
        lines += ["**No result is committed**, so this page has no figures.\n"]
    for name in COMMANDS:
        if name in results:
            lines += _section(name, results[name])
    rows = "\n".join(f"| `{name}.json` | `{options}` |" for name, (options, _) in COMMANDS.items())
    lines.append(HOW_TO.format(name="engine", options=COMMANDS["engine"][0], rows=rows))
    return re.sub("\n{3,}", "\n\n", "\n".join(lines))


def _read(path: Path) -> dict[str, Any]:
    name = path.stem
    if name not in COMMANDS:
        raise BadInput(f"{path}: no benchmark has this name; known: {', '.join(COMMANDS)}")
    options, key = COMMANDS[name]
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from None
    if not isinstance(result, dict) or key not in result or result.get("suite", name) != name:
        raise BadInput(f"{path}: not the result of `streaming-core bench {options}`")
    if missing := [fact for fact in ("command", "build", "made_at", "host", "repetitions") if fact not in result]:
        raise BadInput(f"{path}: {missing[0]} is missing; run `{result.get('command', 'streaming-core bench')}` again")
    if result["build"] == "unknown" or result["build"].endswith("-dirty"):
        raise BadInput(f"{path}: measured on build {result['build']}; commit all changes and measure again")
    if wrong := report.wrong(result):
        raise BadInput(
            f"{path}: {len(wrong)} results differ from the loop's, first {wrong[0]['app']} {wrong[0]['way']}"
        )
    return result


def _section(name: str, result: dict[str, Any]) -> Iterator[str]:
    yield f"## {_text(result.get('title') or TITLES[name])}\n"
    yield from _conditions(result)
    if name == "engine":
        yield from _figures(result["results"], ["app", "way", "threads", "events"])
        yield from _bullets(report.cost(result["results"]))
    elif name == "files":
        yield from _files(result["files"])
    for experiment in result.get("experiments", []):
        yield f"### {_text(experiment['title'])} ({_text(experiment['figure'])})\n"
        for claim in experiment["claims"]:
            yield f"> {_text(claim['says'])} ({_text(claim['source'])})\n"
        yield from _figures(report.passes(experiment["rows"]), report.columns(experiment))
        yield from _bullets([*experiment["conclusions"], *experiment["notes"]])


def _conditions(result: dict[str, Any]) -> Iterator[str]:
    host, topology = result["host"], result["topology"]
    sockets = f"{topology['sockets']} socket{'s' * (topology['sockets'] != 1)}"
    sockets += " (mock topology)" * topology["is_mock"]
    memory = f"{host['memory_bytes'] / 2**30:.0f} GiB of memory"
    machine = [host["cpu"], f"{host['cores']} cores", sockets, memory, host["kernel"]]
    yield from _table(
        ["condition", "value"],
        [
            ["command", f"`{result['command']}`"],
            ["revision", result["build"]],
            ["date", result["made_at"]],
            ["machine", ", ".join(machine)],
            ["rounds", str(result["repetitions"])],
        ],
    )


def _figures(rows: list[dict[str, Any]], names: list[str]) -> Iterator[str]:
    """A table of rows: what names them, medians with intervals, further figures, the result."""
    more = report.figures(rows)
    titles = [*names, "M events/s", "interval", "x loop", "interval", *(title for title, _ in more), "result"]
    cells = []
    for number, row in enumerate(rows):
        speeds = [row["events"] / seconds / 1e6 for seconds in row.get("seconds") or () if row["events"]]
        speed = "" if row["events_per_s"] is None else f"{row['events_per_s'] / 1e6:.3g}"
        ratio = "" if row["to_loop"] is None else f"{row['to_loop']:.2f}"
        of_speed, of_ratio = _interval(speeds, ".3g"), _interval(row.get("to_loop_range") or (), ".2f")
        figures = [column[number] for _, column in more]
        cells.append([*report.named(row, names), speed, of_speed, ratio, of_ratio, *figures, row["result"]])
    yield from _table(titles, cells)


def _files(rows: list[dict[str, Any]]) -> Iterator[str]:
    titles = ["app", "way", "threads", "events", "seconds", "interval", "times pyarrow", "interval", "result"]
    cells = [
        [
            *report.named(row, titles[:4]),
            f"{statistics.median(row['seconds']):.2f}",
            _interval(row["seconds"], ".2f"),
            f"{row['to_pyarrow']:.2f}",
            _interval(row["to_pyarrow_range"], ".2f"),
            row["result"],
        ]
        for row in rows
    ]
    yield from _table(titles, cells)


def _interval(values: Any, shape: str) -> str:
    return f"{min(values):{shape}} to {max(values):{shape}}" if values else ""


def _table(titles: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    yield from (f"| {' | '.join(map(_text, row))} |" for row in rows)
    yield ""


def _bullets(lines: Any) -> Iterator[str]:
    yield from (f"- {_text(line)}" for line in lines)
    yield ""


def _text(value: str) -> str:
    """A value as text of the page: no markup, no end of a cell."""
    return value.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
