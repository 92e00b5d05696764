"""Airflow's API server application on a socket, because pages of the plugin ask its public API."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import httpx
import uvicorn

from tests.support.waiting import wait_for


@contextmanager
def serving(app: Any) -> Iterator[httpx.Client]:
    """A client of the application, which runs on a free port of loopback during the block."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_for(lambda: server.started or not thread.is_alive(), 120)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with httpx.Client(base_url=url, timeout=120, trust_env=False) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()
