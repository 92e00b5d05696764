"""What is wrong with operators, in SARIF 2.1.0: marks beside the lines of a change.

Results are the applications that the language rejects, and the finds of the search that have a place in a file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from infra.checkout import ROOT
from infra.review.review import Review
from streaming_core.errors import BadInput
from streaming_core.search.find import Find

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
RULES = {
    "rejected": "The language of operators rejects the application.",
    "find": "The search for faults found an input or a way of executing that goes wrong.",
}
_PLACE = re.compile(r"([\w.-]+\.py)(?::(\d+))?")


def sarif(review: Review) -> str:
    """Write the document."""
    results = [_result("rejected", fault, app, fault) for app, fault in review.changes.faults.items()]
    run = review.run
    for cell in run.finds if run else []:
        assert run is not None
        assert cell.find is not None
        results.append(_result("find", cell.reason, cell.spec.app, _place(run.home.root / cell.find["folder"])))
    rules = [{"id": name, "shortDescription": {"text": text}} for name, text in RULES.items()]
    tool = {"driver": {"name": "lockstep", "rules": rules}}
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": tool, "results": results}]}
    return json.dumps(log, indent=1) + "\n"


def _place(folder: Path) -> str:
    try:
        return Find.load(folder).place or ""
    except BadInput:  # it was removed meanwhile
        return ""


def _result(rule: str, message: str, app: str, place: str) -> dict[str, Any]:
    """A result at the first `file.py:line` in a text; without one, at the first line of the application."""
    files = {path.name: path for path in (ROOT / "streaming_core" / "apps").rglob("*.py")}
    name, line = next((match.groups() for match in _PLACE.finditer(place) if match[1] in files), (f"{app}.py", None))
    region = {"startLine": int(line or 1)}
    result: dict[str, Any] = {"ruleId": rule, "level": "error", "message": {"text": message}}
    if name in files:
        uri = {"uri": files[name].relative_to(ROOT).as_posix()}
        result["locations"] = [{"physicalLocation": {"artifactLocation": uri, "region": region}}]
    return result
