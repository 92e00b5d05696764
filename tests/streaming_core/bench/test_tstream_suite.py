"""TStream's suite: an experiment for each figure, the paper's workloads, and sentences that rows support."""

import pytest

from streaming_core.bench import suite, tstream, tstream_claims, tstream_sentences
from streaming_core.run import probe
from streaming_core.run.way import EXECUTORS

BY_NAME = {experiment.name: experiment for experiment in tstream.SUITE.experiments}
SCHEMES = EXECUTORS["transactional"].axes()["scheme"]
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


def test_every_figure_of_the_evaluation_is_an_experiment():
    assert {experiment.name: experiment.figure for experiment in tstream.SUITE.experiments} == {
        "contention": "figure 1",
        "schemes": "figure 8 (a, b, c, d)",
        "breakdown": "figure 9 (a, b)",
        "partition-ratio": "figure 10a",
        "partition-length": "figure 10b",
        "read-ratio": "figure 11a",
        "skew": "figure 11b",
        "punctuation": "figure 12 (a, b)",
        "latency": "figure 13",
        "pools": "figure 14",
        "three-writes": "section VI-G",
        "joint": "section V",
        "index": "section VI-D",
        "keyed": "figure 2",
    }
    assert tstream.SUITE.pinned
    for experiment in tstream.SUITE.experiments:
        assert experiment.plots
        assert experiment.claims
        assert all(claim.says and claim.source for claim in experiment.claims)


def test_claims_quote_the_papers_numbers():
    numbers = " ".join(claim.numbers for experiment in tstream.SUITE.experiments for claim in experiment.claims)
    for number in (
        "3.8 times PAT on GS", "1.7 times PAT on SL", "3.3 times PAT on OB", "4.8 times LOCK on TP", "about 80 %",
        "more than 50 %", "0.23 to 0.63 ms", "1.6 to 7.0 times", "TP 39 %, SL 29 %, OB 22 %, GS 13 %",
        "11.7 K events/s against 3.6 K events/s", "200 KB",
    ):  # fmt: skip
        assert number in numbers


@pytest.mark.parametrize("counts", [[1], [1, 2], [1, 2, 4, 8]])
def test_every_experiment_includes_the_published_scheme_and_ours(counts):
    for name in BY_NAME:
        for heat in heats(name, counts):
            assert {(way.app, tuple(way.params)) for way in heat.ways} == {(heat.app, tuple(heat.params))}
            schemes = {way.scheme for way in heat.ways if way.executor == "transactional"}
            assert {"tstream", "owners"} <= schemes or heat.app == "tpk"
            assert len({way.spec_digest for way in heat.ways}) == len(heat.ways)
            assert {way.threads for way in heat.ways} <= {1, max(counts), *counts}


@pytest.mark.parametrize("counts", [[1], [1, 2], [1, 2, 4, 8]])
def test_figures_1_and_8_include_all_thread_counts(counts):
    most = max(counts)
    assert {(way.scheme, way.threads) for _, way in ways("contention", counts)} == {
        (scheme, threads) for scheme in ("pat", "tstream", "owners") for threads in counts
    }
    cells = {(way.app, way.scheme, way.threads) for _, way in ways("schemes", counts)}
    schemes = [*PAPERS, "no_lock", "owners"]
    wanted = {(app, scheme, n) for app in ("gs", "sl", "ob", "tp", "fx") for scheme in schemes for n in counts}
    assert cells - wanted == {(app, "serial", most) for app in ("gs", "sl", "ob", "tp", "fx") if most > 1}
    assert wanted <= cells


def test_workloads_use_the_papers_parameters():
    """Section VI-A: sizes of records, and three transactions for a report. Section VI-B: random partitions."""
    for name in BY_NAME:
        for heat in heats(name, [1, 2]):
            if name == "keyed" or heat.app == "fx":
                continue
            assert heat.params["payload"] == {"gs": 15, "sl": 11, "ob": 4, "tp": 8}[heat.app]
            if heat.app == "tp":
                assert heat.params["separate"] or name == "joint"
            else:
                assert heat.params["mp_partitions"] == "any"
    for name, parameter, values, fixed in (
        ("partition-ratio", "mp_ratio", [0, 0.5, 1], {"mp_len": 6}),
        ("partition-length", "mp_len", [1, 4, 10], {"mp_ratio": 0.5}),
        ("read-ratio", "read_ratio", [0, 0.5, 1], {"theta": 0, "mp_ratio": 0.5, "summation": False}),
        ("skew", "theta", [0, 0.6, 1], {"read_ratio": 0, "mp_ratio": 0.5}),
    ):
        swept = heats(name, [1, 2])
        assert [heat.params[parameter] for heat in swept] == values
        assert all(fixed.items() <= heat.params.items() for heat in swept)
        assert {way.threads for heat in swept for way in heat.ways} == {2}
        assert "Left out" in " ".join(BY_NAME[name].sweep([1, 2])[1])
    [writes] = heats("three-writes", [1, 2])
    assert (writes.params["length"], writes.params["read_ratio"], writes.params["mp_ratio"]) == (3, 0, 0)
    assert {way.threads for way in writes.ways} == {1}


def test_punctuation_varies_for_the_published_scheme():
    for heat in heats("punctuation", [1, 2]):
        assert [way.punctuation for way in heat.ways if way.scheme == "tstream"] == [10, 100, 500, 1000]
    assert {way.punctuation for _, way in ways("latency", [1, 2])} == {500}
    assert BY_NAME["latency"].loads
    assert BY_NAME["punctuation"].loads


def test_one_socket_is_compared_with_all_on_hosts_with_several(monkeypatch):
    machine(monkeypatch, 1, 2)
    [heat] = heats("breakdown", [1, 2])
    assert {way.threads for way in heat.ways} == {2}
    assert "would repeat part (a)" in " ".join(BY_NAME["breakdown"].sweep([1, 2])[1])
    machine(monkeypatch, 4, 10)
    one, four = heats("breakdown", [1, 10, 40])
    assert [{way.threads for way in heat.ways} for heat in (one, four)] == [{10}, {40}]
    assert "10 cores of this machine's first socket" in BY_NAME["breakdown"].sweep([1, 10, 40])[1][0]


def test_pools_per_socket_require_several_threads_per_socket(monkeypatch):
    def pools(counts):
        return {(way.pool, way.stealing) for _, way in ways("pools", counts) if way.scheme == "tstream"}

    machine(monkeypatch, 1, 2)
    nothing, everything = ("shared_nothing", False), [("shared_everything", steals) for steals in (False, True)]
    assert pools([1, 2]) == {nothing, *everything}
    assert "shared_per_socket equals shared_nothing" in " ".join(BY_NAME["pools"].sweep([1, 2])[1])
    per_socket = {("shared_per_socket", steals) for steals in (False, True)}
    assert pools([4]) == {nothing, *everything, *per_socket}
    machine(monkeypatch, 2, 1)
    assert pools([1, 2]) == {nothing, *everything, *per_socket}
    assert BY_NAME["pools"].sweep([1, 2])[1] == []


def row(way, rates, app="gs", threads=2, result="equal", heat=0, **more):
    """A row of a race with these rates of its rounds."""
    params = more.pop("params", {})
    plain = {"app": app, "way": way, "scheme": way, "threads": threads, "result": result, "heat": heat}
    return (
        plain
        | {"params": params, "rates": rates, "events_per_s": sorted(rates)[1], "rounds": {}}
        | {"events_per_s_range": [min(rates), max(rates)]}
        | more
    )


def test_the_best_scheme_is_compared_with_the_best_baseline():
    # Ratios are those of the same rounds: the machine was half as fast in the second.
    rows = [
        row("tstream", [8, 4, 8]),
        row("owners", [12, 6, 12]),
        row("serial", [16, 8, 16]),
        row("pat", [4, 2, 4]),
        row("lock", [2, 1, 2]),
        row("mvlk", [90, 90, 90], result="different"),
        row("no_lock", [32, 16, 32], result="bound"),
        row("pat", [99, 99, 99], threads=1),
    ]
    faster, bound, dependent, pat = tstream_claims.FASTER
    assert faster.published(rows) == "gs: tstream has 2 (2 to 2) times the throughput of pat"
    assert faster.ours(rows) == "gs: serial has 4 (4 to 4) times the throughput of pat"
    assert bound.published(rows) == "gs: no_lock has 4 (4 to 4) times the throughput of tstream"
    assert bound.ours(rows) == "gs: no_lock has 2 (2 to 2) times the throughput of serial"
    assert pat.published(rows) == "gs: pat has 2 (2 to 2) times the throughput of lock"
    assert pat.ours(rows) == "gs: owners has 3 (3 to 3) times the throughput of pat"
    assert dependent.published(rows) == ""
    rows += [row("tstream", [3, 3, 3], app="sl"), row("pat", [2, 4, 3], app="sl")]
    assert dependent.published(rows) == (
        "throughput relative to PAT: sl no difference seen (0.75 to 1.5); gs 2 (2 to 2) times"
    )
    assert list(tstream._relative(rows))[:2] == [
        "gs, 2 threads: tstream has 2 (2 to 2) times the throughput of pat",
        "gs, 2 threads: serial has 4 (4 to 4) times the throughput of pat",
    ]
    assert faster.published([]) == ""


def test_shares_of_time_come_from_the_breakdown():
    spent = {"useful": 50, "sync": 30, "lock": 10, "remote": 0, "other": 10}
    rows = [
        row("pat", [1, 1, 1], threads=1, breakdown=spent | {"sync": 0}),
        row("pat", [1, 1, 1], breakdown=spent),
        row("lock", [1, 1, 1], breakdown=spent | {"sync": 130}),
        row("no_lock", [1, 1, 1], result="bound", breakdown=spent),
        row("owners", [1, 1, 1]),
    ]
    [contention] = tstream_claims.CONTENTION
    assert contention.published(rows) == "pat: 14 % on 1 thread, 40 % on 2 threads"
    assert contention.ours(rows) == ""
    waiting, others, *_ = tstream_claims.BREAKDOWN
    assert waiting.published(rows) == "lock 70 %, pat 40 %"
    assert others.published(rows) == "no_lock 10 %"


def test_steps_of_the_published_algorithm_are_per_transaction():
    costs = dict.fromkeys(tstream_sentences.STEPS, 10.0) | {"barriers": 40.0}
    costs |= {"chains_per_interval": 250.0, "dependent_chains_per_interval": 50.0, "rounds_per_interval": 2.5}
    rows = [row("tstream", [1, 1, 1], "sl", threads=1, costs=costs), row("owners", [1, 1, 1], "sl", threads=1)]
    assert list(tstream_sentences.steps(rows)) == [
        "sl, tstream, 1 thread: ns per transaction, summed over threads: planning 10, decomposition 10, insertion 10, "
        "rounds 10, barriers 40, post-processing 10, delivery 10. An interval has 250 chains, 50 of them dependent, "
        "and 2.5 rounds"
    ]
    # The five other steps are compute mode; waiting is in no mode.
    assert tstream_claims.COMPUTE_MODE.published(rows) == "sl: 83 %"
    assert "steps" not in rows[1]


def test_parameter_effects_are_relative_to_the_lowest_value():
    rows = [
        row("pat", [8, 8, 8], params={"mp_ratio": 0.0}),
        row("pat", [2, 2, 2], params={"mp_ratio": 1.0}, heat=1),
        row("tstream", [8, 9, 10], params={"mp_ratio": 0.0}),
        row("tstream", [10, 9, 8], params={"mp_ratio": 1.0}, heat=1),
    ]
    falls, slower = tstream_claims.partitions("mp_ratio", 0.0, 1.0)
    assert falls.published(rows) == (
        "mp_ratio 1 relative to 0: pat 0.25 (0.25 to 0.25) times, tstream no difference seen (0.8 to 1.25)"
    )
    assert falls.ours(rows) == ""
    assert slower.published(rows) == (
        "at mp_ratio 0, no difference seen between the throughput of tstream and of pat (1 to 1.25)"
    )


def test_latencies_are_compared_with_the_fastest_baseline():
    def waiting(way, us):
        return row(way, [1, 1, 1], rounds={"end_to_end_p99_us": us}, end_to_end_p99_us=sorted(us)[1], punctuation=500)

    rows = [waiting("tstream", [200.0, 240.0, 220.0]), waiting("pat", [400.0, 480.0, 440.0])]
    rows.append(waiting("lock", [900.0, 900.0, 900.0]))
    [claim] = tstream_claims.LATENCY
    assert claim.published(rows) == "gs: tstream has 0.5 (0.5 to 0.5) times the p99 latency of pat"
    rows[0]["end_to_end_p99_us_range"] = [200.0, 240.0]
    assert tstream_claims.PUNCTUATION[1].published(rows) == "gs: tstream 0.22 ms (0.2 to 0.24)"


def test_stealing_is_compared_within_a_pool():
    rows = [
        row("tstream", [4, 4, 4], pool="shared_nothing", stealing=False),
        row("tstream-e", [1, 1, 1], scheme="tstream", pool="shared_everything", stealing=False),
        row("tstream-e-s", [3, 3, 3], scheme="tstream", pool="shared_everything", stealing=True),
        row("owners", [8, 8, 8], pool=None, stealing=False),
    ]
    steals, best = tstream_claims.NUMA
    assert steals.published(rows) == "gs: everything 3 (3 to 3) times"
    assert best.published(rows) == "gs: tstream has 1.33 (1.33 to 1.33) times the throughput of tstream-e-s"
    assert best.ours(rows) == "gs: owners has 2 (2 to 2) times the throughput of tstream"


def test_coordination_is_a_transactions_time_beyond_the_loops():
    rows = [
        row("loop", [2e7, 2e7, 2e7], threads=1, result="yardstick"),
        row("pat", [1e7, 1e7, 1e7], threads=1),
        row("tstream", [5e6, 5e6, 5e6], threads=1),
    ]
    assert list(tstream_sentences.coordination(rows)) == [
        "pat: +50 ns (+50 to +50) per transaction; the loop takes 50 ns",
        "tstream: +150 ns (+150 to +150) per transaction; the loop takes 50 ns",
    ]
    [claim] = tstream_claims.S_STORE
    assert "pat has 0.5 (0.5 to 0.5) times the throughput of loop" in claim.published(rows)
    assert "pat has 2 (2 to 2) times the throughput of tstream" in claim.published(rows)


def test_a_report_of_three_transactions_counts_once():
    rows = [
        row("tstream", [9.0, 9.0, 9.0], "tp", params={"separate": True}),
        row("tstream", [6.0, 6.0, 6.0], "tp", heat=1, params={"separate": False}),
    ]
    assert list(tstream._reports(rows)) == ["tstream, joint relative to separate, in reports: 2 (2 to 2) times"]
    assert [r["reports_per_s"] for r in rows] == [3, 6]


def test_an_index_and_keyed_state_are_compared_over_workloads():
    rows = [
        row(way, [rate] * 3, "sl", result=result, heat=heat, params={"index": index}, breakdown=spent)
        for heat, (index, rate, spent) in enumerate(
            (("dense", 4, {"useful": 9, "other": 1}), ("hash", 3, {"useful": 5, "other": 5}))
        )
        for way, result in (("tstream", "equal"), ("no_lock", "bound"))
    ]
    [claim] = tstream_claims.INDEX
    assert claim.published(rows) == (
        "throughput with a hash index relative to dense tables: "
        "no_lock 0.75 (0.75 to 0.75) times, with 50 % and 10 % of Others; "
        "tstream 0.75 (0.75 to 0.75) times, with 50 % and 10 % of Others"
    )
    rows = [row("affinity", [2, 2, 2], "tpk"), row("tstream", [3, 3, 3], "tp", heat=1)]
    assert list(tstream._of_keyed(rows)) == ["tstream relative to state keyed by segment: 1.5 (1.5 to 1.5) times"]


# Experiments that share one program, if sl is the only application; and all of them.
SHARED = (["breakdown", "punctuation", "latency", "pools"], ("sl",))
ALL = (list(BY_NAME), ("gs", "sl"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "apps"), [pytest.param(*SHARED, id="sl"), pytest.param(*ALL, id="all", marks=pytest.mark.slow)]
)
def test_a_quick_run_supports_every_claim(monkeypatch, tmp_path, names, apps):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    monkeypatch.setattr(tstream, "APPS", apps)
    monkeypatch.setattr(tstream, "FURTHER", ())
    results = suite.run(tstream.SUITE, names, 1_000, [1, 2], 1, quick=True)
    assert [experiment["name"] for experiment in results["experiments"]] == names
    for experiment in results["experiments"]:
        assert {row["result"] for row in experiment["rows"]} <= {"yardstick", "equal", "bound"}
        for claim in experiment["claims"]:
            assert claim["published"], claim
            assert claim["ours"], claim
        for plot in experiment["plots"]:
            assert any(r.get(plot["y"]) is not None for r in experiment["rows"]), (experiment["name"], plot["y"])
