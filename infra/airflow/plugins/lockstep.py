"""Lockstep in Airflow's UI: its pages behind Airflow's login, a menu entry, a tab on every run.

The pages are files below LOCKSTEP_HOME/reports. They are served read-only to whoever may see the DAG's runs, and under
a policy that lets them load nothing from elsewhere and talk to nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from airflow.plugins_manager import AirflowPlugin
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from infra import checkout
from reports.history import History
from reports.pages import HERE, Pages
from streaming_core.regression.home import RUN_ID

DAG_ID = "streaming_regression"
PREFIX = "/lockstep"
KINDS = {
    ".css": "text/css",
    ".eot": "application/vnd.ms-fontobject",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
}
# Our own pages hold no script at all. The pages that other tools make do, inline; they may run it, but neither it nor
# anything in a row of data can send a request anywhere but for a file of these pages.
OWN = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
TOOLS = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
TOOL_FOLDERS = ("data_docs", "dbt")


def reports() -> Path:
    """The folder the pages lie in."""
    return checkout.home().reports


async def reader(request: Request):
    """The user behind the request, as Airflow's own pages find it; who may not see the DAG's runs may not see this.

    Raises:
        HTTPException: 401 without a valid login, 403 without the permission.
    """
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
    from airflow.api_fastapi.core_api.security import bearer_scheme, get_user

    user = await get_user(request, None, await bearer_scheme(request))
    allowed = get_auth_manager().is_authorized_dag(
        method="GET", access_entity=DagAccessEntity.RUN, details=DagDetails(id=DAG_ID), user=user
    )
    if not allowed:
        raise HTTPException(403, "You may not see the runs of this DAG.")
    return user


Reader = Annotated[object, Depends(reader)]
app = FastAPI(title="Lockstep", docs_url=None, redoc_url=None, openapi_url=None)


@app.exception_handler(HTTPException)
async def refuse(request: Request, error: HTTPException) -> Response:
    """A person without a login is sent to it; a program gets the code."""
    if error.status_code == 401 and "text/html" in request.headers.get("accept", ""):
        from airflow.api_fastapi.app import get_auth_manager

        return RedirectResponse(get_auth_manager().get_url_login(next_url=str(request.url)), status_code=302)
    return _page(f"{error.status_code}", error.status_code)


@app.get("/run/{airflow_run:path}")
async def of_run(airflow_run: str, user: Reader) -> Response:
    """The overview of the run that an Airflow run made."""
    history = History(checkout.home())
    for run_id in reversed(history.run_ids()):
        if history.origin(run_id) == airflow_run:
            return RedirectResponse(f"{PREFIX}/{run_id}/index.html")
    return _page("This run has not planned anything yet.", 200)


@app.get("/")
@app.get("/{path:path}")
async def page(user: Reader, path: str = "") -> Response:
    """A file of the reports; before the first run, a page that says so."""
    root = reports().resolve()
    target = (root / (path or "index.html")).resolve()
    if target.is_dir():
        target = target / "index.html"
    if not target.is_relative_to(root) or target.suffix not in KINDS or target.name.startswith("."):
        raise HTTPException(404)
    if not target.is_file():
        if RUN_ID.fullmatch(target.parent.name):
            return _page("This run has no report yet: it is written when the run's core runs have ended.", 200)
        if path in ("", "index.html", "performance.html", "style.css"):
            return _unpublished(path or "index.html")
        raise HTTPException(404)
    tool = target.relative_to(root).parts[0] in TOOL_FOLDERS
    return FileResponse(target, media_type=KINDS[target.suffix], headers=_headers(TOOLS if tool else OWN))


def _unpublished(name: str) -> Response:
    if name == "style.css":
        return FileResponse(HERE / "style.css", media_type=KINDS[".css"], headers=_headers(OWN))
    pages = Pages(History(checkout.home()))
    text = pages.empty() if name == "index.html" else pages.performance(benchmarked=False)[0]
    return HTMLResponse(text, headers=_headers(OWN))


def _page(text: str, status: int) -> Response:
    return HTMLResponse(f"<!doctype html><title>Lockstep</title><p>{text}</p>", status, headers=_headers(OWN))


def _headers(policy: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }


class LockstepPlugin(AirflowPlugin):
    """See the module's text."""

    name = "lockstep"
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
            "name": "Lockstep",
            "href": f"{PREFIX}/run/{{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "lockstep_run",
        },
    ]
