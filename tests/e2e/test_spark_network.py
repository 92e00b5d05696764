"""A Spark cluster on three machines: a master beside the run, and two workers. Each is a network namespace.

The cluster has a secret, so its processes authenticate and encrypt. Root is needed to make namespaces.
"""

import json
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from infra.checkout import ROOT
from infra.spark.server import Server
from jobs.driver import ENCRYPTION, SECRET
from streaming_core.regression.home import Home
from tests.e2e.kills import Standalone
from tests.e2e.scheduled import of_this_checkout
from tests.support.network import Machine, network
from tests.support.waiting import wait_for

PATIENCE = 1200
REFUSAL = "Failed to connect to master"
SETTINGS = {SECRET: uuid.uuid4().hex, **ENCRYPTION, "spark.master.rest.enabled": "false"}

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def world(tmp_path_factory, with_compiled) -> dict[str, str]:
    """The environment of commands."""
    root = tmp_path_factory.mktemp("spark-network")
    with_compiled(root / "lockstep")
    return of_this_checkout(root)


@pytest.fixture(scope="module")
def machines():
    with network(3) as machines:
        yield machines


@pytest.fixture(scope="module")
def cluster(machines, tmp_path_factory):
    standalone = Standalone(tmp_path_factory.mktemp("cluster"), machines, SETTINGS)
    try:
        standalone.start()
        yield standalone
    finally:
        standalone.stop()


# Reads what passes the switch, until its input ends. Prints the bytes of packets from one worker to the other, then
# what in them is readable: the mark of compressed blocks, which rows in clear begin with, and names of Java classes.
LISTENER = """
import json, re, socket, sys, threading
ends = [socket.inet_aton(address) for address in sys.argv[1:]]
packets, size, names = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)), [0, 0], set()
def read():
    while True:
        packet, (port, *_) = packets.recvfrom(65536)
        pair = packet[26:30], packet[30:34]
        if port != "switch" and packet[12:14] == b"\\x08\\x00" and set(pair) == set(ends):
            size[ends.index(pair[0])] += len(packet)
            names.update(name.decode() for name in re.findall(rb"LZ4Block|org\\.apache\\.spark[\\w.]+", packet))
threading.Thread(target=read, daemon=True).start()
print("listens", flush=True)
sys.stdin.read()
print(json.dumps([size, sorted(names)]))
"""


def test_cells_run_on_two_machines_and_no_message_between_them_is_readable(cluster, machines, world):
    head, *workers = machines
    connection = {"conn_type": "spark", "host": cluster.url, "extra": {SECRET: SETTINGS[SECRET]}}
    connection["extra"] |= {"spark.executor.memory": "700m"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    listener = subprocess.Popen(
        head.command(sys.executable, "-c", LISTENER, *(worker.address for worker in workers)), **pipes
    )
    assert listener.stdout.readline() == "listens\n"
    command = [str(Path(sys.executable).parent / "lockstep"), "run", "--json", "--repetitions", "1", "--spark", "mine"]
    command += ["--applications", "wc", "--executors", "spark", "--threads", "2", "--events", "5000"]
    done = subprocess.run(
        head.command(*command),
        env=world | {"AIRFLOW_CONN_MINE": json.dumps(connection)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    size, names = json.loads(listener.communicate("")[0])
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert {cell["verdict"] for cell in result["cells"]} == {"equal"}
    assert {cell["executor"] for cell in result["cells"]} == {"spark"}
    log = Home(world["LOCKSTEP_HOME"]).log(f"spark-{result['run_id']}").read_text()
    assert set(re.findall(r"Starting task .*\((198[\d.]+),", log)) == {worker.address for worker in workers}
    assert min(size) > 10_000, "each worker takes rows from the other one"
    assert names == []


# Starts the Spark server of a master with settings, prints its address and token, and runs until its input ends.
SERVER = """
import json, sys
from infra.checkout import home
from infra.spark.server import Server
server = Server(home())
server.start("a", master=sys.argv[1], settings=json.loads(sys.stdin.readline()))
try:
    lease = server.client_lease("a")
    print(json.dumps([lease.url, lease.token]), flush=True)
    sys.stdin.read()
except ConnectionError as error:
    print(error)
finally:
    server.stop("a")
"""
# Asks a Spark server for its version, with each token of a list.
CLIENT = """
import json, sys, grpc
from tests.infra.spark.test_server import version_of
for token in json.load(sys.stdin):
    try:
        print(version_of(sys.argv[1], token))
    except grpc.RpcError as error:
        print(error.code().name)
"""


def server_of(machine: Machine, master: str, settings: dict[str, str], world: dict[str, str]) -> subprocess.Popen:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = machine.command(sys.executable, "-c", SERVER, master)
    server = subprocess.Popen(command, env=world, cwd=ROOT, **pipes)
    server.stdin.write(json.dumps(settings) + "\n")
    server.stdin.flush()
    return server


def test_server_answers_other_machines_only_with_its_token(cluster, machines, world):
    head, worker, _ = machines
    server = server_of(head, cluster.url, {SECRET: SETTINGS[SECRET]}, world)
    try:
        url, token = json.loads(server.stdout.readline())
        assert url.startswith(f"sc://{head.address}:")
        command = worker.command(sys.executable, "-c", CLIENT, url)
        tokens = json.dumps([token, "a guess", "", None])
        done = subprocess.run(command, input=tokens, env=world, cwd=ROOT, capture_output=True, text=True)
    finally:
        server.communicate("", timeout=PATIENCE)
    version, *others = done.stdout.split()
    assert re.fullmatch(r"[\d.]+", version), done.stderr
    assert others == ["UNAUTHENTICATED"] * 3


def test_cluster_refuses_a_wrong_secret(cluster, machines, world):
    home = Home(world["LOCKSTEP_HOME"])
    home.log("spark-a").unlink(missing_ok=True)
    starter = server_of(machines[0], cluster.url, {SECRET: "a guess"}, world)
    try:
        wait_for(lambda: home.log("spark-a").exists() and REFUSAL in home.log("spark-a").read_text(), PATIENCE)
        assert "Connected to Spark cluster" not in home.log("spark-a").read_text()
    finally:
        Server(home).stop("a")
        output, _ = starter.communicate("", timeout=PATIENCE)
    assert "the Spark server of a has ended" in output
