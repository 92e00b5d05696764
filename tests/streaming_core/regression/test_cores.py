"""Numbers of threads and the cores of hosts: what `auto` stands for, and which hosts run a cell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core.errors import BadInput
from streaming_core.regression import matrix
from streaming_core.regression.fleet import LOCAL, Queue
from streaming_core.regression.home import Home
from streaming_core.regression.preflight import Preflight, latest, record
from streaming_core.regression.request import RegressionSpec
from streaming_core.run.cores import points, sockets
from streaming_core.storage import write_json

RUN_ID = "20260101T000000Z-00000000"
SMALL = Preflight("small", machine="laptop", cores=4, sockets=[2], bound="0-1")
LARGE = Preflight("large", machine="server", cores=48, sockets=[12, 12], bound="0-23")
HOSTS = {"small": SMALL, "large": LARGE}
FIELDS = {"applications": ["wc"], "executors": ["pooled"], "hosts": ["small", "large"]}


@pytest.mark.parametrize(
    ("of_sockets", "most", "expected"),
    [
        ([1], None, [1]),
        ([2], None, [1, 2]),
        ([3], None, [1, 2, 3]),
        ([32, 32], None, [1, 2, 4, 8, 16, 32, 64]),
        ([12, 12], None, [1, 2, 4, 8, 12, 16, 24]),
        ([12, 12], 10, [1, 2, 4, 8, 10]),
        ([12, 12], 48, [1, 2, 4, 8, 12, 16, 24]),
    ],
)
def test_curve_has_powers_of_two_one_socket_and_all(of_sockets, most, expected):
    assert points(of_sockets, most) == expected


@given(st.lists(st.integers(1, 64), min_size=1, max_size=4), st.integers(1, 300))
def test_points_are_ascending_and_reach_the_most_threads(of_sockets, most):
    counts = points(of_sockets, most)
    assert counts == sorted(set(counts))
    assert counts[0] == 1
    assert counts[-1] == min(most, sum(of_sockets))


def test_physical_cores_are_counted_by_socket():
    cores = [{"socket": s, "physical": p, "id": 4 * t + 2 * s + p} for t in (0, 1) for s in (0, 1) for p in (0, 1)]
    assert sockets(cores) == [2, 2]
    assert sockets(cores[:3]) == [2, 1]


@pytest.mark.parametrize(("quota", "threads"), [(None, 48), (8.0, 8), (7.9, 7), (0.5, 1), (99.0, 48)])
def test_control_group_limits_the_threads(quota, threads):
    host = Preflight("large", cores=48, sockets=[12, 12], quota=quota)
    assert host.threads == threads
    assert host.points[-1] == min(threads, 24)


def test_each_host_resolves_auto_with_its_own_cores():
    request = RegressionSpec(**FIELDS, threads="auto", placement="every")
    drawn = matrix.draft(request, Home("/nowhere"), RUN_ID, hosts=HOSTS)
    by_host: dict[str, list[int]] = {}
    for cell in drawn["cells"]:
        by_host.setdefault(cell["host"], []).append(cell["spec"]["threads"])
    assert by_host == {"small": [1, 2], "large": [1, 2, 4, 8, 12, 16, 24]}
    assert drawn["left_out"] == []


def test_any_host_takes_only_cells_that_fit_its_cores(tmp_path):
    home = Home(tmp_path)
    drawn = matrix.draft(RegressionSpec(**FIELDS, threads="auto"), home, RUN_ID, hosts=HOSTS)
    write_json(home.run(RUN_ID) / "plan.json", drawn)
    threads = {name: [cell["spec"]["threads"] for cell in Queue(home, RUN_ID, name).cells.values()] for name in HOSTS}
    assert threads == {"small": [1, 2], "large": [1, 2, 4, 8, 12, 16, 24]}
    unfit = HOSTS | {"large": Preflight("large", "it is off")}
    drawn = matrix.draft(RegressionSpec(**FIELDS, threads="auto"), home, RUN_ID, hosts=unfit)
    assert [cell["spec"]["threads"] for cell in drawn["cells"]] == [1, 2]
    assert all("hosts" not in cell for cell in drawn["cells"])


def test_more_threads_than_cores_are_left_out_unless_the_request_allows_them():
    fields = FIELDS | {"hosts": ["small"], "threads": [2, 8]}
    cells, left_out = matrix.cells(RegressionSpec(**fields), hosts=HOSTS)
    assert [cell.threads for cell in cells] == [2]
    reason = "8 threads need as many cores (host small grants 4): set oversubscribe to run them nevertheless"
    assert left_out == [{"reason": reason, "cells": [left_out[0]["cells"][0]]}]
    cells, left_out = matrix.cells(RegressionSpec(**fields, oversubscribe=True), hosts=HOSTS)
    assert ([cell.threads for cell in cells], left_out) == ([2, 8], [])
    with pytest.raises(BadInput, match=r"no cell that can run: 8 threads need as many cores \(host small grants 4\)"):
        matrix.cells(RegressionSpec(**fields | {"threads": [8]}), hosts=HOSTS)


def test_every_host_names_those_with_too_few_cores():
    request = RegressionSpec(**FIELDS, threads=[8], placement="every")
    drawn = matrix.draft(request, Home("/nowhere"), RUN_ID, hosts=HOSTS)
    assert [cell["host"] for cell in drawn["cells"]] == ["large"]
    assert "host small grants 4" in drawn["left_out"][0]["reason"]


def test_requested_binding_reaches_only_cells_of_the_engine():
    request = RegressionSpec(
        applications=["wc"], executors=["pooled", "spark"], threads=[2], pin=True, idle="spin", punctuation=7
    )
    ways = {cell.executor: (cell.pin, cell.idle, cell.punctuation) for cell in matrix.cells(request)[0]}
    assert ways == {"pooled": (True, "spin", 7), "spark": (False, "yield", 500)}


@pytest.mark.parametrize(
    ("threads", "message"),
    [
        ("automatic", "threads"),
        (["auto", 0], "each number must be between 1 and 1024, got 0"),
        ([], "threads must have at least 1 item"),
        ([1.5], "threads"),
    ],
)
def test_invalid_numbers_of_threads_are_refused_in_one_line(threads, message):
    with pytest.raises(BadInput, match=message) as refused:
        RegressionSpec.parse({"threads": threads})
    assert "\n" not in str(refused.value)
    assert "; " not in str(refused.value)


def test_text_of_the_form_becomes_numbers():
    assert RegressionSpec.parse({"threads": ["4", "auto", "2"]}).threads == [2, 4, "auto"]


def test_latest_preflights_are_those_of_the_newest_runs(tmp_path):
    home = Home(tmp_path)
    record(home, "20260101T000000Z-00000000", [SMALL, LARGE])
    record(home, "20260102T000000Z-00000000", [Preflight("large", "it is off"), Preflight(LOCAL, machine="here")])
    assert latest(home, ["small", "large", "unknown"]) == HOSTS
    assert latest(home, [LOCAL])[LOCAL].machine == "here"
