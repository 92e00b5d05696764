"""Addresses cover all that the functions of an application can see."""

import importlib
import json
import sys
from collections import Counter

import pyarrow.parquet as pq
import pytest

from streaming_core import apps
from streaming_core.apps import registry
from streaming_core.errors import BadInput

ECHO = """
import numpy as np
from streaming_core.api import App, i64, record

@record
class Event:
    ts: i64

@record
class Below:
    limit: i64

app = App("echo")
"""
LIMITS = """
import json, os
from pathlib import Path
from ._relative import RELATIVE
from streaming_core.apps._absolute import ABSOLUTE
from ._helper import outer, stamps

READ = json.loads(Path(__file__).with_name("read.json").read_text())
VARIABLE = int(os.environ["LOCKSTEP_APP_LIMIT"])

def below(row, out):
    if row.ts < RELATIVE:
        out.emit(limit=1)
    if row.ts < ABSOLUTE:
        out.emit(limit=2)
    if row.ts < READ:
        out.emit(limit=3)
    if row.ts < VARIABLE:
        out.emit(limit=4)
    if outer(row.ts):
        out.emit(limit=5)

app.source(Event).flat_map(below, Below).sink()

@app.generates
def events(params, seed, start, stop):
    return {"ts": stamps(start, stop)}
"""
FILES = {
    "_relative.py": "RELATIVE = 10",
    "_absolute.py": "ABSOLUTE = 10",
    "read.json": "10",
    "_variable": "10",
    "_inner.py": "def inner(ts):\n    return ts < 10",
    "_helper.py": "import numpy as np\nfrom ._inner import inner\nfrom ._steps import step\n"
    "def outer(ts):\n    return inner(ts)\ndef stamps(start, stop):\n    return np.arange(start, stop) * step()",
    "_steps.py": "STEP = 10\ndef step():\n    return STEP // 10",
}


@pytest.fixture
def edit(package, monkeypatch):
    """Writes a file of the applications, as a user does between two commands."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(name, text):
        (package / name).write_text(text)
        for known in [name for name in sys.modules if name.startswith("streaming_core.apps.")]:
            if str(package) in (getattr(sys.modules[known], "__file__", None) or ""):
                del sys.modules[known]
                vars(apps).pop(known.rpartition(".")[2], None)
        importlib.invalidate_caches()

    return write


def test_every_command_notices_an_edit_of_what_operators_and_generators_see(edit, command, tmp_path, monkeypatch):
    for name, text in {**FILES, "echo.py": ECHO + LIMITS}.items():
        edit(name, text)
    addresses = set()

    def rows(number, runs=False):
        monkeypatch.setenv("LOCKSTEP_APP_LIMIT", (tmp_path / "_variable").read_text())
        events, run, oracle = (tmp_path / f"{name}-{number}" for name in ("events", "run", "oracle"))
        assert command("generate", "echo", "--events", 30, "--out", events)[0] == 0
        assert command("oracle", "echo", "--input", events, "--out", oracle)[0] == 0
        if runs:
            assert command("run", "echo", "--input", events, "--out", run)[0] == 0
            assert command("diff", run, oracle)[0] == 0
        addresses.update(json.loads((path / "manifest.json").read_text())["address"] for path in (events, oracle))
        return Counter(pq.read_table(oracle / "outputs")["limit"].to_pylist())

    expected = dict.fromkeys(range(1, 6), 10)
    assert rows(0, runs=True) == expected
    for limit, name in enumerate(["_relative.py", "_absolute.py", "read.json", "_variable", "_inner.py"], start=1):
        edit(name, FILES[name].replace("10", "20"))
        assert rows(limit, runs=limit == 1) == (expected := expected | {limit: 20})
    edit("_steps.py", FILES["_steps.py"].replace("= 10", "= 20"))
    assert rows(6) == dict.fromkeys(expected, 10)  # each second time stamp
    assert len(addresses) == 2 * 7


@pytest.fixture
def digest(edit):
    """Returns the digest of an application whose generator has these lines and whose file has these lines before it."""

    def load(lines, body="pass"):
        generator = f"@app.generates\ndef events(params, seed, start, stop):\n    {body}\n    return {{}}\n"
        same = "def same(row, out):\n    out.emit(ts=row.ts)\n\napp.source(Event).flat_map(same, Event).sink()\n"
        edit("echo.py", ECHO + same + lines + "\n" + generator)
        return registry.code_digest(registry.load("echo"))

    return load


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        ("X = np.array([1, 2])", "X"),
        ("X = {'a': [(1, 2.0)]}", "X"),
        ("X = {2, 3}", "X"),
        ("def x(n=2): return n", "x"),
        ("def make(n):\n    return lambda: n\nx = make(2)", "x"),
        ("import functools\n@functools.cache\ndef x(): return 2", "x"),
        ("import functools\n@functools.wraps(len)\ndef x(): return 2", "x"),
        ("import functools\ndef y(n): return n\nx = functools.partial(y, 2)", "x"),
        ("import dataclasses\n@dataclasses.dataclass\nclass X:\n    n: int = 2\nx = X()", "x"),
        ("class Y:\n    @property\n    def n(self): return 2\nclass X(Y): pass", "X().n"),
        ("class X:\n    def __init__(self): self.n = 2\nx = X()", "x"),
        ("from collections import namedtuple\nX = namedtuple('X', 'n')(2)", "X"),
        ("import re\nx = re.compile('2')", "x"),
        ("import enum\nclass X(enum.Enum):\n    N = 2", "X"),
        ("exec('def x(): return 2')", "x"),
        ("from streaming_core.generator import by_period\ndef _make(*args): return 2\nx = by_period(_make)", "x"),
        ("from streaming_core.apps import _other", "getattr(_other, 'N')"),
        ("", "from ._other import N"),
        ("", "from . import _other"),
        ("", "import streaming_core.apps._other as other"),
        ("import streaming_core.apps._other", "streaming_core.apps._other.N"),
        ("", "[(lambda: 2) for _ in range(3)]"),
        ("app.invariant('x', f'SELECT {2}')", "pass"),
        ("X = [2]\nX.append(X)", "X"),
    ],
)
def test_digest_covers_what_a_generator_refers_to(lines, body, digest, edit):
    edit("_other.py", "N = 2")
    before = digest(lines, body)
    assert digest(lines + "\n\n# a comment\nUNUSED = open('/dev/null')", body) == before
    edit("_other.py", "N = 3")
    assert digest(lines.replace("2", "3"), body.replace("2", "3")) != before


@pytest.mark.parametrize(
    ("lines", "body", "message"),
    [
        ("import threading\nLOCK = threading.Lock()", "LOCK", r"events \(echo.py:20\): LOCK: no digest covers a lock"),
        ("FILE = open('/dev/null')", "FILE", "no digest covers a TextIOWrapper"),
        ("import os\nENV = os.environ", "ENV", "no digest covers a _Environ"),
        ("import os", "os.environ['X']", r"events \(echo.py:19\): environ reads what no digest covers"),
        ("def x(): return open('/dev/null')", "x()", "open reads what no digest covers"),
        ("", "np.load('x')", "load reads what no digest covers"),
    ],
)
def test_what_no_digest_covers_is_refused(lines, body, message, digest):
    with pytest.raises(BadInput, match=message):
        digest(lines, body)
