"""Live runs without Spark: a workload stands for the source, and is recorded in micro-batches of given sizes."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Generator
from pathlib import Path
from typing import Any

from streaming_core.data import microbatch, workload
from streaming_core.data.microbatch import Position
from streaming_core.run import live
from streaming_core.run.report import RunReport
from streaming_core.run.way import RunSpec

CUTS = [0, 150, 150, 400, 433, 1000]  # the second micro-batch is empty


def follow(spec: RunSpec, source: Path, out: Path, **options: Any) -> RunReport:
    """A live run over the workload in `source`, in micro-batches that end at CUTS."""
    opened = workload.read(source, spec.app, spec.params)
    (table,) = opened.blocks(CUTS[-1])
    app, params = opened.app, opened.manifest["params"]

    def feed(folder: Path) -> Generator[None, None, None]:
        root = folder / live.BATCHES
        recorded = microbatch.numbers(root)
        before = microbatch.read(root, recorded[-1], app, params).position if recorded else Position()
        for start, stop in list(itertools.pairwise(CUTS))[before.batches :]:
            part = table.slice(start, stop - start)
            about = {"files": [f"{start}.csv"], "rows": len(part), "aside": []}

            def fill(at: Path, part=part, about=about):
                return ([workload.write_part(at, 0, part)] if len(part) else []), None, about

            microbatch.write(root, before, {"files": [], "columns": None}, fill)
            before = microbatch.read(root, before.batches, app, params).position
            yield

    return live.run(live.LiveRequest(spec, {"source": str(source)}, out, feed, **options))


def main(arguments: list[str]) -> None:
    """Run `follow` for a command line: APP SOURCE OUT OPTIONS."""
    parser = argparse.ArgumentParser()
    parser.add_argument("app")
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("options", nargs="*")
    parsed = parser.parse_args(arguments)
    options = dict(option.split("=") for option in parsed.options)
    is_verified = options.pop("verify", "no") == "yes"
    spec = RunSpec.parse({"sink": "parquet", "app": parsed.app, "params": {}} | options)
    follow(spec, parsed.source, parsed.out, is_verified=is_verified)
