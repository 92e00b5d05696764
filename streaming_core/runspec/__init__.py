"""The one vocabulary of CLI, DAG form, jobs and warehouse: what to run, what came of it, where it lies."""

from streaming_core.runspec.layout import Home, atomic_directory, new_run_id
from streaming_core.runspec.report import Latency, RunReport, Sample
from streaming_core.runspec.spec import EXECUTORS, Executor, RegressionSpec, RunSpec

__all__ = [
    "EXECUTORS",
    "Executor",
    "Home",
    "Latency",
    "RegressionSpec",
    "RunReport",
    "RunSpec",
    "Sample",
    "atomic_directory",
    "new_run_id",
]
