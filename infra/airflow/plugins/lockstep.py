"""Lockstep in Airflow's UI: its pages and results behind Airflow's login, a menu entry, and a tab on every run.

The pages are files below LOCKSTEP_HOME/reports. Every user that may see the DAG's runs may read them. Their security
policy lets them load nothing from other sites, and send nothing. Handlers that read files are plain functions, because
FastAPI runs those in threads, so a slow page does not block Airflow's API.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, quote

from airflow.plugins_manager import AirflowPlugin
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from infra import checkout
from infra.airflow import api, connections, stops
from infra.fields import regression_of
from reports.charts import script
from reports.history import History
from reports.metrics import Exposition
from reports.pages import LIVE, PROFILE_DAG, SERVED, Pages
from reports.site import HERE, beside_name
from streaming_core.errors import BadInput
from streaming_core.regression import matrices
from streaming_core.regression.home import RUN_ID, new_run_id
from streaming_core.regression.project import TITLE
from streaming_core.regression.stages import DAG_ID

PREFIX = "/lockstep"
TRIGGER = re.compile(r"/api/v2/dags/[^/]+/dagRuns$")
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


async def login(request: Request) -> Any:
    """The user of the request, which Airflow's own code determines.

    Raises:
        HTTPException: 401, the request has no valid login.
    """
    from airflow.api_fastapi.core_api.security import bearer_scheme, get_user

    return await get_user(request, None, await bearer_scheme(request))


def reader(user: Annotated[Any, Depends(login)]) -> Any:
    """The user, if the user may see the DAG's runs. An auth manager may query a database, so this runs in a thread.

    Raises:
        HTTPException: 403, the user lacks the permission.
    """
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails

    allowed = get_auth_manager().is_authorized_dag(
        method="GET", access_entity=DagAccessEntity.RUN, details=DagDetails(id=DAG_ID), user=user
    )
    if not allowed:
        raise HTTPException(403)
    return user


Reader = Annotated[object, Depends(reader)]
app = FastAPI(title=TITLE, docs_url=None, redoc_url=None, openapi_url=None)
app.include_router(api.router, dependencies=[Depends(reader)])
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
        from airflow.api_fastapi.app import get_auth_manager

        return RedirectResponse(get_auth_manager().get_url_login(next_url=str(request.url)), status_code=302)
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
async def smoke(request: Request) -> Response:
    """Start a run of the matrix `smoke`, for the button of the page before the first run.

    Airflow's UI has no address that opens the trigger form, so this page cannot link to it.
    """
    await _check_form(request, DAG_ID)
    await _trigger(request, DAG_ID, {"matrix": "smoke"})
    return RedirectResponse(f"{PREFIX}/index.html", 303)


@app.post("/profile")
async def profile(request: Request) -> Response:
    """Profile a cell, for the button on its page."""
    await _check_form(request, PROFILE_DAG)
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


async def _check_form(request: Request, dag_id: str) -> None:
    """Check the form of a button.

    Raises:
        HTTPException: 403, the user may not trigger the DAG, or the form is one of another site.
    """
    is_own = request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
    if not is_own or not await _may_trigger(request, dag_id):
        raise HTTPException(403)


async def _trigger(request: Request, dag_id: str, conf: dict[str, str]) -> None:
    """Start a run of a DAG in the name of the user of a button."""
    from airflow.api.common.trigger_dag import trigger_dag
    from airflow.utils.types import DagRunTriggeredByType

    name, by = (await login(request)).get_name(), DagRunTriggeredByType.UI
    await run_in_threadpool(trigger_dag, dag_id, triggered_by=by, triggering_user_name=name, conf=conf)


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
def page(user: Reader, path: str = "") -> Response:
    """A file of the reports; before the first run, a page without runs."""
    root = reports().resolve()
    target = served(root, path)
    is_run = RUN_ID.fullmatch(target.parent.name) is not None
    if not target.is_file():
        if is_run:
            other = BESIDE.fullmatch(target.name)
            return _beside(target.parent.name, other[1]) if other else _going_on(target.parent.name)
        if path in ("", "index.html", "runs.html", "inputs.html", "performance.html", "style.css"):
            return _unpublished(path or "index.html")
        raise HTTPException(404)
    history = History(checkout.home())
    if target in (root / "index.html", root / "runs.html"):
        if not history.run_ids():
            return _unpublished(target.name)
        return _updating(Pages(history).refresh(target.read_text(), _queued(), datetime.now(UTC), _is_nightly_on()))
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


def _queued() -> list[str]:
    """The Airflow runs that are queued or have no plan yet, oldest first. Lockstep has no files of them."""
    from airflow.models import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState

    def is_planned(run: DagRun) -> bool:
        run_id = new_run_id(run.run_id, run.run_after.timestamp())
        return (checkout.home().run(run_id) / "plan.json").exists()

    with create_session() as session:
        states = DagRun.state.in_((DagRunState.QUEUED, DagRunState.RUNNING))
        runs = session.query(DagRun).filter(DagRun.dag_id == DAG_ID, states).order_by(DagRun.queued_at)
        return [run.run_id for run in runs if run.state == DagRunState.QUEUED or not is_planned(run)]


def _is_nightly_on() -> bool:
    """Whether Airflow runs the nightly DAG by its schedule."""
    from airflow.models import DagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        return session.query(DagModel.is_paused).filter_by(dag_id=f"{DAG_ID}_nightly").scalar() is False


def _unpublished(name: str) -> Response:
    if name == "style.css":
        return FileResponse(HERE / "style.css", media_type=KINDS[".css"])
    pages = Pages(History(checkout.home()))
    if name == "performance.html":
        return HTMLResponse(pages.performance()[0])
    if name == "inputs.html":
        return HTMLResponse(pages.empty("Inputs"))
    return _updating((pages.runs if name == "runs.html" else pages.index)(_queued(), datetime.now(UTC)))


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


class TriggerCheck:
    """Middleware of the API server: refuse an invalid request of a regression when it is triggered, in one line.

    Airflow's form and every client of the API trigger runs with this request, and show the sentence of the refusal.
    Airflow itself checks the params of every DAG against their schemas. Of its refusals, the first line is kept.
    """

    def __init__(self, app: ASGIApp):
        """Wrap `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http" or scope["method"] != "POST" or not TRIGGER.search(scope["path"]):
            await self._app(scope, receive, send)
            return
        send = _in_one_line(scope, receive, send)
        if not scope["path"].endswith(f"/{DAG_ID}/dagRuns"):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        if (sentence := await run_in_threadpool(_refusal, body)) and await _may_trigger(request):
            await JSONResponse({"detail": sentence}, 400)(scope, receive, send)
            return
        await self._app(scope, _again(body, receive), send)


def _refusal(body: bytes) -> str:
    """The reason why a run cannot be triggered with this body; empty if its fields are valid and connections fit."""
    from airflow.exceptions import AirflowNotFoundException
    from airflow.models import Connection

    def type_of(name: str) -> str | None:
        try:
            return Connection.get_connection_from_secrets(name).conn_type
        except AirflowNotFoundException:
            return None

    try:
        conf = json.loads(body).get("conf") or {}
        fields, home = regression_of(conf), checkout.home()
        regression = matrices.request(checkout.MATRICES, home, fields, conf.get("matrix")).regression
        connections.check(conf | {"hosts": regression.hosts}, type_of)
    except BadInput as error:
        return str(error)
    except (ValueError, AttributeError, RecursionError):  # not a request to trigger a run: Airflow refuses it
        pass
    return ""


async def _may_trigger(request: Request, dag_id: str = DAG_ID) -> bool:
    """Whether the user may trigger a DAG. Airflow refuses other users, so they learn nothing about connections."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails

    try:
        user = await login(request)
    except HTTPException:
        return False
    return await run_in_threadpool(
        get_auth_manager().is_authorized_dag,
        method="POST",
        access_entity=DagAccessEntity.RUN,
        details=DagDetails(id=dag_id),
        user=user,
    )


def _in_one_line(scope: Scope, receive: Receive, send: Send) -> Send:
    """Send a refusal of Airflow without the lines behind the first one, which are the schema of the param."""
    refused = False

    async def sender(message: Message) -> None:
        nonlocal refused
        if message["type"] == "http.response.start" and message["status"] == 400:
            refused = True
        elif refused:
            line, _, _ = str(json.loads(message["body"])["detail"]).partition("\n")
            await JSONResponse({"detail": line}, 400)(scope, receive, send)
        else:
            await send(message)

    return sender


def _again(body: bytes, receive: Receive) -> Receive:
    """Receive the body once more, then the messages after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


class LockstepPlugin(AirflowPlugin):
    """The plugin; the module's docstring describes it."""

    name = "lockstep"
    listeners = [stops]
    fastapi_root_middlewares = [{"middleware": TriggerCheck, "name": f"{TITLE}: check a run before it starts"}]
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
