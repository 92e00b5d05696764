"""The UI as a service of the user: a systemd unit with the homes and the PATH of now."""

from __future__ import annotations

import os
from pathlib import Path
from string import Template

from infra.airflow import home as airflow_home
from infra.checkout import ROOT, home
from streaming_core.errors import BadInput, refusal
from streaming_core.storage import write_text

UNIT = "lockstep.service"
TEMPLATE = ROOT / "infra" / "services" / UNIT
NEXT = (
    "systemctl --user daemon-reload",
    f"systemctl --user enable --now {UNIT}",
    "loginctl enable-linger    # also while nobody is logged in",
    f"journalctl --user -u {UNIT}    # what it says",
)


def service(port: int) -> None:
    """Writes the unit where the user's systemd looks for it, and says what to do next; nothing is started.

    Raises:
        BadInput, CommandFailed: it cannot be written.
    """
    path = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user" / UNIT
    try:
        write_text(path, unit(port))
    except OSError as error:
        raise refusal(error, f"{path} cannot be written") from None
    print(f"{path} is written; what starts it, and keeps it up:\n")
    for command in NEXT:
        print(f"    {command}")
    print("\nThe nightly runs once its switch is on: streaming_regression_nightly, in Airflow.")


def unit(port: int) -> str:
    """The unit's text.

    Raises:
        BadInput: a path has a line break in it.
    """
    kept = {"LOCKSTEP_HOME": str(home().root), "AIRFLOW_HOME": str(airflow_home.location())}
    kept |= {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if os.environ.get(name)}
    lines = [f"Environment={_quoted(f'{name}={value}')}" for name, value in kept.items()]
    values = {
        "root": _plain(str(ROOT)),
        "command": _quoted(str(ROOT / ".venv" / "bin" / "lockstep")).replace("$", "$$"),
        "environment": "\n".join(lines),
        "port": port,
    }
    return Template(TEMPLATE.read_text()).substitute(values)


def _quoted(text: str) -> str:
    escaped = _plain(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _plain(text: str) -> str:
    """As systemd reads it literally: % begins a specifier of its own."""
    if "\n" in text:
        raise BadInput(f"{text!r} has a line break, which no unit can have")
    return text.replace("%", "%%")
