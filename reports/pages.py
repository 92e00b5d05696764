"""The pages: History in, HTML and SVG out. Whatever an application wrote into a row is escaped.

index.html                  the state (state.py)               performance.html, of the last nightly
<run id>/index.html         the outcome of that run            runs.html, every run, and what ran when
<run id>/<cell>.html        evidence of one cell               charts/*.svg of benchmarks, style.css
<run id>/performance.html   its speed, <run id>/charts/*.svg
<run id>/beside-*.html      that run beside another
inputs.html                 inputs of the latest run           <run id>/inputs.html, inputs of that run (inputs.py)
<run id>/lockstep-*.html    the run as one file (attachment.py)
data_docs/index.html        the Data Docs (data_docs.py); expectations makes the pages of results
docs/index.html             how to build the documentation; Airflow shows the site itself there
dbt/index.html              the frame around dbt's documentation, dbt/docs.html
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports import benchmarks, data_docs, morning, series
from reports.beside import Beside, before
from reports.estimate import expected
from reports.history import (
    NOTHING,
    Cell,
    History,
    Run,
    human_micros,
    human_nano,
    human_rate,
    lines,
    revision,
    short,
    short_json,
    started,
)
from reports.inputs import Inputs
from reports.menu import entries
from reports.outcome import outcome, outcome_of_state
from reports.performance import MOST_POINTS, Performance, slug
from reports.stages import Stages
from reports.state import state as state_of
from reports.tasks import Tasks
from streaming_core.bench.report import passes
from streaming_core.regression.comparable import is_nightly
from streaming_core.regression.home import Home
from streaming_core.regression.verdict import COUNTS
from streaming_core.run.way import AXES, NAMED_PLANS, WINDOW_OPTIONS, RunSpec
from streaming_core.storage import canonical_json, left_json, write_text

HERE = Path(__file__).parent
MARKS = {"equal": "✓", "different": "✗", "invariant_broken": "≠", "failed": "!", "not_run": "○", "not_comparable": "~"}
SHOWN_RUNS = 15
FIVE, NARROW, BROAD = (125, 120), (170, 140), (400, 170)  # charts of a benchmark: five, four, or two, in a row
NOW = re.compile("<!--now-->.*?<!--/now-->\n?", re.DOTALL)


class Pages:
    """Renders pages from a history; every page is a function of what is on disk."""

    def __init__(self, history: History):
        self.history = history
        self.reports = history.home.reports
        self.speed = Performance(history)
        self._env = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._env.globals.update(
            rate=human_rate,
            micros=human_micros,
            nano=human_nano,
            short=short,
            revision=revision,
            started=started,
            mark=MARKS,
            classes=series.classes,
            beside_name=beside_name,
        )

    def index(self, queued: Sequence[str] = ()) -> str:
        """The overview: the state, the last night, what runs or waits; before the first run a page that says so.

        Args:
            queued: the requests in Airflow's queue, as text.
        """
        run_ids = self.history.run_ids()
        if not run_ids:
            return self.empty()
        state, night = state_of(self.history), morning.last_night(self.history)
        days = morning.Seen.before(night.run_id, run_ids[-1]).days if night else 0
        return self.render(
            "state.html",
            root="",
            here="Overview",
            state=state,
            night=night,
            since_night=f", {days} days before the newest run" if days > 1 else "",
            **self._now(queued),
            coverage=self._coverage,
            of_cell=lambda cell: f"{cell.run_id}/{cell.name}.html",
            of_run=lambda run_id: f"{run_id}/index.html",
            files={run.run_id: f"{run.run_id}/{file_name(run.run_id)}" for run in (state.runs if state else [])},
            **(outcome_of_state(state) if state else {}),
        )

    def refresh(self, index: str, queued: Sequence[str] = ()) -> str:
        """A page of `index` as it was written, with what runs or waits now."""
        now = self._env.get_template("now.html").render(**self._now(queued))
        return NOW.sub(lambda _: now, index)

    def _now(self, queued: Sequence[str]) -> dict:
        return {"unfinished": morning.unfinished(self.history), "queued": queued}

    @cached_property
    def _coverage(self) -> morning.Coverage:
        return morning.coverage(self.history)

    def runs(self) -> str:
        """Every run there was, and what has been run when."""
        found = [morning.line(self.history, run_id) for run_id in reversed(self.history.run_ids())]
        return self.render("runs.html", root="", here="Runs", run=None, earlier=found, coverage=self._coverage)

    def empty(self, here: str = "Overview") -> str:
        """`No runs yet`."""
        return self.render("empty.html", root="", here=here)

    def docs(self) -> str:
        """The page that stands in for the documentation site where it is not built or not served."""
        return self.render("docs.html", root="../", here="Docs")

    def going_on(self, run: Run) -> str:
        """A run that has no report yet: how far it is, and how long it was to take."""
        states = [(cell, self._so_far(run, cell)) for cell in run.cells]
        ended = sum(said not in ("", "runs") for _, said in states)
        said = expected(self.history.home, run.run_id)
        return self.render("going_on.html", root="../", here="", run=run, states=states, ended=ended, expected=said)

    def _so_far(self, run: Run, cell: Cell) -> str:
        attempt, _, ended = self._attempt(run, cell)
        if attempt is None:
            return ""
        if not ended:
            return "runs"
        return "has run" if ended.get("exit_code") == 0 else f"failed: {ended.get('error')}"

    def overview(self, run: Run) -> str:
        """What is wrong in a run and what is slower, then its grid."""
        earlier = [morning.line(self.history, run_id) for run_id in self.history.run_ids()[-SHOWN_RUNS:]]
        return self.render(
            "overview.html",
            root="../",
            here="",
            earlier=list(reversed(earlier)),
            coverage=None,
            of_cell=lambda cell: f"../{run.run_id}/{cell.name}.html",
            of_run=lambda run_id: f"../{run_id}/index.html",
            file=f"../{run.run_id}/{file_name(run.run_id)}",
            before=before(self.history, run),
            measured=any(one.run_id == run.run_id for one in self.speed.runs),
            stages=Stages.of(self.history.home, run.run_id),
            inputs=Inputs.of(self.history.home, run),
            inputs_page=f"../{run.run_id}/inputs.html",
            **outcome(run),
        )

    def inputs(self, run: Run, root: str = "../", here: str = "") -> str:
        """The inputs of a run, what was checked of them, and rows set aside."""
        return self.render("inputs.html", root=root, here=here, run=run, inputs=Inputs.of(self.history.home, run))

    def data_docs(self) -> str:
        """The first page of the Data Docs: what became of every data set in the last runs."""
        found = data_docs.judgements(self.history)
        suites = {path.stem for path in (self.reports / "data_docs" / "expectations").glob("*.html")}
        return self.render(
            "data_docs.html",
            root="../",
            here="Expectations",
            found=found,
            headline=data_docs.headline(found),
            style=Markup((HERE / "style.css").read_text()),  # inside, as in all pages of this folder
            names=sorted({name for one in found for name in one.sets}),
            suites=suites,
        )

    def warehouse(self) -> str:
        """The frame around dbt's documentation."""
        return self.render("warehouse.html", root="../", here="Warehouse")

    def beside(self, run: Run, other: Run) -> str:
        """A run beside another."""
        return self.render("beside.html", root="../", here="", beside=Beside.of(run, other))

    def cell(self, run: Run, cell: Cell) -> str:
        """The evidence of one cell."""
        points = self.speed.history_of(cell)
        return self.render(
            "cell.html",
            root="../",
            here="",
            run=run,
            points=list(reversed(points)),
            chart=_history_href(cell) if len(points) > 1 else None,
            most=MOST_POINTS,
            host=cell.facts.get("host"),
            **self.evidence(run, cell),
        )

    def evidence(self, run: Run, cell: Cell) -> dict:
        """What there is to say of one cell, for templates."""
        attempt, report, ended = self._attempt(run, cell)
        aside = ", order aside" if cell.spec.order == "none" and cell.verdict in ("equal", "invariant_broken") else ""
        log = attempt.with_name(f"{attempt.name}.stderr.log") if attempt and cell.verdict == "failed" else None
        return {
            "cell": cell,
            "headline": f"{cell.label} {cell.outcome.sentence}{aside}",
            "evidence": list(_evidence(cell)),
            "passes": list(_per_event(cell.samples)),
            "tasks": Tasks.of(report),
            "words": lines(log, 12) if log else [],
            "commands": _commands(run, cell, report, self.history.home),
            "facts": list(_facts(run, cell, report, ended)),
        }

    def performance(self, run_id: str | None = None, benchmarked: bool = True) -> tuple[str, dict[str, str]]:
        """A performance page and its charts: HTML, and file below the reports -> SVG.

        Args:
            run_id: the run that it shows; None: the page that shows the default run, and every run to pick from.
            benchmarked: with the benchmark's suites, if no run is named.
        """
        drawn, suites = _suites(self.reports / "bench") if benchmarked and run_id is None else ({}, [])
        shown, why = (run_id, "") if run_id else self.speed.default()
        fixed: dict[str, Any] = {"here": "Performance", "suites": suites, "said": benchmarks.RESULTS}
        render = partial(self.render, "performance.html", root="../" if run_id else "", **fixed)
        if shown is None:
            headline = (
                "The marts have not been built yet." if self.history.run_ids() else "No run has been measured yet."
            )
            return render(headline=headline, run=None, sections=[]), drawn
        svgs, sections = self.speed.draw(shown)
        for section in sections:
            section.rows.sort(key=lambda row: (row["executor"], row["strategy"], row["threads"]))
        cells = [self._figures(row) for section in sections for row in section.rows]
        hosts: dict[str, list[str]] = {}
        for one in self.speed.runs:
            for host in one.hosts:
                hosts.setdefault(host, []).append(one.run_id)
        page = render(
            run=self.history.run(shown),
            headline=f"Performance of run {started(shown)}: {len(cells)} cell{'s' * (len(cells) != 1)}",
            why=why,
            missing=None if run_id else self._missing(shown),
            elsewhere=self.speed.elsewhere(shown),
            sections=sections,
            figures={row["cell"]: row for row in cells},
            runs=self.speed.runs,
            hosts=hosts,
            links={one.run_id: self._performance_of(one.run_id, run_id) for one in self.speed.runs},
            gated=any(row["gate"] for row in cells),
            energy=any(row["energy_nj"] is not None for row in cells),
        )
        return page, svgs | drawn

    def _figures(self, row: dict) -> dict:
        key = row["run_id"], row["cell"]
        latency = self.speed.latencies.get(key, {})
        return row | {
            "p50_us": latency.get("p50_us"),
            "p99_us": latency.get("p99_us"),
            "energy_nj": row.get("energy_nj"),
            "speed": self.history.speeds.get(key),
            "gate": self.history.gates.get(key),
        }

    def _missing(self, shown: str) -> str | None:
        """A newer nightly, or without nightlies a newer comparable run, that the marts lack."""
        newer = self.history.comparable(
            one for one in reversed(self.history.run_ids()[-morning.LOOKED :]) if one > shown
        )
        nightly = is_nightly(self.history.plan(shown))
        return next((run_id for run_id, one in newer.items() if one.is_nightly or not nightly), None)

    def _performance_of(self, run_id: str, own: str | None) -> str | None:
        """The performance page of a run, below the reports; None if there is none."""
        exists = run_id == own or self.history.home.report(run_id, "performance.html").exists()
        return f"{run_id}/performance.html" if exists else None

    def cell_chart(self, cell: Cell) -> dict[str, str]:
        """The history of a cell, file below the reports -> SVG; {} if there is only one run."""
        points = self.speed.history_of(cell)
        return {_history_href(cell): self.speed.draw_history(points)} if len(points) > 1 else {}

    def render(self, template: str, *, root: str, here: str, **values: object) -> str:
        """A template, filled in; `root` leads from the page to the reports, `here` is its name in the head."""
        pages = entries(self.history.home, here)
        return self._env.get_template(template).render(root=root, here=here, pages=pages, **values)

    def _attempt(self, run: Run, cell: Cell) -> tuple[Path | None, dict, dict]:
        """Folder, report.json and exit.json of the attempt that was loaded, else of the last one."""
        folder = self.history.home.cell(run.run_id, cell.name)
        number = cell.facts.get("attempt")
        folders = (path for path in folder.glob("attempt-[0-9]*") if path.is_dir())
        found = sorted(folders, key=lambda path: int(path.name.removeprefix("attempt-")))
        attempt = folder / f"attempt-{number}" if number else found[-1] if found else None
        if attempt is None or not attempt.is_dir():
            return None, {}, {}
        return attempt, left_json(attempt / "report.json"), left_json(attempt / "exit.json")


def write(path: Path, text: str) -> None:
    """Puts a page where readers find it, whole or not at all."""
    write_text(path, text)


def file_name(run_id: str) -> str:
    """What the run is called as one file (attachment.py), wherever that is put."""
    return f"lockstep-{run_id}.html"


def beside_name(run_id: str) -> str:
    """The page of a run beside that one, in the folder of the run."""
    return f"beside-{run_id}.html"


def _evidence(cell: Cell) -> Iterator[dict]:
    totals = {row["check"]: row for row in cell.checks}
    for check, rows in itertools.groupby(cell.violations, key=lambda row: row["check"]):
        known = totals.get(check, {})
        shown = [
            {**row, **dict(zip(("expected", "actual"), _marked(row["expected"], row["actual"]), strict=True))}
            for row in rows
        ]
        total = sum(known.get(name) or 0 for name in COUNTS)
        what = "rows that break it" if check.startswith("invariant:") else "differing rows"
        yield {"name": check, "rows": shown, "total": f"{max(total, len(shown)):,} {what}"}


def _marked(expected: str | None, actual: str | None) -> tuple[Markup | str, Markup | str]:
    """Two rows as `name: value` lines, the values that differ marked."""
    left, right = _fields(expected), _fields(actual)
    if left is None or right is None:
        shown = [_plain(row) if row is not None else text for row, text in ((left, expected), (right, actual))]
        return shown[0] or NOTHING, shown[1] or NOTHING
    return _plain(left, right), _plain(right, left)


def _fields(text: str | None) -> dict | None:
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _plain(row: dict, other: dict | None = None) -> Markup:
    out = []
    for name, value in row.items():
        shown = escape(json.dumps(value, ensure_ascii=False))
        if other is not None and (name not in other or other[name] != value):
            shown = f"<mark>{shown}</mark>"
        out.append(f"{escape(name)}: {shown}")
    return Markup("\n".join(out))


class _Place(str):
    """A path in the folder of a reproduction, which the shell completes; all other words are quoted."""


def _commands(run: Run, cell: Cell, report: dict, home: Home) -> list[str]:
    """Shell lines that make the same comparison again, as often as they are pasted, from nothing but the checkout."""
    spec, regression = cell.spec, run.plan.get("regression", {})
    planned: dict = next((w for w in run.plan.get("workloads", []) if w["address"] == cell.workload), {})
    events = planned.get("events") or cell.facts.get("events") or regression.get("events", 0)
    seed = planned.get("seed", cell.facts.get("seed", regression.get("seed", 1)))
    settings = [word for name, value in spec.params.items() for word in ("--set", f"{name}={value}")]
    options = ["--executor", spec.executor, "--threads", spec.threads]
    for axis, value in _chosen(spec).items():
        options += [f"--{axis}", value]
    options += [f"--{switch}" for switch in spec.options() if spec.option(switch) is True]
    for option, field in spec.options().items():
        if field.annotation is int and spec.option(option) != field.default:
            options += [f"--{option.replace('_', '-')}", spec.option(option)]
    options += ["--thresholds", ",".join(map(str, numbers))] if (numbers := spec.option("thresholds")) else []
    options += ["--punctuation", spec.punctuation, "--batch", spec.batch, "--idle", spec.idle, "--sink", "parquet"]
    options += ["--repetitions", spec.repetitions, *(["--rate", spec.rate] if spec.rate else [])]
    options += ["--seconds", spec.seconds] if spec.seconds != RunSpec.model_fields["seconds"].default else []
    # Of a plan that was found, the one that it was: elsewhere another may be.
    found = (report.get("planned") or {}).get("plan") if spec.needs_plan else spec.option("plan")
    if "plan" in spec.options() and not found:
        options += ["--plan", next(word for word, plan in NAMED_PLANS.items() if plan == spec.option("plan"))]
    workload, oracle, made = (_Place(f'"$again"/{name}') for name in ("workload", "oracle", "run"))
    files = []
    for option, value in (("plan", found), ("schedule", spec.model_dump(mode="json")["schedule"])):
        if value:
            place = _Place(f'"$again"/{option}.json')
            files.append(f"echo {shlex.quote(canonical_json(value))} > {place}")
            options += [f"--{option}", place]
    options += ["--pin"] if spec.needs_plan and found else []
    # Events of a user's own are made by nobody: they are where they were imported.
    made_anew = [["generate", spec.app, "--events", events, "--seed", seed, "--out", workload, *settings]]
    if name := planned.get("data"):
        workload, made_anew = _Place(shlex.quote(str(home.imported(spec.app, name)))), []

    def shown(command: str, words: list) -> str:
        return " ".join([f".venv/bin/{command}", *(w if isinstance(w, _Place) else shlex.quote(str(w)) for w in words)])

    commands = [
        *made_anew,
        ["oracle", spec.app, "--input", workload, "--out", oracle],
        ["run", spec.app, "--input", workload, "--out", made, *options],
        ["diff", made, oracle],
    ]
    lines = [shown("streaming-core", words) for words in commands]
    if not cell.is_bound:  # of which nothing is said
        lines.append(shown("lockstep", ["invariants", made, "--input", workload]))
    return ["again=$(mktemp -d)", *files, *lines]


def _chosen(spec: RunSpec) -> dict[str, object]:
    """Its strategies by axis; of what is windows' alone, those that are not as ever."""
    found = {axis: value for axis in AXES if (value := spec.option(axis)) is not None}
    return {axis: value for axis, value in found.items() if axis not in WINDOW_OPTIONS or value != AXES[axis][0]}


def _seed(facts: dict) -> object:
    return "imported" if facts.get("seed") is None else facts["seed"]


def _facts(run: Run, cell: Cell, report: dict, ended: dict) -> Iterator[tuple[str, object]]:
    spec, facts = cell.spec, cell.facts
    strategies = [f"{axis} {value}" for axis, value in _chosen(spec).items() if axis != "order"]
    host = report.get("host", {})
    strategies += ["its plan found"] if spec.needs_plan else []
    strategies += [f"{len(schedule)} reconfigurations"] if (schedule := spec.option("schedule")) else []
    threads = f"{spec.threads} thread{'s' * (spec.threads > 1)}"
    pairs = [
        ("how", ", ".join([f"executor {spec.executor}", *strategies, threads])),
        ("order", "none: compared is what the application says agrees without" if spec.order == "none" else "total"),
        ("plan", _plan(report)),
        ("changed", _changed(report)),
        ("batch, punctuation", f"{spec.batch}, {spec.punctuation} events"),
        ("idle, pinned", f"{spec.idle}, {'yes' if spec.pin else 'no'}"),
        (
            "parameters",
            ", ".join(f"{k}={v}" for k, v in (report.get("workload", {}).get("params") or spec.params).items()),
        ),
        ("events, seed", f"{facts['events']:,}, {_seed(facts)}" if facts.get("events") else ""),
        ("workload", cell.workload),
        ("oracle", facts.get("oracle_address")),
        ("digest of outputs", facts.get("output_digest")),
        ("digest of final state", facts.get("state_digest")),
        ("spec digest", facts.get("spec_digest")),
        ("code digest", facts.get("code_digest")),
        ("build", facts.get("build")),
        ("attempt", facts.get("attempt")),
        ("started", ended.get("started_at") or facts.get("started_at")),
        ("exit code", ended.get("exit_code")),
        ("host", facts.get("host") or ended.get("host")),
        (
            "load before, after",
            f"{facts['load_before']:.2f}, {facts['load_after']:.2f}"
            if facts.get("load_before") is not None and facts.get("load_after") is not None
            else "",
        ),
        ("while it was measured", _disturbed(facts)),
        ("yardstick", facts.get("yardstick") or host.get("yardstick")),
        ("cores of the threads", ", ".join(map(str, report["binding"])) if report.get("binding") else ""),
        ("memory", short_json({name: value for name, value in (report.get("memory") or {}).items() if value})),
        ("topology", short_json(report.get("topology"))),
        ("versions", short_json(host.get("versions"))),
        ("compile time", f"{facts['compile_seconds']:.2f} s" if facts.get("compile_seconds") is not None else ""),
        ("peak memory", f"{facts['peak_memory_bytes'] / 2**20:,.0f} MiB" if facts.get("peak_memory_bytes") else ""),
        (
            "energy",
            f"{facts['energy_joules']:.1f} J" if facts.get("energy_joules") is not None else host.get("energy", ""),
        ),
    ]
    for name, value in pairs:
        if value not in (None, ""):
            yield name, value


def _disturbed(facts: dict) -> str:
    """What else went on meanwhile (run/disturbance.py); nothing where that was not looked at."""
    if facts.get("others") is None:
        return ""
    mhz = [f"{facts[name]:,.0f}" for name in ("mhz_before", "mhz_after") if facts.get(name)]
    cores = f"others had {facts['others']:.0%} of the cores, {facts.get('steal') or 0:.1%} was stolen"
    lost = f"a core was lost {facts.get('preempted') or 0:,.0f} times a second"
    return ", ".join([cores, lost, *([f"{' to '.join(mhz)} MHz"] if mhz else [])])


def _plan(report: dict) -> str:
    """The plan that was found, and how far off its prediction was; nothing where none was to be found."""
    planned = report.get("planned")
    if not planned:
        return ""
    # Tasks stand upstream first, thread by thread; only the sink is behind all others whatever its thread is.
    names = dict.fromkeys(task["operator"] for task in report["samples"][0]["tasks"] if task["operator"] != "sink")
    places = "; ".join(f"{name} {', '.join(map(str, planned['plan'][name]))}" for name in [*names, "sink"])
    off = "" if planned["error"] is None else f", {planned['error']:.0%} off"
    predicted = (
        f"{human_rate(planned['events_per_s'])} events/s predicted{off}, to be limited by {planned['bottleneck']}"
    )
    return f"on threads: {places} ({planned['strategy']}: {predicted})"


def _changed(report: dict) -> str:
    """What of the load has changed since the plan was found, and the plan that would be better now."""
    planned = report.get("planned") or {}
    said = [
        f"{operator} has {times:.1f} times its part of the work"
        for operator, times in planned.get("changed", {}).items()
    ]
    if better := planned.get("better"):
        rates = f"{human_rate(better['events_per_s'])} events/s instead of {human_rate(better['instead_of'])}"
        said.append(f"better now: {short_json(better['plan'])}, {rates}")
    return "; ".join(said)


def _per_event(samples: list[dict]) -> Iterator[dict]:
    """Measured passes with what an event took: nanoseconds of processor time, nanojoules."""
    for row in samples:
        spent = {"cpu_ns": row.get("cpu_seconds"), "energy_nj": row.get("energy_joules")}
        known = {name: total for name, total in spent.items() if total is not None and row["events"]}
        yield row | dict.fromkeys(spent) | {name: total * 1e9 / row["events"] for name, total in known.items()}


def _history_href(cell: Cell) -> str:
    return f"{cell.run_id}/charts/{cell.name}.svg"


def _suites(folder: Path) -> tuple[dict[str, str], list[dict]]:
    """The benchmark's suites with their charts drawn: name -> SVG, and what the page says."""
    found = benchmarks.suites(folder)
    if not found:
        return {}, []
    from reports import charts

    svgs: dict[str, str] = {}
    for suite in found:
        numbers = benchmarks.numbers(suite)
        for experiment in suite["experiments"]:
            labels: set[str] = set()
            groups: list[list[dict]] = []
            for group in filter(None, benchmarks.charts(experiment)):  # nobody can draw what could not be measured
                if len(group) != 1 or not groups or len(groups[-1]) != 1:  # two charts that are alone share a row
                    groups.append([])
                for chart in group:
                    href = f"charts/bench-{slug(suite['name'])}-{slug(experiment['name'])}-{len(svgs)}.svg"
                    points = benchmarks.points(chart)
                    size = FIVE if len(group) == 5 else NARROW if len(group) > 2 else BROAD
                    svgs[href] = charts.benchmark(points, chart["plot"], numbers, size)
                    about = benchmarks.about(chart, experiment["host"])
                    groups[-1].append({"title": chart["title"], "about": about, "href": href})
                    labels |= {point["line"] for point in points if "line" in point}
            rows = experiment["rows"]
            columns = list(dict.fromkeys(["app", "way", *experiment["varies"], "threads"]))
            columns = [name for name in columns if name != "at_s"]
            shown = dict.fromkeys(("p99_us", "end_to_end_p99_us", "cpu_ns", "energy_nj", "predicted_per_s"))
            predicted = any("predicted_per_s" in row for row in rows) and "predicted_per_s" not in columns
            experiment |= {
                "groups": groups,
                "legend": [{"label": label, "number": numbers[label]} for label in numbers if label in labels],
                "wrong": sum(row["result"] == "different" for row in rows),
                "columns": columns,
                "predicted": predicted,
                "open_loop": any("end_to_end_p99_us" in row for row in rows),
                "energy": any(row.get("energy_nj") is not None for row in rows),
                "lines": [
                    shown | row | {"named": [_cell(benchmarks.value(row, name)) for name in columns]}
                    for row in passes(rows)
                ],
            }
    return svgs, found


def _cell(value: object) -> str:
    return NOTHING if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
