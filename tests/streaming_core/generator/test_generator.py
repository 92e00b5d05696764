"""Draws against splitmix64 by single steps, distributions against their definition, keys against their contract."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.errors import BadInput
from streaming_core.generator import Draws, Keys, Tokens, by_period, of_eight, splitmix64, weighted, zipf
from streaming_core.generator.distributions import exponential, logarithm
from streaming_core.generator.draws import fnv1a64

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def one_by_one(state):
    """The next output of splitmix64, in Python's own integers."""
    z = (state + GOLDEN) & MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def test_splitmix64_is_the_published_generator():
    # The first outputs of the reference implementation for the seed 1234567.
    state, out = 1234567, []
    for _ in range(3):
        out.append(one_by_one(state))
        state = (state + GOLDEN) & MASK
    assert out == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert splitmix64(np.array([1234567], np.uint64)).tolist() == out[:1]


def test_a_draw_depends_on_its_address_only():
    base = one_by_one(7 ^ fnv1a64("purpose"))
    whole = Draws(7, "purpose", 0, 100)
    for d in (0, 1, 70):
        expected = [one_by_one(one_by_one(base + i * GOLDEN & MASK) + d * GOLDEN & MASK) for i in range(100)]
        assert whole.bits(d).tolist() == expected
        assert Draws(7, "purpose", 40, 60).bits(d).tolist() == expected[40:60]
        assert Draws(7, "purpose", units=np.array([99, 3])).bits(d).tolist() == [expected[99], expected[3]]
        assert whole.bits(d, np.array([5, 2])).tolist() == [expected[5], expected[2]]
        assert whole.u53(d).tolist() == [x >> 11 for x in expected]
        for n in (1, 10, 10**9, 2**32 - 1):
            assert whole.below(d, n).tolist() == [x * n >> 64 for x in expected]
    assert Draws(7, "other", 0, 100).bits(0).tolist() != whole.bits(0).tolist()
    assert Draws(8, "purpose", 0, 100).bits(0).tolist() != whole.bits(0).tolist()


def test_chance_is_exact_at_zero_and_one():
    draws = Draws(1, "x", 0, 10_000)
    assert not draws.chance(0, 0.0).any()
    assert draws.chance(0, 1.0).all()
    assert abs(draws.chance(0, 0.3).mean() - 0.3) < 0.02


def test_logarithm_and_exponential_are_accurate_without_libm():
    x = np.concatenate([np.arange(1, 2000), np.array([1e6, 123_456_789.0])]).astype(float)
    assert np.allclose(logarithm(x), np.log(x), rtol=1e-15, atol=1e-16)
    y = -np.linspace(0, 80, 4001)
    assert np.allclose(exponential(y), np.exp(y), rtol=4e-15)


@pytest.mark.parametrize(("n", "theta"), [(1, 0.6), (7, 0.0), (250, 0.6), (10_000, 1.0), (5_000, 3.0)])
def test_zipf_inverts_its_cumulative_distribution(n, theta):
    table = zipf(n, theta)
    law = np.arange(1, n + 1, dtype=float) ** -theta
    assert np.allclose(table.thresholds / 2**53, np.cumsum(law) / law.sum(), rtol=1e-12)
    assert table.thresholds[-1] == 1 << 53
    edges = table.thresholds[table.thresholds < 1 << 53]
    u = np.concatenate([Draws(1, "z", 0, 20_000).u53(0), edges, edges + 1, [0, (1 << 53) - 1]])
    u = u[u < 1 << 53]
    # the first k whose threshold is not below u
    assert (table.pick(u) == np.searchsorted(table.thresholds, u)).all()


def test_zipf_refuses_an_empty_range():
    with pytest.raises(BadInput, match="zipf: the number of values must be at least 1"):
        zipf(0, 0.5)


def test_weighted_draws_follow_their_weights():
    u = Draws(1, "w", 0, 200_000).u53(0)
    counts = np.bincount(weighted([1, 0, 2, 7]).pick(u), minlength=4)
    assert counts[1] == 0
    assert np.allclose(counts / len(u), [0.1, 0, 0.2, 0.7], atol=0.005)


def test_of_eight_selects_its_ratio_of_every_eight():
    draws = Draws(1, "p", 0, 16)
    assert of_eight(0.25, draws, 0, 0, 16).tolist() == ([False] * 6 + [True] * 2) * 2
    assert of_eight(0.5, draws, 0, 2, 10).tolist() == [False] * 2 + [True] * 4 + [False] * 2
    assert not of_eight(0.0, draws, 0, 0, 16).any()
    assert of_eight(1.0, draws, 0, 0, 16).all()
    many = Draws(1, "p", 0, 10_000)
    for ratio, drawn in ((0.3, False), (0.25, True)):
        got = of_eight(ratio, many, 0, 0, 10_000, drawn)
        assert abs(got.mean() - ratio) < 0.02
        assert got[:8].tolist() != got[8:16].tolist() or got[:8].tolist() != got[16:24].tolist()


@pytest.mark.parametrize(
    ("n_items", "parts", "need"), [(10_000, 40, 10), (103, 10, 10), (10, 40, 10), (12, 5, 7), (16, 3, 16)]
)
@pytest.mark.parametrize("theta", [0.0, 1.0, 4.0])
def test_keys_of_an_event_are_distinct_and_near_their_partition(n_items, parts, need, theta):
    draws, count = Draws(2, "k", 0, 400), 400
    space = Keys(n_items, theta, parts, True)
    partition = space.start(draws, need)
    assert partition.min() >= 0
    assert partition.max() < space.parts
    columns = []
    for lane in range(need):
        columns.append(space.draw(draws, lane, partition, np.zeros(count, bool), (need, 1), columns))
    keys = np.stack(columns, axis=1)
    assert keys.min() >= 0
    assert keys.max() < n_items
    assert all(len(set(row)) == need for row in keys.tolist())
    # Within the partition if it holds enough keys, otherwise also within as many following ones as needed.
    sizes = [space.size] * (space.parts - 1) + [n_items - space.size * (space.parts - 1)]
    for row, p in zip(keys.tolist(), partition.tolist(), strict=True):
        allowed, q = set(), p
        while len(allowed) < need:
            allowed |= {q * space.size + k for k in range(sizes[q])}
            q = (q + 1) % space.parts
        assert set(row) <= allowed


def test_tokens_form_lines():
    tokens = Tokens(word=[b"a", b"bcd", b""], end=[b".", b"!"])
    first, second = np.array([0, 1, 2, 0]), np.array([0, 1, 0, 1])
    lines = tokens.lines([first + tokens.first["word"], second + tokens.first["end"]])
    assert lines.to_pylist() == [b"a.", b"bcd!", b".", b"a!"]
    more = tokens.plus(late=[b"?"])
    assert more.lines([np.array([more.first["late"]])]).to_pylist() == [b"?"]
    assert "late" not in tokens.first
    ids = np.array([0, 1, 4, 3, 1])
    assert tokens.texts(ids, np.array([2, 0, 3, 0])).to_pylist() == [b"abcd", b"", b"!.bcd", b""]
    assert tokens.lengths(ids).tolist() == [1, 3, 1, 1, 3]
    assert tokens.texts(np.array([], np.int64), np.array([], np.int64)).to_pylist() == []


# --- events by the period --------------------------------------------------------------------------------------------

EVENTS = 3_000


def happenings(log=None):
    """`make` and `count` of a stream whose periods have 0 to 40 events; periods 5..20 have none."""

    def count(params, seed, period):
        return 0 if 5 <= period <= 20 else int(Draws(seed, "p.count", units=np.array([period])).below(0, 41)[0])

    def make(params, seed, period):
        if log is not None:
            log.append(period)
        n = count(params, seed, period)
        draws = Draws(seed, "p.events", units=period * 1000 + np.arange(n))
        number = draws.below(0, params["limit"])
        return {
            "ts": np.full(n, period),
            "number": number,
            "pair": np.stack([number, -number], axis=1),
            "text": [b"%d" % value for value in number.tolist()],
            "token": Tokens(digit=[b"%d" % k for k in range(10)]).lines([number % 10, number // 7 % 10]),
        }

    return make, count


def listed(columns):
    return {
        name: values.to_pylist() if isinstance(values, pa.Array) else list(values) for name, values in columns.items()
    }


def same(left, right):
    left, right = listed(left), listed(right)
    assert list(left) == list(right)
    return all(np.array_equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.slow
def test_slices_of_a_periodic_stream_concatenate_the_events_of_its_periods(counted):
    make, count = happenings()
    params, count = {"limit": 1000}, count if counted else None
    periods = [listed(make(params, 3, period)) for period in range(400)]
    expected = {name: [v for p in periods for v in p[name]][:EVENTS] for name in periods[0]}
    assert len(expected["ts"]) == EVENTS
    whole = by_period(make, count)(params, 3, 0, EVENTS)
    assert isinstance(whole["number"], np.ndarray)
    assert isinstance(whole["token"], pa.Array)
    assert same(whole, expected)
    ends = np.cumsum([len(p["ts"]) for p in periods])
    inside = ends[ends < EVENTS].tolist()  # cuts exactly where periods end
    for cuts in ([0, 1, 2, 500, EVENTS], sorted({0, *inside, EVENTS}), [*range(0, EVENTS, 37), EVENTS]):
        slices = list(pairwise(cuts))
        for order in (slices, slices[::-1], slices[::3] + slices[1::3] + slices[2::3]):
            generate = by_period(make, count)
            for start, stop in order:
                part = {name: values[start:stop] for name, values in expected.items()}
                assert same(generate(params, 3, start, stop), part)
                assert same(by_period(make, count)(params, 3, start, stop), part) if stop - start > 37 else True
    nothing = by_period(make, count)(params, 3, 100, 100)
    assert {name: len(values) for name, values in nothing.items()} == dict.fromkeys(expected, 0)


def test_streams_with_different_seeds_or_parameters_do_not_mix():
    make, count = happenings()
    generate = by_period(make, count)
    for _ in range(2):
        for seed in range(3):
            for limit in (5, 1000):  # six streams alternate: more than the cache holds
                params = {"limit": limit}
                assert same(generate(params, seed, 40, 90), by_period(make)(params, seed, 40, 90))


def test_consecutive_slices_generate_every_period_once():
    for size in (7, 1000):  # periods that several slices need, and slices of many periods
        log = []
        make, _ = happenings(log)
        generate = by_period(make)
        for start in range(0, EVENTS, size):
            generate({"limit": 9}, 1, start, min(start + size, EVENTS))
        assert log == list(range(len(log)))
    log = []
    make, count = happenings(log)
    by_period(make, count)({"limit": 9}, 1, EVENTS, EVENTS + 1)
    assert len(log) == 1  # earlier periods are counted, not generated


def test_memory_holds_a_few_periods_only():
    import weakref

    alive = []

    def make(params, seed, period):
        ts = np.full(100, period)
        alive.append(weakref.ref(ts))
        return {"ts": ts}

    generate = by_period(make)
    for start in range(0, 5_000, 50):
        generate({}, 1, start, start + 50)
    assert len(alive) == 50
    assert sum(ref() is not None for ref in alive) <= 4


def test_inconsistent_periods_are_refused():
    def refused(make, count=None):
        with pytest.raises(BadInput) as error:
            by_period(make, count)({}, 1, 0, 10)
        return str(error.value)

    def ten(params, seed, period):
        return {"ts": np.full(10, period)}

    assert "all columns must have one length, got [9, 10]" in refused(
        lambda *arguments: {**ten(*arguments), "x": np.zeros(9)}
    )
    assert "period 0 has 10 events, which is not the number that it counted" in refused(ten, lambda *arguments: 11)
    assert "the periods 1 to 10000 have no events" in refused(lambda *arguments: {"ts": np.zeros(0)})


def test_partitions_of_an_event_are_consecutive_or_arbitrary():
    draws, n = Draws(7, "keys", 0, 4000), 6
    space = Keys(400, 0.6, 40, True)
    first = space.start(draws, 0)
    near, any_ = (np.stack(space.partitions(draws, first, n, neighbours), axis=1) for neighbours in (True, False))
    assert np.array_equal(near, (first[:, None] + np.arange(n)) % 40)
    assert np.array_equal(any_[:, 0], first)
    assert all(len(set(row)) == n for row in any_.tolist())
    # All other partitions are equally likely, so the following one has its share of 1 in 39.
    followed = np.mean((np.diff(any_, axis=1) % 40) == 1)
    assert 0.5 / 39 < followed < 2 / 39
    assert set(any_[:, 1:].ravel().tolist()) == set(range(40))
    few = np.stack(Keys(3, 0.6, 3, True).partitions(draws, np.zeros(4000, np.int64), 3, False), axis=1)
    assert {tuple(row) for row in few.tolist()} == {(0, 1, 2), (0, 2, 1)}
