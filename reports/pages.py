"""Renders the pages: views in, HTML and SVG out. It escapes everything that an application wrote into a row.

Each method of `Pages` makes one page from views (views/). `publish.py` writes the pages. Below the reports, they are:

| file | page | view |
|---|---|---|
| `index.html` | the overview: the state of all cells | `history/state.py`, `views/overview.py` |
| `runs.html` | every run, and when each way ran last | `views/overview.py` |
| `inputs.html`, `<run id>/inputs.html` | the inputs of the latest run, and of each run | `views/inputs.py` |
| `performance.html`, `<run id>/performance.html` | the speed of a run | `views/performance.py` |
| `finds.html`, `finds/<app>/<digest>.html` | what searches for faults found, and each find | `views/find.py` |
| `benchmarks.html` | the results of `make bench` | `infra/benchmarks` |
| `<run id>/index.html` | the outcome of a run | `views/outcome.py`, `views/run.py` |
| `<run id>/<cell>.html` | the evidence on a cell | `views/cell.py` |
| `<run id>/profile-<cell>.html` | where the time of a cell goes | `views/profile.py` |
| `<run id>/beside-*.html` | a run beside another | `views/beside.py` |
| `<run id>/lockstep-*.html` | a run as one file | `attachment.py` |
| `<run id>/warehouse.html` | what dbt built and tested in a run | `views/built.py` |
| `data_docs/index.html` | the Data Docs; `expectations` makes the pages of results | `views/data_docs.py` |
| `quality.html` | the expectations of each data set over the last runs | `views/quality.py` |
| `docs/index.html` | how to build the documentation; Airflow shows the site itself there | |
| `dbt/index.html` | the frame around dbt's documentation, `dbt/docs.html` | |

In a browser, charts.js draws the history of a cell and the curve over threads anew, with tooltips and links. Without
the script, their pictures stay.

Pages in a file are the same whenever they are read. Only the parts between `<!--now ...-->` and `<!--/now-->` of the
overview and the list of runs change: the server renders them for each request. While runs are in progress, it adds
the script `live.js`, which updates the page. It also shows what stands between `<!--served` and `served-->`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from reports import times
from reports.charts import script, series
from reports.history.cell import Cell
from reports.history.load import MOST_RUNS, History
from reports.history.profile import Profile
from reports.history.run import Run
from reports.history.state import state
from reports.history.text import human_micros, human_nano, human_rate, revision, short
from reports.site import DBT, HERE, Place, beside_name, entries, file_name, profile_name
from reports.views import columns, data_docs, engines, outcome, overview, performance
from reports.views.beside import Beside, before
from reports.views.built import Built
from reports.views.cell import CellView
from reports.views.data_docs import DataDocs
from reports.views.find import FindView
from reports.views.hosts import FACTS
from reports.views.inputs import Inputs
from reports.views.lanes import lanes
from reports.views.outcome import Outcome, Request
from reports.views.performance import MOST_POINTS, Performance
from reports.views.profile import UNCOUNTED, ProfileView
from reports.views.quality import Quality
from reports.views.run import CellProgress, RunView, news
from reports.views.sparkline import Sparkline
from reports.views.stages import Stages
from reports.views.tiles import TREND
from streaming_core.apps import registry
from streaming_core.regression.comparable import is_nightly
from streaming_core.regression.project import TITLE, named
from streaming_core.regression.stages import DAG_ID
from streaming_core.search.find import Find

MARKS = {"equal": "✓", "different": "✗", "invariant_broken": "≠", "failed": "!", "not_run": "○", "not_comparable": "~"}
LAMPS = {"green": "✓", "amber": "!", "red": "✗", "soft": "○"}  # the colors of a run
SHOWN_RUNS = 15
PROFILE_DAG = named("profile_cell")
SECONDS = 5  # between two updates of a page of a run in progress
LIVE = (HERE / "live.js").read_text().replace("SECONDS", f"{1000 * SECONDS}")
SERVED = re.compile("<!--served (.*?) served-->", re.DOTALL)  # what only a server shows: buttons
NOW = re.compile("<!--now (?P<part>[a-z]+)-->.*?<!--/now-->\n?", re.DOTALL)


class _Compiled(BytecodeCache):
    """The compiled templates of this process: compiling them takes longer than filling them in."""

    def __init__(self) -> None:
        self._codes: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if code := self._codes.get(bucket.key):
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._codes[bucket.key] = bucket.bytecode_to_string()


_COMPILED = _Compiled()


class Pages:
    """Renders pages from a history; every page is a function of what is on disk."""

    def __init__(self, history: History):
        self.history = history
        self.reports = history.home.reports
        self.speed = Performance(history)
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            bytecode_cache=_COMPILED,
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals.update(
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
            lamp=LAMPS,
            trend=TREND,
            meanings=columns.MEANINGS,
            classes=series.classes,
            host_facts=list(FACTS.values()),
            beside_name=beside_name,
            file_name=file_name,
            figure_of=outcome.figure,
            spark=self._sparkline,
            integrity=script.integrity,
            script="",
            project=TITLE,
            dag_id=DAG_ID,
            profile_dag=PROFILE_DAG,
            live=Markup(LIVE),
            seconds=SECONDS,
            news="",
            decisions_fault=lambda: history.decisions_fault,
        )

    def index(self, queued: Sequence[str] = (), now: datetime | None = None) -> str:
        """The overview: the state, the last night, what runs or waits; before the first run a page that says so.

        Args:
            queued: the requests in Airflow's queue, as text.
            now: the time of the request; None for a page in a file, which shows no ages.
        """
        if not self.history.run_ids() and not queued:
            return self.empty(is_served=now is not None)
        latest = state(self.history)
        outcomes = [Outcome.of_state(latest)] if latest else []
        view = {"state": latest, "now": overview.Now.of(self.history, queued, now), "coverage": self._coverage}
        return self.render("overview.html", Place(here="Overview"), *outcomes, **view)

    def refresh(
        self, page: str, queued: Sequence[str] = (), now: datetime | None = None, is_nightly_on: bool = False
    ) -> str:
        """A page of `index` or `runs` as it was written, with what runs or waits now. The rest is as in `Now`."""
        view = {
            "now": overview.Now.of(self.history, queued, now, is_nightly_on),
            "earlier": self._lines(self.history.run_ids()) if "<!--now lines-->" in page else [],
            "run": None,
        }
        return NOW.sub(lambda part: self.render(f"now_{part['part']}.html", Place(), **view), page)

    @cached_property
    def _coverage(self) -> overview.Coverage:
        return overview.coverage(self.history)

    def _sparkline(self, cell: Cell) -> Sparkline | None:
        return Sparkline.of(self.speed.history_of(cell))

    def runs(self, queued: Sequence[str] = (), now: datetime | None = None) -> str:
        """Every run, and when each way ran last; the arguments are those of `index`."""
        view = {"now": overview.Now.of(self.history, queued, now), "earlier": self._lines(self.history.run_ids())}
        return self.render("runs.html", Place(here="Runs"), **view, run=None, coverage=self._coverage)

    def _lines(self, run_ids: Sequence[str]) -> list[overview.Line]:
        """The lines of some runs, the newest first."""
        return [overview.line(self.history, run_id) for run_id in reversed(run_ids)]

    def empty(self, here: str = "Overview", is_served: bool = False) -> str:
        """`No runs yet`: how to start one, and the applications.

        Args:
            here: the name of the page in the menu.
            is_served: whether Airflow serves the page, so that a button can start a run.
        """
        apps = {name: registry.load(name).doc.partition("\n")[0] for name in registry.kinds()}
        return self.render("empty.html", Place(here=here), apps=apps, is_served=is_served)

    def docs(self) -> str:
        """The page that stands in for the documentation site where it is not built or not served."""
        return self.render("docs.html", Place("../", "Docs"))

    def in_progress(self, run: Run) -> str:
        """A run that has no report yet: how far it is, and how long it was to take."""
        return self.render(
            "in_progress.html",
            Place("../"),
            run=run,
            news=news(run),
            estimate=self.history.estimate(run.run_id),
            cells=[CellProgress.of(run, cell) for cell in run.cells],
            lanes=lanes(run),
        )

    def overview(self, run: Run) -> str:
        """The page of a run: its wrong and slower cells, then its grid."""
        place = Place("../")
        earlier = self._lines(self.history.run_ids()[-SHOWN_RUNS:])
        folder = f"{place.root}{run.run_id}"
        return self.render(
            "run.html",
            place,
            Outcome.of_run(run),
            Request.of(run),
            RunView.of(run, f"{folder}/inputs.html", f"{folder}/{file_name(run.run_id)}"),
            earlier=earlier,
            before=before(self.history, run),
            measured=self.speed.has_measured(run),
            stages=Stages.of(run),
            built=Built.of(run),
            tested=(run.folder / data_docs.RESULTS).exists(),
            lanes=lanes(run),
        )

    def inputs(self, run: Run, place: Place | None = None) -> str:
        """The inputs of a run, their checks, and rows set aside."""
        return self.render("inputs.html", place or Place("../"), run=run, inputs=Inputs.of(run))

    def find(self, find: Find) -> str:
        """A find: its events, expected beside actual, and its test."""
        view = FindView.of(find)
        return self.render("find.html", Place("../../", "Finds"), view, view=view)

    def finds(self, finds: Sequence[Find]) -> str:
        """The list of finds, the newest first."""
        return self.render("finds.html", Place(here="Finds"), finds=finds[::-1])

    def data_docs(self) -> str:
        """The first page of the Data Docs: whether the expectations of every data set held in the last runs."""
        suite_names = {path.stem for path in (self.reports / "data_docs" / "expectations").glob("*.html")}
        # The style is inside, as in all pages of this folder.
        style = Markup((HERE / "style.css").read_text())
        view = DataDocs.of(data_docs.judgements(self.history), suite_names, style)
        return self.render("data_docs.html", Place("../", "Expectations"), view)

    def quality(self) -> tuple[str, dict[str, str]]:
        """The quality of the data over the last runs and its charts: HTML, and SVG by path below the reports."""
        view = Quality.of(self.history)
        name = script.name() if view.svgs else ""
        return self.render("quality.html", Place(here="Expectations"), quality=view, script=name), view.svgs

    def built(self, run: Run) -> str | None:
        """The models and tests of dbt in a run; None if the run kept nothing."""
        built = Built.of(run)
        if built is None:
            return None
        warehouse = DBT if (self.reports / DBT).exists() else None
        return self.render("built.html", Place("../"), run=run, built=built, warehouse=warehouse)

    def warehouse(self) -> str:
        """The frame around dbt's documentation."""
        return self.render("warehouse.html", Place("../", "Warehouse"))

    def beside(self, run: Run, other: Run) -> str:
        """A run beside another."""
        return self.render("beside.html", Place("../"), beside=Beside.of(run, other))

    def cell(self, run: Run, cell: Cell) -> str:
        """The evidence of one cell."""
        points = self.speed.history_of(cell)
        specification = self.speed.draw_history(points) if len(points) > 1 else None
        return self.render(
            "cell.html",
            Place("../"),
            CellView.of(run, cell),
            run=run,
            points=points[::-1],
            chart=_history_href(cell),
            specification=specification,
            script=script.name() if specification else "",
            host=cell.facts.get("host"),
            most=MOST_POINTS,
            profile=profile_name(cell.name) if Profile.read(run.attempts(cell)) else None,
        )

    def profile(self, profile: Profile) -> str:
        """Where the time of a cell goes."""
        return self.render("profile.html", Place("../"), ProfileView.of(profile), reason=UNCOUNTED)

    def cell_chart(self, cell: Cell) -> dict[str, str]:
        """The history of a cell as SVG, by its path below the reports; {} if there is only one run."""
        from reports.charts import vega

        points = self.speed.history_of(cell)
        return {_history_href(cell): vega.svg(self.speed.draw_history(points))} if len(points) > 1 else {}

    def performance(self, run: Run | None = None) -> tuple[str, dict[str, str]]:
        """A performance page and its charts: HTML, and SVG by path below the reports.

        Args:
            run: the run that it shows; None: the page that shows the default run, and every run to pick from.
        """
        compared = engines.Comparison.last(self.history) if run is None else engines.Comparison.of(run)
        pictures, cards = self.speed.draw_engines(compared) if compared else ({}, [])
        shown, why = (run, "") if run else self.speed.default()
        drawing = self.speed.draw(shown) if shown else performance.Drawing({}, [])
        figures = [figure for section in drawing.sections for figure in section.figures]
        if shown:
            headline = performance.headline(figures)
        elif self.history.run_ids():
            headline = "The warehouse has no measurements yet"
        else:
            headline = "No run has been measured yet"
        place = Place("../" if run else "", "Performance")
        view: dict[str, Any] = {"headline": headline, "run": shown, "own": run.run_id if run else ""}
        has_scripts = any(chart.specification for section in drawing.sections for chart in section.charts)
        view |= {"sections": drawing.sections, "engines": compared, "charts": cards}
        view["script"] = script.name() if has_scripts else ""
        view |= self._measured(shown, why, is_own=run is not None) if shown else {}
        return self.render("performance.html", place, **view), drawing.svgs | pictures

    def _measured(self, run: Run, why: str, is_own: bool) -> dict[str, Any]:
        """The facts about the run of a performance page; `is_own` if it is the page of that run alone."""
        figures = [figure for section in self.speed.draw(run).sections for figure in section.figures]
        hosts: dict[str, list[str]] = {}
        for measured_run in self.speed.runs:
            for host in measured_run.hosts:
                hosts.setdefault(host, []).append(measured_run.run_id)
        return {
            "why": why,
            "missing": None if is_own else self._missing(run),
            "elsewhere": self.speed.elsewhere(run),
            "runs": self.speed.runs,
            "hosts": hosts,
            "links": {
                measured_run.run_id: measured_run.page(self.reports, is_own and measured_run.run_id == run.run_id)
                for measured_run in self.speed.runs
            },
            "gated": any(figure.gate for figure in figures),
            "energy": any(figure.energy_nj is not None for figure in figures),
        }

    def _missing(self, run: Run) -> str | None:
        """A newer nightly, or without nightlies a newer comparable run, that the marts lack."""
        run_ids = self.history.run_ids()[-MOST_RUNS:]
        newer = self.history.comparable(past_id for past_id in reversed(run_ids) if past_id > run.run_id)
        nightly = is_nightly(run.plan)
        return next((run_id for run_id, past_run in newer.items() if past_run.is_nightly or not nightly), None)

    def render(self, template: str | Path, place: Place, *views: object, **values: object) -> str:
        """Fill in a template, a name in `templates` or a file elsewhere.

        Its variables are the fields of the views, these values, and those of the place and the menu.
        """
        variables: dict[str, Any] = {"pages": entries(self.history.home, place.here), "glossary": place.glossary}
        variables |= {"root": place.root, "here": place.here}
        links = (place.of_cell, place.of_run, place.of_find, place.of_origin)
        variables |= {link.__name__: link for link in links}
        for view in views:
            variables |= {field.name: getattr(view, field.name) for field in fields(view)}  # type: ignore[arg-type]
        variables |= values
        if isinstance(template, Path):
            return self._environment.from_string(template.read_text()).render(variables)
        return self._environment.get_template(template).render(variables)


def _history_href(cell: Cell) -> str:
    return f"{cell.run_id}/charts/{cell.name}.svg"
