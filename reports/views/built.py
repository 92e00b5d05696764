"""The models and tests of dbt in a run, each with its state, seconds and rows.

The stage `dbt_build` writes runs/<run id>/dbt.json from the results of dbt. A run without the file has no such page.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from reports.history.run import Run
from streaming_core.regression.home import Home
from streaming_core.storage import left_json, write_json

RESULTS = "dbt.json"  # a file in a run's folder
STATES = {"success": "built", "pass": "passed", "fail": "failed", "error": "failed", "skipped": "skipped"}


@dataclass(frozen=True)
class Node:
    """A model or a test.

    Attributes:
        name: Its name.
        kind: `model` or `test`.
        of: Of a model its layer, such as `marts`; of a test the model that it tests.
        how: How a model is made: view, table or incremental.
        state: built, passed, failed or skipped.
        seconds: How long it took.
        rows: Rows of a mart; rows that break a test; None if unknown.
        message: Why it failed; empty if it did not.
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
    def failed(self) -> bool:
        """Whether it failed, or was skipped because another one failed."""
        return self.state in ("failed", "skipped")


@dataclass(frozen=True)
class Built:
    """The models and tests of a build.

    Attributes:
        models: The models.
        tests: The tests of the data.
    """

    models: list[Node]
    tests: list[Node]

    @classmethod
    def of(cls, run: Run) -> Built | None:
        """The models and tests of a run; None if the run kept nothing."""
        content = left_json(run.folder / RESULTS)
        if not content:
            return None
        nodes = [Node(**one) for one in content["nodes"]]
        models, tests = ([one for one in nodes if one.kind == kind] for kind in ("model", "test"))
        return cls(models, tests)

    @property
    def failures(self) -> list[Node]:
        """The models and tests that failed or were skipped."""
        return [one for one in [*self.models, *self.tests] if one.failed]

    @property
    def sentence(self) -> str:
        """Its sentence for the top of a page."""
        if self.failures:
            return f"{len(self.failures)} of {len(self.models) + len(self.tests)} models and tests of dbt failed"
        return f"dbt built {_count(self.models, 'model')}, and {_count(self.tests, 'test')} passed"

    def passed(self, model: Node) -> str:
        """`3 of 3`: how many tests of a model passed."""
        mine = [test for test in self.tests if test.of == model.name]
        return f"{sum(not test.failed for test in mine)} of {len(mine)}" if mine else ""


def _count(nodes: list[Node], noun: str) -> str:
    return f"{len(nodes)} {noun}{'s' * (len(nodes) != 1)}"


def write_results(home: Home, run_id: str, results: Iterable[Any]) -> None:
    """Keep the results of dbt in a run.

    Args:
        home: LOCKSTEP_HOME.
        run_id: The run.
        results: The results of `dbt build`.
    """
    nodes = [vars(_node(home, one)) for one in results if str(one.node.resource_type) in ("model", "test")]
    write_json(home.run(run_id) / RESULTS, {"nodes": nodes})


def _node(home: Home, result: Any) -> Node:
    node, kind, state = result.node, str(result.node.resource_type), STATES.get(str(result.status), str(result.status))
    if kind == "model":
        of, how = node.fqn[1], node.config.materialized
        rows = _rows(home, node.name) if of == "marts" and state == "built" else None
    else:
        of, how, rows = (node.attached_node or "").rpartition(".")[2], "", result.failures
    message = " ".join((result.message or "").split()) if state in ("failed", "skipped") else ""
    return Node(node.name, kind, of, how, state, round(result.execution_time, 2), rows, message)


def _rows(home: Home, mart: str) -> int:
    folder = home.root / "warehouse" / "marts" / mart
    return sum(pq.read_metadata(path).num_rows for path in folder.rglob("*.parquet") if path.name[0] not in "._")
