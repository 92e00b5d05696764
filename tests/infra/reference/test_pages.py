"""The reference has every name that the code declares, with its default, and its tables have no other names.

`make docs` writes the pages of commands, applications and the warehouse (test_files.py); people write the others.
"""

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping

import pytest
from pydantic.fields import FieldInfo

from infra.checkout import ROOT
from infra.cli import command as lockstep
from infra.fields import OF_RUN
from infra.reference.command_line import commands
from streaming_core.api import __all__ as api
from streaming_core.apps import registry
from streaming_core.cli import command as streaming_core
from streaming_core.engines.contract import Manifest, Pass, Report, Task
from streaming_core.errors import ExitCode, bounds_of
from streaming_core.language.application import App
from streaming_core.language.stream import KeyedStream, Stream
from streaming_core.language.typed.expressions import METHODS
from streaming_core.process import FOREIGN
from streaming_core.regression.project import PREFIX
from streaming_core.regression.request import FIELD_OPTIONS, RegressionSpec
from streaming_core.regression.warehouse import RAW
from streaming_core.run.way import EXECUTORS, NAMED_PLANS, RunSpec, values_of

REFERENCE = ROOT / "docs" / "reference"
COMMANDS = {name: command for program in (streaming_core.app, lockstep.app) for name, command in commands(program)}
ENGINE_VARIABLES = dict.fromkeys(("PATH", "ENGINE_HOME", "PYTHONPATH", "PYTHONHASHSEED"))


def page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text()


def section(name: str, heading: str) -> str:
    """The part of a page below a heading, up to the next heading of the same or a higher level."""
    level = len(heading) - len(heading.lstrip("#"))
    text = page(name)
    assert f"\n{heading}\n" in text, heading
    return re.split(rf"\n#{{1,{level}}} ", text.partition(f"\n{heading}\n")[2])[0]


def rows(text: str) -> dict[str, dict[str, str]]:
    """The rows of all tables of a text that begin with a code span: the code -> head of a column -> cell."""
    by_name: dict[str, dict[str, str]] = {}
    for table in re.findall(r"(?:^\| .*\n)+", text + "\n", re.M):
        head, _, *lines = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]
        for cells in lines:
            if name := re.fullmatch("`(.*?)`", cells[0]):
                by_name.setdefault(name[1], dict(zip(head, cells, strict=True)))
    return by_name


def with_values(fields: Mapping[str, FieldInfo | None]) -> dict[str, FieldInfo | None]:
    """Options of a run, and the strategies that they choose from."""
    values = {value for name in fields for value in (NAMED_PLANS if name == "plan" else values_of(name))}
    return {**dict.fromkeys(values), **fields}


def declarations() -> Iterator[tuple[str, str, Mapping[str, FieldInfo | None]]]:
    """Page, heading, and every name that the tables below it have to have, with its field if it has one."""
    codes = (str(int(code)) if code is not ExitCode.SIGNAL else "128 + n" for code in ExitCode)
    yield "exit-codes", "## Codes of every command", dict.fromkeys(codes)
    for name, executor in EXECUTORS.items():
        own = {option: field for option, field in executor.options().items() if option not in RunSpec.model_fields}
        yield "strategies", f"## {name}", with_values(own) | executor.options()
    common = {name: field for name, field in RunSpec.model_fields.items() if name not in ("app", "params", "executor")}
    yield "strategies", "## Options of every executor", with_values(common)
    fields = RegressionSpec.model_fields
    of_every = {name: field for name, field in fields.items() if name not in FIELD_OPTIONS}
    yield "requests", "## Fields of every request", of_every
    yield "requests", "## Fields of one run", dict.fromkeys(OF_RUN)
    yield "requests", "## Fields for the options of one executor", {name: fields[name] for name in FIELD_OPTIONS}
    yield "engines", "## The folder and its manifest", Manifest.model_fields | ENGINE_VARIABLES
    yield "engines", "## The call", Task.model_fields
    yield "engines", "## The report", Report.model_fields | Pass.model_fields
    declared = (ROOT / "infra/airflow/connections.json").read_text()
    used = "".join((ROOT / "dags" / "lib" / name).read_text() for name in ("alerts.py", "monitoring.py"))
    connections = re.findall(r'^  "(\w+)": \{', declared, re.M)
    connections += re.findall(r"lockstep_(?:alert_[a-z]+|dead_man)", used)
    yield "configuration", "## Airflow connections", dict.fromkeys(connections)
    for name, schema in RAW.items():
        yield "warehouse", f"### raw_{name}", dict.fromkeys(schema.names)
    for name in registry.names():
        app = registry.load(name)
        windows = [operator.name for operator in app.operators if operator.window is not None]
        names = [*app.declared, *app.profiles, *(operator.name for operator in app.operators[1:-1]), *windows]
        yield "applications", f"## {name}", dict.fromkeys(names)


def shown(field: FieldInfo) -> list[str]:
    """The default of a field as a page shows it: one text for each item of a list."""
    value = field.get_default(call_default_factory=True)
    if value in ({}, [], ""):
        return ["empty"]
    # Pages name connections without the prefix of the project.
    return [f"`{str(item).removeprefix(PREFIX)}`".lower() for item in (value if isinstance(value, list) else [value])]


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*.md")), ids=lambda path: path.stem)
def test_page_opens_with_its_purpose_and_ends_with_further_reading(path):
    title, *text = path.read_text().split("\n\n")
    first = next(part for part in text if not part.startswith("<!-- Generated by `make docs` from "))
    assert title.startswith("# ")
    assert first.startswith("This page ")
    assert re.search(r"\n## Next\n\n(- \[.*\n){1,3}$", path.read_text())


def test_tables_have_every_declared_name_with_its_default_and_no_other():
    for name, heading, declared in declarations():
        table = rows(section(name, heading))
        assert table.keys() == declared.keys(), (name, heading)
        for key, field in declared.items():
            if field is None:
                continue
            place, row, largest = (name, heading, key), table[key], bounds_of(field)[1]
            assert field.is_required() or all(text in row["default"].lower() for text in shown(field)), place
            assert largest is None or "values" not in row or f"{int(largest):,}" in row["values"], place
    assert set(re.findall("^## (.*)", page("strategies"), re.M)) == {*EXECUTORS, "Options of every executor", "Next"}


def test_every_command_has_its_options_and_every_option_its_help():
    assert len(COMMANDS) > 20
    for name, command in COMMANDS.items():
        text = section("command-line", f"### {name}")
        for parameter in command.params:
            options = parameter.opts if parameter.param_type_name == "option" else []
            assert "--help" in options or parameter.help, (name, parameter.name)
            assert "--help" in options or all(f"`{option}`" in text for option in options), (name, parameter.name)


def test_commands_with_exit_codes_of_their_own_are_listed():
    """A command whose help names its exit code 1 has a row, and every row is a command's."""
    help_of = {name: command.help or "" for name, command in COMMANDS.items()}
    named = {name for name, text in help_of.items() if re.search(r"(exit code|exits with) 1", text, re.I)}
    table = rows(section("exit-codes", "## Codes of single commands"))
    assert named
    assert named <= table.keys() <= COMMANDS.keys()


def test_every_variable_that_the_code_reads_is_a_setting():
    table = rows(page("configuration"))
    places = ["*.py", "*.rs", "Makefile", ".ci", "infra", ".env.example"]
    command = ["git", "grep", "-ohE", r"\bLOCKSTEP_[A-Z_]*[A-Z]\b", "--", *places]
    variables = set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())
    # Variables for applications, parts of names of connections (AIRFLOW_CONN_LOCKSTEP_ALERT_...), and that of faults
    # which no release has.
    variables = {name for name in variables if not re.match("LOCKSTEP_(APP_|ALERT|DEAD_MAN|PLANTED)", name)}
    assert "LOCKSTEP_HOME" in variables
    assert variables == {name for name in table if re.match("LOCKSTEP_(?!APP_)", name)}
    example = (ROOT / ".env.example").read_text()
    assert set(re.findall(r"^#?([A-Z_]+)=", example, re.M)) <= table.keys()
    foreign = [line for line in FOREIGN.read_text().splitlines() if line and not line.startswith("#")]
    assert "\n".join(foreign) in section("configuration", "## Variables of other work")


def test_every_type_container_and_method_of_the_language_is_documented():
    text = page("language")
    never_written = ("Constant", "LookupTable", "ParamRef", "Params", "Record")
    assert [name for name in api if name not in never_written and not re.search(rf"\b{name}\b", text)] == []
    for container, methods in METHODS.items():
        part = re.split(r"\n#", text.partition(f"### `{container.__name__}[")[2])[0]
        shown_calls = dict(re.findall(r"^\| `(\w+)\((.*?)\)`", part, re.M))
        counts = {call: len(re.findall(r"\w+(?:=\w+)?", arguments)) for call, arguments in shown_calls.items()}
        assert counts == {method: len(takes) for method, (takes, _) in methods.items() if method != "clear"}
    source = "".join((ROOT / f"streaming_core/apps/{name}.py").read_text() for name in registry.names())
    used = set(re.findall(r"\.(\w+)", source))  # other public methods are not for applications
    for kind, owner in ((App, "app"), (Stream, "stream"), (KeyedStream, "stream.key_by(key)")):
        declared = {name for name, member in vars(kind).items() if callable(member) and not name.startswith("_")}
        assert declared & used
        assert [name for name in declared & used - {"params", "check"} if f"`{owner}.{name}(" not in text] == []


def test_documented_python_functions_are_those_of_the_parser():
    source = (ROOT / "streaming_core/language/typed/expressions.py").read_text()
    accepted = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.match_case) and isinstance(node.pattern, ast.MatchSequence) and node.pattern.patterns:
            first = node.pattern.patterns[0]
            values = first.patterns if isinstance(first, ast.MatchOr) else [first]
            accepted |= {pattern.value.value for pattern in values if isinstance(pattern, ast.MatchValue)}
    assert {"len", "abs"} <= accepted
    assert all(re.search(rf"`[^`]*\b{name}\b[^`]*`", section("language", "## Expressions")) for name in accepted)
