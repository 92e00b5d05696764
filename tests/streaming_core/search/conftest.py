"""The application `tally` and its fault."""

import pytest

from streaming_core.apps import registry
from streaming_core.run.way import RunSpec
from streaming_core.search import find
from streaming_core.search.case import Case, Symptom
from streaming_core.search.laboratory import Laboratory
from streaming_core.search.replay import numbered


@pytest.fixture(scope="session")
def tally():
    """A case of the application `tally`, which shows nothing without the fault."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._ELSEWHERE, "tally", "tests.streaming_core.search.tally")
        spec = RunSpec.parse({"app": "tally", "executor": "pooled", "threads": 2, "batch": 7})
        events = [{"ts": ts, "name": name} for ts, name in enumerate([b"ann", b"", b"ann", b"bob", b"ann"])]
        yield Case(spec, numbered(spec, events), Symptom("result", "outputs"), origin="drawn")


@pytest.fixture(scope="session")
def laboratory(tally):
    """A laboratory whose runs of `tally` have the fault."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_FAULT", "1")
        with Laboratory() as laboratory:
            laboratory.examine(tally, ())  # the process has begun
            yield laboratory


@pytest.fixture(scope="session")
def tally_find(tally, laboratory, tmp_path_factory):
    """The find of the fault."""
    about = {"seconds": 2.5, "shrinking": 1.5, "seed": 7}
    return find.write(tally, laboratory, tmp_path_factory.mktemp("finds"), about)
