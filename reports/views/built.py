"""The nodes of dbt in a run, such as models, seeds and tests, each with its state, seconds and rows.

The stage `dbt_build` writes runs/<run id>/dbt.json from the results of dbt. A run without the file has no such page.
A project may have nodes of every kind that dbt has. So only what all kinds have is read without a default.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import pyarrow.parquet as pq

from reports.history.load import mart_files, readable
from reports.history.run import Run
from streaming_core.regression.home import Home
from streaming_core.storage import left_json, write_json

RESULTS = "dbt.json"  # a file in a run's folder
STATES = {"success": "built", "pass": "passed", "warn": "warned", "skipped": "skipped"}  # any other one: failed
OK = ("built", "passed")
TESTS = ("test", "unit_test")
LEFT_OUT = (("operation", "success"), ("exposure", "no-op"), ("saved_query", "no-op"))  # they make nothing


@dataclass(frozen=True)
class Node:
    """A node of dbt.

    Attributes:
        name: Its name.
        kind: `model`, `test`, or another type of dbt's resources.
        of: Of a test the models that it tests; of another node its folder, such as `marts`.
        how: How a model is made: view, table or incremental.
        state: built, passed, warned, failed or skipped.
        seconds: How long it took.
        rows: Rows of a mart; rows that break a test; None if unknown.
        message: Why it failed or warned; empty if it did neither.
    """

    name: str
    kind: str
    of: str
    how: str
    state: str
    seconds: float
    rows: int | None
    message: str

    @property
    def is_test(self) -> bool:
        """Whether it tests others."""
        return self.kind in TESTS


@dataclass(frozen=True)
class Built:
    """The nodes of a build."""

    nodes: list[Node]

    @classmethod
    def of(cls, run: Run) -> Built | None:
        """The nodes of a run; None if the run kept nothing."""
        content = left_json(run.folder / RESULTS)
        return cls([Node(**entry) for entry in content["nodes"]]) if content else None

    @classmethod
    def of_results(cls, home: Home, results: Iterable[Any]) -> Built:
        """The nodes of the results of `dbt build`."""
        nodes = [result for result in results if (str(result.node.resource_type), str(result.status)) not in LEFT_OUT]
        return cls([_node(home, node) for node in nodes])

    @property
    def tests(self) -> list[Node]:
        """The tests of the data."""
        return [node for node in self.nodes if node.is_test]

    @property
    def others(self) -> list[Node]:
        """The nodes that are no tests."""
        return [node for node in self.nodes if not node.is_test]

    @property
    def failures(self) -> list[Node]:
        """The nodes that failed, or were skipped because another one failed."""
        return [node for node in self.nodes if node.state in ("failed", "skipped")]

    @property
    def warnings(self) -> list[Node]:
        """The tests that failed and only warn."""
        return [node for node in self.nodes if node.state == "warned"]

    @property
    def look(self) -> str:
        """The colour of its sentence."""
        return "red" if self.failures else "amber" if self.warnings else "green"

    @property
    def sentence(self) -> str:
        """Its sentence for the top of a page."""
        if self.failures:
            return f"{len(self.failures)} of {len(self.nodes)} nodes of dbt failed"
        kinds = Counter(node.kind for node in self.others)
        others = ", ".join(_count(number, kind) for kind, number in sorted(kinds.items()))
        warned = f"; {_count(len(self.warnings), 'test')} warned" if self.warnings else ""
        return f"dbt built {others}, and {_count(len(self.tests) - len(self.warnings), 'test')} passed{warned}"

    def passed(self, node: Node) -> str:
        """`3 of 3`: how many tests of a node passed."""
        mine = [test for test in self.tests if node.name in test.of.split(", ")]
        return f"{sum(test.state == 'passed' for test in mine)} of {len(mine)}" if mine else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def write_results(home: Home, run_id: str, built: Built) -> None:
    """Keep the nodes of a build in a run."""
    write_json(home.run(run_id) / RESULTS, {"nodes": [vars(node) for node in built.nodes]})


def _node(home: Home, result: Any) -> Node:
    node, kind, state = result.node, str(result.node.resource_type), STATES.get(str(result.status), "failed")
    folder, how, rows = "/".join(PurePath(node.original_file_path).parts[1:-1]), "", result.failures
    name = node.name
    if kind in TESTS:
        attached = getattr(node, "attached_node", None)  # of a generic test on a model
        folder = ", ".join(map(_label, [attached] if attached else node.depends_on.nodes))
    elif kind == "model":
        name, how = _label(node.unique_id), node.config.materialized
        rows = _rows(home, node.alias) if folder == "marts" and state == "built" else None
    message = "" if state in OK else " ".join((result.message or "").partition("JVM stacktrace:")[0].split())
    return Node(name, kind, folder, how, state, round(result.execution_time, 2), rows, message)


def _label(unique_id: str) -> str:
    """`cells` for `model.lockstep.cells.v1`: a name of dbt without its kind and package. Later versions stay."""
    return unique_id.split(".", 2)[2].removesuffix(".v1")


def _rows(home: Home, mart: str) -> int | None:
    folder = home.root / "warehouse" / "marts" / mart
    with readable(folder):
        return sum(pq.read_metadata(path).num_rows for path in mart_files(folder)) if folder.is_dir() else None
