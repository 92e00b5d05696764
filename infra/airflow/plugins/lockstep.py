"""Lockstep in Airflow's UI: its pages and results behind Airflow's login, a menu entry, and a tab on every run.

The pages are files below LOCKSTEP_HOME/reports. Every user that may see the DAG's runs may read them. Their security
policy lets them load nothing from other sites, and send nothing. Handlers that read files are plain functions, because
FastAPI runs those in threads, so a slow page does not block Airflow's API.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, quote

import httpx
from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import conf as settings
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response

from infra import checkout
from infra.airflow import access, api, listener
from reports.charts import script
from reports.history import History
from reports.metrics import Exposition
from reports.pages import LIVE, PROFILE_DAG, SERVED, Pages
from reports.site import HERE, beside_name
from streaming_core.errors import BadInput
from streaming_core.regression.home import RUN_ID, new_run_id
from streaming_core.regression.project import TITLE
from streaming_core.regression.stages import DAG_ID

PREFIX = "/lockstep"
API_SECONDS = 30
KINDS = {
    ".css": "text/css",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
# The policy of each file or folder below the reports. The pages show rows of data. Airflow's UI frames them with
# its own origin (allow-same-origin): a script in a page could act as its user. So the policy forbids all scripts but
# two, which it names by their digests. One updates a page, the other one draws charts. The pages
# of Great Expectations, and a run as one file, have inline styles. dbt's page is a script. Its frame is a sandbox with
# its own origin, which has no access to the login or the page around it, and can send nothing.
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; img-src 'self' data:"
OWN = f"{_NOTHING}; style-src 'self'"
_LIVE = base64.b64encode(hashlib.sha256(LIVE.encode()).digest()).decode()
UPDATING = f"; script-src 'sha256-{_LIVE}'; connect-src 'self'"
WITH_FORM = OWN.replace("form-action 'none'", "form-action 'self'")  # the first page starts a run, another compares two
POLICIES = {
    "data_docs": f"{_NOTHING}; style-src 'self' 'unsafe-inline'",
    "file": f"{_NOTHING}; style-src 'unsafe-inline'",
    "dbt": f"{OWN}; frame-src 'self'",
    "dbt/docs.html": f"{_NOTHING}; style-src 'unsafe-inline'; font-src data:; "
    "script-src 'unsafe-inline' 'unsafe-eval'; sandbox allow-scripts",
}
# The documentation site is text of the checkout, without rows of data or texts of users. So its theme may run
# its scripts, which fetch the search index and search it in a worker.
SITE_POLICY = (
    f"{_NOTHING}; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "worker-src 'self'"
)
SITE_KINDS = {**KINDS, ".js": "text/javascript", ".png": "image/png"}
FILE = re.compile(r"lockstep-.*\.html")  # a run as one file (reports/attachment.py)
BESIDE = re.compile(rf"beside-({RUN_ID.pattern})\.html")  # a run beside another (reports/views/beside.py)
# Pages of requests that are refused, by status code. They say nothing about what exists.
REFUSALS = {
    401: "Log in to Airflow to see this page.",
    403: f"You may not see the runs of the DAG {DAG_ID}. Ask an Airflow administrator for access.",
    404: f"There is no such page. Open {TITLE} in the menu for the overview.",
}
# Headers of every response, refusals and redirects included.
GUARDS = {
    "Content-Security-Policy": OWN,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # After a logout, no copy of a page remains in the browser or in a cache on the way.
    "Cache-Control": "no-store",
}


def reports() -> Path:
    """The folder of the pages."""
    return checkout.home().reports


Reader = Annotated[object, Depends(access.reader)]
app = FastAPI(title=TITLE, docs_url=None, redoc_url=None, openapi_url=None)
app.include_router(api.router, dependencies=[Depends(access.reader)])
exposition = Exposition()


@app.middleware("http")
async def guard(request: Request, respond: Callable[[Request], Awaitable[Response]]) -> Response:
    """Add the headers of GUARDS to every response."""
    response = await respond(request)
    for name, value in GUARDS.items():
        response.headers.setdefault(name, value)
    return response


@app.exception_handler(HTTPException)
async def refuse(request: Request, error: HTTPException) -> Response:
    """Redirect a browser without a login to the login page; other requests get the status code."""
    if error.status_code == 401 and "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(f"/api/v2/auth/login?next={quote(str(request.url), safe='')}", status_code=302)
    if f"{api.PREFIX}/" in request.url.path:
        detail = error.detail if error.status_code == 404 else REFUSALS.get(error.status_code, error.detail)
        return JSONResponse({"detail": detail}, error.status_code)
    return _page(REFUSALS.get(error.status_code, str(error.detail)), error.status_code)


@app.get("/run/{airflow_run:path}")
def of_run(airflow_run: str, user: Reader) -> Response:
    """Redirect to the page of the run that belongs to an Airflow run."""
    history = History(checkout.home())
    for run_id in reversed(history.run_ids()):
        if history.origin(run_id) == airflow_run:
            return RedirectResponse(f"{PREFIX}/{run_id}/index.html")
    return _page("This run has no plan yet. Reload this page after the task plan_matrix has ended.", 200)


@app.get("/docs")
def of_docs(user: Reader) -> Response:
    """The documentation, for an address without the slash that its relative links need."""
    return RedirectResponse(f"{PREFIX}/docs/index.html")


@app.get("/docs/{path:path}")
def documentation(user: Reader, path: str = "") -> Response:
    """A file of the documentation site; if the site is not built, a page with the command that builds it."""
    target = served(checkout.SITE.resolve(), path, SITE_KINDS)
    if target.is_file():
        headers = {"Content-Security-Policy": SITE_POLICY}
        return FileResponse(target, media_type=SITE_KINDS[target.suffix], headers=headers)
    if path in ("", "index.html", "glossary.html"):
        return HTMLResponse(Pages(History(checkout.home())).docs())
    raise HTTPException(404)


@app.get("/metrics")
def metrics(request: Request, user: Reader) -> Response:
    """The figures of the newest runs, for Prometheus."""
    try:
        text, kind = exposition.text(checkout.home(), request.headers.get("accept", ""))
    except BadInput as error:
        raise HTTPException(503, str(error)) from None
    return Response(text, media_type=kind)


@app.get("/compare")
def compare(run: str, other: str, user: Reader) -> Response:
    """Redirect to the page of two runs side by side, for the form of the list of runs."""
    if not RUN_ID.fullmatch(run) or not RUN_ID.fullmatch(other):
        raise HTTPException(404)
    return RedirectResponse(f"{PREFIX}/{run}/{beside_name(other)}")


@app.post("/smoke")
async def smoke(request: Request, user: Reader) -> Response:
    """Start a run of the matrix `smoke`, for the button of the page before the first run.

    Airflow's UI has no address that opens the trigger form, so this page cannot link to it.
    """
    await _trigger(request, DAG_ID, {"matrix": "smoke"})
    return RedirectResponse(f"{PREFIX}/index.html", 303)


@app.post("/profile")
async def profile(request: Request, user: Reader) -> Response:
    """Profile a cell, for the button on its page."""
    fields = {name: values[0] for name, values in parse_qs((await request.body()).decode("utf-8", "replace")).items()}
    run_id, cell = fields.get("run", ""), fields.get("cell", "")
    try:
        is_known = checkout.home().report(run_id, f"{cell}.html").is_file()
    except BadInput:  # a name that is no plain name
        is_known = False
    if not is_known:
        raise HTTPException(404)
    await _trigger(request, PROFILE_DAG, {"run": run_id, "cell": cell})
    return RedirectResponse(f"{PREFIX}/{run_id}/{quote(cell)}.html", 303)


async def _trigger(request: Request, dag_id: str, conf: dict[str, str]) -> None:
    """Start a run of a DAG in the name of the user of a button.

    Raises:
        HTTPException: 403, the user may not trigger the DAG, or the form is one of another site.
    """
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise HTTPException(403)
    answer = await _airflow(request, "POST", f"dags/{dag_id}/dagRuns", json={"logical_date": None, "conf": conf})
    if answer.is_error:
        raise HTTPException(answer.status_code)


async def _airflow(request: Request, method: str, path: str, **options: Any) -> httpx.Response:
    """The answer of Airflow's public API to a request of the user of this request.

    The API is in the same process, and a mounted app has no other way to it than the socket of the server.
    """
    host, port = request.scope["server"]
    scheme = "https" if settings.get("api", "ssl_cert", fallback="") else "http"
    headers = {name: request.headers[name] for name in ("authorization", "cookie") if name in request.headers}
    # The certificate names the public host.
    async with httpx.AsyncClient(base_url=f"{scheme}://{host}:{port}", trust_env=False, verify=False) as client:
        return await client.request(method, f"/api/v2/{path}", headers=headers, timeout=API_SECONDS, **options)


@app.get("/{name}.js")
def script_of_charts(name: str, user: Reader) -> Response:
    """The script that draws charts. It holds no results, and its name has its digest, so a browser may keep it."""
    target = reports() / f"{name}.js"
    if not script.NAME.fullmatch(target.name) or not target.is_file():
        raise HTTPException(404)
    return FileResponse(
        target, media_type=SITE_KINDS[".js"], headers={"Cache-Control": "private, immutable, max-age=31536000"}
    )


@app.get("/")
@app.get("/{path:path}")
async def page(request: Request, user: Reader, path: str = "") -> Response:
    """A file of the reports; before the first run, a page without runs."""
    is_of_runs = path in ("", "index.html", "runs.html")
    queued, nightly = await asyncio.gather(_queued(request), _is_nightly_on(request)) if is_of_runs else ([], False)
    return await run_in_threadpool(_file, path, queued, nightly)


def _file(path: str, queued: list[str], is_nightly_on: bool) -> Response:
    root = reports().resolve()
    target = served(root, path)
    is_run = RUN_ID.fullmatch(target.parent.name) is not None
    if not target.is_file():
        if is_run:
            other = BESIDE.fullmatch(target.name)
            return _beside(target.parent.name, other[1]) if other else _going_on(target.parent.name)
        if path in ("", "index.html", "runs.html", "inputs.html", "performance.html", "style.css"):
            return _unpublished(path or "index.html", queued)
        raise HTTPException(404)
    history = History(checkout.home())
    if target in (root / "index.html", root / "runs.html"):
        if not history.run_ids():
            return _unpublished(target.name, queued)
        return _updating(Pages(history).refresh(target.read_text(), queued, datetime.now(UTC), is_nightly_on))
    if is_run and target.name == "index.html" and history.is_in_progress(target.parent.name):
        return _going_on(target.parent.name)  # a person has cleared the run after its end
    if is_run and SERVED.search(text := target.read_text()):
        policy = _drawing(root, WITH_FORM)
        return HTMLResponse(SERVED.sub(r"\1", text), headers={"Content-Security-Policy": policy})
    name = "file" if FILE.fullmatch(target.name) else str(target.relative_to(root))
    policy = POLICIES.get(name) or POLICIES.get(name.partition("/")[0], OWN)
    if target.name == "performance.html" or (is_run and target.suffix == ".html" and "." in target.stem):
        policy = _drawing(root, OWN)
    return FileResponse(target, media_type=KINDS[target.suffix], headers={"Content-Security-Policy": policy})


def _drawing(root: Path, policy: str) -> str:
    """The policy of a page of a cell, or of a performance page: it may load the scripts that draw its charts, too."""
    sources = script.sources(root)
    return f"{policy}; script-src {sources}" if sources else policy


def served(root: Path, path: str, kinds: Mapping[str, str] = KINDS) -> Path:
    """The file of a path; of a folder, its index.html. The file may be missing.

    Raises:
        HTTPException: 404, the file is outside `root` once links are resolved, hidden, or of another kind than `kinds`.
    """
    try:
        target = (root / (path or "index.html")).resolve()
        if target.is_relative_to(root) and target.is_dir():
            target = (target / "index.html").resolve()
    except (OSError, RuntimeError, ValueError):  # the name is too long, empty, or a circle of links
        raise HTTPException(404) from None
    hidden = target.is_relative_to(root) and any(name.startswith(".") for name in target.relative_to(root).parts)
    if not target.is_relative_to(root) or hidden or target.suffix not in kinds:
        raise HTTPException(404)
    return target


def _updating(text: str) -> Response:
    """A page that may have the script which updates it while runs are in progress, or a form."""
    policy = (WITH_FORM if "<form" in text else OWN) + (UPDATING if LIVE in text else "")
    return HTMLResponse(text, headers={"Content-Security-Policy": policy})


async def _queued(request: Request) -> list[str]:
    """The Airflow runs that are queued or have no plan yet, oldest first. Lockstep has no files of them."""

    def is_planned(run: dict[str, Any]) -> bool:
        run_id = new_run_id(run["dag_run_id"], datetime.fromisoformat(run["run_after"]).timestamp())
        return (checkout.home().run(run_id) / "plan.json").exists()

    query = {"state": ["queued", "running"], "order_by": "id", "limit": 100}
    answer = await _airflow(request, "GET", f"dags/{DAG_ID}/dagRuns", params=query)
    runs = [] if answer.is_error else answer.json()["dag_runs"]
    return [run["dag_run_id"] for run in runs if run["state"] == "queued" or not is_planned(run)]


async def _is_nightly_on(request: Request) -> bool:
    """Whether Airflow runs the nightly DAG by its schedule."""
    answer = await _airflow(request, "GET", f"dags/{DAG_ID}_nightly")
    return not answer.is_error and answer.json()["is_paused"] is False


def _unpublished(name: str, queued: list[str]) -> Response:
    if name == "style.css":
        return FileResponse(HERE / "style.css", media_type=KINDS[".css"])
    pages = Pages(History(checkout.home()))
    if name == "performance.html":
        return HTMLResponse(pages.performance()[0])
    if name == "inputs.html":
        return HTMLResponse(pages.empty("Inputs"))
    return _updating((pages.runs if name == "runs.html" else pages.index)(queued, datetime.now(UTC)))


def _going_on(run_id: str) -> Response:
    """The progress of a run that has no report yet."""
    try:
        history = History(checkout.home())
        return _updating(Pages(history).in_progress(history.run(run_id)))
    except BadInput:
        return _page(
            f"There is no such run, or it has no plan yet. Open {TITLE} in the menu for the list of runs.", 200
        )


def _beside(run_id: str, other: str) -> Response:
    """The comparison of a run with any other run. Only comparisons with the run before are files."""
    history = History(checkout.home())
    try:
        return HTMLResponse(Pages(history).beside(history.run(run_id), history.run(other)))
    except BadInput:
        return _page(f"There is no such run. Open {TITLE} in the menu for the list of runs.", 404)


def _page(text: str, status: int) -> Response:
    # Without the style sheet, which only readers of the pages may load, the browser still follows light and dark.
    scheme = '<meta name="color-scheme" content="light dark">'
    return HTMLResponse(f"<!doctype html>{scheme}<title>{escape(TITLE)}</title><p>{text}</p>", status)


class LockstepPlugin(AirflowPlugin):
    """The plugin; the module's docstring describes it."""

    name = "lockstep"
    listeners = [listener]
    fastapi_apps = [{"app": app, "url_prefix": PREFIX, "name": TITLE}]
    external_views = [
        {
            "name": TITLE,
            "href": f"{PREFIX}/",
            "destination": "nav",
            "url_route": "lockstep",
            "nav_top_level": True,
        },
        {
            "name": f"{TITLE} documentation",
            "href": f"{PREFIX}/docs/index.html",
            "destination": "nav",
            "url_route": "lockstep_docs",
            "category": "docs",
        },
        {
            "name": TITLE,
            "href": f"{PREFIX}/run/{{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "lockstep_run",
        },
    ]
