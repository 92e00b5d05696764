"""A review as JUnit XML, which forges show as a list of tests.

A cell is a test of its application. So are a find, a verdict of the speed gate, and a file that cannot be loaded.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, tostring

from infra.gate.evaluation import RED
from infra.review.review import Review
from reports.history import Cell
from reports.history.speed import JUDGED

COUNTS = {"failures": "failure", "errors": "error", "skipped": "skipped"}
_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML cannot hold


def junit(review: Review) -> str:
    """Write the document."""
    suites = Element("testsuites", name="lockstep")
    for name, fault in review.changes.faults.items():
        _add(_suite(suites, name), name, "load", "error", fault)
    run = review.run
    for cell in [*run.cells, *run.finds] if run else []:
        suite = _suite(suites, cell.spec.app)
        kind = "failure" if cell.red else "skipped" if cell.is_bound else ""
        _add(suite, cell.spec.app, cell.name, kind, cell.reason or cell.outcome.sentence, _seconds(cell))
        if cell.gate:
            kind = "failure" if cell.gate.verdict in RED else "" if cell.gate.verdict in JUDGED else "skipped"
            words = [cell.gate.text, cell.gate.interval, cell.gate.why]
            _add(suite, cell.spec.app, f"{cell.name} speed", kind, ", ".join(filter(None, words)))
    for stage, error in run.failures.items() if run else []:
        _add(_suite(suites, "run"), "run", stage.label, "error", error)
    for suite in suites:
        suite.set("tests", str(len(suite)))
        for attribute, kind in COUNTS.items():
            suite.set(attribute, str(len(suite.findall(f"testcase/{kind}"))))
    return tostring(suites, encoding="utf-8", xml_declaration=True).decode() + "\n"


def _suite(suites: Element, name: str) -> Element:
    suite = next((suite for suite in suites if suite.get("name") == name), None)
    return SubElement(suites, "testsuite", name=name) if suite is None else suite


def _add(suite: Element, app: str, name: str, kind: str, message: str, seconds: float | None = None) -> None:
    time = {} if seconds is None else {"time": f"{seconds:.3f}"}
    case = SubElement(suite, "testcase", {"classname": app, "name": _NO_XML.sub("?", name), **time})
    if kind:
        SubElement(case, kind, message=_NO_XML.sub("?", message))


def _seconds(cell: Cell) -> float | None:
    """The seconds of all measured passes of a cell; None if there are none."""
    return sum(row["seconds"] or 0.0 for row in cell.samples) if cell.samples else None
