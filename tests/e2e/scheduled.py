"""`make ui` for tests: its API, and its pages in a browser."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from infra.checkout import ROOT
from streaming_core.regression.home import Home
from streaming_core.regression.project import PREFIX
from streaming_core.regression.stages import DAG_ID
from tests.support.browser import Browser
from tests.support.checkout import homes
from tests.support.waiting import wait_for

MOVES = "document.getAnimations().some(e => e.playState === 'running' && e.effect.getComputedTiming().endTime < 1e6)"
BUTTON = "[...document.querySelectorAll('[role=dialog] button')].find(e => e.innerText.trim() === '{}')"
RUNS = f"/api/v2/dags/{DAG_ID}/dagRuns"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def of_this_checkout(root: Path, **more: str) -> dict[str, str]:
    """The environment of commands of this checkout, whose homes are in a folder, and more variables."""
    quick = {"PYTHONPATH": str(ROOT), "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2"}
    return os.environ | homes(root) | quick | more


def erring(root: Path, **faults: str) -> dict[str, str]:
    """Variables for the engine with faults, by part of a cell's name, as that of this machine."""
    engine = [sys.executable, str(ROOT / "tests" / "e2e" / "erring_engine.py")]
    return {
        f"AIRFLOW_CONN_{PREFIX.upper()}LOCAL": json.dumps({"conn_type": "generic", "extra": {"wrapper": engine}}),
        f"AIRFLOW_CONN_{PREFIX.upper()}SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "LOCKSTEP_APP_FAULTS": json.dumps(faults),
        "LOCKSTEP_APP_PIDS": str(root / "pids"),
    }


class Airflow:
    """A running `make ui`, and calls to its API with a login."""

    def __init__(self, environment: dict[str, str], checkout: Path | None = None):
        """Start `make ui` of a checkout, by default of this one, in an environment."""
        self.environment, self.home, port = environment, Home(environment["LOCKSTEP_HOME"]), free_port()
        command = checkout / ".venv" / "bin" / "lockstep" if checkout else Path(sys.executable).parent / "lockstep"
        self.url = f"http://localhost:{port}"
        pipe, words = {"stdout": subprocess.PIPE, "text": True}, [str(command), "ui", "--port", str(port)]
        self.process = subprocess.Popen(words, env=environment, start_new_session=True, **pipe)
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if "Ctrl-C stops it" in line:
                break
        assert self.process.poll() is None, lines
        self.output = "".join(lines)
        passwords = json.loads((Path(environment["AIRFLOW_HOME"]) / "passwords.json").read_text())
        self.login = {"username": "admin", "password": passwords["admin"]}
        self.token = self.call("/auth/token", "POST", self.login)["access_token"]

    def call(self, path: str, method: str = "GET", body: dict | None = None, raw: bool = False):
        """Send a request with the login and return its JSON, or its text if `raw`."""
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Content-Type", "application/json")
        if hasattr(self, "token"):
            request.add_header("Authorization", f"Bearer {self.token}")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, json.dumps(body).encode() if body is not None else None, timeout=60) as answer:
            text = answer.read().decode()
        return text if raw else json.loads(text)

    def tasks(self, run: str) -> dict[tuple[str, int], str]:
        """(task, map index) -> state."""
        answer = self.call(f"{RUNS}/{run}/taskInstances")
        return {(task["task_id"], task["map_index"]): task["state"] for task in answer["task_instances"]}

    def log_in(self, browser: Browser) -> None:
        """Fill in the login page."""
        browser.go(f"{self.url}/auth/login")
        for name, text in self.login.items():
            browser.click(f"document.querySelector('input[name={name}]')")
            browser.type(text)
        browser.press("Enter")
        browser.wait("location.pathname === '/' && document.querySelectorAll('button').length > 3")

    def open_form(self, browser: Browser, dag: str = DAG_ID) -> None:
        """Open the form of a DAG, with its defaults."""
        browser.go(f"{self.url}/dags/{dag}")
        browser.click("[...document.querySelectorAll('button')].find(e => e.ariaLabel === 'Trigger Dag')")

    def field(self, name: str, element: str) -> str:
        """JavaScript for the first matching element after the label of a field of the open form."""
        label = f"[...document.querySelectorAll('[role=dialog] label')].find(e => e.innerText.startsWith('{name}'))"
        behind = f"[...document.querySelectorAll('[role=dialog] {element}')]"
        return f"(() => {{ const l = {label}; return l && {behind}.find(e => l.compareDocumentPosition(e) & 4) }})()"

    def open_section(self, browser: Browser, name: str) -> None:
        """Open a section of the open form, which closes the one before it."""
        button = f"[...document.querySelectorAll('[role=dialog] button')].find(e => e.innerText.includes('{name}'))"
        browser.click(button)
        browser.wait(f"{button}.ariaExpanded === 'true'")
        browser.wait(f"!{MOVES}")

    def fill_in(self, browser: Browser, values: dict[str, list[str] | str]) -> None:
        """Choose the options of list fields and type the texts of others, in the open section."""
        for name, value in values.items():
            if isinstance(value, list):
                browser.click(self.field(name, 'button[aria-label="Clear selected options"]'))
            for text in [value] if isinstance(value, str) else value:
                browser.click(self.field(name, "input, textarea"))
                browser.ask("document.activeElement.select()")
                browser.type(text)
                if isinstance(value, list):
                    browser.press("Enter")

    def end(self, run: str) -> None:
        """End a run at once. The API answers 500 while the scheduler changes the run: it is asked again."""

        def is_ended() -> bool:
            try:
                self.call(run, "PATCH", {"state": "failed"})
            except urllib.error.HTTPError as error:
                if error.code != 500:
                    raise
                return False
            return True

        wait_for(is_ended, 60)

    def __enter__(self) -> Airflow:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(120)
