"""`lockstep stack`: the production topology on this machine."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rich.console import Console

from infra.checkout import ROOT
from infra.stack.topology import Stack
from infra.stack.trial import Trial
from streaming_core.errors import RunFailed

DEFAULT = ROOT / ".stack"


def up(folder: Path, port: int | None) -> None:
    """Start the stack, and print its address and login."""
    started, stack, console = time.monotonic(), Stack(folder), Console(highlight=False)

    def say(label: str, seconds: float, note: str) -> None:
        console.print(f"ok  {label:<16} {seconds:6.1f} s  {note}", soft_wrap=True, markup=False)

    stack.up(port, say)
    lines = [
        f"Airflow   {stack.url}",
        f"login     admin / the password is in {stack.folder.airflow / 'passwords.json'}",
        f"logs      {stack.folder.logs}",
        f"The stack is up after {time.monotonic() - started:.0f} s. `lockstep stack down` ends it.",
    ]
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)


def down(folder: Path) -> None:
    """End the stack."""
    print("the stack is down" if Stack(folder).down() else f"no stack is up in {folder}")


def status(folder: Path, as_json: bool) -> int:
    """Print a line for each program.

    Returns:
        The exit code: 1 unless every program runs.
    """
    rows = Stack(folder).status()
    running = bool(rows) and all(row.state == "RUNNING" for row in rows)
    if as_json:
        print(json.dumps({"up": running, "programs": [row._asdict() for row in rows]}, indent=2))
    elif not rows:
        print(f"no stack is up in {folder}")
    else:
        for row in rows:
            print(f"{row.name:<16} {row.state.lower():<10} {row.pid or '-':>8}  {row.address}".rstrip())
    return 0 if running else 1


def test(folder: Path) -> int:
    """Run the trials; print a line for each, with its seconds.

    Returns:
        The exit code: 1 if one fails.
    """
    failed, begun = 0, time.monotonic()
    for name, trial in Trial(Stack(folder)).steps().items():
        started = time.monotonic()
        try:
            word, note = "ok    ", trial()
        except RunFailed as error:
            word, note, failed = "failed", str(error), failed + 1
        print(f"{word}  {time.monotonic() - started:6.1f} s  {name}: {note}", flush=True)
    print(f"{'all trials are green' if not failed else f'{failed} failed'} after {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0
