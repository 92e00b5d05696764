"""Airflow as the tests of the DAGs have it."""

from tests.dags.conftest import hasty  # noqa: F401
