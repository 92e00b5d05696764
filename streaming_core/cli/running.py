"""The commands that run an application, or one operator of it: `run`, `record` and `replay`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming_core.cli.options import (
    RECORD,
    RUN,
    Events,
    Json,
    ProfileName,
    Settings,
    What,
    examples,
    grouped,
    specification,
    takes,
)
from streaming_core.cli.output import NAME, Bar, show, show_recording
from streaming_core.process.ending import say

if TYPE_CHECKING:
    from streaming_core.run.report import Planned, RunReport

app = typer.Typer()


@app.command(
    epilog=examples(
        "streaming-core run wc --input wc-events --threads 2 --executor pooled --repetitions 3 --out wc-run",
        "streaming-core run wc --data lines.csv --threads 2 --out lines-run",
        "streaming-core run wc --input wc-events --executor pinned --rate 50000 --out wc-rate",
    )
)
@grouped
@takes(RUN)
def run(
    what: What,
    out: Annotated[
        Path,
        typer.Option(
            help="Run folder to write: outputs, final state and report.json. A folder of the same run that was "
            "interrupted resumes from its last checkpoint."
        ),
    ],
    options: dict[str, Any],
    events: Events,
    settings: Settings = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Run an application over a workload, or over files of your own.

    The first pass writes the outputs that `streaming-core diff` compares. Further passes (--repetitions) only measure.
    Without --set and --profile, the parameters are those of the workload. Some options belong to one executor;
    `streaming-core describe APP` shows which.
    """
    spec = specification(what, options, profile, settings, events.input, find_plan=True)
    from streaming_core.run import engine, external, planning
    from streaming_core.run.way import External

    # A user that sets plan auto wants that plan or an error; a run with default options succeeds without one.
    requires_plan = "plan" in options or what.endswith(".json")

    def tell(line: str) -> None:
        say(NAME, line)

    with events.workload(spec.app, spec.params) as source, Bar(as_json) as bar:
        if isinstance(spec, External):
            report = external.run(spec, source, out, tell)
        else:
            report = engine.run(spec, source, out, bar, tell, find_plan=planning.planned, requires_plan=requires_plan)
    if as_json:
        show(report.model_dump(mode="json"))
        return
    _print_figures(report, out)
    if report.planned is not None:
        _print_plan(report.planned, spec.app)


def _print_figures(report: RunReport, out: Path) -> None:
    """Print the figures of a run in one line."""
    first, best = report.verified, report.peak
    latency = first.processing if first.end_to_end is None else first.end_to_end
    processor = "" if best.cpu_ns is None else f"{best.cpu_ns:,.0f} CPU ns/event, "
    energy = "" if best.energy_nj is None else f"{best.energy_nj:,.0f} nJ/event, "
    threads = f", {best.threads.text}" if best.threads is not None and best.threads.why else ""
    late = f", {first.dropped_late} too late for every window" if first.dropped_late else ""
    print(
        f"{report.cell}: {first.events} events, {first.outputs} outputs, {best.events_per_s:,.0f} events/s, "
        f"{processor}{energy}p99 {latency.p99 / 1000:.3f} ms, digest {first.digest}, "
        f"{first.rejected} rejected, {first.dropped_invalid} invalid{late}{threads}; written to {out}"
    )


def _print_plan(planned: Planned, app_name: str) -> None:
    """Print the plan that a run with plan auto used, and what the run tells about it."""
    from streaming_core.run import planning

    threads = planning.in_order(planned.plan, app_name)
    places = "; ".join(f"{name} {', '.join(map(str, at))}" for name, at in threads.items())
    error = planned.error
    off = "" if error is None else f", {error:.0%} off"
    print(f"plan auto, threads of each operator: {places}")
    print(f"plan auto, prediction: {planned.events_per_s:,.0f} events/s{off}")
    if chosen := planned.chosen:
        rates = f"{chosen.candidate_per_s:,.0f} and {chosen.replicated_per_s:,.0f} events/s"
        print(
            f"plan auto, choice: the {chosen.plan} plan; found and replicated plan measured {rates}, ratio "
            f"{chosen.ratio:.2f}, median of {chosen.rounds} rounds"
        )
    for operator, times in planned.changed.items():
        print(f"plan auto, changed load: {operator} takes {times:.1f} times the share of work of the profile")
    if better := planned.better:
        plan = json.dumps(planning.in_order(better.plan, app_name))
        rates = f"{better.events_per_s:,.0f} instead of {better.instead_of:,.0f} events/s"
        print(f"plan auto, better plan now: {plan}, {rates}")


@app.command(
    epilog=examples(
        "streaming-core record wc --operator count --input wc-events --out wc-count",
        "streaming-core oracle wc --operator count --input wc-events --out wc-count-oracle",
        "streaming-core diff wc-count wc-count-oracle",
    )
)
@grouped
@takes(RECORD)
def record(
    what: What,
    operator: Annotated[str, typer.Option(help="Operator of the application; `streaming-core describe` lists them.")],
    out: Annotated[Path, typer.Option(help="Folder to write. It must be new or empty.")],
    options: dict[str, Any],
    events: Events,
    settings: Settings = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Record the input rows of one operator.

    Runs the part of the pipeline before the operator and writes the rows that reach the operator. The oracle makes the
    same recording with `streaming-core oracle --operator`. To run the operator alone on the recording, use
    `streaming-core replay`.
    """
    spec = specification(what, options, profile, settings, events.input)
    from streaming_core.data import workload
    from streaming_core.run import recording

    with events.workload(spec.app, spec.params) as source, Bar(as_json) as bar:
        opened = workload.read(source, spec.app, spec.params)
        manifest = recording.record(opened, operator, out, spec, progress=bar)
    show_recording(out, manifest, as_json)


@app.command(
    epilog=examples(
        "streaming-core record wc --operator count --input wc-events --out wc-input",
        "streaming-core replay wc-input",
    )
)
def replay(
    folder: Annotated[Path, typer.Argument(metavar="RECORDING", help="Folder that `streaming-core record` wrote.")],
    repetitions: Annotated[
        int, typer.Option(help="Measured passes, at least 1. Times are medians over the passes.")
    ] = 5,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write the operator's output to. It must be new or empty. Default: no output."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run one operator alone on its recorded input.

    Uses one thread. Checks the result against the oracle's replay, then measures the time per row.
    """
    from streaming_core.run import recording
    from streaming_core.run import replay as replaying

    source = recording.read(folder)
    with Bar(as_json) as bar:
        result = replaying.replay(source, repetitions, out, progress=bar)
    if as_json:
        show(result.as_dict())
        return
    figures = "no rows to measure"
    if result.rows_in:
        size = "" if result.bytes_out is None else f", {result.bytes_out:,.1f} bytes/row out"
        keys = "" if result.keys is None else f", {result.keys} keys"
        figures = (
            f"selectivity {result.selectivity:.4g}, {result.ns_per_row:,.1f} ns/row, "
            f"{result.bytes_in:,.1f} bytes/row in{size}{keys}"
        )
    print(
        f"{result.operator} of {result.app} ({result.kind}): {result.rows_in} rows in, {result.rows_out} rows out, "
        f"{figures}; equal to the oracle's replay"
    )
