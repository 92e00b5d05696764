"""Named matrices: the files of dags/matrices, and requests that override their fields."""

from __future__ import annotations

import hashlib

import pytest

from infra.checkout import MATRICES
from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.regression import matrices
from streaming_core.regression.home import Home
from streaming_core.regression.matrix import MAX_CELLS, cells
from streaming_core.regression.request import RegressionSpec
from streaming_core.run.way import AXES, EXECUTORS

MINE = "# Word count on four threads.\napplications: [wc]\nevents: 7\nthreads: [4]\n"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


@pytest.fixture
def folder(tmp_path):
    """A folder of matrices with the one matrix `mine`."""
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "mine.yaml").write_text(MINE)
    return tmp_path / "matrices"


def test_matrices_of_the_checkout_run_and_leave_room_for_applications(home):
    assert matrices.names(MATRICES) == ["full", "nightly", "numa", "review", "smoke"]
    specs = {name: cells(matrices.request(MATRICES, home, {}, name).regression)[0] for name in matrices.names(MATRICES)}
    assert {spec.app for spec in specs["nightly"]} == {spec.app for spec in specs["full"]} == set(registry.names())
    assert len(specs["smoke"]) < len(specs["nightly"]) < len(specs["full"]) < 0.8 * MAX_CELLS
    # The series of a night's speeds go on in a review.
    review, _ = cells(matrices.request(MATRICES, home, {"applications": registry.names()}, "review").regression)
    assert {spec.cell for spec in review} == {spec.cell for spec in specs["nightly"]}
    # A newcomer waits for the default run. Nights run the baselines, and judge speed.
    default, _ = cells(RegressionSpec())
    assert len(default) <= 20
    assert {spec.executor for spec in default} == {
        name for name, executor in EXECUTORS.items() if not executor.is_baseline
    }
    for spec in specs["nightly"] + specs["full"]:
        assert spec.seconds > default[0].seconds
    for name in ("nightly", "full"):
        assert {spec.option("scheme") for spec in specs[name]} - {None} == set(AXES["scheme"])


def test_full_covers_every_executor_and_every_strategy(home):
    specs, _ = cells(matrices.request(MATRICES, home, {}, "full").regression)
    assert {spec.executor for spec in specs} == set(EXECUTORS)
    for axis in ("scheme", "heuristic", "queue", "reorder", "channel", "parallelism"):
        assert {spec.option(axis) for spec in specs} - {None} == set(AXES[axis])


def test_every_matrix_of_the_checkout_begins_with_a_purpose_comment():
    for path in MATRICES.glob("*.yaml"):
        assert path.read_text().startswith("# "), path.name


def test_a_request_records_its_name_digest_and_overrides(folder, home):
    request = matrices.request(folder, home, {"threads": [1, 2]}, "mine")
    assert request.regression == RegressionSpec(applications=["wc"], events=7, threads=[1, 2])
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    assert request.matrix == {"name": "mine", "digest": digest, "overrides": ["threads"]}
    assert matrices.request(folder, home, {"applications": ["wc"]}).matrix is None
    every = matrices.request(folder, home, {"applications": ["wc", "all"]}).regression
    assert every.applications == registry.names()


def test_all_stands_for_every_executor_and_every_strategy():
    spec = RegressionSpec(executors=["all"], schemes=["lock", "all"], plans=["all"])
    assert spec.executors == list(EXECUTORS)
    assert spec.schemes == list(AXES["scheme"])
    assert spec.plans == ["replicated", "auto"]


def test_a_matrix_runs_on_its_imports(home):
    home.imported("nightly-wc").mkdir(parents=True)
    home.imported("other-sl").mkdir(parents=True)
    assert matrices.request(MATRICES, home, {}, "nightly").regression.data == {"wc": "nightly-wc"}
    assert matrices.request(MATRICES, home, {"data": {}}, "nightly").regression.data == {}
    assert matrices.request(MATRICES, home, {}, "smoke").regression.data == {}
    assert matrices.request(MATRICES, home, {"applications": ["all"]}).regression.data == {}


@pytest.mark.parametrize("name", ["nosuch", "../mine", "mine.yaml", "a\n", ".mine", ["mine"], 7])
def test_an_unknown_name_is_refused_with_the_known_names(folder, home, name):
    (folder / ".mine.yaml").write_text(MINE)
    with pytest.raises(BadInput, match=r"^unknown matrix .*; known: mine$") as refusal:
        matrices.request(folder, home, {}, name)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "the file must map fields to values"),
        ("- wc", "the file must map fields to values"),
        ("threads: [1", "line 1: expected ',' or ']', but got '<stream end>'"),
        ("events: 7\nthreads: [1]\nevents: 8", "line 3: the field 'events' occurs twice"),
        ("params: {wc: {words: 3, words: 4}}", "line 1: the field 'words' occurs twice"),
        ("events: !!python/object:os.system {}", "line 1: could not determine a constructor"),
        (b"events: \xff", "unacceptable character|invalid start byte"),
        ("seed: 2026-13-45", "month must be in 1..12"),
        ("thread: [1]", "unknown field 'thread'"),
        ("1: 2", "1: Keys should be strings"),
        ("threads: [0]", "each number must be between 1 and 1024, got 0"),
        ("threads: 2", "threads must be a list, got 2"),
        ("schemes: [gone]", "schemes: unknown scheme 'gone'; known: owners, "),
        ("executors: [gone]", "executors: unknown executor 'gone'; known: "),
        ("applications: [nosuch]", "applications: unknown application 'nosuch'; known: "),
    ],
)
def test_an_invalid_file_is_refused_with_file_and_field(folder, home, content, reason):
    (folder / "mine.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert matrices.names(folder) == ["mine"]
    with pytest.raises(BadInput, match=rf"^matrices/mine\.yaml: .*({reason})") as refusal:
        matrices.request(folder, home, {}, "mine")
    assert "\n" not in str(refusal.value)


def test_an_unreadable_file_is_refused(folder, home):
    (folder / "mine.yaml").unlink()
    (folder / "mine.yaml").mkdir()
    with pytest.raises(BadInput, match=r"^matrices/mine\.yaml: .*Is a directory"):
        matrices.request(folder, home, {}, "mine")
