"""The memory of windows follows the open windows, and a run out of memory ends properly."""

import subprocess
import sys

import pyarrow as pa
import pytest

from streaming_core.api import App, Array, Queue, i64, record
from tests.streaming_core.language.windowed import interpreted
from tests.support.draws import some
from tests.support.windows import declare_window


@record
class Event:
    ts: i64
    value: i64


@record
class Sum:
    n: i64


@record
class Wide:
    n: i64
    more: Array[i64, 64]


@record
class Values:
    values: Queue[Event]


@record
class Output:
    ts: i64
    n: i64


def events_of(rows):
    return pa.table({"seq": range(len(rows)), "ts": [ts for ts, _ in rows], "value": [value for _, value in rows]})


def counted(row, window, state, out):
    state.n += 1


def total(window, state, out):
    out.emit(ts=window.end, n=state.n)


def kept(row, window, state, out):
    for _ in range(1000):
        state.values.append(ts=row.ts, value=row.value)


def length(window, state, out):
    out.emit(ts=window.end, n=len(state.values))


def windowed(update=counted, result=total, state=Sum, **changed):
    app = App("far")
    declared = {"every": 1, "advance": 1, "size": 1, "state": state, "update": update, "result": result}
    declare_window(app.source(Event), **(declared | changed), output=Output).sink()
    return app


def many(row, keys):
    for number in range(100_000_000):
        keys.add(ts=number, n=number)


def once(window, state, out):
    out.emit(ts=window.end, n=window.key.n)


FAR = [(number * 10**12 * (-1) ** number, number) for number in range(20)]


@pytest.mark.slow
def test_distant_windows_take_no_memory_in_between():
    """A vector over the windows in between would take hundreds of terabytes."""
    outputs, _ = interpreted(windowed(delay=1 << 60), FAR)
    assert [row["ts"] for row in outputs] == sorted(ts + 1 for ts, _ in FAR)


@pytest.mark.slow
def test_a_single_window_slides_over_gaps():
    outputs, _ = interpreted(windowed(kind="single", advance=10**12, size=10**14), sorted(FAR))
    assert len(outputs) > len(FAR)


def counted_at_once(row, window, state, out):
    state.n += 1
    out.emit(ts=row.ts, n=state.n)


@pytest.mark.slow
def test_a_single_window_can_span_any_number_of_windows():
    """Kind multi would open a pane for each of 2^40 windows."""
    single = windowed(counted_at_once, result=None, kind="single", every=3, size=1 << 40)
    rows = [(number << 39, number) for number in range(20)] + [(1 << 45, 0)]
    outputs, _ = interpreted(single, rows)
    assert [row["n"] for row in outputs] == [count for count in [*range(1, 21), 1] for _ in range(3)]


# Changes of an application to `windowed`, and its events. Each needs more memory than the limit.
CASES = {
    # Keys in many windows at once: panes and their tables.
    "windows": ("windowed(every=100, delay=10**9)", "[(at, 0) for at in range(20_000)]"),
    # Containers that grow.
    "containers": ("windowed(kept, length, Values, every=100, size=1000)", "[(0, 0)] * 1000"),
    # Entries of single windows.
    "singles": ("windowed(state=Wide, kind='single', every=10**6)", "[(0, 0)] * 10"),
    # Keys of a row, before any window has them.
    "keys": ("windowed(result=once, every=None, key=Output, keys=many)", "[(0, 0)] * 10"),
}
SCRIPT = """
import resource
from streaming_core.process import ending
from streaming_core.kernels.program import compile_app
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.way import Pinned
from tests.differential.case import Events
from tests.streaming_core.language.test_window_memory import *

def run():
    app = {application}
    app.generates(lambda *arguments: {{}})
    program = compile_app(app.check(), {{}})
    rows = {rows}
    blocks = Blocks(Events([events_of(rows)]), program, 1000)
    list(blocks)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), -1))
    spec = Pinned(app=app.name, threads={threads}, parallelism="{parallelism}", sink="digest")
    one_pass.run(spec, program, blocks)

ending.end("test", run)
"""


@pytest.mark.parametrize(("threads", "parallelism"), [(1, "vsn"), pytest.param(2, "sn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", some(CASES))
def test_a_run_out_of_memory_ends_with_one_line(case, threads, parallelism):
    application, rows = CASES[case]
    script = SCRIPT.format(application=application, rows=rows, threads=threads, parallelism=parallelism)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (3, "test: out of memory\n")
