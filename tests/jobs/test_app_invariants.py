"""Every application's invariants hold on a right result, and each of them finds a wrong one."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.invariants import evaluate, no_rows, refusals, rows_of
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.agreement import outputs_digest, states_digest
from tests.streaming_core.generator import traffic
from tests.support import by_hand

PARAMS = {
    "gs": {"n_items": 50, "invalid_ratio": 0.05},
    "sl": {"n_items": 20, "invalid_ratio": 0.05},
    "ob": {"n_items": 30, "init_qty": 40, "unauth_ratio": 0.05, "invalid_ratio": 0.05},
    "tp": {"segments": 3, "vehicles": 200, "invalid_ratio": 0.05},
    "tb": {"n_flights": 10, "n_hotels": 5, "invalid_ratio": 0.05},
    "fx": {"n_accounts": 9, "n_currencies": 4, "quote_ratio": 0.4, "invalid_ratio": 0.05},
    "wc": {"vocabulary": 30, "words": 4, "invalid_ratio": 0.05},
    "fd": {"entities": 20, "window": 3, "threshold_e4": 9300, "invalid_ratio": 0.05},
    "sd": {"devices": 3, "window": 20, "spike_ratio": 0.05, "invalid_ratio": 0.05},
    "q1": {"items": 30, "threshold": 1, "limit": 9, "events_per_day": 1_000, "invalid_ratio": 0.05},
    "q2": {"items": 20, "users": 6, "emit_every": 50, "limit": 7, "width": 4, "invalid_ratio": 0.05},
    "q3": {"items": 40, "users": 6, "limit": 4, "invalid_ratio": 0.05},
    "q4": {"users": 6, "invalid_ratio": 0.05, "events_per_day": 1_000},
    "q15": {"items": 60, "stores": 2, "store": 1, "events_per_day": 40, "invalid_ratio": 0.05},
    "pos_rep": {"seconds": 120, "veh_per_s": 0.5, "request_ratio": 0.2, "invalid_ratio": 0.05},
    "new_seg": {"seconds": 120, "veh_per_s": 0.5, "request_ratio": 0.2, "invalid_ratio": 0.05},
    "lr": {},
    "wordcount": {"vocabulary": 40, "rate": 5.0, "advance": 10_000, "size": 25_000},
    "hashtag": {"hashtags": 5, "rate": 5.0, "advance": 10_000, "size": 25_000},
    "scalejoin": {"keys": 4, "domain": 100, "size": 2_001},
    "hedge": {"keys": 4, "size": 2_001, "rate": 40.0, "invalid_ratio": 0.05},
}
EVENTS = 400


def first(rows, which):
    return next(row for row in rows if which(row))


def set_first(rows, which, **fields):
    first(rows, which).update(fields)


def last(rows, which):
    return first(reversed(rows), which)


def shift(rows, column):
    """Every row a little different."""
    for row in rows:
        row[column] += 1


def swap_quantities(rows):
    """Swap the values that a bid and a later one read."""
    row = first(rows, lambda r: r["kind"] == 0 and r["ok"])
    other = last(rows, lambda r: r["kind"] == 0 and r["ok"] and r["qty"] != row["qty"])
    row["qty"], other["qty"] = other["qty"], row["qty"]


def miss_a_spike(rows):
    max(rows, key=lambda r: abs(r["value"] - r["average"]) / r["average"]).update(spike=False)


def lose(rows, which=lambda row: True):
    rows.remove(first(rows, which))


def forward_one_more(rows):
    """A report from where its vehicle was before is forwarded too."""
    events = workload.generate_chunk("new_seg", PARAMS["new_seg"], EVENTS, 4, 0, EVENTS).to_pylist()
    sent = {row["seq"] for row in rows}
    event = first(events, lambda e: e["type"] == 0 and e["dir"] < 2 and e["seq"] not in sent)
    rows.append({**event, "sub": 0, "new_seg": True})


def move_money(state):
    """One account gains an amount that no other account loses."""
    state[3]["balance"] += 1


def lose_all(rows, **same):
    """Every row like the first one in these columns is lost."""
    rows[:] = [row for row in rows if any(row[name] != value for name, value in same.items())]


def exchange(rows, column, which):
    """Swap the values of one column in the first two matching rows."""
    first_row, second_row = [row for row in rows if which(row)][:2]
    first_row[column], second_row[column] = second_row[column], first_row[column]


def exchange_windows(rows):
    """Rows of two windows that leave at the end of the stream have traded places."""
    latest = last(rows, lambda row: True)
    other = last(rows, lambda row: row["seq"] == latest["seq"] and row["ts"] < latest["ts"])
    latest["sub"], other["sub"] = other["sub"], latest["sub"]


# (application, the first words of the invariant that must fail, changes of outputs and states)
WRONG = [
    ("gs", "each valid event", lambda o, s: lose(o)),
    ("gs", "a record's final", lambda o, s: s["state_items"][7].update(value=-1)),
    ("gs", "a read sums", lambda o, s: set_first(o, lambda r: r["is_read"], total=5)),
    ("gs", "each valid event", lambda o, s: set_first(o, lambda r: not r["is_read"], is_read=True)),
    ("gs", "each valid event", lambda o, s: set_first(o, lambda r: not r["is_read"], mixed=1)),
    ("sl", "each valid event", lambda o, s: o.append(dict(o[0], sub=1))),
    ("sl", "a final balance", lambda o, s: move_money(s["state_accounts"]), lambda o, s: move_money(s["state_assets"])),
    ("sl", "a final balance", lambda o, s: set_first(o, lambda r: r["kind"] == 1 and r["ok"], ok=False)),
    ("sl", "no balance is", lambda o, s: set_first(o, lambda r: r["kind"] == 1, dst_acct=-1)),
    ("sl", "no balance is", lambda o, s: s["state_assets"][2].update(balance=-1)),
    ("sl", "all deposits are", lambda o, s: set_first(o, lambda r: r["kind"] == 0, ok=False)),
    ("sl", "all deposits are", lambda o, s: set_first(o, lambda r: r["kind"] == 1 and r["ok"], ok=False)),
    ("sl", "all deposits are", lambda o, s: set_first(o, lambda r: r["kind"] == 1 and not r["ok"], ok=True)),
    ("sl", "each valid event", lambda o, s: set_first(o, lambda r: r["kind"] == 1, kind=0)),
    ("ob", "each valid event", lambda o, s: lose(o), lambda o, s: o.append(dict(o[0], sub=1))),
    ("ob", "each valid event", lambda o, s: set_first(o, lambda r: r["kind"] == 1, kind=2)),
    ("ob", "each valid event", lambda o, s: set_first(o, lambda r: r["kind"] == 2, ok=False)),
    ("ob", "each valid event", lambda o, s: set_first(o, lambda r: not r["auth"], ok=True)),
    ("ob", "each valid event", lambda o, s: set_first(o, lambda r: r["auth"], auth=False, ok=False, ask=0, qty=0)),
    ("ob", "an item's final quantity", lambda o, s: s["state_goods"][4].update(qty=s["state_goods"][4]["qty"] + 1)),
    ("ob", "an item's final quantity", lambda o, s: last(o, lambda r: r["kind"] == 0 and r["ok"]).update(ok=False)),
    ("ob", "an item's final asking", lambda o, s: shift(s["state_goods"], "ask")),
    ("ob", "no quantity is", lambda o, s: set_first(o, lambda r: r["kind"] == 0, qty=-1)),
    ("ob", "no quantity is", lambda o, s: s["state_goods"][2].update(qty=-1)),
    ("ob", "a bid sees", lambda o, s: last(o, lambda r: r["kind"] == 0 and r["auth"]).update(ask=100)),
    ("ob", "a bid sees", lambda o, s: swap_quantities(o)),
    ("ob", "a bid for", lambda o, s: last(o, lambda r: r["kind"] == 0 and r["ok"]).update(ok=False)),
    ("ob", "a bid for", lambda o, s: last(o, lambda r: r["kind"] == 0 and r["auth"] and not r["ok"]).update(ok=True)),
    ("tp", "each valid report", lambda o, s: lose(o), lambda o, s: o[7].update(vid=1_000)),
    ("tp", "each valid report", lambda o, s: o[7].update(seg=(o[7]["seg"] + 1) % 3)),
    ("tp", "a report is", lambda o, s: set_first(o, lambda r: r["ok"], ok=False, speed=0.0, count=0, toll=0)),
    ("tp", "a report is", lambda o, s: set_first(o, lambda r: not r["ok"], ok=True)),
    ("tp", "a report is", lambda o, s: set_first(o, lambda r: not r["ok"], count=1)),
    ("tp", "the toll follows", lambda o, s: set_first(o, lambda r: r["toll"] > 0, toll=1)),
    ("tp", "the toll follows", lambda o, s: set_first(o, lambda r: r["toll"] == 0, toll=2)),
    ("tp", "a report moves", lambda o, s: shift(o, "speed"), lambda o, s: set_first(o, lambda r: r["ok"], speed=-1.0)),
    ("tp", "a segment's count", lambda o, s: last(o, lambda r: r["ok"]).update(count=900)),
    ("tp", "a segment's count", lambda o, s: last(o, lambda r: r["ok"]).update(count=1)),
    ("tp", "a segment's final", lambda o, s: shift(s["state_speeds"], "average")),
    ("tp", "a segment's final", lambda o, s: s["state_presence"][1].update(count=3)),
    ("tp", "a segment's set", lambda o, s: s["state_presence"][1]["vehicles"].pop()),
    ("tp", "a segment's set", lambda o, s: s["state_presence"][1]["vehicles"].__setitem__(0, 1_000)),
    ("tp", "a segment's set", lambda o, s: s["state_presence"][2].update(count=1)),
    ("tb", "each valid event", lambda o, s: lose(o), lambda o, s: o[3].update(kind=1 - o[3]["kind"])),
    ("tb", "the number taken", lambda o, s: s["state_hotels"][0].update(taken=s["state_hotels"][0]["capacity"] + 1)),
    ("tb", "the number taken", lambda o, s: s["state_flights"][0].update(taken=-1)),
    ("tb", "an event sees", lambda o, s: last(o, lambda r: r["kind"] == 0).update(back=7_000)),
    ("tb", "an event sees", lambda o, s: shift(s["state_hotels"], "taken")),
    ("tb", "an event sees", lambda o, s: set_first(o, lambda r: r["ok"], ok=False)),
    ("tb", "a booking is", lambda o, s: set_first(o, lambda r: r["ok"] and r["kind"] == 0, ok=False)),
    ("tb", "a booking is", lambda o, s: set_first(o, lambda r: not r["ok"] and r["kind"] == 1, ok=True)),
    ("tb", "a booking is", lambda o, s: set_first(o, lambda r: r["ok"] and r["kind"] == 0, cost=1 << 40)),
    ("fx", "each valid event", lambda o, s: lose(o), lambda o, s: o[3].update(kind=(o[3]["kind"] + 1) % 3)),
    ("fx", "a quote sets", lambda o, s: last(o, lambda r: r["kind"] == 0).update(first=1)),
    ("fx", "a quote sets", lambda o, s: last(o, lambda r: r["kind"] == 0).update(second=1)),
    ("fx", "a swap exchanges", lambda o, s: last(o, lambda r: r["kind"] == 1).update(first=1)),
    ("fx", "a swap exchanges", lambda o, s: last(o, lambda r: r["kind"] == 1).update(second=1)),
    ("fx", "a swap exchanges", lambda o, s: last(o, lambda r: r["kind"] == 2).update(second=1)),
    ("fx", "a transfer uses", lambda o, s: set_first(o, lambda r: r["kind"] == 1, first_rate=1)),
    ("fx", "a transfer uses", lambda o, s: shift(s["state_accounts"], "balance")),
    ("fx", "a transfer uses", lambda o, s: shift(s["state_currencies"], "rate")),
    ("wc", "the n-th occurrence", lambda o, s: set_first(o, lambda r: r["n"] == 2, n=1)),
    ("wc", "a sentence has", lambda o, s: lose(o, lambda r: r["sub"] == 3)),
    ("wc", "a word's final", lambda o, s: s["state_count"][4].update(n=1), lambda o, s: lose(s["state_count"])),
    ("fd", "each valid line", lambda o, s: lose(o), lambda o, s: o[5].update(entity=b"E999999999")),
    ("fd", "an entity has", lambda o, s: o[0].update(score=1)),
    ("fd", "a score lies", lambda o, s: o[9].update(score=(1 << 32) + 1)),
    ("fd", "no outlier scores", lambda o, s: set_first(o, lambda r: r["outlier"], outlier=False)),
    ("sd", "each valid reading", lambda o, s: lose(o), lambda o, s: o[5].update(device=99)),
    ("sd", "an average lies", lambda o, s: o[50].update(average=3_000_000)),
    ("sd", "no spike has", lambda o, s: miss_a_spike(o)),
    ("sd", "a device's final", lambda o, s: s["state_moving_average"][0].update(total=1)),
    ("q1", "a list is", lambda o, s: set_first(o, lambda r: r["rank"] == 0, a=1_000)),
    ("q1", "a list is", lambda o, s: set_first(o, lambda r: r["rank"] == 1, n=1_000)),
    ("q1", "a list is", lambda o, s: lose(o, lambda r: r["rank"] == 0)),
    ("q1", "a list is", lambda o, s: set_first(o, lambda r: r["rank"] == -1, n=1)),
    ("q1", "each hour in", lambda o, s: lose_all(o, window=o[-1]["window"])),
    ("q1", "each hour in", lambda o, s: set_first(o, lambda r: r["rank"] == 1, seq=399)),
    ("q1", "a pair's count", lambda o, s: set_first(o, lambda r: r["rank"] == 0, n=9)),
    ("q1", "a pair's count", lambda o, s: last(o, lambda r: r["rank"] == 1).update(b=31)),
    ("q1", "the last hour", lambda o, s: max(s["state_count"], key=lambda r: r["window"]).update(n=99)),
    ("q1", "the last hour", lambda o, s: s["state_rank"][0].update(counts=1)),
    ("q1", "a basket holds", lambda o, s: last(s["state_basket"], lambda r: len(r["items"]) > 2)["items"].pop()),
    ("q1", "a basket holds", lambda o, s: first(s["state_basket"], lambda r: True)["items"].append(31)),
    ("q2", "a list is", lambda o, s: lose(o, lambda r: r["rank"] == 2)),
    ("q2", "a list is", lambda o, s: set_first(o, lambda r: r["rank"] == 2, n=1_000)),
    ("q2", "a list is", lambda o, s: exchange(o, "b", lambda r: r["n"] == o[0]["n"] and r["seq"] == o[0]["seq"])),
    ("q2", "no count shrinks", lambda o, s: o[-7].update(n=0)),
    ("q2", "the last list", lambda o, s: o[-1].update(n=o[-1]["n"] - 1)),
    ("q2", "the last list", lambda o, s: last(s["state_count"], lambda r: r["n"] == 1).update(n=2)),
    ("q2", "the last list", lambda o, s: lose_all(o, seq=o[-1]["seq"])),
    ("q2", "a user's last", lambda o, s: s["state_session"][0]["items"].append(21)),
    ("q2", "a user's last", lambda o, s: s["state_session"][0]["items"].pop()),
    ("q2", "a user's last", lambda o, s: s["state_session"][1].update(last=0), lambda o, s: lose(s["state_session"])),
    ("q3", "a list is", lambda o, s: last(o, lambda r: r["rank"] == 1).update(n=1_000)),
    ("q3", "a list is", lambda o, s: lose(o, lambda r: r["seq"] == last(o, lambda x: x["rank"] == 1)["seq"])),
    ("q3", "a list names", lambda o, s: set_first(o, lambda r: True, bought=41)),
    ("q3", "two successive lists", lambda o, s: last(o, lambda r: r["rank"] == 0).update(n=100)),
    ("q3", "the last list", lambda o, s: o[-1].update(viewed=41), lambda o, s: lose_all(o, bought=o[-1]["bought"])),
    ("q3", "the last list", lambda o, s: s["state_count"][0]["counts"][0].update(value=77)),
    ("q3", "a count is", lambda o, s: s["state_count"][0]["counts"][0].update(value=77)),
    ("q3", "a count is", lambda o, s: s["state_count"][0]["counts"][0].update(key=41)),
    ("q4", "each output covers", lambda o, s: lose(o), lambda o, s: o[1].update(total=o[0]["total"])),
    ("q4", "the average is", lambda o, s: o[-1].update(tenths=o[-1]["tenths"] + 1)),
    ("q4", "the last output", lambda o, s: s["state_average"][0].update(total=7), lambda o, s: o.pop()),
    ("q4", "the average covers", lambda o, s: s["state_average"][0].update(total=400)),
    ("q4", "the average covers", lambda o, s: s["state_average"][0].update(n=400)),
    ("q4", "a user's last", lambda o, s: s["state_session"][0].update(last=0)),
    ("q4", "a user's last", lambda o, s: set_first(s["state_session"], lambda r: r["session"] > 1, session=1)),
    ("q4", "a user's last", lambda o, s: s["state_session"][0].update(order=400)),
    ("q15", "a line does", lambda o, s: o[0].update(slope=1), lambda o, s: o[0].update(slope_rest=-1)),
    ("q15", "each line of", lambda o, s: last(o, lambda r: r["n"] > 2).update(n=2)),
    ("q15", "a category's last", lambda o, s: o[-1].update(slope_rest=o[-1]["slope_rest"] + 1)),
    ("q15", "a category's last", lambda o, s: o[-1].update(intercept=o[-1]["intercept"] - 1), lambda o, s: o.pop()),
    ("q15", "a category's last", lambda o, s: s["state_regression"][2].update(sy=1)),
    ("q15", "a category has", lambda o, s: s["state_regression"][0].update(lines=400)),
    ("q15", "a category has", lambda o, s: s["state_regression"][0].update(n=40)),
    ("pos_rep", "each valid position", lambda o, s: lose(o), lambda o, s: o.append({**o[-1], "seq": EVENTS})),
    ("pos_rep", "a report is", lambda o, s: o[7].update(lane=5)),
    ("new_seg", "a valid position", lambda o, s: o.append({**o[-1], "sub": 1})),
    ("new_seg", "a valid position", lambda o, s: o.append({**o[-1], "seq": EVENTS})),
    ("new_seg", "a report is", lambda o, s: o[7].update(pos=5), lambda o, s: o[7].update(new_seg=False)),
    ("new_seg", "a vehicle's first", lambda o, s: lose(o)),
    ("new_seg", "of reports from", lambda o, s: forward_one_more(o)),
    ("new_seg", "a vehicle's final", lambda o, s: s["state_new_seg"][3].update(seg=100)),
    ("new_seg", "a vehicle's final", lambda o, s: lose(s["state_new_seg"])),
    ("lr", "a report has", lambda o, s: lose(o), lambda o, s: o.append({**o[-1], "seq": 9_999})),
    ("lr", "a vehicle is", lambda o, s: set_first(o, lambda r: r["kind"] == 0 and r["value"] < 0, value=0)),
    ("lr", "a vehicle is", lambda o, s: set_first(o, lambda r: r["leaves"], leaves=False)),
    ("lr", "a toll follows", lambda o, s: set_first(o, lambda r: r["kind"] == 0 and r["value"] > 0, value=0)),
    ("lr", "a segment's number", lambda o, s: last(o, lambda r: r["kind"] == 1).update(value=99)),
    ("lr", "a toll uses the number", lambda o, s: set_first(o, lambda r: r["kind"] == 0 and r["value"] > 0, count=52)),
    ("lr", "a segment's velocity", lambda o, s: last(o, lambda r: r["kind"] == 2).update(value=50)),
    (
        "lr",
        "a toll uses the velocity",
        lambda o, s: set_first(o, lambda r: r["kind"] == 0 and r["value"] > 0, velocity=1),
    ),
    ("lr", "a vehicle that", lambda o, s: lose(o, lambda r: r["kind"] == 3)),
    ("lr", "an accident is", lambda o, s: set_first(o, lambda r: r["kind"] == 3, segment=2)),
    ("lr", "a balance is", lambda o, s: last(o, lambda r: r["kind"] == 4 and r["value"] > 0).update(value=0)),
    (
        "lr",
        "an account's final",
        lambda o, s: set_first(s["state_account_balance"], lambda r: r["balance"] > 0, balance=0),
    ),
    ("lr", "an expenditure equals", lambda o, s: set_first(o, lambda r: r["kind"] == 5, value=5)),
    ("wordcount", "the counts of", lambda o, s: lose(o), lambda o, s: o[-1].update(n=o[-1]["n"] + 1)),
    ("wordcount", "the counts of", lambda o, s: lose_all(o, ts=o[0]["ts"]), lambda o, s: lose_all(o, ts=o[-1]["ts"])),
    (
        "wordcount",
        "a window lists",
        lambda o, s: o.append(dict(o[-1], sub=o[-1]["sub"] + 1)),
        lambda o, s: o[0].update(n=0),
    ),
    ("wordcount", "a window ends", lambda o, s: o[5].update(ts=o[5]["ts"] + 5_000)),
    ("wordcount", "a window's counts", lambda o, s: o[5].update(seq=o[5]["seq"] + 1)),
    ("wordcount", "a window's counts", lambda o, s: o[5].update(seq=o[5]["seq"] - 1)),
    (
        "wordcount",
        "a window's counts",
        lambda o, s: o[-1].update(seq=EVENTS - 1),
        lambda o, s: o[-1].update(seq=EVENTS + 1),
    ),
    ("wordcount", "if one tweet", lambda o, s: exchange_windows(o)),
    ("hashtag", "a window lists each", lambda o, s: o[0].update(chars=o[0]["chars"] + 1)),
    ("hashtag", "a window lists each", lambda o, s: o[-1].update(hashtag=b"t9")),
    ("hashtag", "a window lists each", lambda o, s: o[3].update(ts=o[3]["ts"] + 5_000), lambda o, s: o.pop()),
    ("hashtag", "a window lists a", lambda o, s: o.append(dict(o[-1], sub=o[-1]["sub"] + 1))),
    ("hashtag", "a window's hashtags", lambda o, s: o[-1].update(seq=EVENTS - 1)),
    ("hashtag", "a window's hashtags", lambda o, s: o[0].update(seq=o[0]["seq"] + 1)),
    ("hashtag", "if one tweet", lambda o, s: exchange_windows(o)),
    ("scalejoin", "a pair joins", lambda o, s: o[5].update(x=o[5]["x"] + 1), lambda o, s: o[5].update(b=o[5]["b"] + 1)),
    ("scalejoin", "a pair joins", lambda o, s: o[5].update(d=not o[5]["d"])),
    ("scalejoin", "a pair joins", lambda o, s: o[5].update(earlier=o[5]["earlier"] + 1)),
    ("scalejoin", "a pair's rows", lambda o, s: o[5].update(ts=o[5]["ts"] + 1)),
    ("scalejoin", "a pair's rows", lambda o, s: o[-1].update(earlier=1 - o[-1]["seq"] % 2)),
    ("scalejoin", "a pair's rows", lambda o, s: o[5].update(earlier=o[5]["seq"] + 1)),
    ("scalejoin", "no pair occurs", lambda o, s: o.append(dict(o[-1], sub=99))),
    ("scalejoin", "the number of", lambda o, s: o.__delitem__(slice(0, len(o) // 3))),
    ("hedge", "a pair's trades belong", lambda o, s: o[5].update(l_price=1)),
    ("hedge", "a pair's trades belong", lambda o, s: o[5].update(r_company=o[5]["l_company"])),
    ("hedge", "a pair's trades belong", lambda o, s: o[5].update(earlier=400)),
    ("hedge", "a pair's distances", lambda o, s: o[5].update(r_price=2 * o[5]["r_price"])),
    ("hedge", "a pair's trades lie", lambda o, s: o[5].update(ts=o[5]["ts"] + 1), lambda o, s: o[-1].update(earlier=0)),
    ("hedge", "no pair occurs", lambda o, s: o.append(dict(o[-1], sub=99))),
]
WRONG = [(name, start, damage) for name, start, *damages in WRONG for damage in damages]


def invariant(name, start):
    """The one invariant of an application that begins with these words."""
    (label,) = [label for label in registry.load(name).invariants if label.startswith(start)]
    return label


@pytest.fixture(scope="module")
def right():
    """Application -> its events and a right result."""
    return {name: computed(name, params) for name, params in PARAMS.items()}


def computed(name, params):
    app = registry.load(name)
    if app.name == "lr":
        events = traffic.events()
        return app, events, by_hand.run(app, params, events)
    events = workload.generate_chunk(app, params, EVENTS, 4, 0, EVENTS)
    if name == "tp":  # its generator makes rejected reports, but no invalid ones
        column = events.column_names.index("seg")
        seg = [200, *events.column(column).to_pylist()[1:]]
        events = events.set_column(column, events.schema.field(column), pa.array(seg, pa.uint8()))
    return app, events, by_hand.run(app, params, events)


def write(folder, events, outputs, states):
    """The files an invariant reads, as views."""
    folder.mkdir()
    views = {}
    for name, table in {"events": events, "outputs": outputs, **states}.items():
        pq.write_table(table, folder / f"{name}.parquet")
        views[name] = rows_of(folder / f"{name}.parquet")
    return views


def violations(spark, queries, views):
    """(subject, invariant) -> number of violating rows, of those that have any."""
    results = evaluate(spark, queries, views)
    assert {result.error for result in results.values()} == {""}
    return {key: result.count for key, result in results.items() if result.count}


# Spark takes a second to plan each of a hundred queries: `make test` asks those of one application.
FEW = ("wc",)
SELECTIONS = [pytest.param(FEW, id="few"), pytest.param(tuple(PARAMS), id="all", marks=pytest.mark.slow)]


@pytest.mark.slow
def test_invariants_hold_on_right_results(spark, right, tmp_path):
    queries, views = [], {}
    road = {"input": "linear_road", "seconds": 120, "veh_per_s": 2.0, "segments": 99, "invalid_ratio": 0.05}
    others = {
        "windows of tp": computed("tp", {**PARAMS["tp"], "window": 1, "reports_per_s": 150}),
        "tp on a road": computed("tp", road),
        "tp as three transactions": computed("tp", {**PARAMS["tp"], "separate": True, "payload": 8, "window": 1}),
        "tp as three transactions, cut": computed("tp", {**PARAMS["tp"], "separate": True, "invalid_ratio": 0.0}),
        "gs without sums": computed("gs", {**PARAMS["gs"], "summation": False, "payload": 15}),
        "sl with larger records": computed("sl", {**PARAMS["sl"], "payload": 11}),
        "new_seg that forgets": computed("new_seg", {**PARAMS["new_seg"], "purge": 31}),
        "wordcount of bags": computed("wordcount", {**PARAMS["wordcount"], "multiplicity": "bag"}),
    }
    for index, (name, (app, events, result)) in enumerate((right | others).items()):
        views[index] = write(tmp_path / name, events, result.output_table(), result.state_tables())
        assert result.outputs
        assert result.dropped or app.kind == "windowed"  # which takes every tweet
        queries += [(index, label, sql) for label, sql in app.required_invariants("total", result.params).items()]
    assert queries
    assert violations(spark, queries, views) == {}


@pytest.mark.slow
def test_declared_invariants_hold_in_any_order_of_events(spark, right, tmp_path):
    """An unordered run is one with its events in another order. Invariants that depend on order do not hold there."""
    queries, views, broken = [], {}, set()
    for index, (name, (app, events, result)) in enumerate(right.items()):
        if app.unordered is None or app.kind == "windowed":  # windows need events in order
            continue
        order = np.random.default_rng(7).permutation(len(events))
        shuffled = events.take(order).set_column(0, events.schema.field(0), events["seq"])
        other = by_hand.run(app, app.bind(PARAMS[name]), shuffled)
        outputs = other.output_table()
        outputs = outputs.set_column(0, outputs.schema.field(0), pa.array(order[outputs["seq"].to_numpy()]))
        assert outputs_digest(app, "none", outputs) == outputs_digest(app, "none", result.output_table())
        states = [{key.removeprefix("state_"): t for key, t in r.state_tables().items()} for r in (other, result)]
        assert len({states_digest(app, "none", tables) for tables in states}) == 1
        assert outputs.sort_by([("seq", "ascending")]) != result.output_table() or name == "pos_rep"
        views[index] = write(tmp_path / name, events, outputs, other.state_tables())
        queries += [(index, label, sql) for label, sql in app.required_invariants("total", result.params).items()]
        broken |= {(index, label) for label in app.invariants.keys() - app.required_invariants("none").keys()}
    assert len(broken) == 3
    assert violations(spark, queries, views).keys() == broken


def test_each_invariant_has_a_wrong_result():
    assert {(name, invariant(name, start)) for name, start, _ in WRONG} == {
        (name, label) for name in registry.names() for label in registry.load(name).invariants
    }


@pytest.mark.parametrize("names", SELECTIONS)
@pytest.mark.slow
def test_each_invariant_detects_its_wrong_result(names, spark, right, tmp_path):
    """And finds nothing in the right result."""
    queries, views = [], {}
    for index, name in enumerate(names, len(WRONG)):
        app, events, result = right[name]
        views[index] = write(tmp_path / name, events, result.output_table(), result.state_tables())
        queries += [(index, label, sql) for label, sql in app.required_invariants("total", result.params).items()]
    wrong = [
        (index, name, invariant(name, start), damage)
        for index, (name, start, damage) in enumerate(WRONG)
        if name in names
    ]
    for index, name, label, damage in wrong:
        app, events, result = right[name]
        outputs, states = result.output_table(), result.state_tables()
        rows, state_rows = outputs.to_pylist(), {key: table.to_pylist() for key, table in states.items()}
        damage(rows, state_rows)
        outputs = pa.Table.from_pylist(rows, outputs.schema)
        states = {key: pa.Table.from_pylist(state_rows[key], table.schema) for key, table in states.items()}
        views[index] = write(tmp_path / str(index), events, outputs, states)
        queries.append((index, label, app.required_invariants("total", result.params)[label]))
    broken = violations(spark, queries, views)
    silent = [(name, label) for index, name, label, _ in wrong if (index, label) not in broken]
    assert (silent, [key for key in broken if key[0] >= len(WRONG)]) == ([], [])


@pytest.mark.slow
def test_same_sql_on_two_subjects_returns_rows_in_the_schema_of_each(spark, tmp_path):
    """Two applications may share the SQL of an invariant. Column names and types belong to the subject."""
    queries, views = [], {}
    for subject, rows in enumerate([pa.table({"n": [1]}), pa.table({"raw": pa.array([b"\x01"])})]):
        views[subject] = write(tmp_path / str(subject), rows, rows, {})
        queries.append((subject, "empty", "SELECT * FROM outputs"))
    first, second = (result.rows for result in evaluate(spark, queries, views).values())
    assert (first, second) == ([{"n": 1}], [{"raw": b"\x01"}])


def test_columns_are_known_without_rows(right):
    for app, _, result in right.values():
        tables = {"outputs": result.output_table(), **result.state_tables()}
        assert app.results(result.params) == {name: table.schema for name, table in tables.items()}, app.name


@pytest.mark.slow
def test_invariants_are_validated_before_any_run(spark, monkeypatch):
    assert refusals(spark, [*PARAMS.items()]) == [""] * len(PARAMS)
    monkeypatch.setitem(registry.load("sl").invariants, "typed", "SELECT * FORM outputs")
    monkeypatch.setitem(registry.load("sl").invariants, "unknown", "SELECT seq, monkey FROM outputs")
    (wrong,) = refusals(spark, [("sl", PARAMS["sl"])])
    assert "sl: invariant 'typed': [PARSE_SYNTAX_ERROR]" in wrong
    assert "sl: invariant 'unknown': [UNRESOLVED_COLUMN" in wrong
    assert "monkey" in wrong


def test_empty_table_has_the_columns_that_spark_reads(spark, tmp_path):
    """Of every type that a field may have."""
    kinds = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.int8(), pa.bool_(), pa.float32(), pa.binary()]
    kinds += [pa.list_(pa.struct([("key", pa.uint16()), ("value", pa.int64())])), pa.list_(pa.float64(), 3)]
    columns = pa.schema([pa.field(f"c{number}", kind) for number, kind in enumerate(kinds)])
    pq.write_table(columns.empty_table(), tmp_path / "all.parquet")
    read, empty = (spark.sql(sql).schema for sql in (rows_of(tmp_path / "all.parquet"), no_rows(columns)))
    assert [(f.name, f.dataType.simpleString()) for f in empty] == [(f.name, f.dataType.simpleString()) for f in read]
