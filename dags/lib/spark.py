"""The Spark tasks of the DAGs: operators of Airflow's Spark provider, on the Spark that a connection names.

A connection of type `spark_connect` names a Spark Connect server. A connection of type `spark` names a master, and its
extra may hold Spark settings (`spark.*`). The task `spark_server` starts the run's own Spark Connect server on that
master. Its lease in LOCKSTEP_HOME tells the other tasks, on whatever worker, its URL and token.
"""

from __future__ import annotations

import math
import os
import re
import signal
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property, wraps
from typing import Any

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.providers.apache.spark.operators.spark_pyspark import PySparkOperator
from airflow.sdk import BaseOperator, Connection
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk.log import mask_secret

from dags.lib.lineage import WithLineage
from dags.lib.operators import Job, ReportLink, skip_without_plan
from infra.checkout import home
from infra.spark.server import HOST, SESSION_SETTINGS, Server, ServerLost, settings_of
from streaming_core.errors import BadInput, CommandFailed, RunFailed, line_of
from streaming_core.interruption import Interrupted
from streaming_core.regression.fleet import SparkQueue, record_loss
from streaming_core.regression.lock import hold, of_home, of_host
from streaming_core.regression.status import recorded

URL = rf"sc://({HOST}|\[[0-9A-Fa-f:]+\])(:[0-9]+)?/(;.*)?"

EARLY_SECONDS = 60.0  # that a run waits for its server to start before its first task
NO_MASTER = "All masters are unresponsive"  # in the log of a server


class ServerHook(SparkConnectHook):
    """Airflow's hook for Spark Connect, on the server that a connection names, or else on the run's own server."""

    def __init__(self, conn_id: str, run: str = ""):
        """Make a hook for a run; only a connection that names a master needs one."""
        super().__init__(conn_id)
        self.run = run

    @cached_property
    def connection(self) -> Connection:
        """The connection."""
        return self.get_connection(self._conn_id)

    @property
    def is_external(self) -> bool:
        """Whether the connection names a server, and not a master."""
        return self.connection.conn_type == self.conn_type

    def get_connection_url(self) -> str:
        """The URL of the server with its token, for a client. Never put it on a command line or into a log.

        The run's own server listens by then.

        Raises:
            BadInput: The host of the connection is not a host name.
            ServerLost: The run's own server is gone, or does not listen in time.
        """
        if not self.is_external:
            try:
                lease = Server(home()).client_lease(self.run)
            except ServerLost as error:
                reason = str(error)
                if NO_MASTER in reason:
                    reason = f"no Spark master answers at {self.master}; start it, or correct host, port and secret"
                raise ServerLost(f"connection {self._conn_id}: {reason}") from None
            mask_secret(lease.token)
            return lease.client_url
        try:
            url = super().get_connection_url() if self.connection.host else ""
        except ValueError:
            url = ""
        # pyspark takes a `/` in a token for a part of the path.
        address, _, parameters = url.partition("/;")
        url = f"{address}/;{parameters.replace('/', '%2F')}" if parameters else url
        # Anything else in the host would be in logs.
        if not re.fullmatch(URL, url):
            raise BadInput(
                f"connection {self._conn_id}: the host must be a bare host name; put the port in the port field, and a "
                "token in the field Token"
            )
        return url

    def start(self, say: Callable[..., None], **patience: float) -> None:
        """Share the lock on LOCKSTEP_HOME for the run, and start its server if the connection names a master.

        The server ends with the process whose id is in LOCKSTEP_WATCH, if that is set.

        Args:
            say: Takes lines for the log.
            patience: As `Server.start` takes it.

        Raises:
            BadInput: The host of the connection, or `spark.driver.host` in its extra, is not a host name.
        """
        # Bad input is reported before the wait for the lock.
        external = self.get_connection_url() if self.is_external else ""
        watch = os.environ.get("LOCKSTEP_WATCH")
        started = Server(home()).start(
            self.run,
            master=None if external else self.master,
            settings=self.settings,
            watch=int(watch) if watch else None,
            say=say,
            idle=self.idle,
            **patience,
        )
        # Without the user and the token.
        say(f"the Spark server of this run is {started or external.partition('/;')[0].rstrip('/')}")

    @property
    def master(self) -> str:
        """The Spark master that the connection names, as PySparkOperator reads it."""
        host, port = self.connection.host or "local[*]", self.connection.port
        return f"{host}:{port}" if port else host

    @property
    def idle(self) -> float:
        """Seconds that a shared server of the connection stays without a run; 0 if each run starts its own.

        Raises:
            BadInput: `idle_seconds` in the extra of the connection is no such number.
        """
        value = self.connection.extra_dejson.get("idle_seconds", 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise BadInput(
                f"connection {self._conn_id}: idle_seconds must be a number of seconds, 0 or more, got {value!r}"
            )
        return value

    @property
    def settings(self) -> dict[str, str]:
        """The Spark settings in the extra of the connection."""
        return {name: str(value) for name, value in self.connection.extra_dejson.items() if name[:6] == "spark."}

    def restart(self, context: Any, say: Callable[..., None]) -> None:
        """Start the server again if it was lost: Airflow tries the task again, but not the setup task before it."""
        if not self.is_there and context["ti"].try_number > 1:
            self.start(say)

    @property
    def is_there(self) -> bool:
        """Whether the run has its share in LOCKSTEP_HOME, and its own server, if it started one, runs."""
        return Server(home()).lease(self.run) is not None

    def session_settings(self) -> dict[str, str]:
        """The settings of a session on the server, with its URL."""
        return settings_of(SESSION_SETTINGS) | {"spark.remote": self.get_connection_url()}


class SparkServer(BaseOperator):
    """Shares the lock on LOCKSTEP_HOME, and starts the run's Spark Connect server.

    If the connection names an existing server (type `spark_connect`), the task only shares the lock.
    """

    template_fields: Sequence[str] = ("run", "conn_id")
    ui_color = "#e8f0fe"

    def __init__(self, *, run: str, conn_id: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.run = run
        self.conn_id = conn_id

    def execute(self, context: Any) -> None:
        """Start the server, unless the run has one."""
        from reports.publish import refresh

        with recorded(home(), self.run, self.task_id):
            ServerHook(self.conn_id, self.run).start(self.log.info)
        refresh(home())

    @staticmethod
    def start_early(run: str, connection: Connection) -> None:
        """Start the server of a run before the task does, which then finds it: it needs seconds until it listens.

        Nothing starts while the run would have to wait. The task waits, and reports what is wrong.

        Args:
            run: The run.
            connection: The Spark connection of the run.
        """
        hook = ServerHook(connection.conn_id, run)
        hook.connection = connection
        if not hook.is_external and not any(lock.ahead(shared=True) for lock in (of_home(home()), of_host())):
            with suppress(Exception):
                hook.start(lambda _: None, patience=EARLY_SECONDS)


def stop_server(run: str) -> None:
    """Stop the Spark server of a run, if it still runs, and end its share in LOCKSTEP_HOME."""
    Server(home()).stop(run)


class SparkTask(PySparkOperator):
    """Runs `python_callable(..., spark)` with a session on the Spark that a connection names.

    An error of the function fails the task without a retry, and its sentence is the reason. On a connection that names
    a master, the driver of the session is the task's own process.
    """

    ui_color = "#eef7ee"

    def __init__(self, *, python_callable: Callable[..., Any], **kwargs: Any):
        super().__init__(python_callable=_impatient(python_callable), **kwargs)
        self._is_running = False

    def session_settings(self, context: Any) -> dict[str, str]:
        """The settings of the session, beside those in the connection's extra."""
        from jobs.session import driver_settings

        hook = ServerHook(self.conn_id)
        if hook.is_external:
            return hook.session_settings()
        return driver_settings(hook.master, hook.settings)

    def execute(self, context: Any) -> Any:
        """Call the function; returns its result."""
        # Only now: Airflow has stored the rendered fields of the task, which users can read.
        self.config_kwargs = self.session_settings(context)
        # A server has static settings, and warns about each one that a session sets.
        warnings.filterwarnings("ignore", message="Failed to set spark")
        self._is_running = True
        try:
            return super().execute(context)
        except (BadInput, RunFailed, CommandFailed) as error:
            raise AirflowFailException(line_of(error)) from None
        finally:
            self._is_running = False

    def on_kill(self) -> None:
        """Leave the function that runs in this thread."""
        # The session ends on the way out, and its server then cancels its queries.
        if self._is_running:
            raise Interrupted(signal.SIGTERM)


class SparkJob(WithLineage, SparkTask):
    """Runs `python_callable(run, spark)` on the Spark server of a run.

    It shares the lock on this host, so no cell is measured here meanwhile, and stages of several runs overlap. If the
    server is gone, Airflow tries the task again, and the task starts another server.
    """

    template_fields: Sequence[str] = ("run", *PySparkOperator.template_fields)
    operator_extra_links = (ReportLink(),)

    shares_host = True  # whether the lock on the host is held during the call

    def __init__(self, *, run: str, python_callable: Callable[..., Any], **kwargs: Any):
        if self.shares_host:
            python_callable = _beside_others(python_callable, str(kwargs["task_id"]))
        super().__init__(op_kwargs={"run": run}, python_callable=python_callable, **kwargs)
        self.run = run

    def session_settings(self, context: Any) -> dict[str, str]:
        """The settings of a session on the run's server."""
        hook = ServerHook(self.conn_id, self.run)
        hook.restart(context, self.log.info)
        return hook.session_settings()

    def record(self) -> AbstractContextManager[None]:
        """Record when the stage begins and ends, around the call of the function."""
        return recorded(home(), self.run, self.task_id)

    def execute(self, context: Any) -> Any:
        """Call the function, and record how the stage ends."""
        skip_without_plan(self.run)
        try:
            with self.record():
                try:
                    return super().execute(context)
                except (AirflowException, ServerLost):
                    raise
                except Exception as error:
                    from jobs.session import is_unavailable

                    if is_unavailable(error) or not ServerHook(self.conn_id, self.run).is_there:
                        raise ServerLost(f"the Spark server ended during {self.task_id}: {_line(error)}") from None
                    raise
        except Interrupted as error:
            raise AirflowFailException(f"{self.task_id}: {error}") from None


class SparkCells(SparkJob):
    """Runs the planned cells of executor spark, one after the other, on the Spark server of a run.

    Without such cells, the task is skipped and starts no session. Like a lane, it records each cell, and not itself.
    Each cell takes the host.
    """

    shares_host = False

    ui_color = "#fdf3e1"

    def __init__(self, *, limit: float, **kwargs: Any):
        """Make the task of a run. `limit`: seconds after which a cell is stopped."""
        super().__init__(**kwargs)
        self.limit = limit

    def record(self) -> AbstractContextManager[None]:
        """Record nothing, because the job records each cell."""
        return nullcontext()

    def execute(self, context: Any) -> Any:
        """Run the cells, if there are any."""
        skip_without_plan(self.run)
        queue = SparkQueue(home(), self.run, str(self.conn_id), getattr(context.get("ti"), "max_tries", 0))
        if not queue.cells:
            raise AirflowSkipException("the run has no cells of executor spark")
        self.op_kwargs = {"run": self.run, "queue": queue, "limit": self.limit, "say": self.log.info}
        try:
            return super().execute(context)
        except ConnectionError as error:
            # The reason of cells that have no result, if Airflow does not try again.
            record_loss(home(), self.run, queue.host, line_of(error))
            raise


def _impatient(work: Callable[..., Any]) -> Callable[..., Any]:
    """Let the session of `work` give up on a server that does not answer after a minute, and not after ten."""

    @wraps(work)
    def wrapper(*arguments: Any, spark: Any, **named: Any) -> Any:
        from jobs.session import limit_patience

        limit_patience(spark)
        return work(*arguments, spark=spark, **named)

    return wrapper


def _beside_others(work: Callable[..., Any], stage: str) -> Callable[..., Any]:
    """Let `work` share the lock on this host."""

    @wraps(work)
    def wrapper(*arguments: Any, run: str, **named: Any) -> Any:
        with hold(of_host(), stage, shared=True, run=run):
            return work(*arguments, run=run, **named)

    return wrapper


def _line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class SparkCommand(Job):
    """A `Job` whose command is a client of the run's Spark server, which SPARK_REMOTE names."""

    template_fields: Sequence[str] = (*Job.template_fields, "conn_id")

    def __init__(self, *, conn_id: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.conn_id = conn_id

    @property
    def hook(self) -> ServerHook:
        """Airflow's hook on the server."""
        return ServerHook(self.conn_id, self.run)

    def environment(self, context: Any) -> dict[str, str]:
        """The variables that the command has in addition to those of this process."""
        self.hook.restart(context, self.log.info)
        return super().environment(context) | {"SPARK_REMOTE": self.hook.get_connection_url()}

    def failed(self, reason: str) -> Exception:
        """The exception of a command that failed."""
        if not self.hook.is_there:
            return ServerLost(f"the Spark server ended during {self.task_id}: {reason}")
        return super().failed(reason)
