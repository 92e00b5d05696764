"""The Spark session of the jobs' tests."""

from tests.jobs.conftest import spark

__all__ = ["spark"]
