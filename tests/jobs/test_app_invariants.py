"""Every application's invariants hold on a right result, and each of them finds a wrong one."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.invariants import find, no_rows, refusals, rows_of
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
    "tpk": {"segments": 3, "vehicles": 200, "invalid_ratio": 0.05},
    "wc": {"vocabulary": 30, "words": 4, "invalid_ratio": 0.05},
    "fd": {"entities": 20, "window": 3, "threshold_e4": 9300, "invalid_ratio": 0.05},
    "sd": {"devices": 3, "window": 20, "spike_ratio": 0.05, "invalid_ratio": 0.05},
    "q1": {"items": 30, "threshold": 1, "limit": 9, "events_per_day": 1_000, "invalid_ratio": 0.05},
    "q2": {"items": 20, "users": 6, "emit_every": 50, "limit": 7, "width": 4, "invalid_ratio": 0.05},
    "q3": {"items": 40, "users": 6, "limit": 4, "invalid_ratio": 0.05},
    "q4": {"users": 6, "invalid_ratio": 0.05, "events_per_day": 1_000},
    "q15": {"items": 60, "stores": 2, "store": 1, "events_per_day": 40, "invalid_ratio": 0.05},
    "matrix": {"d": 2, "s": 2, "r": 1, "keys": 3, "sel": 1.5, "sel_keyed": 1.3, "invalid_ratio": 0.05},
    "pos_rep": {"seconds": 120, "veh_per_s": 0.5, "request_ratio": 0.2, "invalid_ratio": 0.05},
    "new_seg": {"seconds": 120, "veh_per_s": 0.5, "request_ratio": 0.2, "invalid_ratio": 0.05},
    "lr": {},
    "brisk_wc": {"vocabulary": 30, "words": 4, "invalid_ratio": 0.05},
    "brisk_lr": {},
    "wordcount": {"vocabulary": 40, "rate": 5.0, "advance": 10_000, "size": 25_000},
    "paircount": {"vocabulary": 20, "rate": 5.0, "advance": 10_000, "size": 25_000, "level": "M"},
    "hashtag": {"hashtags": 5, "rate": 5.0, "advance": 10_000, "size": 25_000},
    "forward": {"copies": 3},
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
    one = first(rows, lambda r: r["kind"] == 0 and r["ok"])
    other = last(rows, lambda r: r["kind"] == 0 and r["ok"] and r["qty"] != one["qty"])
    one["qty"], other["qty"] = other["qty"], one["qty"]


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


MONEY = "a final balance is the initial one, plus all accepted credits, minus all accepted debits"

OB_ONE = (
    "each valid event has one answer of its kind; authorised orders succeed, and unauthorised events have no effect"
)
OB_SOLD = "an item's final quantity is the initial one, plus additions, minus sales"
OB_SEES = "a bid sees the latest asking prices, and the quantities after all earlier events"
OB_JUST = "a bid for one item is accepted exactly when price and quantity suffice"
TP_ONE = "each valid report has one output with its vehicle and segment, and other reports have none"
TP_REJECTED = "a report is rejected exactly when its speed is negative, and its results are then 0"
TP_TOLL = "the toll follows from the speed and the number of vehicles in the same output"
TP_PULLS = "a report moves its segment's average halfway to its speed, and the first report sets it"
TP_GROWS = "a segment's count grows by at most one, and shrinks only when a new window starts"
TP_ENDS = "a segment's final state is that after its last accepted report"
TP_VEHICLES = "a segment's set holds the vehicles that reported from it since its window started, each once"
TPK_VEHICLES = "a segment's set holds the vehicles that reported from it, each once, and its count is their number"
LR_ANSWERS = "a report has three answers and at most one warning, a balance or expenditure request one answer"
LR_NOTIFIED = "a vehicle is told a toll exactly when it enters a segment other than to leave the road"
LR_TOLL = "a toll follows from the velocity, the number of vehicles and the accident in the same output"
LR_CROWD = "a segment's number of vehicles is the number that reported from it in the minute"
LR_COUNT = "a toll uses the number of vehicles in the minute before"
LR_PACE = "a segment's velocity after its last report of a minute is the mean of all vehicles over five minutes"
LR_VELOCITY = "a toll uses the velocity at the end of the minute before"
LR_WARNED = "a vehicle that enters a segment is warned exactly when an accident is ahead"
LR_ACCIDENT = "an accident is where, in the minute before, two vehicles stood in the same place"
LR_BALANCE = "a balance is the sum of all payments before the request"
LR_ACCOUNT = "an account's final state is the sum that its vehicle paid and the toll that it still owes"
LR_HISTORY = "an expenditure equals that in the history of tolls"
NEW_FIRST = "a vehicle's first report, and each report from another segment than the one before, is forwarded"
NEW_STAYED = "of reports from the same segment, exactly those after the longest silences are forwarded"
NEW_LAST = "a vehicle's final state is its last report"
FX_ONE = "each valid event has one answer of its kind, and other events have none"
FX_QUOTE = "a quote sets its rate exactly when the other rate is close enough; the other rate stays"
FX_MOVES = "a swap exchanges two balances, and a transfer moves the converted share"
FX_ENDS = "a transfer uses the latest rates, and a row's final value is the last one shown, or the initial one"
TB_ONE = "each valid event has one answer of its kind, and other events have none"
TB_TWICE = "the number taken lies between 0 and the capacity"
TB_SEES = "an event sees the numbers taken by all events before it, and the final numbers follow from all events"
TB_JUST = "a booking is accepted exactly when stock and budget suffice, a cancellation when as much was taken"

Q1_ORDER = "a list is sorted by count, then by smaller item, then by larger item, and the two items differ"
Q1_LISTS = "each hour in which a ticket has two items has one list"
Q1_PAIRS = "a pair's count is the number of tickets of the hour with both items"
Q1_HOUR = "the last hour has n(n-1)/2 pairs for each ticket of n items"
Q1_BASKET = "a basket holds the wanted items of its ticket, each once"
Q2_ORDER = "a list is sorted by count, then by first item, then by second item, and the two items differ"
Q2_GROWS = "no count shrinks"
Q2_ENDS = "the last list holds the final counts, and their total covers all pairs"
Q2_SESSION = "a user's last session ends with the user's last view, and holds only viewed items, each once"
Q3_ORDER = "a list is sorted by count, then by item"
Q3_CAUSE = "a list names the item of its purchase"
Q3_GROWS = "two successive lists of an item differ by at most as many views as a user's memory holds"
Q3_ENDS = "the last list of an item holds its highest final counts"
Q3_VIEWS = "a count is at most the number of such views among the last clicks before a purchase"
Q4_ONE = "each output covers one session more than the one before, with at least one page"
Q4_AVERAGE = "the average is total / number in tenths, with halves rounded up"
Q4_ENDS = "the last output holds the final sums"
Q4_MOST = "the average covers no more sessions and pages than the users had"
Q4_SESSION = "a user's last session ends with the user's last page, and an only session has all pages"
Q15_FALLS = "a line does not rise, and its fractions are smaller than 1"
Q15_GROWS = "each line of a category covers more days than the one before"
Q15_ENDS = "a category's last line follows exactly from its final sums, if it does not rise"
Q15_SALES = "a category has no more days than the stream, and all categories no more sales than one store"
MATRIX_EVENT = "an output has the key of its event, and the outputs of an event are in order"
MATRIX_COUNT = "the tuples of a key are numbered in order, up to the final count"
MATRIX_SUM = "the outputs of a key's last tuple hold the checksum of its final state"
MATRIX_COPIES = "the numbers of outputs of two tuples differ by at most one"

WORDS_SUM = "the counts of a window add up to the number of words in its tweets"
WORDS_ONCE = "a window lists a word once, with a count of at least 1"
PAIRS_SUM = "the counts of a window add up to the number of pairs in its tweets"
PAIRS_ONCE = "a window lists a pair once, with a count of at least 1"
WINDOW_END = "a window ends one size after a multiple of the advance"
WINDOW_LEAVES = "a window's counts leave with the first tweet at or after its end, or at the end of the stream"
WINDOW_ORDER = "if one tweet ends several windows, the earlier windows leave first"
TAGS_MAX = "a window lists each of its hashtags with the length of the longest tweet"
TAGS_ONCE = "a window lists a hashtag once"
TAGS_LEAVE = "a window's hashtags leave with the first tweet at or after its end, or at the end of the stream"
FORWARD_SAME = "each output is an unchanged tweet, stamped one millisecond later"
FORWARD_ALL = "every instance forwards each tweet once; with `once`, the instances take turns"
JOIN_PAIR = "a pair joins an unchanged left row and an unchanged right row that are close to each other"
JOIN_WINDOW = "a pair's rows lie in one window, and the pair is stamped one millisecond after the later row"
JOIN_ONCE = "no pair occurs twice in the output"
JOIN_COUNT = "the number of pairs is close to that expected from the number of comparisons"
HEDGE_PAIR = "a pair's trades belong to two companies and have the prices of their events"
HEDGE_BAND = "a pair's distances from the averages are opposite, within five percent"
HEDGE_WINDOW = "a pair's trades lie in one window, and the pair is stamped one millisecond after the later trade"
HEDGE_ONCE = "no pair occurs twice with the same left trade"
FORWARD_ORDER = "the copies of a tweet leave in the order of the instances"


def lose_all(rows, **same):
    """Every row like the first one in these columns is lost."""
    rows[:] = [row for row in rows if any(row[name] != value for name, value in same.items())]


def exchange(rows, column, which):
    """Swap the values of one column in the first two matching rows."""
    one, other = [row for row in rows if which(row)][:2]
    one[column], other[column] = other[column], one[column]


def exchange_windows(rows):
    """Rows of two windows that leave at the end of the stream have traded places."""
    one = last(rows, lambda row: True)
    other = last(rows, lambda row: row["seq"] == one["seq"] and row["ts"] < one["ts"])
    one["sub"], other["sub"] = other["sub"], one["sub"]


# (application, invariant that must fail, change of outputs and states)
WRONG = [
    (
        "gs",
        "each valid event has one output of its kind, with sum 0 for a write; other events have none",
        lambda o, s: lose(o),
    ),
    (
        "gs",
        "a record's final value is that of its last write, or the initial one",
        lambda o, s: s["state_items"][7].update(value=-1),
    ),
    (
        "gs",
        "a read sums the latest earlier write of each record",
        lambda o, s: set_first(o, lambda r: r["is_read"], total=5),
    ),
    (
        "gs",
        "each valid event has one output of its kind, with sum 0 for a write; other events have none",
        lambda o, s: set_first(o, lambda r: not r["is_read"], is_read=True),
    ),
    (
        "gs",
        "each valid event has one output of its kind, with sum 0 for a write; other events have none",
        lambda o, s: set_first(o, lambda r: not r["is_read"], mixed=1),
    ),
    (
        "sl",
        "each valid event has one output of its kind, and other events have none",
        lambda o, s: o.append(dict(o[0], sub=1)),
    ),
    ("sl", MONEY, lambda o, s: move_money(s["state_accounts"])),
    ("sl", MONEY, lambda o, s: move_money(s["state_assets"])),
    ("sl", MONEY, lambda o, s: set_first(o, lambda r: r["kind"] == 1 and r["ok"], ok=False)),
    ("sl", "no balance is negative", lambda o, s: set_first(o, lambda r: r["kind"] == 1, dst_acct=-1)),
    ("sl", "no balance is negative", lambda o, s: s["state_assets"][2].update(balance=-1)),
    (
        "sl",
        "all deposits are accepted, and a transfer exactly when its sources suffice",
        lambda o, s: set_first(o, lambda r: r["kind"] == 0, ok=False),
    ),
    (
        "sl",
        "all deposits are accepted, and a transfer exactly when its sources suffice",
        lambda o, s: set_first(o, lambda r: r["kind"] == 1 and r["ok"], ok=False),
    ),
    (
        "sl",
        "all deposits are accepted, and a transfer exactly when its sources suffice",
        lambda o, s: set_first(o, lambda r: r["kind"] == 1 and not r["ok"], ok=True),
    ),
    (
        "sl",
        "each valid event has one output of its kind, and other events have none",
        lambda o, s: set_first(o, lambda r: r["kind"] == 1, kind=0),
    ),
    ("ob", OB_ONE, lambda o, s: lose(o)),
    ("ob", OB_ONE, lambda o, s: o.append(dict(o[0], sub=1))),
    ("ob", OB_ONE, lambda o, s: set_first(o, lambda r: r["kind"] == 1, kind=2)),
    ("ob", OB_ONE, lambda o, s: set_first(o, lambda r: r["kind"] == 2, ok=False)),
    ("ob", OB_ONE, lambda o, s: set_first(o, lambda r: not r["auth"], ok=True)),
    ("ob", OB_ONE, lambda o, s: set_first(o, lambda r: r["auth"], auth=False, ok=False, ask=0, qty=0)),
    ("ob", OB_SOLD, lambda o, s: s["state_goods"][4].update(qty=s["state_goods"][4]["qty"] + 1)),
    ("ob", OB_SOLD, lambda o, s: last(o, lambda r: r["kind"] == 0 and r["ok"]).update(ok=False)),
    (
        "ob",
        "an item's final asking price is that of its last ALTER",
        lambda o, s: shift(s["state_goods"], "ask"),
    ),
    ("ob", "no quantity is ever negative", lambda o, s: set_first(o, lambda r: r["kind"] == 0, qty=-1)),
    ("ob", "no quantity is ever negative", lambda o, s: s["state_goods"][2].update(qty=-1)),
    ("ob", OB_SEES, lambda o, s: last(o, lambda r: r["kind"] == 0 and r["auth"]).update(ask=100)),
    ("ob", OB_SEES, lambda o, s: swap_quantities(o)),
    ("ob", OB_JUST, lambda o, s: last(o, lambda r: r["kind"] == 0 and r["ok"]).update(ok=False)),
    ("ob", OB_JUST, lambda o, s: last(o, lambda r: r["kind"] == 0 and r["auth"] and not r["ok"]).update(ok=True)),
    ("tp", TP_ONE, lambda o, s: lose(o)),
    ("tp", TP_ONE, lambda o, s: o[7].update(vid=1_000)),
    ("tp", TP_ONE, lambda o, s: o[7].update(seg=(o[7]["seg"] + 1) % 3)),
    ("tp", TP_REJECTED, lambda o, s: set_first(o, lambda r: r["ok"], ok=False, speed=0.0, count=0, toll=0)),
    ("tp", TP_REJECTED, lambda o, s: set_first(o, lambda r: not r["ok"], ok=True)),
    ("tp", TP_REJECTED, lambda o, s: set_first(o, lambda r: not r["ok"], count=1)),
    ("tp", TP_TOLL, lambda o, s: set_first(o, lambda r: r["toll"] > 0, toll=1)),
    ("tp", TP_TOLL, lambda o, s: set_first(o, lambda r: r["toll"] == 0, toll=2)),
    ("tp", TP_PULLS, lambda o, s: shift(o, "speed")),
    ("tp", TP_PULLS, lambda o, s: set_first(o, lambda r: r["ok"], speed=-1.0)),
    ("tp", TP_GROWS, lambda o, s: last(o, lambda r: r["ok"]).update(count=900)),
    ("tp", TP_GROWS, lambda o, s: last(o, lambda r: r["ok"]).update(count=1)),
    ("tp", TP_ENDS, lambda o, s: shift(s["state_speeds"], "average")),
    ("tp", TP_ENDS, lambda o, s: s["state_presence"][1].update(count=3)),
    ("tp", TP_VEHICLES, lambda o, s: s["state_presence"][1]["vehicles"].pop()),
    ("tp", TP_VEHICLES, lambda o, s: s["state_presence"][1]["vehicles"].__setitem__(0, 1_000)),
    ("tp", TP_VEHICLES, lambda o, s: s["state_presence"][2].update(count=1)),
    ("tb", TB_ONE, lambda o, s: lose(o)),
    ("tb", TB_ONE, lambda o, s: o[3].update(kind=1 - o[3]["kind"])),
    ("tb", TB_TWICE, lambda o, s: s["state_hotels"][0].update(taken=s["state_hotels"][0]["capacity"] + 1)),
    ("tb", TB_TWICE, lambda o, s: s["state_flights"][0].update(taken=-1)),
    ("tb", TB_SEES, lambda o, s: last(o, lambda r: r["kind"] == 0).update(back=7_000)),
    ("tb", TB_SEES, lambda o, s: shift(s["state_hotels"], "taken")),
    ("tb", TB_SEES, lambda o, s: set_first(o, lambda r: r["ok"], ok=False)),
    ("tb", TB_JUST, lambda o, s: set_first(o, lambda r: r["ok"] and r["kind"] == 0, ok=False)),
    ("tb", TB_JUST, lambda o, s: set_first(o, lambda r: not r["ok"] and r["kind"] == 1, ok=True)),
    ("tb", TB_JUST, lambda o, s: set_first(o, lambda r: r["ok"] and r["kind"] == 0, cost=1 << 40)),
    ("fx", FX_ONE, lambda o, s: lose(o)),
    ("fx", FX_ONE, lambda o, s: o[3].update(kind=(o[3]["kind"] + 1) % 3)),
    ("fx", FX_QUOTE, lambda o, s: last(o, lambda r: r["kind"] == 0).update(one=1)),
    ("fx", FX_QUOTE, lambda o, s: last(o, lambda r: r["kind"] == 0).update(other=1)),
    ("fx", FX_MOVES, lambda o, s: last(o, lambda r: r["kind"] == 1).update(one=1)),
    ("fx", FX_MOVES, lambda o, s: last(o, lambda r: r["kind"] == 1).update(other=1)),
    ("fx", FX_MOVES, lambda o, s: last(o, lambda r: r["kind"] == 2).update(other=1)),
    ("fx", FX_ENDS, lambda o, s: set_first(o, lambda r: r["kind"] == 1, one_rate=1)),
    ("fx", FX_ENDS, lambda o, s: shift(s["state_accounts"], "balance")),
    ("fx", FX_ENDS, lambda o, s: shift(s["state_currencies"], "rate")),
    ("tpk", TP_ONE, lambda o, s: lose(o)),
    ("tpk", TP_ONE, lambda o, s: o[7].update(vid=1_000)),
    ("tpk", TP_ONE, lambda o, s: lose(s["state_road_speed"])),
    ("tpk", TP_REJECTED, lambda o, s: set_first(o, lambda r: r["ok"], ok=False, speed=0.0, count=0, toll=0)),
    ("tpk", TP_REJECTED, lambda o, s: set_first(o, lambda r: not r["ok"], count=1)),
    ("tpk", TP_TOLL, lambda o, s: set_first(o, lambda r: r["toll"] > 0, toll=1)),
    ("tpk", TP_TOLL, lambda o, s: set_first(o, lambda r: r["toll"] == 0, toll=2)),
    ("tpk", TP_PULLS, lambda o, s: shift(o, "speed")),
    ("tpk", TP_ENDS, lambda o, s: shift(s["state_road_speed"], "average")),
    ("tpk", TPK_VEHICLES, lambda o, s: s["state_vehicle_count"][1]["vehicles"].pop()),
    ("tpk", TPK_VEHICLES, lambda o, s: s["state_vehicle_count"][2].update(count=1)),
    ("wc", "the n-th occurrence of a word has count n", lambda o, s: set_first(o, lambda r: r["n"] == 2, n=1)),
    ("wc", "a sentence has one output per word", lambda o, s: lose(o, lambda r: r["sub"] == 3)),
    ("wc", "a word's final count is its number of outputs", lambda o, s: s["state_count"][4].update(n=1)),
    ("wc", "a word's final count is its number of outputs", lambda o, s: lose(s["state_count"])),
    ("fd", "each valid line has one signal with its entity, and other lines have none", lambda o, s: lose(o)),
    (
        "fd",
        "each valid line has one signal with its entity, and other lines have none",
        lambda o, s: o[5].update(entity=b"E999999999"),
    ),
    ("fd", "an entity has no score before its window is full", lambda o, s: o[0].update(score=1)),
    ("fd", "a score lies between 0 and 1", lambda o, s: o[9].update(score=(1 << 32) + 1)),
    (
        "fd",
        "no outlier scores lower than a transaction that is not an outlier",
        lambda o, s: set_first(o, lambda r: r["outlier"], outlier=False),
    ),
    ("sd", "each valid reading has one output with its device, and other lines have none", lambda o, s: lose(o)),
    (
        "sd",
        "each valid reading has one output with its device, and other lines have none",
        lambda o, s: o[5].update(device=99),
    ),
    (
        "sd",
        "an average lies between the smallest and the largest reading of its device so far",
        lambda o, s: o[50].update(average=3_000_000),
    ),
    (
        "sd",
        "no spike has a smaller relative deviation than a reading that is not a spike",
        lambda o, s: max(o, key=lambda r: abs(r["value"] - r["average"]) / r["average"]).update(spike=False),
    ),
    ("sd", "a device's final sum is that of its window", lambda o, s: s["state_moving_average"][0].update(total=1)),
    ("q1", Q1_ORDER, lambda o, s: set_first(o, lambda r: r["rank"] == 0, a=1_000)),
    ("q1", Q1_ORDER, lambda o, s: set_first(o, lambda r: r["rank"] == 1, n=1_000)),
    ("q1", Q1_ORDER, lambda o, s: lose(o, lambda r: r["rank"] == 0)),
    ("q1", Q1_ORDER, lambda o, s: set_first(o, lambda r: r["rank"] == -1, n=1)),
    ("q1", Q1_LISTS, lambda o, s: lose_all(o, window=o[-1]["window"])),
    ("q1", Q1_LISTS, lambda o, s: set_first(o, lambda r: r["rank"] == 1, seq=399)),
    ("q1", Q1_PAIRS, lambda o, s: set_first(o, lambda r: r["rank"] == 0, n=9)),
    ("q1", Q1_PAIRS, lambda o, s: last(o, lambda r: r["rank"] == 1).update(b=31)),
    ("q1", Q1_HOUR, lambda o, s: max(s["state_count"], key=lambda r: r["window"]).update(n=99)),
    ("q1", Q1_HOUR, lambda o, s: s["state_rank"][0].update(counts=1)),
    ("q1", Q1_BASKET, lambda o, s: last(s["state_basket"], lambda r: len(r["items"]) > 2)["items"].pop()),
    ("q1", Q1_BASKET, lambda o, s: first(s["state_basket"], lambda r: True)["items"].append(31)),
    ("q2", Q2_ORDER, lambda o, s: lose(o, lambda r: r["rank"] == 2)),
    ("q2", Q2_ORDER, lambda o, s: set_first(o, lambda r: r["rank"] == 2, n=1_000)),
    ("q2", Q2_ORDER, lambda o, s: exchange(o, "b", lambda r: r["n"] == o[0]["n"] and r["seq"] == o[0]["seq"])),
    ("q2", Q2_GROWS, lambda o, s: o[-7].update(n=0)),
    ("q2", Q2_ENDS, lambda o, s: o[-1].update(n=o[-1]["n"] - 1)),
    ("q2", Q2_ENDS, lambda o, s: last(s["state_count"], lambda r: r["n"] == 1).update(n=2)),
    ("q2", Q2_ENDS, lambda o, s: lose_all(o, seq=o[-1]["seq"])),
    ("q2", Q2_SESSION, lambda o, s: s["state_session"][0]["items"].append(21)),
    ("q2", Q2_SESSION, lambda o, s: s["state_session"][0]["items"].pop()),
    ("q2", Q2_SESSION, lambda o, s: s["state_session"][1].update(last=0)),
    ("q2", Q2_SESSION, lambda o, s: lose(s["state_session"])),
    ("q3", Q3_ORDER, lambda o, s: last(o, lambda r: r["rank"] == 1).update(n=1_000)),
    ("q3", Q3_ORDER, lambda o, s: lose(o, lambda r: r["seq"] == last(o, lambda x: x["rank"] == 1)["seq"])),
    ("q3", Q3_CAUSE, lambda o, s: set_first(o, lambda r: True, bought=41)),
    ("q3", Q3_GROWS, lambda o, s: last(o, lambda r: r["rank"] == 0).update(n=100)),
    ("q3", Q3_ENDS, lambda o, s: o[-1].update(viewed=41)),
    ("q3", Q3_ENDS, lambda o, s: lose_all(o, bought=o[-1]["bought"])),
    ("q3", Q3_ENDS, lambda o, s: s["state_count"][0]["counts"][0].update(value=77)),
    ("q3", Q3_VIEWS, lambda o, s: s["state_count"][0]["counts"][0].update(value=77)),
    ("q3", Q3_VIEWS, lambda o, s: s["state_count"][0]["counts"][0].update(key=41)),
    ("q4", Q4_ONE, lambda o, s: lose(o)),
    ("q4", Q4_ONE, lambda o, s: o[1].update(total=o[0]["total"])),
    ("q4", Q4_AVERAGE, lambda o, s: o[-1].update(tenths=o[-1]["tenths"] + 1)),
    ("q4", Q4_ENDS, lambda o, s: s["state_average"][0].update(total=7)),
    ("q4", Q4_ENDS, lambda o, s: o.pop()),
    ("q4", Q4_MOST, lambda o, s: s["state_average"][0].update(total=400)),
    ("q4", Q4_MOST, lambda o, s: s["state_average"][0].update(n=400)),
    ("q4", Q4_SESSION, lambda o, s: s["state_session"][0].update(last=0)),
    ("q4", Q4_SESSION, lambda o, s: set_first(s["state_session"], lambda r: r["session"] > 1, session=1)),
    ("q4", Q4_SESSION, lambda o, s: s["state_session"][0].update(order=400)),
    ("q15", Q15_FALLS, lambda o, s: o[0].update(slope=1)),
    ("q15", Q15_FALLS, lambda o, s: o[0].update(slope_rest=-1)),
    ("q15", Q15_GROWS, lambda o, s: last(o, lambda r: r["n"] > 2).update(n=2)),
    ("q15", Q15_ENDS, lambda o, s: o[-1].update(slope_rest=o[-1]["slope_rest"] + 1)),
    ("q15", Q15_ENDS, lambda o, s: o[-1].update(intercept=o[-1]["intercept"] - 1)),
    ("q15", Q15_ENDS, lambda o, s: o.pop()),
    ("q15", Q15_ENDS, lambda o, s: s["state_regression"][2].update(sy=1)),
    ("q15", Q15_SALES, lambda o, s: s["state_regression"][0].update(lines=400)),
    ("q15", Q15_SALES, lambda o, s: s["state_regression"][0].update(n=40)),
    ("matrix", MATRIX_EVENT, lambda o, s: o[0].update(key=3)),
    ("matrix", MATRIX_EVENT, lambda o, s: lose(o, lambda r: r["seq"] == first(o, lambda x: x["copy"] == 1)["seq"])),
    ("matrix", MATRIX_COPIES, lambda o, s: lose_all(o, key=o[0]["key"], n=o[0]["n"])),
    ("matrix", MATRIX_EVENT, lambda o, s: set_first(o, lambda r: r["copy"] == 1, copy=2)),
    ("matrix", MATRIX_COUNT, lambda o, s: o[0].update(n=400)),
    ("matrix", MATRIX_COUNT, lambda o, s: o[-1].update(n=1)),
    ("matrix", MATRIX_SUM, lambda o, s: o[-1].update(checksum=(o[-1]["checksum"] + 1) % (1 << 32))),
    ("matrix", MATRIX_SUM, lambda o, s: s["state_fold"][1]["words"].__setitem__(0, 5)),
    ("matrix", MATRIX_COPIES, lambda o, s: o.extend(dict(o[-1], sub=o[-1]["sub"] + k) for k in (1, 2, 3))),
    ("pos_rep", "each valid position report has one output, and other events have none", lambda o, s: lose(o)),
    (
        "pos_rep",
        "each valid position report has one output, and other events have none",
        lambda o, s: o.append({**o[-1], "seq": EVENTS}),
    ),
    ("pos_rep", "a report is forwarded unchanged", lambda o, s: o[7].update(lane=5)),
    (
        "new_seg",
        "a valid position report has at most one output, and other events have none",
        lambda o, s: o.append({**o[-1], "sub": 1}),
    ),
    (
        "new_seg",
        "a valid position report has at most one output, and other events have none",
        lambda o, s: o.append({**o[-1], "seq": EVENTS}),
    ),
    ("new_seg", "a report is forwarded unchanged, with `new_seg` set", lambda o, s: o[7].update(pos=5)),
    ("new_seg", "a report is forwarded unchanged, with `new_seg` set", lambda o, s: o[7].update(new_seg=False)),
    ("new_seg", NEW_FIRST, lambda o, s: lose(o)),
    ("new_seg", NEW_STAYED, lambda o, s: forward_one_more(o)),
    ("new_seg", NEW_LAST, lambda o, s: s["state_new_seg"][3].update(seg=100)),
    ("new_seg", NEW_LAST, lambda o, s: lose(s["state_new_seg"])),
    ("lr", LR_ANSWERS, lambda o, s: lose(o)),
    ("lr", LR_ANSWERS, lambda o, s: o.append({**o[-1], "seq": 9_999})),
    ("lr", LR_NOTIFIED, lambda o, s: set_first(o, lambda r: r["kind"] == 0 and r["value"] < 0, value=0)),
    ("lr", LR_NOTIFIED, lambda o, s: set_first(o, lambda r: r["leaves"], leaves=False)),
    ("lr", LR_TOLL, lambda o, s: set_first(o, lambda r: r["kind"] == 0 and r["value"] > 0, value=0)),
    ("lr", LR_CROWD, lambda o, s: last(o, lambda r: r["kind"] == 1).update(value=99)),
    ("lr", LR_COUNT, lambda o, s: set_first(o, lambda r: r["kind"] == 0 and r["value"] > 0, count=52)),
    ("lr", LR_PACE, lambda o, s: last(o, lambda r: r["kind"] == 2).update(value=50)),
    ("lr", LR_VELOCITY, lambda o, s: set_first(o, lambda r: r["kind"] == 0 and r["value"] > 0, velocity=1)),
    ("lr", LR_WARNED, lambda o, s: lose(o, lambda r: r["kind"] == 3)),
    ("lr", LR_ACCIDENT, lambda o, s: set_first(o, lambda r: r["kind"] == 3, segment=2)),
    ("lr", LR_BALANCE, lambda o, s: last(o, lambda r: r["kind"] == 4 and r["value"] > 0).update(value=0)),
    ("lr", LR_ACCOUNT, lambda o, s: set_first(s["state_account_balance"], lambda r: r["balance"] > 0, balance=0)),
    ("lr", LR_HISTORY, lambda o, s: set_first(o, lambda r: r["kind"] == 5, value=5)),
    *(
        (name, label, damage)
        for name, total, once in (("wordcount", WORDS_SUM, WORDS_ONCE), ("paircount", PAIRS_SUM, PAIRS_ONCE))
        for label, damage in (
            (total, lambda o, s: lose(o)),
            (total, lambda o, s: o[-1].update(n=o[-1]["n"] + 1)),
            (total, lambda o, s: lose_all(o, ts=o[0]["ts"])),
            (total, lambda o, s: lose_all(o, ts=o[-1]["ts"])),
            (once, lambda o, s: o.append(dict(o[-1], sub=o[-1]["sub"] + 1))),
            (once, lambda o, s: o[0].update(n=0)),
            (WINDOW_END, lambda o, s: o[5].update(ts=o[5]["ts"] + 5_000)),
            (WINDOW_LEAVES, lambda o, s: o[5].update(seq=o[5]["seq"] + 1)),
            (WINDOW_LEAVES, lambda o, s: o[5].update(seq=o[5]["seq"] - 1)),
            (WINDOW_LEAVES, lambda o, s: o[-1].update(seq=EVENTS - 1)),
            (WINDOW_LEAVES, lambda o, s: o[-1].update(seq=EVENTS + 1)),
            (WINDOW_ORDER, lambda o, s: exchange_windows(o)),
        )
    ),
    ("hashtag", TAGS_MAX, lambda o, s: o[0].update(chars=o[0]["chars"] + 1)),
    ("hashtag", TAGS_MAX, lambda o, s: o[-1].update(hashtag=b"t9")),
    ("hashtag", TAGS_MAX, lambda o, s: o[3].update(ts=o[3]["ts"] + 5_000)),
    ("hashtag", TAGS_MAX, lambda o, s: o.pop()),
    ("hashtag", TAGS_ONCE, lambda o, s: o.append(dict(o[-1], sub=o[-1]["sub"] + 1))),
    ("hashtag", TAGS_LEAVE, lambda o, s: o[-1].update(seq=EVENTS - 1)),
    ("hashtag", TAGS_LEAVE, lambda o, s: o[0].update(seq=o[0]["seq"] + 1)),
    ("hashtag", WINDOW_ORDER, lambda o, s: exchange_windows(o)),
    ("forward", FORWARD_SAME, lambda o, s: o[7].update(ts=o[7]["ts"] - 1)),
    ("forward", FORWARD_SAME, lambda o, s: o[7].update(user=-1)),
    ("forward", FORWARD_SAME, lambda o, s: o[7].update(text=b"")),
    ("forward", FORWARD_ALL, lambda o, s: lose(o)),
    ("forward", FORWARD_ALL, lambda o, s: o.append(dict(o[-1], sub=3))),
    ("forward", FORWARD_ALL, lambda o, s: o[7].update(instance=3)),
    ("forward", FORWARD_ALL, lambda o, s: lose_all(o, seq=0)),
    ("forward", FORWARD_ORDER, lambda o, s: exchange(o, "instance", lambda r: r["seq"] == 9)),
    ("scalejoin", JOIN_PAIR, lambda o, s: o[5].update(x=o[5]["x"] + 1)),
    ("scalejoin", JOIN_PAIR, lambda o, s: o[5].update(b=o[5]["b"] + 1)),
    ("scalejoin", JOIN_PAIR, lambda o, s: o[5].update(d=not o[5]["d"])),
    ("scalejoin", JOIN_PAIR, lambda o, s: o[5].update(earlier=o[5]["earlier"] + 1)),
    ("scalejoin", JOIN_WINDOW, lambda o, s: o[5].update(ts=o[5]["ts"] + 1)),
    ("scalejoin", JOIN_WINDOW, lambda o, s: o[-1].update(earlier=1 - o[-1]["seq"] % 2)),
    ("scalejoin", JOIN_WINDOW, lambda o, s: o[5].update(earlier=o[5]["seq"] + 1)),
    ("scalejoin", JOIN_ONCE, lambda o, s: o.append(dict(o[-1], sub=99))),
    ("scalejoin", JOIN_COUNT, lambda o, s: o.__delitem__(slice(0, len(o) // 3))),
    ("hedge", HEDGE_PAIR, lambda o, s: o[5].update(l_price=1)),
    ("hedge", HEDGE_PAIR, lambda o, s: o[5].update(r_company=o[5]["l_company"])),
    ("hedge", HEDGE_PAIR, lambda o, s: o[5].update(earlier=400)),
    ("hedge", HEDGE_BAND, lambda o, s: o[5].update(r_price=2 * o[5]["r_price"])),
    ("hedge", HEDGE_WINDOW, lambda o, s: o[5].update(ts=o[5]["ts"] + 1)),
    ("hedge", HEDGE_WINDOW, lambda o, s: o[-1].update(earlier=0)),
    ("hedge", HEDGE_ONCE, lambda o, s: o.append(dict(o[-1], sub=99))),
]
# The shapes that BriskStream publishes have the invariants of ours.
WRONG += [(f"brisk_{name}", label, damage) for name, label, damage in WRONG if name in ("wc", "lr")]


@pytest.fixture(scope="module")
def right():
    """Application -> its events and a right result."""
    return {name: computed(name, params) for name, params in PARAMS.items()}


def computed(name, params):
    app = registry.load(name)
    if app.name in ("lr", "brisk_lr"):
        events = traffic.events()
        return app, events, by_hand.run(app, params, events)
    events = workload.generate_chunk(app, params, EVENTS, 4, 0, EVENTS)
    if name in ("tp", "tpk"):  # their generator makes rejected reports, but no invalid ones
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
    answers = find(spark, queries, views)
    assert {held.error for held in answers.values()} == {""}
    return {key: held.count for key, held in answers.items() if held.count}


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
        "tpk on a road": computed("tpk", road),
        "new_seg that forgets": computed("new_seg", {**PARAMS["new_seg"], "purge": 31}),
        "wordcount of bags": computed("wordcount", {**PARAMS["wordcount"], "multiplicity": "bag"}),
        "paircount of bags": computed("paircount", {**PARAMS["paircount"], "multiplicity": "bag", "level": "H"}),
        "forward in turn": computed("forward", {"copies": 3, "once": True}),
    }
    for index, (name, (app, events, result)) in enumerate((right | others).items()):
        views[index] = write(tmp_path / name, events, result.output_table(), result.state_tables())
        assert result.outputs
        assert result.dropped or app.kind == "windowed"  # which takes every tweet
        queries += [(index, label, sql) for label, sql in app.holds("total", result.params).items()]
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
        queries += [(index, label, sql) for label, sql in app.holds("total", result.params).items()]
        broken |= {(index, label) for label in app.invariants.keys() - app.holds("none").keys()}
    assert len(broken) == 4
    assert violations(spark, queries, views).keys() == broken


def test_each_invariant_has_a_wrong_result():
    assert {(name, label) for name, label, _ in WRONG} == {
        (name, label) for name in registry.names() for label in registry.load(name).invariants
    }


@pytest.mark.parametrize("names", SELECTIONS)
def test_each_invariant_detects_its_wrong_result(names, spark, right, tmp_path):
    """And finds nothing in the right result."""
    queries, views = [], {}
    for index, name in enumerate(names, len(WRONG)):
        app, events, result = right[name]
        views[index] = write(tmp_path / name, events, result.output_table(), result.state_tables())
        queries += [(index, label, sql) for label, sql in app.holds("total", result.params).items()]
    wrong = [(index, *one) for index, one in enumerate(WRONG) if one[0] in names]
    for index, name, label, damage in wrong:
        app, events, result = right[name]
        outputs, states = result.output_table(), result.state_tables()
        rows, state_rows = outputs.to_pylist(), {key: table.to_pylist() for key, table in states.items()}
        damage(rows, state_rows)
        outputs = pa.Table.from_pylist(rows, outputs.schema)
        states = {key: pa.Table.from_pylist(state_rows[key], table.schema) for key, table in states.items()}
        views[index] = write(tmp_path / str(index), events, outputs, states)
        queries.append((index, label, app.holds("total", result.params)[label]))
    broken = violations(spark, queries, views)
    silent = [(name, label) for index, name, label, _ in wrong if (index, label) not in broken]
    assert silent == []
    assert [key for key in broken if key[0] >= len(WRONG)] == []


def test_same_sql_on_two_subjects_returns_rows_in_the_schema_of_each(spark, tmp_path):
    """Two applications may share the SQL of an invariant. Column names and types belong to the subject."""
    queries, views = [], {}
    for subject, rows in enumerate([pa.table({"n": [1]}), pa.table({"raw": pa.array([b"\x01"])})]):
        views[subject] = write(tmp_path / str(subject), rows, rows, {})
        queries.append((subject, "empty", "SELECT * FROM outputs"))
    first, second = (held.rows for held in find(spark, queries, views).values())
    assert first == [{"n": 1}]
    assert second == [{"raw": b"\x01"}]


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
