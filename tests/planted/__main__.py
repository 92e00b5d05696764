"""Search for planted faults: `python -m tests.planted [NAME ...] [--minutes N] [--seed N] [--json]`.

Each search is a `lockstep find` in an overlay of the checkout (`overlay.py`), and ends with its first find. The test
that it writes has to fail there, and to pass in an overlay without the fault. All forty take hours. Exit code 1: a
tenth of them was not found.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from tests.planted import operators, overlay, runtime
from tests.planted.overlay import Overlay

SHARE = 0.9  # of the faults that a campaign has to find
_AFTER = 600.0  # seconds that a search may take beyond its time: the start, and making the case smaller


@dataclass
class Outcome:
    """The outcome of a search.

    Attributes:
        fault: The name of the fault.
        app: The application.
        symptom: What was found; empty: nothing.
        seconds: The time until it showed.
        shrinking: The time of making it smaller.
        events: Its events.
        threads: Its threads.
        rate: The share of trials that show it.
        fails: Whether its test fails in the overlay.
        passes: Whether its test passes in an overlay without the fault.
    """

    fault: str
    app: str
    symptom: str = ""
    seconds: float = 0.0
    shrinking: float = 0.0
    events: int = 0
    threads: int = 0
    rate: float = 0.0
    fails: bool = False
    passes: bool = False

    @property
    def line(self) -> str:
        """The outcome as a row of a table."""
        head = f"{self.fault:24} {self.app:14}"
        if not self.symptom:
            return f"{head} not found"
        size = f"{self.events:4} {self.threads:7} {self.rate:5.0%}"
        test = ("fails" if self.fails else "PASSES", "passes" if self.passes else "FAILS")
        return f"{head} {self.seconds:7.0f} {self.shrinking:6.0f} {size}  {test[0]:6} {test[1]:6}  {self.symptom}"


HEAD = f"{'fault':24} {'application':14} {'found s':>7} {'shrunk':>6} {'rows':>4} threads  rate  there  here"


@contextmanager
def planted(name: str) -> Iterator[tuple[Overlay, str]]:
    """An overlay with this fault, and the application to search."""
    if name in runtime.APPLICATIONS:
        with overlay.of_checkout(overlay.build(), variables={overlay.VARIABLE: name}) as there:
            yield there, runtime.APPLICATIONS[name]
    else:
        fault = operators.FAULTS[name]
        with overlay.of_checkout(apply=fault.apply) as there:
            yield there, fault.app


def search(name: str, minutes: float, seed: int) -> Outcome:
    """Search for a fault, and run the test of the find there and in a sound overlay."""
    with planted(name) as (there, app), overlay.of_checkout(apply=operators.prepare) as sound:
        arguments = ["find", app, "--minutes", str(minutes), "--seed", str(seed), "--json"]
        ended = there.run("-m", "infra.cli", *arguments, seconds=60 * minutes + _AFTER)
        if ended.returncode not in (0, 1):
            sys.exit(f"{name}: lockstep {' '.join(arguments)} ended with {ended.returncode}\n{ended.stderr[-2000:]}")
        finds: list[dict[str, Any]] = json.loads(ended.stdout)["finds"]
        if not finds:
            return Outcome(name, app)
        find = finds[0]
        numbers = {key: find[key] for key in ("seconds", "shrinking", "events", "threads", "rate")}
        codes = [where.run("-m", "pytest", "-q", find["test"], seconds=_AFTER) for where in (there, sound)]
        fails, passes = codes[0].returncode == 1, codes[1].returncode == 0
        return Outcome(name, app, find["sentence"], **numbers, fails=fails, passes=passes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search for the named faults, or for all."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted")
    parser.add_argument("names", metavar="NAME", nargs="*", help="faults; all if none is named")
    parser.add_argument("--minutes", type=float, default=5.0, help="minutes of each search")
    parser.add_argument("--seed", type=int, default=0, help="chooses the draws")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each fault")
    options = parser.parse_args(arguments)
    known = [*runtime.APPLICATIONS, *operators.FAULTS]
    if unknown := set(options.names) - {*known}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    names, count = options.names or known, 0
    if not options.json:
        print(HEAD, flush=True)
    for name in names:
        outcome = search(name, options.minutes, options.seed)
        count += bool(outcome.symptom)
        print(json.dumps(asdict(outcome)) if options.json else outcome.line, flush=True)
    if not options.json:
        print(f"{count} of {len(names)} found")
    return int(count < SHARE * len(names))


if __name__ == "__main__":
    sys.exit(main())
