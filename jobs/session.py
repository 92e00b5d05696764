"""The common parts of all jobs: two options, a Spark session, and the exit code."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

from streaming_core.errors import BadInput, CommandFailed, RunFailed
from streaming_core.regression.home import RUN_ID, Home

CHECKOUT = Path(__file__).resolve().parent.parent


@contextmanager
def spark_session(name: str, spark: SparkSession | None = None, is_quiet: bool = False) -> Iterator[SparkSession]:
    """Yield `spark`, or a new session that ends with the block.

    With SPARK_REMOTE, the session is on that Spark Connect server, and SPARK_CONNECT_AUTHENTICATE_TOKEN is its token.
    Inside spark-submit, it is the session of the submitted application. Otherwise it is local.

    Args:
        name: Name of the session.
        spark: A session to use instead.
        is_quiet: Discard the stderr of a local JVM, unless LOCKSTEP_TRACEBACK is set. A failure in Spark still raises
            an exception; stderr only has the JVM's notes about its start.
    """
    if spark is not None:
        yield spark
        return
    builder = SparkSession.builder.appName(name)
    is_local = "SPARK_REMOTE" not in os.environ and "PYSPARK_GATEWAY_PORT" not in os.environ
    if is_local:
        builder = _local(builder)
    is_shown = os.environ.get("LOCKSTEP_TRACEBACK", "0") not in ("", "0")
    with _stderr_aside() if is_quiet and is_local and not is_shown else nullcontext():
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _stderr_aside() -> Iterator[None]:
    """Redirect stderr of processes that start in the block to a temporary file.

    Raises:
        CommandFailed: The block failed. The message contains the first line of that stderr.
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
            # A progress bar writes lines with terminal escapes there at the same time.
            first = next((line.strip() for line in lines if line.strip() and "\x1b" not in line), str(error))
            raise CommandFailed(f"Spark did not start: {first}") from error
        finally:
            os.dup2(before, 2)
            os.close(before)


def _local(builder: SparkSession.Builder) -> SparkSession.Builder:
    # Spark finds its scripts and the Python of its workers on PATH; both must be from this environment.
    environment = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([environment, os.environ.get("PATH", "")])
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        # A session lives for seconds, so only the fast first compiler is worth its time.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC "
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")]),
    }
    return builder.master("local[2]").config(map=settings)


def run_job(
    work: Callable[[SparkSession | None, Home, str], str],
    doc: str,
    argv: list[str] | None,
    spark: SparkSession | None,
    needs_spark: bool = True,
) -> int:
    """Parse `--run` and `--home`, call `work(session, home, run_id)` and print the line that it returns.

    Args:
        work: The job. Its line says what it did.
        doc: Docstring of the job's module, for the help.
        argv: The command line; None means that of the process.
        spark: A session to use instead of a new one.
        needs_spark: Whether the job needs a session.

    Returns:
        The exit code: 0 for success, 1 if the job failed, 2 for bad input. After 1 and 2, a line on stderr gives the
        reason.
    """
    name = work.__module__.rpartition(".")[2]
    if name == "__main__":
        name = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(prog=name, description=doc.partition("\n")[0])
    parser.add_argument("--run", required=True, metavar="RUN_ID", help="the run to work on")
    parser.add_argument(
        "--home", metavar="DIR", help="LOCKSTEP_HOME; default: the environment variable, else .lockstep"
    )
    options = parser.parse_args(argv)
    try:
        if not RUN_ID.fullmatch(options.run):
            raise BadInput(f"--run {options.run!r} is not a run id, such as 20260131T020000Z-0123abcd")
        home = Home(options.home)
        if not (home.run(options.run) / "plan.json").is_file():
            raise BadInput(f"run {options.run} does not exist: {home.run(options.run) / 'plan.json'} is missing")
        own = spark_session(f"lockstep {name} {options.run}", spark) if needs_spark else nullcontext(spark)
        with own as session:
            print(f"{name}: {work(session, home, options.run)}", flush=True)
    except BadInput as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except RunFailed as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return 0
