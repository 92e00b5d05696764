"""The map of kernels: the code of each lies where the map says, under the name of its operator."""

import struct

import llvmlite.binding as llvm
import pytest

from streaming_core import machine_code
from streaming_core.apps import registry
from streaming_core.kernels.compiler import compile_kernels
from streaming_core.kernels.program import compile_app
from streaming_core.language.bound import BoundApp
from streaming_core.machine_code import perf_map


def test_map_holds_the_kernels_of_each_operator_where_they_are(tmp_path, monkeypatch):
    written = tmp_path / "map"
    monkeypatch.setenv(perf_map.VARIABLE, str(written))
    app = registry.load("wc")
    program = compile_app(app, app.bind())
    places = {}
    for line in written.read_text().splitlines():
        start, size, name = line.split()
        places[name] = range(int(start, 16), int(start, 16) + int(size, 16))
    assert places.keys() == program._loaded.keys()
    assert {name.partition(".")[0] for name in places} == {operator.name for operator in app.operators[1:-1]}
    kernels, _ = compile_kernels(BoundApp(app, app.bind()))
    for name, loaded in program._loaded.items():
        file = llvm.ObjectFileRef.from_data(kernels[name])
        assert [len(places[name])] == [
            section.size() for section in file.sections() if section.is_text() and section.size()
        ]
        assert loaded.address in places[name]


def test_no_map_is_written_unless_the_environment_asks_for_it(tmp_path, monkeypatch):
    monkeypatch.delenv(perf_map.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    app = registry.load("wc")
    compile_app(app, app.bind())
    assert not list(tmp_path.iterdir())


def test_object_file_without_the_function_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv(perf_map.VARIABLE, str(tmp_path / "map"))
    header = bytearray(64)
    struct.pack_into("<Q", header, 40, 64)
    with pytest.raises(ValueError, match=f"does not define {machine_code.EXPORT}"):
        perf_map.note("x", bytes(header), machine_code.EXPORT, 0)
