"""Airflow's API server as its clients see it: its passwords, its health, and calls with a login."""

from __future__ import annotations

import json
import os
import secrets
import urllib.request
from typing import Any

from infra.airflow import airflow_home
from streaming_core.storage import left_json, write_text

USER = "admin"


def passwords() -> dict[str, str]:
    """The password of each user. New passwords are written to a file that only its owner can read.

    Airflow itself would write a new password to its log.
    """
    path = airflow_home.location() / "passwords.json"
    known = left_json(path)
    users = os.environ.get("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", f"{USER}:admin").split(",")
    names = [user.partition(":")[0].strip() for user in users]
    if new := {name: secrets.token_urlsafe(12) for name in names if name not in known}:
        known |= new
        write_text(path, json.dumps(known), mode=0o600)
    return {name: known[name] for name in names}


def healthy(url: str) -> bool:
    """Whether Airflow reports that its database, scheduler, DAG processor and triggerer are healthy."""
    try:
        state = _request(f"{url}/api/v2/monitor/health", timeout=2)
    except (OSError, ValueError):
        return False
    parts = ("metadatabase", "scheduler", "dag_processor", "triggerer")
    return all((state.get(part) or {}).get("status") == "healthy" for part in parts)


class Api:
    """Calls to the API of one user, who logs in with a password."""

    def __init__(self, url: str, user: str, password: str):
        """Log in.

        Raises:
            OSError: the server does not answer, or refuses the login.
        """
        self.url = url
        login = {"username": user, "password": password}
        self._token = _request(f"{url}/auth/token", "POST", login)["access_token"]

    def call(self, path: str, method: str = "GET", body: dict | None = None) -> Any:
        """Send a request, and return the JSON of its answer.

        Raises:
            OSError: the server does not answer, or refuses the request.
        """
        return _request(self.url + path, method, body, {"Authorization": f"Bearer {self._token}"})


def _request(
    url: str, method: str = "GET", body: dict | None = None, headers: dict | None = None, timeout: float = 60
) -> Any:
    request = urllib.request.Request(
        url, method=method, headers={"Content-Type": "application/json", **(headers or {})}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # requests to localhost need no proxy
    with opener.open(request, json.dumps(body).encode() if body is not None else None, timeout=timeout) as answer:
        return json.load(answer)
