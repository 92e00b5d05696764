"""Type checkers and editors read applications: mypy in `make lint`, pyright and its completion here.

pyright comes from the package index, through uv, because only this test needs it.
"""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra.checkout import ROOT
from streaming_core import api
from streaming_core.cli.new import new, templates
from streaming_core.language.aggregation import WindowedStream
from streaming_core.language.application import App, Transaction
from streaming_core.language.joining import Pairs
from streaming_core.language.stream import Connected, KeyedStream, Stream

PYRIGHT = [sys.executable, "-m", "uv", "tool", "run", "--quiet", "--from", "basedpyright==1.40.2"]
CLASSES = (App, Connected, KeyedStream, Pairs, Stream, Transaction, WindowedStream)
ANNOTATED = """\
from typing import Literal

from streaming_core.api import App, Map, Out, Queue, Ring, Window, f64, i64, record, text, tumbling

app = App("annotated")


@record
class Click:
    ts: i64
    user: text
    price: f64


@record
class Kept:
    page: text


@record
class Recent:
    n: i64
    last: Ring[i64, Literal[3]]
    kept: Queue[Kept]
    pages: Map[text, i64]


@record
class Ranked:
    user: text
    n: i64


def count(row: Click, state: Recent, out: Out[Ranked]) -> None:
    state.n += 1
    state.last.append(row.ts)
    state.kept.append(page=row.user + "/" + str(state.n))
    state.pages.put("home", state.n)
    for kept in state.kept:
        if kept.page.startswith("home") or kept.page == b"home":
            out.drop()
    out.emit(user=row.user[1:], n=state.last[0])
    out.emit(user="none", n=int(row.price))


def update(row: Click, window: Window, state: Recent, out: Out[Ranked]) -> None:
    out.emit(row, n=window.end)


clicks = app.source(Click)
dear = clicks.filter(lambda row: row.price > 1.0)
dear.key_by("user").process(count, state=Recent, output=Ranked).sink()
dear.key_by("user").window(tumbling("1m")).apply(update, Recent, Ranked).sink("windows")
"""
WRONG = [
    ("state.n += 1", "state.m += 1", "m"),
    ("state.last.append(row.ts)", "state.last.append(row.price)", "price"),
    ("page=row.user +", "pages=row.user +", "pages"),
    ("n=int(row.price)", "n=row.price", "n"),
    ("row.price > 1.0", "row.prize > 1.0", "prize"),
    ("count, state=Recent, output=Ranked", "count, state=Recent, output=Click", "count"),
]


def parameters(function):
    return {name: parameter.kind for name, parameter in inspect.signature(function).parameters.items()}


def test_the_stub_declares_the_names_and_parameters_of_the_code():
    stub = ast.parse(Path(api.__file__).with_suffix(".pyi").read_text())
    [names] = [ast.literal_eval(node.value) for node in stub.body if isinstance(node, ast.Assign) and
               node.targets[0].id == "__all__"]  # fmt: skip
    assert names == api.__all__
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    for cls in CLASSES:
        declared = {}
        for node in ast.walk(classes[cls.__name__]):
            if isinstance(node, ast.FunctionDef):
                taken = [*node.args.posonlyargs, *node.args.args, node.args.vararg, *node.args.kwonlyargs]
                declared.setdefault(node.name, set()).update(arg.arg for arg in [*taken, node.args.kwarg] if arg)
        methods = {
            name: function for name, function in vars(cls).items() if inspect.isfunction(function) and name[0] != "_"
        }
        if cls is App:
            methods = {name: function for name, function in methods.items() if name in declared}
        assert declared.keys() - {"__init__"} == methods.keys()
        for name, method in methods.items():
            extra = {"first", "second", "third"} if name == "sources" else set()
            assert declared[name] - extra == parameters(method).keys(), f"{cls.__name__}.{name}"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps({"extraPaths": [str(ROOT)], "venvPath": str(ROOT), "venv": ".venv", "typeCheckingMode": "standard"})
    )
    return tmp_path


def pyright(project, *files):
    command = [*PYRIGHT, "basedpyright", "--outputjson", "--project", str(project), *map(str, files)]
    report = json.loads(subprocess.run(command, cwd=project, capture_output=True, text=True, check=False).stdout)
    return [
        (Path(diagnostic["file"]).name, diagnostic["range"]["start"]["line"] + 1, diagnostic["message"])
        for diagnostic in report["generalDiagnostics"]
        if diagnostic["severity"] == "error"
    ]


def mypy(project, *files):
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--output", "json"]
    command += ["--allow-untyped-defs", *files]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    errors = (json.loads(line) for line in output.splitlines() if line.startswith("{"))
    return [
        (Path(error["file"]).name, error["line"], error["message"]) for error in errors if error["severity"] == "error"
    ]


@pytest.mark.slow
def test_pyright_accepts_every_application(project):
    files = sorted((ROOT / "streaming_core" / "apps").rglob("*.py"))
    assert len(files) > 20
    assert pyright(project, *files) == []


@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_checkers_accept_every_template(checker, project):
    files = [new(f"from_{template}", project, project / "nowhere", template)[0] for template in templates()]
    assert checker(project, *files) == []


@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_annotated_operators_are_checked(checker, project):
    (project / "annotated.py").write_text(ANNOTATED)
    places = {}
    for number, (right, wrong, _) in enumerate(WRONG):
        assert ANNOTATED.count(right) == 1
        (project / f"wrong{number}.py").write_text(ANNOTATED.replace(right, wrong))
        places[f"wrong{number}.py"] = ANNOTATED[: ANNOTATED.index(right)].count("\n") + 1
    if checker is mypy:  # it takes any field in `emit`
        places.pop("wrong3.py")
        (project / "wrong3.py").unlink()
    errors = checker(project, *sorted(project.glob("*.py")))
    assert {(file, line) for file, line, _ in errors} == {*places.items()}


class Editor:
    """A session with pyright's language server."""

    def __init__(self, project):
        command = [*PYRIGHT, "basedpyright-langserver", "--stdio"]
        self.server = subprocess.Popen(command, cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        folder = {"uri": project.as_uri(), "name": project.name}
        self.request("initialize", {"processId": None, "workspaceFolders": [folder], "capabilities": {}})
        self.send({"method": "initialized", "params": {}})

    def send(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.server.stdin.flush()

    def receive(self):
        size = 0
        while (line := self.server.stdout.readline().strip()) or not size:
            assert line, "the server has ended"
            size = int(line.split(b":")[1]) if line.startswith(b"Content-Length") else size
        return json.loads(self.server.stdout.read(size))

    def request(self, method, params):
        self.send({"id": 1, "method": method, "params": params})
        while True:
            answer = self.receive()
            if "method" in answer and "id" in answer:  # a request of the server
                items = [None] * len(answer["params"].get("items", [])) if answer.get("params") else None
                self.send({"id": answer["id"], "result": items})
            elif answer.get("id") == 1:
                return answer["result"]

    def completions(self, uri, text, line, column):
        self.send({"method": "textDocument/didOpen", "params": {"textDocument": {
            "uri": uri, "languageId": "python", "version": 1, "text": text}}})  # fmt: skip
        place = {"textDocument": {"uri": uri}, "position": {"line": line, "character": column}}
        return {item["label"] for item in self.request("textDocument/completion", place)["items"]}


@pytest.mark.slow
def test_an_editor_completes_the_fields_of_rows_and_states(project):
    editor = Editor(project)
    try:
        for number, (begin, expected) in enumerate({
            "    row.": {"ts", "user", "price"},
            "    state.": {"n", "last", "kept", "pages"},
            "    state.last.": {"append", "clear"},
            "    out.": {"emit", "drop"},
            "    out.emit(": {"user=", "n="},
        }.items()):  # fmt: skip
            lines = ANNOTATED.splitlines()
            at = lines.index("    state.n += 1")
            lines[at] = begin
            file = project / f"edited{number}.py"
            file.write_text("\n".join(lines))
            labels = editor.completions(file.as_uri(), file.read_text(), at, len(begin))
            assert expected <= labels
    finally:
        editor.server.kill()
        editor.server.wait()
