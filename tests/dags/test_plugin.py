"""The pages behind Airflow's login: the real API server application, with the plugin mounted by Airflow itself."""

import base64
import hashlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from infra import checkout
from reports.charts import script
from reports.history import History
from reports.metrics import METRICS
from reports.pages import PROFILE_DAG
from reports.publish import publish
from streaming_core.regression.fleet import Queue
from streaming_core.regression.home import Home
from streaming_core.regression.project import TITLE
from streaming_core.regression.stages import DAG_ID, Stage
from streaming_core.regression.status import recorded
from streaming_core.storage import write_json
from tests.reports import past_runs
from tests.support.draws import some
from tests.support.serving import serving

SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
LOGIN = {"username": "admin", "password": "a password of this test"}


@pytest.fixture(scope="module")
def lockstep_home(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("lockstep"))
    past_runs.make(home)
    publish(home, past_runs.LAST)
    for name in ("data_docs", "dbt", ".hidden"):
        (home.reports / name).mkdir(exist_ok=True)
        (home.reports / name / "index.html").write_text(f"<p>{name}</p>")
    (home.reports / "dbt" / "docs.html").write_text("<script>dbt's own</script>")
    (home.reports / "notes.exe").write_text("not a page")
    (home.root / "secret.html").write_text("outside the reports")
    (home.root / "index.html").write_text("outside the reports")
    for name, target in LINKS.items():
        (home.reports / name).parent.mkdir(exist_ok=True)
        (home.reports / name).symlink_to(target)
    return home


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "assets").mkdir()
    (folder / "index.html").write_text("<p>the documentation</p>")
    (folder / "assets" / "scheme.js").write_text("paint()")
    (folder / "sitemap.xml").write_text("not a page")
    (folder.parent / "secret.html").write_text("outside the reports")
    return folder


@pytest.fixture(scope="module")
def server(airflow_home, lockstep_home, site):
    """Airflow's API server application; no login is given along unless a test does."""
    from airflow.api_fastapi.app import create_app, purge_cached_app

    (airflow_home / "passwords.json").write_text(json.dumps({LOGIN["username"]: LOGIN["password"]}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_HOME", str(lockstep_home.root))
        patch.setattr(checkout, "SITE", site)
        with serving(create_app()) as client:
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


RUN = past_runs.LAST
PAGES = ["", "index.html", "performance.html", "style.css", "runs.html", f"{RUN}/index.html", f"{RUN}/"]
PAGES += [f"{RUN}/lockstep-{RUN}.html", f"{RUN}/summary.json"]
PAGES += ["data_docs/index.html", "dbt/index.html", "dbt/docs.html"]
PAGES += [f"{RUN}/beside-{other}.html" for other in (past_runs.RUN_IDS[0], past_runs.RUN_IDS[-2])]
DRAWN = ["performance.html", f"{RUN}/performance.html"]  # pages with charts, beside those of cells
PAGES += DRAWN[1:]
# In the reports, where each leads to.
LINKS = {"link.html": "../secret.html", "folder": "..", "index/index.html": "../../secret.html"}
LINKS["circle.html"] = "circle.html"


COMPARE = f"compare?run={RUN}&other={past_runs.RUN_IDS[0]}"
API = ["api/runs", f"api/runs/{RUN}", "api/cells/x/history", "api/openapi.json", "api/nothing"]
DOCS = ["docs/", "docs/index.html", "docs/assets/scheme.js"]


@pytest.mark.parametrize(
    "path", [*PAGES, *DOCS, *API, COMPARE, "docs", "metrics", "nothing.html", "..%2fsecret.html", "run/manual__x"]
)
def test_anonymous_request_gets_no_content(server, path):
    server.cookies.clear()
    assert server.get(f"/lockstep/{path}").status_code == 401
    for bad in ({"Cookie": "_token=made-up"}, {"Authorization": "Bearer made-up"}):
        assert server.get(f"/lockstep/{path}", headers=bad).status_code in (401, 403)


def test_anonymous_person_is_redirected_to_the_login(server):
    server.cookies.clear()
    answer = server.get("/lockstep/", headers={"accept": "text/html,*/*"})
    assert answer.status_code == 302
    assert answer.headers["location"].startswith("/api/v2/auth/login?next=")


def policy_of(answer) -> dict[str, str]:
    """Each directive of the content security policy with its sources."""
    policy = answer.headers["content-security-policy"]
    return {name: rest for name, _, rest in (directive.strip().partition(" ") for directive in policy.split(";"))}


@pytest.mark.parametrize("path", PAGES)
def test_login_shows_the_pages_under_a_strict_policy(get, path, lockstep_home):
    answer = get(f"/lockstep/{path}")
    assert answer.status_code == 200
    policy = policy_of(answer)
    # What is not named is what default-src says: no frame, no worker, no connection, and but for dbt no script.
    assert policy["default-src"] == policy["base-uri"] == "'none'"
    assert policy["form-action"] == ("'self'" if path == "runs.html" else "'none'"), "the form that compares two runs"
    assert "http" not in answer.headers["content-security-policy"], "nothing from elsewhere"
    assert ("frame-src" in policy) == (path == "dbt/index.html"), "the frame around dbt's page"
    if path == "dbt/docs.html":
        assert policy["sandbox"] == "allow-scripts", "of another origin: neither the login nor Airflow's page is its"
        assert "'self'" not in policy["script-src"]
    else:
        assert "connect-src" not in policy
        assert policy.get("script-src", "") == (script.sources(lockstep_home.reports) if path in DRAWN else "")
        own_styles = path.startswith("data_docs") or "/lockstep-" in path
        assert ("'unsafe-inline'" in policy["style-src"]) == own_styles


def test_page_of_a_cell_may_load_the_script_of_charts_alone(server, get, lockstep_home):
    (name,) = (path.name for path in lockstep_home.reports.glob("charts-*.js"))
    digest = base64.b64encode(bytes.fromhex(name[7:-3])).decode()
    cell = next((lockstep_home.reports / RUN).glob("gs.*.serial.t1.*.html"))
    assert f'src="../{name}" integrity="sha256-{digest}"' in cell.read_text()
    assert policy_of(get(f"/lockstep/{RUN}/{cell.name}"))["script-src"] == f"'sha256-{digest}'"
    answer = get(f"/lockstep/{name}")
    assert hashlib.sha256(answer.content).hexdigest() == name[7:-3]
    assert answer.headers["content-type"].startswith("text/javascript")
    assert answer.headers["cache-control"] == "private, immutable, max-age=31536000"
    server.cookies.clear()
    assert server.get(f"/lockstep/{name}").status_code == 401
    (lockstep_home.reports / "other.js").write_text("other()")
    for other in ("other.js", f"{RUN}/{name}", f"charts-{'0' * 64}.js", "charts-.js"):
        assert get(f"/lockstep/{other}").status_code == 404


@pytest.mark.parametrize("path", DOCS)
def test_documentation_runs_scripts_of_its_own_site_only(get, path):
    answer = get(f"/lockstep/{path}")
    assert answer.status_code == 200
    assert ("paint" if path.endswith(".js") else "the documentation") in answer.text
    policy = policy_of(answer)
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["connect-src"] == policy["worker-src"] == "'self'"
    assert "http" not in answer.headers["content-security-policy"], "nothing from elsewhere"


def test_address_of_the_documentation_needs_no_slash(get):
    answer = get("/lockstep/docs")
    assert (answer.status_code, answer.headers["location"]) == (307, "/lockstep/docs/index.html")


def test_missing_documentation_says_how_to_build_it(get, tmp_path, monkeypatch):
    monkeypatch.setattr(checkout, "SITE", tmp_path / "none")
    for path in ("docs/", "docs/index.html"):
        answer = get(f"/lockstep/{path}")
        assert (answer.status_code, "Run <code>make docs</code>" in answer.text) == (200, True)
        assert "script-src" not in policy_of(answer)
    assert get("/lockstep/docs/tutorial.html").status_code == 404


@pytest.mark.parametrize("path", [*PAGES, *DOCS, *API, COMPARE, "nothing.html", "run/manual__x", "%00"])
@pytest.mark.parametrize("login", [True, False])
@pytest.mark.parametrize("method", some(["get", "post"]))
def test_every_answer_has_security_headers(server, token, path, login, method):
    server.cookies.clear()
    headers = {"Cookie": f"_token={token}"} if login else {"Accept": "text/html"}
    answer = getattr(server, method)(f"/lockstep/{path}", headers=headers)
    assert answer.status_code in (200, 302, 307, 404, 405)
    assert policy_of(answer)["frame-ancestors"] == "'self'"
    assert policy_of(answer)["default-src"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store", "nothing of it stays in a browser or a proxy"


def test_run_can_be_compared_with_any_earlier_run(get):
    last, first = past_runs.LAST, past_runs.RUN_IDS[0]
    assert "shared cells changed their verdict" in get(f"/lockstep/{last}/beside-{first}.html").text
    for run_id, other in ((last, "20000101T000000Z-00000000"), ("20000101T000000Z-00000000", last)):
        answer = get(f"/lockstep/{run_id}/beside-{other}.html")
        assert (answer.status_code, "There is no such run." in answer.text) == (404, True)


def test_form_compares_any_two_runs(get):
    page = get("/lockstep/runs.html")
    assert '<form method="get" action="compare">' in page.text
    assert policy_of(page)["form-action"] == "'self'"
    assert "script-src" not in policy_of(page)
    first, second = past_runs.RUN_IDS[1], past_runs.RUN_IDS[3]
    assert page.text.count(f'<option value="{first}"') == 2
    answer = get(f"/lockstep/compare?run={first}&other={second}")
    assert answer.headers["location"] == f"/lockstep/{first}/beside-{second}.html"
    assert "Conditions that differ" in get(answer.headers["location"]).text
    for bad in ("%0d%0aX: y", "../secret", "//example.org", ""):
        assert get(f"/lockstep/compare?run={bad}&other={second}").status_code == 404
    assert get(f"/lockstep/compare?run={first}").status_code == 422


# Encoded, because clients resolve plain dots themselves.
OUTSIDE = ["%2e%2e/secret.html", "..%2fsecret.html", "data_docs/%2e%2e/%2e%2e/secret.html", "%2fetc/passwd"]
OUTSIDE += ["notes.exe", "docs/%2e%2e/secret.html", "docs/..%2fsecret.html", "docs/sitemap.xml", "docs/tutorial.html"]
OUTSIDE += [".hidden/index.html", ".hidden/", *LINKS, "folder/", "folder/secret.html", "index/"]  # hidden, or links
OUTSIDE += ["%00.html", f"{'x' * 300}.html", f"{'x/' * 5000}y.html"]  # names that no file could have


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_the_pages_is_served(get, path):
    answer = get(f"/lockstep/{path}")
    assert answer.status_code == 404
    assert "outside the reports" not in answer.text


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
@pytest.mark.parametrize("path", ["index.html", *API])
def test_pages_and_data_are_read_only(server, token, method, path):
    answer = getattr(server, method)(f"/lockstep/{path}", headers={"Cookie": f"_token={token}"})
    assert answer.status_code == 405


def test_data_has_the_login_and_the_refusals_of_the_pages_as_json(server, get, token):
    assert [run["run_id"] for run in get("/lockstep/api/runs?limit=2").json()] == past_runs.RUN_IDS[:-3:-1]
    server.cookies.clear()
    bearer = server.get(f"/lockstep/api/runs/{RUN}", headers={"Authorization": f"Bearer {token}"})
    assert bearer.json()["run_id"] == RUN
    server.cookies.clear()
    assert server.get("/lockstep/api/runs").json() == {"detail": "Log in to Airflow to see this page."}
    assert get("/lockstep/api/runs/nosuch").json() == {"detail": "there is no run 'nosuch'"}
    assert get("/lockstep/api/openapi.json").json()["servers"] == [{"url": "/lockstep"}]


def test_airflow_run_links_to_its_report(get):
    origin = f"manual__{past_runs.LAST}"
    answer = get(f"/lockstep/run/{quote(origin)}")
    assert (answer.status_code, answer.headers["location"]) == (307, f"/lockstep/{past_runs.LAST}/index.html")
    assert "has no plan yet" in get("/lockstep/run/manual__2026-01-01T00:00:00+00:00").text


def test_run_in_progress_shows_its_progress_and_expected_duration(get, tmp_path, monkeypatch):
    answer = get("/lockstep/20260201T000000Z-0000000a/index.html")
    assert answer.status_code == 200
    assert "There is no such run" in answer.text
    other = Home(tmp_path)
    past_runs.make(other, nights=1, red=False)
    monkeypatch.setenv("LOCKSTEP_HOME", str(other.root))
    run_id = past_runs.RUN_IDS[0]
    first, second, *_ = json.loads((other.run(run_id) / "plan.json").read_text())["cells"]
    done, going_on = Queue(other, run_id, "numa-a"), Queue(other, run_id, "numa-b")
    assert done.take() == first
    done.finish(first["cell"])
    for stage, part in ((Stage.PLAN_MATRIX, None), (Stage.SPARK_SERVER, None), (Stage.RUN_CORE, first["cell"])):
        with recorded(other, run_id, stage, part):
            pass
    assert going_on.take() == second
    write_json(other.run(run_id) / "estimate.json", {"sentence": "14 cells, about 3 minutes"})
    text = get(f"/lockstep/{run_id}/index.html").text
    assert "1 of 14 cells have run" in text
    assert "14 cells, about 3 minutes" in text
    assert text.count(" has run<") == text.count("</span> runs<") == 1
    assert text.count("<td>numa-a</td>") == text.count("<td>numa-b</td>") == 1
    for path in ("", "index.html", "runs.html", f"{run_id}/index.html"):
        answer = get(f"/lockstep/{path}")
        assert "1 of 14 cells have run" in answer.text, path
        policy = policy_of(answer)
        script = base64.b64encode(hashlib.sha256(SCRIPT.search(answer.text)[1].encode()).digest()).decode()
        assert (policy["script-src"], policy["connect-src"]) == (f"'sha256-{script}'", "'self'"), "no other script"
    with recorded(other, run_id, Stage.PUBLISH_REPORTS):
        publish(other, run_id)
    assert "All 10 cells equal the oracle" in get(f"/lockstep/{run_id}/index.html").text
    with recorded(other, run_id, Stage.RUN_CORE, first["cell"]):  # a person has cleared it
        for path in ("", "runs.html", f"{run_id}/index.html"):
            assert "0 of 14 cells have run" in get(f"/lockstep/{path}").text, path


def test_slow_page_does_not_delay_other_requests(get, tmp_path, monkeypatch):
    home = Home(tmp_path)
    plan = home.run(past_runs.LAST) / "plan.json"
    plan.parent.mkdir(parents=True)
    os.mkfifo(plan)  # its reader waits for a writer
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(get, f"/lockstep/{past_runs.LAST}/index.html")
        with open(plan, "w") as writer:  # opens once the page's handler reads
            try:
                assert threads.submit(get, "/lockstep/style.css").result(10).status_code == 200
                assert threads.submit(get, "/api/v2/version").result(10).status_code == 200
                assert not slow.done()
            finally:
                writer.write("not JSON")
                writer.close()
        slow.exception(30)


def test_overview_names_the_queued_requests_of_airflow_and_the_nightly(get, server, token, known_dag):
    login = {"Authorization": f"Bearer {token}"}
    nightly, runs = f"/api/v2/dags/{DAG_ID}_nightly", f"/api/v2/dags/{DAG_ID}/dagRuns"
    assert "Waits in Airflow" not in get("/lockstep/").text
    assert "turn on the DAG" in get("/lockstep/").text
    waits = {"dag_run_id": "manual__waits", "logical_date": None}
    assert server.post(runs, json=waits, headers=login).status_code == 200
    assert server.patch(nightly, json={"is_paused": False}, headers=login).status_code == 200
    try:
        assert "turn on the DAG" not in get("/lockstep/").text
        for path in ("", "index.html"):
            assert "Waits in Airflow for its turn or its plan: manual__waits" in get(f"/lockstep/{path}").text
    finally:
        server.delete(f"{runs}/manual__waits", headers=login)
        server.patch(nightly, json={"is_paused": True}, headers=login)


def test_first_screen_starts_a_smoke_run(get, server, token, known_dag, tmp_path, monkeypatch):
    from airflow.models import DagRun
    from airflow.utils.session import create_session

    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    page = get("/lockstep/")
    assert "No runs yet" in page.text
    assert "No run has been measured yet" in get("/lockstep/performance.html").text
    assert '<form method="post" action="smoke">' in page.text
    assert "form-action 'self'" in page.headers["Content-Security-Policy"]
    login = {"Cookie": f"_token={token}"}
    with create_session() as session:  # runs of other tests
        earlier = [run_id for (run_id,) in session.query(DagRun.run_id)]
    assert server.post("/lockstep/smoke").status_code == 401
    assert server.post("/lockstep/smoke", headers=login | {"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert server.post("/lockstep/smoke", headers=login).headers["location"] == "/lockstep/index.html"
    with create_session() as session:
        (run,) = session.query(DagRun).filter(DagRun.run_id.not_in(earlier))
        assert (run.conf, run.state) == ({"matrix": "smoke"}, "queued")
        assert f"Waits in Airflow for its turn or its plan: {run.run_id}" in get("/lockstep/index.html").text
        session.delete(run)


def test_scraper_logs_in_with_a_token_and_gets_metrics(server, token):
    server.cookies.clear()
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/openmetrics-text; version=1.0.0"}
    answer = server.get("/lockstep/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert families.keys() < METRICS.keys(), "no run of this home is a nightly, and no stage is recorded"
    assert sum(sample.value for sample in families["lockstep_cells"].samples) > 0


def test_damaged_warehouse_is_a_line_for_the_scraper(get, tmp_path, monkeypatch):
    home = Home(tmp_path)
    past_runs.make(home, nights=1)
    home.part("cells", past_runs.RUN_IDS[0]).write_bytes(b"no parquet")
    monkeypatch.setenv("LOCKSTEP_HOME", str(home.root))
    answer = get("/lockstep/metrics")
    assert answer.status_code == 503
    assert "part-0.parquet" in answer.text


def test_button_on_the_page_of_a_cell_profiles_it(get, server, token, known_dag, lockstep_home):
    from airflow.models import DagRun
    from airflow.utils.session import create_session

    cell = History(lockstep_home).run(RUN).cells[0].name
    path = f"/lockstep/{RUN}/{cell}.html"
    page = get(path)
    assert '<form method="post" action="../profile">' in page.text
    assert "form-action 'self'" in page.headers["Content-Security-Policy"]
    other_site = {"Sec-Fetch-Site": "cross-site"}
    login, form = {"Cookie": f"_token={token}"}, {"run": RUN, "cell": cell}
    assert server.post("/lockstep/profile", data=form).status_code == 401
    assert server.post("/lockstep/profile", data=form, headers=login | other_site).status_code == 403
    for wrong in ({"cell": "nosuch"}, {"run": "nosuch"}, {"cell": "../index"}, {"run": f"../{RUN}"}):
        assert server.post("/lockstep/profile", data=form | wrong, headers=login).status_code == 404
    assert server.post("/lockstep/profile", headers=login).status_code == 404
    assert server.post("/lockstep/profile", data=form, headers=login).headers["location"] == path
    with create_session() as session:
        (started,) = session.query(DagRun).filter(DagRun.dag_id == PROFILE_DAG)
        assert (started.conf, started.state) == (form, "queued")
        session.delete(started)


def test_airflow_links_to_the_pages_and_the_documentation(get):
    (plugin,) = [plugin for plugin in get("/api/v2/plugins").json()["plugins"] if plugin["name"] == "lockstep"]
    names = {(view["name"], view["destination"], view.get("category")) for view in plugin["external_views"]}
    assert names == {(TITLE, "nav", None), (TITLE, "dag_run", None), (f"{TITLE} documentation", "nav", "docs")}
