"""docs/benchmarks.md, made from the committed results in docs/benchmarks.

`make docs` writes the page. `streaming-core bench --out` writes a result: `engine.json` for applications, `files.json`
with `--files`, else the suite's name. A result of another machine has a label behind the name: `tstream-numa.json`.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from streaming_core.bench import report, wording
from streaming_core.bench.race.results import VERSION, check, read
from streaming_core.bench.suite import SUITES
from streaming_core.errors import BadInput

# By name, in the order of the page: the options that make a result, and its key in the JSON.
COMMANDS = {
    "engine": ("--threads 1,2", "results"),
    "files": ("--files --threads 1,2", "files"),
    **{suite: (f"--suite {suite} --threads 1,2", "experiments") for suite in SUITES},
}
TITLES = {"engine": "Every application in every way of executing", "files": "From file to file"}
FACTS = (
    "command", "build", "made_at", "seconds", "cells", "threads", "repetitions", "host", "topology", "conditions",
    "sources",
)  # fmt: skip
OF_HOST = ("cpu", "cores", "memory_bytes", "kernel", "round_trip_ns", "longest_pause_ms")
OF_CONDITIONS = ("pass_seconds", "pinned", "steal", "others", "preempted", "load_before", "load_after")
INTRO = """\
# Benchmarks

`make docs` writes this page from the JSON files in `docs/benchmarks`. Do not edit it.

Figures are medians over rounds. Brackets hold the 95 % interval of a median. In a round, the ways of executing take
turns with the compiled sequential loop on the same events. `x loop` is the ratio to the loop of the same round. Compare
this ratio, not events per second: the speed of a shared machine changes. The benchmark checks every result against the
loop's. [How we measure](explanation/measuring.md) explains the comparisons and the columns.

A result is **outdated** if the sources of a component that it measures have changed. It then describes its own
revision only.
"""
HOW_TO = """\
## How to make a result

Run the benchmark at a commit without local changes, on a machine with no other work. Write it to a folder that git
ignores, because a new file in the checkout counts as a local change:

    make setup
    .venv/bin/streaming-core bench {options} --repetitions 5 --out .lockstep/bench/{name}.json
    mkdir -p docs/benchmarks && cp .lockstep/bench/{name}.json docs/benchmarks/
    make docs

Commit the JSON file together with this page. A result of another machine has a label behind its name, such as
`tstream-numa.json`.

| file | options |
|---|---|
{rows}
"""


def page(folder: Path, current: Callable[[], dict[str, str]] | None = None) -> str:
    """The page for the results in a folder.

    Args:
        folder: the results.
        current: returns the digests of all components, if not those of this checkout.

    Raises:
        BadInput: a file is no result of this version, has a wrong result, was measured with `--quick`, or was measured
            on uncommitted changes.
    """
    read = {path.stem: _read(path) for path in sorted(folder.glob("*.json"))}
    lines = [INTRO]
    if not read:
        lines += ["**No result is committed**, so this page has no figures.\n"]
    digests = (current or wording.sources)() if read else {}
    order = list(COMMANDS)
    for name in sorted(read, key=lambda name: (order.index(_of(name)), name)):
        lines += _section(name, read[name], wording.outdated(read[name], digests))
    rows = "\n".join(f"| `{name}.json` | `{options}` |" for name, (options, _) in COMMANDS.items())
    lines.append(HOW_TO.format(name="engine", options=COMMANDS["engine"][0], rows=rows))
    return re.sub("\n{3,}", "\n\n", "\n".join(lines))


def _of(stem: str) -> str:
    """The benchmark that a file's name names, without the label of a machine."""
    return stem.partition("-")[0]


def _read(path: Path) -> dict[str, Any]:
    name = _of(path.stem)
    if name not in COMMANDS:
        raise BadInput(f"{path}: no benchmark has this name; known: {', '.join(COMMANDS)}")
    options, key = COMMANDS[name]
    result = read(path)
    if not isinstance(result, dict) or key not in result or result.get("suite", name) != name:
        raise BadInput(f"{path}: not the result of `streaming-core bench {options}`")
    again = f"run `{result.get('command', f'streaming-core bench {options}')}` again"
    if result.get("version") != VERSION:
        raise BadInput(f"{path}: version {result.get('version')} of a result, this is version {VERSION}; {again}")
    if missing := _missing(result):
        raise BadInput(f"{path}: {missing} is missing; {again}")
    if result.get("quick") is not False:
        raise BadInput(f"{path}: measured with --quick; run it again without")
    if result["build"] == "unknown" or result["build"].endswith("-dirty"):
        raise BadInput(f"{path}: measured on build {result['build']}; commit all changes and measure again")
    if wrong := report.wrong_rows(result):
        raise BadInput(
            f"{path}: {len(wrong)} results differ from the loop's, first {wrong[0]['app']} {wrong[0]['way']}"
        )
    if name in SUITES:
        check(result, str(path), SUITES)
    return result


def _missing(result: dict[str, Any]) -> str | None:
    """The first fact that a result lacks."""
    lacks = [fact for fact in FACTS if fact not in result and (fact != "threads" or "suite" in result)]
    for part, facts in (("host", OF_HOST), ("conditions", OF_CONDITIONS)):
        lacks += [f"{part}.{fact}" for fact in facts if fact not in result.get(part, {})]
    return lacks[0] if lacks else None


def _section(name: str, result: dict[str, Any], outdated: list[str]) -> Iterator[str]:
    title = result.get("title") or TITLES[_of(name)]
    label = name.partition("-")[2]
    yield f"## {_text(title)}{f' ({_text(label)})' if label else ''}\n"
    if outdated:
        yield f"**Outdated:** {wording.warning([f'`{_text(name)}`' for name in outdated])}.\n"
    yield from _conditions(result)
    if "results" in result:
        yield from _figures(result["results"], ["app", "way", "threads", "events"])
        yield from _bullets([*report.cost(result["results"]), *result.get("notes", [])])
    elif "files" in result:
        yield from _files(result["files"])
    for experiment in sorted(result.get("experiments", []), key=_figure_number):
        figure = f"{_capitalised(experiment['figure'])}: " if experiment["figure"] else ""
        yield f"### {_text(figure + experiment['title'])}\n"
        yield from _claims(*report.claim_cells(result, experiment))
        yield from _figures(report.passes(experiment["rows"]), report.columns(experiment))
        yield from _bullets([*experiment["conclusions"], *experiment["notes"]])


def _figure_number(experiment: dict[str, Any]) -> tuple[bool, int]:
    """The key that sorts experiments: the number of their first figure. Those without one come last, in their order."""
    figure = re.search(r"figures? (\d+)", experiment["figure"], re.IGNORECASE)
    return figure is None, int(figure[1]) if figure else 0


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _claims(titles: list[str], *cells: list[str]) -> Iterator[str]:
    """A table with a row for each case of a claim of the paper, or of a goal of ours."""
    if cells:
        yield from _table(titles, list(cells))
    else:
        yield "No claim of a paper belongs to this experiment.\n"


def _conditions(result: dict[str, Any]) -> Iterator[str]:
    host, seen = result["host"], result["conditions"]
    system = host["kernel"] + (f", governor {host['governor']}" if host.get("governor") else "")
    threads = f", threads {', '.join(map(str, result['threads']))}" if "threads" in result else ""
    disturbance = [
        f"load {seen['load_before']:.1f} before and {seen['load_after']:.1f} after",
        f"{seen['steal']:.1%} of the time stolen by the hypervisor",
        f"{seen['others']:.1%} used by other processes",
        f"{seen['preempted']:.0f} lost cores per second",
    ]
    yield from _table(
        ["condition", "value"],
        [
            ["command", f"`{result['command']}`"],
            ["revision", result["build"]],
            ["date", result["made_at"]],
            ["machine", wording.machine(result)],
            ["system", system],
            ["round trip between cores", wording.round_trip(host)],
            ["longest pause", f"{host['longest_pause_ms']:.2g} ms"],
            ["passes", wording.passes(result) + threads],
            ["size", wording.size(result)],
            ["disturbance", "; ".join(disturbance)],
        ],
    )


def _figures(rows: list[dict[str, Any]], names: list[str]) -> Iterator[str]:
    """A table of rows: what names them, medians with intervals, the result."""
    shown = [("events_per_s", "M events/s", 1e6, ".3g"), ("to_loop", "x loop", 1, ".2f"), *report.FIGURES]
    shown = [column for column in shown if any(row.get(column[0]) is not None for row in rows)]
    cells = [
        [*report.identifying_cells(row, names), *(_with_interval(row, *column) for column in shown), row["result"]]
        for row in rows
    ]
    yield from _table([*names, *(title for _, title, _, _ in shown), "result"], cells)


def _with_interval(row: dict[str, Any], column: str, _: str, unit: float, shape: str) -> str:
    """A figure with its interval, `1.23 (1.20 to 1.25)`; empty without a figure."""
    value, ends = row.get(column), wording.interval(row, column)
    if value is None:
        return ""
    span = f" ({ends[0] / unit:{shape}} to {ends[1] / unit:{shape}})" if ends else ""
    return f"{value / unit:{shape}}{span}"


def _files(rows: list[dict[str, Any]]) -> Iterator[str]:
    titles = ["app", "way", "threads", "events", "seconds", "times pyarrow", "result"]
    cells = [
        [
            *report.identifying_cells(row, titles[:4]),
            _with_interval(row | {"seconds": statistics.median(row["seconds"])}, "seconds", "", 1, ".2f"),
            _with_interval(row, "to_pyarrow", "", 1, ".2f"),
            row["result"],
        ]
        for row in rows
    ]
    yield from _table(titles, cells)


def _table(titles: Sequence[str], rows: list[list[str]]) -> Iterator[str]:
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
