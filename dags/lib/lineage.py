"""What each stage of a run reads and writes, as data sets of OpenLineage.

Airflow's OpenLineage provider asks a task for them after its end, if it has a transport. A workload and an oracle are
data sets of their own, because their addresses cover their content. The results of all cells are one data set, and so
are each raw table, the marts and the pages. Its version is the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from infra.checkout import home
from streaming_core.regression.home import Home
from streaming_core.regression.plan import left_plan
from streaming_core.regression.stages import Stage
from streaming_core.regression.warehouse import RAW
from streaming_core.storage import left_json

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage


class Lineage(NamedTuple):
    """The folders that a stage reads and writes."""

    inputs: list[Path]
    outputs: list[Path]


def lineage(home: Home, run_id: str, stage: Stage) -> Lineage:
    """What a stage of a run reads and writes; nothing of a run without a plan, and of a stage that is off."""
    plan = left_plan(home, run_id)
    if not plan.get("workloads") or _is_off(plan, stage):
        return Lineage([], [])
    workloads = plan["workloads"]
    generated = [home.workload(workload["app"], workload["address"]) for workload in workloads]
    imports = [home.imported(workload["data"]) for workload in workloads if workload.get("data")]
    oracles = _oracles(home, run_id, workloads)
    results, marts, raw = home.root / "runs", home.root / "warehouse" / "marts", [*map(home.raw, RAW)]

    def tables(*names: str) -> list[Path]:
        return [home.raw(name) for name in names]

    stages = {
        Stage.PREPARE_WORKLOADS: Lineage(imports, generated),
        Stage.RUN_ORACLE: Lineage(generated, oracles),
        Stage.RUN_CORE: Lineage(generated, [results]),
        Stage.RUN_ON_SPARK: Lineage(generated, [results]),
        Stage.VALIDATE_OUTPUTS: Lineage([results, *oracles], tables("verdicts", "violations")),
        Stage.LOAD_METRICS: Lineage([results, *tables("verdicts")], tables("cells", "hosts", "samples")),
        Stage.EXPECTATIONS: Lineage([results, *raw], [home.reports / "data_docs"]),
        Stage.DBT_BUILD: Lineage(raw, [marts]),
        Stage.PUBLISH_REPORTS: Lineage([*raw, marts], [home.reports]),
        Stage.SPEED_GATE: Lineage(generated, tables("pairs")),
        Stage.FIND: Lineage(generated, tables("finds", "searches")),
    }
    return stages.get(stage, Lineage([], []))


def _is_off(plan: Mapping[str, Any], stage: Stage) -> bool:
    if stage == Stage.RUN_ON_SPARK:
        return all(cell["spec"]["executor"] != "spark" for cell in plan["cells"])
    minutes = {Stage.SPEED_GATE: "gate_minutes", Stage.FIND: "find_minutes"}
    return stage in minutes and not plan["regression"].get(minutes[stage])


def _oracles(home: Home, run_id: str, workloads: Iterable[Mapping[str, Any]]) -> list[Path]:
    known = left_json(home.run(run_id) / "oracles.json")
    return [
        home.oracle(workload["app"], known[workload["address"]])
        for workload in workloads
        if workload["address"] in known
    ]


class WithLineage:
    """An operator of a stage, with the method that the OpenLineage provider looks for."""

    run: str
    task_id: str

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:
        """The data sets of the stage."""
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import Dataset
        from openlineage.client.facet_v2 import DatasetFacet, dataset_version_dataset

        lockstep_home = home()
        addressed = tuple(lockstep_home.root / name for name in ("workloads", "oracle", "imported"))

        def dataset(path: Path) -> Dataset:
            is_addressed = any(path.is_relative_to(folder) for folder in addressed)
            facets: dict[str, DatasetFacet] = {}
            if not is_addressed:
                facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=self.run)
            return Dataset(namespace="file", name=str(path), facets=facets)

        inputs, outputs = lineage(lockstep_home, self.run, Stage(self.task_id))
        return OperatorLineage(inputs=[*map(dataset, inputs)], outputs=[*map(dataset, outputs)])
