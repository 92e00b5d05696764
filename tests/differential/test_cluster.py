"""Tasks of a cluster engine, with one of a single process (`shuffle.py`): drawn programs, and those of the registry."""

import json
from pathlib import Path

import pytest

from streaming_core.apps import registry
from streaming_core.cluster.stages import stages
from streaming_core.cluster.task import Figures, sortable
from streaming_core.errors import RunFailed
from tests.differential import shuffle
from tests.differential.clustered import Drawn, shared_outputs, shared_states
from tests.support.draws import seeds


def figures(drawn: Drawn) -> list[Figures]:
    paths = sorted(Path(drawn.pass_.folder, "tasks").glob("*.json"))
    return [Figures.of(json.loads(path.read_text())) for path in paths]


@pytest.mark.parametrize("number", seeds(1, 170))
@pytest.mark.parametrize("kind", ["windowed", "dataflow"])
@pytest.mark.slow
def test_drawn_program_in_shares_equals_the_oracle(tmp_path, kind, number):
    drawn = Drawn.of(kind, number, tmp_path)
    if drawn.outputs is None:
        with pytest.raises(RunFailed, match=r"operator .* failed at event"):
            shuffle.run(drawn.pass_)
        return
    shuffle.run(drawn.pass_)
    assert drawn.difference(shared_outputs(drawn.pass_), shared_states(drawn.pass_), figures(drawn)) is None


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_failing_program_names_the_operator_and_the_event(tmp_path, number):
    drawn = Drawn.of("failing", number, tmp_path)
    if drawn.outputs is not None:
        pytest.skip("this program does not fail")
    with pytest.raises(RunFailed, match=r"operator .* failed at event"):
        shuffle.run(drawn.pass_)


def test_stages_split_an_application_at_stateful_operators():
    lr = stages(registry.load("lr"))
    assert lr[0].name == "events"
    with_state = [stage.operator.kind for stage in lr[1:]]
    assert set(with_state) <= {"partitioned", "stateful", "windowed"}
    wc = stages(registry.load("wc"))
    assert [(stage.name, len(stage.steps), len(stage.exits)) for stage in wc] == [("events", 1, 1), ("count", 1, 1)]


def test_byte_string_keys_keep_their_order_and_are_no_prefixes():
    import pyarrow as pa

    texts = [b"", b"\x00", b"\x00\x00", b"\x00a", b"a", b"a\x00", b"a\x00b", b"ab", b"b", b"\xff", b"\xff\xff"]
    numbers = [-(1 << 63), -300, -1, 0, 1, 255, 256, (1 << 63) - 1]
    for keys in (texts, numbers):
        encoded = sortable(pa.chunked_array([pa.array(keys)])).to_pylist()
        assert encoded == sorted(encoded)
        assert not any(other.startswith(one) for one in encoded for other in encoded if one != other)
