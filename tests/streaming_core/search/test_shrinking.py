"""search/shrinking.py: from a case to the smallest one with the same symptom."""

import random
from decimal import Decimal
from itertools import count

import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.language.record import Array, Nullable, Text, boolean, f64, i64
from streaming_core.language.record import Decimal as Scaled
from streaming_core.run.way import RunSpec
from streaming_core.search import shrinking
from streaming_core.search.case import Case, Symptom
from streaming_core.search.laboratory import LIMIT, Examination, Verdict
from streaming_core.search.replay import numbered
from streaming_core.search.shrinking import Judge, reduced, shrink, simpler
from streaming_core.search.ways import ways
from tests.support.draws import seeds

SYMPTOM = Symptom("result", "outputs")


class Predicate:
    """Judges by a function; counts its calls."""

    def __init__(self, holds):
        self.holds, self.calls = holds, 0

    def measure(self, case, seconds):
        return float(self.holds(case))

    def shows(self, case):
        self.calls += 1
        return self.holds(case)

    def confirms(self, case):
        return True


def case_of(name, events=200, symptom=SYMPTOM, **way):
    app = registry.load(name)
    table = workload.generate_chunk(app, way.get("params", {}), events, 1, 0, events)
    executor = {"transaction": "transactional", "dataflow": "pooled", "windowed": "pinned"}[app.kind]
    return Case(RunSpec.parse({"app": name, "executor": executor, **way}), table, symptom)


def smallest(case, holds, seconds=1e9):
    return shrink(case, Predicate(holds), seconds)


@pytest.mark.parametrize("seed", range(20))
def test_reduction_ends_with_the_items_that_matter(seed):
    r = random.Random(seed)
    items = [*range(r.randint(1, 90))]
    needed = set(r.sample(items, r.randint(0, min(len(items), 5))))
    calls = count()

    def shows(some):
        next(calls)
        assert some == sorted(some)
        return needed <= set(some)

    assert reduced(items, shows) == sorted(needed)
    assert next(calls) < 20 * (1 + len(needed)) * len(items).bit_length() + 2 * len(items)


def test_events_shrink_to_those_that_matter():
    case = case_of("sl", 300)
    rows = case.events.drop_columns(["seq"]).to_pylist()
    needed = [rows[17], rows[140]]

    def holds(candidate):
        some = candidate.events.drop_columns(["seq"]).to_pylist()
        return all(row in some for row in needed)

    small = smallest(case, holds)
    assert small.events.drop_columns(["seq"]).to_pylist() == needed
    assert small.events["seq"].to_pylist() == [0, 1]
    assert small.rate == 1


def test_big_case_shrinks_with_few_big_trials():
    case, big = case_of("wc", 20_000), []
    line = case.events["line"].to_pylist()[777]

    def holds(candidate):
        big.append(candidate.events.num_rows > 1_000)
        return line in candidate.events["line"].to_pylist()

    assert smallest(case, holds).events.num_rows == 1
    assert sum(big) < 40


def test_values_become_simple():
    case = case_of("sl", 50)

    def holds(candidate):
        return any(row["amt_acct"] >= 37 for row in candidate.events.to_pylist())

    small = smallest(case, holds)
    [row] = small.events.to_pylist()
    assert row["amt_acct"] == 37
    assert [value for name, value in row.items() if name != "amt_acct" and value] == []


def test_way_becomes_plain():
    way = {
        "threads": 7, "plan": {"source": [6], "sink": [1, 5]}, "idle": "park", "batch": 7, "checkpoint": "37",
        "channel": "scalegate", "rate": 1e6, "params": {"skew": 1.0, "words": 3, "vocabulary": 50},
    }  # fmt: skip
    case = case_of("wc", 60, executor="pinned", **way)
    small = smallest(case, lambda candidate: candidate.spec.threads > 2 and "words" in candidate.spec.params)
    assert small.events.num_rows == 0
    assert small.spec == RunSpec.parse({
        "app": "wc", "executor": "pinned", "threads": 3, "params": {"words": 3}, "checkpoint": "0",
    })  # fmt: skip


def test_way_does_not_matter_to_a_symptom_of_the_oracle():
    case = case_of("wc", 1, Symptom("property", "sound"), threads=3, batch=7)
    small = smallest(case, lambda candidate: candidate.events.num_rows == 1 and candidate.events == case.events)
    assert small.spec == RunSpec.parse({"app": "wc", "executor": "pooled"})


def test_small_batch_lets_events_shrink():
    case = case_of("wc", 300, batch=256, threads=4)
    small = smallest(case, lambda candidate: candidate.events.num_rows > candidate.spec.batch)
    assert (small.events.num_rows, small.spec.batch, small.spec.threads) == (2, 1, 1)


def test_reconfigurations_move_along_with_their_events():
    schedule = [{"event": at, "owners": {"match": [0, 1, 2]}} for at in (10, 90, 150)]
    app = registry.load("hedge")
    [name] = [operator.name for operator in app.operators if operator.kind == "windowed"]
    for entry in schedule:
        entry["owners"] = {name: [0, 1, 2]}
    case = case_of("hedge", 200, threads=3, schedule=schedule)
    target = case.events["ts"][90].as_py(), case.events["id"][90].as_py() if "id" in case.events.column_names else None

    def holds(candidate):
        at = [entry.event for entry in candidate.spec.option("schedule")]
        return any(
            number < candidate.events.num_rows and candidate.events["ts"][number].as_py() == target[0] for number in at
        )

    small = smallest(case, holds)
    assert small.events.num_rows == 1
    assert [entry.model_dump() for entry in small.spec.option("schedule")] == [{"event": 0, "owners": {name: [0]}}]


def test_several_streams_stay_in_order():
    case = case_of("scalejoin", 120)
    streams = case.events["stream"].to_pylist()

    def holds(candidate):
        keys = [(row["ts"], row["stream"]) for row in candidate.events.to_pylist()]
        assert keys == sorted(keys)
        return {row["stream"] for row in candidate.events.to_pylist()} == set(streams)

    small = smallest(case, holds)
    assert small.events["stream"].to_pylist() == [0, 1]
    assert small.events["ts"].to_pylist() == [0, 0]


@pytest.mark.parametrize("seed", seeds(1, of=6))
@pytest.mark.parametrize("name", ["wc", "hedge", "gs", "lr"])
def test_any_way_shrinks_to_the_default_one(name, seed):
    app, r = registry.load(name), random.Random(seed)
    events = workload.generate_chunk(app, {}, 30, seed, 0, 30)
    for spec in ways(app, app.bind(), 30, r, 4):
        small = smallest(Case(spec, events, SYMPTOM), lambda candidate: True)
        assert small.events.num_rows == 0
        assert small.spec == RunSpec.parse({"app": name, "executor": spec.executor, "checkpoint": "0"})


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (i64, [0, 1, -1, 7, -(2**63), 2**63 - 1]),
        (f64, [0.0, -0.0, 0.1, 2.5, -1e300, float("nan"), float("inf")]),
        (boolean, [False, True]),
        (Text(), [b"", b"a", b"hello", b"\xff" * 9]),
        (Scaled[2], [Decimal("0.00"), Decimal("12.34"), Decimal("-0.01")]),
        (Array(i64, 3), [[0, 0, 0], [5, 5, 5], [1, -2, 3]]),
        (Nullable(i64), [None, 0, 9]),
    ],
)
def test_no_value_is_simpler_than_its_simpler_ones(kind, values):
    for value in values:
        for simple in simpler(kind, value):
            assert repr(value) not in map(repr, simpler(kind, simple))
    assert not simpler(kind, values[0]) or values[0] is None


def test_time_over_keeps_the_smallest_so_far():
    case, ticks = case_of("wc", 100), count()
    judge = Predicate(lambda candidate: candidate.events.num_rows >= 3)
    small = shrink(case, judge, 30, clock=lambda: next(ticks))
    assert judge.calls <= 30
    assert 3 <= small.events.num_rows < 100


def test_symptom_that_never_shows_again_has_rate_0():
    case, lines = case_of("wc", 10), []
    assert shrink(case, Predicate(lambda candidate: False), 10, lines.append) == case.changed(rate=0.0)
    assert lines == ["the symptom does not show again"]


class Lab:
    """A laboratory whose runs show a symptom with a probability."""

    def __init__(self, rate, symptom=SYMPTOM):
        self.rate, self.symptom, self.r, self.runs, self.limits = rate, symptom, random.Random(3), 0, []

    def examine(self, case, specs, checks=(), limit=LIMIT, until=None):
        self.limits.append(limit)
        result = Examination()
        for _ in specs:
            self.runs += 1
            is_shown = self.r.random() < self.rate(case)
            result.of_runs.append(Verdict(self.symptom if is_shown else None, seconds=0.01))
            if is_shown and until is not None:
                break
        return result


def test_rare_symptom_is_tried_as_often_as_its_rate_demands():
    case = case_of("wc", 64)
    for rate in (1.0, 0.5, 0.2):
        needs = lambda candidate, rate=rate: rate * (candidate.events.num_rows >= 4)  # noqa: E731
        lab = Lab(needs)
        judge = Judge(lab, case)
        small = shrink(case, judge, 1e9)
        assert small.events.num_rows <= 6, rate
        assert abs(small.rate - rate) < 0.35
    judge = Judge(Lab(lambda candidate: 0.3), case.changed(rate=0.3))
    assert sum(judge.shows(case) for _ in range(300)) > 285


def test_hang_has_a_short_limit_and_is_confirmed_with_a_long_one():
    case = case_of("wc", 64, Symptom("hang"), threads=2)
    lab = Lab(lambda candidate: float(candidate.spec.threads > 1), Symptom("hang"))
    small = shrink(case, Judge(lab, case), 1e9)
    assert small.events.num_rows == 0
    assert lab.limits[0] == LIMIT
    assert set(lab.limits[1:-5]) == {shrinking.LEAST}
    assert LIMIT in lab.limits[-5:]


def test_difference_of_a_real_run_becomes_as_small_as_it_can_be(tally, laboratory):
    r = random.Random(5)
    events = [{"ts": 10 * at, "name": r.choice((b"ann", b"", b"bob", b"carol"))} for at in range(60)]
    way = {"threads": 2, "batch": 7, "checkpoint": "20", "idle": "park", "queue": "hybrid", "partitions": 3}
    spec = RunSpec.parse({"app": "tally", "executor": "pooled", **way})
    case, lines = Case(spec, numbered(spec, events), SYMPTOM), []
    small = shrink(case, Judge(laboratory, case), 60, lines.append)
    assert small.events.to_pylist() == [{"seq": at, "ts": 0, "name": b"a"} for at in range(3)]
    assert small.spec == RunSpec.parse({"app": "tally", "executor": "pooled", "threads": 2, "checkpoint": "0"})
    assert small.rate == 1
    assert lines[-1] == "3 events, affinity, threads 2"


class Rare(Predicate):
    """A fault that needs luck, and less of it with one seed of stalls."""

    def measure(self, case, seconds):
        return 0.5 if "stall@3" in case.spec.faults else 0.05


def test_a_rare_fault_is_made_likely_by_stalls():
    likely = Rare(lambda case: case.events.num_rows > 4 and "stall" in case.spec.faults)
    small = shrink(case_of("wc", 20, faults="kill@3"), likely, 60)
    assert small.rate == 0.5
    assert small.spec.faults == "stall@3"
