"""The report of a benchmark: JSON for programs and for the page of benchmarks, tables for people."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from streaming_core.bench import whole_runs
from streaming_core.bench.claims import TITLES, Line, lines
from streaming_core.bench.race.ratios import value
from streaming_core.bench.race.results import VERSION as VERSION
from streaming_core.bench.race.results import rows as all_rows
from streaming_core.bench.race.results import save as save_results
from streaming_core.regression.home import Home

# Optional columns of a table, shown if a row has a value: name, title, divisor for the unit, format.
FIGURES = (
    ("model", "model x loop", 1, ".2f"),
    ("to_one_thread", "x one thread", 1, ".2f"),
    ("worked", "threads that worked", 1, ",.0f"),
    ("to_handwritten", "x hand-written", 1, ".2f"),
    ("comparisons_per_s", "M comparisons/s", 1e6, ",.0f"),
    ("predicted_per_s", "predicted M/s", 1e6, ",.3f"),
    ("error", "% error", 1e-2, ".0f"),
    ("p99_us", "p99 ms", 1e3, ".3f"),
    ("offered_per_s", "offered/s", 1, ",.0f"),
    ("end_to_end_mean_us", "end to end mean ms", 1e3, ".3f"),
    ("end_to_end_p99_us", "end to end p99 ms", 1e3, ".3f"),
    ("cpu_ns", "CPU ns/event", 1, ",.0f"),
    ("energy_nj", "nJ/event", 1, ",.0f"),
    ("rejected", "% rejected", 1e-2, ".0f"),
    ("round_trip_ns", "round trip ns", 1, ",.0f"),
    ("switch_p50_us", "switch p50 ms", 1e3, ".3f"),
    ("switch_p99_us", "p99", 1e3, ".3f"),
    ("switch_max_us", "max", 1e3, ".3f"),
    ("spike_s", "longest spike s", 1, ".1f"),
    ("reconfigurations", "reconfigurations", 1, ",.0f"),
    ("loaded_switch_p50_us", "p50 under load", 1e3, ".3f"),
    ("loaded_switch_p99_us", "p99", 1e3, ".3f"),
    ("loaded_switch_max_us", "max", 1e3, ".3f"),
    ("loaded_gap_max_us", "longest gap ms", 1e3, ".3f"),
    ("loaded_near_p99_us", "p99 near a switch ms", 1e3, ".3f"),
    ("copied_max_bytes", "most copied MB", 1e6, ",.2f"),
    ("voluntary", "voluntary context switches", 1, ",.0f"),
    ("involuntary", "involuntary", 1, ",.0f"),
)


def command(
    subject: list[str],
    only: list[str] | None,
    events: int | None,
    threads: list[int] | None,
    repetitions: int,
    quick: bool,
) -> str:
    """Return the command line of a benchmark, without its output path.

    Args:
        subject: What it measures: applications, `--files`, `--suite NAME` or `--evidence FILE`.
        only: The experiments.
        events: Events per workload.
        threads: Thread counts.
        repetitions: Rounds.
        quick: Whether a pass is a single run over few events.
    """
    words = ["streaming-core", "bench", *subject]
    words += ["--quick"] if quick else []
    words += [word for name in only or [] for word in ("--only", name)]
    words += ["--events", str(events)] if events is not None else []
    words += ["--threads", ",".join(map(str, threads))] if threads else []
    return shlex.join([*words, "--repetitions", str(repetitions)])


def save(results: dict[str, Any], out: Path | None) -> Path:
    """Write the results as JSON and return the path."""
    if out is not None:
        save_results(out, results)
        return out
    stamp = results["made_at"].replace("-", "").replace(":", "")
    name = f"{results['suite']}-{stamp}.json" if "suite" in results else f"{stamp}.json"
    path = Home().reports / "bench" / name
    save_results(path, results)
    return path


def wrong_rows(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows whose results differ from the loop's."""
    return [row for row in all_rows(results) if row["result"] == "different"]


def render(results: dict[str, Any], console: Console) -> None:
    """Print the tables for people."""
    if not console.is_terminal:
        console.width = 240  # a file gets whole lines
    if "suites" in results:
        for suite in results["suites"]:
            console.print(Text(f"\n{suite['title']}", "bold underline"))
            render(suite, console)
        return
    host = results["host"]
    rounds = f"medians of {results['repetitions']} rounds"
    console.print(f"{host['cpu']}, {host['cores']} cores; {rounds}; {length(results)}", highlight=False)
    if "results" in results:
        console.print(table(results["results"], ["app", "way", "threads"]))
        for line in [*results["notes"], *cost(results["results"])]:
            console.print(Text(line), soft_wrap=True)
    for line in whole_runs.lines(results.get("files", [])):
        console.print(Text(line), soft_wrap=True)
    for experiment in results.get("experiments", []):
        figure = f" ({experiment['figure']})" if experiment["figure"] else ""
        console.print(Text(f"\n{experiment['name']}: {experiment['title']}{figure}", "bold"))
        console.print(table(passes(experiment["rows"]), columns(experiment)))
        for line in [*experiment["notes"], *experiment["conclusions"]]:
            console.print(Text(line), soft_wrap=True)
        titles, *cells = claim_cells(results, experiment)
        grid = Grid(*titles, box=None)
        for line in cells:
            grid.add_row(*map(Text, line))
        console.print(grid if cells else "")


def length(results: dict[str, Any]) -> str:
    """Return how long a pass is and what the benchmark took."""
    seconds = results["conditions"]["pass_seconds"]
    passes = "quick: single runs of few events" if results["quick"] else f"passes of {seconds:.2g} s"
    cells = f"{results['cells']} cell{'s' * (results['cells'] != 1)}"
    return f"{passes}; {cells} in {results['seconds']:,.0f} s"


def claim_lines(results: dict[str, Any], experiment: dict[str, Any]) -> list[Line]:
    """Return the lines of the claims that an experiment of a suite has today, for the rows of a result.

    Args:
        results: The result of the suite.
        experiment: One of its experiments.
    """
    from streaming_core.bench import suite  # reading a result takes no suite, so others do not wait for its imports

    declared = suite.load(results["suite"]).experiments if results["suite"] in suite.SUITES else ()
    claims = next((declaration.claims for declaration in declared if declaration.name == experiment["name"]), ())
    return lines(claims, experiment["rows"], results["host"]["cores"], len(results["topology"].get("nodes", ())))


def claim_cells(results: dict[str, Any], experiment: dict[str, Any]) -> list[list[str]]:
    """Return the cells of a table of `claim_lines`: the titles, then a row for each line."""
    return [list(TITLES.values()), *([*line.cells.values()] for line in claim_lines(results, experiment))]


def columns(experiment: dict[str, Any]) -> list[str]:
    """Return the columns and parameters that identify a row of an experiment."""
    return ["app", "way", *(x for x in experiment["varies"] if x not in ("app", "way", "threads", "at_s")), "threads"]


def passes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of whole passes; the rows of single instants are for charts only."""
    return [row for row in rows if "at_s" not in row]


def table(rows: list[dict[str, Any]], names: list[str]) -> Grid:
    """Return rows as a table: the columns that identify them, then the figures."""
    more = figures(rows)
    ranged = any(row.get("to_loop_range") for row in rows)
    titles = ["events/s", "x loop", *(["95 %"] if ranged else []), *(title for title, _ in more), "result"]
    grid = Grid(*names, *titles, box=None)
    for number, row in enumerate(rows):
        cells = identifying_cells(row, names)
        shapes = (("events_per_s", ",.0f"), ("to_loop", ".2f"))
        cells += ["" if row[key] is None else f"{row[key]:{shape}}" for key, shape in shapes]
        if ranged:
            cells.append("-".join(f"{end:.2f}" for end in row.get("to_loop_range") or ()))
        grid.add_row(*cells, *(column[number] for _, column in more), row["result"])
    return grid


def identifying_cells(row: dict[str, Any], names: list[str]) -> list[str]:
    """Return the cells that identify a row."""
    values = (value(row, name) for name in names)
    return ["" if x is None else f"{x:.4g}" if isinstance(x, float) else str(x) for x in values]


def figures(rows: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return the columns of FIGURES that some rows have: title, and a cell for each row."""
    return [
        (title, ["" if row.get(key) is None else f"{row[key] / unit:{shape}}" for row in rows])
        for key, title, unit, shape in FIGURES
        if any(row.get(key) is not None for row in rows)
    ]


def cost(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Return, for each application and way, the number of threads from which it beats the loop (COST)."""
    ways: dict[tuple[str, str], list] = {}
    for row in rows:
        if row["result"] == "equal" and row["to_loop"] is not None:
            ways.setdefault((row["app"], row["way"]), []).append(row)
    for (app, way), measured in ways.items():
        beats = [row["threads"] for row in measured if row["to_loop"] > 1]
        most = max(row["threads"] for row in measured)
        threads = f"{min(beats)} thread{'s' * (min(beats) > 1)}" if beats else f"more than {most} threads"
        yield f"COST of {app} on {way}: {threads}"
