"""Sentences beside TStream's claims, made from the rows of an experiment.

Each function returns a `Text`: a function from rows to text, or is one. A text leaves out what the rows lack, and is
empty if they lack all of it. Comparisons name an interval, and say that no difference was seen if there was none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from streaming_core.bench.ratios import Row, best, compare, most, pick, quantity, threads_of, versus
from streaming_core.run import probe

APPS = ("gs", "sl", "ob", "tp")
BASELINES = ("lock", "mvlk", "pat")
PUBLISHED, BOUND = "tstream", "no_lock"
# Our schemes: the default, and the one for workloads that gain nothing from threads.
DEFAULT = "owners"
OURS = (DEFAULT, "serial")
WAITING = ("sync", "lock")  # the parts of a breakdown that the paper's figure 1 calls access overhead

Text = Callable[[list[Row]], str]


def each(names: Iterable[str], text: Callable[[str], str]) -> str:
    """Return `gs: ...; sl: ...`, without the names that have no text."""
    return "; ".join(f"{name}: {sentence}" for name in names if (sentence := text(name)))


def widest(rows: list[Row], **having: Any) -> Row | None:
    """Return the row with the most threads that has these values, or None."""
    return pick(rows, threads=most(rows), **having) if rows else None


def best_of(rows: list[Row], ways: Iterable[str], column: str = "events_per_s", **having: Any) -> Row | None:
    """Return the best of these ways with the most threads: the highest throughput, or the lowest latency."""
    known = [row for way in ways if (row := widest(rows, way=way, **having))]
    if column.endswith("_us"):
        return min((row for row in known if row.get(column) is not None), key=lambda row: row[column], default=None)
    return best(known, column)


def share(row: Row | None, *parts: str) -> float | None:
    """Return the share of these parts in the time of an event, or None without a breakdown."""
    spent = (row or {}).get("breakdown") or {}
    total = sum(ns for ns in spent.values() if ns)
    return sum(spent[part] for part in parts) / total if total else None


def percent(row: Row | None, *parts: str) -> str:
    """Return the share of these parts as `12 %`, or ""."""
    part = share(row, *parts)
    return "" if part is None else _percent(part)


def _percent(part: float) -> str:
    return f"{part:.0%}".replace("%", " %")


def host_cores(rows: list[Row]) -> str:
    """Return how many threads the rows have, where the paper has 40 cores."""
    threads = most(rows) if rows else 1
    return "" if threads >= 40 else f"The paper has 40 cores. These rows have at most {threads} threads."


def host_sockets(rows: list[Row]) -> str:
    """Return that no memory is remote, if so."""
    nodes = len(probe.topology()["nodes"])
    if nodes > 1:
        return f"This machine has {nodes} memory nodes; the paper's has 4. The time for remote memory is an estimate."
    return (
        "This machine has one memory node, so no access is remote. The paper's has 4 sockets: a local access takes "
        "142.6 ns, a remote one 327.5 ns."
    )


# Figure 1.


def overhead(*ways: str) -> Text:
    """Make the share of waiting and locking in the time of an event, by threads."""

    def text(rows: list[Row]) -> str:
        def shares(way: str) -> str:
            own = sorted((row for row in rows if row["way"] == way and row["result"] == "equal"), key=threads)
            return ", ".join(f"{percent(row, *WAITING)} on {threads_of(row)}" for row in own if percent(row, *WAITING))

        return each(ways, shares)

    return text


def threads(row: Row) -> int:
    """Return the number of threads of a row."""
    return row["threads"]


# Figure 8.


def over_baselines(ways: Iterable[str], column: str = "events_per_s", apps: Iterable[str] = APPS) -> Text:
    """Compare the best of these ways with the best baseline, for each application."""
    return lambda rows: each(
        apps,
        lambda app: versus(best_of(rows, ways, column, app=app), best_of(rows, BASELINES, column, app=app), column),
    )


def over_each(way: str, others: Iterable[str], apps: Iterable[str] = APPS) -> Text:
    """Compare a way with each of the others, for each application."""

    def text(rows: list[Row]) -> str:
        def sentence_of(app: str) -> str:
            one = widest(rows, app=app, way=way)
            return ", ".join(filter(None, (versus(one, widest(rows, app=app, way=other)) for other in others)))

        return each(apps, sentence_of)

    return text


def below_bound(ways: Iterable[str]) -> Text:
    """Compare the bound with the best of these ways, for each application."""
    return lambda rows: each(
        APPS, lambda app: versus(widest(rows, app=app, way=BOUND, result="bound"), best_of(rows, ways, app=app))
    )


def with_dependencies(ways: Iterable[str]) -> Text:
    """Compare the gain over PAT on SL with that on the other applications."""

    def text(rows: list[Row]) -> str:
        gains = {}
        for app in APPS:
            one, other = best_of(rows, ways, app=app), widest(rows, app=app, way="pat")
            if one and other:
                gains[app] = compare(one, other)
        if "sl" not in gains or len(gains) == 1:
            return ""
        others = ", ".join(f"{app} {ratio.text}" for app, ratio in gains.items() if app != "sl")
        return f"throughput relative to PAT: sl {gains['sl'].text}; {others}"

    return text


# Section VI-A, and the cost of the algorithm.

# The steps of `tstream`, as its costs name them. All but the rounds are compute mode.
STEPS = ("planning", "decomposition", "insertion", "rounds", "barriers", "post_processing", "delivery")


def steps(rows: list[Row]) -> Iterator[str]:
    """Add `steps` to the rows of `tstream`: nanoseconds of an event by step. Yields them, and what an interval has."""
    for row in rows:
        if (costs := row.get("costs")) and row.get("scheme") == "tstream":
            row["steps"] = {step: costs[step] for step in STEPS}
            spent = ", ".join(f"{step.replace('_', '-')} {ns:.0f}" for step, ns in row["steps"].items())
            count = {name: costs[f"{name}_per_interval"] for name in ("chains", "dependent_chains", "rounds")}
            yield (
                f"{row['app']}, {row['way']}, {threads_of(row)}: ns per transaction, summed over threads: {spent}. An "
                f"interval has {count['chains']:.0f} chains, {count['dependent_chains']:.0f} of them dependent, and "
                f"{count['rounds']:.1f} rounds"
            )


def compute_mode(rows: list[Row]) -> str:
    """Return the share of compute mode in the time of `tstream` on one thread, for each application."""

    def sentence_of(app: str) -> str:
        spent = (pick(rows, app=app, way=PUBLISHED, threads=1) or {}).get("steps")
        if not spent:
            return ""
        working = {step: ns for step, ns in spent.items() if step != "barriers"}
        return _percent(1 - working["rounds"] / sum(working.values()))

    return each(APPS, sentence_of)


def useful_on_one(way: str) -> Text:
    """Make the share of useful work in the time of a way on one thread, for each application."""
    return lambda rows: each(APPS, lambda app: percent(pick(rows, app=app, way=way, threads=1), "useful"))


# Figure 9.


def parts(ways: Iterable[str], *names: str, result: str = "equal") -> Text:
    """Make the share of some parts in the time of an event, for each way, with the most threads."""
    return lambda rows: ", ".join(
        f"{way} {shown}" for way in ways if (shown := percent(widest(rows, way=way, result=result), *names))
    )


# Figures 10 to 12.


def having(rows: list[Row], way: str, name: str, where: float) -> Row | None:
    """Return the row of a way at one value of a parameter, or None."""
    known: dict[str, Any] = {name: where}
    return pick(rows, way=way, **known)


def along(name: str, low: float, high: float, ways: Iterable[str], column: str = "events_per_s") -> Text:
    """Compare the throughput of each way at one value of a parameter with that at another value."""

    def text(rows: list[Row]) -> str:
        ratios = []
        for way in ways:
            one, other = (having(rows, way, name, at) for at in (high, low))
            if one and other:
                ratios.append(f"{way} {compare(one, other, column).text}")
        return f"{name} {high:g} relative to {low:g}: {', '.join(ratios)}" if ratios else ""

    return text


def at(name: str, where: float, way: str, other: str) -> Text:
    """Compare two ways at one value of a parameter."""

    def text(rows: list[Row]) -> str:
        sentence = versus(having(rows, way, name, where), having(rows, other, name, where))
        return f"at {name} {where:g}, {sentence}" if sentence else ""

    return text


def against(way: str, other: str, column: str = "events_per_s", **having: Any) -> Text:
    """Compare a way with another one that has these values."""
    return lambda rows: versus(pick(rows, way=way), pick(rows, way=other, **having), column)


def together(*texts: Text) -> Text:
    """Join sentences."""
    return lambda rows: ". ".join(filter(None, (text(rows) for text in texts)))


def by_app(text: Callable[[list[Row]], str], apps: Iterable[str] = APPS) -> Text:
    """Make a sentence for each application from its rows."""
    return lambda rows: each(apps, lambda app: text([row for row in rows if row["app"] == app]))


def figures(ways: Iterable[str], column: str, **having: Any) -> Text:
    """List a column of each way, with its interval."""
    return lambda rows: ", ".join(
        f"{way} {shown}" for way in ways if (shown := quantity(pick(rows, way=way, **having), column))
    )


# Figure 14.


def best_pool(rows: list[Row]) -> Iterator[str]:
    """Yield, for each application, how the shared-nothing pool compares with the best shared one."""
    for app in APPS:
        own = [row for row in rows if row["app"] == app and row.get("scheme") == PUBLISHED and row["result"] == "equal"]
        shared = best(row for row in own if row["pool"] != "shared_nothing")
        if sentence := versus(pick(own, pool="shared_nothing"), shared):
            yield f"{app}: {sentence}"


def stealing(scheme: str) -> Text:
    """Compare each shared pool with stealing to the same pool without it."""

    def text(rows: list[Row]) -> str:
        own = [row for row in rows if row.get("scheme") == scheme]
        pools = dict.fromkeys(row["pool"] for row in own if row["stealing"])
        return ", ".join(
            f"{pool.removeprefix('shared_')} {compare(steals, waits).text}"
            for pool in pools
            if (steals := pick(own, pool=pool, stealing=True)) and (waits := pick(own, pool=pool, stealing=False))
        )

    return text


# Sections VI-G, V and II-A.


def beside_loop(way: str) -> Text:
    """Make the throughput of a way on one thread, absolute and relative to the loop."""

    def text(rows: list[Row]) -> str:
        own, loop = pick(rows, way=way), pick(rows, result="yardstick")
        return f"{way} {quantity(own)}; {versus(own, loop)}" if own and loop else ""

    return text


def coordination(rows: list[Row]) -> Iterator[str]:
    """Yield, for each way, what a transaction takes more than in the loop."""
    loop = pick(rows, result="yardstick")
    for row in rows:
        if loop and row["result"] == "equal":
            each = 1e9 / loop["events_per_s"]
            ratio = compare(loop, row)
            more, low, high = (each * (times - 1) for times in (ratio.median, ratio.low, ratio.high))
            span = f" ({low:+.0f} to {high:+.0f})" if ratio.rounds > 1 else ""
            yield f"{row['way']}: {more:+.0f} ns{span} per transaction; the loop takes {each:.0f} ns"


def joint(way: str) -> Text:
    """Compare one joint transaction of a report with three transactions."""

    def text(rows: list[Row]) -> str:
        one, three = (pick(rows, way=way, form=form) for form in ("joint", "separate"))
        if one is None or three is None:
            return ""
        return f"{way}, joint relative to separate, in reports: {compare(one, three, 'reports_per_s').text}"

    return text


def keyed(way: str) -> Text:
    """Compare a transactional scheme with state that is partitioned by key."""

    def text(rows: list[Row]) -> str:
        own, other = pick(rows, app="tp", way=way), pick(rows, app="tpk")
        return f"{way} relative to state keyed by segment: {compare(own, other).text}" if own and other else ""

    return text


def indexed(*names: str) -> Text:
    """Compare tables with a hash index with dense tables: the throughput of each way, and its share of Others."""

    def text(rows: list[Row]) -> str:
        ratios = []
        for way in names:
            result = "bound" if way == BOUND else "equal"
            hashed, dense = (pick(rows, result=result, way=way, index=index) for index in ("hash", "dense"))
            if hashed and dense:
                others = " and ".join(shown for row in (hashed, dense) if (shown := percent(row, "other")))
                ratios.append(f"{way} {compare(hashed, dense).text}" + f", with {others} of Others" * bool(others))
        return f"throughput with a hash index relative to dense tables: {'; '.join(ratios)}" if ratios else ""

    return text
