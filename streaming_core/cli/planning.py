"""The commands about plans: `plan` finds one, and `probe` describes the host that it is for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as Grid

from streaming_core.cli.options import AppName, Json, ProfileName, Settings, examples, grouped, parameters
from streaming_core.cli.output import Bar, show
from streaming_core.errors import BadInput
from streaming_core.storage import save_json

app = typer.Typer()


@dataclass(frozen=True)
class CostSource:
    """The options of `plan` that say where the costs of the operators come from."""

    input: Annotated[
        Path | None,
        typer.Option("--input", help="Workload to measure the operators with. Default: the command generates one."),
    ] = None
    measured: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Use this profile of an earlier measurement instead of measuring."),
    ] = None


@dataclass(frozen=True)
class Search:
    """The options of `plan` that say what to plan for, and how to search."""

    machine: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="Machine to plan for: a file that `streaming-core probe --machine` wrote, server_a or server_b. "
            "Default: this host.",
        ),
    ] = None
    strategy: Annotated[
        str,
        typer.Option(
            help="Search strategy: balanced (ours), rlas (BriskStream's), rlas_fix_l, rlas_fix_u, first_fit, "
            "round_robin, os or exhaustive."
        ),
    ] = "balanced"
    threads: Annotated[
        int | None, typer.Option(help="Threads of this host to plan for. Default: one for each core.")
    ] = None
    channel: Annotated[str | None, typer.Option(help="Channel of the runs to plan. Default: gate.")] = None


@app.command(
    epilog=examples(
        "streaming-core plan wc --input wc-events --threads 1 --out wc-plan.json",
        "streaming-core run wc --input wc-events --executor pinned --plan wc-plan.json --out wc-planned",
        "streaming-core plan wc --machine server_a",
    )
)
@grouped
def plan(
    name: AppName,
    source: CostSource,
    search: Search,
    out: Annotated[Path | None, typer.Option(help="Plan file to write, for `streaming-core run --plan`.")] = None,
    settings: Settings = None,
    profile: ProfileName = None,
    as_json: Json = False,
) -> None:
    """Find a plan: how many replicas each operator has, and on which threads.

    Measures the operators of the application, then searches for the plan with the highest predicted rate on this host
    or another machine.
    """
    from streaming_core.planner import strategies
    from streaming_core.run import planning

    params = parameters(name, profile, settings)
    strategies.check(search.strategy)
    target = planning.machine_for(
        search.machine, search.threads
    )  # fails before the operators are measured, which takes longer
    with Bar(as_json) as bar:
        costs, path = planning.profile_of(name, params, source.input, source.measured, search.channel, bar)
        best = planning.find_on(costs, target, search.strategy)
    if out is not None:
        save_json(out, best.as_plan())
    if as_json:
        show(planning.as_dict(best) | {"profile": str(path) if path else None})
        return
    console = Console()
    estimated = planning.at_rate(best)
    grid = Grid("operator", "replicas", "threads", "rows/s", "busy", box=None)
    for operator, places in planning.in_order(best.as_plan(), name).items():
        rows, busy = planning.rows_per_s(estimated, operator), planning.busy(estimated, operator)
        grid.add_row(operator, str(len(places)), ", ".join(map(str, places)), f"{rows:,.0f}", f"{busy:.0%}")
    console.print(grid)
    how = f" by R ({best.rows_per_s:,.0f} rows/s of the sinks)" if best.by_output else ""
    print(
        f"strategy {best.strategy} on {best.machine.name}: predicts {best.events_per_s:,.0f} events/s{how}, limited by "
        f"{best.bottleneck}{f'; written to {out}' if out else ''}"
    )
    for note in planning.notes(best):
        print(f"note: {note}")


@app.command(epilog=examples("streaming-core probe", "streaming-core probe --machine host.json"))
def probe(
    machine: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also measure latencies and bandwidths, and write this machine file."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the cores and memory nodes of this host.

    With --machine, measures them too. `streaming-core plan --machine` takes the file.
    """
    from streaming_core.run.probe import topology

    facts = topology()
    if machine is not None and machine.is_dir():
        raise BadInput(f"--machine must be a file to write, but {machine} is a folder")
    if machine is not None:
        from streaming_core.run import host

        measured = host.machine()
        measured.save(machine)
        facts = measured.model_dump(mode="json")
    if as_json:
        show(facts)
        return
    for key, value in facts.items():
        print(f"{key}: {value}")
