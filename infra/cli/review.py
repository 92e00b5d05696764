"""`lockstep review`: judge what a branch changes, and write what a pull request shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from infra import checkout
from streaming_core.errors import ExitCode, refusal
from streaming_core.storage import write_text


def review(
    base: Annotated[str, typer.Option(metavar="REF", help="The branch to merge into, such as origin/main.")],
    matrix: Annotated[
        str, typer.Option(metavar="NAME", help="The matrix of the run, in dags/matrices/NAME.yaml.")
    ] = "review",
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the files.")] = Path("review"),
    pages: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Address under which the pages will be published; the comment links there."),
    ] = None,
) -> int:
    """Judge what a branch changes, and write what a pull request shows.

    The command finds the applications whose code differs from the merge
    base. It runs them, compares their speed with the merge base, and
    searches for faults; the matrix limits the minutes. It writes comment.md,
    junit.xml and findings.sarif. It exits with 1 if an application is
    rejected, or a cell is red or slower.

    Examples:
        lockstep review --base origin/main
        lockstep review --base origin/main --matrix smoke --out review
    """
    from infra.cli.run import execute
    from infra.review import changes
    from infra.review.comment import comment
    from infra.review.junit import junit
    from infra.review.review import Review
    from infra.review.sarif import sarif
    from reports.history import History
    from streaming_core.regression import matrices

    matrices.load(checkout.MATRICES, matrix)
    changed, home = changes.since(base), checkout.home()
    run = None
    if changed.applications:
        request = {"matrix": matrix, "applications": changed.applications, "gate_against": changed.base}
        ended = execute(request, Console())
        if ended is None:
            return ExitCode.FAILED
        run = History(home).run(ended.run_id)
    result = Review(changed, run)
    files = {"comment.md": comment(result, pages), "junit.xml": junit(result), "findings.sarif": sarif(result)}
    try:
        for name, text in files.items():
            write_text(out / name, text)
    except OSError as error:
        raise refusal(error, f"{out} cannot be written") from None
    print(f"review: {result.sentence}\nfiles: {out}/{{{','.join(files)}}}")
    return ExitCode.FAILED if result.is_red else ExitCode.SUCCESS
