"""The operator language: one table covers every refusal at the loading of an application."""

import ast
import json
import re
import traceback
from pathlib import Path

import pytest
from numba.core.errors import TypingError
from numba.core.ir import Loc

from streaming_core.apps import registry
from streaming_core.errors import BadInput, CommandFailed
from streaming_core.kernels.program import compile_app
from streaming_core.language import source, typed
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from tests.streaming_core.language.refusals import CASES, DECLARED, HEAD, KINDS, TAIL


def written(package, name, kind, code, function="operate"):
    """Writes the application of a case and returns the line that its error cites."""
    arguments, declared = KINDS[kind]
    body, *beside = code.split("\n\n\n")
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    parts = [HEAD.replace("NAME", name) + f"def operate({arguments}):\n{lines}", *beside, declared + TAIL]
    text = "\n\n".join(parts)
    (package / f"{name}.py").write_text(text)
    for number, line in enumerate(text.split("\n"), 1):
        if line.endswith("# here") or ("# here" not in text and line.startswith(f"def {function}(")):
            return number + (function == "operate" and "# here" not in text)
    return None


def refusal(name):
    with pytest.raises(BadInput) as refused:
        registry.load(name)
    assert "\n" not in str(refused.value)
    return refused.value


@pytest.mark.parametrize(("number", "kind", "code", "reason", "function"), [(i, *case) for i, case in enumerate(CASES)])
def test_unsupported_python_is_refused_with_its_line(number, kind, code, reason, function, package):
    name = f"case{number}"
    line = written(package, name, kind, code, function)
    where = f"{function} ({name}.py:{line})" if line else "made (<made>:1)"
    assert str(refusal(name)) == f"application {name}: operator {where}: {reason.replace('NAME', name)}"


@pytest.mark.parametrize(("number", "old", "new", "line"), [(i, *case) for i, case in enumerate(DECLARED)])
def test_invalid_declarations_are_refused(number, old, new, line, package):
    name = f"declared{number}"
    written(package, name, "process", "pass")
    file = package / f"{name}.py"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    assert re.fullmatch(f"application {name}: {line.replace('NAME', name)}", str(refusal(name)))


def test_the_table_covers_every_refusal(package):
    """Every refusal in the code occurs in the table, so every refusal has a test."""
    raised = set()
    for number, case in enumerate(CASES + DECLARED):
        name = f"case{number}"
        if number < len(CASES):
            written(package, name, *case[:2])
        else:
            written(package, name, "process", "pass")
            (package / f"{name}.py").write_text((package / f"{name}.py").read_text().replace(*case[:2]))
        error = refusal(name)
        while error.__context__ is not None:
            error = error.__context__
            trace = traceback.extract_tb(error.__traceback__)[-1]
            raised.add((trace.filename, trace.lineno))
    for path in [Path(source.__file__), *sorted(Path(typed.__file__).parent.glob("*.py"))]:
        sites = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Raise)]
        for site in sites:
            assert any((str(path), line) in raised for line in range(site.lineno, (site.end_lineno or 0) + 1)), (
                f"{path.name}:{site.lineno} refuses what no case has"
            )


def test_every_command_refuses_an_invalid_application_alike(package, command, tmp_path):
    written(package, "whole", "process", "pass")
    line = written(package, "broken", "process", "state.n = 0.5")
    message = f"streaming-core: application broken: operator operate (broken.py:{line}): "
    message += "cannot store a float in State.n, which holds u8; convert it with int(...)\n"
    out, source = tmp_path / "out", tmp_path / "source"
    for arguments in (
        ["describe", "broken"],
        ["generate", "broken", "--events", 1, "--out", out],
        ["run", "broken", "--input", source, "--out", out],
        ["oracle", "broken", "--input", source, "--out", out],
    ):
        assert command(*arguments) == (2, "", message)
        assert not out.exists()
    code, listed, error = command("apps", "--json")
    assert (code, error) == (2, message)
    assert [row["app"] for row in json.loads(listed)] == ["whole"]


def test_parameters_can_decide_whether_an_operator_type_checks(package, command, tmp_path):
    """An application can be valid with some parameters and invalid with others."""
    line = written(package, "decided", "process", "if app.p:\n    x = 1\nstate.n = x  # here")
    registry.load("decided")
    assert command("generate", "decided", "--events", 0, "--set", "p=false", "--out", tmp_path / "w") == (
        2, "", f"streaming-core: operator operate (decided.py:{line}): variable 'x' may have no value here; "
        "assign it on every path to this line\n",
    )  # fmt: skip
    assert not (tmp_path / "w").exists()
    app = registry.load("decided")
    for make in (compile_app, Interpreter, Loop):
        with pytest.raises(BadInput, match=r"operator operate \(decided.py:\d+\): variable 'x' may have no value here"):
            make(app, app.bind({"p": False}))


@pytest.mark.parametrize("make", [compile_app, Loop])
def test_a_numba_failure_is_not_blamed_on_the_application(make, package, monkeypatch):
    line = written(package, "accepted", "process", "state.n = 1")
    app = registry.load("accepted")

    def fail(*_):
        raise TypingError("two lines\nof words", Loc(app.operators[1].functions["process"].__code__.co_filename, line))

    monkeypatch.setattr("streaming_core.kernels.entry.kernel", fail)
    monkeypatch.setattr("streaming_core.oracle.loop.loop.programs", fail)
    who = "app accepted" if make is Loop else rf"operator operate \(accepted.py:{line}\)"
    with pytest.raises(
        CommandFailed, match=f"^{who}: numba cannot compile this valid operator, a fault of Lockstep: two lines$"
    ):
        make(app, app.bind({"k": 3}))
