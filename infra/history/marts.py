"""Builds the marts of the warehouse, and their documentation, from the raw results in warehouse/raw.

`build` is a stage of every run (`python -m infra.history.marts`). It judges the speed of all cells
(`jobs/judge_speed.py`), builds every mart, and tests every constraint. Of most marts, it makes only the months that
changed since the last build (`infra/history/months.py`). The file runs/<run id>/dbt.json keeps what dbt said of each
model and test, and a page of the run shows it (`reports/views/built.py`).

`document` builds, and writes dbt's documentation. A build does so only after a change of the project, because dbt needs
seconds for it. `rebuild` first removes everything that a build can make again: the marts and dbt's own files.
`freshness` reports the age of the newest raw results. None of them writes raw results. Each first checks the schema
version of every raw file, because Spark reads the columns that a file lacks as nulls.

With SPARK_REMOTE in the environment, dbt uses that Spark Connect server. Otherwise a command starts a server of its own
(`spark.py`), as a run does. Files are the only state: `dbt/macros/declare_tables.sql` tells a new server of them.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from infra import checkout
from infra.history import months
from infra.history.months import PROJECT, Months
from infra.spark.server import Server, ServerLost
from jobs import judge_speed
from reports.history import History
from reports.pages import Pages
from reports.site import DBT, write
from reports.views.built import STATES, Built, write_results
from streaming_core.errors import BadInput, CommandFailed, RunFailed
from streaming_core.process import ending
from streaming_core.regression.home import RUN_ID, Home
from streaming_core.regression.lock import hold, of_host, of_warehouse
from streaming_core.regression.warehouse import RAW, check_versions

# The folders of warehouse/ that `build` makes from raw/.
DISPOSABLE = ("marts", "dbt", "speed")


def build(home: Home, run_id: str | None = None) -> str:
    """Build the marts, and their documentation if dbt's project has changed.

    Args:
        home: LOCKSTEP_HOME.
        run_id: The run that keeps dbt's results. None: they are kept nowhere.

    Returns:
        A line that says what was built.

    Raises:
        BadInput: `home` cannot hold a warehouse, or a raw file cannot be read or has another schema version.
        RunFailed: A model or a test failed. The message names the first one.
    """
    _check(home)
    with spark(home, "build", run_id):
        return _build(home, run_id)


def rebuild(home: Home) -> str:
    """Remove the marts and dbt's own files, then build. Raises the errors of `build`."""
    _check(home)
    with spark(home, "rebuild"):
        for name in DISPOSABLE:
            shutil.rmtree(home.root / "warehouse" / name, ignore_errors=True)
        return _build(home)


def document(home: Home) -> str:
    """Build, and write dbt's documentation, reports/dbt/index.html. Returns and raises what `build` does."""
    _check(home)
    with spark(home, "docs"):
        return _build(home, is_documented=True)


def freshness(home: Home) -> str:
    """Check the age of the newest raw results.

    Returns:
        A line with the age.

    Raises:
        BadInput: As `build`, or `home` has no results.
        RunFailed: The results are older than models/staging/raw.yml allows.
    """
    _check(home)
    if not any(home.raw("cells").glob("run_id=*/*.parquet")):
        raise BadInput(f"{home.raw('cells')} has no results yet: start a run with `lockstep run`")
    with spark(home, "freshness"):
        done = dbt(home, "source", "freshness", "--select", "source:raw.cells")
        results = done.result.results if done.exception is None and done.result else []
        ages = [result for result in results if hasattr(result, "max_loaded_at")]  # the others are hooks
        if not ages:
            _require_success(home, done)
        (source,) = ages
    line = f"the newest results are from {source.max_loaded_at:%Y-%m-%d %H:%M} UTC, {source.age / 3600:,.0f} hours ago"
    if str(source.status) != "pass":
        raise RunFailed(
            f"{line}, which is too old: check that the nightly DAG is on, or start a run with `lockstep run`"
        )
    return line


def _marts(home: Home, difference: Months) -> Any:
    """Judge the speed of all cells, and build the months of the marts that changed; dbt's result."""
    quarantine = History(home).quarantine.keys()
    judge_speed.work(home, quarantine)
    before = set() if difference.is_whole else months.files(home, difference.changed)
    if difference.is_whole:
        months.remove(home)
    os.environ["LOCKSTEP_MONTHS"] = ",".join(difference.changed) or "none"
    # Unit tests check the models, not the data; the project's own tests run them.
    build = ("build", "--exclude-resource-type", "unit_test")
    result = dbt(home, *build, *["--full-refresh"] * difference.is_whole)
    if _is_built(result) and (known := History(home).quarantine.keys()) != quarantine:
        # Only dbt knows the runs in quarantine, and the verdicts on speed leave their nights out.
        judge_speed.work(home, known)
        result = _merged(result, dbt(home, *build, "--select", "source:speed+"))
    if not _is_built(result):
        months.forget(home)
    elif any(path.exists() for path in before):
        # A month that has no rows left replaces nothing: dbt leaves its old rows.
        months.forget(home)
        return _marts(home, months.changed(home))
    else:
        months.keep(home, difference.state)
    return result


def _is_built(result: Any) -> bool:
    """Whether a build of dbt made all of its models."""
    models = [model for model in result.result or () if str(model.node.resource_type) == "model"]
    return bool(models) and all(str(model.status) == "success" for model in models)


def _merged(result: Any, later: Any) -> Any:
    """Put the nodes that a later build made again into dbt's result of a build; the merged result."""
    if later.result is None:
        return later
    again = {outcome.node.unique_id for outcome in later.result}
    first = [outcome for outcome in result.result if outcome.node.unique_id not in again]
    later.result.results = [*first, *later.result]
    later.success &= result.success
    return later


def _build(home: Home, run_id: str | None = None, is_documented: bool = False) -> str:
    started = time.monotonic()
    difference = months.changed(home)
    is_documented |= difference.is_whole or not (home.reports / DBT).exists()
    result = _marts(home, difference)
    _require_success(home, result, even_if_red=True)
    built = Built.of_results(home, result.result)
    if run_id:
        write_results(home, run_id, built)
    # If a test fails on the data, people need the marts and their documentation.
    if is_documented:
        _document(home)
    _require_success(home, result)
    quarantine = History(home).quarantine
    return (
        f"warehouse: {built.sentence}, in {time.monotonic() - started:.0f} s; the documentation is {home.reports / DBT}"
        + "".join(f"; run {run_id} is quarantined: {reason}" for run_id, reason in sorted(quarantine.items()))
    )


def _document(home: Home) -> None:
    """Write the documentation of the marts that this server has."""
    _require_success(home, dbt(home, "run-operation", "count_rows"))
    _require_success(home, dbt(home, "docs", "generate", "--static", "--no-compile"))
    page, text = home.reports / DBT, (home.root / "warehouse" / "dbt" / "static_index.html").read_text()
    # The browser would load the templates of these addresses before dbt's script has filled them in.
    text = text.replace('xlink:href="{{', 'ng-attr-xlink:href="{{')
    write(page.with_name("docs.html"), text.replace("${require('./assets/favicons/favicon.ico')}", "data:,"))
    write(page, Pages(History(home)).warehouse())


def _check(home: Home) -> None:
    # The path becomes part of SQL, and of a path that Spark reads as a URI with glob patterns.
    bad = sorted(set(re.findall(r"[^A-Za-z0-9_./-]", str(home.root))))
    if bad:
        raise BadInput(
            f"LOCKSTEP_HOME={home.root} contains {' '.join(map(repr, bad))}: use only letters, digits, '.', '_', '-' "
            "and '/'"
        )
    try:
        for table in RAW:
            home.raw(table).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"LOCKSTEP_HOME={home.root} is not writable: {error.strerror}") from None
    check_versions(home)


@contextmanager
def spark(home: Home, what: str, run_id: str | None = None) -> Iterator[None]:
    """Provide dbt's Spark server during the block, and the warehouse alone.

    The server is the one of SPARK_REMOTE, or a new one, which comes with a share in `home` and in this host. A run has
    these already.

    Args:
        home: LOCKSTEP_HOME.
        what: The name of the command that waiting processes see.
        run_id: The run whose server SPARK_REMOTE names.

    Raises:
        CommandFailed: The server did not start.
    """
    if os.environ.get("SPARK_REMOTE"):
        with _alone(home, what, run_id or ""):
            yield
        return
    # Importing pyspark takes a second, so bad input is reported before.
    from pyspark.sql import SparkSession

    from jobs.session import limit_patience

    # Two processes of one name would share a server.
    server, owner, session = Server(home), f"warehouse-{what}-{secrets.token_hex(2)}", None
    try:
        # The server ends with this process, also if a signal kills it.
        server.start(owner, watch=os.getpid())
        os.environ["SPARK_REMOTE"] = server.client_lease(owner).client_url
        session = SparkSession.builder.getOrCreate()  # dbt uses it too
        limit_patience(session)
        with hold(of_host(), owner, shared=True), _alone(home, what, owner):
            yield
    except ServerLost as error:
        raise CommandFailed(str(error)) from error
    finally:
        if session is not None:
            session.client.close()  # or it asks the server again when the process ends, and waits for it
        os.environ.pop("SPARK_REMOTE", None)
        server.stop(owner)


@contextmanager
def _alone(home: Home, what: str, server: str) -> Iterator[None]:
    """Hold the lock on the warehouse during the block. If a build was killed, its server may still write a mart."""
    lock, lease = of_warehouse(home), Server(home).lease(server)
    at_work = lease.server if lease and lease.server else server
    with hold(lock, f"warehouse {what}", run=server if RUN_ID.fullmatch(server) else "", server=at_work):
        killed = lock.remains.get("server")
        if killed and killed != server:
            Server(home).stop(killed)
        yield


def dbt(home: Home, *command: str) -> Any:
    """Run a dbt command on `home` within `spark`, in this process, so that all commands share one Spark session.

    Returns:
        dbt's result.
    """
    os.environ["LOCKSTEP_HOME"] = str(home.root)
    # Importing dbt takes a second or two, so bad input is reported before.
    from dbt.cli.main import dbtRunner

    # The adapter enables Hive with each statement. A server refuses that, with a warning.
    warnings.filterwarnings("ignore", message="Failed to set spark.sql.catalogImplementation")
    files = home.root / "warehouse" / "dbt"
    paths = ["--project-dir", PROJECT, "--profiles-dir", PROJECT, "--target-path", files, "--log-path", files / "logs"]
    plain = [] if sys.stdout.isatty() else ["--no-use-colors"]
    return dbtRunner().invoke([*plain, *command, *map(str, paths)])


def _require_success(home: Home, done: Any, even_if_red: bool = False) -> None:
    """Raise RunFailed unless a dbt command succeeded; with `even_if_red`, unless it has results."""
    if done.success or (even_if_red and done.exception is None and done.result is not None):
        return
    raise RunFailed(f"{_first_failure(done)}; see {home.root / 'warehouse' / 'dbt' / 'logs' / 'dbt.log'}")


def _first_failure(done: Any) -> str:
    """One line about a dbt invocation that did not succeed."""
    if done.exception is not None:
        return f"dbt: {_line(str(done.exception))}"
    results = getattr(done.result, "results", [])
    # Two threads run tests, so the order of the results varies.
    bad = sorted(
        (result for result in results if str(result.status) not in (*STATES, "no-op")),
        key=lambda result: result.node.unique_id,
    )
    if not bad:
        return "dbt failed"
    first = bad[0]
    node = f"dbt {first.node.resource_type} {first.node.name}"
    if str(first.status) == "fail":
        message = (
            f"{node} fails for {first.failures} row{'s' * (first.failures != 1)} ({first.node.original_file_path})"
        )
    else:
        message = f"{node}: {_line(first.message or 'failed')}"
    return message + (f" (and {len(bad) - 1} more)" if len(bad) > 1 else "")


def _line(text: str) -> str:
    """The most specific line of an error: a line with an error class of Spark, else the first below dbt's heading."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    classed = [line for line in lines if re.match(r"\[[A-Z_.]+\]", line)]
    below = [line for line in lines if not re.match(r"\w+ Error in \w+ ", line)]
    return (classed or below or lines or ["no message"])[0][:400]


def main(argv: Sequence[str] | None = None) -> int:
    """Build the warehouse as a task of a run. The task fails if the run is quarantined.

    Raises:
        BadInput: As `build`.
        RunFailed: As `build`, or the raw rows of the run break a rule.
    """
    parser = argparse.ArgumentParser(prog="warehouse", description=main.__doc__)
    parser.add_argument("--run", required=True, metavar="RUN_ID", help="the run that this build is a task of")
    run_id = parser.parse_args(argv).run
    print(build(checkout.home(), run_id))
    if reason := History(checkout.home()).quarantine.get(run_id):
        raise RunFailed(f"run {run_id} is quarantined, so no mart contains it: {reason}")
    return 0


if __name__ == "__main__":
    ending.end("warehouse", main)
