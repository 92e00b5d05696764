"""TPCx-BB query 4: the average number of pages in web sessions that end with an abandoned shopping cart.

    web_clickstreams -> browsing (stateless) -> session (partitioned by user) -> abandoned (stateless)
                     -> average (stateful) -> sink

The query comes from Scaling Ordered Stream Processing, table 1.

A session ends when its user is silent for more than `timeout` seconds. The user's next click, or the end of the stream,
closes it. Its cart is abandoned if its last dynamic page comes after its last order page. Each such session emits the
average so far, in tenths of a page, with halves rounded up.
"""

from streaming_core.api import App, Param, Profile, i64, record, u8
from streaming_core.generator import bigbench
from streaming_core.generator.bigbench import Click

app = App(
    "q4",
    reads="Scaling Ordered Stream Processing, table 1; TPCx-BB, query 4",
    params={
        **bigbench.CLICKS,
        "timeout": Param(3_600, "longest silence within a session, in seconds", minimum=0, maximum=1_000_000_000),
    },
    profiles={
        "q4-kit": Profile(
            "the times and the number of users of the kit: most sessions have one or two clicks",
            {"mode": "kit", "users": 100_000},
        ),
    },
)
p = app.params
DYNAMIC, ORDER = (bigbench.PAGE_TYPES.index(name) for name in ("dynamic", "order"))


@record
class Page:
    """A page that a known user viewed: its time in seconds and its type, an index into PAGE_TYPES."""

    ts: i64
    user: i64
    type: u8


@record
class Visit:
    """The open session of a user: its number, its pages, and the last page of either type (from 1 on; 0: none)."""

    last: i64
    session: i64
    pages: i64
    order: i64
    dynamic: i64


@record
class Session:
    """A closed session: its number of pages, and the positions of its last order and last dynamic page (0: none)."""

    pages: i64
    order: i64
    dynamic: i64


@record
class Abandoned:
    """A session that ended with an abandoned cart: its number of pages."""

    pages: i64


@record
class Sum:
    """The number of abandoned sessions so far, and the total of their pages."""

    n: i64
    total: i64


@record
class Average:
    """The average so far in tenths of a page, with the number of sessions and their total of pages."""

    n: i64
    total: i64
    tenths: i64


@app.constant
def page_type(params):
    """Return the type of each page."""
    return bigbench.page_types(params)


def browsing(row, out):
    """Keep the views of a page by a known user, and drop clicks on items or pages that do not exist."""
    if row.item_sk == 0 or row.item_sk > p.items or row.web_page_sk == 0 or row.web_page_sk > p.pages:
        out.drop()
    if row.web_page_sk > 0 and row.user_sk >= 0 and row.sales_sk < 0:
        out.emit(ts=row.ts, user=row.user_sk, type=page_type[row.web_page_sk])


def session(row, state, out):
    """Add a page to its user's open session; first close a session that has been silent for too long."""
    if state.session == 0:
        state.session = 1
    elif row.ts - state.last > p.timeout:
        close(state, out)
        state.session += 1
        state.pages = 0
        state.order = 0
        state.dynamic = 0
    state.last = row.ts
    state.pages += 1
    if row.type == ORDER:
        state.order = state.pages
    if row.type == DYNAMIC:
        state.dynamic = state.pages


def close(state, out):
    """Emit the open session of a user."""
    out.emit(pages=state.pages, order=state.order, dynamic=state.dynamic)


def abandoned(row, out):
    """Keep sessions whose last dynamic page comes after their last order page."""
    if row.dynamic > row.order:
        out.emit(pages=row.pages)


def average(row, state, out):
    """Add a session to the sums, and emit the new average."""
    state.n += 1
    state.total += row.pages
    # This is 10 * total / n with halves rounded up, in whole numbers.
    out.emit(n=state.n, total=state.total, tenths=(20 * state.total + state.n) // (2 * state.n))


pages = app.source(Click).flat_map(browsing, Page).key_by("user")
sessions = pages.process(session, state=Visit, output=Session, flush=close)
sessions.flat_map(abandoned, Abandoned).process(average, state=Sum, output=Average).sink()

app.generates(bigbench.web_clickstreams_by_type)

app.invariant(
    "each output covers one session more than the one before, with at least one page",
    """SELECT * FROM (SELECT *, row_number() OVER (ORDER BY seq, sub) AS nth,
    lag(total, 1, 0) OVER (ORDER BY seq, sub) AS before FROM outputs) WHERE n <> nth OR total <= before""",
)
app.invariant(
    "the average is total / number in tenths, with halves rounded up",
    "SELECT * FROM outputs WHERE tenths <> floor((20 * total + n) / (2 * n))",
)
app.invariant(
    "the last output holds the final sums",
    """SELECT s.n, s.total, o.n AS last_n, o.total AS last_total FROM state_average s
    LEFT JOIN outputs o ON o.n = (SELECT max(n) FROM outputs)
    WHERE s.n <> coalesce(o.n, 0) OR s.total <> coalesce(o.total, 0)""",
)
KEPT = "user_sk >= 0 AND web_page_sk > 0 AND item_sk <> 0 AND sales_sk < 0"

app.invariant(
    "the average covers no more sessions and pages than the users had",
    f"""SELECT * FROM state_average, (SELECT sum(session) AS sessions FROM state_session),
    (SELECT count(*) AS pages FROM events WHERE {KEPT}) WHERE n > sessions OR total > pages""",
)
app.invariant(
    "a user's last session ends with the user's last page, and an only session has all pages",
    f"""SELECT s.key, s.session, s.pages, s.last, e.pages AS all_pages, e.last AS newest FROM state_session s
    FULL OUTER JOIN (SELECT user_sk, count(*) AS pages, max(ts) AS last FROM events WHERE {KEPT} GROUP BY user_sk) e
    ON s.key = e.user_sk WHERE s.key IS NULL OR e.user_sk IS NULL OR s.last <> e.last OR s.pages > e.pages
    OR (s.session = 1) <> (s.pages = e.pages) OR s.order > s.pages OR s.dynamic > s.pages
    OR (s.order = s.dynamic AND s.order > 0)""",
)


@app.property
def abandoned_sessions_are_those_of_the_pages(stream):
    """The sums cover the sessions whose last dynamic page comes after their last order page."""
    params, sessions = stream.params, []
    visits: dict = {}
    last: dict = {}
    types = bigbench.page_types(params).tolist()
    for event in stream.events:
        ts, user, page, item = (event[name] for name in ("ts", "user_sk", "web_page_sk", "item_sk"))
        if user < 0 or not 0 < page <= params["pages"] or not item or item > params["items"] or event["sales_sk"] >= 0:
            continue
        if user in last and stream.wrap(ts - last[user]) > params["timeout"]:
            sessions.append(visits.pop(user))
        visits.setdefault(user, []).append(types[page])
        last[user] = ts
    left = []
    for pages in [*sessions, *visits.values()]:
        if [page for page in pages if page in (DYNAMIC, ORDER)][-1:] == [DYNAMIC]:
            left.append(len(pages))
    assert stream.state("average") == {None: {"n": len(left), "total": sum(left)}}
