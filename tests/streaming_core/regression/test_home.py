"""Users edit names in forms, the API and XComs: no name leads out of LOCKSTEP_HOME."""

from __future__ import annotations

import pytest

from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from streaming_core.storage import below

RUN_ID = "20260101T000000Z-00000000"
ELSEWHERE = [
    "..", ".", "", "/etc", "../x", "a/b", "a/../../b", "..\\x", ".hidden", "-rf", "a b", "a\n", "$(id)", "\0", "ü",
]  # fmt: skip
PLACES = {
    "workload": lambda home, name: home.workload("wc", name),
    "workload of": lambda home, name: home.workload(name, "address"),
    "import": lambda home, name: home.imported(name),
    "oracle": lambda home, name: home.oracle("wc", name),
    "oracle of": lambda home, name: home.oracle(name, "address"),
    "run": lambda home, name: home.run(name),
    "cell": lambda home, name: home.cell(RUN_ID, name),
    "attempt": lambda home, name: home.attempt(RUN_ID, name, 1),
    "part": lambda home, name: home.part("cells", name),
    "report": lambda home, name: home.report(RUN_ID, name),
    "log": lambda home, name: home.log(name),
}


@pytest.mark.parametrize("place", PLACES)
def test_every_path_lies_below_the_home_or_is_refused(tmp_path, place):
    home = Home(tmp_path)
    assert PLACES[place](home, "wc.pooled.affinity-batch16.t1.0123abcd").resolve().is_relative_to(tmp_path)
    for name in ELSEWHERE:
        with pytest.raises(BadInput, match="invalid name"):
            PLACES[place](home, name)


@pytest.mark.parametrize("name", [None, 7, ["a"], {"a": 1}])
def test_a_name_must_be_text(tmp_path, name):
    with pytest.raises(BadInput, match="invalid name"):
        below(tmp_path, name)


def test_a_home_can_lie_behind_links(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to("disk")
    assert Home(tmp_path / "home").run(RUN_ID) == tmp_path / "home" / "runs" / RUN_ID
