"""The files that a validation writes are a context of Great Expectations, and it uses only their Checkpoints."""

import ast
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from expectations import files
from expectations.declared import check
from expectations.suites import expect, outputs
from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from tests.expectations.test_expectations import judged, known  # noqa: F401
from tests.jobs.world import World, bank
from tests.support.draws import some


@pytest.mark.slow
def test_great_expectations_reads_and_writes_the_same_files(tmp_path):
    from expectations.context import context_folder, new_context

    context = new_context(Home(tmp_path), files.declared())
    names = {suite.name for suite in context.suites.all()}
    assert names == files.declared().keys()
    (checkpoint,) = context.checkpoints.all()
    assert checkpoint.is_fresh().success
    assert [action.type for action in checkpoint.actions] == ["update_data_docs"]
    assert {definition.name for definition in checkpoint.validation_definitions} == names
    for definition in checkpoint.validation_definitions:
        name = definition.name
        suite = json.loads(context.expectations_store.serialize(definition.suite))
        suite["meta"].pop("great_expectations_version")
        assert suite == json.loads((context_folder(Home(tmp_path)) / "expectations" / f"{name}.json").read_text())


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that writes expectations of the bank."""
    app = bank()
    app.file = str(tmp_path / "bank.py")
    monkeypatch.setattr(outputs, "load", lambda name: app)

    def write(text: str):
        (tmp_path / "bank.expectations.yaml").write_text(text)
        return app

    return write


WARNING = """
- type: expect_column_mean_to_be_between
  description: The mean balance is tiny
  severity: warning
  kwargs: {column: balance, max_value: 1}
"""


@pytest.mark.slow
def test_warning_of_an_application_is_shown_and_fails_nothing(tmp_path, spark, capsys, beside):
    world = World(tmp_path / "home")
    (cell,) = world.plan(("owners", 2))
    world.attempt(cell)
    beside(WARNING)
    code, line, errors = judged(world, spark, capsys)
    assert code == 0
    assert "in 7 data sets, 1 warning; " in line
    [error] = errors
    assert error.startswith("expectations: warning: outputs_bank: The mean balance is tiny ")
    site = world.home.reports / "data_docs"
    (page,) = site.glob("validations/outputs_bank/**/*.html")
    assert re.search(r"warning.*?The mean balance is tiny", page.read_text(), re.S)
    assert "1 warning" in (site / "index.html").read_text()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- type: [", "bank.expectations.yaml: "),
        ("type: x", "write a list of expectations"),
        ("- 7", "expectation 1: write type, description, severity, kwargs, got 7"),
        (WARNING.replace("kwargs", "kwarg"), "unknown key 'kwarg' (did you mean 'kwargs'?)"),
        (WARNING.replace("severity: warning", "severity: fatal"), "severity must be one of critical, warning, info"),
        (WARNING.replace("column: balance", "column: balanse"), "unknown column 'balanse' (did you mean 'balance'?)"),
        (WARNING.replace("  description: The mean balance is tiny\n", ""), "description must say the rule in words"),
        (WARNING.replace("{column: balance, max_value: 1}", "[1]"), "kwargs must be arguments by name, got [1]"),
        (WARNING.replace("max_value: 1", "max_value: 2026-01-01"), "kwargs must be numbers, texts, booleans"),
    ],
)
def test_invalid_expectations_of_an_application_are_refused_in_one_line(beside, text, reason):
    app = beside(text)
    with pytest.raises(BadInput, match=re.escape(reason)) as refused:
        outputs.expectations_of(app)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    some(
        [
            (WARNING.replace("max_value", "maximum"), "expect_column_mean_to_be_between: "),
            (
                WARNING.replace("mean_to", "meen_to"),
                "Great Expectations has no expectation expect_column_meen_to_be_between",
            ),
        ]
    ),
)
@pytest.mark.slow
def test_refusal_by_great_expectations_is_one_line_of_the_stage(tmp_path, spark, capsys, beside, text, reason):
    world = World(tmp_path / "home")
    (cell,) = world.plan(("owners", 2))
    world.attempt(cell)
    beside(text)
    with pytest.raises(BadInput) as refused:
        judged(world, spark, capsys)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_suites_of_all_applications_are_expectations_of_great_expectations():
    check(files.declared())
    with pytest.raises(BadInput, match="has no expectation"):
        check({"one": [expect("expect_nothing", "critical", "A rule")]})


def test_every_command_refuses_an_application_with_invalid_expectations(tmp_path, monkeypatch):
    shutil.copytree(Path(registry.__file__).parent, tmp_path / "apps")
    app = registry.load("wc")
    monkeypatch.setattr(app, "file", str(tmp_path / "apps" / "wc.py"))
    (tmp_path / "apps" / "wc.expectations.yaml").write_text("- nothing")
    with pytest.raises(BadInput, match=r"^application wc: wc\.expectations\.yaml: expectation 1: write type, "):
        registry.load("wc")


def private_names(source: str) -> Iterator[str]:
    """The private names of other modules that a module imports, reads, or overrides in a subclass."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            yield from (name.name for name in node.names if name.name.startswith("_"))
        if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr):
            yield node.attr
        if isinstance(node, ast.ClassDef) and node.bases:
            yield from (
                item.name for item in node.body if isinstance(item, ast.FunctionDef) and re.match("_[^_]", item.name)
            )


def test_modules_use_public_names_of_great_expectations_only():
    users = [path for path in Path(files.__file__).parent.rglob("*.py") if "great_expectations" in path.read_text()]
    assert users
    assert {path.name: list(private_names(path.read_text())) for path in users} == {path.name: [] for path in users}
    planted = "from a import _b\nclass C(D):\n    def _e(self): return x._f"
    assert sorted(private_names(planted)) == ["_b", "_e", "_f"]
