"""The commands that check a run: `oracle` computes the expected result, `diff` compares it with the run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streaming_core.cli.options import AppName, Events, Json, Settings, examples, grouped, parameters
from streaming_core.cli.output import show, show_recording
from streaming_core.errors import BadInput

app = typer.Typer()


@app.command(
    epilog=examples(
        "streaming-core oracle wc --input wc-events --out wc-oracle",
        "streaming-core oracle wc --data lines.csv --out lines-oracle",
        "streaming-core oracle wc --input wc-events --mode compiled --out wc-compiled",
    )
)
@grouped
def oracle(
    name: AppName,
    out: Annotated[
        Path, typer.Option(help="Folder to write. It must be new or empty, or hold the same result already.")
    ],
    events: Events,
    operator: Annotated[
        str | None,
        typer.Option(help="Record the input rows of this operator instead, as `streaming-core record` does."),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(help="interpreted, compiled or auto. With auto, the oracle compiles beyond 100,000 events."),
    ] = "auto",
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Compute the expected result of a workload, or of files of your own.

    The sequential oracle takes one event at a time on one thread. It shares no meaning of operators with the runtime,
    so its result is the reference for every run.
    """
    from streaming_core.apps import registry
    from streaming_core.data import workload
    from streaming_core.oracle import oracle as oracle_module

    app, params = registry.load(name), parameters(name, None, settings)
    with events.workload(name, params) as source:
        if operator is not None:
            from streaming_core.run.recording import record_oracle

            opened = workload.read(source, app, params or None)
            show_recording(out, record_oracle(opened, operator, out, mode), as_json)
            return
        manifest = oracle_module.run(source, out, mode, app, params or None)
    if as_json:
        show(manifest)
    else:
        late = f", {manifest['dropped_late']} events too late for every window" if manifest.get("dropped_late") else ""
        print(f"{out}: {manifest['outputs']['rows']} outputs, digest {manifest['outputs']['digest']}{late}")


@app.command(epilog=examples("streaming-core diff wc-run wc-oracle"))
def diff(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or a recording.")],
    oracle_dir: Annotated[Path, typer.Argument(metavar="ORACLE", help="Oracle folder, or a recording of the oracle.")],
    as_json: Json = False,
) -> None:
    """Compare a run with the result of the oracle.

    Compares every output row, their order, the final state and the counts. Shows the first rows that differ.

    Exit code 0: equal. Exit code 1: different. Exit code 2: not comparable, for example two different workloads.
    """
    from streaming_core.run.comparison import diff as compare

    result = compare(run_dir, oracle_dir)
    if as_json:
        show(result.as_dict())
    elif result.reason:
        raise BadInput(result.text())
    else:
        print(result.text())
    raise typer.Exit(result.exit_code)
