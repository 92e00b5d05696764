"""The pages: History in, HTML and SVG out. Whatever an application wrote into a row is escaped.

index.html                  the overview: the state (state.py)  performance.html, of the last nightly
<run id>/index.html         the outcome of that run            runs.html, every run, and when each way ran last
<run id>/<cell>.html        the evidence on one cell           charts/*.svg of benchmarks, style.css
<run id>/performance.html   its speed, <run id>/charts/*.svg
<run id>/beside-*.html      that run beside another
inputs.html                 inputs of the latest run           <run id>/inputs.html, inputs of that run (inputs.py)
<run id>/lockstep-*.html    the run as one file (attachment.py)
<run id>/warehouse.html     what dbt built and tested in that run (built.py)
data_docs/index.html        the Data Docs (data_docs.py); expectations makes the pages of results
docs/index.html             how to build the documentation; Airflow shows the site itself there
dbt/index.html              the frame around dbt's documentation, dbt/docs.html

Pages in a file are the same whenever they are read. Only the part between `<!--now ...-->` and `<!--/now-->` of the
overview changes: the server renders it for each request.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports import results, times
from reports.charts import series
from reports.estimate import expected
from reports.history.cell import Cell
from reports.history.load import MOST_RUNS, History
from reports.history.run import Run, RunAge
from reports.history.state import state as state_of
from reports.history.text import human_micros, human_nano, human_rate, revision, short
from reports.site import DBT, GLOSSARY, HERE, beside_name, entries, file_name
from reports.views import benchmarks, columns, data_docs, engines, overview, suites
from reports.views.beside import Beside, before
from reports.views.built import Built
from reports.views.cell import evidence
from reports.views.hosts import FACTS, HostRow
from reports.views.inputs import Inputs
from reports.views.lanes import lanes
from reports.views.outcome import outcome, outcome_of_state
from reports.views.performance import MOST_POINTS, Performance
from reports.views.sparkline import Sparkline
from reports.views.stages import Stages
from reports.views.tiles import TREND
from streaming_core.regression import fleet
from streaming_core.regression.comparable import is_nightly
from streaming_core.regression.project import TITLE
from streaming_core.regression.stages import DAG_ID

MARKS = {"equal": "✓", "different": "✗", "invariant_broken": "≠", "failed": "!", "not_run": "○", "not_comparable": "~"}
SHOWN_RUNS = 15
NOW = re.compile("<!--now (?P<part>[a-z]+)-->.*?<!--/now-->\n?", re.DOTALL)


class Pages:
    """Renders pages from a history; every page is a function of what is on disk."""

    def __init__(self, history: History):
        """Read nothing yet."""
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
            ratio=engines.human_ratio,
            limit=engines.LIMIT,
            nano=human_nano,
            short=short,
            revision=revision,
            started=times.started,
            time=times.html,
            mark=MARKS,
            trend=TREND,
            meanings=columns.MEANINGS,
            classes=series.classes,
            host_facts=list(FACTS.values()),
            beside_name=beside_name,
            spark=self._sparkline,
            project=TITLE,
            dag_id=DAG_ID,
            decisions_fault=lambda: history.decisions_fault,
        )

    def index(self, queued: Sequence[str] = (), now: datetime | None = None) -> str:
        """The overview: the state, the last night, what runs or waits; before the first run a page that says so.

        Args:
            queued: the requests in Airflow's queue, as text.
            now: the time of the request; None for a page in a file, which shows no ages.
        """
        if not self.history.run_ids():
            return self.empty()
        state = state_of(self.history)
        return self.render(
            "overview.html",
            root="",
            here="Overview",
            state=state,
            **self._now(queued, now),
            coverage=self._coverage,
            of_cell=lambda cell: f"{cell.run_id}/{cell.name}.html",
            of_run=lambda run_id: f"{run_id}/index.html",
            files={run.run_id: f"{run.run_id}/{file_name(run.run_id)}" for run in (state.runs if state else [])},
            **(outcome_of_state(state) if state else {}),
        )

    def refresh(self, index: str, queued: Sequence[str] = (), now: datetime | None = None) -> str:
        """A page of `index` as it was written, with what runs or waits now."""
        values = self._now(queued, now)
        return NOW.sub(lambda found: self._env.get_template(f"now_{found['part']}.html").render(**values), index)

    def _now(self, queued: Sequence[str], now: datetime | None) -> dict:
        night, run_ids = overview.last_night(self.history), self.history.run_ids()
        days = RunAge.before(night.run_id, run_ids[-1]).days if night else 0
        unfinished = overview.unfinished(self.history)
        return {
            "night": night,
            "days_since_night": days,
            "unfinished": unfinished,
            "running": sum(not one.waits for one in unfinished),
            "waiting": sum(one.waits for one in unfinished) + len(queued),
            "queued": queued,
            "age": lambda moment: times.age(moment, now),
        }

    @cached_property
    def _coverage(self) -> overview.Coverage:
        return overview.coverage(self.history)

    def _sparkline(self, cell: Cell) -> Sparkline | None:
        return Sparkline.of(self.speed.history_of(cell))

    def runs(self) -> str:
        """Every run, and when each way ran last."""
        lines = [overview.line(self.history, run_id) for run_id in reversed(self.history.run_ids())]
        return self.render("runs.html", root="", here="Runs", run=None, earlier=lines, coverage=self._coverage)

    def empty(self, here: str = "Overview") -> str:
        """`No runs yet`."""
        return self.render("empty.html", root="", here=here)

    def docs(self) -> str:
        """The page that stands in for the documentation site where it is not built or not served."""
        return self.render("docs.html", root="../", here="Docs")

    def in_progress(self, run: Run) -> str:
        """A run that has no report yet: how far it is, and how long it was to take."""
        home = self.history.home
        claims = fleet.claims(home, run.run_id)
        states = [(cell, *self._progress(run, cell, claims.get(cell.name))) for cell in run.cells]
        ended = sum(progress not in ("waits", "runs") for _, _, progress in states)
        return self.render(
            "in_progress.html",
            root="../",
            here="",
            run=run,
            states=states,
            ended=ended,
            estimate=expected(home, run.run_id),
            lanes=lanes(home, run.run_id),
        )

    def _progress(self, run: Run, cell: Cell, claim: fleet.Claim | None) -> tuple[str, str]:
        """The host of a cell of a run in progress, and how far the cell is."""
        if claim is None:
            why = fleet.why_unused(self.history.home, run.run_id, cell.host) if cell.host else None
            return cell.host, f"cannot run: {why}" if why else "waits"
        if claim.is_over:
            return claim.host, f"failed: {claim.error}" if claim.error else "has run"
        return claim.host, "runs"

    def overview(self, run: Run) -> str:
        """What is wrong in a run and what is slower, then its grid."""
        earlier = [overview.line(self.history, run_id) for run_id in self.history.run_ids()[-SHOWN_RUNS:]]
        return self.render(
            "run.html",
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
            built=Built.of(self.history.home, run.run_id),
            lanes=lanes(self.history.home, run.run_id),
            hosts=HostRow.of_run(self.history.home, run.run_id),
            engines=engines.Comparison.of(self.history.home, run),
            charts=[],
            **outcome(run),
        )

    def inputs(self, run: Run, root: str = "../", here: str = "") -> str:
        """The inputs of a run, their checks, and rows set aside."""
        return self.render("inputs.html", root=root, here=here, run=run, inputs=Inputs.of(self.history.home, run))

    def data_docs(self) -> str:
        """The first page of the Data Docs: whether the expectations of every data set held in the last runs."""
        judgements = data_docs.judgements(self.history)
        suite_names = {path.stem for path in (self.reports / "data_docs" / "expectations").glob("*.html")}
        return self.render(
            "data_docs.html",
            root="../",
            here="Expectations",
            judgements=judgements,
            headline=data_docs.headline(judgements),
            style=Markup((HERE / "style.css").read_text()),  # inside, as in all pages of this folder
            names=sorted({name for one in judgements for name in one.sets}),
            suites=suite_names,
        )

    def built(self, run: Run) -> str | None:
        """What dbt built and tested in a run; None if the run kept nothing."""
        built = Built.of(self.history.home, run.run_id)
        if built is None:
            return None
        warehouse = DBT if (self.reports / DBT).exists() else None
        return self.render("built.html", root="../", here="", run=run, built=built, warehouse=warehouse)

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
        """What templates show of a cell."""
        return evidence(self.history.home, run, cell)

    def performance(self, run_id: str | None = None, benchmarked: bool = True) -> tuple[str, dict[str, str]]:
        """A performance page and its charts: HTML, and file below the reports -> SVG.

        Args:
            run_id: the run that it shows; None: the page that shows the default run, and every run to pick from.
            benchmarked: with the benchmark's suites, if no run is named.
        """
        folders = (results.COMMITTED, self.reports / "bench") if benchmarked and run_id is None else ()
        drawn, drawn_suites = suites.draw(*folders)
        shown, why = (run_id, "") if run_id else self.speed.default()
        compared = self._compared(run_id)
        pictures, cards = self.speed.draw_engines(compared) if compared else ({}, [])
        drawn |= pictures
        fixed: dict[str, Any] = {"here": "Performance", "suites": drawn_suites, "results": benchmarks.RESULTS}
        root = "../" if run_id else ""
        fixed |= {
            "engines": compared,
            "charts": cards,
            "own": run_id or "",
            "of_cell": lambda cell: f"{root}{cell.run_id}/{cell.name}.html",
            "of_run": lambda run_id: f"{root}{run_id}/index.html",
        }
        render = partial(self.render, "performance.html", root=root, **fixed)
        if shown is None:
            has_run = bool(self.history.run_ids())
            headline = "The warehouse has no measurements yet" if has_run else "No run has been measured yet"
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
            headline=_speed_headline(cells),
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

    def _compared(self, run_id: str | None) -> engines.Comparison | None:
        """The comparison with other engines of a run; without a run, the newest one."""
        if run_id is None:
            return engines.Comparison.last(self.history)
        return engines.Comparison.of(self.history.home, self.history.run(run_id))

    def _figures(self, row: dict) -> dict:
        key = row["run_id"], row["cell"]
        latency = self.speed.latencies.get(key, {})
        return row | {
            "p50_us": latency.get("p50_us"),
            "p99_us": latency.get("p99_us"),
            "energy_nj": row.get("energy_nj"),
            "speed": self.history.speeds.get(key),
            "gate": self.history.gates.get(key),
            "line": Sparkline.of(self.speed.history_of_row(row)),
        }

    def _missing(self, shown: str) -> str | None:
        """A newer nightly, or without nightlies a newer comparable run, that the marts lack."""
        newer = self.history.comparable(one for one in reversed(self.history.run_ids()[-MOST_RUNS:]) if one > shown)
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
        shown = {"pages": entries(self.history.home, here), "glossary": f"{root}{GLOSSARY}"} | values
        return self._env.get_template(template).render(root=root, here=here, **shown)


def _speed_headline(cells: list[dict]) -> str:
    """`Speed of 10 cells: 1 slower, 8 unchanged, 1 too noisy`."""
    counts = Counter(row["speed"].verdict for row in cells if row["speed"])
    words = [f"{counts[verdict]} {verdict.replace('_', ' ')}" for verdict in TREND if counts[verdict]]
    return f"Speed of {len(cells)} cell{'s' * (len(cells) != 1)}: {', '.join(words) or 'no verdict yet'}"


def _history_href(cell: Cell) -> str:
    return f"{cell.run_id}/charts/{cell.name}.svg"
