"""TB against the same computation written again."""

import pyarrow as pa
import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from tests.support import by_hand


@pytest.mark.parametrize(
    "params", [{}, {"n_flights": 20, "n_hotels": 10, "rise": 3}, {"n_flights": 2, "n_hotels": 1, "invalid_ratio": 0.1}]
)
def test_tb_books_all_or_nothing(params):
    events, result = by_hand.run_generated("tb", params)
    bound, app = result.params, registry.load("tb")
    opening = by_hand.run(app, params, workload.schema(app, params).empty_table()).state_tables()
    flights, hotels = (
        [[row["taken"], row["price"]] for row in opening[f"state_{n}"].to_pylist()] for n in ("flights", "hotels")
    )
    expected = []
    for e in events:
        if e["budget"] < 0:
            continue
        rooms = -(-e["party"] // 2)
        parts = [
            (flights[e["out"]], e["party"], bound["seats"]), (flights[e["back"]], e["party"], bound["seats"]),
            (hotels[e["hotel"]], rooms, bound["rooms"]),
        ]  # fmt: skip
        cost, before = 0, [row[0] for row, _, _ in parts]
        if e["kind"] == 0:
            cost = sum(row[1] * size for row, size, _ in parts[:2]) + parts[2][0][1] * rooms * e["nights"]
            ok, sign = cost <= e["budget"] and all(row[0] + size <= most for row, size, most in parts), 1
        else:
            ok, sign = all(row[0] >= size for row, size, _ in parts), -1
        for row, size, _ in parts:
            row[0] += sign * ok * size
            row[1] += sign * ok * size * bound["rise"]
        taken = dict(zip(("out", "back", "rooms"), before, strict=True))
        expected.append({"seq": e["seq"], "sub": 0, "kind": e["kind"], "ok": ok, "cost": cost, **taken})
    assert result.outputs == expected
    assert result.dropped == len(events) - len(expected)
    for name, rows in (("flights", flights), ("hotels", hotels)):
        assert [[row.taken, row.price] for row in result.state[f"state_{name}"][1].values()] == rows
    for kind in (0, 1):
        accepted = [o["ok"] for o in expected if o["kind"] == kind]
        assert 0 < sum(accepted) < len(accepted)
    assert sum(not o["ok"] for o in expected) > 0.4 * len(expected)


@pytest.mark.parametrize(
    "fields", [{"kind": 2}, {"party": 0}, {"budget": -1}, {"back": 1}, {"out": 2}, {"back": 2}, {"hotel": 1}]
)
def test_tb_drops_invalid_events(fields):
    app = registry.load("tb")
    event = {"seq": 0, "ts": 0, "kind": 0, "party": 1, "nights": 1, "out": 1, "back": 0, "hotel": 0, "budget": 0}
    params = {"n_flights": 2, "n_hotels": 1}
    for row, dropped in ((event, 0), (event | fields, 1)):
        result = by_hand.run(app, params, pa.Table.from_pylist([row], workload.schema(app, params)))
        assert (len(result.outputs), result.dropped) == (1 - dropped, dropped)
