"""Sentences beside BriskStream's claims, made from the rows of an experiment.

Each function returns a `Text`, or is one, or yields conclusions. A text leaves out what the rows lack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from streaming_core.bench.ratios import (
    Row,
    best,
    compare,
    equal_rows,
    most,
    pick,
    quantity,
    threads_of,
    three_digits,
    versus,
)

APPS = ("wc", "fd", "sd", "lr")
# The shapes of the paper that differ from ours.
SHAPES = {"wc": "brisk_wc", "lr": "brisk_lr"}
PUBLISHED, OURS = "published", "ours"
REPLICATED, POOLED = "replicated", "pooled"

Text = Callable[[list[Row]], str]


def _joined(texts: Iterable[tuple[str, str]]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in texts if text)


def _apps(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["app"] for row in rows))


# --- applications ----------------------------------------------------------------------------------------------------


def name_variants(rows: list[Row]) -> None:
    """Add `variant`: as published, ours (the default), replicated, pooled, or the loop."""
    for row in rows:
        if row.get("executor") == "pooled":
            row["variant"] = POOLED
        elif row.get("executor") != "pinned":
            row["variant"] = "loop"
        elif row["channel"] == "pair_queue":
            row["variant"] = PUBLISHED
        else:
            row["variant"] = OURS if row.get("plan") or row["threads"] == 1 else REPLICATED


def _variant(rows: list[Row], app: str, variant: str) -> Row | None:
    """Return the row of a variant. LR as published keeps the order too, so it is `ours` on the published shape."""
    if variant == PUBLISHED and app == SHAPES["lr"]:
        variant = OURS
    return pick(rows, app=app, variant=variant)


def _apps_of(variant: str) -> tuple[str, ...]:
    return tuple(SHAPES.get(app, app) for app in APPS) if variant == PUBLISHED else APPS


def beside_loop(variant: str) -> Text:
    """Return the throughput of a variant in each application, and relative to the compiled loop."""

    def one(row: Row | None) -> str:
        if row is None:
            return ""
        return f"{quantity(row)} on {threads_of(row)}, {quantity(row, 'to_loop')} times the loop"

    return lambda rows: _joined((app, one(_variant(rows, app, variant))) for app in _apps_of(variant))


def latencies(variant: str, apps: Iterable[str] = ()) -> Text:
    """Return mean and p99 of the end-to-end latency of a variant, at the rate of all ways of the application."""

    def one(row: Row | None) -> str:
        if row is None or not (mean := quantity(row, "end_to_end_mean_us")):
            return ""
        return f"mean {mean}, p99 {quantity(row, 'end_to_end_p99_us')}"

    chosen = tuple(apps) or tuple(SHAPES.get(app, app) for app in APPS)
    return lambda rows: _joined((app, one(_variant(rows, app, variant))) for app in chosen)


def published_over_ours(rows: list[Row]) -> Iterator[str]:
    """Yield, for each application, how the published variant compares with ours on the same shape and rate."""
    for app in _apps(rows):
        published, ours = pick(rows, app=app, variant=PUBLISHED), pick(rows, app=app, variant=OURS)
        if sentence := versus(published, ours):
            yield f"{app}, {threads_of(published or {})}: {sentence}"
            if "end_to_end_p99_us" in (published or {}):
                yield f"{app}, at the same rate: {versus(published, ours, 'end_to_end_p99_us')}"
        other = best(row for row in equal_rows(rows) if row["app"] == app and row["variant"] in (REPLICATED, POOLED))
        if sentence := versus(ours, other):
            yield f"{app}, plan auto: {sentence} ({(other or {})['variant']})"


# --- operators -------------------------------------------------------------------------------------------------------


def add_placement(rows: list[Row]) -> Iterator[str]:
    """Add `placement`, and yield what an operator costs with a remote producer."""
    for row in rows:
        threads = {thread for places in row.get("plan", {}).values() for thread in places}
        row["placement"] = "remote" if len(threads) > 1 else "local"
    for channel in ("pair_queue", "gate"):
        if sentence := breakdown(channel)(rows):
            yield f"{channel}: {sentence}"
    if sentence := selectivities(rows):
        yield f"selectivities: {sentence}"


def quantiles(channel: str) -> Text:
    """Return the 5th, 50th and 95th percentile of the execution time of each operator of WC."""

    def text(rows: list[Row]) -> str:
        row = pick(rows, app="brisk_wc", channel=channel, placement="local")
        texts = []
        for name, cost in (row or {}).get("operators", {}).items():
            if len(of := cost["quantiles"]) == 21:
                texts.append((name, f"{three_digits(of[1])}, {three_digits(of[10])}, {three_digits(of[19])} ns"))
        return _joined(texts) and f"5th, 50th, 95th percentile: {_joined(texts)}"

    return text


def breakdown(channel: str, operators: Iterable[str] = ()) -> Text:
    """Return Execute, Others and remote of the operators of WC, without its source."""
    chosen = tuple(operators)

    def text(rows: list[Row]) -> str:
        local, remote = (pick(rows, app="brisk_wc", channel=channel, placement=at) for at in ("local", "remote"))
        texts = []
        for name, cost in (local or {}).get("operators", {}).items():
            if name == "source" or (chosen and name not in chosen):
                continue
            execute, others = cost["execute"], cost["others"]
            one = f"execute {three_digits(execute)} ns, others {three_digits(others)} ns"
            if remote and execute + others > 0:
                away = remote["operators"][name]
                trip = away["execute"] + away["others"]
                one += f", remote {trip - execute - others:+.3g} ns ({three_digits(trip / (execute + others))} times)"
            texts.append((name, one))
        return _joined(texts)

    return text


def selectivities(rows: list[Row]) -> str:
    """Return the outputs per input of each operator of LR."""
    row = pick(rows, app="brisk_lr")
    costs = (row or {}).get("operators", {}).items()
    return ", ".join(
        f"{name} {cost['rows_out'] / cost['rows_in']:.3g}"
        for name, cost in costs
        if name not in ("source", "sink") and cost["rows_in"]
    )


# --- scaling ---------------------------------------------------------------------------------------------------------


def _on_threads(rows: list[Row], app: str) -> tuple[Row | None, Row | None]:
    """Return the pinned rows with one thread and with the most."""
    return pick(rows, app=app, executor="pinned", threads=1), pick(rows, app=app, executor="pinned", threads=most(rows))


def _speedup(rows: list[Row], app: str) -> str:
    first, last = _on_threads(rows, app)
    if first is None or last is None or first is last:
        return ""
    return f"{threads_of(last)} over one: {compare(last, first, over_threads=True).text}"


def speedups(rows: list[Row]) -> str:
    """Return the speed-up of each application over one thread."""
    return _joined((app, _speedup(rows, app)) for app in _apps(rows))


def of_ideal(rows: list[Row]) -> str:
    """Return the throughput of each application as a share of linear scaling."""

    def one(app: str) -> str:
        first, last = _on_threads(rows, app)
        if first is None or last is None or first is last:
            return ""
        share = compare(last, first, over_threads=True).median / last["threads"]
        return f"{share:.0%} of ideal".replace("%", " %")

    return _joined((app, one(app)) for app in _apps(rows))


def over_morsels(rows: list[Row]) -> str:
    """Return how WC as published compares with executor morsel, by threads and order."""
    texts = []
    for threads in sorted({row["threads"] for row in rows}):
        pinned = pick(rows, app="brisk_wc", executor="pinned", threads=threads)
        for order in ("total", "none"):
            morsel = pick(rows, app="brisk_wc", executor="morsel", threads=threads, order=order)
            if pinned and morsel:
                texts.append((f"{threads_of(pinned)}, morsel in order {order}", compare(pinned, morsel).text))
    return _joined(texts)


def scaling(rows: list[Row]) -> Iterator[str]:
    """Add `variant`, and yield the speed-ups and the comparison with executor morsel."""
    names = {"pinned": PUBLISHED, "morsel": "morsel"}
    for row in rows:
        row["variant"] = names.get(row.get("executor", ""), "loop")
        if row["variant"] == "morsel":
            row["variant"] += f", order {row.get('order', 'total')}"
    yield from (f"{app}: {sentence}" for app in _apps(rows) if (sentence := _speedup(rows, app)))
    if sentence := over_morsels(rows):
        yield f"WC as published over morsel: {sentence}"
    if len({row["threads"] for row in rows}) == 1:
        yield "One thread: there is no speed-up."


# --- jumbo tuples ----------------------------------------------------------------------------------------------------


def _sizes(rows: list[Row], app: str, channel: str) -> tuple[Row, Row] | None:
    """Return the rows with the largest and the smallest jumbo tuples."""
    own = [row for row in equal_rows(rows) if (row["app"], row.get("channel")) == (app, channel)]
    sizes = sorted(own, key=lambda row: row["batch"])
    return (sizes[-1], sizes[0]) if len(sizes) > 1 else None


def jumbo(channel: str) -> Text:
    """Return what the largest jumbo tuples gain over single rows, in each application."""

    def one(rows: list[Row], app: str) -> str:
        pair = _sizes(rows, app, channel)
        return f"{compare(*pair).text}" if pair else ""

    return lambda rows: _joined((app, one(rows, app)) for app in _apps(rows))


def gain(rows: list[Row]) -> Iterator[str]:
    """Compare jumbo tuples with rows that travel one by one."""
    for app in _apps(rows):
        for channel in dict.fromkeys(row["channel"] for row in rows if row["app"] == app and "channel" in row):
            if pair := _sizes(rows, app, channel):
                large, single = pair
                after, before = (quantity(row, "end_to_end_p99_us") for row in pair)
                yield (
                    f"{app}, {channel}: throughput of jumbo tuples of {large['batch']} rows over single rows: "
                    f"{compare(large, single).text}. At half the slowest peak rate, the p99 is {after}, and with "
                    f"single rows {before}"
                )
