"""One local Spark session for all tests of a process."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from jobs.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("tests") as session:
        yield session
