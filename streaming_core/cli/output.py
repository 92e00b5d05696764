"""What the commands print: JSON on stdout, and a progress bar on stderr."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

NAME = "streaming-core"  # before each line on stderr


def show(value: Any) -> None:
    """Print JSON on stdout."""
    print(json.dumps(value, indent=1, sort_keys=True))


class Bar:
    """A progress bar on stderr if that is a terminal, else nothing."""

    def __init__(self, quiet: bool = False):
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show how much of a stage is done."""
        if stage not in self._tasks:
            self._tasks[stage] = self._bar.add_task(stage, total=total)
        self._bar.update(self._tasks[stage], completed=done)


def show_recording(out: Path, manifest: dict, as_json: bool) -> None:
    """Print the facts about a recording."""
    if as_json:
        show(manifest)
    else:
        rows = f"{manifest['rows']} input rows of operator {manifest['operator']}"
        print(f"{out}: {rows}, digest {manifest['content_digest']}")
