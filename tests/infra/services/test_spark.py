"""The run's Spark server and the lock it carries. A `sc://` url that is there already shows the lock without a JVM."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import uuid

import grpc
import psutil
import pyspark
import pyspark.sql.connect.proto as connect
import pytest
from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub

from infra.services.lock import hold
from infra.services.spark import Server, ServerLost
from streaming_core.regression.home import Home
from tests.waiting import alive, wait_for

REMOTE = ("sc://spark.example:15002", "secret-token")
PATIENCE = 60


@pytest.fixture
def server(tmp_path):
    server = Server(Home(tmp_path / "home"))
    yield server
    for owner in ("a", "b"):
        server.stop(owner)


def version_of(url: str, token: str | None) -> str:
    """One question to a Spark Connect server, without the client's patience."""
    asked = connect.AnalyzePlanRequest(
        session_id=str(uuid.uuid4()),
        user_context=connect.UserContext(user_id="test"),
        spark_version=connect.AnalyzePlanRequest.SparkVersion(),
    )
    metadata = [("authorization", f"Bearer {token}")] if token is not None else []
    with grpc.insecure_channel(url.removeprefix("sc://")) as channel:
        answer = SparkConnectServiceStub(channel).AnalyzePlan(asked, metadata=metadata, timeout=PATIENCE)
    return answer.spark_version.version


def test_a_server_answers_only_with_its_token_and_is_gone_when_stopped(server, monkeypatch):
    url = server.start("a", master="local[1]")
    environment = server.environment("a")
    assert environment["SPARK_REMOTE"] == url
    assert stat.S_IMODE(os.stat(server.state_path).st_mode) == 0o600
    token = environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"]
    assert version_of(url, token) == pyspark.__version__
    for wrong in (None, "", "a guess"):
        with pytest.raises(grpc.RpcError) as refused:
            version_of(url, wrong)
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED

    keeper = psutil.Process(json.loads(server.state_path.read_text())["pid"])
    family = [process for process in (keeper, *keeper.children(recursive=True)) if alive(process.pid)]
    said = " ".join(word for process in family for word in process.cmdline())
    assert token not in said
    assert token not in server.log_path("a").read_text()
    listening = [c.laddr.ip for process in family for c in process.net_connections("tcp") if c.status == "LISTEN"]
    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}

    assert server.stop("a")
    assert not server.state_path.exists()
    assert not [process for process in family if alive(process.pid)]


def test_a_server_that_cannot_start_says_why(server):
    with pytest.raises(ServerLost, match=r"did not start: .*[Mm]aster"):
        server.start("a", master="nonsense")
    assert server.holder() is None


def test_starting_twice_is_starting_once(server):
    assert server.start("a", remote=REMOTE) == REMOTE[0]
    keeper = server.holder()["pid"]
    assert server.start("a", remote=REMOTE) == REMOTE[0]
    assert server.holder()["pid"] == keeper


def test_the_second_run_waits_and_says_for_whom(server):
    server.start("a", remote=REMOTE)
    said, started = [], threading.Event()

    def second() -> None:
        server.start("b", remote=REMOTE, say=said.append)
        started.set()

    thread = threading.Thread(target=second)
    thread.start()
    wait_for(lambda: said, PATIENCE)
    assert said[0].startswith(f"waiting: {server.home.root} is in use by a on ")
    assert not started.is_set()
    server.stop("a")
    thread.join(PATIENCE)
    assert server.holder()["owner"] == "b"


def test_work_outside_a_run_holds_the_same_lock(server):
    with hold(server.home, "rebuild"):
        assert server.holder()["owner"] == "rebuild"
        with pytest.raises(Exception, match="still in use by rebuild"):
            server.start("a", remote=REMOTE, patience=0.5)
    server.start("a", remote=REMOTE)


def test_a_waiting_run_that_is_killed_does_not_take_the_lock_later(server):
    server.start("a", remote=REMOTE)
    environment = {**os.environ, "LOCKSTEP_HOME": str(server.home.root)}
    start = "from infra.services.spark import Server, home\nServer(home()).start('b')"
    command = [sys.executable, "-c", start]
    waiting = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert waiting.stdout.readline().startswith("waiting: ")
    keepers = psutil.Process(waiting.pid).children()
    waiting.kill()
    waiting.communicate()
    assert keepers
    wait_for(lambda: not any(alive(keeper.pid) for keeper in keepers), PATIENCE)
    server.stop("a")
    assert server.holder() is None


def test_the_server_ends_with_the_process_it_belongs_to(server):
    belongs_to = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    server.start("a", remote=REMOTE, watch=belongs_to.pid)
    assert server.environment("a")["SPARK_REMOTE"] == REMOTE[0]
    belongs_to.kill()
    belongs_to.communicate()
    wait_for(lambda: server.holder() is None, PATIENCE)
    with pytest.raises(ServerLost, match="has ended"):
        server.environment("a")


def test_a_killed_keeper_frees_the_lock(server):
    server.start("a", remote=REMOTE)
    os.kill(server.holder()["pid"], signal.SIGKILL)
    wait_for(lambda: server.holder() is None, PATIENCE)
    assert server.state("a") is None
    server.start("b", remote=REMOTE)
