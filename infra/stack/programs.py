"""The programs of a stack, and their configuration files.

    postgres, redis                                       Airflow's database, and the queue of its workers
    api-server, scheduler, dag-processor, triggerer       Airflow
    worker-1, worker-2                                    Celery workers, which run Airflow's tasks
    spark-master, spark-worker-1, spark-worker-2          a standalone Spark cluster, for the jobs of runs
    sshd                                                  a host that runs cells

All of them listen on loopback. No password is on a command line or in an environment: Airflow reads the addresses that
contain one with the commands in `..._CMD`.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infra.checkout import ROOT
from infra.stack.folder import SSHD, Folder, database_user, postgres_bin
from streaming_core.errors import CommandFailed
from streaming_core.storage import write_text

ACCOUNT = "lockstep"  # in PostgreSQL
DATABASE = "airflow"
HOST = "stack_host"  # the Airflow connection of the sshd host
WORKERS = ("worker-1", "worker-2")
SPARK_WORKERS = ("spark-worker-1", "spark-worker-2")
# What ends first must not wait for what ends later.
STOP_ORDER = (
    (*WORKERS, "scheduler", "dag-processor", "triggerer"),
    ("api-server", "sshd", *SPARK_WORKERS),
    ("spark-master", "redis", "postgres"),
)
# The variables that the stack inherits. It must not see others, such as tokens.
INHERITED = ("HOME", "JAVA_HOME", "LANG", "LOCKSTEP_HOST_LOCK", "LOGNAME", "PATH", "TZ", "USER")


@dataclass(frozen=True)
class Program:
    """A program that the supervisor keeps running.

    Attributes:
        name: its name in the supervisor, and of its log.
        command: program and arguments.
        environment: what it has beyond the supervisor's environment.
        user: the user that runs it; None for the one that starts the stack.
        stop: the signal that ends it.
        address: where it listens.
    """

    name: str
    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    stop: str = "TERM"
    address: str = ""


def inherited() -> dict[str, str]:
    """The environment of the supervisor and of all programs."""
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


def programs(folder: Folder, ports: Mapping[str, int]) -> list[Program]:
    """The programs of a stack, in the order in which they start."""
    postgres, address = postgres_bin(), {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    redis, settings = shutil.which("redis-server"), airflow_settings(folder, ports)
    assert postgres is not None
    assert redis is not None
    data = str(folder.postgres / "data")
    spark, lockstep = spark_environment(folder), str(folder.environment / "lockstep")
    spark_class = [str(Path(spark["SPARK_HOME"]) / "bin" / "spark-class")]
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(ports["spark"])]
    worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]

    def airflow(name: str, *arguments: str, address: str = "") -> Program:
        return Program(name, [lockstep, "airflow", *arguments], settings, address=address)

    return [
        Program(
            "postgres",
            [str(postgres / "postgres"), "-D", data],
            user=database_user(),
            stop="INT",  # ends sessions, instead of waiting for them
            address=address["postgres"],
        ),
        Program("redis", [redis, str(folder.secret("redis.conf"))], address=address["redis"]),
        Program(
            "spark-master",
            [*spark_class, *master, "--webui-port", str(ports["spark_ui"])],
            spark,
            address=f"spark://{address['spark']}",
        ),
        *(
            Program(
                name,
                [*spark_class, *worker, "--work-dir", str(folder.root / "spark" / name), f"spark://{address['spark']}"],
                spark,
            )
            for name in SPARK_WORKERS
        ),
        Program(
            "sshd", [str(SSHD), "-D", "-e", "-f", str(folder.root / "ssh" / "sshd_config")], address=address["ssh"]
        ),
        airflow("api-server", "api-server", "--proxy-headers", address=f"http://localhost:{ports['api']}"),
        # The log servers would listen on every interface. The API server reads the log files itself.
        airflow("scheduler", "scheduler", "--skip-serve-logs"),
        airflow("dag-processor", "dag-processor"),
        airflow("triggerer", "triggerer", "--skip-serve-logs"),
        *(airflow(name, "celery", "worker", "--skip-serve-logs", "--celery-hostname", name) for name in WORKERS),
    ]


def airflow_settings(folder: Folder, ports: Mapping[str, int]) -> dict[str, str]:
    """The environment of Airflow's programs: what differs from infra/airflow/airflow.cfg."""
    url = f"http://localhost:{ports['api']}"
    return {
        "AIRFLOW_HOME": str(folder.airflow),
        "LOCKSTEP_HOME": str(folder.lockstep),
        "AIRFLOW__API__PORT": str(ports["api"]),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW__CORE__PARALLELISM": "8",
        "AIRFLOW__CELERY__WORKER_CONCURRENCY": "2",
        "AIRFLOW__CELERY__BROKER_URL_CMD": f"cat {folder.secret('broker')}",
        "AIRFLOW__CELERY__RESULT_BACKEND_CMD": f"cat {folder.secret('results')}",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD": f"cat {folder.secret('database')}",
        "AIRFLOW__SECRETS__BACKEND": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps(
            {"connections_file_path": str(folder.secret("connections.json"))}
        ),
    }


def spark_environment(folder: Folder) -> dict[str, str]:
    """The environment of Spark's daemons, and of the executors that they start."""
    from importlib.util import find_spec

    package = find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    return {
        "SPARK_HOME": str(Path(package.origin).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",  # of their web pages
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": str(folder.environment / "python"),
    }


def configure(folder: Folder, ports: Mapping[str, int]) -> None:
    """Write the files that the programs read, and create the database cluster if it is missing.

    Raises:
        CommandFailed: a program of PostgreSQL or OpenSSH failed.
    """
    _configure_postgres(folder, ports["postgres"])
    _configure_redis(folder, ports["redis"])
    _configure_sshd(folder, ports["ssh"])
    account = f"{ACCOUNT}:{folder.password('postgres')}@127.0.0.1:{ports['postgres']}/{DATABASE}"
    addresses = {
        "database": f"postgresql+psycopg2://{account}",
        "results": f"db+postgresql://{account}",
        "broker": f"redis://:{folder.password('redis')}@127.0.0.1:{ports['redis']}/0",
        "connections.json": json.dumps(connections(folder, ports), indent=2),
    }
    for name, text in addresses.items():
        write_text(folder.secret(name), text, mode=0o600)


def connections(folder: Folder, ports: Mapping[str, int]) -> dict[str, dict]:
    """The Airflow connections of the stack, for a secrets backend."""
    host_key = (folder.root / "ssh" / "host_key.pub").read_text().split()
    extra = {"key_file": str(folder.root / "ssh" / "client_key"), "host_key": " ".join(host_key[:2])}
    extra |= {"python": str(folder.environment / "python"), "builds": str(folder.root / "builds")}
    return {
        "spark_default": {"conn_type": "spark", "host": f"spark://127.0.0.1:{ports['spark']}"},
        HOST: {
            "conn_type": "ssh",
            "host": "127.0.0.1",
            "port": ports["ssh"],
            "login": pwd.getpwuid(os.geteuid()).pw_name,
            "extra": json.dumps(extra),
        },
    }


def create_database(folder: Folder, port: int) -> None:
    """Create Airflow's database, unless it exists. The server runs.

    Raises:
        CommandFailed: PostgreSQL refuses.
    """
    folder_of_programs = postgres_bin()
    assert folder_of_programs is not None
    where = ["-h", "127.0.0.1", "-p", str(port), "-U", ACCOUNT]
    password = {"PGPASSWORD": folder.password("postgres")}
    query = f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'"
    if not run([str(folder_of_programs / "psql"), *where, "-tAc", query, "postgres"], password).strip():
        run([str(folder_of_programs / "createdb"), *where, DATABASE], password)


def _configure_postgres(folder: Folder, port: int) -> None:
    programs, user, data = postgres_bin(), database_user(), folder.postgres / "data"
    assert programs is not None
    folder.postgres.mkdir(mode=0o700, exist_ok=True)
    if user:
        shutil.chown(folder.postgres, user, user)
    if not (data / "PG_VERSION").exists():
        shutil.rmtree(data, ignore_errors=True)  # an earlier attempt that was interrupted
        words = folder.postgres / "password"
        write_text(words, folder.password("postgres"), mode=0o600)
        if user:
            shutil.chown(words, user, user)
        arguments = ["-D", str(data), "-U", ACCOUNT, "--auth=scram-sha-256", f"--pwfile={words}", "-E", "UTF8"]
        run([str(programs / "initdb"), *arguments, "--locale=C.UTF-8"], user=user, folder=folder.postgres)
        words.unlink()
    settings = {
        "listen_addresses": "'127.0.0.1'",
        "port": port,
        "unix_socket_directories": "''",
        "max_connections": 200,
    }
    path = data / "postgresql.auto.conf"  # read last
    write_text(path, "".join(f"{name} = {value}\n" for name, value in settings.items()), mode=0o600)
    if user:
        shutil.chown(path, user, user)


def _configure_redis(folder: Folder, port: int) -> None:
    data = folder.root / "redis"
    data.mkdir(mode=0o700, exist_ok=True)
    lines = ["bind 127.0.0.1", f"port {port}", f"requirepass {folder.password('redis')}", f"dir {data}"]
    lines += ["appendonly yes", "daemonize no", 'logfile ""']  # queued tasks survive a restart
    write_text(folder.secret("redis.conf"), "\n".join([*lines, ""]), mode=0o600)


def _configure_sshd(folder: Folder, port: int) -> None:
    ssh = folder.root / "ssh"
    for name in ("host_key", "client_key"):
        if not (ssh / name).exists():
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(ssh / name)])
    write_text(ssh / "authorized_keys", (ssh / "client_key.pub").read_text(), mode=0o600)
    environment = {"LOCKSTEP_HOME": str(folder.lockstep)}
    if lock := os.environ.get("LOCKSTEP_HOST_LOCK"):
        environment["LOCKSTEP_HOST_LOCK"] = lock
    lines = [
        "ListenAddress 127.0.0.1",
        f"Port {port}",
        f"HostKey {ssh / 'host_key'}",
        f"AuthorizedKeysFile {ssh / 'authorized_keys'}",
        f"AllowUsers {pwd.getpwuid(os.geteuid()).pw_name}",
        "AuthenticationMethods publickey",
        "PermitRootLogin prohibit-password",
        "StrictModes no",  # it would refuse a folder below /tmp
        "UsePAM no",
        "PidFile none",
        "Subsystem sftp internal-sftp",
        "SetEnv " + " ".join(f"{name}={value}" for name, value in environment.items()),
    ]
    write_text(ssh / "sshd_config", "\n".join([*lines, ""]), mode=0o600)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # an sshd of root does not start without it
    run([str(SSHD), "-t", "-f", str(ssh / "sshd_config")])


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    user: str | None = None,
    folder: Path = ROOT,
    timeout: float = 120,
    label: str | None = None,
) -> str:
    """The output of a command.

    Args:
        command: Program and arguments.
        environment: Added to the variables of `inherited`.
        user: The account that runs it; None: this one.
        folder: Its working folder.
        timeout: The most seconds that it may take.
        label: The beginning of the error; None: the program, and that it failed.

    Raises:
        CommandFailed: It ends with another exit code than 0; the last line of its output is the reason.
    """
    account: dict = {"user": user, "group": user, "extra_groups": []} if user else {}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**inherited(), **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **account,
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        start = label or f"{shlex.join(command[:1])} failed"
        raise CommandFailed(f"{start}: {lines[-1] if lines else done.returncode}")
    return done.stdout
