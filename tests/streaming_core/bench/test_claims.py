"""Claims of papers: the renderer finds the rows of both ways, and the verdict follows from the interval."""

from __future__ import annotations

import pytest

from streaming_core.bench import suite
from streaming_core.bench.claims import GOAL, NODES, TITLES, WORDS, Claim, lines
from streaming_core.bench.report import claim_lines


def row(way, rates, app="gs", threads=2, result="equal", **more):
    """A row of a race with these rates of its rounds."""
    plain = {"app": app, "way": way, "threads": threads, "result": result, "heat": app, "params": {}, "rounds": {}}
    return plain | {"rates": rates, "events_per_s": sorted(rates)[len(rates) // 2]} | more


def rendered(rows, cores=2, nodes=1, **of_claim):
    """The lines of a claim: case, as published, ours, verdict."""
    every = lines([Claim("A is faster than B.", "figure 1", **of_claim)], rows, cores, nodes)
    return [tuple(line.cells[name] for name in ("case", "published", "ours", "verdict")) for line in every]


def test_ways_are_compared_in_the_same_rounds_of_each_case():
    # The machine was half as fast in the second round.
    rows = [
        row("a", [8, 4, 8]), row("ours", [12, 6, 12]), row("b", [4, 2, 4]), row("c", [2, 1, 2]),
        row("d", [99, 99, 99], result="different"), row("b", [50, 50, 50], threads=1), row("a", [3, 3, 3], app="sl"),
    ]  # fmt: skip
    ways = {"published": {"way": "a"}, "ours": {"way": "ours"}, "over": {"way": ("b", "c", "d")}}
    assert rendered(rows, **ways) == [
        ("gs", "2 (2 to 2) times", "3 (3 to 3) times", "reproduced"),
        ("sl", "3e-06 M/s", "", "not testable here"),
    ]
    [line, _] = lines([Claim("A.", "figure 1", **ways, paper={"gs": 3.8})], rows, 2, 1)
    assert [line.cells[name] for name in TITLES] == [
        "A. (figure 1)", "throughput", "gs", "2 threads", "3.8 times", "2 (2 to 2) times", "3 (3 to 3) times", "", "",
        "weaker",
    ]  # fmt: skip


def test_compared_rows_have_one_heat_batch_and_interval():
    pooled = {"executor": "pooled", "to_loop": 0.5}
    rows = [
        row("ct", [1, 1, 1], batch=1, **pooled), row("et", [2, 2, 2], batch=1, **pooled),
        row("ours", [4, 4, 4], batch=1, **pooled), row("ours", [90, 90, 90], batch=256, **pooled | {"to_loop": 9.0}),
        row("et", [50, 50, 50], batch=256, **pooled), row("et", [70, 70, 70], batch=1, **pooled | {"heat": "other"}),
        row("morsel", [99, 99, 99], threads=1, batch=256, **pooled),
    ]  # fmt: skip
    claim = Claim("A.", "figure 1", {"way": "ct"}, {"way": "ours"}, {"way": "et"})
    [line] = lines([claim], rows, 2, 1)
    cells = line.cells
    assert (cells["conditions"], cells["published"], cells["ours"]) == (
        "1 event, 2 threads", "0.5 (0.5 to 0.5) times", "2 (2 to 2) times"
    )  # fmt: skip
    assert (cells["best"], cells["loop"]) == ("ours", "0.5, 0.5, 9"), "the best has any batch, but as many threads"
    interval = {"punctuation": 500, "executor": "transactional"}
    [line] = lines([claim], [row("ct", [1, 1, 1], **interval), row("et", [2, 2, 2], punctuation=100)], 2, 1)
    assert (line.cells["conditions"], line.verdict) == ("500 events, 2 threads", "not testable here")


def test_rounds_with_cores_at_other_distances_do_not_count():
    def ways(*trips):
        rates, known = ([8, 4, 1], [4, 2, 2]), ([60.0, 60.0, 60.0], list(trips))
        loops = ([4.0, 2.0, 0.5], [2.0, 1.0, 1.0])
        every = zip("ab", rates, known, loops, strict=True)
        return [row(way, of, rounds={"round_trip_ns": t, "to_loop": loop}) for way, of, t, loop in every]

    of_claim = {"published": {"way": "a"}, "over": {"way": "b"}}
    assert rendered(ways(60.0, 70.0, 65.0), **of_claim)[0][1] == "no difference seen (0.5 to 2)"
    # Two rounds are too few, so the medians at the distance of most rounds are compared, relative to the loop.
    assert rendered(ways(60.0, 70.0, 220.0), **of_claim)[0][1] == "no difference seen (0.25 to 4)"
    assert rendered(ways(220.0, 220.0, 220.0), **of_claim)[0][1:] == (
        "no round at the same core distance", "", "not testable here: the cores moved"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rates", "expects", "paper", "verdict"),
    [
        ([2, 2, 2], ">", None, "reproduced"),
        ([2, 2, 2], ">", 3.0, "weaker"),
        ([0.9, 1.0, 1.1], ">", None, "weaker"),
        ([0.8, 0.8, 0.9], ">", None, "reversed"),
        ([0.5, 0.5, 0.5], "<", 0.6, "reproduced"),
        ([0.5, 0.5, 0.5], "<", 0.1, "weaker"),
        ([2, 2, 2], "<", None, "reversed"),
        ([0.9, 1.0, 1.1], "=", None, "reproduced"),
        ([1.2, 1.2, 1.3], "=", None, "weaker"),
        ([0.4, 1.0, 1.1], "=", None, "not testable here: the interval is wide"),
        ([0.9, 1.0, 1.1], "<=", None, "reproduced"),
        ([1.2, 1.2, 1.3], "<=", None, "weaker"),
        ([0.9, 1.0, 1.1], ">=", 1.05, "weaker"),
        ([2], ">", None, "not testable here"),
    ],
)
def test_verdict_follows_from_the_interval(rates, expects, paper, verdict):
    rows = [row("a", rates), row("b", [1.0] * len(rates))]
    ways = {"published": {"way": "a"}, "over": {"way": "b"}}
    assert rendered(rows, **ways, expects=expects, paper=paper)[0][-1] == verdict


def test_claim_without_rows_or_means_is_not_testable():
    rows = [row("a", [2, 2, 2]), row("b", [1, 1, 1])]
    ways = {"published": {"way": "a"}, "over": {"way": "b"}}
    assert rendered([], **ways) == [("", "", "", "not testable here")]
    assert rendered(rows) == [("", "", "", "not testable here")]
    for needs, here, there in ((NODES, (2, 1), (2, 2)), (3, (2, 1), (3, 1))):
        assert rendered(rows, *here, **ways, needs=needs)[0][-1].startswith("not testable here: needs ")
        assert rendered(rows, *there, **ways, needs=needs)[0][-1] == "reproduced"
    assert rendered(rows, **ways, needs="Storm")[0][1:] == ("2 (2 to 2) times", "", "not testable here: needs Storm")


def test_other_row_may_differ_in_threads_or_parameters():
    rows = [row("a", [threads] * 3, threads=threads, params={"theta": theta}) for threads in (1, 2) for theta in (0, 1)]
    speed_up = {"published": {"way": "a"}, "over": {"threads": 1}, "by": ("theta", "threads")}
    assert rendered(rows, **speed_up) == [
        ("theta 0, threads 2", "2 (2 to 2) times", "", "reproduced"),
        ("theta 1, threads 2", "2 (2 to 2) times", "", "reproduced"),
    ]
    skew = {"published": {"way": "a", "theta": 1}, "over": {"theta": 0}, "by": ("way",), "expects": "="}
    assert rendered(rows, **skew) == [("a", "no difference seen (1 to 1)", "", "reproduced")]


def test_columns_shares_and_passes_are_compared_with_the_papers_value():
    spent = {"sync": 30.0, "lock": 10.0, "useful": 60.0}
    late = {"end_to_end_p99_us": 220.0, "end_to_end_p99_us_range": [200.0, 240.0], "breakdown": spent}
    rows = [row("a", [1, 1, 1], **late)]
    waiting = {"published": {"way": "a"}, "column": ("sync", "lock"), "expects": ">="}
    assert rendered(rows, **waiting, paper=0.8) == [("gs", "40 %", "", "weaker")]
    p99 = {"published": {"way": "a"}, "column": "end_to_end_p99_us", "expects": "<="}
    assert rendered(rows, **p99, paper=630.0) == [("gs", "0.22 ms (0.2 to 0.24)", "", "reproduced")]
    assert rendered(rows, **p99)[0][-1] == "not testable here", "the paper has no value"
    passes = [row("a", [1], **{"pass": number}, spike_s=float(number)) for number in range(3)]
    spikes = {"published": {"way": "a"}, "column": "spike_s", "expects": "<=", "paper": 1.0}
    assert rendered([*passes, passes[0] | {"at_s": 1.0, "spike_s": 9.0}], **spikes)[0][1:] == (
        "1 (0 to 2)", "", "reproduced"
    )  # fmt: skip


def test_goals_are_met_or_missed_by_our_way():
    rows = [row("ours", [2, 2, 2]), row("loop", [1, 1, 1], threads=1, result="yardstick")]
    for paper, verdict in ((1.5, "met"), (2.5, "missed")):
        over = {"way": "loop", "threads": 1}
        goal = Claim("Twice as fast.", GOAL, ours={"way": "ours"}, over=over, expects=">=", paper=paper)
        [line] = lines([goal], rows, 2, 1)
        assert (line.cells["ours"], line.verdict) == ("2 (2 to 2) times", verdict)


@pytest.mark.parametrize("name", suite.SUITES)
def test_every_claim_has_a_source_and_columns_that_tell_ways_apart(name):
    declared = suite.load(name)
    if name not in ("scaling", "engines", "nexmark"):
        assert sum(len(experiment.claims) for experiment in declared.experiments) <= 10, "a table has ten rows"
    for experiment in declared.experiments:
        for claim in experiment.claims:
            assert claim.says.endswith(".")
            assert claim.source
            assert claim.expects in WORDS
            assert claim.published is not None or claim.ours is not None or claim.needs
            assert claim.over or claim.paper is not None or claim.needs, "something to compare with"


def test_results_of_unknown_experiments_have_no_claims():
    result = {"suite": "tstream", "host": {"cores": 2}, "topology": {}}
    assert claim_lines(result, {"name": "gone", "rows": []}) == []
    assert claim_lines(result | {"suite": "gone"}, {"name": "schemes", "rows": []}) == []
