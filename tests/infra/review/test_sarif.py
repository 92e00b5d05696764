"""SARIF of a review: the fields that the standard requires, and files and lines that exist."""

import json

from infra.checkout import ROOT
from infra.review.review import Review
from infra.review.sarif import sarif
from tests.infra.review.conftest import FAULT, changes


def results(review: Review) -> list[dict]:
    log = json.loads(sarif(review))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert run["tool"]["driver"]["name"] == "lockstep"
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    for result in run["results"]:
        assert result["ruleId"] in rules
        assert result["message"]["text"]
        for location in result.get("locations", []):
            place = location["physicalLocation"]
            assert (ROOT / place["artifactLocation"]["uri"]).is_file()
            assert place["region"]["startLine"] >= 1
    return run["results"]


def test_rejected_operator_and_find_have_their_lines(review):
    rejected, find = results(review)
    assert rejected["message"]["text"] == FAULT
    place = rejected["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "streaming_core/apps/wc.py"}, "region": {"startLine": 12}}
    assert find["ruleId"] == "find"
    assert find["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "streaming_core/apps/wc.py"


def test_fault_without_a_line_is_at_the_application_if_its_file_exists():
    here, nowhere = results(Review(changes(faults={"sl": "no reason", "gone": "a file of no checkout (x.py:3)"}), None))
    assert here["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}
    assert "locations" not in nowhere
