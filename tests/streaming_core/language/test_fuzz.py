"""Whatever an application declares, loading it succeeds or ends with one line that a user understands.

Two campaigns: random chains of calls with wrong, missing and odd arguments; and applications with mutated code.
"""

import ast
import inspect
import random
import re
import traceback
from pathlib import Path

import pytest

from streaming_core import api
from streaming_core.apps import registry
from streaming_core.cli.new import TEMPLATES
from streaming_core.errors import BadInput
from streaming_core.language.aggregation import WindowedStream
from streaming_core.language.application import App
from streaming_core.language.bound import BoundApp
from streaming_core.language.joining import Pairs
from streaming_core.language.stream import Connected, KeyedStream, Stream
from tests.streaming_core.language.test_declarations import HEAD, WRONG
from tests.support.draws import seeds

OURS = Path(registry.__file__).parents[1]
APPS = sorted(path for path in OURS.glob("apps/*.py") if path.stem not in ("__init__", "registry"))
PYTHON = re.compile(r": (\w*(Error|Exception|Warning|Iteration)): ")
ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}|<\w+ object|<function|<class")
INTERNAL = re.compile(r"\b\w+_(result|state|row|pair|in_order|keys_\d)\b|\b_\w+\(")


def refusal(name):
    """Load an application, and bind it to its parameters; the refusal if it is refused."""
    try:
        app = registry.load(name)
        bound = BoundApp(app, app.bind())
        assert bound.windows is not None
        assert bound.constants is not None
    except BadInput as error:
        return error
    return None


def faults(error, source):
    """What a user would not understand in a refusal of this source."""
    line = str(error)
    if "\n" in line or len(line) > 2_000:
        yield "more than a line"
    if not re.search(r"\.py:\d+: |\.py:\d+\): |^app \w+|\.py (must|says)|: record \w+\.\w+: (the )?size", line):
        yield "no place"
    if ADDRESS.search(line):
        yield "an address, or an object of Python"
    cause = error.__cause__
    if not PYTHON.search(line):
        if (leak := INTERNAL.search(line)) and leak[0] not in source:
            yield f"an internal name {leak[0]}"
    else:
        # Python's words are right for what an application does wrong by itself, such as an unknown name.
        frames = traceback.extract_tb(cause.__traceback__ if cause else None)
        if isinstance(cause, SyntaxError) or re.search(r": (constant|table) \w+ \(\w+\.py:\d+\): ", line):
            return
        if not frames or Path(frames[-1].filename).is_relative_to(OURS) or "<" in frames[-1].filename:
            yield "a raw error of Python"


def check(name, source, package):
    (package / f"{name}.py").write_text(source)
    try:
        error = refusal(name)
    except Exception as crash:
        last = traceback.extract_tb(crash.__traceback__)[-1]
        return f"{type(crash).__name__} at {Path(last.filename).name}:{last.lineno}: {crash}"
    problems = [*faults(error, source)] if error else []
    return f"{', '.join(problems)}: {error}" if problems else ""


# --- chains of calls ---

CLASSES = {"app": App, "stream": Stream, "pairs": Pairs, "connected": Connected, "keyed": KeyedStream,
           "windowed": WindowedStream}  # fmt: skip
RETURNS = {"source": "stream", "connect": "connected", "join": "pairs", "key_by": "keyed", "window": "windowed"}
PUBLIC = ("agrees_unordered", "connect", "constant", "generates", "invariant", "join", "lookup_table", "source",
          "sources", "table", "transaction")  # fmt: skip
UNKNOWN = (
    "map", "where", "groupby", "count", "sum", "top_n", "group_by", "windows", "sort", "print", "emit", "collect",
)  # fmt: skip
# Without those that only operators call.
FUNCTIONS = [
    name
    for name in api.__all__
    if callable(member := getattr(api, name)) and member.__module__.rpartition(".")[2] not in ("dates", "work")
    if name != "decimal_text"  # as those of dates: operator code, whose errors are Python's
]
PLAUSIBLE = {
    "fn": ("work", "keep", "keep_all", "of_row", "lambda row: row.k > 1"), "state": ("State", "(State, State)"),
    "output": ("Right",), "key": ("'k'", "'line'", "of_row"), "table.key": ("u8", "text", "None"),
    "on": ("'k'", "('k', 'ts')", "{'v': 'w'}"), "within": ("5", "'5s'"),
    "extent": ("tumbling(10)", "sliding(9, 3)", "session('5s')", "count_window(3)", "rolling(5)", "global_window()"),
    "update": ("update", "(meet, meet)", "keep"), "result": ("total", "keep", "None"), "event": ("Left",),
    "records": ("Left", "Right", "Other"), "columns": ("agg.count()", "agg.max('v')", "'v'", "(i64, of_row)"),
    "fields": ("'ts'", "'k'", "'x'"), "others": ("stream", "stream1"), "streams": ("stream", "stream1"),
    "left": ("stream", "stream1"), "right": ("stream", "stream1"), "flush": ("gone",), "row": ("State",),
    "size": ("3", "'k'"), "by": ("'v'", "'x'"), "field": ("'v'",), "n": ("2",), "k": ("2",), "name": ("'other'",),
    "ttl": ("'1m'", "10"), "timer": ("gone",), "every": ("5", "2"), "band": ("{'v': ('w', 2)}", "{'x': ('w', 0.5)}"),
    "delay": ("'5s'", "3"), "lateness": ("'5s'", "3"), "early": ("2",), "idle": ("'5s'",), "slide": ("total",),
    "keys": ("of_row",), "multiplicity": ("'bag'",), "states": ("('keep',)",), "init": ("ones",), "input": ("Left",),
    "filter.fn": ("of_row", "lambda row: row.k > 1"), "flat_map.fn": ("work", "keep_all"),
    "process.fn": ("keep", "nothing"), "process.state": ("State",), "agrees_unordered.columns": ("'w'",),
    "select.columns": ("'v'", "(i64, of_row)", "(f64, lambda row: row.x / 2)"),
    "aggregate.columns": ("agg.count()", "agg.max('v')", "agg.avg('x')", "agg.last('line')"),
    "sql": ("'SELECT 1 WHERE 1 < :k'",), "lookup": ("'hash'",), "record": ("Right",), "rows": ("ones",),
    "lookup_table.key": ("'k'",), "lookup.table": ("app.lookup_table(Right, 'k', ones)",),
    "lookup.on": ("'k'", "'line'"), "scratch": ("State",), "build": ("ones",), "fns": ("ones",),
}  # fmt: skip


def value(draw, call, name):
    known = PLAUSIBLE.get(f"{call}.{name}") or PLAUSIBLE.get(name)
    if known and draw.random() < 0.93:
        return draw.choice(known)
    wrong = draw.choice(WRONG)
    return draw.choice(("({},)", "[{}]", "{{'k': {}}}", "({0}, {0})", "Array[{}, 2]", "{} | None")).format(wrong) if (
        draw.random() < 0.15
    ) else wrong  # fmt: skip


def arguments(draw, call, function):
    """Arguments of a call: plausible and wrong ones, by position and by name; some are missing, or too many."""
    try:
        parameters = [
            parameter for parameter in inspect.signature(function).parameters.values() if parameter.name != "self"
        ]
    except (TypeError, ValueError):
        parameters = []
    words, is_named = [], False
    for parameter in parameters:
        is_needed = parameter.default is inspect.Parameter.empty
        if draw.random() < (0.02 if is_needed else 0.95 if call == "key_by" and parameter.name != "key" else 0.8):
            continue
        if parameter.kind == parameter.VAR_POSITIONAL:
            words += [value(draw, call, parameter.name) for _ in range(draw.choice((1, 1, 2)))] if not is_named else []
        elif parameter.kind == parameter.VAR_KEYWORD:
            named = draw.sample(("n", "ts", "key", "seq", "class_", "k", "_x", "total", "rank"), draw.choice((1, 1, 2)))
            words += [f"{name}={value(draw, call, parameter.name)}" for name in named]
            is_named = True
        elif is_named or parameter.kind == parameter.KEYWORD_ONLY or draw.random() < 0.5:
            words.append(f"{parameter.name}={value(draw, call, parameter.name)}")
            is_named = True
        else:
            words.append(value(draw, call, parameter.name))
    if draw.random() < 0.05:
        words.append(draw.choice(("nosuch=1", "output=Right", "*(1,)", "**{'x': 1}")))
    return ", ".join(words)


def chain(draw):
    """The source of an application that calls the language at random."""
    kinds, lines = {"app": "app"}, []
    start = draw.random()
    if start < 0.6:
        lines += ["stream = app.source(Left)", "stream1 = stream.select('ts', 'k', w='v')"]
        kinds |= {"stream": "stream", "stream1": "stream"}
    elif start < 0.9:
        lines.append("stream, stream1 = app.sources(Left, Right)")
        kinds |= {"stream": "stream", "stream1": "stream"}
    for number in range(draw.randrange(1, 6)):
        if draw.random() < 0.1:
            function = draw.choice(FUNCTIONS)
            lines.append(f"made{number} = {function}({arguments(draw, function, getattr(api, function))})")
            continue
        variable = draw.choice([*kinds])
        if draw.random() < 0.7:
            variable = [*kinds][-1]
        if variable == "app" and start < 0.9 and draw.random() < 0.9:
            variable = "stream"
        names = (
            PUBLIC if kinds[variable] == "app" else [name for name in dir(CLASSES[kinds[variable]]) if name[0] != "_"]
        )
        name = draw.choice(UNKNOWN) if draw.random() < 0.03 else draw.choice(names)
        method = getattr(CLASSES[kinds[variable]], name, None)
        lines.append(f"made{number} = {variable}.{name}({arguments(draw, name, method) if method else ''})")
        if name not in ("sink", "invariant", "agrees_unordered", "generates", "constant", "table", "transaction"):
            kinds[f"made{number}"] = RETURNS.get(name, "stream")
    last = draw.choice([*kinds])
    ends = {"app": "", "stream": "{}.sink()", "pairs": "{}.sink()", "keyed": "{}.distinct().sink()",
            "connected": "{}.key_by('k').window(tumbling(5)).apply((meet, meet), (State, State), Right).sink()",
            "windowed": "{}.aggregate(n=agg.count()).sink()"}  # fmt: skip
    return HEAD + "\n".join(["from streaming_core.api import *", *lines, ends[kinds[last]].format(last), ""])


@pytest.mark.parametrize("seed", seeds(1, 40))
def test_random_declarations_are_valid_or_refused_in_one_clear_line(seed, package):
    draw = random.Random(seed)
    bad = {}
    for number in range(60):
        name = f"chain{seed}x{number}"
        source = chain(draw).replace("NAME", repr(name))
        if fault := check(name, source, package):
            bad.setdefault(
                re.sub(r"\d+", "#", fault)[:200], (fault, source.removeprefix(HEAD.replace("NAME", repr(name))))
            )
    assert not bad, "\n\n".join(map("\n".join, bad.values()))


# --- mutations ---

EXPRESSIONS = [
    "None", "'x'", "b'x'", "1.5", "-1", "1 << 70", "[1, 2]", "(1, 2)", "{1: 2}", "lambda x: x", "f'{1}'", "...",
    "[x for x in range(3)]", "print(1)", "app", "len", "int", "1 if 2 else 3", "1 < 2 < 3", "(y := 1)", "not 1", "~1",
    "1 ** 2", "1 @ 2", "1 is None", "'a' in 'b'", "x[1:2:3]", "abs(-1)", "min(1)", "max()", "str(1)", "sum([1])",
    "True",
]  # fmt: skip
STATEMENTS = [
    "pass", "return", "return 1", "break", "continue", "del x", "global x", "import os", "raise ValueError",
    "assert 1", "x: int", "x = y = 1", "a, b = 1, 2", "with x: pass", "try:\n    pass\nfinally:\n    pass", "yield 1",
    "def f(): pass", "class A: pass", "for x in []: pass", "for x in range(1, 2, 3, 4): pass",
    "while 0: pass\nelse: pass", "1", "x += 1", "async def g(): pass", "match 1:\n    case 1: pass", "nonlocal x",
    "x.y = 1", "x[0] = 1", "out.emit()", "out.drop(1)", "if 1: x = 1", "for x in 'a,b'.split(','): pass",
]  # fmt: skip


class Mutation(ast.NodeTransformer):
    """Changes the node with a number, among those of the functions and declarations of an application."""

    def __init__(self, draw, tree):
        self._draw = draw
        self._names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
        self._attributes = sorted({node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)})
        fixed = ast.Import | ast.ImportFrom | ast.JoinedStr | ast.FormattedValue
        parts = (node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt | ast.arg))
        self._chosen = draw.choice([node for node in parts if not isinstance(node, fixed)])

    def visit(self, node):
        """Return the node, or something else in its place."""
        if node is not self._chosen:
            return self.generic_visit(node)
        for kind, change in self.CHANGES.items():
            if isinstance(node, kind) and self._draw.random() < 0.7:
                change(self, node)
                return node
        if isinstance(node, ast.stmt):
            new = ast.parse(self._draw.choice(STATEMENTS)).body
            return self._draw.choice(([], [node, node], [*new, node], new, [node, *new])) or [ast.Pass()]
        return node if isinstance(node, ast.arg | ast.Starred | ast.Slice) else self._expression()

    def _expression(self):
        return ast.parse(self._draw.choice(EXPRESSIONS), mode="eval").body

    def _function(self, node):
        what = self._draw.randrange(4)
        if what == 0 and node.args.args:
            node.args.args.pop(self._draw.randrange(len(node.args.args)))
        elif what == 1:
            node.args.args.insert(0, ast.arg("more"))
        elif what == 2:
            node.args.vararg = ast.arg("rest")
        else:
            node.decorator_list = []

    def _call(self, node):
        parts = node.args if node.args and self._draw.random() < 0.6 else node.keywords
        if parts and self._draw.random() < 0.6:
            parts.pop(self._draw.randrange(len(parts)))
        elif node.keywords and self._draw.random() < 0.5:
            self._draw.choice(node.keywords).arg = self._draw.choice(self._attributes)
        else:
            node.args.append(self._expression())

    def _argument(self, node):
        node.arg = self._draw.choice(self._names)

    def _name(self, node):
        node.id = self._draw.choice(self._names)

    def _attribute(self, node):
        node.attr = self._draw.choice(self._attributes)

    def _arithmetic(self, node):
        node.op = self._draw.choice((ast.Pow, ast.MatMult, ast.Div, ast.LShift, ast.BitOr, ast.Mod, ast.Sub))()

    def _comparison(self, node):
        node.ops[0] = self._draw.choice((ast.Is, ast.In, ast.NotIn, ast.Eq, ast.Lt))()

    CHANGES = {
        ast.FunctionDef: _function,
        ast.Call: _call,
        ast.arg: _argument,
        ast.Name: _name,
        ast.Attribute: _attribute,
        ast.BinOp: _arithmetic,
        ast.Compare: _comparison,
    }


def mutant(draw, source):
    """The source with one to three mutations, as valid Python."""
    while True:
        tree = ast.parse(source)
        for _ in range(draw.choice((1, 1, 2, 3))):
            tree = Mutation(draw, tree).visit(tree)
        try:
            text = ast.unparse(ast.fix_missing_locations(tree))
            compile(text, "mutant", "exec")
        except (SyntaxError, ValueError, TypeError, AttributeError):
            continue
        return text


@pytest.fixture
def originals(package):
    """The folder of applications with the unchanged ones, because some import others."""
    for path in APPS:
        (package / path.name).write_text(path.read_text())
    return package


def sources():
    """The source of every application, and of every template, by name."""
    templates = {path.name.partition(".")[0]: path for path in sorted(TEMPLATES.glob("*.py.template"))}
    files = {path.stem: path for path in APPS} | templates
    return {name: path.read_text().replace("NAME", name) for name, path in files.items()}


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("seed", seeds(1, 40))
def test_applications_with_mutated_code_are_valid_or_refused_in_one_clear_line(seed, originals):
    draw = random.Random(seed)
    bad = {}
    for number in range(60):
        name, source = draw.choice([*sources().items()])
        text = mutant(draw, source)
        mutated = f"m{seed}x{number}"
        text = re.sub(rf"App\('{name}'", f"App('{mutated}'", text)
        if fault := check(mutated, text, originals):
            bad.setdefault(re.sub(r"\d+", "#", fault), fault)
    assert not bad, "\n\n".join(bad.values())
