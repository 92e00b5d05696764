"""SD against the same computation written again, and how it reads numbers."""

from collections import defaultdict, deque
from fractions import Fraction

import pytest

from streaming_core.apps import sd
from tests.support import by_hand


@pytest.mark.parametrize(
    "params", [{}, {"devices": 3, "window": 7, "spike_ratio": 0.05}, {"devices": 5, "window": 1, "invalid_ratio": 0.2}]
)
def test_sd_finds_spikes(params):
    events, result = by_hand.run_generated("sd", params)
    last, expected = defaultdict(lambda: deque(maxlen=result.params["window"])), []
    for e in events:
        fields = e["line"].decode().split(" ")
        try:
            device, value = int(fields[3]), round(Fraction(fields[4]) * 10_000)
        except (ValueError, IndexError):
            continue
        if len(fields) < 8 or not fields[7]:
            continue
        values = last[device]
        values.append(value)
        average = Fraction(sum(values), len(values))
        spike = abs(value - average) > Fraction(result.params["threshold_e4"], 10_000) * average
        expected.append(
            {"seq": e["seq"], "sub": 0, "device": device, "average": int(average), "value": value, "spike": spike}
        )
    assert result.outputs == expected
    assert result.dropped == len(events) - len(expected)
    assert (result.dropped > 0) == ("invalid_ratio" in params)
    if not result.dropped:
        assert any(o["spike"] for o in expected)
    states = {key: (list(s.recent), s.total) for key, s in result.state["state_moving_average"][1].items()}
    assert states == {key: (list(values), sum(values)) for key, values in last.items()}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("7", 70_000), ("19.9884", 199_884), ("122.153", 1_221_530), ("-3.91901", -39_190), ("-0.5", -5_000),
        ("99999.9999", 999_999_999), ("1.00009", 10_000), ("007.1", 71_000),
        ("", None), ("-", None), (".5", None), ("5.", None), ("-.5", None), ("1e3", None), ("1.2.3", None),
        ("100000", None), ("?.5", None), ("1.2x", None), ("--1", None), ("nan", None),
    ],
)  # fmt: skip
def test_sd_reads_decimals_to_a_ten_thousandth(text, value):
    assert sd.decimal(text.encode(), 0, len(text)) == (sd.INVALID if value is None else value)
    result = by_hand.run_lines("sd", [f"2004-03-31 03:38:15.757551 2 1 {text} 34.1 11.04 2.03397".encode()])
    assert [o["value"] for o in result.outputs] == ([] if value is None else [value])
    assert result.dropped == (value is None)


def test_sd_drops_short_lines():
    line = b"2004-03-31 03:38:15.757551 2 1 19.9 34.1 11.04 2.03"
    fields = line.split(b" ")
    short = [b" ".join(fields[:k]) for k in range(8)] + [b" ".join(fields[:7]) + b" "]
    holes = [b" ".join([*fields[:k], b"", *fields[k + 1 :]]) for k in range(8)]
    words = [b" ".join([*fields[:3], mote, *fields[4:]]) for mote in (b"x", b"-1", b"1234567890", b"1.5")]
    result = by_hand.run_lines("sd", [line, *short, *holes, *words, line + b" more"])
    assert [o["seq"] for o in result.outputs] == [0, 1 + len(short) + len(holes) + len(words)]


def test_sd_reports_any_difference_from_a_negative_average():
    lines = [b"d t 1 1 %s 1 1 1" % value for value in (b"-1.0", b"-1.0", b"-1.0001")]
    assert [o["spike"] for o in by_hand.run_lines("sd", lines).outputs] == [True, True, True]
