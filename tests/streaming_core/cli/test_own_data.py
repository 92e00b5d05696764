"""Data of a user's own: from a file to a checked result, for applications without a generator."""

import itertools
import random
import re

import pyarrow.parquet as pq
import pytest

from streaming_core.apps import registry
from streaming_core.cli.new import new
from streaming_core.conformance.workloads import cases
from streaming_core.data import workload
from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput
from streaming_core.importing import events, form

OWN = '''"""Spending of each account."""
from streaming_core.api import App, f64, i64, record, text
app = App("NAME", time="TIME")
@record
class Order:
    ts: i64
    account: text
    cents: i64
@record
class Total:
    cents: i64
@record
class Spent:
    account: text
    cents: i64
def spend(order, total, out):
    total.cents += order.cents
    out.emit(account=order.account, cents=total.cents)
app.source(Order).key_by("account").process(spend, state=Total, output=Spent).sink()
'''
PAIR = '''"""Orders and payments in one line."""
from streaming_core.api import App, i64, record, text
app = App("pair")
@record
class Order:
    ts: i64
    account: text
@record
class Payment:
    ts: i64
    cents: i64
@record
class Seen:
    ts: i64
def of_order(row, out):
    out.emit(ts=row.ts)
def of_payment(row, out):
    out.emit(ts=row.ts)
orders, payments = app.sources(Order, Payment)
orders.flat_map(of_order, Seen).union(payments.flat_map(of_payment, Seen)).sink()
'''


@pytest.fixture
def own(package, tmp_path, monkeypatch):
    """The application `own`, which has no generator; the working directory is empty."""
    (package / "own.py").write_text(OWN.replace("NAME", "own").replace("TIME", "ms"))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_a_file_gives_a_checked_result_without_a_generator(own, command):
    draw = random.Random(1)
    rows = [(draw.randrange(50), draw.choice("abc"), draw.randrange(-9, 99)) for _ in range(300)]
    late = sum(row[0] < before[0] for before, row in itertools.pairwise(rows))
    lines = ["when,ts,cents,name", *(f"x,1970-01-01T00:00:00.0{ts:02}Z,{cents},{name}" for ts, name, cents in rows)]
    (own / "orders.csv").write_text("\n".join(lines))
    for words in (["run", "own", "--threads", 2], ["oracle", "own"]):
        code, _, stderr = command(*words, "--data", "orders.csv", "--map", "account=name", "--out", words[0])
        assert code == 0, stderr
        assert f"streaming-core: sorted by ts: {late} rows had a lower ts than the row before\n" in stderr
    assert command("diff", "run", "oracle")[0] == 0
    spent, expected = dict.fromkeys("abc", 0), []
    for _, name, cents in sorted(rows, key=lambda row: row[0]):  # rows of the same time keep their order
        spent[name] += cents
        expected.append((name.encode(), spent[name]))
    assert [(row["account"], row["cents"]) for row in Parts.of(own / "run" / "outputs").read().to_pylist()] == expected


def test_empty_values_of_a_file_are_null_in_results(own, package, command):
    text = OWN.replace("NAME", "holes").replace("TIME", "ms").replace("cents: i64", "cents: i64 | None")
    keep = "if order.cents is not None:\n        total.cents = order.cents"
    (package / "holes.py").write_text(text.replace("total.cents += order.cents", keep))
    (own / "orders.csv").write_text("ts,account,cents\n1,a,\n2,b,7\n3,a,5\n4,a,\n")
    for words in (["run", "holes", "--threads", 2], ["oracle", "holes"]):
        code, _, stderr = command(*words, "--data", "orders.csv", "--out", words[0])
        assert code == 0, stderr
    assert command("diff", "run", "oracle")[0] == 0
    assert [row["cents"] for row in Parts.of(own / "run" / "outputs").read().to_pylist()] == [None, 7, 5, 5]
    state = pq.read_table(own / "run" / "state" / "spend.parquet")
    assert state.to_pylist() == [{"key": b"a", "cents": 5}, {"key": b"b", "cents": 7}]


def test_a_new_application_runs_on_its_file(package, tmp_path, command):
    _, file = new("mine", package, tmp_path / "nowhere")
    code, stdout, stderr = command("run", "mine", "--data", file, "--out", tmp_path / "run")
    assert code == 0, stderr
    assert "mine.pooled" in stdout
    assert ": 3 events, 12 outputs" in stdout


def test_streams_have_a_file_each(own, package, command):
    (package / "pair.py").write_text(PAIR)
    (own / "orders.csv").write_text("ts,account\n5,a\n9,b\n")
    (own / "payments.csv").write_text("ts,cents\n5,1\n7,2\n")
    data = ["--data", "Payment=payments.csv", "--data", "Order=orders.csv"]
    code, _, stderr = command("run", "pair", *data, "--out", "run")
    assert code == 0, stderr
    assert [row["ts"] for row in Parts.of(own / "run" / "outputs").read().to_pylist()] == [5, 5, 7, 9]


GOOD = "ts,account,cents\n" + "".join(f"{i},a,1\n" for i in range(15))
WRONG = [
    ({"a.csv": "when,account,cents\n1,a,1\n"}, [], "a.csv has no column 'ts' for the field ts (i64) of own's events; "),
    ({"a.csv": "ts,account\n1,a\n"}, [], "a.csv has no column 'cents' for the field cents (i64) of own's events"),
    ({"a.csv": GOOD + "16,a,much\n" + GOOD}, [], "a.csv:17: cents is neither an integer nor a time: '16,a,much'"),
    ({"a.csv": GOOD + "16,a\n"}, [], "a.csv:17: the row has 2 columns instead of 3: '16,a'"),
    ({"a.csv": GOOD + "soon,a,1\n"}, [], "a.csv:17: ts is neither an integer nor a time: 'soon,a,1'"),
    ({"a.csv": ""}, [], "a.csv has no column names: its first line must contain them"),
    ({"a.csv": "1,a,1\n2,a,1\n"}, [], "the first line must contain the column names, but looks like a row: 1, a, 1"),
    ({"a.csv": "ts,account,cents\n"}, [], "a.csv: none of 0 rows is an event of own"),
    ({}, [], "a.csv does not exist"),
    ({"a.csv": GOOD}, ["--map", "cents"], "--map 'cents': write FIELD=COLUMN"),
    ({"a.csv": GOOD}, ["--map", "cent=cents"], "--map cent=...: the events of own have no field 'cent'; fields: ts, "),
    ({"a.csv": GOOD}, ["--data", "a.csv"], "a.csv is in the list twice: name each file once"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "more", "message"), WRONG)
@pytest.mark.parametrize("verb", ["run", "oracle"])
def test_wrong_data_is_one_line_and_writes_nothing(own, command, verb, files, more, message):
    for name, text in files.items():
        (own / name).write_text(text)
    code, stdout, stderr = command(verb, "own", "--data", "a.csv", "--out", "out", *more)
    assert (code, stdout) == (2, "")
    assert message in stderr
    assert stderr.count("\n") == 1
    assert {path.name for path in own.iterdir()} == set(files)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "own", "--events", 9], "app own has no generator: give it events of your own with --data"),
        (["oracle", "own", "--input", "x", "--data", "a.csv"], "give either --data FILE with events of your own, or "),
        (["oracle", "own", "--input", "x", "--map", "ts=a"], "--map names columns of the files of --data; remove it, "),
        (["run", "own"], "give either --data FILE with events of your own, or --input FOLDER"),
        (["plan", "own", "--threads", 2], "app own has no generator"),
        (["bench", "own"], "app own has no generator"),
    ],
)
def test_commands_that_need_a_generator_name_data(own, command, words, message):
    out = [] if words[0] == "bench" else ["--out", "out"]
    code, _, stderr = command(*words, *out)
    assert (code, message in stderr, stderr.count("\n")) == (2, True, 1), stderr
    assert not (own / "out").exists()


def test_one_import_serves_every_application_of_the_same_records(own, package, command):
    (package / "other.py").write_text(OWN.replace("NAME", "other").replace("TIME", "ms").replace("Order", "Purchase"))
    (package / "slow.py").write_text(OWN.replace("NAME", "slow").replace("TIME", "s"))
    (package / "wide.py").write_text(
        OWN.replace("NAME", "wide").replace("TIME", "ms").replace("cents: i64", "cents: f64")
    )
    (package / "renamed.py").write_text(OWN.replace("NAME", "renamed").replace("TIME", "ms").replace("account", "who"))
    (own / "a.csv").write_text(GOOD)
    for name in ("own", "other"):
        events.run(form.request(form.Form(name, ["a.csv"])), own / f"of-{name}")
    manifests = [workload.read_manifest(own / f"of-{name}") for name in ("own", "other")]
    assert manifests[0]["address"] == manifests[1]["address"], "the application is no part of it"
    bound = [workload.read(own / "of-own", name).manifest for name in ("own", "other")]
    assert bound[0]["content_digest"] == bound[1]["content_digest"]
    assert bound[0]["address"] != bound[1]["address"], "the inputs of two applications have addresses of their own"
    assert command("run", "other", "--input", "of-own", "--out", "run")[0] == 0
    assert command("oracle", "other", "--input", "of-own", "--out", "oracle")[0] == 0
    assert command("diff", "run", "oracle")[0] == 0
    for name, why in (
        ("slow", "its time is ms, but the application has s"),
        ("wide", "field cents is int64 in the import and double in the application"),
        ("renamed", "field who is absent in the import and binary in the application"),
    ):
        code, _, stderr = command("run", name, "--input", "of-own", "--out", "none")
        assert (code, stderr.count("\n")) == (2, 1)
        assert f"import of-own does not fit {name}: {why}; import the files for {name}" in stderr


def test_a_delay_decides_which_imports_fit(own, package):
    """Rows in order fit an application with a delay; rows that may go back need one."""
    late = OWN.replace("TIME", "ms").replace("app.source(Order)", "app.source(Order, delay=9)")
    (package / "late.py").write_text(late.replace("NAME", "late"))
    (own / "a.csv").write_text("ts,account,cents\n5,a,1\n3,b,2\n")
    for name in ("own", "late"):
        events.run(form.request(form.Form(name, ["a.csv"])), own / f"of-{name}")
    assert [row["ts"] for row in workload.read(own / "of-late", "late").parts.read().to_pylist()] == [5, 3]
    assert [row["ts"] for row in workload.read(own / "of-own", "late").parts.read().to_pylist()] == [3, 5]
    with pytest.raises(BadInput, match=r"import .*of-late does not fit own: its ts may go back, because it "):
        workload.read(own / "of-late", "own")


def test_conformance_makes_its_workloads_from_a_file(own):
    with pytest.raises(BadInput, match="app own has no generator"):
        list(cases(registry.load("own"), ["plain"]))
    (own / "a.csv").write_text(GOOD)
    with form.workload_of("own", {}, None, ["a.csv"]) as source:
        (case,) = cases(registry.load("own"), ["plain"], source)
    assert [row["account"] for row in case.events.to_pylist()] == [b"a"] * 15
    assert re.match("events ", case.about)
