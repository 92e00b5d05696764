"""The digest of a component covers exactly its sources, and every source belongs to a component."""

import shutil

import pytest

from streaming_core.bench.race import components
from streaming_core.bench.race.components import COMPONENTS, ROOT, SHARED, digests, files, is_test
from streaming_core.errors import BadInput

NAMES = list(COMPONENTS)
OF = {name: {path for source in sources for path in files(source)} for name, sources in COMPONENTS.items()}
OF_ALL = {path for source in SHARED for path in files(source)}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of all sources at another path, written in another order."""
    root = tmp_path_factory.mktemp("checkout")
    for name in sorted(OF_ALL.union(*OF.values()), reverse=True):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, root / name)
    return root


@pytest.mark.parametrize(("folder", "kind"), [("runtime", "rs"), ("apps", "py"), ("planner", "py"), ("kernels", "py")])
def test_every_source_belongs_to_a_component(folder, kind):
    below = ROOT / "streaming_core" / folder
    every = {path.relative_to(ROOT).as_posix() for path in below.rglob(f"*.{kind}")}
    sources = {path for path in every if not is_test(path)}
    assert len(sources) > 5
    forgotten = sources - OF_ALL.union(*OF.values())
    assert not forgotten, "add these to streaming_core/bench/race/components.py"


def test_components_share_no_source():
    for name in NAMES:
        assert OF[name]
        assert not OF[name] & OF_ALL, name


def test_tests_are_not_sources():
    every = OF_ALL.union(*OF.values())
    assert not [path for path in every if "tests" in path]
    assert is_test("streaming_core/runtime/src/dataflow/pooled/tests/mod.rs")
    assert is_test("streaming_core/runtime/src/dataflow/channel/models.rs")
    assert not is_test("streaming_core/runtime/src/dataflow/channel/mod.rs")


def test_digests_do_not_depend_on_the_checkout_path(checkout):
    expected = digests(NAMES)
    assert digests(reversed(NAMES), checkout) == expected
    assert len(set(expected.values())) == len(NAMES)
    assert all(len(digest) == 16 for digest in expected.values())


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("streaming_core/runtime/src/transactions/scheme/lock.rs", {"transactions"}),
        ("streaming_core/runtime/src/dataflow/windowed/operator.rs", {"windows"}),
        ("streaming_core/kernels/compiler.py", set(NAMES)),
        ("Cargo.lock", set(NAMES)),
    ],
)
def test_a_changed_source_changes_the_digests_of_its_components(checkout, path, changed):
    before = digests(NAMES, checkout)
    content = (checkout / path).read_bytes()
    (checkout / path).write_bytes(content + b"\n")
    after = digests(NAMES, checkout)
    (checkout / path).write_bytes(content)
    assert {name for name in NAMES if before[name] != after[name]} == changed
    assert digests(NAMES, checkout) == before


def test_a_new_or_renamed_source_changes_the_digest(checkout):
    before = digests(["pooled"], checkout)
    old = checkout / "streaming_core/runtime/src/dataflow/pooled/slot.rs"
    new = old.rename(old.with_name("socket.rs"))
    renamed = digests(["pooled"], checkout)
    new.rename(old)
    new.write_text("")
    added = digests(["pooled"], checkout)
    new.unlink()
    assert len({*before.values(), *renamed.values(), *added.values()}) == 3


def test_installed_package_knows_no_digest(tmp_path):
    assert digests(["pooled"], tmp_path) == {"pooled": components.UNKNOWN}


def test_bad_input_is_refused_in_one_line(tmp_path):
    with pytest.raises(BadInput, match=r"^unknown component 'gate'; known: transactions, "):
        digests(["gate"])
    (tmp_path / components.RUST).mkdir(parents=True)
    with pytest.raises(BadInput, match=r"Cargo.lock is missing; run benchmarks in a checkout"):
        digests(["pooled"], tmp_path)
    assert components.digests([]) == {}
