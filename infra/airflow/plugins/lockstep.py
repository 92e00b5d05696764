"""Lockstep in Airflow's UI: its pages behind Airflow's login, a menu entry, a tab on every run.

The pages are files below LOCKSTEP_HOME/reports. Every user that may see the DAG's runs may read them, under a policy
that lets them load nothing from elsewhere and talk to nothing. Handlers that read files are plain functions, because
FastAPI runs those in threads: a page that takes long does not hold up Airflow's API.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from airflow.plugins_manager import AirflowPlugin
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from infra import checkout
from infra.airflow import connections, stops
from reports.history import History
from reports.pages import HERE, Pages
from streaming_core.errors import BadInput
from streaming_core.regression.home import RUN_ID
from streaming_core.regression.stages import DAG_ID

PREFIX = "/lockstep"
TRIGGER = f"/api/v2/dags/{DAG_ID}/dagRuns"
KINDS = {
    ".css": "text/css",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
# What the pages of each maker may do: file or folder below the reports -> policy. They show rows of data, and Airflow's
# UI frames them as its own (allow-same-origin): a script in one would act as the user that looks at it. So pages have
# no script. Those of Great Expectations have their styles inline, and so has a run as one file. dbt's own page is
# nothing but a script. It stands in a frame, in a sandbox: an origin of its own that knows neither the login nor the
# page around it, and can send nothing anywhere.
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; img-src 'self' data:"
OWN = f"{_NOTHING}; style-src 'self'"
POLICIES = {
    "data_docs": f"{_NOTHING}; style-src 'self' 'unsafe-inline'",
    "file": f"{_NOTHING}; style-src 'unsafe-inline'",
    "dbt": f"{OWN}; frame-src 'self'",
    "dbt/docs.html": f"{_NOTHING}; style-src 'unsafe-inline'; font-src data:; "
    "script-src 'unsafe-inline' 'unsafe-eval'; sandbox allow-scripts",
}
# The documentation site is text of the checkout: it holds no row of data and no words of a user. So its theme may run
# its scripts. They fetch the search index, and search it in a worker.
SITE_POLICY = (
    f"{_NOTHING}; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "worker-src 'self'"
)
SITE_KINDS = {**KINDS, ".js": "text/javascript", ".png": "image/png"}
FILE = re.compile(r"lockstep-.*\.html")  # a run as one file (reports/attachment.py)
BESIDE = re.compile(rf"beside-({RUN_ID.pattern})\.html")  # a run beside another (reports/beside.py)
# What every answer says, also one that refuses or redirects.
GUARDS = {
    "Content-Security-Policy": OWN,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Who logs out has left nothing behind, in the browser or on the way.
    "Cache-Control": "no-store",
}


def reports() -> Path:
    """The folder the pages lie in."""
    return checkout.home().reports


async def login(request: Request) -> Any:
    """The user behind the request, as Airflow's own pages determine it.

    Raises:
        HTTPException: 401 without a valid login.
    """
    from airflow.api_fastapi.core_api.security import bearer_scheme, get_user

    return await get_user(request, None, await bearer_scheme(request))


def reader(user: Annotated[Any, Depends(login)]) -> Any:
    """The user, if the user may see the DAG's runs. An auth manager may ask a database, so this runs in a thread.

    Raises:
        HTTPException: 403 without the permission.
    """
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails

    allowed = get_auth_manager().is_authorized_dag(
        method="GET", access_entity=DagAccessEntity.RUN, details=DagDetails(id=DAG_ID), user=user
    )
    if not allowed:
        raise HTTPException(403, "You may not see the runs of this DAG.")
    return user


Reader = Annotated[object, Depends(reader)]
app = FastAPI(title="Lockstep", docs_url=None, redoc_url=None, openapi_url=None)


@app.middleware("http")
async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Every answer, with its guards."""
    made = await answer(request)
    for name, value in GUARDS.items():
        made.headers.setdefault(name, value)
    return made


@app.exception_handler(HTTPException)
async def refuse(request: Request, error: HTTPException) -> Response:
    """A person without a login is sent to it; a program gets the code."""
    if error.status_code == 401 and "text/html" in request.headers.get("accept", ""):
        from airflow.api_fastapi.app import get_auth_manager

        return RedirectResponse(get_auth_manager().get_url_login(next_url=str(request.url)), status_code=302)
    return _page(f"{error.status_code}", error.status_code)


@app.get("/run/{airflow_run:path}")
def of_run(airflow_run: str, user: Reader) -> Response:
    """The overview of the run that an Airflow run made."""
    history = History(checkout.home())
    for run_id in reversed(history.run_ids()):
        if history.origin(run_id) == airflow_run:
            return RedirectResponse(f"{PREFIX}/{run_id}/index.html")
    return _page("This run has not planned anything yet.", 200)


@app.get("/docs")
def of_docs(user: Reader) -> Response:
    """The documentation, for an address without the slash that its relative links need."""
    return RedirectResponse(f"{PREFIX}/docs/index.html")


@app.get("/docs/{path:path}")
def documentation(user: Reader, path: str = "") -> Response:
    """A file of the documentation site; where the site is not built, a page that says how to build it."""
    target = served(checkout.SITE.resolve(), path, SITE_KINDS)
    if target.is_file():
        headers = {"Content-Security-Policy": SITE_POLICY}
        return FileResponse(target, media_type=SITE_KINDS[target.suffix], headers=headers)
    if path in ("", "index.html"):
        return HTMLResponse(Pages(History(checkout.home())).docs())
    raise HTTPException(404)


@app.get("/")
@app.get("/{path:path}")
def page(user: Reader, path: str = "") -> Response:
    """A file of the reports; before the first run, a page that says so."""
    root = reports().resolve()
    target = served(root, path)
    if not target.is_file():
        if RUN_ID.fullmatch(target.parent.name):
            other = BESIDE.fullmatch(target.name)
            return _beside(target.parent.name, other[1]) if other else _going_on(target.parent.name)
        if path in ("", "index.html", "runs.html", "inputs.html", "performance.html", "style.css"):
            return _unpublished(path or "index.html")
        raise HTTPException(404)
    if target == root / "index.html":
        return _index(target)
    name = "file" if FILE.fullmatch(target.name) else str(target.relative_to(root))
    policy = POLICIES.get(name) or POLICIES.get(name.partition("/")[0], OWN)
    return FileResponse(target, media_type=KINDS[target.suffix], headers={"Content-Security-Policy": policy})


def served(root: Path, path: str, kinds: Mapping[str, str] = KINDS) -> Path:
    """The file that a path means, of a folder its index.html: below `root` once links are resolved, of a kind that is
    shown, nothing hidden. It need not be there.

    Raises:
        HTTPException: 404, it is none of these.
    """
    try:
        target = (root / (path or "index.html")).resolve()
        if target.is_relative_to(root) and target.is_dir():
            target = (target / "index.html").resolve()
    except (OSError, RuntimeError, ValueError):  # a name that is too long, links in a circle, no name at all
        raise HTTPException(404) from None
    hidden = target.is_relative_to(root) and any(name.startswith(".") for name in target.relative_to(root).parts)
    if not target.is_relative_to(root) or hidden or target.suffix not in kinds:
        raise HTTPException(404)
    return target


def _index(path: Path) -> Response:
    """The overview as it was written, with the runs that run or wait at this moment."""
    return HTMLResponse(Pages(History(checkout.home())).refresh(path.read_text(), _queued()))


def _queued() -> list[str]:
    """The Airflow runs that Airflow has not started yet, oldest first. Lockstep knows nothing of them."""
    from airflow.models import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState

    with create_session() as session:
        runs = session.query(DagRun.run_id).filter_by(dag_id=DAG_ID, state=DagRunState.QUEUED)
        return [run_id for (run_id,) in runs.order_by(DagRun.queued_at)]


def _unpublished(name: str) -> Response:
    if name == "style.css":
        return FileResponse(HERE / "style.css", media_type=KINDS[".css"])
    pages = Pages(History(checkout.home()))
    if name == "performance.html":
        return HTMLResponse(pages.performance(benchmarked=False)[0])
    return HTMLResponse(
        pages.runs() if name == "runs.html" else pages.empty({"inputs.html": "Inputs"}.get(name, "Overview"))
    )


def _going_on(run_id: str) -> Response:
    """Of a run whose report is not written yet, how far it is."""
    try:
        history = History(checkout.home())
        return HTMLResponse(Pages(history).going_on(history.run(run_id)))
    except BadInput:
        return _page("There is no such run, or it has not planned anything yet.", 200)


def _beside(run_id: str, other: str) -> Response:
    """A run beside any other: those beside the one before them are files."""
    history = History(checkout.home())
    try:
        return HTMLResponse(Pages(history).beside(history.run(run_id), history.run(other)))
    except BadInput:
        return _page("There is no such run.", 404)


def _page(text: str, status: int) -> Response:
    # Dark where Airflow is: who may not see the pages gets no style sheet either.
    scheme = '<meta name="color-scheme" content="light dark">'
    return HTMLResponse(f"<!doctype html>{scheme}<title>Lockstep</title><p>{text}</p>", status)


class TriggerCheck:
    """Middleware of the API server: refuse to trigger a run that names a connection it cannot use.

    Airflow's form and every client of the API trigger runs with this request, and show the sentence of the refusal.
    Airflow itself checks the params against their schemas.
    """

    def __init__(self, app: ASGIApp):
        """Stand before `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].endswith(TRIGGER):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        if (sentence := await run_in_threadpool(_refusal, body)) and await _may_trigger(request):
            await JSONResponse({"detail": sentence}, 400)(scope, receive, send)
            return
        await self._app(scope, _again(body, receive), send)


def _refusal(body: bytes) -> str:
    """Why a run cannot be triggered with this body; empty if its connections fit."""
    from airflow.exceptions import AirflowNotFoundException
    from airflow.models import Connection

    def type_of(name: str) -> str | None:
        try:
            return Connection.get_connection_from_secrets(name).conn_type
        except AirflowNotFoundException:
            return None

    try:
        conf = json.loads(body).get("conf") or {}
        connections.check(conf, type_of)
    except BadInput as error:
        return str(error)
    except (ValueError, AttributeError, RecursionError):  # not a request to trigger a run: Airflow refuses it
        pass
    return ""


async def _may_trigger(request: Request) -> bool:
    """Whether the user may trigger the DAG. Others are refused by Airflow, and learn nothing about connections."""
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
        details=DagDetails(id=DAG_ID),
        user=user,
    )


def _again(body: bytes, receive: Receive) -> Receive:
    """Receive the body once more, then what follows it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


class LockstepPlugin(AirflowPlugin):
    """See the module's text."""

    name = "lockstep"
    listeners = [stops]
    fastapi_root_middlewares = [{"middleware": TriggerCheck, "name": "Lockstep: check a run before it starts"}]
    fastapi_apps = [{"app": app, "url_prefix": PREFIX, "name": "Lockstep"}]
    external_views = [
        {
            "name": "Lockstep",
            "href": f"{PREFIX}/",
            "destination": "nav",
            "url_route": "lockstep",
            "nav_top_level": True,
        },
        {
            "name": "Lockstep documentation",
            "href": f"{PREFIX}/docs/index.html",
            "destination": "nav",
            "url_route": "lockstep_docs",
            "category": "docs",
        },
        {
            "name": "Lockstep",
            "href": f"{PREFIX}/run/{{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "lockstep_run",
        },
    ]
