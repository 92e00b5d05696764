"""The page "From SQL": NEXMark's queries in SQL and as applications, from the files in streaming_core/apps/nexmark."""

from __future__ import annotations

import ast
from pathlib import Path

from infra.reference.markdown import block, next_pages, paragraph, table
from infra.reference.markdown import page as whole_page
from streaming_core.apps import registry

IDIOMS = (
    ("`SELECT a, b AS c, f(x) AS y`", '`.select("a", c="b", y=(i64, lambda row: ...))`'),
    ("`WHERE`", "`.filter(lambda row: ...)`"),
    ("`TUMBLE`, `HOP`, `SESSION`", '`.window(tumbling("10s"))`, `sliding("10s", every="2s")`, `session("10s")`'),
    ("`GROUP BY k` of a window", '`.key_by("k").window(...).aggregate(n=agg.count())`'),
    ("`GROUP BY k` of all rows", '`.key_by("k").window(global_window()).aggregate(...)`'),
    ("`count(*) FILTER (WHERE ...)`", "`agg.count(where=lambda row: ...)`"),
    ("`ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) <= n`", '`.key_by("k").window(...).top(n, by="x")`'),
    ("`RANK() OVER (...) <= n`", '`.top(n, by="x", ties=True)`'),
    ("`a JOIN table ON a.x = table.id`", '`a.lookup(table, on="x")`, with `table = app.lookup_table(...)`'),
    ("`a JOIN b ON a.x = b.y`", '`app.join(a, b, on={"x": "y"}, ...)`'),
    ("`CASE`, `REGEXP_EXTRACT`, a function of your own", "a function, in Python"),
)
EVENTS, OPEN = "Its state is empty: each row leaves with its event.", "Its memory grows with"
COSTS = dict.fromkeys((0, 1, 2, 14, 21, 22), EVENTS) | {
    3: f"{OPEN} the auctions of category 10 and the people of three states.",
    4: f"{OPEN} all auctions and bids: a bid may come before its auction.",
    5: "Its memory holds a count for each auction and each of the five windows that are open.",
    6: f"{OPEN} all auctions and bids.",
    7: "Its memory holds the best rows of one window. All bids meet in one state, on one thread.",
    8: "Its memory holds a row for each person and seller of one window.",
    9: f"{OPEN} all auctions and bids, with their texts.",
    11: "Its memory holds a count for each session that is open.",
    13: f"{EVENTS} All threads share the side table.",
    15: "Its memory holds each bidder and auction of a day once for each rank. All bids meet in one state.",
    16: "Its memory holds each bidder and auction of a day once for each channel and rank.",
    17: "Its memory holds ten numbers for each auction of a day.",
    18: f"{OPEN} the pairs of bidder and auction: a row for each.",
    19: f"{OPEN} the auctions: ten rows for each.",
    20: f"{OPEN} all bids and the auctions of category 10.",
    23: f"{OPEN} all people, auctions and bids. The second join keeps the pairs of the first one, too.",
}


def page() -> str:
    """The text of the page."""
    queries = sorted(int(name.removeprefix("nexmark_q")) for name in registry.names("nexmark"))
    return whole_page(
        "`streaming_core/apps/nexmark`",
        "From SQL",
        paragraph(
            "This page is for readers who know streaming SQL. It shows the queries of "
            "[NEXMark](https://github.com/nexmark/nexmark) in SQL. Each is followed by the Lockstep application with "
            "the same answer."
        ),
        table(("SQL", "Lockstep"), IDIOMS),
        paragraph(
            "The SQL here is that of DuckDB, which sees all events at once. Times are numbers of milliseconds. Tests "
            "compare the answers of both on every [executor](../glossary.md#executor)."
        ),
        paragraph(
            "Flink's SQL emits a change whenever the result of an unbounded query changes. Lockstep emits the result "
            "once, at the end of the stream; with `early=n` also the results so far. A query of windows emits the "
            "result of each window when it ends, in both."
        ),
        paragraph(
            "Two queries have no application, because their answer depends on the clock of the machine. Query 10 "
            "writes files by the time at which bids arrive. Query 12 counts bids in windows of that time. "
            "Lockstep's results depend on the events alone."
        ),
        "All queries begin alike:",
        block(_head(registry.load("nexmark_q4").file), "python"),
        *(part for number in queries for part in _section(number)),
        next_pages(
            "[Import NEXMark's data](../how-to/import-data.md#import-nexmarks-data): run the queries on them.",
            "[Windows](windows.md): what they compute, and when results leave.",
            "[Language](../reference/language.md): what an application may contain.",
        ),
    )


def _section(number: int) -> list[str]:
    app = registry.load(f"nexmark_q{number}")
    file = Path(app.file)
    about = " ".join(app.doc.split()).removeprefix(f"NEXMark query {number}: ")
    return [
        f"## Query {number}",
        paragraph(f"{about[0].upper()}{about[1:]} {COSTS[number]}"),
        block(file.with_suffix(".sql").read_text().splitlines(), "sql"),
        block(_body(file), "python"),
    ]


def _head(file: str) -> list[str]:
    """The lines of an application down to its sources, without the docstring."""
    lines, first, last = _parts(Path(file))
    return lines[first:last]


def _body(file: Path) -> list[str]:
    """The lines of an application behind its sources."""
    lines, _, last = _parts(file)
    return "\n".join(lines[last:]).strip().splitlines()


def _parts(file: Path) -> tuple[list[str], int, int]:
    """The lines of an application, and the numbers of the lines behind its docstring and behind its sources."""
    source = file.read_text()
    _, first, *statements = ast.parse(source).body
    sources = next(statement for statement in statements if "nexmark.streams(app)" in ast.unparse(statement))
    return source.splitlines(), first.lineno - 1, sources.end_lineno or 0
