"""The pages behind Airflow's login: the real API server application, with the plugin mounted by Airflow itself."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from reports.publish import publish
from streaming_core.regression.home import Home
from tests.reports import past_runs

LOGIN = {"username": "admin", "password": "a password of this test"}


@pytest.fixture(scope="module")
def lockstep_home(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("lockstep"))
    past_runs.make(home)
    publish(home, past_runs.LAST)
    (home.reports / "data_docs").mkdir()
    (home.reports / "data_docs" / "index.html").write_text("<p>docs</p>")
    (home.reports / "notes.exe").write_text("not a page")
    (home.root / "secret.html").write_text("outside the reports")
    return home


@pytest.fixture(scope="module")
def server(airflow_home, lockstep_home):
    """Airflow's API server application; no login is given along unless a test does."""
    from airflow.api_fastapi.app import create_app, purge_cached_app

    (airflow_home / "passwords.json").write_text(json.dumps({LOGIN["username"]: LOGIN["password"]}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_HOME", str(lockstep_home.root))
        with TestClient(create_app(), follow_redirects=False) as client:
            yield client
        purge_cached_app()


@pytest.fixture(scope="module")
def token(server):
    answer = server.post("/auth/token", json=LOGIN)
    assert answer.status_code == 201, answer.text
    return answer.json()["access_token"]


@pytest.fixture
def get(server, token):
    def get(path: str, **kwargs):
        return server.get(path, headers={"Cookie": f"_token={token}", **kwargs.pop("headers", {})}, **kwargs)

    return get


PAGES = ["", "index.html", "performance.html", "style.css", f"{past_runs.LAST}/index.html", "data_docs/index.html"]


@pytest.mark.parametrize("path", [*PAGES, "nothing.html", "..%2fsecret.html", "run/manual__x"])
def test_without_a_login_there_is_nothing(server, path):
    server.cookies.clear()
    assert server.get(f"/lockstep/{path}").status_code == 401
    for bad in ({"Cookie": "_token=made-up"}, {"Authorization": "Bearer made-up"}):
        assert server.get(f"/lockstep/{path}", headers=bad).status_code in (401, 403)


def test_a_person_without_a_login_is_sent_to_it(server):
    server.cookies.clear()
    answer = server.get("/lockstep/", headers={"accept": "text/html,*/*"})
    assert answer.status_code == 302
    assert answer.headers["location"].startswith("/auth/login?next=")


@pytest.mark.parametrize("path", PAGES)
def test_with_a_login_the_pages_are_there_under_a_strict_policy(get, path):
    answer = get(f"/lockstep/{path}")
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'self'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    if path.startswith("data_docs"):
        assert "connect-src 'none'" in policy
    else:
        assert "script-src" not in policy, "our own pages run no script"


def test_a_bearer_token_is_a_login_too(server, token):
    server.cookies.clear()
    assert server.get("/lockstep/", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_the_first_line_of_the_page_is_the_runs_sentence(get):
    assert "7 of 10 cells equal the oracle; gs/tstream/t2 failed" in get("/lockstep/").text


# Encoded, because clients resolve plain dots themselves.
OUTSIDE = [
    "%2e%2e/secret.html",
    "..%2fsecret.html",
    "data_docs/%2e%2e/%2e%2e/secret.html",
    "%2fetc/passwd",
    "notes.exe",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_the_pages_is_served(get, path):
    answer = get(f"/lockstep/{path}")
    assert answer.status_code == 404
    assert "outside the reports" not in answer.text


def test_a_link_out_of_the_reports_is_not_followed(get, lockstep_home):
    link = lockstep_home.reports / "link.html"
    link.symlink_to(lockstep_home.root / "secret.html")
    assert get("/lockstep/link.html").status_code == 404


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_the_pages_are_read_only(server, token, method):
    answer = getattr(server, method)("/lockstep/index.html", headers={"Cookie": f"_token={token}"})
    assert answer.status_code == 405


def test_an_airflow_run_leads_to_its_report(get):
    origin = f"manual__{past_runs.LAST}"
    answer = get(f"/lockstep/run/{quote(origin)}")
    assert answer.status_code == 307
    assert answer.headers["location"] == f"/lockstep/{past_runs.LAST}/index.html"
    assert "has not planned anything yet" in get("/lockstep/run/manual__2026-01-01T00:00:00+00:00").text


def test_a_run_that_goes_on_says_that_its_report_is_to_come(get):
    answer = get("/lockstep/20260201T000000Z-0000000a/index.html")
    assert answer.status_code == 200
    assert "no report yet" in answer.text


def test_before_the_first_run_the_pages_say_so(get, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    assert "No runs yet" in get("/lockstep/").text
    assert "No run has been measured yet." in get("/lockstep/performance.html").text
    assert get("/lockstep/style.css").status_code == 200


def test_the_menu_holds_one_entry_and_every_run_a_tab(get):
    views = [
        view
        for plugin in get("/api/v2/plugins").json()["plugins"]
        for view in plugin["external_views"]
        if plugin["name"] == "lockstep"
    ]
    assert {(view["name"], view["destination"]) for view in views} == {("Lockstep", "nav"), ("Lockstep", "dag_run")}
