"""The program of the guest of test_two_nodes.py: runs each cell once, and writes facts about it as JSON.

The kernel is the witness: /proc says which cores the threads may use, which ones they used, and where pages lie. What
the engine reports is beside it, so that the test can compare the two.
"""

import json
import os
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pyarrow as pa

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.agreement import states_digest
from streaming_core.kernels.program import compile_app
from streaming_core.run import host, one_pass, probe
from streaming_core.run.blocks import Blocks
from streaming_core.run.one_pass import PassRequest
from streaming_core.run.way import RunSpec
from tests.differential.case import Events

EVENTS = 2_000
RATE = 500.0  # events per second, so that the threads can be observed at work
PARAMS = {"gs": {"n_items": 40_000}, "fd": {"entities": 100}}
PLAN = {"source": [0], "parse": [2], "predict": [3, 5], "sink": [7]}
CELLS = {
    "owners": {"app": "gs", "scheme": "owners", "threads": 4},
    "tstream": {"app": "gs", "scheme": "tstream", "threads": 8, "pool": "shared_per_socket"},
    "pooled": {"app": "fd", "executor": "pooled", "threads": 8},
    "pinned": {"app": "fd", "executor": "pinned", "threads": 8, "plan": PLAN},
}
COMMON = {"executor": "transactional", "pin": True, "idle": "park"}
TASKS = Path("/proc/self/task")


def events(name: str) -> pa.Table:
    """The events of an application."""
    app = registry.load(name)
    return workload.generate_chunk(app, app.bind(PARAMS[name]), EVENTS, 7, 0, EVENTS)


class Observed:
    """The cores of the engine's threads and the pages of its tables, as the kernel sees them.

    Attributes:
        allowed: Per thread, the single cores that it was bound to.
        used: Per thread, the core that it used last. The caller is the first thread, and is bound during a block only.
        nanoseconds: Per thread, the time on a processor.
        pages: Memory with a policy, in the order of addresses: the policy, and the pages on each node.
    """

    def __init__(self) -> None:
        self.allowed: dict[int, set[int]] = defaultdict(set)
        self.used: dict[int, int] = {}
        self.nanoseconds: dict[int, int] = {}
        self.pages: list[tuple[str, dict[str, int]]] = []

    @contextmanager
    def beside(self, _engine: Any) -> Iterator[None]:
        """Observe the engine while it works."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.02):
                self._thread(TASKS / str(os.getpid()))

        looking = threading.Thread(target=look)
        looking.start()
        try:
            yield
        finally:
            over.set()
            looking.join()
        for task in TASKS.iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread may end now
                self._thread(task)
        self.pages = pages()

    def _thread(self, task: Path) -> None:
        name = (task / "comm").read_text().strip()
        is_caller = int(task.name) == os.getpid()
        if not is_caller and not name.startswith("lockstep-"):
            return
        thread = 0 if is_caller else int(name.partition("-")[2])
        (allowed,) = re.findall(r"^Cpus_allowed_list:\s*(.+)$", (task / "status").read_text(), re.MULTILINE)
        if allowed.isdecimal():
            self.allowed[thread].add(int(allowed))
            self.used[thread] = int((task / "stat").read_text().rpartition(")")[2].split()[36])
        self.nanoseconds[thread] = int((task / "schedstat").read_text().split()[0])


def pages() -> list[tuple[str, dict[str, int]]]:
    """Memory of this process that has a policy: the policy and the pages on each node, in the order of addresses."""
    lines = [line.split() for line in Path("/proc/self/numa_maps").read_text().splitlines()]
    merged = []
    for policy, group in groupby(lines, key=lambda words: words[1]):
        counts: dict[str, int] = defaultdict(int)
        for words in group:
            for word in words:
                if word.startswith("N") and "=" in word:
                    node, _, count = word.partition("=")
                    counts[node] += int(count)
        if policy not in ("default", "local") and counts:
            merged.append((policy, dict(counts)))
    return merged


def run(cell: dict[str, Any], program: Any) -> dict[str, Any]:
    """Run a cell and return the facts about it."""
    spec, observed = RunSpec.parse(COMMON | cell), Observed()
    blocks = Blocks(Events([events(spec.app)]), program, EVENTS)
    request = PassRequest(rate=RATE, beside=observed.beside)
    sample, state, metrics = one_pass.run(spec, program, blocks, request)
    return {
        "results": [sample.digest, states_digest(program.app, spec.order, state), sample.in_order],
        "binding": metrics["binding"],
        "memory": metrics["memory"],
        "tasks": [[task["operator"], task["thread"]] for task in map(dict, sample.tasks)],
        "allowed": [sorted(observed.allowed[thread]) for thread in range(spec.threads)],
        "used": [observed.used.get(thread) for thread in range(spec.threads)],
        "nanoseconds": [observed.nanoseconds.get(thread) for thread in range(spec.threads)],
        "pages": observed.pages,
    }


def programs() -> dict[str, Any]:
    """The compiled applications, by name.

    They are compiled for any x86-64 processor. So the guest can load the code that this machine compiles, which would
    take the guest minutes.
    """
    llvm.get_host_cpu_name = lambda: "x86-64"
    llvm.get_host_cpu_features = llvm.FeatureMap
    apps = {name: registry.load(name) for name in PARAMS}
    return {name: compile_app(app, app.bind(PARAMS[name])) for name, app in apps.items()}


def main() -> None:
    """Write the facts about this machine and all cells to descriptor 3; with argument `compile`, only compile."""
    compiled = programs()
    if sys.argv[1:] == ["compile"]:
        return
    print("loaded the code", flush=True)
    facts = {"topology": probe.topology(), "machine": host.machine(6).model_dump(mode="json"), "cells": {}}
    for name, cell in CELLS.items():
        facts["cells"][name] = run(cell, compiled[cell["app"]])
        print(f"ran {name}", flush=True)
    with open(3, "w") as answer:
        json.dump(facts, answer)


if __name__ == "__main__":
    main()
