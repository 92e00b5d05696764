"""The documentation site within Airflow: its search works under the policy of the plugin, and the menu links to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from threading import Thread

import pytest
import requests
import uvicorn

from infra import checkout
from tests.infra.site.test_site import PAGE, search
from tests.support.browser import Browser
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow
LOGIN = {"username": "admin", "password": "a password of this test"}


@pytest.fixture(scope="module")
def airflow(airflow_home, tmp_path_factory):
    """The address of Airflow's API server with the built site, and a token."""
    from airflow.api_fastapi.app import create_app, purge_cached_app

    site = tmp_path_factory.mktemp("served") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", site]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=checkout.ROOT, env=environment, check=True, timeout=120)
    (airflow_home / "passwords.json").write_text(json.dumps({LOGIN["username"]: LOGIN["password"]}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkout, "SITE", site)
        patch.setenv("LOCKSTEP_HOME", str(tmp_path_factory.mktemp("lockstep")))
        server = uvicorn.Server(uvicorn.Config(create_app(), port=0, log_level="warning"))
        thread = Thread(target=server.run)
        thread.start()
        wait_for(lambda: server.started, 60)
        address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        token = requests.post(f"{address}/auth/token", json=LOGIN, timeout=30).json()["access_token"]
        yield address, token
        server.should_exit = True
        thread.join(30)
        purge_cached_app()


def test_search_and_back_link_work_under_the_content_policy(airflow):
    address, token = airflow
    with Browser() as browser:
        browser.call("Network.setCookie", name="_token", value=token, url=address)
        links = search(browser, f"{address}/lockstep/docs/tutorial.html")
        assert any(link.startswith(f"{address}/lockstep/docs/{PAGE}") for link in links)
        back = "document.querySelector('.md-banner a')"
        assert browser.ask(f"getComputedStyle({back}.closest('.md-banner')).display") == "block"
        assert browser.ask(f"{back}.pathname") == "/lockstep/index.html"
