"""An import with an unusual number of rows, or of rows set aside, is a warning after enough nights."""

import json

import pytest

from expectations.anomaly import LEAST
from expectations.history import NON_NULL, ROW_COUNT
from expectations.suites import imports
from jobs.raw import write_raw
from streaming_core.api import Record, i64
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from streaming_core.regression.provenance import Provenance, record
from streaming_core.regression.warehouse import rows as raw_rows
from tests.expectations.test_expectations import judge, judged, known  # noqa: F401
from tests.jobs.world import EVENTS, RUN_ID, WORKLOAD, World, bank

NAME, DATA_SET = "orders.v2", "import_orders+v2"
ASIDE = 6


def night(home: Home, run_id: str, rows: int, share: float = 1.0) -> None:
    """Write the results of an earlier run."""
    same = {"data_set": DATA_SET, "success": True, "severity": "warning", "rule": "usual"}
    figures = ((ROW_COUNT, None, rows), (NON_NULL, "seq", share))
    write_raw(
        home,
        "expectations",
        run_id,
        [
            same | {"number": number, "expectation": kind, "column": column, "observed_value": float(value)}
            for number, (kind, column, value) in enumerate(figures)
        ],
    )


def ids(count: int) -> list[str]:
    return [f"202512{day:02d}T020000Z-00000000" for day in range(1, count + 1)]


@pytest.fixture
def world(tmp_path) -> World:
    """A run on an import that set rows aside."""
    world = World(tmp_path)
    (cell,) = world.plan(("owners", 2))
    world.attempt(cell)
    path = world.home.run(RUN_ID) / "plan.json"
    plan = json.loads(path.read_text())
    plan["workloads"][0] |= {"data": NAME, "seed": None}
    path.write_text(json.dumps(plan))
    about = {"rows": EVENTS + ASIDE, "tolerance": 1.0, "aside": [{"reason": "no number", "rows": ASIDE}]}
    record(world.home, RUN_ID, [Provenance("bank", WORKLOAD, "import", EVENTS, None, [], NAME, about)])
    return world


@pytest.mark.slow
def test_unusual_import_is_a_warning_unless_configured(world, spark, capsys, monkeypatch):
    for run_id in ids(LEAST):
        night(world.home, run_id, 10 * EVENTS)
    code, line, errors = judged(world, spark, capsys)
    assert code == 0
    assert "2 warnings" in line
    assert [error.partition(" {")[0] for error in errors] == [
        f"expectations: warning: {DATA_SET}: The number of rows is as in the last nights",
        f"expectations: warning: {DATA_SET}: The share of rows that were not set aside is as in the last nights",
    ]
    rows, share = (row for row in raw_rows(world.home, "expectations", RUN_ID) if row["data_set"] == DATA_SET)
    assert (rows["observed_value"], rows["success"], rows["severity"]) == (EVENTS + ASIDE, False, "warning")
    assert (rows["low"], rows["high"]) == (10 * EVENTS - 21, 10 * EVENTS + 21)
    assert share["unexpected_share"] == pytest.approx(ASIDE / (EVENTS + ASIDE))
    assert (share["low"], share["high"]) == pytest.approx((1 - 3.5 * 0.005, 1))
    monkeypatch.setenv(imports.SETTING, "critical")
    assert judge(world, spark) == 1


@pytest.mark.slow
def test_too_few_nights_make_every_import_usual(world, spark, capsys):
    for run_id in ids(LEAST - 1):
        night(world.home, run_id, 10 * EVENTS)
    assert judged(world, spark, capsys)[::2] == (0, [])


def test_last_run_of_each_earlier_day_is_its_night(tmp_path):
    home = Home(tmp_path)
    for run_id, rows in (("20251201T020000Z", 1), ("20251201T030000Z", 2), ("20251130T020000Z", 3), (RUN_ID[:16], 4)):
        night(home, f"{run_id}-00000000", rows, 0.5)
    assert imports.nights(home, RUN_ID) == {(DATA_SET, None): [3.0, 2.0], (DATA_SET, "seq"): [0.5, 0.5]}


def test_shares_of_nullable_fields_are_expected_too():
    app = bank()
    app.event = Record("Deposit", {"ts": i64, "amount": i64 | None}, None)
    of = [rule["kwargs"].get("column") for rule in imports.expectations_of(app)]
    assert of == [None, "seq", "amount"]
    history = {("import_a", None): [100.0] * 9, ("import_a", "amount"): [0.999] * 9}
    bounds = imports.bounds("import_a", ["seq", "amount"], history)
    assert (bounds["low"], bounds["high"], bounds["seq_low"], bounds["seq_high"]) == (96, 104, 0.0, 1.0)
    assert (bounds["amount_low"], bounds["amount_high"]) == pytest.approx((0.999 - 0.0175, 1.0))


def test_wrong_severity_is_refused_in_one_line(monkeypatch):
    monkeypatch.setenv(imports.SETTING, "fatal")
    with pytest.raises(BadInput, match=r"^LOCKSTEP_ANOMALIES must be one of critical, warning, info, got 'fatal'$"):
        imports.expectations_of(bank())
