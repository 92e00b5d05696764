"""`lockstep follow` on a topic of a real broker: a run that was killed loses and repeats nothing."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from infra.checkout import ROOT
from streaming_core.data import workload
from tests.support.programs import require
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{1}
listeners=PLAINTEXT://127.0.0.1:{0},CONTROLLER://127.0.0.1:{1}
advertised.listeners=PLAINTEXT://127.0.0.1:{0}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={2}
num.partitions=2
offsets.topic.replication.factor=1
"""
PRODUCE = """import sys
from jobs.session import spark_session
with spark_session("produce") as spark:
    lines = [(i % 2, '{"ts": %d, "line": "event %d of many"}' % (i // 10, i)) for i in range(*map(int, sys.argv[2:]))]
    frame = spark.createDataFrame(lines, "partition int, value string").coalesce(1)
    frame.write.format("kafka").option("kafka.bootstrap.servers", sys.argv[1]).option("topic", "lines").save()
"""


@pytest.fixture(scope="module")
def jars(tmp_path_factory) -> Path:
    """The jars of the connector, and those of the broker in the folder `broker`."""
    maven, folder = require("maven"), tmp_path_factory.mktemp("jars")
    for pom, target in (("infra/spark/kafka.xml", folder), ("tests/e2e/broker.xml", folder / "broker")):
        copy = [maven, "-q", "-B", "-f", ROOT / pom, "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        subprocess.run(copy, check=True, timeout=600)
    return folder


@pytest.fixture
def broker(jars, tmp_path):
    """The address of a broker."""
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    properties = tmp_path / "server.properties"
    properties.write_text(PROPERTIES.format(*ports, tmp_path / "log"))
    java = ["java", "-Xmx256m", "-cp", f"{jars}/broker/*"]
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQACAAAAAAAAAAQ", "-c", properties], check=True
    )
    process = subprocess.Popen([*java, "kafka.Kafka", properties])
    try:

        def listens() -> bool:
            assert process.poll() is None
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", ports[0])) == 0

        wait_for(listens, 60)
        yield f"127.0.0.1:{ports[0]}"
    finally:
        process.kill()
        process.wait()


def test_killed_run_reads_each_record_once(broker, jars, tmp_path):
    environment = os.environ | {"LOCKSTEP_SPARK_JARS": str(jars), "LOCKSTEP_HOME": str(tmp_path / "home")}

    def produce(start: int, stop: int) -> None:
        command = [sys.executable, "-c", PRODUCE, broker, str(start), str(stop)]
        subprocess.run(command, check=True, env=environment, cwd=ROOT)

    produce(0, 300)
    out = tmp_path / "out"
    follow = [sys.executable, "-m", "infra.cli", "follow", "wc", "--source", f"kafka://{broker}/lines"]
    follow += ["--limit", "100", "--out", str(out)]
    running = subprocess.Popen(follow, env=environment, cwd=ROOT)
    wait_for(lambda: list(out.glob("outputs/part-*.parquet")), 120)
    running.kill()
    running.wait()
    produce(300, 400)
    closing = [*follow, "--until-idle", "0", "--json"]
    done = subprocess.run(closing, check=True, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert json.loads(done.stdout)["equal"]["outputs"] == 1600
    lines = [row["line"] for table in workload.read(out / "workload").blocks(400) for row in table.to_pylist()]
    assert sorted(lines) == sorted(f"event {i} of many".encode() for i in range(400))
