"""Airflow's API server as its clients see it: its passwords, its health, and calls with a login."""

from __future__ import annotations

import json
import os
import secrets
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.error import HTTPError

from infra.airflow import airflow_home
from streaming_core.errors import line_of
from streaming_core.storage import left_json, write_text

USER = "admin"
UNAUTHORIZED = 401
PAGE = 100  # items of a list in one answer, the most that Airflow allows
PARTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")


def passwords() -> dict[str, str]:
    """The password of each user. New passwords are written to a file that only its owner can read.

    Airflow itself would write a new password to its log.
    """
    path = airflow_home.location() / "passwords.json"
    known = left_json(path)
    names = _users()
    if new := {name: secrets.token_urlsafe(12) for name in names if name not in known}:
        known |= new
        write_text(path, json.dumps(known), mode=0o600)
    return {name: known[name] for name in names}


def healthy(url: str, parts: Iterable[str] = PARTS) -> bool:
    """Whether Airflow reports that parts of it are healthy, and the server answers tasks.

    Its first answer to a task takes many seconds on a busy machine, and the task would give up.
    """
    try:
        state = _request(f"{url}/api/v2/monitor/health", timeout=2)
        if not all((state.get(part) or {}).get("status") == "healthy" for part in parts):
            return False
        _request(f"{url}/execution/health", timeout=60)
    except (OSError, ValueError):
        return False
    return True


def log_in(url: str) -> Api:
    """Log in as the user of this AIRFLOW_HOME that may do most.

    Raises:
        OSError: The server does not answer, or it has another auth manager.
    """
    known, roles = passwords(), ("viewer", "user", "op", "admin")
    name = max(known, key=lambda name: roles.index(role) if (role := _users()[name]) in roles else -1)
    return Api(url, name, known[name])


def refusal(error: OSError) -> str:
    """Why the server refused a request, in one line; or why it did not answer."""
    if not isinstance(error, HTTPError):
        return line_of(error)
    try:
        detail = json.load(error)["detail"]
    except (KeyError, TypeError, ValueError):
        return line_of(error)
    return str(detail).splitlines()[0] if detail else line_of(error)


def _users() -> dict[str, str]:
    """The role of each user."""
    users = os.environ.get("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", f"{USER}:admin").split(",")
    return {name.strip(): role.strip() for name, _, role in (user.partition(":") for user in users)}


class Api:
    """Calls to the API of one user, who logs in with a password."""

    def __init__(self, url: str, user: str, password: str):
        """Log in.

        Raises:
            OSError: the server does not answer, or refuses the login.
        """
        self.url = url
        self._login = {"username": user, "password": password}
        self._log_in()

    def _log_in(self) -> None:
        self._token = _request(f"{self.url}/auth/token", "POST", self._login)["access_token"]

    def call(self, path: str, method: str = "GET", body: dict | None = None) -> Any:
        """Send a request, and return the JSON of its answer.

        Raises:
            OSError: the server does not answer, or refuses the request.
        """
        try:
            return _request(self.url + path, method, body, {"Authorization": f"Bearer {self._token}"})
        except HTTPError as error:
            if error.code != UNAUTHORIZED:
                raise
        self._log_in()  # a token lasts a day
        return _request(self.url + path, method, body, {"Authorization": f"Bearer {self._token}"})

    def pages(self, path: str, name: str) -> Iterator[Any]:
        """The items of a list of any length, which an answer has under `name`. Raises as `call`."""
        offset, total = 0, 1
        while offset < total:
            answer = self.call(f"{path}?limit={PAGE}&offset={offset}")
            yield from answer[name]
            offset, total = offset + PAGE, answer["total_entries"]


def _request(
    url: str, method: str = "GET", body: dict | None = None, headers: dict | None = None, timeout: float = 60
) -> Any:
    request = urllib.request.Request(
        url, method=method, headers={"Content-Type": "application/json", **(headers or {})}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # requests to localhost need no proxy
    with opener.open(request, json.dumps(body).encode() if body is not None else None, timeout=timeout) as answer:
        return json.load(answer)
