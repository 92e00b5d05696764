"""TPCx-BB query 15: the categories of items that a store sells less of, or no more of, as time goes by.

    store_sales -> wanted (stateless) -> of_category (stateless) -> regression (partitioned by category) -> sink

The query comes from Scaling Ordered Stream Processing, table 1.

The sales of a category, in cents per day, are points (x, y): x is the number of the day within the chosen dates. Days
without sales have no point. A day ends at the category's next sale on a later day, or at the end of the stream. Then
the operator fits the least-squares line y = slope x + intercept through all days so far. It emits the line if it does
not rise.
"""

from streaming_core.api import App, Param, Profile, i32, i64, record
from streaming_core.generator import bigbench
from streaming_core.generator.bigbench import Sale

app = App(
    "q15",
    reads="Scaling Ordered Stream Processing, table 1; TPCx-BB, query 15",
    params={
        **bigbench.SALES,
        "store": Param(10, "the store to examine", minimum=1, maximum=100_000),
        "from_date": Param(2_452_155, "date_sk of the first day to examine", minimum=0, maximum=4_000_000),
        "span": Param(366, "number of days to examine; 366 days are 2001-09-02 to 2002-09-02", minimum=1, maximum=401),
    },
    profiles={
        "q15-kit": Profile(
            "the times of the kit: sales start on 2001-01-01, and the query examines them from 2001-09-02 on",
            {"mode": "kit", "begin": 2_451_911},
        ),
        "q15-ten": Profile("ten categories, as in the paper", {"categories": 10}),
    },
)
p = app.params
MOST = 9_999_999  # cents: a decimal(7, 2)
BITS = 31
LOW = (1 << BITS) - 1


@record
class Paid:
    """A sale of the examined store and dates: the day, the item, and the price in cents."""

    date: i64
    item: i64
    paid: i64


@record
class Point:
    """A sale of a category: x is the day within the chosen dates, y the price in cents."""

    category: i64
    x: i64
    y: i64


@record
class Sums:
    """Sums over the n days up to x. One sale more than 2^31 - 1 overflows `lines`: an error, not a wrong sum."""

    category: i64
    n: i64
    x: i64
    lines: i32
    sx: i64
    sy: i64
    sxx: i64
    sxy: i64


@record
class Line:
    """A line: its exact slope is slope + slope_rest / divisor, in cents per day, with 0 <= slope_rest < divisor."""

    category: i64
    n: i64
    slope: i64
    slope_rest: i64
    intercept: i64
    intercept_rest: i64
    divisor: i64


@app.constant
def category(params):
    """Return the category of each item, or -1."""
    return bigbench.categories(params)


def wanted(row, out):
    """Keep the sales of the examined store and dates, and drop lines whose item or price is invalid."""
    if row.item_sk == 0 or row.item_sk > p.items or row.net_paid > MOST:
        out.drop()
    known = row.date_sk >= 0 and row.item_sk > 0 and row.net_paid >= 0
    if known and row.store_sk == p.store and p.from_date <= row.date_sk < p.from_date + p.span:
        out.emit(date=row.date_sk, item=row.item_sk, paid=row.net_paid)


def of_category(row, out):
    """Turn a sale into a point of its item's category; items without a category leave no point."""
    if category[row.item] >= 0:
        out.emit(category=category[row.item], x=row.date - p.from_date, y=row.paid)


def regression(row, state, out):
    """Add a sale to the sums of its category; the first sale of a later day evaluates the days before it."""
    if state.n == 0 or row.x != state.x:
        evaluate(state, out)
        state.category = row.category
        state.n += 1
        state.x = row.x
        state.sx += row.x
        state.sxx += row.x * row.x
    state.lines += 1
    state.sy += row.y
    state.sxy += row.x * row.y


# Why nothing overflows:
#
# - x <= 400 and n <= 401. So sx <= 80 200 and sxx <= 21 413 400.
# - divisor = n sxx - sx^2 is largest for the days 0..400: 401^2 (401^2 - 1) / 12 = 2 154 733 400 < 1.01 * 2^31.
# - There are fewer than 2^31 lines of less than 10^7 cents. So sy < 2.15 * 10^16 and sxy <= 400 sy < 2^63.
# - n sxy does not fit. So a sum is cut into high * 2^31 + low, and so is each term that is linear in it.
# - slope * divisor = n sxy - sx sy, with high < 2^41 + 2^41 and low < 2^40 + 2^48.
# - intercept * divisor = sxx sy - sx sxy, with high < 2^48 + 2^49 and low < 2^56 + 2^48.
# - The remainder of `high` is below divisor. So (remainder << 31) + low < 2^62.1 + 2^56.1 < 2^63.
# - |slope| <= 2 sy.
# - The intercept is the sum of y_i times (sxx - sx x_i) / divisor. This factor is largest in size for two neighbouring
#   days, and at most 400. So |intercept| <= 400 sy < 2^63.
def evaluate(state, out):
    """Fit the least-squares line through all days so far, and emit it if it does not rise."""
    n = state.n
    divisor = n * state.sxx - state.sx * state.sx
    if n < 2 or divisor == 0:
        return
    sx = state.sx
    sxx = state.sxx
    y_high = state.sy >> BITS
    y_low = state.sy & LOW
    xy_high = state.sxy >> BITS
    xy_low = state.sxy & LOW
    high = n * xy_high - sx * y_high
    low = n * xy_low - sx * y_low
    slope = quotient(high, low, divisor)
    slope_rest = remainder(high, low, divisor)
    if slope < 0 or (slope == 0 and slope_rest == 0):
        high = sxx * y_high - sx * xy_high
        low = sxx * y_low - sx * xy_low
        out.emit(
            category=state.category,
            n=n,
            slope=slope,
            slope_rest=slope_rest,
            intercept=quotient(high, low, divisor),
            intercept_rest=remainder(high, low, divisor),
            divisor=divisor,
        )


def quotient(high, low, divisor):
    """Return (high * 2^31 + low) // divisor."""
    return ((high // divisor) << BITS) + (((high % divisor) << BITS) + low) // divisor


def remainder(high, low, divisor):
    """Return (high * 2^31 + low) % divisor."""
    return (((high % divisor) << BITS) + low) % divisor


points = app.source(Sale).flat_map(wanted, Paid).flat_map(of_category, Point).key_by("category")
points.process(regression, state=Sums, output=Line, flush=evaluate).sink()

app.generates(bigbench.store_sales)

app.invariant(
    "a line does not rise, and its fractions are smaller than 1",
    """SELECT * FROM outputs WHERE slope > 0 OR (slope = 0 AND slope_rest > 0) OR n < 2 OR divisor < 1
    OR slope_rest < 0 OR slope_rest >= divisor OR intercept_rest < 0 OR intercept_rest >= divisor""",
)
app.invariant(
    "each line of a category covers more days than the one before",
    """SELECT * FROM (SELECT *, lag(n) OVER (PARTITION BY category ORDER BY seq, sub) AS before FROM outputs)
    WHERE n <= before""",
)
app.invariant(
    "a category's last line follows exactly from its final sums, if it does not rise",
    """SELECT * FROM (SELECT s.*, o.category AS falls, o.divisor, o.slope, o.slope_rest, o.intercept, o.intercept_rest,
        o.n AS days, CAST(s.n AS DECIMAL(38, 0)) * s.sxy - CAST(s.sx AS DECIMAL(38, 0)) * s.sy AS rise,
        CAST(s.sxx AS DECIMAL(38, 0)) * s.sy - CAST(s.sx AS DECIMAL(38, 0)) * s.sxy AS height
        FROM state_regression s LEFT JOIN
        (SELECT * FROM outputs WHERE seq > (SELECT max(seq) FROM events)) o ON s.key = o.category)
    WHERE key <> category OR (falls IS NULL AND n >= 2 AND rise <= 0) OR (falls IS NOT NULL AND (days <> n
    OR divisor <> n * sxx - sx * sx OR CAST(slope AS DECIMAL(38, 0)) * divisor + slope_rest <> rise
    OR CAST(intercept AS DECIMAL(38, 0)) * divisor + intercept_rest <> height))""",
)
app.invariant(
    "a category has no more days than the stream, and all categories no more sales than one store",
    """SELECT * FROM (SELECT sum(lines) AS lines, sum(sy) AS paid, max(n) AS most FROM state_regression),
    (SELECT max(lines) AS all_lines, max(paid) AS all_paid FROM
        (SELECT count(*) AS lines, sum(net_paid) AS paid FROM events WHERE item_sk > 0 GROUP BY store_sk)),
    (SELECT count(DISTINCT date_sk) AS days FROM events WHERE date_sk >= 0)
    WHERE lines > all_lines OR paid > all_paid OR most > days""",
)
