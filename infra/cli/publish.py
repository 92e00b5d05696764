"""`lockstep publish`: write pages again."""

from __future__ import annotations

from typing import Annotated

import typer

from infra.checkout import home


def publish(
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="RUN_ID", help="Also write the pages of this run.")
    ] = None,
) -> None:
    """Write the overview, and the pages of speed and of benchmarks, again.

    `make bench` does this when it ends. Runs write all of them but the page
    of benchmarks. Use the command after you changed or removed files in
    LOCKSTEP_HOME by hand.

    Examples:
        lockstep publish
    """
    from reports import publish, site
    from reports.history import History

    if run_id is None:
        if site.BENCHMARKS:
            from infra.benchmarks import page

            print(f"benchmarks: {page.publish(home())}")
        publish.performance(home())
    else:
        History(home()).run(run_id)  # raises BadInput before anything is written
        print(f"publish: {publish.publish(home(), run_id).sentence}")
