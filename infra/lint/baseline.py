"""The baseline: how often each file may break each rule. No rule's total may grow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from infra.lint.violation import Violation

FILE = "infra/lint/baseline.json"
SHRINK = "make lint ARGS=--shrink"

# Counts by path and rule.
Counts = Counter[tuple[str, str]]


def count(violations: Iterable[Violation]) -> Counts:
    """Counts violations by path and rule."""
    return Counter((violation.path, violation.rule) for violation in violations)


def read(path: Path) -> Counts:
    """Reads a baseline; a missing file allows nothing."""
    if not path.exists():
        return Counter()
    files = json.loads(path.read_text(encoding="utf-8"))
    return Counter({(file, rule): number for file, rules in files.items() for rule, number in rules.items()})


def write(path: Path, counts: Counts) -> None:
    """Writes one line per file, in order, so that edits of two files seldom conflict."""
    files: dict[str, dict[str, int]] = {}
    for (file, rule), number in sorted(counts.items()):
        if number:
            files.setdefault(file, {})[rule] = number
    lines = ",\n".join(f"{json.dumps(file)}: {json.dumps(rules)}" for file, rules in files.items())
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def problems(violations: Iterable[Violation], allowed: Counts) -> list[str]:
    """Compares violations with the baseline.

    Returns:
        Lines to print, none if the counts are equal. Where a file breaks a rule too often, they name all of its
        violations of that rule, because an old one looks like a new one.
    """
    violations = sorted(violations)
    counts = count(violations)
    lines = []
    for key in sorted(counts - allowed):
        lines += [str(violation) for violation in violations if (violation.path, violation.rule) == key]
        path, rule = key
        if allowed[key]:
            lines.append(f"{path}: {rule}: {counts[key]} violations, the baseline allows {allowed[key]}")
    if counts != +allowed and not grown_rules(counts, allowed):
        fewer = (allowed - counts).total()
        lines.append(f"{FILE} counts too many violations ({fewer}): run `{SHRINK}` and commit the file")
    return lines


def grown_rules(counts: Counts, allowed: Counts) -> list[str]:
    """Names the rules that are broken more often than the baseline allows over all files.

    A count may move to another file, as it does when code moves; the total of a rule may not grow.
    """
    return sorted(_totals(counts) - _totals(allowed))


def _totals(counts: Counts) -> Counter[str]:
    totals: Counter[str] = Counter()
    for (_, rule), number in counts.items():
        totals[rule] += number
    return totals
