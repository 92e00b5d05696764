"""The stages of a regression run, in order. The DAG, the command line and the pages read this list."""

from __future__ import annotations

from enum import StrEnum, auto

from streaming_core.regression.project import named

DAG_ID = named("streaming_regression")


class Stage(StrEnum):
    """A stage of a run. Its value is the id of its task in the DAG."""

    PLAN_MATRIX = auto()
    SPARK_SERVER = auto()
    PREPARE_WORKLOADS = auto()
    RUN_ORACLE = auto()
    RUN_CORE = auto()
    RUN_ON_SPARK = auto()
    VALIDATE_OUTPUTS = auto()
    LOAD_METRICS = auto()
    EXPECTATIONS = auto()
    DBT_BUILD = auto()
    PUBLISH_REPORTS = auto()
    STOP_SPARK = auto()
    SPEED_GATE = auto()
    FIND = auto()
    VERDICT = auto()

    @property
    def label(self) -> str:
        """The stage as people read it, e.g. `run oracle`."""
        return self.replace("_", " ")


# The stages that run cells. A record of one of their tasks is about one cell.
WITH_CELLS = (Stage.RUN_CORE, Stage.RUN_ON_SPARK)

# A run is red when one of these fails, even if every cell equals the oracle.
AFTER_CELLS = (
    Stage.VALIDATE_OUTPUTS,
    Stage.LOAD_METRICS,
    Stage.EXPECTATIONS,
    Stage.DBT_BUILD,
    Stage.PUBLISH_REPORTS,
)

# The stages after the pages. The speed gate and the search write the pages again.
AFTER_PAGES = (Stage.STOP_SPARK, Stage.SPEED_GATE, Stage.FIND, Stage.VERDICT)

# The stages that are clients of Spark. Each one is an operator or a hook of Airflow's Spark provider.
ON_SPARK = (
    Stage.PREPARE_WORKLOADS,
    Stage.RUN_ORACLE,
    Stage.RUN_ON_SPARK,
    Stage.VALIDATE_OUTPUTS,
    Stage.EXPECTATIONS,
    Stage.DBT_BUILD,
)
