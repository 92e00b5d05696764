"""The hosts of a run on its page: the preflight of each, and the reason of an omission."""

import pytest

from reports.publish import publish
from reports.views.hosts import HostRow
from streaming_core.regression.home import Home
from streaming_core.regression.preflight import Preflight, preflights_of, record
from tests.reports.past_runs import HOSTILE, LAST
from tests.reports.test_pages import Outline

KERNEL = {"governor": "performance", "isolated": "2-63", "load": 0.4, "skew_seconds": 0.0}
CORES = {"cores": 64, "sockets": [16, 16], "bound": "0-31", "distances": [[10, 21], [21, 10]]}
ROOM = CORES | {"memory_bytes": 250_000_000_000, "disk_bytes": 40_000_000_000}
FIT = Preflight(
    "numa-a", machine="node1", build="0123456789abcdef" * 4, python="3.11.7", cpu="AMD EPYC", **ROOM, **KERNEL
)
UNFIT = Preflight("numa-b", f"lost the SSH connection to {HOSTILE}; check that it is up")


def pages(home: Home) -> list[Outline]:
    """The page of the run, and the run as one file."""
    publish(home, LAST)
    return [Outline((home.reports / LAST / name).read_text()) for name in ("index.html", f"lockstep-{LAST}.html")]


def test_run_without_a_record_has_no_table_of_hosts(home):
    assert all("Hosts As they were before the run" not in page.text for page in pages(home))


def test_page_shows_facts_of_hosts_and_the_reason_of_an_omission(home):
    record(home, LAST, [UNFIT, FIT])
    assert preflights_of(home, LAST) == [FIT, UNFIT]
    for page in pages(home):
        text = " ".join(page.text.split())
        assert "64 cores, AMD EPYC, cores 2-63 isolated" in text
        assert "2 sockets of 16+16, several on a physical core, first on 0-31" in text
        assert "10 21; 21 10" in text
        for fact in ("numa-a", "node1", "performance", "250.0 GB", "40.0 GB", "agrees", "3.11.7", "0123456789ab"):
            assert fact in text, fact
        assert " ".join(UNFIT.reason.split()) in text


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, "fit"),
        ({"load": 16.1}, "fit; unsteady: load 16.1 on 64 cores"),
        ({"load": 17.0, "governor": "powersave"}, "fit; unsteady: load 17.0 on 64 cores, governor powersave"),
        ({"governor": None}, "fit"),
    ],
)
def test_busy_or_slowed_host_is_named_unsteady(change, state):
    assert HostRow.of(Preflight(**{**FIT.__dict__, **change})).state == state


def test_clock_difference_and_missing_facts_are_described():
    assert HostRow.of(Preflight(**{**FIT.__dict__, "skew_seconds": -61.2})).clock == "-61.2 s"
    row = HostRow.of(UNFIT)
    assert (row.is_fit, row.state) == (False, UNFIT.reason)
    assert row.facts == [""] * len(row.facts)
