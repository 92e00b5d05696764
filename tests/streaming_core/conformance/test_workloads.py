"""conformance/workloads.py: adversarial workloads of any application."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_core.apps import registry
from streaming_core.conformance import workloads
from streaming_core.conformance.workloads import KINDS, MOST, Case, cases
from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.oracle.interpreter import Interpreter
from tests.support import pages
from tests.support.draws import some

SMALL = [name for name in KINDS if name != "plain"]

NARROW = '''"""Numbers for a narrow field."""
from streaming_core.api import App, f64, i8, i64, record

app = App("narrow")

@record
class Number:
    n: i64
    x: f64

@record
class Narrow:
    n: i8
    x: f64

def store(row, out):
    out.emit(n=row.n, x=row.x)

app.source(Number).flat_map(store, Narrow).sink()

@app.generates
def numbers(params, seed, start, stop):
    return {"n": [7] * (stop - start), "x": [0.5] * (stop - start)}
'''


def cases_of(name, names=()):
    """The workloads of an application, and the reasons for omitted ones."""
    both = list(cases(registry.load(name), names))
    return {case.name: case for case in both if isinstance(case, Case)}, dict(o for o in both if isinstance(o, tuple))


def column(case, name):
    return case.events[name].to_pylist()


def check(name, by_name, left_out):
    """Checks that the workloads are small and that the oracle accepts them."""
    app = registry.load(name)
    assert len(by_name) >= 10
    assert not [reason for reason in left_out.values() if "refuses" in reason]
    for case in by_name.values():
        assert case.events.num_rows <= MOST
        assert case.refused <= case.events.num_rows
        assert case.events.schema.equals(workload.schema(app, case.params))
        assert column(case, "seq") == list(range(case.events.num_rows))
        ts = column(case, "ts")
        assert ts == sorted(ts)
        machine = Interpreter(app, app.bind(case.params))
        machine.process(case.events)
        machine.finish(case.events.num_rows)


@pytest.mark.parametrize("name", some(["wc", "tp"]))
def test_workloads_of_an_application_are_small_and_valid(name):
    check(name, *cases_of(name, [size for size in SMALL if size != "minimum"]))


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.names())
def test_workloads_of_every_application_are_small_and_valid(name):
    check(name, *cases_of(name))


@pytest.mark.slow
def test_every_kind_has_an_application():
    by_name = cases_of("scalejoin", SMALL)[0].keys() | cases_of("hashtag", ["blanks", "bytes"])[0].keys()
    by_name |= cases_of("tp", ["choices_2"])[0].keys() | cases_of("wordcount", ["uneven"])[0].keys()
    assert by_name == set(SMALL) - {"late", "nulls"}  # the next tests


def test_fields_that_may_be_null_are_null(package):
    holes = NARROW.replace('"narrow"', '"holes"').replace("n: i64", "n: i64 | None").replace("n: i8", "n: i64 | None")
    (package / "holes.py").write_text(holes)
    nulls = cases_of("holes", ["nulls"])[0]["nulls"]
    assert len({*column(nulls, "n")} - {None}) >= 1 < column(nulls, "n").count(None)
    assert None not in column(nulls, "x")


def test_rows_are_late_if_the_source_declares_a_delay(package):
    (package / "clicks.py").write_text(pages.application(pages.WINDOWS, "clicks"))
    late = cases_of("clicks", ["late"])[0]["late"]
    app = registry.load("clicks")
    machine = Interpreter(app, app.bind())
    machine.process(late.events)
    ts = column(late, "ts")
    assert ts != sorted(ts)
    assert 0 < machine.dropped_late < late.events.num_rows // 2


def test_workloads_are_deterministic():
    names = ["ties", "one_key", "blanks", "numbers", "minimum"]
    first, second = cases_of("wordcount", names)[0], cases_of("wordcount", names)[0]
    assert all(first[name].events.equals(second[name].events) for name in names)


def test_every_workload_contains_its_difficulty():
    by_name, _ = cases_of("wordcount", SMALL)
    assert column(by_name["empty"], "seq") == []
    assert column(by_name["single"], "seq") == [0]
    assert by_name["batch_of_one"].batch == 1
    assert len(set(column(by_name["ties"], "ts"))) == 13
    assert min(column(by_name["negative_time"], "ts")) < 0 < max(column(by_name["negative_time"], "ts"))
    ends = {ts % 60_000 for ts in column(by_name["boundaries"], "ts")}
    assert ends == {0, 1, 59_999}
    assert max(pc.pairwise_diff(by_name["gaps"].events["ts"].combine_chunks()).to_pylist()[1:]) > 10 * 120_000
    assert column(by_name["one_key"], "text").count(column(by_name["one_key"], "text")[0]) > 200
    assert len(set(column(by_name["repeats"], "text"))) < 60
    assert {b"", b"a\tb", b" "} <= set(column(by_name["blanks"], "text"))
    assert {b"a\x00", b"\xff", "ä".encode()} <= set(column(by_name["bytes"], "text"))
    assert {0, -1, 2**63 - 1, -(2**63), 2**53 + 1} <= set(column(by_name["numbers"], "user"))
    assert by_name["minimum"].params["size"] == 1
    assert by_name["choices"].params == {"multiplicity": "bag"}


def test_floats_include_both_zeros_and_nans():
    values = cases_of("scalejoin", ["numbers"])[0]["numbers"].events["y"]
    texts = set(map(repr, values.to_pylist()))
    assert {"0.0", "-0.0", "nan", "inf", "-inf", "5e-324"} <= texts


def test_every_stream_has_a_long_silence():
    streams = column(cases_of("scalejoin", ["silent"])[0]["silent"], "stream")
    half = len(streams) // 2
    assert set(streams[:half]) == {1}
    assert set(streams[-half:]) == {0}


def test_rows_of_streams_keep_the_order_of_streams():
    for case in cases_of("scalejoin", ["ties", "boundaries", "repeats"])[0].values():
        keys = list(zip(column(case, "ts"), column(case, "stream"), strict=True))
        assert keys == sorted(keys)


def test_events_that_the_oracle_refuses_are_removed(package):
    (package / "narrow.py").write_text(NARROW)
    case = cases_of("narrow", ["numbers"])[0]["numbers"]
    assert case.refused > 0
    assert {7, 127, -128} <= set(column(case, "n"))
    assert 128 not in column(case, "n")


def test_a_workload_that_the_oracle_refuses_entirely_is_left_out(package):
    (package / "narrow.py").write_text(NARROW.replace("[7]", "[128]"))
    by_name, left_out = cases_of("narrow", ["single", "empty"])
    assert by_name.keys() == {"empty"}
    assert left_out == {"single": "the oracle refuses all of its events"}


def test_an_unknown_workload_is_refused():
    with pytest.raises(BadInput, match=r"unknown workload 'tie' \(did you mean 'ties'\?\)"):
        cases_of("wc", ["tie"])


def test_readers_accept_a_written_workload(tmp_path):
    app, case = registry.load("wc"), cases_of("wc", ["blanks"])[0]["blanks"]
    workloads.write(app, case, tmp_path / "all")
    workloads.write(app, case, tmp_path / "first", 10)
    assert pa.concat_tables(workload.read(tmp_path / "all", "wc").blocks(100)).equals(case.events)
    assert workload.read(tmp_path / "first", "wc").rows == 10
