"""Kills Spark workers in the middle of stages of a cell, and compares the result with the oracle.

    python -m tests.e2e.kills [--kills N] [--events N]

It starts a standalone master and two workers on loopback. Each pass of a cell loses one worker, with its executor, its
Python processes and the rows that were shuffled there. A new worker starts at once. The program prints a line per kill,
and ends with exit code 1 if a result differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark
from pyspark.sql import SparkSession

from infra.checkout import ROOT
from jobs import cluster
from jobs.session import driver_settings
from streaming_core.apps import registry
from streaming_core.cluster.task import SparkPass, prepared
from streaming_core.data import workload
from streaming_core.oracle import oracle
from tests.e2e.scheduled import free_port
from tests.support.network import Machine
from tests.support.waiting import wait_for

SPARK_HOME = Path(pyspark.__file__).parent
PATIENCE = 120  # seconds
SHARES = 6
# Kind of stage, application, and the stage that loses a worker.
STAGES = [("map", "q3", "events"), ("shuffle", "q3", "count"), ("sink", "q3", "sink"), ("window", "wordcount", "count")]
SETTINGS = {
    "spark.executor.memory": "700m",
    "spark.executor.cores": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
    # A dead worker is noticed at once.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
}


@dataclass
class Standalone:
    """A master with two workers.

    Attributes:
        folder: The folder of their logs.
        machines: The machine of the master, then those of the workers.
        settings: Spark settings of master and workers.
    """

    folder: Path
    machines: Sequence[Machine] = (Machine(),) * 3
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    workers: list[subprocess.Popen] = field(default_factory=list)
    master: subprocess.Popen | None = None

    @property
    def url(self) -> str:
        return f"spark://{self.machines[0].address}:{self.port}"

    def start(self) -> None:
        """Start all processes, and wait for the workers."""
        (self.folder / "settings").write_text("".join(f"{name} {value}\n" for name, value in self.settings.items()))
        self.master = self._class("master", self.machines[0], "--port", str(self.port))
        wait_for(lambda: "New state: ALIVE" in self._log("master"), PATIENCE)
        for machine in self.machines[1:]:
            self.add_worker(machine)

    def add_worker(self, machine: Machine) -> None:
        """Start a worker, and wait until the master knows it."""
        name = f"worker-{len(list(self.folder.glob('worker-*.log')))}"
        options = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / name), self.url)
        self.workers.append(self._class(name, machine, *options))
        wait_for(lambda: "Successfully registered" in self._log(name), PATIENCE)

    def kill_worker(self) -> None:
        """Kill the older worker with all of its processes, and start another one."""
        victim = psutil.Process(self.workers.pop(0).pid)
        for process in [*victim.children(recursive=True), victim]:
            process.kill()
        self.add_worker(self.machines[1])

    def stop(self) -> None:
        for process in [*self.workers, self.master]:
            if process:
                process.terminate()
                process.wait(PATIENCE)

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _class(self, log: str, machine: Machine, *arguments: str) -> subprocess.Popen:
        name = "master.Master" if log == "master" else "worker.Worker"
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        command += ["--host", machine.address, "--webui-port", "0", "--properties-file", str(self.folder / "settings")]
        environment = os.environ | {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": machine.address}
        with open(self.folder / f"{log}.log", "wb") as file:
            own = {"cwd": self.folder, "start_new_session": True, "stdout": file, "stderr": file}
            return subprocess.Popen(machine.command(*command, *arguments), env=environment, **own)


@contextmanager
def session(url: str) -> Iterator[SparkSession]:
    """A session whose driver is this process."""
    builder = SparkSession.builder.appName("kills").master(url)
    for name, value in driver_settings(url, SETTINGS).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


class Cell:
    """An application, its workload, and the digests of its oracle."""

    def __init__(self, name: str, events: int, folder: Path):
        app, self.source = registry.load(name), folder / name
        workload.write(app, {}, events, 7, self.source)
        self.opened = workload.read(self.source, app)
        (folder / f"{name}-oracle").mkdir()
        expected = oracle.compute(self.opened, folder / f"{name}-oracle")
        self.digests = (expected["output_digest"], expected["state_digest"])

    def is_equal(self, spark: SparkSession, folder: Path) -> bool:
        """Make a pass; returns whether its outputs and final states have the digests of the oracle."""
        manifest, rows = self.opened.manifest, self.opened.rows
        params = tuple(manifest["params"].items())
        pass_ = SparkPass(manifest["app"], params, str(self.source), rows, rows, SHARES, str(folder), True)
        compiled = prepared(manifest["app"], params)
        sample = cluster._measured(spark, compiled, pass_, manifest["content_digest"], 0)
        (folder / "out").mkdir()
        return (sample.digest, cluster.publish(compiled, pass_, folder / "out")) == self.digests


def kill_during(standalone: Standalone, folder: Path, stage: str) -> threading.Thread:
    """Kill a worker when the first task of a stage has ended."""

    def kill() -> None:
        wait_for(lambda: list((folder / "tasks").glob(f"{stage}-*.json")), PATIENCE)
        standalone.kill_worker()

    killer = threading.Thread(target=kill)
    killer.start()
    return killer


def main() -> int:
    parser = argparse.ArgumentParser(prog="kills", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="number of passes that lose a worker")
    parser.add_argument("--events", type=int, default=60_000, help="events of a pass")
    options, wrong = parser.parse_args(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cells = {app: Cell(app, options.events, folder) for app in {app for _, app, _ in STAGES}}
        standalone = Standalone(folder)
        try:
            standalone.start()
            with session(standalone.url) as spark:
                for app, cell in cells.items():
                    assert cell.is_equal(spark, folder / f"quiet-{app}")
                for number in range(options.kills):
                    kind, app, stage = STAGES[number % len(STAGES)]
                    killer = kill_during(standalone, folder / f"pass-{number}", stage)
                    is_equal = cells[app].is_equal(spark, folder / f"pass-{number}")
                    killer.join()
                    wrong += not is_equal
                    print(json.dumps({"app": app, "kill": kind, "equal": is_equal}), flush=True)
        finally:
            standalone.stop()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
