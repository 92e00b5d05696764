"""docs/benchmarks.md, and a page of details for each result, made from the committed results in docs/benchmarks.

`make docs` writes the pages. `streaming-core bench --suite NAME --out` writes a result, NAME.json. A result of another
machine has a label behind the name: `tstream-numa.json`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streaming_core.bench import report, wording
from streaming_core.bench.claims import UNTESTABLE, Line, conditions
from streaming_core.bench.race.ratios import Row, best, compare, equal_rows, three_digits
from streaming_core.bench.race.results import VERSION, check, read
from streaming_core.bench.suite import SUITES
from streaming_core.errors import BadInput

# The suites that fill the tables of applications and of other engines.
CHOICE, ENGINES = "scaling", ("engines", "nexmark")
THREADS = (1, 2, 4, 16)  # the columns of the table of applications, where a result or the model has them
FACTS = (
    "command", "build", "made_at", "seconds", "cells", "threads", "repetitions", "host", "topology", "conditions",
)  # fmt: skip
OF_HOST = ("cpu", "cores", "memory_bytes", "kernel", "round_trip_ns", "longest_pause_ms")
OF_CONDITIONS = ("pass_seconds", "pinned", "steal", "others", "preempted", "load_before", "load_after")
INTRO = """\
# Benchmarks

This page is for a person who chooses an executor, and for one who knows the papers that Lockstep reproduces.
`make docs` writes it from the results in `docs/benchmarks`; do not edit it.

Compare ratios, not events per second, because the speed of a shared machine changes. `x loop` is the throughput of a
way relative to the compiled sequential loop on the same events. Both take turns, and figures are medians over these
rounds. The benchmark checks every result against the loop's. [How we measure](explanation/measuring.md) says more.

A result is frozen with a release. It describes the revision that it names, until the next release replaces it.
"""
CHOOSE = """\
## Which executor?

Each cell has `x loop`, and the p99 latency from arrival. All ways of an application get the same rate: half the peak of
the slowest. Default options apply. A figure behind `~` was not measured: a model expects it from one and two threads.
"""
OTHERS = """\
## Other engines

All engines of a line have the same cores and rows, and one application. `x loop` is relative to the same loop as above.
Start-up and conversion of the events do not count. Some engines give no order to their outputs.
"""
HOW_TO = """\
## How to make a result

Run a suite at a commit without local changes, on a machine with no other work. Write the result to a folder that git
ignores, because a new file in the checkout counts as a local change:

    make setup
    .venv/bin/streaming-core bench --suite {name} --threads 1,2 --out .lockstep/bench/{name}.json
    mkdir -p docs/benchmarks && cp .lockstep/bench/{name}.json docs/benchmarks/
    make docs

Commit the JSON file together with the pages. A result of another machine has a label behind its name, such as
`{name}-numa.json`. The suites are {names}.
"""
CLAIM_TITLES = (
    "claim", "paper", "batch, threads", "as published", "ours, same batch and threads", "best of all executors",
    "x loop: published, ours, best", "verdict", "revision",
)  # fmt: skip
FEW = 4  # cases of a claim that its line names

Result = dict[str, Any]


def pages(folder: Path) -> dict[str, str]:
    """The pages for the results in a folder: texts by their paths below the folder `docs`.

    Raises:
        BadInput: a file is no result of this version, has a wrong result, was measured with `--quick`, or was measured
            on uncommitted changes.
    """
    results = {path.stem: _read(path) for path in sorted(folder.glob("*.json"))}
    order = list(SUITES)
    results = {name: results[name] for name in sorted(results, key=lambda name: (order.index(_of(name)), name))}
    text = "\n".join([*_main(results), HOW_TO.format(name=order[0], names=", ".join(f"`{name}`" for name in order))])
    details = {f"benchmarks/{name}.md": "\n".join(_details(name, result)) for name, result in results.items()}
    return {path: re.sub("\n{3,}", "\n\n", page) for path, page in {"benchmarks.md": text, **details}.items()}


def papers(results: Sequence[str]) -> list[str]:
    """The names of results that are those of a paper."""
    return [name for name in results if _of(name) not in (CHOICE, *ENGINES)]


def claims_of(result: Result) -> dict[str, list[Line]]:
    """The lines of each claim of a result."""
    claims: dict[str, list[Line]] = {}
    for experiment in result["experiments"]:
        for line in report.claim_lines(result, experiment):
            claims.setdefault(f"{line.claim.says} ({line.claim.source})", []).append(line)
    return claims


def _of(stem: str) -> str:
    """The suite that a file's name names, without the label of a machine."""
    return stem.partition("-")[0]


def _read(path: Path) -> Result:
    name = _of(path.stem)
    if name not in SUITES:
        raise BadInput(f"{path}: no suite has this name; known: {', '.join(SUITES)}")
    result, command = read(path), f"streaming-core bench --suite {name} --threads 1,2"
    if not isinstance(result, dict) or result.get("suite") != name:
        raise BadInput(f"{path}: not the result of `{command}`")
    again = f"run `{result.get('command', command)}` again"
    if result.get("version") != VERSION:
        raise BadInput(f"{path}: version {result.get('version')} of a result, this is version {VERSION}; {again}")
    if missing := _missing(result):
        raise BadInput(f"{path}: {missing} is missing; {again}")
    if result.get("quick") is not False:
        raise BadInput(f"{path}: measured with --quick; run it again without")
    if result["build"] == "unknown" or result["build"].endswith("-dirty"):
        raise BadInput(f"{path}: measured on build {result['build']}; commit all changes and measure again")
    check(result, str(path), SUITES)
    return result


def _missing(result: Result) -> str | None:
    """The first fact that a result lacks."""
    names: list[tuple[str, ...]] = [(fact,) for fact in FACTS]
    names += [("host", fact) for fact in OF_HOST] + [("conditions", fact) for fact in OF_CONDITIONS]
    for path in names:
        part: Any = result
        for name in path:
            if not isinstance(part, dict) or name not in part:
                return ".".join(path)
            part = part[name]
    return None


def _main(results: dict[str, Result]) -> Iterator[str]:
    yield INTRO
    if not results:
        yield "**No result is committed**, so this page has no figures.\n"
        return
    if choice := results.get(CHOICE):
        yield CHOOSE
        yield from _table(*_choice(choice))
        yield f"Measured at {choice['build']} on {wording.machine(choice)}. [Details](benchmarks/{CHOICE}.md)\n"
    verdicts = Counter(word for name in papers([*results]) for word in _words(results[name]))
    if verdicts:
        yield "## The papers\n"
        counts = ", ".join(f"{count} {word}" for word, count in verdicts.most_common())
        yield (
            f"The papers' {sum(verdicts.values())} claims, by the verdict on most cases: {counts}.\n\n"
            "A verdict follows from the paper's value and the measured interval, by "
            "[a rule](explanation/measuring.md#verdicts). It is about the algorithm as published. Ours runs with the "
            "same batch and threads, in the same rounds. The best of all executors has the same threads.\n\n"
            "Bars show `x loop` by application, threads and batch: as published (blue), ours (orange), and the best "
            "(green).\n"
        )
    for name in papers([*results]):
        yield from _paper(name, results[name])
    if races := {name: result for name in ENGINES if (result := results.get(name))}:
        yield OTHERS
        yield from _table(*_engines([*races.values()]))
        for name, result in races.items():
            yield f"Measured at {result['build']} on {wording.machine(result)}. [Details](benchmarks/{name}.md)\n"
    yield "## Limits\n"
    yield from _limits(results)


def _choice(result: Result) -> tuple[list[str], list[list[str]]]:
    """The table of applications: for each executor, `x loop` and p99 by threads."""
    rows = [row for experiment in result["experiments"] for row in experiment["rows"]]
    counts = [count for count in THREADS if any(row["threads"] == count and row["way"] != "loop" for row in rows)]
    of_way: dict[tuple[str, str], dict[int, Row]] = {}
    executors = {(row["app"], row["way"]): row["executor"] for row in rows if "executor" in row}
    for row in rows:
        if (key := (row["app"], row["way"])) in executors:
            of_way.setdefault(key, {})[row["threads"]] = row
    lines = [
        [app, executors[app, way], way, *(_cell(by_threads.get(count)) for count in counts)]
        for (app, way), by_threads in of_way.items()
    ]
    return ["application", "executor", "way", *(f"{n} thread{'s' * (n > 1)}" for n in counts)], lines


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row["to_loop"] is None:
        return f"~{three_digits(row['model'])}" if row.get("model") else ""
    p99 = row.get("end_to_end_p99_us")
    return three_digits(row["to_loop"]) + (f"; {three_digits(p99 / 1e3)} ms" if p99 is not None else "")


def _paper(name: str, result: Result) -> Iterator[str]:
    label = _of(name) != name and name.partition("-")[2]
    yield f"### {_text(result['title'])}{f' ({_text(label)})' if label else ''}\n"
    yield f"![Throughput relative to the compiled loop: as published, ours, and the best](benchmarks/{name}.svg)\n"
    lines = [
        [says, *_summary(lines), result["build"]] for says, lines in claims_of(result).items()
    ]  # a row for each claim
    yield from _table(list(CLAIM_TITLES), lines)
    yield f"Measured on {wording.machine(result)}. [Details](benchmarks/{name}.md)\n"


def _summary(lines: list[Line]) -> list[str]:
    """The cells of a claim: those of its cases together."""
    cells = [line.cells for line in lines]
    papers = [*dict.fromkeys(cell["paper"] for cell in cells)]
    paper = papers[0] if len(papers) == 1 else _by_case(lines, [cell["paper"] for cell in cells])
    where = [*dict.fromkeys(conditions(result.row) for line in lines if (result := line.published or line.ours))]
    figures = [
        _by_case(lines, ["" if result is None or result.median is None else result.short for result in of_way])
        for of_way in ([line.published for line in lines], [line.ours for line in lines])
    ]
    ways = [*dict.fromkeys(cell["best"] for cell in cells if cell["best"])]
    loop = _by_case(lines, [cell["loop"] for cell in cells], "; ")
    return [paper, "; ".join(where), *figures, ", ".join(ways), loop, _verdicts(lines)]


def _by_case(lines: list[Line], texts: list[str], between: str = ", ") -> str:
    """Texts behind the cases that they belong to; those of many cases without them."""
    known = [(case, text) for case, text in zip(_cases(lines), texts, strict=True) if text]
    if len(known) == 1:
        return known[0][1]
    if len(known) > FEW:
        return between.join(dict.fromkeys((known[0][1], "...", known[-1][1])))
    return between.join(f"{case} {text}" for case, text in known)


def _cases(lines: list[Line]) -> list[str]:
    """The cases of a claim, without the parts that all of them share: the batch has a column of its own."""
    parts = [line.case.split(", ") for line in lines]
    shared = set.intersection(*map(set, parts))
    return [", ".join(part for part in case if part not in shared) or ", ".join(case) for case in parts]


def _verdicts(lines: list[Line]) -> str:
    cases: dict[str, list[str]] = {}
    for line, case in zip(lines, _cases(lines), strict=True):
        cases.setdefault(line.verdict, []).append(case)
    if len(cases) == 1:
        return next(iter(cases))
    return "; ".join(
        f"{verdict}: {', '.join(named) if len(named) <= FEW else f'{len(named)} cases'}"
        for verdict, named in cases.items()
    )


def _words(result: Result) -> Iterator[str]:
    """The verdict of each claim: that of most of its cases."""
    for lines in claims_of(result).values():
        words = Counter(UNTESTABLE if line.verdict.startswith(UNTESTABLE) else line.verdict for line in lines)
        yield words.most_common(1)[0][0]


def _engines(results: list[Result]) -> tuple[list[str], list[list[str]]]:
    """The table of other engines: each beside our fastest way with as many cores."""
    lines = []
    for experiment in (experiment for result in results for experiment in result["experiments"]):
        for heat in dict.fromkeys(row["heat"] for row in experiment["rows"]):
            rows = [row for row in equal_rows(experiment["rows"]) if row["heat"] == heat and "executor" in row]
            ours = best(row for row in rows if row["executor"] in ("transactional", "pooled", "pinned"))
            for row in rows:
                cells = [row["app"], str(row["cores"]), row["way"], str(row["threads"]), _rate(row), _cell(row)]
                ratio = "" if ours is None or row is ours else compare(ours, row, over_threads=True).text
                lines.append([*cells, ratio])
    return ["application", "cores", "engine", "threads", "M events/s", "x loop", "Lockstep's multiple"], lines


def _rate(row: Row) -> str:
    return three_digits(row["events_per_s"] / 1e6)


def _limits(results: dict[str, Result]) -> Iterator[str]:
    machines = [*dict.fromkeys(map(wording.machine, results.values()))]
    builds = [*dict.fromkeys(result["build"] for result in results.values())]
    untested = [line for name in papers([*results]) for lines in claims_of(results[name]).values() for line in lines]
    reasons = Counter(line.verdict for line in untested if line.verdict.startswith(UNTESTABLE))
    yield f"- Measured on {'; '.join(machines)}, at {', '.join(builds)}."
    yield "- Sizes fit the machine, not the paper's."
    yield "- Most passes last a second or more; the page of a suite says how long."
    yield from (f"- {count} case{'s' * (count > 1)}: {reason}." for reason, count in reasons.most_common())
    yield ""


def _details(name: str, result: Result) -> Iterator[str]:
    """The page of a result: conditions, then each experiment with its claims, its rows and its conclusions."""
    label = _of(name) != name and name.partition("-")[2]
    yield f"# {_text(result['title'])}{f' ({_text(label)})' if label else ''}\n"
    yield f"`make docs` writes this page from `docs/benchmarks/{name}.json`. [All suites](../benchmarks.md)\n"
    yield from _conditions(result)
    for experiment in sorted(result["experiments"], key=_figure_number):
        figure = f"{_capitalised(experiment['figure'])}: " if experiment["figure"] else ""
        yield f"## {_text(figure + experiment['title'])}\n"
        titles, *cells = report.claim_cells(result, experiment)
        if cells:
            yield from _table(titles, cells)
        yield from _figures(report.passes(experiment["rows"]), report.columns(experiment))
        yield from (f"- {_text(line)}" for line in [*experiment["conclusions"], *experiment["notes"]])
        yield ""


def _figure_number(experiment: dict[str, Any]) -> tuple[bool, int]:
    """The key that sorts experiments: the number of their first figure. Those without one come last, in their order."""
    figure = re.search(r"figures? (\d+)", experiment["figure"], re.IGNORECASE)
    return figure is None, int(figure[1]) if figure else 0


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _conditions(result: Result) -> Iterator[str]:
    host, seen = result["host"], result["conditions"]
    system = host["kernel"] + (f", governor {host['governor']}" if host.get("governor") else "")
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
            ["passes", f"{wording.passes(result)}, threads {', '.join(map(str, result['threads']))}"],
            ["size", wording.size(result)],
            ["disturbance", "; ".join(disturbance)],
        ],
    )


def _figures(rows: list[Row], names: list[str]) -> Iterator[str]:
    """A table of rows: what names them, medians with intervals, the result."""
    shown = [("events_per_s", "M events/s", 1e6, ".3g"), ("to_loop", "x loop", 1, ".2f"), *report.FIGURES]
    shown = [column for column in shown if any(row.get(column[0]) is not None for row in rows)]
    cells = [
        [*report.identifying_cells(row, names), *(_with_interval(row, *column) for column in shown), row["result"]]
        for row in rows
    ]
    yield from _table([*names, *(title for _, title, _, _ in shown), "result"], cells)


def _with_interval(row: Row, column: str, _: str, unit: float, shape: str) -> str:
    """A figure with its interval, `1.23 (1.20 to 1.25)`; empty without a figure."""
    value, ends = row.get(column), wording.interval(row, column)
    if value is None:
        return ""
    span = f" ({ends[0] / unit:{shape}} to {ends[1] / unit:{shape}})" if ends else ""
    return f"{value / unit:{shape}}{span}"


def _table(titles: Sequence[str], rows: list[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    yield from (f"| {' | '.join(map(_text, row))} |" for row in rows)
    yield ""


def _text(value: str) -> str:
    """A value as text of the page: no markup, no end of a cell."""
    return value.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
