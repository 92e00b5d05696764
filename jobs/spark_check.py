"""Checks that the executors of a Spark can run cells, before the first cell runs there.

The driver and every task that the check starts tell what they have: versions, code, and a file below LOCKSTEP_HOME. A
difference would make cells wrong or fail in their middle.
"""

from __future__ import annotations

import platform
import socket
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from uuid import uuid4

import pyspark
from pyspark.sql import SparkSession

from jobs.session import answers, reason
from jobs.tasks import run_tasks
from streaming_core.errors import BadInput, line_of
from streaming_core.oracle.oracle import source_digest
from streaming_core.regression.home import Home
from streaming_core.run import engine, probe, provenance


def facts(token: str) -> dict[str, Any]:
    """The facts of this process. A Spark task and the driver call it.

    Args:
        token: A file below LOCKSTEP_HOME.

    Returns:
        `machine` is its host name. `Python`, `pyspark` and `code` must be the same everywhere. `build` is the commit of
        the checkout. `token` is the content of the file, or None. `fault` says why the runtime does not load, or is
        None.
    """
    package = Path(engine.__file__).parents[1]
    runtime = sorted((package / "runtime" / "src").rglob("*.rs"))
    path, fault = Path(token), None
    try:
        probe.topology()
    except ImportError as error:
        fault = line_of(error)
    return {
        "machine": socket.gethostname(),
        "Python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "code": f"{source_digest(package, *runtime)} {source_digest(Path(__file__).parent)}",
        "build": provenance.build(),
        "token": path.read_text() if path.is_file() else None,
        "fault": fault,
    }


def check(spark: SparkSession, home: Home, connection: str, tasks: int) -> None:
    """Run tasks that compare the executors with this process.

    Args:
        spark: The session.
        home: LOCKSTEP_HOME.
        connection: The Spark connection, for the error.
        tasks: The number of tasks. Spark decides which executors run them.

    Raises:
        BadInput: One line that names the connection, the first difference, and what to do.
        ConnectionError: Spark does not answer any more.
    """
    if spark.version != pyspark.__version__:
        raise BadInput(
            f"connection {connection}: its Spark is version {spark.version}, but this checkout has "
            f"{pyspark.__version__}; use a Spark of that version"
        )
    home.root.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=home.root, prefix=".spark-check-") as token:
        token.write(uuid4().hex)
        token.flush()
        here = facts(token.name)
        try:
            outcomes = run_tasks(spark, facts, [token.name] * tasks)
        except Exception as error:
            if not answers(spark):
                raise ConnectionError(f"connection {connection}: its Spark does not answer") from error
            raise BadInput(
                f"connection {connection}: its executors cannot import this checkout ({reason(error)}); set their "
                "PYTHONPATH to it, and their PYSPARK_PYTHON to its .venv/bin/python"
            ) from error
    for there, complaint in outcomes:
        if fault := complaint or difference(here, there, home):
            raise BadInput(f"connection {connection}: {fault}")


def difference(here: dict[str, Any], there: dict[str, Any], home: Home) -> str | None:
    """The first difference between the driver and a task, and what to do; None without one.

    Args:
        here: The `facts` of the driver.
        there: The `facts` of the task.
        home: LOCKSTEP_HOME.
    """
    executor = f"the executor on {there['machine']}"
    for name in ("Python", "pyspark"):
        if there[name] != here[name]:
            return f"{executor} has {name} {there[name]}, but this machine has {here[name]}; use one version"
    if there["code"] != here["code"]:
        builds = f"build {there['build']}, but this checkout is build {here['build']}"
        return f"{executor} has other code ({builds}); check out the same commit there, and type `make setup`"
    if there["fault"]:
        return f"{executor} cannot load the runtime ({there['fault']}); type `make setup` in its checkout"
    if there["token"] != here["token"]:
        return f"{executor} does not share LOCKSTEP_HOME; mount the folder {home.root} there under the same path"
    return None
