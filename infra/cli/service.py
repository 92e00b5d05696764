"""`lockstep service`: write a systemd user unit that runs the UI with the current homes and PATH."""

from __future__ import annotations

import os
from pathlib import Path
from string import Template

from infra.airflow import airflow_home
from infra.checkout import ROOT, home
from infra.cli.arguments import Port
from streaming_core.errors import BadInput, refusal
from streaming_core.regression.stages import DAG_ID
from streaming_core.storage import write_text

UNIT = "lockstep.service"
TEMPLATE = ROOT / "infra" / "cli" / UNIT
NEXT = (
    "systemctl --user daemon-reload",
    f"systemctl --user enable --now {UNIT}",
    "loginctl enable-linger    # keep it running after you log out",
    f"journalctl --user -u {UNIT}    # show its log",
)


def service(port: Port = airflow_home.DEFAULT_PORT) -> None:
    """Write a systemd user unit that runs `lockstep ui` in the background.

    The unit restarts the UI after a failure and after a reboot. The command
    starts nothing. It prints the commands that do.

    Examples:
        lockstep service
        lockstep service --port 8081
    """
    path = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user" / UNIT
    try:
        write_text(path, unit(port))
    except OSError as error:
        raise refusal(error, f"{path} cannot be written") from None
    print(f"wrote {path}\n\nTo start the UI now and after each reboot:\n")
    for command in NEXT:
        print(f"    {command}")
    print(f"\nFor the nightly regression, switch on the DAG {DAG_ID}_nightly in Airflow.")


def unit(port: int) -> str:
    """The text of the unit.

    Args:
        port: Port of the UI on localhost.

    Raises:
        BadInput: A path has a line break in it.
    """
    variables = {"LOCKSTEP_HOME": str(home().root), "AIRFLOW_HOME": str(airflow_home.location())}
    variables |= {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if os.environ.get(name)}
    lines = [f"Environment={_quoted(f'{name}={value}')}" for name, value in variables.items()]
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
    """Escape a text for systemd, where % starts a specifier."""
    if "\n" in text:
        raise BadInput(f"{text!r} has a line break, which a systemd unit cannot hold: use another path")
    return text.replace("%", "%%")
