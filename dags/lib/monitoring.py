"""Signals for the monitoring outside: the figures of a run, and the call after each night.

The figures go through Airflow's own metrics, which send them to StatsD or OpenTelemetry if its settings say so. The
call goes to the URL of the connection `lockstep_dead_man`; its receiver raises the alarm if no call arrives. Neither
changes a verdict: if one fails, the log gets a line. docs/how-to/watch-lockstep.md explains how to set both up.
"""

from __future__ import annotations

import logging
from typing import Any, Literal
from urllib.parse import urlsplit

import requests
from airflow.sdk import BaseNotifier
from airflow.sdk.observability import stats
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from dags.lib.alerts import connection, extra
from reports import metrics
from reports.history import Run
from streaming_core.errors import BadInput
from streaming_core.regression.project import named

log = logging.getLogger(__name__)

DEAD_MAN = named("lockstep_dead_man")
SECONDS = 10  # for the receiver to connect, and to answer
# A lost call raises a false alarm, so a call is tried again.
RETRY = Retry(2, backoff_factor=0.5, status_forcelist=(500, 502, 503, 504), raise_on_status=False)


def send_metrics(run: Run) -> None:
    """Hand the figures of a run over to Airflow's metrics."""
    try:
        for sample in metrics.of_run(run):
            stats.gauge(sample.metric, sample.value, tags=sample.labels)
    except Exception as error:  # the verdict matters more
        log.error("metrics not sent: %s", error)


class DeadMan(BaseNotifier):
    """Calls the URL of the connection `lockstep_dead_man` after a night, if there is one."""

    def __init__(self, outcome: Literal["green", "red"], **kwargs: Any):
        super().__init__(**kwargs)
        self._outcome = outcome

    def notify(self, context: Any) -> None:
        """Call the URL; after a red night, with `/fail` behind its path."""
        if (known := connection(DEAD_MAN)) is None:
            return
        try:
            _call(extra(known, "url"), self._outcome)
        except BadInput as error:
            log.error("%s not called: %s", DEAD_MAN, error)
        except Exception as error:  # its text has the URL, which is a secret
            log.error("%s not called: %s", DEAD_MAN, type(error).__name__)


def _call(url: Any, outcome: str) -> None:
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise BadInput("the 'url' in the extra of the connection must begin with http:// or https://")
    parts = urlsplit(url)
    if outcome == "red":
        parts = parts._replace(path=f"{parts.path.rstrip('/')}/fail")
    # Its lines about another try have the URL.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=RETRY))
        # The body is not read: a receiver cannot keep the task busy with it.
        with session.get(parts.geturl(), timeout=SECONDS, stream=True) as answer:
            if not answer.ok:
                raise BadInput(f"its server answered {answer.status_code}")
