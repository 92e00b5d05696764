"""infra/engines/polars: installed here, it answers as the oracle on adversarial workloads."""

import pytest

from tests.infra.engines.conformance import conforms

pytestmark = pytest.mark.slow


def test_it_conforms():
    conforms("polars")
