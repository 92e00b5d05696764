"""What every job's main has in common: its two options, its Spark session, its exit code."""

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
    """Yields `spark`, or a session of its own that ends with the block.

    Args:
        name: Of the session.
        spark: A session to use instead.
        is_quiet: Whether a local JVM's stderr is thrown away, unless LOCKSTEP_TRACEBACK is set. What fails in Spark is
            an exception here; the JVM writes notes of its own that say nothing about the work.

    With SPARK_REMOTE the session is on that Spark Connect server (its token comes from
    SPARK_CONNECT_AUTHENTICATE_TOKEN); inside spark-submit it is the submitted application's; else a local one.
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
    """A process that starts in the block has a stderr of its own, which is shown only if the block fails.

    Raises:
        CommandFailed: The block failed; the first line of that stderr is in the message.
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
            # A line with an escape is the terminal's: a progress bar writes there meanwhile.
            first = next((line.strip() for line in lines if line.strip() and "\x1b" not in line), str(error))
            raise CommandFailed(f"Spark does not start: {first}") from error
        finally:
            os.dup2(before, 2)
            os.close(before)


def _local(builder: SparkSession.Builder) -> SparkSession.Builder:
    # Spark asks PATH for its own scripts and for the Python of its workers; both must be this environment's.
    environment = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([environment, os.environ.get("PATH", "")])
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        # A session lives for seconds: the first compiler's code is all that pays for itself.
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
    """Parses `--run` and `--home`, calls `work(session, home, run_id)` and prints the line it returns.

    Returns:
        Exit code: 0 done, 1 the job failed, 2 bad input; in the last two cases one line on stderr says why.
    """
    name = work.__module__.rpartition(".")[2]
    if name == "__main__":
        name = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(prog=name, description=doc.partition("\n")[0])
    parser.add_argument("--run", required=True, metavar="RUN_ID", help="run whose plan.json says what to do")
    parser.add_argument("--home", metavar="DIR", help="LOCKSTEP_HOME (default: the environment's, else .lockstep)")
    options = parser.parse_args(argv)
    try:
        if not RUN_ID.fullmatch(options.run):
            raise BadInput(f"{options.run!r} is not a run id (YYYYMMDDTHHMMSSZ-<8 hex>)")
        home = Home(options.home)
        if not (home.run(options.run) / "plan.json").is_file():
            raise BadInput(f"no run {options.run}: {home.run(options.run) / 'plan.json'} does not exist")
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
