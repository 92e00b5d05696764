"""The wheel of a build, and the program that unpacks it on a host, completely or not at all."""

import ast
import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.checkout import ROOT
from infra.hosts import build, unpack, wheel
from infra.hosts.build import Build
from streaming_core.regression.home import Home


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def small(tmp_path_factory, home):
    """The wheel of a build with one module."""
    tree = tmp_path_factory.mktemp("tree")
    module = tree / "streaming_core" / "one.py"
    module.parent.mkdir()
    module.write_text("1\n")
    return wheel.wheel_of(Build("abc1234", tree), home)


def received(builds: Path, digest: str, content: bytes | None = None) -> dict:
    """The program's output on a host with this upload."""
    words = [str(builds), digest]
    if content is not None:
        builds.mkdir(parents=True, exist_ok=True)
        (builds / f".{digest[:16]}.upload.whl").write_bytes(content)
        words.append(f".{digest[:16]}.upload.whl")
    program = Path(unpack.__file__).read_text()
    done = subprocess.run([sys.executable, "-", *words], input=program, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


def test_same_files_make_the_same_wheel(home, tmp_path):
    built_wheel = wheel.wheel_of(build.checkout(), home)
    other = wheel.wheel_of(build.checkout(), Home(tmp_path))
    assert built_wheel.digest == other.digest
    assert built_wheel.path.read_bytes() == other.path.read_bytes()
    assert wheel.wheel_of(Build("other", ROOT), home).digest != built_wheel.digest, "its name is a part of a build"


@pytest.mark.slow
def test_pip_accepts_the_wheel_and_the_engine_runs_from_it(home, tmp_path):
    built_wheel = wheel.wheel_of(Build("abc1234-shipped", ROOT), home)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path)]
    subprocess.run([*pip, str(built_wheel.path)], check=True, timeout=120)
    program = (
        "from streaming_core.run import probe, provenance; "
        "print(provenance.__file__, provenance.build(), probe.topology()['nodes'])"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    shown = subprocess.check_output([sys.executable, "-P", "-c", program], env=environment, cwd=tmp_path, text=True)
    assert shown.startswith(f"{tmp_path}/streaming_core/run/provenance.py abc1234-shipped [0")


def test_wheel_names_the_exact_packages_of_this_machine(home, tmp_path):
    built_wheel = wheel.wheel_of(build.checkout(), home)
    received(tmp_path, built_wheel.digest, built_wheel.path.read_bytes())
    (metadata,) = (tmp_path / built_wheel.digest).glob("*.dist-info/METADATA")
    lines = metadata.read_text().splitlines()
    for name in ("numba", "llvmlite", "numpy", "pyarrow", "pydantic"):
        assert f"Requires-Dist: {name}=={version(name)}" in lines


def test_build_appears_only_when_complete(small, tmp_path):
    assert received(tmp_path, small.digest)["build"] is None
    assert received(tmp_path, small.digest, small.path.read_bytes())["build"] == small.digest
    assert received(tmp_path, small.digest)["build"] == small.digest
    assert [path.name for path in tmp_path.iterdir()] == [small.digest]


@settings(deadline=None)
@given(data=st.data())
def test_damaged_upload_is_never_used(small, tmp_path_factory, data):
    """An upload may end anywhere, and may have any byte changed."""
    builds = tmp_path_factory.mktemp("builds")
    content = bytearray(small.path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    upload = builds / f".{small.digest[:16]}.upload.whl"
    upload.write_bytes(content)
    unpack.unpack(str(upload), str(builds / small.digest), small.digest)
    left = list(builds.iterdir())
    # A changed time in the archive changes no file.
    assert left in ([], [builds / small.digest])
    assert not left or unpack.is_whole(str(left[0]), small.digest)


@pytest.mark.parametrize("damage", ["changed", "missing", "added", "record"])
def test_changed_build_on_the_host_is_not_used(damage, small, tmp_path):
    received(tmp_path, small.digest, small.path.read_bytes())
    folder = tmp_path / small.digest
    module = folder / "streaming_core" / "one.py"
    match damage:
        case "changed":
            module.write_text("2\n")
        case "missing":
            module.unlink()
        case "added":
            module.with_name("two.py").touch()
        case "record":
            (record,) = folder.glob("*.dist-info/RECORD")
            record.write_text(record.read_text() + "\n")
    assert received(tmp_path, small.digest)["build"] is None
    assert received(tmp_path, small.digest, small.path.read_bytes())["build"] == small.digest
    assert module.read_text() == "1\n"
    assert [path.name for path in tmp_path.iterdir()] == [small.digest]


def test_cached_bytecode_changes_no_build(small, tmp_path):
    received(tmp_path, small.digest, small.path.read_bytes())
    cache = tmp_path / small.digest / "streaming_core" / "__pycache__"
    cache.mkdir()
    (cache / "one.cpython-311.pyc").touch()
    assert received(tmp_path, small.digest)["build"] == small.digest


def test_only_builds_unused_for_two_days_are_removed(small, tmp_path):
    received(tmp_path, small.digest, small.path.read_bytes())
    before = time.time() - 2 * 86400 - 60
    names = ["0" * 64, "1" * 64, f".{'2' * 16}.lost.whl", f".{'3' * 16}.killed", "diary", ".profile"]
    for name in names:
        (tmp_path / name).touch() if name.endswith((".whl", "profile")) else (tmp_path / name).mkdir()
    for name in [*names, small.digest]:
        if name != "1" * 64:
            os.utime(tmp_path / name, (before, before))
    assert received(tmp_path, small.digest)["build"] == small.digest
    assert {path.name for path in tmp_path.iterdir()} == {small.digest, "1" * 64, "diary", ".profile"}


def test_old_python_can_read_the_program():
    ast.parse(Path(unpack.__file__).read_text(), feature_version=(3, 6))
