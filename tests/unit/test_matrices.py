"""Named matrices: what they say, their versions, and what a request makes of them."""

from __future__ import annotations

import pytest

from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.regression import matrices
from streaming_core.regression.home import Home
from streaming_core.regression.matrix import MAX_CELLS, cells
from streaming_core.regression.request import RegressionSpec
from streaming_core.run.way import AXES


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def test_what_lockstep_brings_can_be_run_and_has_room_for_more_applications(home):
    assert matrices.names(home) == ["smoke", "nightly", "full"]
    found = {name: cells(matrices.request(home, {}, name).regression)[0] for name in matrices.names(home)}
    assert {spec.app for spec in found["nightly"]} == {spec.app for spec in found["full"]} == set(registry.names())
    assert len(found["smoke"]) < len(found["nightly"]) < len(found["full"]) < 0.7 * MAX_CELLS
    for axis in ("scheme", "heuristic", "queue", "reorder", "channel", "parallelism"):
        assert {getattr(spec, axis) for spec in found["full"]} - {None} == set(AXES[axis])


def test_each_change_is_a_version_and_the_former_ones_stay(home):
    first = matrices.save(home, "nightly", {"applications": ["all"], "threads": [4, 2, 2]}, by="ann")
    assert (first.version, first.fields) == (1, {"applications": ["all"], "threads": [2, 4]})
    assert matrices.save(home, "nightly", {"applications": ["all"], "threads": [2, 4]}) == first, "nothing is new"
    matrices.save(home, "nightly", {"events": 7})
    assert [(one.version, one.saved_by, one.fields) for one in matrices.history(home, "nightly")] == [
        (2, "", {"events": 7}),
        (1, "ann", {"applications": ["all"], "threads": [2, 4]}),
        (0, "", {"applications": ["all"]}),
    ]
    assert matrices.load(home, "nightly").version == 2
    assert matrices.load(home, "nightly@1") == first
    # Back to what it was is a version, too: which one a run had is never in doubt.
    assert matrices.save(home, "nightly", first.fields).version == 3
    assert matrices.save(home, "own", {"threads": [1, 2]}).fields == {}, "what is so anyway is not said"
    assert matrices.names(home) == ["smoke", "nightly", "full", "own"]


def test_a_request_says_which_matrix_and_version_it_goes_by_and_what_it_changes(home):
    matrices.save(home, "mine", {"applications": ["wc"], "events": 7, "threads": [4]})
    asked = matrices.request(home, {"threads": [1, 2]}, "mine")
    assert asked.regression == RegressionSpec(applications=["wc"], events=7, threads=[1, 2])
    assert asked.matrix == {"name": "mine", "version": 1, "changed": ["threads"]}
    assert matrices.request(home, {"applications": ["wc"]}).matrix is None
    assert matrices.request(home, {"applications": ["wc", "all"]}).regression.applications == registry.names()


def test_a_matrix_runs_on_the_imports_of_its_name(home):
    home.imported("wc", "nightly").mkdir(parents=True)
    home.imported("sl", "other").mkdir(parents=True)
    assert matrices.request(home, {}, "nightly").regression.data == {"wc": "nightly"}
    assert matrices.request(home, {"data": {}}, "nightly").regression.data == {}
    assert matrices.request(home, {}, "smoke").regression.data == {}
    assert matrices.request(home, {"applications": ["all"]}).regression.data == {}


@pytest.mark.parametrize("name", ["", "-rf", "../x", "a b", "Nightly", "nightly@1", "x" * 60, "a\n", "ä", None, 7])
def test_no_name_leads_elsewhere(home, name):
    with pytest.raises(BadInput, match="is no name for a matrix"):
        matrices.save(home, name, {})
    assert not home.matrices.exists()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"thread": [1]}, "thread: Extra inputs are not permitted"),
        ({"threads": [0]}, "threads must lie in 1..1024, got 0"),
        ({"applications": ["nosuch"]}, "unknown application 'nosuch'"),
        ({"applications": ["gs"], "executors": ["pooled"]}, "application gs runs on: transactional"),
        ({"data": {"wc": "gone"}}, "no import 'gone' for wc"),
    ],
)
def test_what_could_not_be_run_is_not_kept(home, fields, said):
    with pytest.raises(BadInput, match=said):
        matrices.save(home, "mine", fields)
    assert not home.matrices.exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("nosuch", "unknown matrix 'nosuch'; known: smoke, nightly, full"),
        ("smoke@3", "matrix smoke has no version 3; it has 0 to 0"),
        ("mine@0", "matrix mine has no version 0; it has 1 to 2"),
        ("mine@1", "mine/1.json cannot be read"),
        ("mine@2", "matrix mine, version 2: schemes: unknown scheme 'gone'"),
        (["nightly"], "is no name of a matrix"),
        ("../nightly", "is no name of a matrix"),
    ],
)
def test_what_cannot_be_taken_is_one_line(home, asked, said):
    home.matrix("mine", 1).parent.mkdir(parents=True)
    home.matrix("mine", 1).write_text("{")
    home.matrix("mine", 2).write_text('{"fields": {"schemes": ["gone"]}}')
    with pytest.raises(BadInput, match=said) as refused:
        matrices.request(home, {}, asked)
    assert "\n" not in str(refused.value)
