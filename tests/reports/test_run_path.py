"""A run id becomes a `Run` once: few modules of the reports see the id while a run is published."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import reports
from reports.history import History
from reports.publish import publish
from streaming_core.regression.home import Home
from streaming_core.regression.preflight import Preflight, record
from streaming_core.storage import write_json
from tests.reports import past_runs
from tests.reports.past_runs import LAST

ROOT = Path(reports.__file__).parent
MOST = 6  # modules
SEEN_BY = {"publish", "history.load", "site", "times", "views.overview"}


@contextmanager
def modules_with_argument(value: str) -> Iterator[set[str]]:
    """The modules of the reports that have a function which the block calls with this argument."""
    modules: set[str] = set()

    def note_call(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event == "call" and path.suffix == ".py" and path.is_relative_to(ROOT):
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            arguments = [frame.f_locals.get(name) for name in names]
            if any(isinstance(argument, str) and argument == value for argument in arguments):
                modules.add(".".join(path.relative_to(ROOT).with_suffix("").parts))

    before = sys.getprofile()
    sys.setprofile(note_call)
    try:
        yield modules
    finally:
        sys.setprofile(before)


@pytest.fixture
def home(tmp_path) -> Home:
    """A red run with hosts, stages and a gate, which its publishing stage still counts as in progress."""
    home = Home(tmp_path)
    past_runs.make(home)
    past_runs.gate(home)
    record(home, LAST, [Preflight("numa-a", machine="node1", cores=4), Preflight("numa-b", "lost")])
    times = {"stage": "plan_matrix", "began": time.time(), "ended": time.time() + 1}
    write_json(home.run(LAST) / "stages" / "plan_matrix.json", times)
    return home


@pytest.mark.slow
def test_at_most_six_modules_see_the_id_of_a_published_run(home):
    with modules_with_argument(LAST) as modules:
        publish(home, LAST)
    assert modules == SEEN_BY
    assert len(modules) <= MOST


@pytest.mark.parametrize("see", [lambda home: History(home).run(LAST), lambda home: History(home).plan(LAST)])
def test_count_includes_every_module_that_takes_the_id(home, see: Callable[[Home], object]):
    with modules_with_argument(LAST) as modules:
        see(home)
    assert modules == {"history.load"}
