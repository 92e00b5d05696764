"""README's figures are those of the committed results."""

import json
import re

from infra.checkout import ROOT
from streaming_core.bench.race.ratios import three_digits

README = (ROOT / "README.md").read_text()


def result(suite):
    return json.loads((ROOT / "docs" / "benchmarks" / f"{suite}.json").read_text())


def rows_of_readme():
    """(application, executor, what it is compared with, ratio) of each row."""
    return re.findall(r"^\| `(\w+)`, [^|]* \| (\w+) \| ([^|]*) \| ([\d.]+) \|$", README, re.MULTILINE)


def measured():
    """The ratios of the results on two threads, by the first columns of the table."""
    ratios = {}
    for experiment in result("scaling")["experiments"]:
        for row in experiment["rows"]:
            if row.get("threads") == 2 and row["way"] in ("affinity", "owners"):
                ratios[row["app"], row["executor"], "the loop"] = three_digits(row["to_loop"])
    conclusion = r"(\w+) on 2 cores: affinity on 2 threads has ([\d.]+) \(.*\) times the .* of flink on 2 threads"
    for experiment in result("engines")["experiments"]:
        for line in experiment["conclusions"]:
            if match := re.fullmatch(conclusion, line):
                ratios[match[1], "pooled", "Apache Flink 2.3 on two threads"] = match[2]
    return ratios


def test_figures_are_those_of_the_committed_results():
    rows, ratios = rows_of_readme(), measured()
    assert len(rows) == 5
    assert [row[3] for row in rows] == [ratios[row[:3]] for row in rows]
    assert any(float(row[3]) < 1 for row in rows), "losses are shown"


def test_machine_is_that_of_the_results():
    for suite in ("scaling", "engines"):
        host = result(suite)["host"]
        assert f"{host['cpu']},\n{host['cores']} cores" in README or f"{host['cpu']}, {host['cores']} cores" in README


def test_readme_is_short():
    assert len(README.splitlines()) <= 120
