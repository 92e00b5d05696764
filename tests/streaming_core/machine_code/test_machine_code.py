"""The cache of machine code: which entries it trusts, where it lies, and how large it grows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming_core import machine_code
from streaming_core.api import App, Param, i64, record
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.kernels.program import compile_app
from streaming_core.machine_code import Kept, emission
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.loop import machine as loops
from streaming_core.oracle.loop.memory_functions import memory_functions

KEPT = machine_code.kept  # tests/conftest.py disables this for all other tests
PARTS = {"one": b"first\n\0part", "two": b"", "three": bytes(range(256))}


@record
class Number:
    n: i64


@record
class Multiple:
    n: i64


def multiply(row, out):
    out.emit(n=row.n * multiplied.params.factor)


multiplied = App("multiplied", params={"factor": Param(3), "drawn": Param(0.5)})
multiplied.source(Number).flat_map(multiply, Multiple).sink()
multiplied.generates(lambda *args: {})


@pytest.fixture
def counted(monkeypatch):
    """Names of the functions that have been compiled."""
    seen = []

    def emit(library, name, *args):
        seen.append(name)
        return real(library, name, *args)

    real = emission.emit
    monkeypatch.setattr(emission, "emit", emit)
    return seen


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    memory_functions()  # all loops have them: compiled before anything is counted
    monkeypatch.setattr(machine_code, "kept", KEPT)
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_an_entry_is_read_back_unchanged(tmp_path):
    kept = Kept(tmp_path / "new" / "folder")
    assert kept.read("a") is None
    kept.write("a", PARTS)
    assert kept.read("a") == PARTS
    kept.write("a", PARTS)
    assert [path.name for path in kept.folder.iterdir()] == ["a"]
    assert kept.folder.stat().st_mode & 0o777 == 0o700


def test_damage_of_any_byte_invalidates_an_entry(tmp_path):
    kept = Kept(tmp_path)
    kept.write("a", PARTS)
    whole = (tmp_path / "a").read_bytes()
    for at in range(len(whole)):
        (tmp_path / "a").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert kept.read("a") is None, at
    for size in range(len(whole)):
        (tmp_path / "a").write_bytes(whole[:size])
        assert kept.read("a") is None, size
    (tmp_path / "a").write_bytes(whole)
    assert kept.read("a") == PARTS


def test_an_entry_under_another_address_is_ignored(tmp_path):
    kept = Kept(tmp_path)
    kept.write("a", PARTS)
    (tmp_path / "a").rename(tmp_path / "b")
    assert kept.read("b") is None


def test_entries_that_another_user_could_write_are_ignored(tmp_path, monkeypatch):
    kept = Kept(tmp_path / "mine")
    kept.write("a", PARTS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert kept.read("a") is None
        kept.write("b", PARTS)
    assert [path.name for path in kept.folder.iterdir()] == ["a"]
    (kept.folder / "a").rename(tmp_path / "a")
    (kept.folder / "a").symlink_to(tmp_path / "a")
    assert kept.read("a") is None


def test_an_unwritable_folder_caches_nothing(tmp_path):
    (tmp_path / "file").touch()
    kept = Kept(tmp_path / "file" / "folder")
    kept.write("a", PARTS)
    assert kept.read("a") is None
    Kept(None).write("a", PARTS)
    assert Kept(None).read("a") is None


def test_the_least_recently_used_entries_are_evicted(tmp_path):
    kept = Kept(tmp_path)
    for second, address in enumerate("abc"):
        kept.write(address, {"part": bytes(1000)})
        os.utime(tmp_path / address, (second, second))
    assert kept.read("a")
    size = (tmp_path / "a").stat().st_size
    Kept(tmp_path, limit=3 * size).write("d", {"part": bytes(1000)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c", "d"]
    Kept(tmp_path, limit=0).write("e", PARTS)
    assert [path.name for path in tmp_path.iterdir()] == ["e"]


def test_code_is_cached_in_lockstep_home_or_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert machine_code.kept().folder == tmp_path / "home" / "compiled"
    monkeypatch.delenv("LOCKSTEP_HOME")
    assert machine_code.kept().folder == tmp_path / "cache" / "lockstep"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert machine_code.kept().folder == tmp_path / "user" / ".cache" / "lockstep"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert machine_code.kept().folder == tmp_path / "user" / ".cache" / "lockstep"


@pytest.mark.parametrize("make", [compile_app, Loop])
def test_code_is_compiled_once_and_again_after_damage(make, counted, home):
    make(multiplied, multiplied.bind())
    first = len(counted)
    assert first > 0
    make(multiplied, multiplied.bind())
    assert len(counted) == first
    for path in (home / "compiled").iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    make(multiplied, multiplied.bind())
    assert len(counted) == 2 * first
    make(multiplied, multiplied.bind())
    assert len(counted) == 2 * first


@pytest.mark.parametrize("make", [compile_app, Loop])
def test_code_changes_with_its_inputs(make, counted, monkeypatch):
    make(multiplied, multiplied.bind())
    first = len(counted)
    make(multiplied, multiplied.bind({"drawn": 0.75}))
    assert len(counted) == first
    make(multiplied, multiplied.bind({"factor": 4}))
    assert len(counted) == 2 * first
    monkeypatch.setattr(machine_code, "fingerprint", lambda *sources: "another")
    make(multiplied, multiplied.bind())
    assert len(counted) == 3 * first


@pytest.mark.slow
def test_two_loops_of_the_same_code_do_not_share_memory(counted):
    app = registry.load("sl")
    params = app.bind({"n_items": 2, "partitioned": False})
    events = workload.generate_chunk(app, params, 200, 7, 0, 200)
    loop = Loop(app, params)
    compiled = len(counted)
    first = loop.process(events)
    other = Loop(app, params)
    assert len(counted) == compiled
    assert other.process(events).equals(first)
    assert other.state() == loop.state()
    other.process(events)
    assert other.state() != loop.state()


def test_the_fingerprint_covers_versions_processor_and_sources(monkeypatch, tmp_path):
    (tmp_path / "package" / "inner").mkdir(parents=True)
    source = tmp_path / "package" / "inner" / "module.py"
    source.write_text("a = 1\n")
    seen = set()

    def another():
        machine_code.fingerprint.cache_clear()
        seen.add(machine_code.fingerprint(tmp_path / "package"))
        return len(seen)

    assert another() == another() == 1
    source.write_text("a = 2\n")
    assert another() == 2
    source.rename(source.with_name("other.py"))
    assert another() == 3
    monkeypatch.setattr(machine_code.llvm, "get_host_cpu_name", lambda: "another")
    assert another() == 4
    monkeypatch.setattr(machine_code.platform, "python_version", lambda: "3.99")
    assert another() == 5
    monkeypatch.setattr(machine_code.importlib.metadata, "version", lambda package: "another")
    assert another() == 6
    machine_code.fingerprint.cache_clear()


def test_the_loops_sources_cover_all_modules_that_determine_its_result():
    package = Path(machine_code.__file__).parents[1]
    assert {package / "language", package / "oracle", package / "data" / "digest.py"} <= set(loops._SOURCES)


ADDRESSES = """
import json, sys
from streaming_core import machine_code
from streaming_core.kernels.program import compile_app
from streaming_core.apps import registry
from streaming_core.oracle.loop import Loop
app = registry.load("tp")
compile_app(app, app.bind()), Loop(app, app.bind())
print(sorted(path.name for path in machine_code.kept().folder.iterdir()))
print([registry.code_digest(registry.load(name)) for name in registry.names()])
"""


@pytest.mark.slow
def test_addresses_do_not_depend_on_the_process(home):
    addresses = {
        subprocess.run(
            [sys.executable, "-c", ADDRESSES],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True, capture_output=True, text=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(addresses) == 1
