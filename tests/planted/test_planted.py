"""The planted faults have names, and a sound runtime has none of them. `__main__.py` searches for them."""

from tests.planted import operators, overlay, runtime


def test_every_fault_has_a_name_of_its_own():
    assert len(runtime.APPLICATIONS) == len(operators.FAULTS) == 20
    assert not set(runtime.APPLICATIONS) & set(operators.FAULTS)


def test_the_runtime_has_the_faults_of_the_table():
    assert [*runtime.sentences()] == [*runtime.APPLICATIONS]


def test_a_sound_runtime_has_no_planted_fault():
    assert overlay.VARIABLE.encode() not in (overlay.ROOT / overlay.RUNTIME).read_bytes()
