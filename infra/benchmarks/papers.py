"""The charts of docs/benchmarks.md: for each paper, the throughput of its ways relative to the compiled loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reports.charts import benchmark
from streaming_core.bench import wording
from streaming_core.bench.benchmarks_page import claims_of, papers
from streaming_core.bench.claims import Line, batch_of
from streaming_core.bench.race.results import read

SIZE = (640, 170)
WAYS = {"as published": 0, "ours": 1, "best": 2}  # the series of their bars (reports/charts/series.py)


def charts(folder: Path) -> dict[str, str]:
    """Return the chart of each paper whose result is in a folder: SVG, by its path below the folder `docs`."""
    names = papers([path.stem for path in sorted(folder.glob("*.json"))])
    drawn = {name: points(read(folder / f"{name}.json")) for name in names}
    plot = {"kind": "bar", "x": "case", "y": "to_loop", "log": False}
    return {f"benchmarks/{name}.svg": benchmark.draw(bars, plot, WAYS, SIZE) for name, bars in drawn.items()}


def points(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the bars of a result: each workload of a claim on throughput has one for each kind of way."""
    bars: dict[tuple[str, str], dict[str, Any]] = {}
    for lines in claims_of(result).values():
        for line in lines:
            for way, row in _ways(line).items():
                x = f"{row['app']}, {row['threads']}, {batch_of(row)}"
                bar = {"x": x, "y": row["to_loop"], "line": way, "dashed": False, "level": False}
                if ends := wording.interval(row, "to_loop"):
                    bar["low"], bar["high"] = ends
                if bar["y"] > bars.get((x, way), {"y": 0.0})["y"]:
                    bars[x, way] = bar
    return sorted(bars.values(), key=lambda bar: (WAYS[bar["line"]], bar["x"]))


def _ways(line: Line) -> dict[str, dict[str, Any]]:
    """Return the rows of a line by their kind, if it is about throughput."""
    if line.claim.column != "events_per_s" or line.published is None:
        return {}
    rows = {"as published": line.published.row, "ours": line.ours.row if line.ours else None, "best": line.best}
    return {way: row for way, row in rows.items() if row is not None and row.get("to_loop") is not None}
