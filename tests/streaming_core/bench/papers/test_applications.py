"""The applications that only suites run: the engine equals the interpreter, and both equal an example by hand."""

import pytest

from streaming_core.apps import registry
from streaming_core.bench import suite
from streaming_core.bench.papers.ordered import matrix
from streaming_core.data import workload
from streaming_core.run.way import Pinned, Pooled
from tests.differential.case import Case
from tests.streaming_core.apps.windows import run, windows_of
from tests.support import by_hand
from tests.support.draws import some

MASK = (1 << 32) - 1
FAR = {"L": 3, "M": 10, "H": 10**9}
PARAMS = {
    "brisk_wc": {"vocabulary": 5, "invalid_ratio": 0.05},
    "matrix": {"d": 2, "r": 1, "keys": 3, "sel": 1.5, "sigma": 0.2},
    "forward": {"copies": 3, "rate": 2_000.0},
    "paircount": {"vocabulary": 3, "advance": 3_000, "size": 7_000, "level": "H"},
}


@pytest.fixture(autouse=True)
def suites():
    for name in suite.SUITES:
        suite.load(name)


@pytest.mark.parametrize("name", some(PARAMS))
def test_the_engine_equals_the_interpreter(name):
    app = registry.load(name)
    params = app.bind(PARAMS[name])
    case = Case(app, params, workload.generate_chunk(app, params, 300, 3, 0, 300))
    executor = Pinned if app.kind == "windowed" else Pooled
    case.check(executor(app=name, params=PARAMS[name], threads=2))
    assert name not in registry.names()


@pytest.mark.parametrize("params", [{}, {"skew": 1.0, "words": 3, "invalid_ratio": 0.2}])
def test_brisk_wc_equals_wc(params):
    (_, ours), (_, published) = by_hand.run_generated("wc", params), by_hand.run_generated("brisk_wc", params)
    assert published.outputs == ours.outputs
    assert published.dropped == ours.dropped
    assert (published.dropped > 0) == ("invalid_ratio" in params)


def test_matrix_multiplies_as_often_as_its_parameters_say():
    events, result = by_hand.run_generated("matrix", {"keys": 3, "d": 2, "r": 1, "r_keyed": 2}, events=300)
    p = result.params
    d, factor = p["d"], matrix.factor.build(p).tolist()

    def times(x, count):
        for _ in range(count):
            x = [sum(x[i * d + k] * factor[k * d + j] for k in range(d)) & MASK for i in range(d) for j in range(d)]
        return x

    def checksum(words):
        total = 0
        for word in words:
            total = (total * 31 + word) & MASK
        return total

    states, expected = {}, []
    for e in events:
        words, n = states.setdefault(e["key"], ([matrix.mixed(i) for i in range(16)], [0]))
        n[0] += 1
        at = n[0] % len(words)
        words[at] = (words[at] * 3 + checksum(times(e["m"], p["r"] + p["r_keyed"]))) & MASK
        expected.append((e["seq"], e["key"], n[0], checksum(words)))
    assert result.columns("seq", "key", "n", "checksum") == expected


def test_matrix_emits_as_many_tuples_as_its_selectivity_says():
    events, result = by_hand.run_generated("matrix", {"d": 1, "r": 0, "r_keyed": 0, "sel": 2.25}, events=300)
    assert abs(len(result.outputs) / len(events) / 2.25 - 1) < 0.15


@pytest.mark.slow
def test_forward_emits_every_tweet_once_for_each_instance():
    events, result = run("forward", {"copies": 8, "rate": 2_000.0})
    assert result.columns("seq", "sub", "ts", "instance", "user", "text") == [
        (e["seq"], i, e["ts"] + 1, i, e["user"], e["text"]) for e in events for i in range(8)
    ]
    assert len({e["ts"] for e in events}) < len(events)  # some come at one moment


@pytest.mark.slow
@pytest.mark.parametrize("level", ["M", "L", "H"])
def test_paircount_counts_the_pairs_of_windows(level):
    params = {"level": level, "vocabulary": 30, "advance": 1_000, "size": 2_500}
    events, result = run("paircount", params, events=200)

    def pairs(event):
        words = event["text"].split()
        near = [(a, b) for i, a in enumerate(words) for j, b in enumerate(words) if 0 < j - i <= FAR[level]]
        return dict.fromkeys(near)

    wanted = [(seq, end, *key, len(of)) for seq, end, key, of in windows_of(events, result.params, pairs)]
    assert result.columns("seq", "ts", "first", "second", "n") == wanted
    assert len({seq for seq, *_ in wanted}) > 3
    assert any(n > 1 for *_, n in wanted)
    assert any(first == second for _, _, first, second, _ in wanted)
