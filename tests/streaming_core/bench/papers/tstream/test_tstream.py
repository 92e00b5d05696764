"""TStream's suite: equal batches, the paper's workloads, and its claims."""

import itertools

import pytest

from streaming_core.bench import suite
from streaming_core.bench.papers.tstream import evaluation, tstream
from streaming_core.bench.report import claim_lines
from streaming_core.run import probe

BY_NAME = {experiment.name: experiment for experiment in tstream.SUITE.experiments}
PAPERS = {"tstream", "lock", "mvlk", "pat"}


def heats(name, counts):
    return BY_NAME[name].sweep(counts)[0]


def ways(name, counts):
    return [(heat, way) for heat in heats(name, counts) for way in heat.ways]


def machine(monkeypatch, sockets, cores):
    """Replaces the topology: `cores` cores on each socket, each with memory of its own."""
    listed = [{"id": i, "socket": i // cores, "node": i // cores, "physical": i} for i in range(sockets * cores)]
    topology = {"cores": listed, "sockets": sockets, "nodes": list(range(sockets)), "is_mock": sockets == 1}
    monkeypatch.setattr(probe, "topology", lambda: topology)


def test_the_main_chart_comes_first():
    assert [experiment.name for experiment in tstream.SUITE.experiments] == ["schemes", "contention", "latency"]
    assert tstream.SUITE.pinned
    for experiment in tstream.SUITE.experiments:
        assert experiment.plots
        assert experiment.needs
    assert sum(len(experiment.claims) for experiment in tstream.SUITE.experiments) == 10


def test_claims_quote_the_papers_numbers():
    numbers = [claim.paper for experiment in tstream.SUITE.experiments for claim in experiment.claims]
    for paper in ({"gs": 3.8, "sl": 1.7, "ob": 3.3, "tp": 4.8}, 0.5, 630.0, 1.6):
        assert paper in numbers


@pytest.mark.parametrize("counts", [[1], [1, 2], [1, 2, 4, 8]])
def test_every_heat_includes_the_published_scheme_and_ours(counts):
    for name in BY_NAME:
        for heat in heats(name, counts):
            assert {(way.app, tuple(way.params)) for way in heat.ways} == {(heat.app, tuple(heat.params))}
            assert {"tstream", "owners"} <= {way.scheme for way in heat.ways}
            assert len({way.spec_digest for way in heat.ways}) == len(heat.ways)
            assert {way.threads for way in heat.ways} <= {1, max(counts), *counts}


@pytest.mark.parametrize("counts", [[1], [1, 2], [1, 2, 4, 8]])
def test_ours_and_the_published_schemes_are_compared_at_equal_batches(counts):
    threads = [count for count in counts if count > 1] or counts
    cells = {(way.app, way.scheme, way.threads, way.punctuation) for _, way in ways("schemes", counts)}
    for app, count in itertools.product(("gs", "sl", "ob", "tp"), threads):
        ours, short = 250 * count, {("tstream", 10)} if count == max(counts) else set()
        here = {(scheme, interval) for name, scheme, at, interval in cells if (name, at) == (app, count)}
        both = set(itertools.product(PAPERS, (500, ours)))
        assert here == both | {("owners", ours), ("no_lock", 500)} | short
        assert {500, ours} <= {*evaluation.COMPARED}
    assert 10 not in evaluation.COMPARED


def test_workloads_use_the_papers_parameters():
    """Section VI-A: sizes of records, and three transactions for a report. Section VI-B: random partitions."""
    for name in BY_NAME:
        for heat in heats(name, [1, 2]):
            assert heat.params["payload"] == {"gs": 15, "sl": 11, "ob": 4, "tp": 8}[heat.app]
            assert heat.params.get("separate") if heat.app == "tp" else heat.params["mp_partitions"] == "any"


def test_pat_is_broken_down_on_all_thread_counts_and_latency_has_a_rate():
    cells = [(way.scheme, way.threads) for _, way in ways("contention", [1, 2])]
    assert cells == [(scheme, threads) for scheme in ("pat", "tstream", "owners") for threads in (1, 2)]
    assert {way.scheme for _, way in ways("latency", [1, 2])} == {*PAPERS, "owners"}
    assert {(way.punctuation, way.threads) for _, way in ways("latency", [1, 2])} == {(500, 2)}
    assert BY_NAME["latency"].loads


def test_pools_per_socket_require_several_sockets(monkeypatch):
    def pools(counts):
        return {(way.pool, way.stealing) for _, way in ways("schemes", counts) if way.scheme == "tstream"}

    machine(monkeypatch, 1, 2)
    nothing, everything = ("shared_nothing", False), [("shared_everything", steals) for steals in (False, True)]
    assert pools([1, 2]) == {nothing, *everything}
    assert "one socket" in " ".join(BY_NAME["schemes"].sweep([1, 2])[1])
    machine(monkeypatch, 2, 1)
    assert pools([1, 2]) == {nothing, *everything, *(("shared_per_socket", steals) for steals in (False, True))}


def row(way, rates, app="gs", **more):
    """A row of a race with these rates of its rounds."""
    plain = {
        "app": app,
        "way": way,
        "scheme": way,
        "threads": 2,
        "punctuation": 500,
        "pool": "shared_nothing",
        "stealing": False,
        "result": "equal",
        "heat": 0,
        "params": {},
    }
    return plain | {"rates": rates, "events_per_s": rates[0], "rounds": {}} | more


def verdicts(name, rows):
    """The case and the verdict of each line of an experiment's claims."""
    result = {"suite": "tstream", "host": {"cores": 2}, "topology": {}}
    return [(line.case, line.verdict) for line in claim_lines(result, {"name": name, "rows": rows})]


def test_schemes_are_judged_at_equal_intervals():
    rows = [row(way, [rate] * 3) for way, rate in (("tstream", 8), ("owners", 12), ("pat", 2), ("lock", 1))]
    rows += [row("no_lock", [32, 16, 32], result="bound"), row("tstream", [2] * 3, punctuation=10)]
    rows += [row("pat", [99] * 3, punctuation=10)]
    better, bound, pat, slower, interval, stealing, pools = verdicts("schemes", rows)
    assert better == ("gs, punctuation 500", "reproduced")
    assert bound == pat == interval == ("gs", "reproduced")
    assert slower == ("", "not testable here")
    assert stealing[1] == pools[1] == "not testable here: needs several memory nodes"


@pytest.mark.slow
def test_a_quick_run_supports_every_claim(monkeypatch, tmp_path):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    monkeypatch.setattr(tstream, "APPS", ("gs", "tp"))
    results = suite.run(tstream.SUITE, None, 1_000, [1, 2], 1, quick=True)
    assert [experiment["name"] for experiment in results["experiments"]] == list(BY_NAME)
    for experiment in results["experiments"]:
        assert {row["result"] for row in experiment["rows"]} <= {"yardstick", "equal", "bound"}
        for line in claim_lines(results, experiment):
            assert line.published or line.ours, line.cells
        for plot in experiment["plots"]:
            assert any(r.get(plot["y"]) is not None for r in experiment["rows"]), (experiment["name"], plot["y"])
