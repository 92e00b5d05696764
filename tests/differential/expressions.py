"""Writes an application file that between its branches uses every operation of the language on every type.

The application's event chooses a branch with `op`; the branch emits one expression over the event's fields. Some
expressions are one operation each, the others nest and are drawn with a fixed seed.
"""

import random
from collections.abc import Callable, Iterable
from pathlib import Path

HEAD = """
from streaming_core.api import App, boolean, f64, i64, record

app = App("expressions")


@record
class Event:
    op: i64
    a: i64
    b: i64
    x: f64
    y: f64
    p: boolean
    q: boolean


@record
class Output:
    i: i64
    f: f64
    t: boolean


def clamp(n, low, high):
    if n < low:
        return low
    if n > high:
        return high
    return n


def mean(x, y):
    return (x + y) / 2


def gcd(a, b):
    steps = 0
    while b != 0 and steps < 8:
        rest = a % b
        a = b
        b = rest
        steps += 1
    return a


def weigh(a, x, p):
    total = 0
    for i in range(a & 3):
        total += x * i
    if p:
        total -= a
    return total


def evaluate(row, out):
    op = row.op
    a = row.a
    b = row.b
    x = row.x
    y = row.y
    p = row.p
    q = row.q
"""

SIMPLE = {
    "i": [
        "a + b", "a - b", "a * b", "a // b", "a % b", "a & b", "a | b", "a ^ b", "a << b", "a >> b", "a << (b & 63)",
        "a >> (b & 63)", "-a", "~a", "abs(a)", "min(a, b)", "max(a, b)", "int(x)", "int(p)", "a if p else b",
        "a and b", "a or b", "p + q", "p - a", "-p", "+p", "abs(p)", "p * q", "p // q", "a % p", "p << q",
        "clamp(a, b, 1000)", "gcd(a, b)", "a * 48271 % 2147483647", "a // -1", "a % -1", "a // 7", "a % -7",
        "a * a % 6", "a * a // 7", "(a + 1) // 2", "(a - b) % 5", "-a // 2",
        "min(a, b, 3)", "int(x) // int(y)", "a + p", "(a if p else q) * 3", "int(x < y) + int(x == y) * 2",
    ],
    "f": [
        "x + y", "x - y", "x * y", "x / y", "x // y", "x % y", "-x", "abs(x)", "min(x, y)", "max(x, y)", "float(a)",
        "a / b", "x + a", "a - x", "x * p", "x // b", "a % y", "x if p else a", "x and y", "x or a", "min(a, x)",
        "max(x, b)", "mean(x, a)", "weigh(a, x, p)", "float(p)", "x / 3", "a + 0.5", "-(x * 0.5)",
    ],
    "t": [
        "a < b", "a <= x", "a == x", "x != y", "x == x", "a < b < x", "a <= b == p", "p and q", "p or q", "not p",
        "not x", "bool(a)", "bool(x)", "p == q", "p < a", "p & q", "p | q", "p ^ q", "(a & 1) == p", "x >= y",
        "a + 1 > a", "a - 1 < a", "a * a >= 0",
        "0 < a and b > a or x < y", "p if a < b else q", "min(p, q)", "max(p, q)", "x > a > y", "a != b",
    ],
}  # fmt: skip

INTS = [0, 1, 2, -1, 63, 64, 2**31 - 1, 2**53 + 1, 2**62, 2**63 - 1, -(2**63) + 1]
FLOATS = ["0.0", "0.1", "1e300", "1e-310", "2.5", "9.3e18"]


def draw(r: random.Random, kind: str, depth: int) -> str:
    """A random expression of that type."""

    def sub(kind: str) -> str:
        return draw(r, kind, depth - 1)

    if depth == 0 or r.random() < 0.15:
        leaves = {"i": ["a", "b", str(r.choice(INTS))], "f": ["x", "y", r.choice(FLOATS)], "t": ["p", "q"]}
        return r.choice(leaves[kind])
    compound = {"i": integer, "f": real, "t": truth}[kind]
    return compound(r, r.randrange(8), sub)


def integer(r: random.Random, form: int, sub: Callable[[str], str]) -> str:
    """An integer expression of one of eight forms, over subexpressions that `sub` draws by type."""
    match form:
        case 0 | 1 | 2 | 3:
            return f"({sub('i')} {r.choice(['+', '-', '*', '//', '%', '&', '|', '^', '<<', '>>'])} {sub('i')})"
        case 4:
            return f"{r.choice(['-', '~', 'abs', 'int'])}({sub('i')} + 0)"
        case 5:
            return f"int({sub('f')})"
        case 6:
            return f"{r.choice(['min', 'max'])}({sub('i')}, {sub(r.choice('it'))})"
    return f"({sub('i')} if {sub('t')} else {sub(r.choice('it'))})"


def real(r: random.Random, form: int, sub: Callable[[str], str]) -> str:
    """A float expression of one of eight forms, over subexpressions that `sub` draws by type."""
    match form:
        case 0 | 1 | 2 | 3:
            return f"({sub('f')} {r.choice(['+', '-', '*', '/', '//', '%'])} {sub(r.choice('fit'))})"
        case 4:
            return f"{r.choice(['-', 'abs', 'float'])}({sub('f')})"
        case 5:
            return f"({sub('i')} / {sub(r.choice('fit'))})"
        case 6:
            return f"{r.choice(['min', 'max'])}({sub(r.choice('fi'))}, {sub('f')})"
    return f"({sub('f')} if {sub('t')} else {sub(r.choice('fi'))})"


def truth(r: random.Random, form: int, sub: Callable[[str], str]) -> str:
    """A condition of one of eight forms, over subexpressions that `sub` draws by type."""
    match form:
        case 0 | 1 | 2 | 3:
            sign = r.choice(["<", "<=", ">", ">=", "==", "!="])
            return f"({sub(r.choice('ift'))} {sign} {sub(r.choice('ift'))})"
        case 4:
            return f"({sub('i')} < {sub('f')} <= {sub('i')})"
        case 5:
            return f"(not {sub(r.choice('ift'))})"
    return f"({sub('t')} {r.choice(['and', 'or', '&', '|', '^'])} {sub('t')})"


def expressions(drawn: int = 8) -> list[tuple[str, str]]:
    """(type, source) of every branch."""
    r = random.Random(20)
    pairs = [(kind, text) for kind, texts in SIMPLE.items() for text in texts]
    return pairs + [(kind, draw(r, kind, 3)) for kind in "ift" for _ in range(drawn)]


def write(folder: Path, ops: Iterable[int]) -> Path:
    """The application's file, with the branches of these numbers."""
    lines, branches = [HEAD], expressions()
    for op in ops:
        kind, text = branches[op]
        values = {"i": "0", "f": "0.0", "t": "False"} | {kind: text}
        lines.append(f"    if op == {op}:\n        out.emit(i={values['i']}, f={values['f']}, t={values['t']})\n")
    lines.append("\n\napp.source(Event).flat_map(evaluate, Output).sink()\n\n\n@app.generates\n")
    lines.append("def generate(params, seed, start, stop):\n    return {}\n")
    path = folder / "arithmetic_expressions.py"
    path.write_text("".join(lines))
    return path
