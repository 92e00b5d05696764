"""FX against the same computation written again."""

import pyarrow as pa
import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from tests.support import by_hand

PAR = 1_000_000


@pytest.mark.parametrize(
    "params",
    [
        {"quote_ratio": 0.4, "n_currencies": 5},
        {"n_accounts": 2, "n_currencies": 2, "quote_ratio": 0.3, "invalid_ratio": 0.1},
    ],
)
def test_fx_moves_amounts_of_the_state_before_the_event(params):
    events, result = by_hand.run_generated("fx", params)
    bound = result.params
    balances, rates = [bound["opening"]] * bound["n_accounts"], [PAR] * bound["n_currencies"]
    expected, left_alone = [], 0
    for e in events:
        first, second, used = e["first"], e["second"], (0, 0)
        if first == second:
            continue
        if e["kind"] == 0:
            if abs(e["rate"] - rates[second]) <= rates[second] * bound["band"] / 100:
                rates[first] = e["rate"]
            else:
                left_alone += 1
            shown = rates
        elif e["kind"] == 1:
            used = rates[first % bound["n_currencies"]], rates[second % bound["n_currencies"]]
            moved = balances[first] * e["share"] // 1000
            balances[first] -= moved
            balances[second] += moved * used[0] // used[1]
            shown = balances
        else:
            balances[first], balances[second] = balances[second], balances[first]
            shown = balances
        values = {
            "kind": e["kind"], "first": shown[first], "second": shown[second],
            "first_rate": used[0], "second_rate": used[1],
        }  # fmt: skip
        expected.append({"seq": e["seq"], "sub": 0, **values})
    assert result.outputs == expected
    assert result.dropped == len(events) - len(expected)
    assert [row.balance for row in result.state["state_accounts"][1].values()] == balances
    assert [row.rate for row in result.state["state_currencies"][1].values()] == rates
    assert {o["kind"] for o in expected} == {0, 1, 2}
    assert 0 < left_alone < sum(o["kind"] == 0 for o in expected)


@pytest.mark.parametrize(
    "fields",
    [{"kind": 3}, {"first": 1}, {"first": 3}, {"second": 3}, {"kind": 0, "first": 2}, {"share": 1001}, {"rate": 0}],
)
def test_fx_drops_invalid_events(fields):
    app = registry.load("fx")
    event = {"seq": 0, "ts": 0, "kind": 1, "first": 0, "second": 1, "share": 1000, "rate": 1}
    params = {"n_accounts": 3, "n_currencies": 2}
    for row, dropped in ((event, 0), (event | fields, 1)):
        result = by_hand.run(app, params, pa.Table.from_pylist([row], workload.schema(app, params)))
        assert (len(result.outputs), result.dropped) == (1 - dropped, dropped)
