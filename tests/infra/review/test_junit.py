"""JUnit XML of a review: a test for each cell, and XML whatever the reasons are."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from infra.review.junit import COUNTS, junit
from infra.review.review import Review
from tests.infra.review.conftest import FAULT, changes


def test_each_cell_fault_and_speed_is_a_test(review):
    suites = ElementTree.fromstring(junit(review))
    assert {suite.get("name") for suite in suites} == {"mine", "gs", "sl", "wc"}
    cases = {(case.get("classname"), case.get("name")): case for case in suites.iter("testcase")}
    assert cases["mine", "load"].find("error").get("message") == FAULT
    run = review.run
    for cell in [*run.cells, *run.finds]:
        case = cases.pop((cell.spec.app, cell.name))
        assert (case.find("failure") is not None) == cell.red
    speeds = [case for (_, name), case in cases.items() if name.endswith(" speed")]
    assert sum(case.find("failure") is not None for case in speeds) == 2  # one slower, one with another result
    assert len(cases) == 1 + len(speeds) == 1 + len(run.gates)


def test_counts_are_those_of_the_cases(review):
    for suite in ElementTree.fromstring(junit(review)):
        assert int(suite.get("tests")) == len(suite)
        for attribute, tag in COUNTS.items():
            assert int(suite.get(attribute)) == len(suite.findall(f"testcase/{tag}"))


@given(st.text(st.characters(exclude_categories=[])))
def test_any_reason_is_valid_xml(reason):
    text = junit(Review(changes(faults={"mine": reason}), None))
    (error,) = ElementTree.fromstring(text.encode("utf-8")).iter("error")
    assert len(error.get("message")) == len(reason)
