"""Prepares AIRFLOW_HOME of this checkout: configuration, database and connections.

The values come from files in this folder. Connections are imported only if they do not exist yet, so changes that
people make in the UI stay.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import string
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from infra import checkout
from infra.checkout import ROOT
from streaming_core.errors import BadInput, ExitCode, RunFailed
from streaming_core.regression.project import PREFIX, named
from streaming_core.storage import Lock, left_json, write_text

HERE = Path(__file__).resolve().parent
DEFAULT_PORT = 8080
AIRFLOW = (sys.executable, "-m", "airflow")
SECRETS = "secrets.json"
STAMP = ".prepared"
FOREIGN_DATABASE = "the database of AIRFLOW__DATABASE__SQL_ALCHEMY_CONN belongs to another Airflow: name an empty one"


def location() -> Path:
    """AIRFLOW_HOME: from the environment, else `.airflow` in the checkout."""
    return Path(os.environ.get("AIRFLOW_HOME") or ROOT / ".airflow").absolute()


def occupancy() -> Lock:
    """The lock on AIRFLOW_HOME: one run or one UI holds it, because two would schedule the same tasks."""
    return Lock(existing_folder() / "in-use.json")


def existing_folder() -> Path:
    """AIRFLOW_HOME; creates it if necessary, readable by its owner only, because it holds passwords and keys.

    Raises:
        BadInput: The folder is the home of an Airflow that Lockstep did not set up.
    """
    home = location()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if "fernet_secret" not in left_json(home / SECRETS) and any(
        (home / name).exists() for name in ("airflow.cfg", "airflow.db")
    ):
        raise BadInput(f"AIRFLOW_HOME={home} belongs to another Airflow: unset AIRFLOW_HOME, or name a new folder")
    return home


def environment(port: int = DEFAULT_PORT) -> dict[str, str]:
    """The environment that every Airflow process of this checkout runs in."""
    values = dict(os.environ)
    values["PYTHONPATH"] = str(ROOT)
    values["AIRFLOW_HOME"] = str(location())
    values["LOCKSTEP_HOME"] = str(checkout.home().root)
    if port != DEFAULT_PORT:
        values["AIRFLOW__API__PORT"] = str(port)
        values["AIRFLOW__API__BASE_URL"] = f"http://localhost:{port}"
        values["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] = f"http://localhost:{port}/execution/"
    return values


def prepare(log: Path) -> None:
    """Prepare AIRFLOW_HOME, unless it is ready.

    Args:
        log: File for the output of Airflow.

    Raises:
        BadInput: The folder or the database belongs to another Airflow.
        RunFailed: The database could not be created or migrated. The message names the log.
    """
    home = existing_folder()
    if checkout.import_roots() == [inbox := checkout.home().root / "inbox"]:
        inbox.mkdir(parents=True, exist_ok=True)  # the form of import_data names it
    write_configuration(home)
    stamp, fingerprint = home / STAMP, _fingerprint(home)
    if stamp.exists() and stamp.read_text() == fingerprint:
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as out:
        done = subprocess.run(
            [sys.executable, "-m", "infra.airflow.airflow_home"],
            cwd=ROOT,
            env=environment(),
            stdout=out,
            stderr=out,
            check=False,
        )
    if done.returncode == ExitCode.BAD_INPUT:
        raise BadInput(FOREIGN_DATABASE)
    if done.returncode:
        raise RunFailed(f"Airflow's database could not be prepared; its log says why: {log}")
    stamp.write_text(_fingerprint(home))


def write_configuration(home: Path) -> None:
    """Write airflow.cfg with the secrets of this home. Airflow reads it once, when it is first imported."""
    kept = home / SECRETS
    if not kept.exists():
        values = {
            "fernet_secret": base64.urlsafe_b64encode(os.urandom(32)).decode(),
            "session_secret": secrets.token_urlsafe(32),
            "token_secret": secrets.token_urlsafe(48),
        }
        write_text(kept, json.dumps(values), mode=0o600)
    template = string.Template((HERE / "airflow.cfg").read_text())
    text = template.safe_substitute(root=ROOT, home=home, port=DEFAULT_PORT, **json.loads(kept.read_text()))
    target = home / "airflow.cfg"
    if not target.exists() or target.read_text() != text:
        write_text(target, text, mode=0o600)


def _fingerprint(home: Path) -> str:
    database = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
    parts = [version("apache-airflow"), *(os.environ.get(f"{database}{form}", "") for form in ("", "_CMD", "_SECRET"))]
    parts.append(PREFIX)
    parts.append((HERE / "connections.json").read_text())
    parts.append(str((home / "airflow.db").exists()))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _migrate_and_import() -> None:
    """Make the database and the connections by Airflow's command line. Connections that exist stay as they are."""
    if not (location() / STAMP).exists() and _is_of_another():
        sys.exit(ExitCode.BAD_INPUT)
    declared = json.loads((HERE / "connections.json").read_text())
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({named(conn_id): fields for conn_id, fields in declared.items()}, file)
        file.flush()
        for words in (["db", "migrate"], ["connections", "import", file.name]):
            subprocess.run([*AIRFLOW, *words], check=True)


def _is_of_another() -> bool:
    """Whether the database has tables, but lacks the connection `local`, so Lockstep did not set it up."""
    from airflow.sdk import conf
    from sqlalchemy import create_engine, inspect

    if not inspect(create_engine(conf.get("database", "sql_alchemy_conn"))).get_table_names():
        return False
    names = subprocess.run([*AIRFLOW, "connections", "list", "--output", "plain"], capture_output=True, text=True)
    return named("local") not in names.stdout.split()


if __name__ == "__main__":
    _migrate_and_import()
