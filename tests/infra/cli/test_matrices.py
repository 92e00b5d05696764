"""`lockstep matrices`: what there is, versions, new ones; what a slip leaves is nothing."""

from __future__ import annotations

import json

import pytest

from infra.cli.request import options
from streaming_core.regression import matrices
from streaming_core.regression.home import Home
from tests.infra.cli.conftest import lockstep


@pytest.fixture
def said(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")

    def said(*arguments: str, code: int = 0) -> str:
        assert lockstep("matrices", *arguments) == code
        out, error = capfd.readouterr()
        assert bool(error) == bool(code)
        return out or error

    return said


def test_a_matrix_is_made_changed_listed_and_gone_back_to(said, tmp_path):
    said("save", "mine", "--applications", "wc", "--executors", "pooled,pinned", "--threads", "1,2,4")
    assert said("save", "mine", "--events", "700", "--stealing", "no").endswith(
        "version 2, is saved: --applications wc --executors pooled,pinned --threads 1,2,4 --events 700\n"
    )
    assert "version 2, is as it was" in said("save", "mine", "--events", "700")
    assert "version 3, is saved: --applications wc" in said("save", "mine", "--matrix", "mine@1")
    assert "version 1, is saved: --threads 2 --events 700" in said(
        "save", "other", "--matrix", "smoke", "--events", "700"
    )
    table = said()
    assert [(one["name"], one["version"]) for one in json.loads(said("--json"))] == [
        ("smoke", 0),
        ("nightly", 0),
        ("full", 0),
        ("mine", 3),
        ("other", 1),
    ]
    assert "as it comes" in table
    assert [one["version"] for one in json.loads(said("show", "mine", "--json"))] == [3, 2, 1]
    assert len(list(tmp_path.rglob("*.json"))) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["save", "Mine"], "'Mine' is no name for a matrix"),
        (["save", "mine@1"], "'mine@1' is no name for a matrix"),
        (["save"], "Missing argument 'NAME'"),
        (["save", "mine", "--thread", "1"], "No such option: --thread"),
        (["save", "mine", "--threads", "x"], "--threads: 'x' is not a number"),
        (["save", "mine", "--matrix", "gone"], "unknown matrix 'gone'; known: smoke, nightly, full"),
        (["save", "mine", "--applications", "gone"], "unknown application 'gone'"),
        (["show", "gone"], "unknown matrix 'gone'"),
        (["remove", "mine"], "No such command 'remove'"),
    ],
)
def test_a_slip_is_one_line_and_nothing_is_kept(said, tmp_path, arguments, message):
    error = said(*arguments, code=2)
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_fields_are_shown_as_somebody_types_them(said, tmp_path):
    shown = options({"params": {"wc": {"words": 3}}, "stealing": True, "rate": 1.5, "threads": [1, 2]})
    assert shown == """--params '{"wc":{"words":3}}' --stealing yes --rate 1.5 --threads 1,2"""
    for name in matrices.BROUGHT:
        said("save", f"my-{name}", *options(matrices.BROUGHT[name]).split())
        mine, brought = (matrices.request(Home(tmp_path), {}, one) for one in (f"my-{name}", name))
        assert mine.regression == brought.regression
