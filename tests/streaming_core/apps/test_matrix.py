"""The matrix operators against the same computation written again."""

import pytest

from streaming_core.apps import matrix
from tests.support import by_hand

MASK = (1 << 32) - 1


def mixed(number):
    number ^= number >> 32
    for factor, shift in ((0x9E3779B1, 15), (0x85EBCA77, 13), (0xC2B2AE3D, 16)):
        number = number * factor % (1 << 32)
        number ^= number >> shift
    return number


@pytest.mark.parametrize(
    "params",
    [
        {"keys": 3, "d": 2, "s": 2, "r": 1, "r_keyed": 2},
        {"keys": 1, "d": 1, "s": 1, "r": 0, "r_keyed": 0, "sel": 2.25, "sel_keyed": 0.5},
        {"keys": 5, "d": 3, "s": 3, "sel": 0.4, "sigma": 0.2, "invalid_ratio": 0.2},
    ],
)
def test_matrix_multiplies_and_accumulates(params):
    events, result = by_hand.run_generated("matrix", params, events=300)
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

    def leaving(seq, which, sel):
        fraction = round((sel - int(sel)) * (1 << 24))
        return int(sel) + (mixed(2 * seq + which) >> 8 < fraction)

    states, expected, dropped = {}, [], 0
    for e in events:
        if e["key"] >= p["keys"]:
            dropped += 1
            continue
        x = times(e["m"], p["r"])
        for j in range(leaving(e["seq"], 0, p["sel"])):
            words, n = states.setdefault(e["key"], ([mixed(i) for i in range(p["s"] ** 2)], [0]))
            n[0] += 1
            at = n[0] % len(words)
            words[at] = (words[at] * 3 + checksum(times([(y + j) & MASK for y in x], p["r_keyed"]))) & MASK
            for copy in range(leaving(e["seq"], 1, p["sel_keyed"])):
                expected.append((e["seq"], e["key"], n[0], copy, checksum(words)))
    assert result.columns("seq", "key", "n", "copy", "checksum") == expected
    assert result.dropped == dropped
    assert (dropped > 0) == ("invalid_ratio" in params)
    assert abs(len(expected) / (len(events) - dropped) / (p["sel"] * p["sel_keyed"]) - 1) < 0.15


def test_matrix_detects_swapped_tuples_of_a_key():
    rows = [{"key": 1, "m": [i] * 4} for i in range(4)]
    params = {"d": 2, "s": 1, "keys": 2}
    right = by_hand.run_rows("matrix", params, rows).outputs
    wrong = by_hand.run_rows("matrix", params, [rows[0], rows[2], rows[1], rows[3]]).outputs
    assert right[0] == wrong[0]
    assert right[3]["checksum"] != wrong[3]["checksum"]
