"""The page of settings: environment variables, Airflow's connections, and the configuration files.

`.env.example` describes the settings that most users change. `SETTINGS` declares the others. A test compares both with
the variables that the code reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from infra.checkout import ROOT
from infra.reference.markdown import block, code, next_pages, paragraph, table, text
from infra.reference.markdown import page as whole_page

EXAMPLE = ROOT / ".env.example"
SETTING = re.compile(r"#?([A-Z_][A-Z0-9_]*)=(.*)")


class Setting(NamedTuple):
    """An environment variable."""

    name: str
    default: str
    description: str


SETTINGS = (
    Setting(
        "LOCKSTEP_TRACEBACK",
        "`0`",
        "Set to `1` to print the Python traceback of a failure of the command itself (exit code 3).",
    ),
    Setting(
        "LOCKSTEP_HOST_LOCK",
        "`/tmp/lockstep-host.lock`",
        "The file that lets only one cell at a time run on this host. Use another file only for tests.",
    ),
    Setting("JAVA_HOME", "the Java on `PATH`", "The Java that Spark uses. `make doctor` checks its version."),
    Setting(
        "SPARK_REMOTE",
        "none",
        "Address of a Spark Connect server for `lockstep warehouse` and `lockstep import`. Without it, each command "
        "starts Spark itself. A run starts its own server and ignores this setting.",
    ),
    Setting(
        "AIRFLOW__SECTION__KEY",
        "`infra/airflow/airflow.cfg`",
        "Overrides a line of Airflow's configuration. For example, `AIRFLOW__API__BASE_URL` overrides `base_url` in "
        "section `[api]`.",
    ),
    Setting(
        "AIRFLOW_CONN_ID",
        "none",
        "Defines the Airflow connection `id`. Prefer connections in Airflow: it encrypts them.",
    ),
    Setting(
        "LOCKSTEP_APP_NAME",
        "none",
        "Any variable with this prefix reaches your applications. Of the others, a cell gets only harmless ones, such "
        "as `PATH`: no setting of Airflow, no token, no password.",
    ),
    Setting("NO_PROXY", "`localhost,127.0.0.1`", "Hosts that Airflow's components reach without a proxy."),
    Setting(
        "PYTHON", "the first Python 3.11 or newer", "The Python for `make setup`. Works on the command line of make."
    ),
    Setting("ARGS", "empty", "Options that `make run`, `make ui`, `make bench`, `make lint` and `make lock` pass on."),
    Setting(
        "YES",
        "off",
        "Set to `1` to let `make run`, or another target, install missing Debian packages. On a terminal, make asks.",
    ),
    Setting("PROPERTY_SEED", "`0`", "The seed of the property tests (`make test`)."),
    Setting("LOCKSTEP_SKIPS_FAIL", "off", "Set to `1` to fail a test session that skips a test, as `.ci/run` does."),
)
# Variables that one process of Lockstep sets for another. They are not settings.
INTERNAL = {
    "LOCKSTEP_MONTHS": "the months of the marts that dbt replaces",
    "LOCKSTEP_WATCH": "the process whose end stops a run's Spark server",
}
ALERTS = {
    "lockstep_alert_smtp": ("smtp", "The mail server for alerts. Alerts by mail are off without it."),
    "lockstep_alert_apprise": ("apprise", "The chat services and webhooks for alerts. They get none without it."),
}


def page() -> str:
    """The text of the page."""
    declared = json.loads((ROOT / "infra/airflow/connections.json").read_text())
    rows = [(code(name), code(one["conn_type"]), text(one["description"])) for name, one in declared.items()]
    rows += [(code(name), code(kind), text(description)) for name, (kind, description) in ALERTS.items()]
    return whole_page(
        "`.env.example`, `infra/airflow` and `infra/reference/configuration.py`",
        "Configuration",
        paragraph("This page lists every setting of Lockstep, with its default."),
        "## Where to set what",
        paragraph("A setting is an environment variable. Lockstep looks for its value in these places, in this order:"),
        "\n".join(
            [
                "1. the command line of make: `make run LOCKSTEP_HOME=/data/lockstep`",
                "2. the environment",
                "3. the file `.env` in the checkout, with lines `NAME=value` without quotes",
                "4. the default",
            ]
        ),
        "Start with a copy of the example:",
        block(["cp .env.example .env"]),
        "## Settings that you may want to change",
        _table(documented()),
        "## Other settings",
        _table(SETTINGS),
        "Lockstep sets these variables itself, for its own processes:",
        table(("variable", "what it holds"), [(code(name), meaning) for name, meaning in INTERNAL.items()]),
        "## Airflow connections",
        paragraph(
            "A connection tells Lockstep how to reach another system. Add and edit connections in Airflow under "
            "**Admin**, **Connections**. The options `--hosts` and `--spark` of `lockstep run`, and the fields of "
            "the form, name connections."
        ),
        table(("connection", "type", "what it is for"), rows),
        paragraph(
            "A host is `local` or a connection of type `ssh` to another machine. A Spark "
            "connection has type `spark` (a master for which each run starts a server) or `spark_connect` (a server "
            "that runs already)."
        ),
        "## Configuration files",
        table(
            ("file", "what it configures"),
            [
                ("`infra/airflow/airflow.cfg`", "Airflow: executor, database, address, login"),
                ("`infra/airflow/connections.json`", "the connections of a new `AIRFLOW_HOME`"),
                ("`infra/spark/server.conf`", "the Spark server that a run or `lockstep warehouse` starts"),
                ("`infra/spark/session.conf`", "the Spark sessions of all stages"),
                ("`dags/matrices/NAME.yaml`", "the matrix `NAME` ([requests](requests.md))"),
            ],
        ),
        next_pages(
            "[Send alerts](../how-to/send-alerts.md): create the connections for alerts.",
            "[Open Lockstep to a team](../how-to/open-lockstep-to-a-team.md): logins and addresses.",
            "[Security](../explanation/security.md): where to keep secrets.",
        ),
    )


def documented() -> Iterator[Setting]:
    """The settings of .env.example; the comment above a setting describes it, and may name its default."""
    comment: list[str] = []
    for line in EXAMPLE.read_text().splitlines():
        if setting := SETTING.fullmatch(line):
            name, value = setting.groups()
            description, _, default = " ".join(comment).partition(" Default: ")
            yield Setting(name, default or ("off" if line.startswith("#") else code(value)), description)
        comment = [*comment, line.lstrip("# ")] if line.startswith("#") and not setting else []


def _table(settings: Iterable[Setting]) -> str:
    return table(
        ("variable", "default", "description"),
        [(code(one.name), one.default, text(one.description)) for one in settings],
    )
