"""TStream's suite: an experiment for each figure, the paper's workloads, and its claims."""

import pytest

from streaming_core.bench import suite
from streaming_core.bench.claims import TITLES
from streaming_core.bench.papers.tstream import evaluation, tstream
from streaming_core.bench.report import claim_lines
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


def test_claims_quote_the_papers_numbers():
    numbers = [claim.paper for experiment in tstream.SUITE.experiments for claim in experiment.claims]
    for paper in (
        {"gs": 3.8, "sl": 1.7, "ob": 3.3, "tp": 4.8}, {"gs": 0.13, "sl": 0.29, "ob": 0.22, "tp": 0.39}, 0.8, 0.5,
        630.0, 1.6, 11_700.0,
    ):  # fmt: skip
        assert paper in numbers


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


def row(way, rates, app="gs", **more):
    """A row of a race with these rates of its rounds."""
    plain = {"app": app, "way": way, "scheme": way, "threads": 2, "result": "equal", "heat": 0, "params": {}}
    return plain | {"rates": rates, "events_per_s": rates[0], "rounds": {}} | more


def verdicts(name, rows):
    """The case and the verdict of each line of an experiment's claims."""
    result = {"suite": "tstream", "host": {"cores": 2}, "topology": {}}
    return [(line["case"], line["verdict"]) for line in claim_lines(result, {"name": name, "rows": rows})]


def test_schemes_are_judged_against_the_best_baseline():
    rows = [row(way, [rate] * 3) for way, rate in (("tstream", 8), ("owners", 12), ("pat", 2), ("lock", 1))]
    rows += [row("no_lock", [32, 16, 32], result="bound")]
    better, bound, pat, slower, modes = verdicts("schemes", rows)
    assert better == ("gs", "reproduced")
    assert bound == ("gs", "reproduced")
    assert pat == ("gs", "reproduced")
    assert slower == modes == ("", "not testable here")


def test_steps_of_the_published_algorithm_make_its_compute_mode():
    costs = dict.fromkeys(evaluation.STEPS, 10.0)
    rows = [row("tstream", [1, 1, 1], "sl", threads=1, costs=costs), row("owners", [1, 1, 1], "sl", threads=1)]
    tstream._steps(rows)
    assert rows[0]["steps"] == costs
    assert "steps" not in rows[1]
    assert verdicts("schemes", rows)[-1] == ("sl", "weaker"), "71 %, not 29 %"


def test_a_report_of_three_transactions_counts_once():
    rows = [
        row("tstream", [9.0, 9.0, 9.0], "tp", params={"separate": True}),
        row("tstream", [6.0, 6.0, 6.0], "tp", heat=1, params={"separate": False}),
    ]
    tstream._reports(rows)
    assert [r["reports_per_s"] for r in rows] == [3, 6]
    assert verdicts("joint", rows) == [("tp", "reproduced")]


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
        for line in claim_lines(results, experiment):
            assert line["published"] or line["ours"], [line[name] for name in TITLES]
        for plot in experiment["plots"]:
            assert any(r.get(plot["y"]) is not None for r in experiment["rows"]), (experiment["name"], plot["y"])
