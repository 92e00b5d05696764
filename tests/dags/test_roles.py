"""The permissions of each role of Airflow's simple login: view, trigger, acknowledge, administer.

A request of a role without the permission gets 403. With it, the API reads the request: it answers 404 here, because no
DAG was parsed, or 200.
"""

import json

import pytest

from streaming_core.regression.stages import DAG_ID
from tests.support.serving import serving

ROLES = ("viewer", "user", "op", "admin")
RUN = {"json": {"logical_date": None, "conf": {"hosts": ["local"]}}}
ANSWER = {"json": {"chosen_options": ["Acknowledge"], "params_input": {}}}
ACKNOWLEDGE = "/api/v2/dags/acknowledge_run/dagRuns"
# Request -> the roles that may send it.
REQUESTS = {
    ("view the pages", "GET", "/lockstep/index.html"): ROLES,
    ("view the runs", "GET", "/api/v2/dags/~/dagRuns"): ROLES,
    ("trigger a run", "POST", f"/api/v2/dags/{DAG_ID}/dagRuns"): ROLES[1:],
    ("trigger an acknowledgement", "POST", ACKNOWLEDGE): ROLES[1:],
    ("answer its question", "PATCH", f"{ACKNOWLEDGE}/one/taskInstances/question/-1/hitlDetails"): ROLES[1:],
    ("end a run", "PATCH", f"/api/v2/dags/{DAG_ID}/dagRuns/one"): ROLES[1:],
    ("read connections", "GET", "/api/v2/connections"): ROLES[2:],
    ("edit a connection", "DELETE", "/api/v2/connections/nosuch"): ROLES[2:],
    ("edit a pool", "DELETE", "/api/v2/pools/nosuch"): ROLES[2:],
}


@pytest.fixture(scope="module")
def clients(airflow_home, tmp_path_factory):
    """Role -> a client with the login of a user in that role."""
    from airflow.api_fastapi.app import create_app, purge_cached_app

    (airflow_home / "passwords.json").write_text(json.dumps({role: f"password of {role}" for role in ROLES}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_HOME", str(tmp_path_factory.mktemp("lockstep")))
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", ",".join(f"{role}:{role}" for role in ROLES))
        purge_cached_app()
        with serving(create_app()) as server:
            logins = {}
            for role in ROLES:
                answer = server.post("/auth/token", json={"username": role, "password": f"password of {role}"})
                assert answer.status_code == 201, answer.text
                logins[role] = {"Authorization": f"Bearer {answer.json()['access_token']}"}
            server.cookies.clear()
            yield server, logins
        purge_cached_app()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("request_of", REQUESTS, ids=lambda request: request[0])
def test_roles_have_the_permissions_of_the_security_page(clients, role, request_of):
    server, logins = clients
    what, method, path = request_of
    body = {"POST": RUN, "PATCH": ANSWER}.get(method, {})
    code = server.request(method, path, headers=logins[role], **body).status_code
    assert code != 401
    assert (code != 403) == (role in REQUESTS[request_of]), f"{role}: {what}: {code}"


def test_without_a_login_every_request_is_refused(clients):
    server, _ = clients
    for what, method, path in REQUESTS:
        assert server.request(method, path).status_code == 401, what
