"""Airflow as the tests of the DAGs have it."""

from tests.dags.conftest import airflow_home, hasty, lockstep_home  # noqa: F401
