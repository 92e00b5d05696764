"""Global windows, one behind the other and behind time windows and joins, against plain Python, in every executor."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, agg, global_window, i64, record, text, tumbling
from streaming_core.cluster.task import Prepared, SparkPass
from streaming_core.data import workload
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import ENGINE_EXECUTORS, RunSpec
from tests.differential import shuffle
from tests.differential.case import Case, strategies
from tests.differential.streams import SEED
from tests.support.draws import some


@record
class Bid:
    ts: i64
    auction: i64
    category: text
    price: i64


@record
class Auction:
    ts: i64
    auction: i64
    seller: text


def events(number, n):
    r = np.random.default_rng([SEED, number])
    categories = [(b"books", b"", b"art\0", b"a" * 300)[i] for i in r.integers(0, 4, 12)]
    auctions = r.integers(0, 12, n)
    ts = np.cumsum(r.integers(0, 4, n))
    columns = [range(n), ts, auctions, [categories[i] for i in auctions], r.integers(-50, 50, n)]
    schema = Bid.resolve({}).arrow(("seq",))
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


def groups(rows, *fields):
    """The rows of each key, by ascending key."""
    of_key = defaultdict(list)
    for row in rows:
        of_key[tuple(row[field] for field in fields)].append(row)
    return sorted(of_key.items())


def final_prices(rows):
    """The highest price of each auction, with the `ts` of its last bid."""
    return [
        {"ts": of[-1]["ts"], "auction": auction, "category": category, "final": max(row["price"] for row in of)}
        for (auction, category), of in groups(rows, "auction", "category")
    ]


def in_a_row(bids):
    final = bids.key_by("auction", "category").window(global_window()).aggregate(final=agg.max("price"))
    return (
        final.key_by("category")
        .window(global_window())
        .aggregate(n=agg.count(), mean=agg.avg("final"), last=agg.last("auction"))
    )


def in_a_row_expected(rows):
    for (category,), of in groups(final_prices(rows), "category"):
        prices = [row["final"] for row in of]
        yield of[-1]["ts"], category, len(of), sum(prices) / len(prices), of[-1]["auction"]


def three_in_a_row(bids):
    """A map between the first two, and no key at the last."""
    final = bids.key_by("auction", "category").window(global_window()).aggregate(final=agg.max("price"))
    top = final.filter(lambda row: row.final % 2 == 0).key_by("category").window(global_window()).top(2, by="final")
    return top.window(global_window()).aggregate(n=agg.count(), total=agg.sum("final"), first=agg.first("category"))


def three_in_a_row_expected(rows):
    top = []
    for _, of in groups([row for row in final_prices(rows) if row["final"] % 2 == 0], "category"):
        last = of[-1]["ts"]
        top += [{**row, "ts": last} for row in sorted(of, key=lambda row: -row["final"])[:2]]
    if top:
        yield top[-1]["ts"], len(top), sum(row["final"] for row in top), top[0]["category"]


def behind_time_windows(bids):
    """Of each category, the minute with the most bids so far; windows expire, and at the end all do."""
    counts = bids.key_by("category").window(tumbling(20)).aggregate(n=agg.count())
    return counts.key_by("category").window(global_window()).aggregate(most=agg.max("n"), windows=agg.count())


def behind_time_windows_expected(rows):
    for (category,), of in groups(rows, "category"):
        windows = defaultdict(int)
        for row in of:
            windows[row["ts"] // 20 * 20 + 20] += 1
        yield max(windows), category, max(windows.values()), len(windows)


def behind_a_join(bids):
    """Pairs of a bid and a dearer bid of the same auction, at most five later or earlier."""
    dear = bids.filter(lambda row: row.price > 20).select("ts", "auction", dear="price")
    pairs = bids._app.join(bids, dear, on="auction", within=5)
    return pairs.key_by("auction").window(global_window(), early=7).aggregate(n=agg.count(), most=agg.max("dear"))


def behind_a_join_expected(rows):
    """With the seq of the row that brings the seventh, fourteenth, ... pair, and at the end of the stream."""
    early, ends = [], []
    for (auction,), of in groups(rows, "auction"):
        pairs = []
        for number, row in enumerate(of):
            for other in [*of[:number], row]:
                if row["ts"] - other["ts"] <= 5:
                    met = [(other, row)] if other is row else [(other, row), (row, other)]
                    for _, dear in met:
                        if dear["price"] > 20:
                            pairs.append((row["ts"], dear["price"]))
                            if len(pairs) % 7 == 0:
                                early.append((row["ts"], auction, len(pairs), max(price for _, price in pairs)))
        if pairs:
            ends.append((pairs[-1][0], auction, len(pairs), max(price for _, price in pairs)))
    return sorted(early) + ends


def before_time_windows(bids):
    """The rows of the end go into windows, which then expire."""
    final = bids.key_by("auction", "category").window(global_window()).aggregate(final=agg.max("price"))
    return final.key_by("category").window(tumbling(30)).aggregate(n=agg.count())


def before_time_windows_expected(rows):
    """A row is late if its window ends at the highest `ts` so far, or before."""
    counts, highest = defaultdict(int), -1
    for row in final_prices(rows):
        highest = max(highest, row["ts"])
        end = row["ts"] // 30 * 30 + 30
        if end > highest:
            counts[end, row["category"]] += 1
    return sorted((end, category, n) for (end, category), n in counts.items())


@record
class Seen:
    n: i64
    total: i64
    category: text


@record
class Shown:
    ts: i64
    category: text
    mean: i64


def see(row, state, out):
    state.n += 1
    state.total += row.price
    state.category = row.category
    if row.price == 0:
        out.emit(ts=row.ts, category="zero", mean=state.n)


def show(state, out):
    out.emit(ts=state.n, category=state.category, mean=state.total // state.n)


def of_ones_own(bids):
    return bids.key_by("category").window(global_window()).apply(see, Seen, Shown, show)


def of_ones_own_expected(rows):
    n = defaultdict(int)
    for row in rows:
        n[row["category"]] += 1
        if row["price"] == 0:
            yield row["ts"], b"zero", n[row["category"]]
    for (category,), of in groups(rows, "category"):
        yield len(of), category, sum(row["price"] for row in of) // len(of)


PIPELINES = {
    in_a_row: in_a_row_expected,
    three_in_a_row: three_in_a_row_expected,
    behind_time_windows: behind_time_windows_expected,
    behind_a_join: behind_a_join_expected,
    before_time_windows: before_time_windows_expected,
    of_ones_own: of_ones_own_expected,
}
# Here rows of one `seq` have another order.
UNORDERED = (behind_a_join, before_time_windows)


def built(pipeline):
    app = App(pipeline.__name__)
    pipeline(app.source(Bid)).sink()
    app.generates(lambda *arguments: {})
    return app.check()


def values(outputs, is_sorted):
    """The rows of the output, without place."""
    names = [name for name in outputs.column_names if name not in ("seq", "sub")]
    rows = [tuple(row[name] for name in names) for row in outputs.to_pylist()]
    return sorted(rows) if is_sorted else rows


@pytest.mark.parametrize("pipeline", some(PIPELINES))
def test_oracle_matches_plain_python(pipeline):
    app, rows = built(pipeline), 0
    loop = Loop(app, {})
    for number, n in enumerate((0, 1, 2, 40, 300, 300)):
        table, is_sorted = events(number, n), pipeline in UNORDERED
        oracle = Interpreter(app, {})
        outputs = pa.concat_tables([oracle.process(table), oracle.finish(n)])
        expected = list(PIPELINES[pipeline](table.to_pylist()))
        assert values(outputs, is_sorted) == (sorted(expected) if is_sorted else expected)
        loop.reset()
        compare(app.name, outputs, pa.concat_tables([loop.process(table), loop.finish(n)]), "outputs")
        rows += len(outputs)
    assert rows > 3


@pytest.mark.parametrize("pipeline", some(PIPELINES))
def test_runtime_equals_the_oracle(pipeline):
    app = built(pipeline)
    case = Case(app, {}, events(3, 300))
    executors = [name for name, executor in ENGINE_EXECUTORS.items() if app.kind in executor.application_kinds]
    for executor in executors:
        for fields in strategies(executor, app)[::5]:
            for threads, batch in ((1, 64), (3, 7)):
                case.check(RunSpec.parse({"app": app.name, "threads": threads, "batch": batch, **fields}), 100)


@dataclass(frozen=True)
class Pass(SparkPass):
    """A pass of an application of this file."""

    @property
    def prepared(self) -> Prepared:
        return prepared(self.app)


@cache
def prepared(name):
    return Prepared.of(next(built(pipeline) for pipeline in PIPELINES if pipeline.__name__ == name), {})


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_cluster_equals_the_oracle(pipeline, tmp_path):
    app, table = built(pipeline), events(4, 300)
    oracle = Interpreter(app, {})
    expected = pa.concat_tables([oracle.process(table), oracle.finish(300)])
    workload.write(app, {}, 300, 0, tmp_path / "workload", [table])
    pass_ = Pass(app.name, (), str(tmp_path / "workload"), 300, 300, 3, str(tmp_path / "pass"), True)
    shuffle.run(pass_)
    outputs = shuffle.outputs(pass_)
    assert outputs.equals(expected.cast(outputs.schema))
