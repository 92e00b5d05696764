"""The run's Spark server, its lease and its lock. Without a master, no test waits for a JVM."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import uuid

import grpc
import psutil
import pyspark
import pyspark.sql.connect.proto as connect
import pytest
from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub

from infra.spark.server import EXPIRES_SECONDS, HEARTBEAT_SECONDS, Server, ServerLost
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.home import Home
from streaming_core.regression.lock import hold, of_home, of_host, signature
from tests.support.waiting import alive, wait_for

PATIENCE = 60


@pytest.fixture
def server(tmp_path):
    server = Server(Home(tmp_path / "home"))
    yield server
    for lease in (server.home.root / "spark-scratch").glob("*.json"):
        server.stop(lease.stem)
        lease.unlink(missing_ok=True)  # `stop` leaves an expired lease, whose keeper would go on


def version_of(url: str, token: str | None) -> str:
    """One question to a Spark Connect server, without the client's patience."""
    request = connect.AnalyzePlanRequest(
        session_id=str(uuid.uuid4()),
        user_context=connect.UserContext(user_id="test"),
        spark_version=connect.AnalyzePlanRequest.SparkVersion(),
    )
    metadata = [("authorization", f"Bearer {token}")] if token is not None else []
    with grpc.insecure_channel(url.removeprefix("sc://")) as channel:
        answer = SparkConnectServiceStub(channel).AnalyzePlan(request, metadata=metadata, timeout=PATIENCE)
    return answer.spark_version.version


def family_of(pid: int) -> list[psutil.Process]:
    """A process and all that it started, as far as they run."""
    process = psutil.Process(pid)
    return [member for member in (process, *process.children(recursive=True)) if alive(member.pid)]


@pytest.mark.slow
def test_server_answers_only_with_its_token_and_ends_when_stopped(server, monkeypatch):
    url = server.start("a", master="local[1]")
    token = server.client_lease("a").token
    assert server.client_lease("a").client_url == f"{url}/;token={token}"
    (scratch,) = (server.home.root / "spark-scratch").glob("a-*/")
    for path, mode in ((server.lease_path("a"), 0o600), (scratch / "spark.conf", 0o600), (scratch, 0o700)):
        assert stat.S_IMODE(os.stat(path).st_mode) == mode, path
    assert version_of(url, token) == pyspark.__version__
    for wrong in (None, "", "a guess"):
        with pytest.raises(grpc.RpcError) as refused:
            version_of(url, wrong)
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED

    family = family_of(server.lease("a").pid)
    command_lines = " ".join(word for process in family for word in process.cmdline())
    environments = "\n".join(str(process.environ()) for process in family)
    for text in (command_lines, environments, server.log_path("a").read_text()):
        assert token not in text
    listening = [c.laddr.ip for process in family for c in process.net_connections("tcp") if c.status == "LISTEN"]
    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}

    assert server.stop("a")
    assert not server.lease_path("a").exists()
    assert not [process for process in family if alive(process.pid)]


def test_failed_server_start_gives_its_reason(server):
    server.start("a", master="nonsense")
    with pytest.raises(ServerLost, match=r"has ended: .*[Mm]aster"):
        server.client_lease("a")
    wait_for(lambda: not server.owners(), PATIENCE)


def test_second_start_changes_nothing(server):
    keepers = set()
    for _ in range(2):
        assert server.start("a", master=None) == ""
        keepers.add(server.lease("a").pid)
    assert len(keepers) == 1


def test_runs_go_on_side_by_side_each_with_its_lease(server):
    server.start("a", master=None)
    server.start("b", master=None)
    assert sorted(server.owners()) == ["a", "b"]
    assert server.lease("a").pid != server.lease("b").pid
    server.stop("a")
    assert server.owners() == ["b"]
    assert server.lease("b")


@pytest.mark.slow
def test_servers_share_neither_port_nor_scratch_and_a_killed_one_leaves_the_other(server):
    urls = {owner: server.start(owner, master="local[1]") for owner in ("a", "b")}
    tokens = {owner: server.client_lease(owner).token for owner in urls}
    assert len(set(urls.values())) == 2
    with pytest.raises(grpc.RpcError):
        version_of(urls["b"], tokens["a"])
    os.kill(server.lease("a").pid, signal.SIGKILL)
    wait_for(lambda: server.owners() == ["b"], PATIENCE)
    assert version_of(urls["b"], tokens["b"]) == pyspark.__version__
    left = [path.name for path in (server.home.root / "spark-scratch").glob("*/spark.conf")]
    assert len(left) == 2


def test_next_start_removes_what_a_killed_keeper_left(server):
    server.start("a", master=None)
    pid = server.lease("a").pid
    scratch = server.home.root / "spark-scratch" / f"a-{pid}"
    (scratch / "shuffle").mkdir(parents=True)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not server.owners(), PATIENCE)
    server.start("b", master=None)
    assert scratch.exists(), "its server may have lived a moment ago"
    server.stop("b")
    os.utime(server.lease_path("a"), (1, 1))
    server.start("b", master=None)
    wait_for(lambda: not scratch.exists() and not server.lease_path("a").exists(), PATIENCE)
    assert server.lease("b")


def test_run_waits_for_a_command_that_has_the_home_alone_and_names_it(server):
    lines, started = [], threading.Event()

    def start() -> None:
        server.start("a", master=None, say=lines.append)
        started.set()

    with hold(of_home(server.home), "prune"):
        thread = threading.Thread(target=start)
        thread.start()
        wait_for(lambda: lines, PATIENCE)
        assert lines[0].startswith(f"waiting: {server.home.root} is in use by prune on ")
        assert not started.is_set()
        with pytest.raises(Exception, match=r"is in use by prune on .*, still after 3 s: wait until that ends"):
            server.start("b", master=None, patience=3)
    thread.join(PATIENCE)
    assert server.owners() == ["a"]


def test_server_starts_when_the_measurement_on_its_host_is_over(server, monkeypatch, tmp_path):
    monkeypatch.setenv("LOCKSTEP_HOST_LOCK", str(tmp_path / "host.lock"))
    lines = []
    with hold(of_host(), "cell wc", run="7"), pytest.raises(RunFailed, match=r"cell wc of run 7 on .*, still after"):
        server.start("a", master="nonsense", say=lines.append, patience=5)
    assert lines[0].startswith("waiting: the host is in use by cell wc of run 7 on ")
    wait_for(lambda: not server.owners(), PATIENCE)


def test_killed_waiting_run_never_takes_the_lock(server):
    lock = of_home(server.home)
    lock.path.parent.mkdir(parents=True)
    assert lock.take(signature("prune"))
    environment = {**os.environ, "LOCKSTEP_HOME": str(server.home.root)}
    start = "from infra.spark.server import Server, home\nServer(home()).start('b')"
    command = [sys.executable, "-c", start]
    waiting = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert waiting.stdout.readline().startswith("waiting: ")
    keepers = psutil.Process(waiting.pid).children()
    waiting.kill()
    waiting.communicate()
    assert keepers
    wait_for(lambda: not any(alive(keeper.pid) for keeper in keepers), PATIENCE)
    lock.leave()
    assert not server.owners()


def test_server_ends_with_its_owner_process(server):
    belongs_to = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    server.start("a", master=None, watch=belongs_to.pid)
    assert server.lease("a")
    belongs_to.kill()
    belongs_to.communicate()
    wait_for(lambda: not server.owners(), PATIENCE)
    with pytest.raises(ServerLost, match="has ended"):
        server.client_lease("a")


def test_killed_keeper_frees_the_lock(server):
    server.start("a", master=None)
    os.kill(server.lease("a").pid, signal.SIGKILL)
    wait_for(lambda: not server.owners(), PATIENCE)
    assert server.lease("a") is None
    server.start("b", master=None)
    assert server.lease("b")


def written(server: Server, **changes) -> None:
    """Change the lease in place, which keeps its time."""
    content = json.loads(server.lease_path("a").read_text()) | changes
    at = server.lease_path("a").stat().st_mtime
    server.lease_path("a").write_text(json.dumps(content))
    os.utime(server.lease_path("a"), (at, at))


def test_remote_reader_trusts_only_the_lease_time(server):
    server.start("a", master=None)
    lease = server.lease("a")
    written(server, pid=2**22 + 1)
    assert server.lease("a") is None, "here, no such process runs"
    written(server, machine="another boot pid:[1]")
    assert server.lease("a").host == lease.host
    os.utime(server.lease_path("a"), (time.time() - EXPIRES_SECONDS + 60,) * 2)
    assert server.lease("a"), "clocks may differ by a minute"
    os.utime(server.lease_path("a"), (time.time() - EXPIRES_SECONDS - 1,) * 2)
    assert server.lease("a") is None
    with pytest.raises(ServerLost, match="has ended"):
        server.client_lease("a")


def test_keeper_renews_its_lease(server):
    server.start("a", master=None)
    os.utime(server.lease_path("a"), (1, 1))
    assert server.lease("a") is None
    wait_for(lambda: server.lease("a"), HEARTBEAT_SECONDS + PATIENCE)


def test_removal_of_the_lease_on_another_machine_ends_the_keeper(server):
    server.start("a", master=None)
    pid = server.lease("a").pid
    written(server, machine="another boot pid:[1]")
    assert server.stop("a")
    assert not server.owners()
    wait_for(lambda: not alive(pid), PATIENCE)


@pytest.mark.slow
def test_server_for_other_machines_has_the_address_of_the_setting(server):
    """Any address of 127/8 is this machine, and only pyspark's name for loopback is special."""
    url = server.start("a", master="local[1]", settings={"spark.driver.host": "127.0.0.2", "spark.app.note": "hush"})
    assert url.startswith("sc://127.0.0.2:")
    lease = server.client_lease("a")
    assert version_of(url, lease.token) == pyspark.__version__
    family = family_of(lease.pid)
    assert "hush" not in " ".join(word for process in family for word in process.cmdline())
    listening = {c.laddr.ip for process in family for c in process.net_connections("tcp") if c.status == "LISTEN"}
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.2"}
    # A client of another process: the session's mode is a setting of the process.
    client = "import sys; from pyspark.sql import SparkSession; s = SparkSession.builder.remote(sys.stdin.read())"
    client += ".getOrCreate(); print(s.conf.get('spark.app.note'), s.range(3).count())"
    done = subprocess.run([sys.executable, "-c", client], input=lease.client_url, capture_output=True, text=True)
    assert done.stdout == "hush 3\n", done.stderr


@pytest.mark.parametrize("host", ["h;token=abc", "", "a b", "-h", "h:1"])
def test_invalid_host_name_is_refused(server, host):
    with pytest.raises(BadInput, match="is not a host name"):
        server.start("a", settings={"spark.driver.host": host})
    assert not server.home.root.exists()


@pytest.mark.slow
def test_runs_that_begin_at_once_share_a_server_that_outlives_them(server, monkeypatch):
    def start(owner: str) -> None:
        server.start(owner, master="local[1]", idle=3600)

    threads = [threading.Thread(target=start, args=(owner,)) for owner in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    a, b = server.client_lease("a"), server.client_lease("b")
    assert (a.url, a.token, a.server) == (b.url, b.token, b.server)
    assert version_of(a.url, a.token) == pyspark.__version__
    assert sorted(server.owners()) == ["a", "b"], "the shared server itself does not hold the home"
    shared = server.lease(a.server)
    assert server.is_used(a.server)
    server.stop("a")
    server.stop("b")
    assert not server.is_used(a.server)
    assert server.start("a", master="local[1]", idle=3600) == a.url
    assert server.lease(a.server) == shared

    assert server.start("b", master="local[1]", settings={"spark.cores.max": "1"}, idle=3600) != a.url
    assert server.lease(a.server), "a run uses it"
    other = server.client_lease("b").server
    for owner in ("a", "b"):
        server.stop(owner)
    assert server.start("a", master="local[1]", idle=3600) == a.url
    os.kill(shared.pid, signal.SIGKILL)
    wait_for(lambda: server.owners() == [], PATIENCE)
    assert server.lease("a") is None, "its server is gone"
    assert server.start("a", master="local[1]", idle=3600) != a.url
    assert server.lease(other) is None, "an idle server of other settings ends"
    server.stop("a")
    assert server.start("b", master="local[1]", idle=0.1) != a.url, "its limit is its own"
    last = server.lease("b").server
    server.stop("b")
    wait_for(lambda: server.lease(last) is None, HEARTBEAT_SECONDS + PATIENCE)


def test_failed_start_of_a_shared_server_is_the_reason_of_its_run(server):
    server.start("a", master="nonsense", idle=3600)
    with pytest.raises(ServerLost, match=r"the Spark server of a has ended: .*[Mm]aster"):
        server.client_lease("a")
    wait_for(lambda: not server.owners(), PATIENCE)
