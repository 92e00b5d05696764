"""The hook that all Spark tasks ask for the URL of their server."""

import json
import signal
import socket
from types import SimpleNamespace

import pytest
from airflow.models import Connection
from airflow.sdk.exceptions import AirflowSkipException
from pyspark.sql.connect.client.core import DefaultChannelBuilder

from dags.lib import jobs
from dags.lib.spark import ServerHook, SparkCells, SparkServer, SparkTask
from infra.checkout import home
from infra.spark.server import Server, ServerLost
from streaming_core.errors import BadInput
from streaming_core.interruption import Interrupted
from streaming_core.regression.fleet import SPARK, losses
from streaming_core.regression.home import Home
from streaming_core.regression.lock import hold, of_home, of_host
from streaming_core.regression.status import records
from streaming_core.storage import write_json

RUN = "20260101T000000Z-00000000"
TOKEN = "a/secret+token="


@pytest.fixture
def hook(lockstep_home, monkeypatch):
    """Makes the hook on a connection with these fields."""

    def make(**fields) -> ServerHook:
        monkeypatch.setenv("AIRFLOW_CONN_REMOTE", json.dumps(fields))
        return ServerHook("remote", RUN)

    return make


def test_hook_passes_every_option_of_a_spark_connect_connection(hook):
    address = {"host": "spark.example", "port": 15443, "login": "some one", "password": TOKEN}
    url = hook(conn_type="spark_connect", extra={"use_ssl": True}, **address).get_connection_url()
    client = DefaultChannelBuilder(url)
    shown = (client.endpoint, client.userId, client.token, client.use_ssl)
    assert shown == ("spark.example:15443", "some one", TOKEN, True)


@pytest.mark.parametrize("host", ["spark.example", "sc://spark.example", "[::1]", "127.0.0.1"])
def test_hook_accepts_names_and_addresses(hook, host):
    url = hook(conn_type="spark_connect", host=host, port=15002, password=TOKEN).get_connection_url()
    assert url.startswith(f"sc://{host.removeprefix('sc://')}:15002")
    assert DefaultChannelBuilder(url).token == TOKEN
    assert DefaultChannelBuilder(hook(conn_type="spark_connect", host=host).get_connection_url()).token is None


def test_hook_reads_the_lease_if_the_connection_names_a_master(hook, lockstep_home):
    local = hook(conn_type="spark", host="local[2]")
    with pytest.raises(ServerLost, match="has ended"):
        local.get_connection_url()
    assert hook(conn_type="spark", host="spark://spark.example", port=7077).master == "spark://spark.example:7077"
    server = Server(lockstep_home)
    try:
        server.start(RUN, master=None)
        with pytest.raises(ServerLost):
            local.get_connection_url()  # a run on an external server has a lease without a URL
        lease = json.loads(server.lease_path(RUN).read_text())
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = f"localhost:{listening.getsockname()[1]}"
            server.lease_path(RUN).write_text(json.dumps(lease | {"url": f"sc://{address}", "token": TOKEN}))
            client = DefaultChannelBuilder(local.get_connection_url())
        assert (client.endpoint, client.token) == (address, TOKEN)
    finally:
        server.stop(RUN)


def test_silent_master_is_named_with_its_connection(hook, lockstep_home):
    log = Server(lockstep_home).log_path(RUN)
    log.parent.mkdir(parents=True)
    lines = ["1 ERROR Backend: Reason: All masters are unresponsive! Giving up.", "(No active SparkContext.)"]
    log.write_text("\n".join(lines))
    message = "^connection remote: no Spark master answers at spark://nowhere:7077; "
    message += "start it, or correct host, port and secret$"
    with pytest.raises(ServerLost, match=message):
        hook(conn_type="spark", host="spark://nowhere", port=7077).get_connection_url()


@pytest.mark.parametrize("value", ["60", True, -1, None, float("inf")])
def test_invalid_idle_time_of_a_shared_server_is_refused(hook, value):
    wrong = hook(conn_type="spark", host="local[2]", extra=json.dumps({"idle_seconds": value}))
    with pytest.raises(BadInput, match=r"^connection remote: idle_seconds must be a number of seconds, 0 or more, got"):
        wrong.start(print)
    assert Server(home()).owners() == []
    assert hook(conn_type="spark", host="local[2]", extra={"idle_seconds": 60}).idle == 60


def test_early_start_waits_for_no_lock_and_leaves_errors_to_the_task(lockstep_home, monkeypatch, tmp_path):
    monkeypatch.setenv("LOCKSTEP_HOST_LOCK", str(tmp_path / "host.lock"))
    server = Server(lockstep_home)
    local, remote = {"conn_type": "spark", "host": "local[2]"}, {"conn_type": "spark_connect", "host": "spark.example"}

    def lease(**fields):
        SparkServer.start_early(RUN, Connection(conn_id="remote", **fields))
        return server.lease(RUN)

    with hold(of_home(lockstep_home), "prune"):
        assert lease(**local) is None
    with hold(of_host(), "cell"):
        assert lease(**local) is None
    assert lease(**remote) is None
    assert lease(**local, extra=json.dumps({"spark.driver.host": "-h"})) is None
    try:
        assert lease(**local).url == server.start(RUN), "the task finds the server"
    finally:
        server.stop(RUN)


def cells_task(home: Home, executor: str) -> SparkCells:
    """The task that runs cells on Spark, in a run of one cell."""
    cell = {"cell": "wc.cell", "spec": {"executor": executor}, "workload": "0", "host": SPARK}
    write_json(home.run(RUN) / "plan.json", {"cells": [cell]})
    return SparkCells(task_id="run_on_spark", run=RUN, conn_id=SPARK, python_callable=jobs.run_on_spark, limit=1.0)


def test_lost_server_is_the_reason_of_cells_without_a_result(lockstep_home):
    task = cells_task(lockstep_home, "spark")
    reason = f"connection {SPARK}: the Spark server of {RUN} has ended: "
    with pytest.raises(ServerLost, match=f"^{reason}"):
        task.execute({"ti": SimpleNamespace(try_number=1, max_tries=0)})
    assert losses(lockstep_home, RUN)[SPARK].startswith(reason)
    assert records(lockstep_home, RUN) == {}


def test_run_without_spark_cells_skips_the_task_and_starts_no_session(lockstep_home, monkeypatch):
    task = cells_task(lockstep_home, "pooled")
    monkeypatch.setattr(ServerHook, "restart", lambda *_: pytest.fail("it needs a server"))
    with pytest.raises(AirflowSkipException, match="the run has no cells of executor spark"):
        task.execute({})


def test_task_is_interrupted_only_while_it_runs(lockstep_home):
    task = SparkTask(task_id="job", conn_id="spark_default", python_callable=lambda spark: None)
    task.on_kill()
    task._is_running = True
    with pytest.raises(Interrupted) as interrupted:
        task.on_kill()
    assert interrupted.value.exit_code == 128 + signal.SIGTERM
