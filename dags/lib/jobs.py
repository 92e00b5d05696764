"""The functions of the Spark stages. Airflow's PySparkOperator calls each with a run and a Spark session.

They import what they need when they run. Airflow reads the DAG files every minute, and needs neither pyspark nor Great
Expectations for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infra.checkout import home
from streaming_core.regression.fleet import SparkQueue


def prepare_workloads(run: str, spark: Any) -> str:
    """Generate the workloads of a run."""
    from jobs import prepare_workloads

    return prepare_workloads.work(spark, home(), run)


def run_oracle(run: str, spark: Any) -> str:
    """Compute the oracles of a run."""
    from jobs import run_oracle

    return run_oracle.work(spark, home(), run)


def run_on_spark(run: str, queue: SparkQueue, limit: float, say: Callable[[str], None], spark: Any) -> str:
    """Run the cells of executor spark."""
    from jobs import run_on_spark

    return run_on_spark.work(spark, home(), run, queue, limit, say)


def validate_outputs(run: str, spark: Any) -> str:
    """Compare the outputs of a run with its oracles."""
    from jobs import validate_outputs

    return validate_outputs.work(spark, home(), run)


def expectations(run: str, spark: Any) -> str:
    """Test the tables and outputs of a run."""
    from expectations import validate

    return validate.work(spark, home(), run)
