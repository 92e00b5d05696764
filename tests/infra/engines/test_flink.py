"""infra/engines/flink: installed here, it answers as the oracle on adversarial workloads."""

import pytest

from tests.infra.engines.conformance import conforms

pytestmark = pytest.mark.slow


# Each cell starts a JVM, so all applications together would take longer than a test may.
@pytest.mark.parametrize("application", ["wc", "sd", "wordcount", "scalejoin"])
def test_engine_conforms_to_the_protocol(application):
    conforms("flink", application)
