"""The group `warehouse`: the marts that dbt builds."""

from __future__ import annotations

import typer

from infra.checkout import home

app = typer.Typer(
    help="Build the warehouse: dbt's tables (marts) and their documentation, from the results of all runs."
)


@app.command()
def build() -> None:
    """Build every mart, and test every constraint.

    A run does this too. Use the command after you changed a dbt model.

    Examples:
        lockstep warehouse build
    """
    from infra.history.marts import build

    print(build(home()))


@app.command()
def rebuild() -> None:
    """Remove the marts and dbt's own files, then build them again.

    The results of all runs stay. Use the command if a build fails because
    of a damaged file.

    Examples:
        lockstep warehouse rebuild
    """
    from infra.history.marts import rebuild

    print(rebuild(home()))


@app.command()
def docs() -> None:
    """Build every mart, and write dbt's documentation with their rows.

    `build` writes it only if the dbt project has changed.

    Examples:
        lockstep warehouse docs
    """
    from infra.history.marts import document

    print(document(home()))


@app.command()
def freshness() -> None:
    """Print the age of the newest results.

    The command exits with 1 if they are older than dbt allows
    (dbt/models/staging/raw.yml).

    Examples:
        lockstep warehouse freshness
    """
    from infra.history.marts import freshness

    print(freshness(home()))
