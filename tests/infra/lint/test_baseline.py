"""The baseline allows the violations that it counts, and no total of a rule may grow."""

from collections import Counter

import pytest

from infra.lint import baseline
from infra.lint.violation import Violation


def violations(**counts):
    return [
        Violation(f"{file}.py", line, rule, "wrong")
        for file, rules in counts.items()
        for rule, number in rules.items()
        for line in range(1, number + 1)
    ]


ALLOWED = baseline.count(violations(a={"D103": 2}, b={"D103": 1, "C901": 1}))


def test_equal_counts_have_no_problem():
    assert baseline.problems(violations(a={"D103": 2}, b={"D103": 1, "C901": 1}), ALLOWED) == []


def test_more_violations_are_named_with_all_of_their_file_and_rule():
    assert baseline.problems(violations(a={"D103": 3}, b={"D103": 1, "C901": 1}, c={"E501": 1}), ALLOWED) == [
        "a.py:1: D103 wrong",
        "a.py:2: D103 wrong",
        "a.py:3: D103 wrong",
        "a.py: D103: 3 violations, the baseline allows 2",
        "c.py:1: E501 wrong",
    ]


def test_fewer_violations_than_the_baseline_ask_for_a_shrink():
    assert baseline.problems(violations(a={"D103": 1}, b={"D103": 1}), ALLOWED) == [
        "infra/lint/baseline.json counts too many violations (2): run `make lint ARGS=--shrink` and commit the file"
    ]


@pytest.mark.parametrize(
    ("now", "grown"),
    [
        (violations(a={"D103": 2}, b={"D103": 1, "C901": 1}), []),
        (violations(moved={"D103": 3, "C901": 1}), []),
        (violations(b={"C901": 1}), []),
        (violations(a={"D103": 4}), ["D103"]),
        (violations(a={"E501": 1}), ["E501"]),
    ],
)
def test_count_may_move_or_shrink_but_no_total_may_grow(now, grown):
    assert baseline.grown_rules(baseline.count(now), ALLOWED) == grown


def test_file_has_one_sorted_line_per_path(tmp_path):
    path = tmp_path / "baseline.json"
    baseline.write(path, ALLOWED)
    assert path.read_text() == '{\n"a.py": {"D103": 2},\n"b.py": {"C901": 1, "D103": 1}\n}\n'
    assert baseline.read(path) == ALLOWED
    baseline.write(path, Counter())
    assert baseline.read(path) == Counter()


def test_missing_file_allows_nothing(tmp_path):
    assert baseline.read(tmp_path / "baseline.json") == Counter()
