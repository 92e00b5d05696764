"""The Spark session of a command. A task of a run gets its session from Airflow's operator.

The only module with private names of Spark. Nothing public limits how long a client of Spark Connect tries again. And
nothing public turns an Arrow type into a Spark type without a query.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema as from_arrow_schema
from pyspark.sql.pandas.types import from_arrow_type as from_arrow_type
from pyspark.sql.pandas.types import to_arrow_schema as to_arrow_schema

from jobs.driver import network_settings
from streaming_core.errors import CommandFailed

LONGEST_REASON = 300  # characters
CHECKOUT = Path(__file__).resolve().parent.parent
# Lines on stderr that name no cause: stack frames, a progress bar's, and notes of the JVM about its start.
_NOTE = re.compile(r"\s|.*\x1b|WARNING: |NOTE: |Picked up |Using Spark's |[\d/]+ [\d:]+ (INFO|WARN) ")


@contextmanager
def spark_session(name: str) -> Iterator[SparkSession]:
    """Yield a new session that ends with the block.

    With SPARK_REMOTE, the session is on that Spark Connect server, and SPARK_CONNECT_AUTHENTICATE_TOKEN is its token.
    Otherwise it is local, and the stderr of its JVM and its log are discarded, unless LOCKSTEP_TRACEBACK is set. A
    failure in Spark still raises an exception.
    """
    builder = SparkSession.builder.appName(name)
    is_local = "SPARK_REMOTE" not in os.environ
    if is_local:
        builder = _local(builder)
    is_shown = os.environ.get("LOCKSTEP_TRACEBACK", "0") not in ("", "0")
    is_silent = is_local and not is_shown
    with _stderr_aside() if is_silent else nullcontext():
        session = builder.getOrCreate()
    if is_silent:
        session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        with suppress(ConnectionError, Py4JNetworkError):  # a signal to all processes ended the JVM first
            session.stop()


@contextmanager
def _stderr_aside() -> Iterator[None]:
    """Redirect stderr of processes that start in the block to a temporary file.

    Raises:
        CommandFailed: The block failed. The message contains the first line of that stderr that names a cause.
    """
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        except Exception as error:
            aside.seek(0)
            lines = aside.read().decode(errors="replace").split("\n")
            first = next((line for line in lines if line and not _NOTE.match(line)), reason(error))
            raise CommandFailed(f"Spark did not start: {first}") from error
        finally:
            os.dup2(before, 2)
            os.close(before)


def _local(builder: SparkSession.Builder) -> SparkSession.Builder:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # the host's own name may not resolve
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the workers need the packages of this environment
    os.environ["LC_ALL"] = "C.UTF-8"  # with LC_ALL=C, the JVM would read no name outside ASCII
    return builder.master("local[2]").config(map=driver_settings("local[2]", {}))


def driver_settings(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session whose driver is this process, under those that its connection has.

    Raises:
        BadInput: No machine has the name of the master's host.
    """
    jars = connector_jars()
    return {
        **({"spark.driver.extraClassPath": os.pathsep.join(map(str, jars))} if jars else {}),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        # As in infra/spark/server.conf: sorts of many rows spill, and leave the heap to plans.
        "spark.memory.fraction": "0.1",
        # A session lives for seconds, so only the fast first compiler is worth its time.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC "
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")]),
        **network_settings(master, settings),
    }


def connector_jars() -> list[Path]:
    """The jars in the folder that LOCKSTEP_SPARK_JARS names, such as Spark's connector for Kafka."""
    folder = os.environ.get("LOCKSTEP_SPARK_JARS", "")
    return sorted(Path(folder).glob("*.jar")) if folder else []


def limit_patience(spark: SparkSession) -> None:
    """Let a session on a server give up on it after a minute without an answer; pyspark's default is ten."""
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as ServerSession

    if isinstance(spark, ServerSession):
        spark.client.set_retry_policies([DefaultPolicy(max_retries=8, max_backoff=15_000)])


def answers(spark: SparkSession) -> bool:
    """Whether the Spark of a session still runs tasks."""
    try:
        return spark.range(1).count() == 1
    except Exception:  # pyspark, py4j and grpc raise several kinds
        return False


def reason(error: Exception) -> str:
    """The reason why Spark failed, in one line: the error of the Python code, else the first line of its own error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    return ([*raised, *lines, type(error).__name__])[0][:LONGEST_REASON]


def is_unavailable(error: Exception) -> bool:
    """Whether an error of a session says that its server does not answer."""
    from grpc import StatusCode
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    return isinstance(error, SparkConnectGrpcException) and error.getGrpcStatusCode() == StatusCode.UNAVAILABLE
