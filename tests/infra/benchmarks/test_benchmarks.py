"""The page of benchmarks: the newest right figures beside those of the paper, all as text."""

import itertools
import re
from collections import Counter
from xml.etree import ElementTree

import pytest

from infra.benchmarks import measurements
from infra.benchmarks import page as benchmarks
from infra.checkout import ROOT
from reports import publish
from reports.charts import benchmark, series
from streaming_core.bench import suite as suites
from streaming_core.bench.papers.ordered import ordered
from streaming_core.bench.report import VERSION
from streaming_core.regression.home import Home
from streaming_core.run.way import AXES
from streaming_core.storage import write_json
from tests.reports.past_runs import HOSTILE
from tests.reports.test_pages import Outline
from tests.support.accessibility import THEMES, violations_of_all
from tests.support.draws import some
from tests.support.plans import few_plans


def row(way, speed, threads=2, result="equal", app="gs", **more):
    fields = {"app": app, "params": {"theta": 0.5}, "way": way, "threads": threads, "events": 100, "runs": 3}
    rates = [0.9 * speed, speed, 1.2 * speed]
    ranges = {"events_per_s_range": [rates[0], rates[2]], "to_loop_range": [rates[0] / 10e6, rates[2] / 10e6]}
    parts = dict.fromkeys(("useful", "sync", "lock", "remote", "other"), 7.0)
    figures = {"events_per_s": speed, "to_loop": speed / 10e6, "p99_us": 12.0, "breakdown": parts, "result": result}
    return fields | {"rates": rates, "rounds": {}} | ranges | figures | more


def plot(x="threads", y="events_per_s", **more):
    plain = {"by": "app", "lines": ["way"], "kind": "line", "log": False, "loop": True, "title": "throughput"}
    return plain | {"x": x, "y": y} | more


def experiment(name, rows, plots=None, **more):
    plain = {"name": name, "figure": "Figure 8", "title": f"About {name}", "plots": plots or [plot()]}
    plain |= {"varies": ["app", "threads", "way"], "notes": ["a note"], "conclusions": ["a conclusion"]}
    plain["rows"] = [row("loop", 10e6, 1, "yardstick"), *rows]
    assert set(more) <= set(plain)
    return plain | more


TRIP = {"median": 92.4, "lowest": 85.0, "highest": 110.0, "pairs": 1, "of": 1}
HOST = {"cores": 2, "cpu": "a processor", "machine": "m", "memory_bytes": 8 << 30, "kernel": "Linux 6", "load": 0.1}
HOST |= {"governor": None, "round_trip_ns": TRIP, "longest_pause_ms": 3.25}
CONDITIONS = {"pass_seconds": 1.0, "pinned": True, "steal": 0.001, "others": 0.02, "preempted": 3.0}
CONDITIONS |= {"load_before": 0.1, "load_after": 1.9}


def result(measured_at, experiments, **more):
    """The results of a suite, version 2."""
    about = {"version": VERSION, "suite": "tstream", "title": "TStream", "quick": False, "build": "abc423def"}
    about |= {"command": "streaming-core bench --suite tstream", "order": ["schemes", "skew", "pools"]}
    about |= {"made_at": measured_at, "seconds": 90.0, "cells": 12, "host": HOST, "conditions": CONDITIONS}
    about |= {"topology": {"sockets": 1, "nodes": [0], "is_mock": True}, "repetitions": 5, "threads": [1, 2]}
    return about | {"experiments": experiments} | more


def skew(*rows):
    """The experiments of a suite that has only `skew`."""
    return [experiment("skew", rows)]


def measured(home, measured_at, experiments, **more):
    write_json(home.reports / "bench" / f"tstream-{measured_at}.json", result(measured_at, experiments, **more))


@pytest.fixture(autouse=True)
def committed(monkeypatch, tmp_path):
    """No committed results."""
    folder = tmp_path / "committed"
    monkeypatch.setattr(benchmarks, "COMMITTED", folder)
    return folder


def suites_of(*folders):
    return measurements.suites(folders)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "l")


def test_page_shows_charts_beside_the_claims_of_the_paper(home):
    kinds = [plot(), plot("way", "breakdown", kind="parts"), plot("way", kind="bar"), plot("theta", "p99_us")]
    at = {"punctuation": 500}
    both = [row("tstream", 20e6, **at), row("owners", 5e6, app="sl"), row("no_lock", 3e7, result="bound", **at)]
    measured(home, "2026-01-01T00:00:00Z", [experiment("schemes", both, kinds)])
    text, svgs = benchmarks.render(home)
    page = Outline(text)
    texts = ["About schemes", "Figure 8", "No-Lock, which bounds the schemes with locks", "section VI-C, figure 8"]
    texts += ["a note", "a conclusion"]
    texts += ["less", "0.667 (0.667 to 0.667) times", "not testable here"]  # a claim stands beside what was measured
    texts += ["build abc423def", "passes of 1 s, 5 rounds, threads bound to cores", "a bound", "12 cells in 90 s"]
    texts += ["92 ns (85 to 110), 1 pair of cores", "3.2 ms", "20 M (18 M to 24 M)"]
    assert [text_of for text_of in texts if text_of not in page.text] == []
    assert "TStream a processor, 2 cores, 1 socket (mock topology), 8 GiB of memory" in page.text
    for app in ("gs", "sl"):
        chart = f"throughput {app}; 100 events; a processor, 2 cores"
        assert chart in page.text, "a chart names application, events and machine"
    assert sorted(svgs) == sorted(link for link in page.links if link.endswith(".svg"))
    assert len(svgs) == 8, "four plots of two applications"
    for svg in svgs.values():
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}
        assert "path" in tags
        assert not tags & {"script", "image", "foreignObject", "use"}


def test_newest_figures_of_each_experiment_count(home):
    measured(home, "2026-01-01T00:00:00Z", [experiment("skew", [row("lock", 1e6)]), experiment("pools", [])])
    measured(home, "2026-01-02T00:00:00Z", [experiment("schemes", []), experiment("skew", [row("lock", 2e6)])])
    measured(home, "2026-01-03T00:00:00Z", skew(row("lock", 9e6)), version=VERSION + 1)
    (home.reports / "bench" / "tstream-torn.json").write_text("{")
    (home.reports / "bench" / "20260104T000000Z.json").write_text('{"results": [], "version": 1}')
    [suite] = suites_of(home.reports / "bench")
    assert [e["name"] for e in suite.experiments] == ["schemes", "skew", "pools"]
    assert [e["made_at"][:10] for e in suite.experiments] == ["2026-01-02", "2026-01-02", "2026-01-01"]
    assert suite.experiments[1]["rows"][1]["events_per_s"] == 2e6


def test_committed_and_local_results_are_shown_together(home, committed):
    write_json(committed / "tstream.json", result("2026-01-02T00:00:00Z", skew(row("lock", 2e6))))
    measured(home, "2026-01-01T00:00:00Z", [experiment("skew", [row("lock", 1e6)]), experiment("pools", [])])
    [suite] = suites_of(committed, home.reports / "bench")
    assert [(e["name"], e["made_at"][:10]) for e in suite.experiments] == [
        ("skew", "2026-01-02"),
        ("pools", "2026-01-01"),
    ]
    assert "About skew" in benchmarks.render(home)[0]
    assert "About pools" in benchmarks.render(home)[0]


def test_another_machine_has_its_own_charts(home):
    many = HOST | {"cores": 40, "cpu": "a large processor"}
    sockets = {"sockets": 4, "nodes": [0, 1, 2, 3], "is_mock": False}
    measured(home, "2026-01-01T00:00:00Z", skew(row("lock", 1e6)))
    measured(home, "2026-01-02T00:00:00Z", skew(row("lock", 9e6)), host=many, topology=sockets)
    text, svgs = benchmarks.render(home)
    assert sorted(svgs) == ["charts/bench-tstream-2-skew-1.svg", "charts/bench-tstream-skew-0.svg"]
    page = Outline(text)
    assert text.count('id="tstream"') == text.count('id="tstream-2"') == 1
    for machine, more in (
        ("a processor, 2 cores", "1 socket (mock topology), 8 GiB of memory"),
        ("a large processor, 40 cores", "4 sockets, 4 memory nodes, 8 GiB of memory"),
    ):
        assert f"TStream {machine}, {more}" in page.text
        assert f"throughput gs; 100 events; {machine}" in page.text


def test_quick_measurement_counts_only_as_the_only_one(home):
    measured(home, "2026-01-01T00:00:00Z", skew(row("lock", 1e6)))
    quick = [experiment("skew", [row("lock", 2e6)]), experiment("pools", [row("lock", 3e6)])]
    measured(home, "2026-01-02T00:00:00Z", quick, quick=True)
    [suite] = suites_of(home.reports / "bench")
    assert [(e["name"], e["quick"]) for e in suite.experiments] == [("skew", False), ("pools", True)]
    assert benchmarks.render(home)[0].count("these figures say nothing about speed") == 1


def test_different_result_is_named_and_in_no_chart(home):
    measured(home, "2026-01-01T00:00:00Z", skew(row("lock", 1e6), row("pat", 9e6, result="different")))
    [suite] = suites_of(home.reports / "bench")
    [[chart]] = measurements.charts(suite.experiments[0])
    assert [r["way"] for r in chart.rows] == ["loop", "lock"]
    text = Outline(benchmarks.render(home)[0]).text
    assert "1 of 3 results differ from the loop's" in text
    assert "differs" in text


def test_stacked_bars_show_the_most_threads_or_all_thread_counts():
    steps = {"decomposition": 3.0, "barriers": 4.0}
    rows = [row("tstream", 1e6, threads, steps=steps) for threads in (1, 2)] + [row("owners", 1e6)]
    kinds = [
        plot("way", "breakdown", kind="parts", loop=False),
        plot("threads", "breakdown", kind="parts", by="way", loop=False),
        plot("threads", "steps", kind="parts", loop=False),
    ]
    most, each, [stepped] = measurements.charts(experiment("schemes", rows, kinds))
    assert [[(r["way"], r["threads"]) for r in chart.rows] for chart in most] == [[("tstream", 2), ("owners", 2)]]
    assert [[(r["way"], r["threads"]) for r in chart.rows] for chart in each] == [
        [("tstream", 1), ("tstream", 2)],
        [("owners", 2)],
    ]
    assert [(point["x"], point["part"], point["y"]) for point in measurements.points(stepped)] == [
        (threads, part, ns) for threads in (1, 2) for part, ns in steps.items()
    ]


def test_series_of_one_colour_have_different_markers(home):
    ways = [f"way{i}" for i in range(25)]
    measured(home, "2026-01-01T00:00:00Z", [experiment("skew", [row(way, 1e6, t) for way in ways for t in (1, 2)])])
    page, svgs = benchmarks.render(home)
    legend = re.findall(r'<i class="(.+?)"></i>(.+?)</span>', page)
    assert len({look for look, _ in legend}) == len(legend) == 26
    [svg] = svgs.values()
    drawn = re.findall(r'roledescription="point" transform=".+?" d="(.+?)" fill="(.+?)"', svg)
    assert (len(drawn), len(set(drawn))) == (50, 25)
    bars = [{"x": way, "y": 1.0, "line": way} for way in ways]
    svg = benchmark.draw(bars, plot("way", y="to_loop", kind="bar"), {way: i for i, way in enumerate(ways)}, (90, 90))
    filled = re.findall(r'roledescription="bar" d=".+?" fill="(.+?)" fill-opacity="(.+?)"', svg)
    assert len(filled) == len(set(filled)) == 25


def test_legends_have_the_charts_colours_and_markers():
    style = (ROOT / "reports" / "style.css").read_text()
    for number in range(len(series.COLOURS)):
        assert f".c{number} {{ background: {series.colour(number)}; }}" in style
    for marker in set(series.MARKERS) - {"square"}:  # what an element without a shape is
        assert f".{marker} {{" in style


def test_content_of_result_files_is_escaped(home):
    rows = [row(HOSTILE, 1e6, app=HOSTILE), row("lock", 2e6)]
    hostile = experiment(HOSTILE, rows, title=HOSTILE, notes=[HOSTILE], conclusions=[HOSTILE], figure=HOSTILE)
    host = HOST | {"cpu": HOSTILE, "kernel": HOSTILE}
    measured(home, "2026-01-01T00:00:00Z", [hostile], host=host, build=HOSTILE, title=HOSTILE, suite=f"../{HOSTILE}")
    publish.performance(home)
    page = Outline(benchmarks.publish(home).read_text())
    assert "script" not in page.tags
    assert "taken" in page.text
    charts = sorted((home.reports / "charts").iterdir())
    assert charts
    for chart in charts:
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(chart.read_text()).iter()}
        assert "script" not in tags
    for link in page.links:
        target = (home.reports / link.partition("#")[0]).resolve()
        assert target.is_relative_to(home.reports.resolve())
        assert target.exists()
    pages = {f"{name}.html" for name in ("benchmarks", "finds", "index", "inputs", "performance", "quality", "runs")}
    assert {p.name for p in home.reports.iterdir()} == {"bench", "charts", "docs", "style.css", *pages}


@pytest.mark.parametrize("name", some(suites.SUITES))
def test_every_declared_plot_of_a_suite_can_be_drawn(home, name, monkeypatch):
    """Every plot of every experiment, over rows as the suite makes them."""
    monkeypatch.setattr(ordered, "_multiplication", lambda: 1e-8)
    few_plans(monkeypatch)
    suite, measurements = suites.load(name), []
    kinds = ("end_to_end", "processing")
    figures = ("cpu_ns", "energy_nj", *(f"{kind}_{of}_us" for kind in kinds for of in ("mean", "p99")))
    rounds = {name: [98.0, 99.0, 100.0] for name in ("to_loop", "p99_us", *figures)}
    took = ("switch_p50_us", "switch_p99_us", "switch_max_us")
    switched = {"switches": 3, "switch_p50s_us": [99.0], "switch_over_1ms": 0, "switch_largest": [(99.0, 7)]}
    switched |= dict.fromkeys(took, 99.0)
    switched |= {f"loaded_{name}": value for name, value in switched.items()}
    switched |= {f"loaded_{name}_{of}_us": 99.0 for name in ("heard", "waited") for of in ("p50", "p99", "max")}
    views = ("gap_max_us", "loaded_gap_max_us", "loaded_near_p99_us")
    for declared in suite.experiments:
        heats, notes = declared.sweep([1, 2])
        rows = [*declared.model()]
        for number, heat in enumerate(heats):
            more = dict.fromkeys(figures, 99.0) | {"rounds": rounds, "heat": number, "params": heat.params}
            more |= {"hottest": 0.5, "operations": 7}
            more |= {f"{name}_range": [98.0, 100.0] for name in figures}
            more |= {"comparisons": 700, "states": 1000, "state_bytes": 5, "to_loop_range": [0.5, 2.0]}
            more |= {"calls": {"from_left": [7, 8]}, "compared": {2: [70, 80]}}
            if heat.pace:  # instants of a pass
                more |= {"at_s": 0.5, "offered_per_s": 1e4, "delivered_per_s": 1e4, "latency_us": 5.0, "replicas": 2}
                more |= {"work": 0.5, "pass": 0, "seconds": 1.0, "event_seconds": 9.0, "changes": []}
            rows.append(row("loop", 1e7, 1, "yardstick", heat.app, **more))
            ways = zip(heat.ways, heat.requests or itertools.repeat(None), strict=False)
            for (spec, request), load in itertools.product(ways, declared.loads or (None,)):
                numbers = ("punctuation", "stealing", "batch", "partitions", "slice", "throughput_window")
                axes = {name: spec.option(name) for name in ("executor", *AXES, *numbers) if name != "order"}
                of = {"plan": plan} if (plan := spec.option("plan")) else {}
                of |= switched if request else {}
                if heat.requests:
                    of |= dict.fromkeys(views, 99.0)
                of |= {"load": load, "order": spec.order, "end_to_end_p99s_us": [99.0]} if load else {}
                rows.append(row(spec.strategy, 2e7, spec.threads, app=heat.app, **more | axes | of))
        declared.describe(rows)
        conclusions = list(declared.conclude(rows))
        plots = [{**vars(p), "lines": list(p.lines)} for p in declared.plots]
        measurements.append(experiment(declared.name, [], plots, notes=notes, conclusions=conclusions) | {"rows": rows})
    order = [e["name"] for e in measurements]
    measured(home, "2026-01-01T00:00:00Z", measurements, suite=name, order=order)
    text, svgs = benchmarks.render(home)
    assert "(0.50 to 2.00)" in Outline(text).text
    drawn = Counter(re.match(f"charts/bench-{name}-(.*)-[0-9]+.svg", svg)[1] for svg in svgs)
    assert set(drawn) == set(order), "each experiment has a chart"
    for measurement in measurements:
        measured_columns = {column for row in measurement["rows"] for column, value in row.items() if value is not None}
        plots = [p for p in measurement["plots"] if p["y"] in measured_columns]
        assert drawn[measurement["name"]] >= len(plots), measurement["name"]
    for svg in svgs.values():
        assert "NaN" not in svg
        assert "undefined" not in svg
    assert "99 nJ" in text


def test_unmeasured_points_are_not_drawn(home):
    rows = [row("lock", 1e6, cpu_ns=81.5, energy_nj=None)]
    measured(home, "2026-01-01T00:00:00Z", [experiment("skew", rows, [plot(y="energy_nj"), plot(y="cpu_ns")])])
    text, svgs = benchmarks.render(home)
    assert len(svgs) == 1
    assert "81.5 ns" in text
    assert "energy an event" not in text


def test_a_chart_of_what_a_model_expects_names_no_events(home):
    expected = {name: value for name, value in row("rlas", 1e6, result="simulated").items() if name != "events"}
    measured(home, "2026-01-01T00:00:00Z", [experiment("servers", [expected], [plot(x="way", loop=False)])])
    text, svgs = benchmarks.render(home)
    assert len(svgs) == 1
    assert "gs; a processor" in Outline(text).text


@pytest.mark.slow
@pytest.mark.parametrize("theme", THEMES)
def test_page_violates_no_accessibility_rule(home, theme):
    measured(home, "2026-01-01T00:00:00Z", skew(row("lock", 1e6), row("loop", 2e6)))
    publish.performance(home)
    assert violations_of_all([benchmarks.publish(home)], theme) == {}


def test_latency_bars_start_at_zero():
    points = [{"x": x, "y": y, "line": "one"} for x, y in (("a", 1000.0), ("b", 4000.0))]
    svg = benchmark.draw(points, plot("placement", y="p99_us", kind="bar"), {"one": 1}, (200, 100))
    heights = [float(h) for h in re.findall(r'roledescription="bar" d="[^"]*?v([0-9.]+)h', svg)]
    assert [round(h) for h in heights] == [25, 100]


def test_points_are_drawn_against_the_diagonal():
    lines = ("random", "random", "found")
    points = [{"x": 1e6 * n, "y": 1.1e6 * n, "line": line, "dashed": False} for n, line in enumerate(lines, 1)]
    svg = benchmark.draw(points, plot("predicted_per_s", kind="point"), {"found": 0, "random": 1}, (200, 100))
    assert (svg.count('aria-roledescription="point"'), svg.count('aria-roledescription="line mark"')) == (3, 1)
    assert "predicted events/s" in svg


def bar(low, high, x="a", y=2.0, **more):
    return {"x": x, "y": y, "line": "one", "low": low, "high": high, "dashed": False, "level": False} | more


@pytest.mark.parametrize("kind", ["line", "bar", "point"])
def test_intervals_are_drawn_as_error_bars(kind):
    x = "threads" if kind == "line" else "placement" if kind == "bar" else "predicted_per_s"
    places = ("a", "b") if kind == "bar" else (1, 2)
    points = [bar(1.0, 4.0, places[0]), bar(1.0, 2.0, places[1], 1.5)]
    points[1].pop("low")
    svg = benchmark.draw(points, plot(x, y="to_loop", kind=kind), {"one": 1}, (200, 100))
    [height] = re.findall(r'<line aria-label="interval"[^>]* y2="-([0-9.]+)"', svg)
    assert float(height) > 50, "three quarters of the chart"


def test_loop_has_a_band_and_intervals_stay_on_the_logarithmic_scale():
    level = bar(1.0, 4.0, 1, level=True, dashed=True)
    svg = benchmark.draw([level, bar(1.0, 4.0, 1)], plot(y="to_loop"), {"one": 1}, (200, 100))
    assert svg.count('aria-label="interval" role') == 2
    points = [bar(0.0, 4e3, 1, 2e3), bar(1e3, 4e3, 2, 2e3)]
    svg = benchmark.draw(points, plot(y="p99_us"), {"one": 1}, (200, 100))
    assert svg.count('aria-label="interval" role') == 1
    assert "NaN" not in svg
    assert "Infinity" not in svg
