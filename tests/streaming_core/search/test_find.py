"""The folder of a find: what is at fault, the case once more, and the test for pytest."""

import importlib.util
import json
from contextlib import nullcontext
from decimal import Decimal

import pytest
from rich.console import Console

from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.run.way import RunSpec
from streaming_core.search import find, text
from streaming_core.search.case import Case, Symptom
from streaming_core.search.find import Find, way_of, way_text
from streaming_core.search.replay import numbered, trials


def run_test(tally_find):
    spec = importlib.util.spec_from_file_location(tally_find.test.stem, tally_find.test)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    getattr(module, tally_find.test.stem)()


def test_find_names_operator_event_and_rows(tally_find):
    assert tally_find.sentence == "tally, 5 events on 2 threads: the result differs from the oracle's: outputs"
    assert (tally_find.operator, tally_find.place, tally_find.event) == ("add", "tally.py:44", 4)
    [row] = tally_find.differences
    assert row["expected"] == {"name": "ann", "votes": 3}
    assert row["actual"] == {"name": "ann", "votes": 4}
    assert tally_find.way == {"executor": "pooled", "threads": 2, "batch": 7}
    names = {path.name for path in tally_find.folder.iterdir()}
    assert names == {"case.json", "events.parquet", "find.json", tally_find.test.name, "oracle", "run", "workload"}
    assert Find.load(tally_find.folder) == tally_find
    assert find.finds(tally_find.folder.parent) == [tally_find]
    assert Case.load(tally_find.folder).digest == tally_find.digest


def test_test_of_a_find_fails_until_the_fault_is_fixed(tally_find, monkeypatch):
    monkeypatch.setenv("TALLY_FAULT", "1")
    with pytest.raises(AssertionError, match="votes: expected 3, got 4"):
        run_test(tally_find)
    monkeypatch.delenv("TALLY_FAULT")
    run_test(tally_find)


def test_replay_prints_expected_beside_actual(tally_find, tally, laboratory, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(text, "Laboratory", lambda: nullcontext(laboratory))
    assert text.replay(tally_find.folder, Console(), False, None) == 1
    printed = capsys.readouterr().out
    assert "outputs  seq 4, sub 0  name    'ann'     'ann'" in printed
    assert "votes   3         4" in printed
    assert "4      4   'ann'  ← at fault" in printed
    tally.with_events(tally.events.slice(0, 3)).save(tmp_path)
    assert text.replay(tmp_path, Console(), True, None) == 0
    assert json.loads(capsys.readouterr().out)["shows"] is False


def test_write_leaves_a_folder_of_the_same_case_alone(tally_find, tally, laboratory):
    before = tally_find.test.stat().st_mtime_ns
    find.write(tally, laboratory, tally_find.folder.parent, {})
    assert tally_find.test.stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", [b"{", b"{}", b'{"symptom": {"kind": "none"}}', None])
def test_damaged_case_is_one_line(tally, tmp_path, damage):
    tally.save(tmp_path)
    if damage is None:
        (tmp_path / "events.parquet").write_bytes(b"PAR1")
    else:
        (tmp_path / "case.json").write_bytes(damage)
    with pytest.raises(BadInput, match=r"holds no case: [^\n]+$"):
        text.replay(tmp_path, Console(), False, None)


def test_case_of_an_unknown_application_is_one_line(tally, tmp_path, monkeypatch):
    tally.save(tmp_path)
    monkeypatch.setattr(registry, "_ELSEWHERE", {})
    with pytest.raises(BadInput, match="unknown application 'tally'"):
        text.replay(tmp_path, Console(), False, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"executor": "transactional", "scheme": "tstream", "pool": "shared_everything", "stealing": True},
        {"executor": "transactional", "threads": 8, "checkpoint": "7", "punctuation": 3},
        {"executor": "pinned", "plan": {"add": [0, 1]}, "threads": 2, "channel": "pair_queue"},
        {"executor": "pooled", "queue": "hybrid", "heuristic": "ct", "batch": 1},
    ],
)
def test_way_of_a_spec_gives_the_spec_again(fields):
    spec = RunSpec.parse({"app": "tally", "params": {"n": 3}, **fields})
    assert way_of(spec) == fields
    assert RunSpec.parse({"app": "tally", "params": {"n": 3}, **way_of(spec)}) == spec
    assert way_text(fields).startswith(fields["executor"])


@pytest.mark.parametrize(("rate", "number"), [(1.0, 3), (0.9, 3), (0.5, 10), (0.1, 66), (0.001, 400)])
def test_rare_fault_gets_more_trials(tally, rate, number):
    assert trials(tally.changed(rate=rate)) == number
    assert trials(tally.changed(rate=rate, symptom=Symptom("property", "swap"))) == 1


VALUES = [
    float("nan"),
    float("inf"),
    -0.0,
    0.1,
    2**63 - 1,
    True,
    b'it\'s "a"\x00\n',
    [b"", b"'"],
    Decimal("1.10"),
    None,
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_literals_are_python(value):
    assert repr(eval(find._literal(value), {"Decimal": Decimal})) == repr(value)


def test_events_that_do_not_fit_are_one_line(tally):
    with pytest.raises(BadInput, match=r"the events do not fit application tally: [^\n]+$"):
        numbered(tally.spec, [{"ts": "soon", "name": b""}])
