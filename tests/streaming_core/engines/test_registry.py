"""engines/registry.py and specs of engines: discovery and refusals."""

import pytest

from streaming_core.apps import registry as apps
from streaming_core.engines import registry
from streaming_core.errors import BadInput
from streaming_core.run.way import RunSpec, known_executors
from tests.streaming_core.engines.planted import plant


@pytest.fixture
def engines(tmp_path, monkeypatch):
    """The folder of engines."""
    monkeypatch.setenv(registry.SETTING, str(tmp_path / "engines"))
    return tmp_path / "engines"


def test_engines_are_folders_with_a_manifest(engines):
    plant(engines, "one", "")
    (engines / "none").mkdir()
    (engines / "Bad Name").mkdir()
    (engines / "Bad Name" / registry.MANIFEST).touch()
    assert registry.names() == ["one"]
    assert known_executors()[-1] == "one"


def test_a_package_can_provide_an_engine(engines, tmp_path, monkeypatch):
    site = tmp_path / "site"
    plant(site, "lockstep_packaged", "")
    (site / "lockstep_packaged" / "__init__.py").touch()
    about = site / "packaged-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: packaged\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[lockstep.executors]\npackaged = lockstep_packaged\n")
    monkeypatch.syspath_prepend(str(site))
    registry._packages.cache_clear()
    try:
        assert registry.names() == ["packaged"]
        assert registry.load("packaged").folder == site / "lockstep_packaged"
    finally:
        registry._packages.cache_clear()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("system: [", "is not valid YAML: "),
        ("system: x\ncommand: [run]\napplications: {}", "applications must have at least 1 item"),
        ("system: x\napplications: {wc: total}", "command is missing"),
        ("system: x\ncommand: run\napplications: {wc: total}", "command must be a list, got 'run'"),
        (
            "system: x\ncommand: [run]\napplications: {wc: some}",
            "applications.wc must be total or none|'total' or 'none'",
        ),
        ("system: x\ncommand: [run]\napplications: {wc: total}\nlimits: 3", "unknown field 'limits'"),
        ("system: x\ncommand: [run]\napplications: {wc: total}\nlimit: 0", "limit must be between 1 and 86400, got 0"),
    ],
)
def test_an_invalid_manifest_is_named_with_its_file(engines, text, message):
    (engines / "bad").mkdir(parents=True)
    (engines / "bad" / registry.MANIFEST).write_text(text)
    with pytest.raises(BadInput, match=f"^engine bad: {engines}/bad/engine.yaml.*({message})"):
        registry.load("bad")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"executor": "min"}, r"unknown executor 'min' \(did you mean 'mine'\?\); known: transactional, .*, mine"),
        ({"app": "sd"}, "executor mine does not run application sd; it runs: wc, wordcount"),
        ({"rate": 10.0}, "executor mine has no open-loop pass: set rate to 0"),
        ({"threads": 3}, "executor mine runs on at most 2 threads"),
        ({"order": "none"}, "order is total with mine and application wc"),
        ({"pin": True}, "executor mine binds no threads to cores: set pin to false"),
        ({"sink": "digest"}, "executor mine writes its outputs: set sink to parquet"),
        ({"channel": "gate"}, "executor mine has no channel; pinned has"),
    ],
)
def test_a_spec_outside_an_engines_manifest_is_refused(engines, fields, message):
    plant(engines, "mine", "", applications={"wc": "total", "wordcount": "none"}, max_threads=2)
    fields = {"app": "wc", "executor": "mine", "sink": "parquet"} | fields
    with pytest.raises(BadInput, match=f"^{message}$"):
        RunSpec.parse(fields).check(apps.load(fields["app"]))


def test_the_manifest_declares_the_order(engines):
    plant(engines, "mine", "", applications={"wc": "total", "wordcount": "none"})
    spec = RunSpec.parse({"app": "wordcount", "executor": "mine", "sink": "parquet"})
    assert spec.order == "none"
    spec.check(apps.load("wordcount"))
    # A spec of a removed engine can still be read.
    (engines / "mine" / registry.MANIFEST).unlink()
    assert RunSpec.parse(spec.model_dump(mode="json")) == spec
