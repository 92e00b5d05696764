"""infra/engines/duckdb: installed here, it answers as the oracle on adversarial workloads."""

import pytest

from tests.infra.engines.conformance import conforms

pytestmark = pytest.mark.slow


def test_engine_conforms_to_the_protocol():
    conforms("duckdb")
