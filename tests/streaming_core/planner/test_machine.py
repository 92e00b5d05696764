"""A machine is read strictly; the paper's machines match the paper."""

import json

import pytest

from streaming_core.errors import BadInput
from streaming_core.planner.machine import Machine

GOOD = {"name": "m", "cores": [2, 4], "latency": [[0, 90.5], [100, 10]]}


def written(tmp_path, document):
    path = tmp_path / "machine.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_a_machine_is_read_from_its_file(tmp_path):
    more = {"capacity": [1e9, 2e9], "bandwidth": [[5.0, None], [7.0, 8.0]], "replicas_per_core": None}
    machine = Machine.named(written(tmp_path, GOOD | more))
    assert (machine.sockets, machine.threads, machine.thread(1, 3)) == (2, 6, 5)
    assert (machine.time(0), machine.memory(1), machine.channel(0, 1), machine.channel(1, 0)) == (1e9, 8.0, None, 7.0)
    assert machine.room(0) is None


def test_omitted_fields_of_a_machine_constrain_nothing(tmp_path):
    machine = Machine.named(written(tmp_path, GOOD))
    assert (machine.time(1), machine.memory(0), machine.channel(0, 1), machine.room(1)) == (4e9, None, None, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latency": [[0, 1]]}, "latency must have 2 rows of 2 values"),
        ({"latency": [[0, 1], [1]]}, "latency must have 2 rows of 2 values"),
        ({"latency": []}, "latency must have 2 rows of 2 values"),
        ({"latency": [[2, 1], [1, 0]]}, "latency: in row 0, the diagonal (2.0) must be the minimum (1.0)"),
        ({"latency": [[0, -1], [1, 0]]}, "latency.0.1 must be at least 0"),
        ({"latency": [[0, None], [1, 0]]}, "latency.0.1 must be a number"),
        ({"bandwidth": [[1.0, 2.0]]}, "bandwidth must have 2 rows of 2 values"),
        ({"bandwidth": [[1.0, 0], [1, 1]]}, "bandwidth.0.1 must be more than 0"),
        ({"capacity": [1e9]}, "capacity must have one value for each of 2 sockets, got 1"),
        ({"cores": []}, "cores must have at least 1 item"),
        ({"cores": [0, 1]}, "cores.0 must be at least 1"),
        ({"cores": ["2", 4]}, "cores.0 must be an integer"),
        ({"replicas_per_core": 0}, "replicas_per_core must be at least 1"),
        ({"clock_ghz": 0}, "clock_ghz must be more than 0"),
        ({"sockets": 2}, "unknown field sockets"),
    ],
)
def test_a_damaged_machine_is_refused_in_one_line(tmp_path, change, message):
    path = written(tmp_path, GOOD | change)
    with pytest.raises(BadInput) as refused:
        Machine.named(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "invalid JSON"), (json.dumps(GOOD)[:-1] + ', "capacity": [NaN, 1]}', "finite"), ("[]", "must be a mapping")],
)
def test_a_file_without_a_machine_is_refused_in_one_line(tmp_path, text, message):
    with pytest.raises(BadInput, match=message) as refused:
        Machine.named(written(tmp_path, text))
    assert "\n" not in str(refused.value)


def test_an_unknown_machine_is_refused_with_the_known_names():
    with pytest.raises(BadInput, match=r"unknown machine 'server_c' .*; known: server_a, server_b, or a machine file"):
        Machine.named("server_c")


@pytest.mark.parametrize(
    ("name", "cores", "hop", "far"), [("server_a", 18, 307.7, 548.0), ("server_b", 8, 185.2, 349.6)]
)
def test_papers_servers_match_its_table(name, cores, hop, far):
    machine = Machine.named(name)
    assert machine.cores == [cores] * 8
    assert (machine.latency[0][1], machine.latency[0][7]) == (hop, far)
    assert machine.name == name
    assert machine.source


def test_a_row_costs_its_cache_lines_and_nothing_locally():
    machine = Machine.named("server_a")
    assert machine.fetch(64, 0, 1) == 307.7
    assert machine.fetch(65, 0, 1) == 2 * 307.7
    assert machine.fetch(0, 0, 1) == machine.fetch(64, 1, 1) == 0


def test_each_thread_of_a_small_host_is_a_socket():
    machine = Machine.of_threads(3, 80)
    assert machine.latency == [[0, 80, 80], [80, 0, 80], [80, 80, 0]]
    assert (machine.sockets, machine.threads, machine.room(2)) == (3, 3, None)
    assert Machine.of_threads(2, [[0, 1], [2, 0]]).latency == [[0, 1], [2, 0]]


def test_a_streamed_row_takes_its_bytes_over_the_bandwidth():
    by_line = Machine.of_threads(2, 50.0)
    machine = by_line.changed(streams=[[None, 2e9], [1e9, None]])
    assert [machine.fetch(100, i, j) for i, j in ((0, 1), (1, 0), (0, 0))] == [50.0, 100.0, 0.0]
    assert [by_line.fetch(100, i, j) for i, j in ((0, 1), (1, 0), (1, 1))] == [100.0, 100.0, 0.0]
    with pytest.raises(ValueError, match="streams: the value of row 1, column 0 is missing"):
        machine.changed(streams=[[None, 2e9], [None, None]])


def test_a_writer_pays_for_getting_lines_back_where_the_machine_knows_the_cost():
    known = Machine.of_threads(2, 50.0)
    assert known.regaining_ns == [[0.0, 0.0], [0.0, 0.0]]
    assert known.changed(rewriting=[[5e9, 2e9], [1e9, None]]).regaining_ns == [[0.0, 0.5], [1.0, 0.0]]
    with pytest.raises(ValueError, match="rewriting: the value of row 0, column 1 is missing"):
        known.changed(rewriting=[[None, None], [1e9, None]])


def test_a_machine_numbers_its_threads():
    machine = Machine(name="two nodes", cores=[2, 2], latency=[[0.0, 1.0], [1.0, 0.0]])
    assert [machine.thread(i, core) for i in (0, 1) for core in (0, 1)] == [0, 1, 2, 3]
    turned = machine.changed(numbers=[[0, 2], [1, 3]])
    assert [turned.thread(i, core) for i in (0, 1) for core in (0, 1)] == [0, 2, 1, 3]
    for wrong in ([[0, 1, 2], [3]], [[0, 1], [1, 2]], [[0, 1], [2, 4]]):
        with pytest.raises(ValueError, match="numbers must "):
            machine.changed(numbers=wrong)
