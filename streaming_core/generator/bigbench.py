"""Two streams of TPCx-BB: clicks in a web shop, and sales in stores.

The queries of Scaling Ordered Stream Processing read them (workloads B.0.1). Sizes and shares are those of the kit's
schema at scale factor 1. NULL is -1.

A unit is a visit or a ticket. Its number addresses its draws: 1000 times the second in which the unit begins, plus its
rank within that second. A period is a day. A visit is shorter than a day, so its clicks cross midnight at most once.
"""

from functools import lru_cache

import numpy as np

from streaming_core.api import Param, i32, i64, record
from streaming_core.errors import BadInput
from streaming_core.generator.distributions import Discrete, bell, exponential, proportional, weighted
from streaming_core.generator.draws import Draws
from streaming_core.generator.periods import by_period

DAY = 86_400
RANKS = 1000  # units that may begin within a second
LINES = 64  # more than a unit has clicks or lines

_BOTH = {
    "events_per_day": Param(50_000, "average number of events per simulated day", minimum=10, maximum=20_000_000),
    "items": Param(18_000, "number of items", minimum=4, maximum=1_000_000),
    "categories": Param(9, "number of item categories: 9 as in the kit, 10 as in the paper", choices=(9, 10)),
    "mode": Param(
        "stream",
        "stream: a visit is a series of clicks, and tickets alternate line by line; "
        "kit: clicks and tickets lie at random times of the day",
        choices=("stream", "kit"),
    ),
    "begin": Param(2_452_155, "date_sk of the first day; 2452155 is 2001-09-02", minimum=0, maximum=4_000_000),
    "null_ratio": Param(0.00025, "share of NULLs in columns that may be NULL", minimum=0.0, maximum=1.0),
    "invalid_ratio": Param(0.0, "share of events with item 0, which does not exist", minimum=0.0, maximum=1.0),
}
CLICKS = {
    **_BOTH,
    "users": Param(
        10_000, "number of known users; smaller than in the kit, as is the simulated time", minimum=1, maximum=1_000_000
    ),
    "pages": Param(60, "number of web pages", minimum=1, maximum=100_000),
}
SALES = {
    **_BOTH,
    "customers": Param(100_000, "number of customers", minimum=1, maximum=1_000_000),
    "stores": Param(12, "number of stores", minimum=1, maximum=100_000),
    "trend_days": Param(
        20, "number of days over which the sales of a category rise or fall", minimum=1, maximum=100_000
    ),
}


@record
class Click:
    """A click in the web shop, as the kit's table has it; -1 stands for NULL.

    `ts` counts seconds, `date_sk` days and `time_sk` the seconds of the day. `sales_sk` is the purchase that the click
    belongs to, if there is one.
    """

    ts: i64
    date_sk: i64
    time_sk: i64
    sales_sk: i64
    item_sk: i64
    web_page_sk: i64
    user_sk: i64


@record
class Sale:
    """A line of a ticket of a store, as the kit's table has it; -1 stands for NULL.

    `ts` counts seconds, `date_sk` days and `time_sk` the seconds of the day. `net_paid` is in cents.
    """

    ts: i64
    date_sk: i64
    time_sk: i64
    item_sk: i64
    customer_sk: i64
    store_sk: i64
    ticket: i64
    quantity: i32
    net_paid: i64


# In the order of their names: 0 ad, 1 dynamic, 2 feedback, 3 general, 4 order, 5 protected, 6 review, 7 welcome.
PAGE_TYPES = ("ad", "dynamic", "feedback", "general", "order", "protected", "review", "welcome")
CATEGORIES = (79_006, 556_814, 929_263, 66_370, 82_067, 51_004, 53_600, 212_836, 68_293, 50_000)  # weights, from 1 on
# The growth of a category's sales over the days of the trend, in tenths; the sales of odd categories fall.
TREND = (-5, 1, -4, 2, -3, 3, -2, 4, -1, 5)
POPULAR = 10_000  # the first of four items that a share of all lines sells


def categories(params: dict) -> np.ndarray:
    """Return the category of each item as int64, from 1 on, or -1; item 0 does not exist."""
    draws = Draws(0, "bb.items", 0, params["items"] + 1)
    category = 1 + weighted(CATEGORIES[: params["categories"]]).pick(draws.u53(0))
    category[draws.chance(1, params["null_ratio"])] = -1
    category[0] = -1
    return category


def page_types(params: dict) -> np.ndarray:
    """Return the type of each page as int64, an index into PAGE_TYPES; page 0 does not exist."""
    return Draws(0, "bb.pages", 0, params["pages"] + 1).below(0, len(PAGE_TYPES))


def chosen(numbers: str, highest: int) -> np.ndarray:
    """Return 1 at each number of a list, and 0 at the others of 0..highest, as int64; ignore higher numbers."""
    flags = np.zeros(highest + 1, np.int64)
    for word in numbers.split(","):
        if not (word.strip().isascii() and word.strip().isdigit()):
            raise BadInput(f"a list must be numbers separated by commas, such as 1,2,3; got {numbers!r}")
        if int(word) <= highest:
            flags[int(word)] = 1
    return flags


def sales(params: dict, seed: int, day: int) -> dict[str, np.ndarray]:
    """Make the lines of a day's tickets: a period of `store_sales`. `net_paid` is in cents, below 3,000,000.

    All lines of a ticket have one second. In mode `stream`, the tickets of a second take turns, line by line. In mode
    `kit`, they follow one another, with lines by item.
    """
    ticket, second, size = _tickets(params, seed, day)
    of = np.repeat(np.arange(len(ticket)), size)
    line = np.arange(len(of)) - np.repeat(np.cumsum(size) - size, size)
    each = Draws(seed, "bb.ticket", units=ticket)
    lines = Draws(seed, "bb.line", units=ticket[of] * LINES + line)

    item = 1 + _items(params["items"]).pick(lines.u53(0))
    quantity = 1 + lines.below(1, 100)
    wholesale = 100 + lines.below(2, 9_901)
    listed = wholesale * (MILLION + lines.below(3, MILLION + 1)) // MILLION
    amount = quantity * (listed * lines.below(4, MILLION + 1) // MILLION)
    coupon = np.where(lines.chance(5, 0.2), amount * lines.below(6, MILLION + 1) // MILLION, 0)
    days = params["trend_days"]
    growth = np.array([0, *TREND, 0])[categories(params)[item]] * min(day, days)  # -1, no category: the last one
    paid = (amount - coupon) * (10 * days + growth) // (10 * days)

    date = np.full(len(of), params["begin"] + day)
    customer = (1 + _people(params["customers"]).pick(each.u53(1)))[of]
    store = (1 + each.below(2, params["stores"]))[of]
    for d, column in enumerate((date, customer, store)):
        column[lines.chance(7 + d, params["null_ratio"])] = -1
    item[lines.chance(10, params["invalid_ratio"])] = 0
    columns = {
        "ts": (params["begin"] + day) * DAY + second[of],
        "date_sk": date,
        "time_sk": second[of],
        "item_sk": item,
        "customer_sk": customer,
        "store_sk": store,
        "ticket": ticket[of],
        "quantity": quantity,
        "net_paid": paid,
    }
    ties = (ticket[of], line) if params["mode"] == "stream" else (item, ticket[of])
    order = np.lexsort((*ties, second[of]))
    return {name: values[order] for name, values in columns.items()}


def clicks(params: dict, seed: int, day: int, by_type: bool = False) -> dict[str, np.ndarray]:
    """Make the clicks of a day: a period of `web_clickstreams`.

    Of the clicks of one user and second, those without a sale come first, then lower items. With `by_type`, the name of
    the page's type decides before that.
    """
    days = [day] if params["mode"] == "kit" or day == 0 else [day - 1, day]
    parts = [_visited(_key(params), seed, d) for d in days]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    second = columns.pop("second") - day * DAY
    rows = np.flatnonzero((second >= 0) & (second < DAY))
    columns, second = {name: values[rows] for name, values in columns.items()}, second[rows]
    ties = [columns["item_sk"], columns["sales_sk"] >= 0]
    if by_type:
        kind = page_types(params)[columns["web_page_sk"]]
        ties.append(np.where(columns["web_page_sk"] < 0, -1, kind))
    order = np.lexsort((*ties, columns["user_sk"], second))
    columns = {name: values[order] for name, values in columns.items()}
    date, second = params["begin"] + day, second[order]
    return {"ts": date * DAY + second, "date_sk": np.full(len(second), date), "time_sk": second, **columns}


def _count_sales(params: dict, seed: int, day: int) -> int:
    return int(_tickets(params, seed, day)[2].sum())


def _count_clicks(params: dict, seed: int, day: int) -> int:
    days = [day] if params["mode"] == "kit" or day == 0 else [day - 1, day]
    seconds = np.concatenate([_clicked(params, seed, d)[0] for d in days]) - day * DAY
    return int(((seconds >= 0) & (seconds < DAY)).sum())


def _clicks_by_type(params: dict, seed: int, day: int) -> dict[str, np.ndarray]:
    return clicks(params, seed, day, by_type=True)


store_sales = by_period(sales, _count_sales)
web_clickstreams = by_period(clicks, _count_clicks)
web_clickstreams_by_type = by_period(_clicks_by_type, _count_clicks)

# --- units ------------------------------------------------------------------------------------------------------------

MILLION = 1_000_000
LINES_OF_TICKET = 7.5  # 1..14
CLICKS_OF_VISIT = 15.2  # four visitors of 11..21, one buyer of 3..6 and 1..14


def _arrivals(params: dict, seed: int, name: str, day: int, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the units that begin on a day, and the second in which each begins: a Poisson process."""
    law = _poisson(params["events_per_day"] / (DAY * size))
    count = law.pick(Draws(seed, name, day * DAY, (day + 1) * DAY).u53(0))
    second = np.repeat(np.arange(day * DAY, (day + 1) * DAY), count)
    rank = np.arange(len(second)) - np.repeat(np.cumsum(count) - count, count)
    return second * RANKS + rank, second


def _tickets(params: dict, seed: int, day: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the tickets of a day, with the second of the day and the number of lines of each."""
    ticket, second = _arrivals(params, seed, "bb.tickets", day, LINES_OF_TICKET)
    draws = Draws(seed, "bb.ticket", units=ticket)
    second = second - day * DAY if params["mode"] == "stream" else draws.below(3, DAY)
    return ticket, second, 1 + draws.below(0, 14)


def _clicked(params: dict, seed: int, day: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the clicks of the visits that begin on a day.

    Returns:
        By click: the second of the stream, the index of the visit, and the number of the click within the visit. By
        visit: its number, and how many of its clicks are no purchases.
    """
    visit, start = _arrivals(params, seed, "bb.visits", day, CLICKS_OF_VISIT)
    draws = Draws(seed, "bb.visit", units=visit)
    buyer = draws.chance(0, 0.2)
    looks = np.where(buyer, 3 + draws.below(1, 4), 11 + draws.below(1, 11))
    size = looks + np.where(buyer, 1 + draws.below(2, 14), 0)
    of = np.repeat(np.arange(len(visit)), size)
    first = np.cumsum(size) - size
    number = np.arange(len(of)) - first[of]
    each = Draws(seed, "bb.click", units=visit[of] * LINES + number)
    if params["mode"] == "kit":
        return day * DAY + each.below(0, DAY), of, number, visit, looks
    passed = np.cumsum(np.where(number == 0, 0, _gaps().pick(each.u53(0))))
    return (start - passed[first])[of] + passed if len(of) else start, of, number, visit, looks


def _key(params: dict) -> tuple:
    return tuple(sorted(params.items()))


@lru_cache(maxsize=2)  # visits of a day also have clicks on the next one
def _visited(key: tuple, seed: int, day: int) -> dict[str, np.ndarray]:
    """Return the columns of a day's visits, visit by visit, with the `second` of the stream instead of `ts`."""
    params = dict(key)
    second, of, number, visit, looks = _clicked(params, seed, day)
    each, draws = Draws(seed, "bb.click", units=visit[of] * LINES + number), Draws(seed, "bb.visit", units=visit)
    bought = number >= looks[of]
    popular, any_item = _items(params["items"]).pick(each.u53(1)), each.below(1, params["items"])
    item = 1 + np.where(bought, popular, any_item)
    page = 1 + each.below(2, params["pages"])
    known = np.where(draws.chance(3, 0.5), 1 + draws.below(4, params["users"]), -1)
    user = np.where(draws.chance(0, 0.2), 1 + _people(params["users"]).pick(draws.u53(4)), known)[of]
    for d, column in enumerate((item, page, user)):
        column[each.chance(3 + d, params["null_ratio"])] = -1
    item[each.chance(6, params["invalid_ratio"])] = 0
    return {
        "second": second,
        "sales_sk": np.where(bought, visit[of], -1),
        "item_sk": item,
        "web_page_sk": page,
        "user_sk": user,
    }


# --- laws -------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _items(n: int) -> Discrete:
    """Return the law of the item of a line: 5 % are one of four items, 40 % are normal, 55 % uniform."""
    weights = 0.40 * bell(n, 60.0) + 0.55 / n
    first = min(POPULAR, n - 3) - 1
    weights[first : first + 4] += 0.05 / 4
    return proportional(weights)


@lru_cache(maxsize=4)
def _people(n: int) -> Discrete:
    """Return the law of customers: half of the draws are normal, half uniform."""
    return proportional(0.5 * bell(n, 400.0) + 0.5 / n)


@lru_cache(maxsize=1)
def _gaps() -> Discrete:
    """Return the law of the whole seconds between two clicks: exponential with mean 60.

    The longest gap is 3000 seconds, so a visit stays one session.
    """
    ends = 1.0 - exponential(np.arange(1, 3_002) / -60.0)
    ends[-1] = 1.0
    return proportional(np.diff(ends, prepend=0.0))


@lru_cache(maxsize=4)
def _poisson(mean: float) -> Discrete:
    """Return the law of the number of arrivals within a second."""
    weights = [float(exponential(np.array([-mean]))[0])]
    while len(weights) <= mean or weights[-1] > 1e-18:
        weights.append(weights[-1] * mean / len(weights))
    return proportional(np.array(weights[:RANKS]))
