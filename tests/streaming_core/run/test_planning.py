"""Plans and profiles on the command line: results, refusals, and the measurements of a profile."""

import itertools
import json
import shutil

import pytest

from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.planner.machine import Machine
from streaming_core.run import planning, probe, profile, trial
from streaming_core.run.report import Planned, RunReport, Sample, TaskCost
from streaming_core.run.way import Pinned, RunSpec
from tests.streaming_core.cli.test_command import refused
from tests.support.draws import some

original = trial.of


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Workloads of wc and scalejoin, and a profile of wc."""
    root = tmp_path_factory.mktemp("plans")
    workload.write("wc", {"vocabulary": 20}, 2000, 1, root / "wc")
    workload.write("scalejoin", {"size": 1001}, 2000, 1, root / "scalejoin")
    workload.write("sl", {}, 100, 1, root / "sl")
    measurement = profile.measure(workload.read(root / "wc"), repetitions=1)
    measurement.save(root / "profile.json")
    Machine.of_threads(2, 50.0).save(root / "machine.json")
    return root


def test_a_computed_plan_runs(command, workspace, tmp_path):
    arguments = ("wc", "--input", workspace / "wc")
    code, shown, stderr = command("plan", *arguments, "--threads", 2, "--out", tmp_path / "plan.json")
    assert (code, stderr) == (0, "")
    assert [line.split()[0] for line in shown.splitlines()[1:5]] == ["source", "split", "count", "sink"]
    assert "strategy balanced on this host: predicts " in shown
    assert " events/s, limited by " in shown
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan.keys() == {"source", "split", "count", "sink"}
    way = ("--executor", "pinned", "--threads", 2, "--plan", tmp_path / "plan.json")
    assert command("run", *arguments, "--out", tmp_path / "run", *way)[0] == 0
    assert command("oracle", *arguments, "--out", tmp_path / "oracle")[0] == 0
    assert command("diff", tmp_path / "run", tmp_path / "oracle")[0] == 0


def test_a_run_computes_its_plan_and_reports_the_prediction_error(command, workspace, tmp_path):
    arguments = ("wc", "--input", workspace / "wc", "--out", tmp_path / "run", "--executor", "pinned", "--threads", 2)
    code, shown, stderr = command("run", *arguments, "--repetitions", 1, "--seconds", 0)
    assert (code, stderr) == (0, "")
    assert shown.startswith("wc.pinned.gate-planned.t2.")
    assert shown.splitlines()[1].startswith("plan auto, threads of each operator: source ")
    assert shown.splitlines()[2].startswith("plan auto, prediction: ")
    report = RunReport.model_validate_json((tmp_path / "run" / "report.json").read_bytes())
    assert (report.spec["plan"], report.spec["pin"]) == ("auto", False)
    assert report.binding is not None
    assert report.planned.plan.keys() == {"source", "split", "count", "sink"}
    for operator, places in report.planned.plan.items():
        ran = [t.thread for t in report.verified.tasks if t.operator == operator and t.role != "merge"]
        assert sorted(ran) == sorted(places)
    measured = report.samples[1].events_per_s
    assert report.planned.error == pytest.approx(abs(measured - report.planned.events_per_s) / measured)
    # The same request is the same run, an explicit plan another one.
    assert command("run", *arguments, "--plan", "auto", "--repetitions", 1, "--seconds", 0)[1:] == (
        shown,
        f"streaming-core: {tmp_path / 'run'} already holds this run; nothing to do\n",
    )
    assert RunSpec.parse(report.spec).spec_digest != RunSpec.parse(report.spec | {"plan": {}}).spec_digest
    assert command("oracle", *arguments[:3], "--out", tmp_path / "oracle")[0] == 0
    assert command("diff", tmp_path / "run", tmp_path / "oracle")[0] == 0


def test_a_run_without_placement_options_gets_a_computed_plan(command, workspace, tmp_path):
    def run(name, *arguments):
        code, shown, stderr = command("run", *arguments, "--out", tmp_path / name, "--json")
        assert code == 0, stderr
        report = json.loads(shown)
        return report["spec"]["plan"], report["planned"] is not None

    arguments = ("wc", "--executor", "pinned", "--threads", 2, "--input", workspace / "wc")
    assert run("found", *arguments) == ("auto", True)
    assert run("replicated", *arguments, "--plan", "replicated") == ({}, False)
    # A specification is complete.
    spec = {"app": "wc", "params": {"vocabulary": 20}, "executor": "pinned", "threads": 2}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert run("specified", tmp_path / "spec.json", "--input", workspace / "wc") == ({}, False)
    # A workload without events cannot be measured.
    workload.write("wc", {}, 0, 1, tmp_path / "empty")
    assert run("none", *arguments[:-1], tmp_path / "empty") == ("auto", False)
    # Options that need replicas get them.
    windows = {"app": "scalejoin", "executor": "pinned", "threads": 2}
    assert RunSpec.parse(windows).leaves_plan_open
    schedule = [{"event": 1, "owners": {"from_left": 1}}]
    for option in ({"threads": 1}, {"schedule": schedule}, {"controller": "threshold"}, {"parallelism": "sn"}):
        assert not RunSpec.parse(windows | option).leaves_plan_open


def test_threads_beyond_the_core_count_stay_idle(workspace):
    cores = len(probe.topology()["cores"])
    spec = Pinned(app="wc", threads=cores + 3, plan="auto")
    planned, _ = planning.planned(spec, workload.read(workspace / "wc"))
    assert max(thread for places in planned.plan.values() for thread in places) < cores


def test_a_changed_load_is_reported_with_a_better_plan(workspace):
    source, spec = workload.read(workspace / "wc"), Pinned(app="wc", threads=2, plan="auto")
    known = profile.Profile.read(workspace / "profile.json")
    alone = known.patterns[0].costs
    # Two threads that share no operator carry half of the load each.
    costs = {
        "source": alone["source"].changed(execute=0.0, others=10.0),
        "split": alone["split"].changed(execute=1000.0, others=0.0),
        "count": alone["count"].changed(execute=100.0, others=0.0),
        "sink": alone["sink"].changed(execute=0.0, others=1.0),
    }
    known = known.changed(patterns=[pattern.changed(costs=costs) for pattern in known.patterns])
    placement = planning.find_on(known, Machine.of_threads(2))
    planned = Planned(plan=placement.as_plan(), strategy="balanced", events_per_s=1e6, bottleneck="core 0")

    def after(kind="peak", seconds=0.5, **times):
        tasks = [
            TaskCost(
                role={"source": "source", "sink": "sink"}.get(name, "operator"),
                operator=name,
                thread=placement.as_plan()[name][0],
                rows_in=cost.rows_in,
                rows_out=cost.rows_out,
                batches=1,
                execute_ns=round(2 * cost.execute * cost.rows_in * times.get(name, 1)),
                others_ns=round(2 * cost.others * cost.rows_in),
                execute_quantiles=[],
            )
            for name, cost in costs.items()
        ]
        peak = Sample.model_construct(kind=kind, events_per_s=5e5, seconds=seconds, tasks=tasks)
        return planning.judged(planned, placement, known, peak)

    # Everything is twice as slow, so the distribution of the load is unchanged.
    same = after()
    assert (same.error, same.changed, same.better) == (1.0, {}, None)
    assert after(kind="open_loop") == after(kind="verified") == planned
    assert after(seconds=0.02, count=8) == same
    slower = after(count=8)
    assert slower.changed.keys() == {"split", "count"}
    assert slower.changed["count"] / slower.changed["split"] == pytest.approx(8, rel=0.01)
    assert slower.better.plan.keys() == planned.plan.keys()
    assert slower.better.plan != planned.plan
    assert slower.better.events_per_s > 1.05 * slower.better.instead_of
    assert planning.planned(spec, source)[1].func is planning.judged


def test_requests_without_a_computable_plan_are_refused(command, workspace, tmp_path):
    arguments = ("--input", workspace / "wc", "--out", tmp_path / "out", "--plan", "auto")
    refused(command("run", "wc", *arguments, "--executor", "pooled"), "executor pooled has no plan; pinned has")
    refused(command("plan", "wc", "--input", workspace / "wc", "--threads", 1024), "threads must be between 1 and")
    spec = {"app": "wc", "params": {"vocabulary": 21}, "executor": "pinned", "plan": "auto"}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    there = sorted((workspace / "wc.profiles").glob("*")) if (workspace / "wc.profiles").exists() else []
    refused(
        command("run", tmp_path / "spec.json", *arguments[:4]), "has vocabulary=20, but the request has vocabulary=21"
    )
    assert sorted((workspace / "wc.profiles").glob("*")) == there
    refused(
        command("record", "wc", "--operator", "count", *arguments, "--executor", "pinned"),
        "a recording does not support plan auto",
    )
    of_windows = (
        "--input", workspace / "scalejoin", "--out", tmp_path / "out", "--plan", "auto", "--parallelism", "sn",
    )  # fmt: skip
    refused(command("run", "scalejoin", *of_windows), "found for parallelism vsn, not sn")
    schedule = tmp_path / "schedule.json"
    schedule.write_text('[{"event": 10, "owners": {"from_left": [7]}}]')
    refused(command("run", "scalejoin", *of_windows[:6], "--schedule", schedule), "from_left has replicas 0 to 0")
    (tmp_path / "plan.json").write_text('"best"')
    refused(
        command("run", "wc", *arguments[:4], "--executor", "pinned", "--plan", tmp_path / "plan.json"), "must hold {"
    )
    assert not (tmp_path / "out").exists()


DOUBLED = """
import numpy as np
from streaming_core.api import App, i64, record

app = App("doubled")

@record
class Number:
    ts: i64
    n: i64

def count(row, state, out):
    state.n += 1
    out.emit(ts=row.ts, n=state.n)

events = app.source(Number)
events.union(events).key_by("n").process(count, state=Number, output=Number).sink()
app.generates(lambda params, seed, start, stop: {"ts": np.arange(start, stop), "n": np.arange(start, stop) % 7})
"""


def test_an_operator_that_takes_a_stream_twice_can_be_planned(command, package, tmp_path):
    (package / "doubled.py").write_text(DOUBLED)
    workload.write("doubled", {}, 100, 1, tmp_path / "w")
    arguments = ("doubled", "--input", tmp_path / "w", "--out")
    way = ("--executor", "pinned", "--threads", 2, "--plan", "auto", "--json")
    code, shown, stderr = command("run", *arguments, tmp_path / "run", *way)
    assert (code, stderr) == (0, "")
    report = json.loads(shown)
    assert report["planned"]["plan"].keys() == {"source", "count", "sink"}
    assert report["samples"][0]["outputs"] == 200
    assert command("oracle", *arguments, tmp_path / "oracle")[0] == 0
    assert command("diff", tmp_path / "run", tmp_path / "oracle")[0] == 0


@pytest.mark.parametrize("error", some([ValueError("math domain error"), BadInput("no room for 4 replicas")]))
def test_a_default_run_falls_back_to_the_replicated_plan(command, workspace, tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(planning.strategies, "plan", lambda *_, **__: fail())
    arguments = ("scalejoin", "--input", workspace / "scalejoin", "--threads", 2, "--out")
    code, shown, stderr = command("run", *arguments, tmp_path / "run", "--json")
    assert code == 0
    assert stderr.startswith("streaming-core: found no plan, so the run uses the replicated plan: ")
    assert (stderr.count("\n"), str(error) in stderr) == (1, True)
    report = json.loads(shown)
    assert (report["planned"], str(error) in report["unplanned"]) == (None, True)
    assert {t["thread"] for t in report["samples"][0]["tasks"] if t["operator"] == "from_left"} == {0, 1}
    refused(command("run", *arguments, tmp_path / "explicit", "--plan", "auto"), str(error))
    assert not (tmp_path / "explicit").exists()


def test_a_profile_is_measured_once(command, workspace, monkeypatch):
    arguments = ("plan", "wc", "--input", workspace / "wc", "--machine", "server_a", "--json")
    first = json.loads(command(*arguments)[1])
    monkeypatch.setattr(profile, "measure", lambda *_, **__: pytest.fail("measured again"))
    again = json.loads(command(*arguments)[1])
    assert again == first
    known = profile.Profile.read(workspace / "wc.profiles" / first["profile"].rpartition("/")[2])
    assert known.content_digest == workload.read(workspace / "wc").manifest["content_digest"]
    monkeypatch.undo()
    other = json.loads(command(*arguments, "--channel", "shared_ring")[1])
    assert other["profile"] != first["profile"]


@pytest.mark.slow
def test_a_profile_depends_on_parameters_and_batch(workspace, tmp_path):
    places = set()
    for rows in (2, 3):  # which operators read, and generators do not
        workload.write("fd", {"window": rows}, 200, 1, tmp_path / "fd")
        for batch in (16, 256):
            measurement, path = profile.kept(workload.read(tmp_path / "fd"), batch=batch)
            assert (measurement.params["window"], measurement.batch) == (rows, batch)
            places.add(path)
        shutil.rmtree(tmp_path / "fd")
    assert len(places) == 4


def test_a_workload_in_a_read_only_folder_can_be_planned(command, workspace, monkeypatch):
    def refuse(self, path):
        raise BadInput(f"cannot write {path}: Permission denied")

    monkeypatch.setattr(profile.Profile, "save", refuse)
    monkeypatch.setattr(profile.provenance, "build", lambda: "another")
    code, shown, _ = command("plan", "wc", "--input", workspace / "wc", "--machine", "server_a", "--json")
    assert (code, json.loads(shown)["profile"]) == (0, None)


def test_a_workload_in_the_current_folder_can_be_planned(command, workspace, monkeypatch):
    monkeypatch.chdir(workspace / "wc")
    code, shown, _ = command("plan", "wc", "--input", ".", "--machine", "server_a", "--json")
    assert (code, json.loads(shown)["profile"].rpartition("/")[0]) == (0, str(workspace / "wc.profiles"))


def test_a_profile_gives_the_planner_costs_weights_and_sizes(workspace):
    measurement = profile.Profile.read(workspace / "profile.json")
    # Every combination of one or two replicas of the three operators that can have several.
    several = [{name for name, n in pattern.replicas.items() if n == 2} for pattern in measurement.patterns]
    able = ("split", "count", "sink")
    assert several == [set(chosen) for n in range(4) for chosen in itertools.combinations(able, n)]
    for pattern in measurement.patterns:
        assert {name: (c.rows_in, c.rows_out) for name, c in pattern.costs.items()} == {
            "source": (2000, 2000), "split": (2000, 20000), "count": (20000, 20000), "sink": (20000, 20000)
        }  # fmt: skip
        assert all(c.execute >= 0 and c.others > 0 and len(c.quantiles) == 21 for c in pattern.costs.values())
    assert sum(measurement.weights["count"]) == 20000
    assert 2 <= sum(weight > 0 for weight in measurement.weights["count"]) <= 20
    # A row holds its seq, 8 bytes for each field and its letters: a sentence, a word, then a word and its count.
    sizes = measurement.row_bytes
    assert sizes["split"]["source"] == sizes["source"]["events"] > 16 + 10
    assert sizes["count"]["split"] + 8 == sizes["sink"]["count"]
    app = workload.read(workspace / "wc").app
    graph = measurement.graph(app, 2)
    assert [(o.name, o.replicas) for o in graph.operators] == [("source", 1), ("split", 2), ("count", 2), ("sink", 2)]
    both = measurement.patterns[-1].costs["count"]
    assert graph.replicated([1, 2, 2, 2]).by_name["count"].inputs[0].ns == both.execute


def test_every_replica_of_a_windowed_operator_reads_all_rows(workspace):
    source = workload.read(workspace / "scalejoin")
    measurement = profile.measure(source, repetitions=1)
    graph = measurement.graph(source.app, 2)
    alone, shared = [graph.replicated([1, 1, 1, n, 1]).by_name["from_left"] for n in (1, 2)]
    for operator, n in ((alone, 1), (shared, 2)):
        cost = next(
            pattern
            for pattern in measurement.patterns
            if pattern.replicas["from_left"] == n and pattern.replicas["Left"] == 1
        )
        assert cost.costs["from_left"].rows_in == 2000
        for port in operator.inputs:
            assert (port.read_bytes > 0, port.bytes) == (True, 0)
            assert port.ns + n * port.read_ns == pytest.approx(cost.costs["from_left"].execute)


def test_invalid_plan_requests_are_refused(command, workspace, tmp_path):
    arguments = ("plan", "wc", "--measured", workspace / "profile.json")
    refused(
        command(*arguments, "--machine", "server_c"),
        "unknown machine 'server_c' (did you mean 'server_b'?); known: server_a, server_b, or a machine file",
    )
    refused(command(*arguments, "--machine", "server_a", "--threads", 2), "threads and a machine exclude each other")
    for threads in (100_000, 0, -1):
        refused(command(*arguments, "--threads", threads), "threads must be between 1 and ")
    refused(command("plan", "wc", "--input", workspace / "wc", "--channel", "fast"), "unknown channel 'fast'")
    refused(command(*arguments, "--set", "vocabulary=21"), "has params ", "measure again")
    refused(
        command(*arguments, "--machine", "server_a", "--strategy", "best"), "unknown strategy 'best'; known: balanced"
    )
    refused(command("plan", "sl", "--input", workspace / "sl"), "sl does not run on pinned")
    refused(
        command("plan", "fd", "--measured", workspace / "profile.json"),
        "has app wc, but the request has fd; measure again",
    )
    refused(command(*arguments, "--input", workspace / "scalejoin"), "belongs to application scalejoin, not to wc")
    refused(
        command(*arguments, "--channel", "shared_ring"),
        "has channel gate, but the request has shared_ring; measure again",
    )
    (tmp_path / "none.json").write_text("{}")
    refused(command("plan", "wc", "--measured", tmp_path / "none.json"), "none.json: app is missing")
    refused(command("plan", "wc", "--measured", tmp_path / "missing.json"), "No such file")
    refused(command(*arguments, "--machine", "server_a", "--out", tmp_path), "cannot write ")
    for lacks in ("row_bytes", "patterns"):
        other = json.loads((workspace / "profile.json").read_text())
        of = other[lacks] if lacks == "row_bytes" else other[lacks][1]["costs"]
        del of["count"]
        (tmp_path / "lacks.json").write_text(json.dumps(other))
        of_it = ("plan", "wc", "--measured", tmp_path / "lacks.json", "--machine", "server_a")
        refused(command(*of_it), "the profile of wc has no costs for count; measure again")


def test_an_unknown_machine_is_refused_before_measuring(command, workspace, monkeypatch):
    def measure(*_, **__):
        raise AssertionError("operators were measured")

    monkeypatch.setattr(planning.profiles, "measure", measure)
    refused(command("plan", "fd", "--machine", "nope"), "unknown machine 'nope'; known: ")
    refused(command("plan", "fd", "--machine", "server_a", "--strategy", "best"), "unknown strategy 'best'")
    refused(command("plan", "fd", "--threads", 0), "threads must be between 1 and")


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000])
@pytest.mark.parametrize("option", ["--schedule", "--plan"])
def test_a_file_of_deeply_nested_json_is_refused(command, workspace, tmp_path, option, text):
    (tmp_path / "deep.json").write_text(text)
    arguments = ("--input", workspace / "scalejoin", "--out", tmp_path / "out", "--threads", 2)
    refused(
        command("run", "scalejoin", *arguments, option, tmp_path / "deep.json"),
        "deep.json is not valid JSON: recursion limit",
    )


@pytest.mark.parametrize("folder", [".", ".."])
def test_a_folder_as_machine_file_is_refused_before_measuring(command, tmp_path, monkeypatch, folder):
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    refused(command("probe", "--machine", folder), f"--machine must be a file to write, but {folder} is a folder")
    refused(command("plan", "wc", "--machine", folder), "Is a directory")


def test_a_profile_of_other_code_is_refused(command, workspace, tmp_path):
    other = json.loads((workspace / "profile.json").read_text()) | {"code_digest": "0" * 16}
    (tmp_path / "other.json").write_text(json.dumps(other))
    refused(command("plan", "wc", "--measured", tmp_path / "other.json"), "code_digest 0000", "measure again")


def test_an_empty_workload_is_not_measured(command, tmp_path):
    workload.write("wc", {}, 0, 1, tmp_path / "w")
    refused(command("plan", "wc", "--input", tmp_path / "w"), "has no events to measure")


def test_the_measured_host_is_a_valid_machine(command, workspace, tmp_path):
    code, shown, _ = command("probe", "--machine", tmp_path / "host.json", "--json")
    assert code == 0
    host = Machine.read(tmp_path / "host.json")
    assert json.loads(shown) == host.model_dump(mode="json")
    assert host.replicas_per_core is None
    apart = [(i, j) for i in range(host.sockets) for j in range(host.sockets) if i != j]
    assert all(host.latency[i][j] > 0 and host.streams[i][j] > 0 for i, j in apart)
    assert sorted(thread for threads in host.numbers for thread in threads) == list(range(host.threads))
    arguments = ("plan", "wc", "--measured", workspace / "profile.json", "--machine", tmp_path / "host.json", "--json")
    assert json.loads(command(*arguments)[1])["plan"].keys() == {"source", "split", "count", "sink"}


def test_a_plan_that_measures_slower_loses_to_the_replicated_plan(workspace, monkeypatch):
    source, spec = workload.read(workspace / "wc"), Pinned(app="wc", threads=2, plan="auto")
    default = planning.replicated(source.app, 2)
    pairs = {"found": ([3.0, 1.0, 3.0], [2.0, 2.0, 2.0]), "replicated": ([1.0, 3.0, 1.0], [2.0, 2.0, 2.0])}
    monkeypatch.setattr(
        planning, "find", lambda profile, threads: planning.find_on(profile, Machine.of_threads(2, 1e6))
    )
    for name, (rates, replicated_rates) in pairs.items():
        monkeypatch.setattr(
            trial, "_measured", lambda *_, a=rates, b=replicated_rates: {"candidate_per_s": a, "replicated_per_s": b}
        )
        monkeypatch.setattr(trial, "of", lambda *arguments: original(*arguments[:-1], None))
        planned, judge = planning.planned(spec, source)
        assert planned.chosen.plan == name
        assert (planned.plan == default, planned.strategy == "replicated") == (name == "replicated",) * 2
        assert (planned.chosen.ratio, planned.chosen.rounds) == ({"found": 1.5, "replicated": 0.5}[name], 3)
        assert judge(Sample.model_construct(kind="verified", events_per_s=1.0)) == planned


def test_a_trial_is_measured_once(workspace, tmp_path, monkeypatch):
    source, spec = workload.read(workspace / "wc"), Pinned(app="wc", threads=2, plan="auto")
    plans = {"source": [0], "split": [0], "count": [1], "sink": [1]}, planning.replicated(source.app, 2)
    first = trial.of(spec, source, *plans, tmp_path / "profile.json")
    assert len(first.candidate_per_s) == len(first.replicated_per_s) == trial.ROUNDS
    assert min(first.candidate_per_s + first.replicated_per_s) > 0
    monkeypatch.setattr(trial, "_measured", lambda *_: pytest.fail("measured again"))
    assert trial.of(spec, source, *plans, tmp_path / "profile.json") == first


def test_a_plan_lists_the_limits_of_its_prediction(command, workspace):
    arguments = ("plan", "wc", "--measured", workspace / "profile.json", "--machine")
    _, shown, _ = command(*arguments, "server_b", "--json")
    notes = json.loads(shown)["notes"]
    assert any("constraint 4" in note for note in notes)
    assert any("not scaled to server_b" in note for note in notes)
    assert "note: constraint 4" in command(*arguments, workspace / "machine.json")[1]


def test_the_papers_strategies_plan_with_the_median(workspace):
    known = profile.Profile.read(workspace / "profile.json")
    cost = known.alone["split"]
    graphs = [known.graph(workload.read(workspace / "wc").app, median=median) for median in (False, True)]
    assert [graph.by_name["split"].inputs[0].ns for graph in graphs] == [cost.execute, cost.median]


@pytest.mark.slow
def test_merge_threads_are_charged_for_merging(workspace):
    measurement = profile.measure(workload.read(workspace / "wc"), "merge_sort", repetitions=1)
    several = next(
        pattern for pattern in measurement.patterns if pattern.replicas["split"] > 1 and pattern.replicas["count"] == 1
    )
    assert several.costs["count"].merge > 0
    assert several.costs["sink"].merge == 0  # one replica feeds it
    graph = measurement.graph(workload.read(workspace / "wc").app, 2)
    assert graph.replicated([1, 2, 1, 1]).by_name["count"].merge_ns > 0
